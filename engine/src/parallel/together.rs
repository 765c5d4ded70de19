//! Ranks at work together: each on threads of its own, and none that waits for another which will not come.
//!
//! A rank that fails or panics fails the step as a whole: the others leave their next collective operation at
//! once, and the panic goes on in the caller when all have stopped.

use std::sync::Arc;
use std::time::Duration;

use super::StepError;
use super::shared::RankGroup;
use super::watchdog::Watchdog;
use crate::device::Cpu;
use crate::device::cuda::Gpu;

/// A step of several GPUs that takes longer than this has a rank that will not answer.
const STEP_MAX: Duration = Duration::from_secs(120);

/// What the ranks of a model share.
pub(super) struct Peers {
    group: Arc<RankGroup>,
    /// Each rank's threads; beside a GPU, those that wait for it.
    cpus: Vec<Arc<Cpu>>,
    /// Each rank's GPU; none where they are on the processor.
    gpus: Vec<Arc<dyn Gpu>>,
    /// Where several GPUs wait for one another.
    watchdog: Option<Watchdog>,
}

impl Peers {
    /// Ranks on these threads and GPUs, which meet in a group.
    pub(super) fn new(group: Arc<RankGroup>, cpus: &[Arc<Cpu>], gpus: &[Arc<dyn Gpu>]) -> Arc<Self> {
        let watchdog = (gpus.len() > 1).then(|| {
            let gpus = gpus.to_vec();
            Watchdog::new(STEP_MAX, move || gpus.iter().for_each(|gpu| gpu.abort()))
        });
        Arc::new(Self { group, cpus: cpus.to_vec(), gpus: gpus.to_vec(), watchdog })
    }

    pub(super) fn cpus(&self) -> &[Arc<Cpu>] {
        &self.cpus
    }

    pub(super) fn gpus(&self) -> &[Arc<dyn Gpu>] {
        &self.gpus
    }

    /// Runs `work` on all ranks at once, each told its number; what each gives, or the failure of any: where
    /// several fail, that of one that did not fail for another's sake.
    pub(super) fn together<R: Send, T: Send>(
        &self,
        ranks: impl ExactSizeIterator<Item = R>,
        work: impl Fn(usize, R) -> Result<T, StepError> + Sync,
    ) -> Result<Vec<T>, StepError> {
        assert_eq!(ranks.len(), self.cpus.len(), "each rank has its threads");
        self.group.begin();
        let _watch = self.watchdog.as_ref().map(Watchdog::watch);
        let one = |number: usize, rank: R| {
            let release = FailOnDrop(self);
            let result = work(number, rank)?;
            std::mem::forget(release);
            Ok(result)
        };
        if self.gpus.len() == 1 {
            // What its device computes needs no threads, and handing over to one takes longer than launching
            // a step.
            return ranks.map(|rank| one(0, rank)).collect();
        }
        let one = &one;
        let jobs = self.cpus.iter().zip(ranks).enumerate();
        let jobs = jobs.map(|(number, (cpu, rank))| (&**cpu, move || one(number, rank)));
        let results: Vec<Result<T, StepError>> = side_by_side(jobs.collect());
        let own =
            results.iter().filter_map(|result| result.as_ref().err()).find(|error| !error.is_of_another());
        match own {
            Some(own) => Err(own.clone()),
            None => results.into_iter().collect(),
        }
    }

    /// Frees whoever waits for a rank that will not come.
    fn fail(&self) {
        self.group.fail();
        if self.gpus.len() > 1 {
            self.gpus.iter().for_each(|gpu| gpu.abort());
        }
    }
}

/// Frees the other ranks of a group when one leaves its work early, by an error or a panic.
struct FailOnDrop<'a>(&'a Peers);

impl Drop for FailOnDrop<'_> {
    fn drop(&mut self) {
        self.0.fail();
    }
}

/// Runs each job on its device's threads, all at once. Their results in order; where one panics, so does
/// this, when all have ended.
pub(super) fn side_by_side<T: Send, J: FnOnce() -> T + Send>(jobs: Vec<(&Cpu, J)>) -> Vec<T> {
    let mut results: Vec<Option<T>> = jobs.iter().map(|_| None).collect();
    launch(jobs.into_iter().zip(&mut results));
    results.into_iter().map(|result| result.expect("every job has ended")).collect()
}

/// Starts the first job and, beside it, the others.
fn launch<'a, T, J, I>(mut jobs: I)
where
    T: Send + 'a,
    J: FnOnce() -> T + Send,
    I: Iterator<Item = ((&'a Cpu, J), &'a mut Option<T>)>,
{
    if let Some(((cpu, job), result)) = jobs.next() {
        cpu.run_beside(|| *result = Some(job()), || launch(jobs));
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::parallel::shared::GroupMember;
    use crate::parallel::{Broken, Collective as _};

    #[test]
    fn a_rank_that_fails_or_panics_fails_the_step_and_never_hangs_the_others() {
        let group = RankGroup::new(4);
        let members: Vec<GroupMember> = (0..4).map(|rank| group.member(rank)).collect();
        let cpu = |_| Arc::new(Cpu::new(Some(1)).expect("threads start"));
        let peers = Peers::new(group, &(0..4).map(cpu).collect::<Vec<_>>(), &[]);
        let sum = |member: &GroupMember| -> Result<f32, StepError> {
            let mut values = [1.0];
            Ok(member.all_reduce(&mut values).map(|()| values[0])?)
        };
        let broken = || Err(StepError::from(Broken));
        for bad in 0..4 {
            let failed = peers.together(members.iter(), |rank, member| {
                sum(member)?;
                if rank == bad { broken() } else { sum(member) }
            });
            assert_eq!(failed, Err(Broken.into()));
            let last = peers.together(members.iter(), |rank, member| {
                let sum = sum(member);
                if rank == bad { broken() } else { sum }
            });
            assert_eq!(last, Err(Broken.into()), "even after the last operation");
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                peers.together(members.iter(), |rank, member| {
                    sum(member)?;
                    assert!(rank != bad, "rank {bad} is meant to panic here");
                    sum(member)
                })
            }));
            assert!(panicked.is_err(), "the panic goes on in the caller");
            let next = peers.together(members.iter(), |_, member| sum(member));
            assert_eq!(next, Ok(vec![4.0; 4]), "the next step runs");
        }
    }
}
