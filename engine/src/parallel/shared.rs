//! Ranks as threads of one process: they exchange through shared memory.
//!
//! An operation is one round: every rank puts its part on the table, waits for the others, then reads all
//! parts. There are two tables, used in turn: a rank that is a round ahead cannot overwrite what another
//! still reads, and two rounds ahead it cannot be.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use rayon::prelude::*;

use super::{Broken, Collective};

/// Elements that a task adds up at least: less is not worth waking a thread for.
const TASK_ELEMENTS: usize = 1 << 14;

/// A rank's part on a table.
type Part = RwLock<Vec<f32>>;

/// Where the ranks of a model meet.
pub(super) struct RankGroup {
    round: Mutex<Round>,
    wake: Condvar,
    tables: [Vec<Part>; 2],
}

/// How far the ranks are.
#[derive(Default)]
struct Round {
    /// Completed rounds.
    number: u64,
    /// Ranks that wait for this one to complete.
    waiting: usize,
    /// Whether a rank has failed: nobody waits any more.
    is_broken: bool,
}

/// A rank's end of a [`RankGroup`].
pub(super) struct GroupMember {
    group: Arc<RankGroup>,
    rank: usize,
}

impl RankGroup {
    /// A group of so many ranks.
    pub(super) fn new(ranks: usize) -> Arc<Self> {
        let table = || (0..ranks).map(|_| Part::default()).collect();
        Arc::new(Self { round: Mutex::default(), wake: Condvar::new(), tables: [table(), table()] })
    }

    /// The end of rank `rank`.
    pub(super) fn member(self: &Arc<Self>, rank: usize) -> GroupMember {
        GroupMember { group: Arc::clone(self), rank }
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts afresh, whatever became of the step before. No rank may be in an operation.
    pub(super) fn begin(&self) {
        let mut round = self.round();
        (round.waiting, round.is_broken) = (0, false);
    }

    /// Fails all operations until the group begins again.
    pub(super) fn fail(&self) {
        self.round().is_broken = true;
        self.wake.notify_all();
    }

    /// Waits until every rank is here.
    fn meet(&self) -> Result<(), Broken> {
        let mut round = self.round();
        if round.is_broken {
            return Err(Broken);
        }
        let number = round.number;
        round.waiting += 1;
        if round.waiting == self.tables[0].len() {
            (round.number, round.waiting) = (number + 1, 0);
            self.wake.notify_all();
            return Ok(());
        }
        while round.number == number && !round.is_broken {
            round = self.wake.wait(round).unwrap_or_else(PoisonError::into_inner);
        }
        if round.number == number { Err(Broken) } else { Ok(()) }
    }
}

impl GroupMember {
    /// Puts `part` on the table and waits for the other ranks' parts.
    fn exchange(&self, part: &[f32]) -> Result<Vec<RwLockReadGuard<'_, Vec<f32>>>, Broken> {
        // No round completes without this rank: all of them see the same number here.
        let table = &self.group.tables[(self.group.round().number % 2) as usize];
        {
            let mut own = table[self.rank].write().unwrap_or_else(PoisonError::into_inner);
            own.clear();
            own.extend_from_slice(part);
        }
        self.group.meet()?;
        Ok(table.iter().map(|part| part.read().unwrap_or_else(PoisonError::into_inner)).collect())
    }
}

impl Collective for GroupMember {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.group.tables[0].len()
    }

    fn all_reduce(&self, values: &mut [f32]) -> Result<(), Broken> {
        let parts = self.exchange(values)?;
        let parts: Vec<&[f32]> = parts.iter().map(|part| part.as_slice()).collect();
        assert!(parts.iter().all(|part| part.len() == values.len()), "ranks reduce equal lengths");
        values.par_chunks_mut(TASK_ELEMENTS).enumerate().for_each(|(number, values)| {
            let piece = number * TASK_ELEMENTS..number * TASK_ELEMENTS + values.len();
            values.copy_from_slice(&parts[0][piece.clone()]);
            for part in &parts[1..] {
                values.iter_mut().zip(&part[piece.clone()]).for_each(|(sum, value)| *sum += *value);
            }
        });
        Ok(())
    }

    fn all_gather(&self, part: &[f32], all: &mut [f32]) -> Result<(), Broken> {
        let parts = self.exchange(part)?;
        assert_eq!(all.len(), part.len() * parts.len(), "ranks gather equal lengths");
        if !part.is_empty() {
            all.chunks_exact_mut(part.len()).zip(&parts).for_each(|(all, part)| all.copy_from_slice(part));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `work` as every rank of a group, each on a thread of its own.
    fn on_ranks<T: Send>(group: &Arc<RankGroup>, work: impl Fn(&GroupMember) -> T + Sync) -> Vec<T> {
        let ranks = group.tables[0].len();
        std::thread::scope(|scope| {
            let run = |rank: usize| {
                let member = group.member(rank);
                let work = &work;
                scope.spawn(move || work(&member))
            };
            let ranks: Vec<_> = (0..ranks).map(run).collect();
            ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
        })
    }

    #[test]
    fn sums_are_the_same_bits_on_every_rank_and_every_time() {
        // Values whose sum depends on the order in which they are added.
        let value = |rank: usize, i: usize| [1e8f32, 1.0, -1e8, 0.3][(rank + i) % 4] * (1 + i % 7) as f32;
        let length = 3 * TASK_ELEMENTS + 5;
        for ranks in [1, 2, 3, 4] {
            let group = RankGroup::new(ranks);
            let expected: Vec<u32> = (0..length)
                .map(|i| (1..ranks).fold(value(0, i), |sum, rank| sum + value(rank, i)).to_bits())
                .collect();
            for _ in 0..5 {
                let sums = on_ranks(&group, |member| {
                    let mut values: Vec<f32> = (0..length).map(|i| value(member.rank(), i)).collect();
                    member.all_reduce(&mut values).expect("nobody fails");
                    values
                });
                for sum in sums {
                    assert!(sum.iter().zip(&expected).all(|(sum, expected)| sum.to_bits() == *expected));
                }
            }
        }
    }

    #[test]
    fn ranks_that_run_ahead_never_mix_rounds() {
        let group = RankGroup::new(3);
        let gathered = on_ranks(&group, |member| {
            let round = |number: usize| {
                let own = (100 * number + member.rank()) as f32;
                let mut all = [0.0; 3];
                member.all_gather(&[own], &mut all).expect("nobody fails");
                all
            };
            (0..500).map(round).collect::<Vec<_>>()
        });
        for rounds in gathered {
            for (number, all) in rounds.into_iter().enumerate() {
                assert_eq!(all, [0, 1, 2].map(|rank| (100 * number + rank) as f32));
            }
        }
    }

    #[test]
    fn a_rank_that_fails_frees_the_others_until_the_group_begins_again() {
        let group = RankGroup::new(3);
        let sum = |member: &GroupMember| {
            let mut values = [1.0];
            member.all_reduce(&mut values).map(|()| values[0])
        };
        for is_late in [false, true] {
            let results = on_ranks(&group, |member| {
                if is_late {
                    sum(member)?;
                }
                match member.rank() {
                    1 => {
                        group.fail();
                        Err(Broken)
                    }
                    _ => sum(member),
                }
            });
            assert_eq!(results, [Err(Broken); 3]);
            assert_eq!(sum(&group.member(0)), Err(Broken), "nobody waits in a broken group");
            group.begin();
            assert_eq!(on_ranks(&group, sum), [Ok(3.0); 3]);
        }
    }
}
