//! RelQueries with rows in flight, in one list: what a choice reads of each that runs where a row could go, without a
//! search for it and without touching the relQuery itself.

use base::{RelQueryId, ServiceClass};

use crate::kv::prefix::KeyMap;
use crate::policy::marginal_work::lengths::{Ended, Expected, LengthKind, Lengths};
use crate::priority::RelQueryKey;

/// A relQuery that runs, as those see it that wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunningView {
    /// Where it stands, or would if rows of it waited.
    pub(crate) key: RelQueryKey,
    /// Its class, which its key tells only where classes count.
    pub(crate) class: ServiceClass,
    /// The greatest output limit of its rows.
    pub(crate) output_max: u64,
    /// What its length is learned by, and its rows that ended.
    pub(crate) kind: LengthKind,
    pub(crate) finished: Ended,
}

impl RunningView {
    /// How long a row of it is expected to be.
    pub(crate) fn expected(&self, lengths: &Lengths) -> Expected {
        Expected::of(self.output_max, self.finished, lengths.of(self.kind))
    }
}

/// A relQuery in flight.
#[derive(Clone, Copy, Debug)]
struct RelQueryInFlight {
    id: RelQueryId,
    /// Its rows in flight.
    rows: u32,
    view: RunningView,
}

/// All relQueries with rows in flight. An index stands for one of them as long as it has such rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct RelQueriesInFlight {
    entries: Vec<RelQueryInFlight>,
    /// Entries of relQueries that are no longer in flight.
    free: Vec<u32>,
    index: KeyMap<RelQueryId, u32>,
}

impl RelQueriesInFlight {
    /// A row of the relQuery is sent. Returns its index.
    pub(crate) fn add(&mut self, id: RelQueryId, view: RunningView) -> u32 {
        if let Some(index) = self.index.get(&id).copied() {
            self.entries[index as usize].rows += 1;
            return index;
        }
        let entry = RelQueryInFlight { id, rows: 1, view };
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        self.index.insert(id, index);
        index
    }

    /// A row of it has ended, or was taken back.
    pub(crate) fn remove(&mut self, id: RelQueryId) {
        let Some(index) = self.index.get(&id).copied() else { return };
        let entry = &mut self.entries[index as usize];
        entry.rows -= 1;
        if entry.rows == 0 {
            self.index.remove(&id);
            self.free.push(index);
        }
    }

    /// It is seen so from now on, if rows of it are in flight.
    pub(crate) fn set(&mut self, id: RelQueryId, view: impl FnOnce() -> RunningView) {
        if let Some(index) = self.index.get(&id) {
            self.entries[*index as usize].view = view();
        }
    }

    /// The relQuery of an index.
    pub(crate) fn view(&self, index: u32) -> &RunningView {
        &self.entries[index as usize].view
    }

    /// The relQuery with this id.
    pub(crate) fn view_of(&self, id: RelQueryId) -> Option<&RunningView> {
        self.index.get(&id).map(|index| self.view(*index))
    }

    /// Whether an index stands for the relQuery with this id.
    pub(crate) fn is_at(&self, id: RelQueryId, index: u32) -> bool {
        self.index.get(&id) == Some(&index)
    }

    /// How many they are.
    pub(crate) fn relqueries(&self) -> usize {
        self.index.len()
    }

    /// Each is found by its id, and the others are free; they have so many rows together.
    pub(crate) fn check(&self, rows: u32) -> Result<(), String> {
        let held: u32 = self.entries.iter().map(|entry| entry.rows).sum();
        let is_found =
            |(index, entry): (u32, &RelQueryInFlight)| (entry.rows > 0) == self.is_at(entry.id, index);
        let is_listed = (0..).zip(&self.entries).all(is_found);
        if held != rows || !is_listed || self.index.len() + self.free.len() != self.entries.len() {
            return Err(format!("{held} rows in flight by relQuery for {rows}, in {:?}", self.entries));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use base::Time;

    use super::*;

    fn view(priority: u64) -> RunningView {
        RunningView {
            key: RelQueryKey {
                class: ServiceClass::Interactive,
                is_on_time: true,
                priority,
                arrival: Time(0),
                id: RelQueryId(priority),
            },
            class: ServiceClass::Interactive,
            output_max: 9,
            kind: 0,
            finished: Ended::default(),
        }
    }

    #[test]
    fn a_relquery_keeps_its_index_while_rows_of_it_are_in_flight_and_leaves_it_to_another() {
        let mut flying = RelQueriesInFlight::default();
        let [one, other, third] = [1, 2, 3].map(RelQueryId);
        let index = flying.add(one, view(1));
        assert_ne!(flying.add(other, view(2)), index);
        assert_eq!(flying.add(one, view(1)), index);
        assert_eq!((flying.relqueries(), flying.check(3)), (2, Ok(())));
        flying.remove(one);
        assert_eq!(flying.view(index), &view(1));
        flying.set(one, || view(7));
        assert_eq!((flying.view(index), flying.view_of(one)), (&view(7), Some(&view(7))));
        flying.remove(one);
        assert_eq!((flying.view_of(one), flying.check(1)), (None, Ok(())));
        flying.set(one, || view(8));
        assert_eq!(flying.add(third, view(3)), index);
        assert_eq!(flying.view(index), &view(3));
        assert!(flying.is_at(third, index) && !flying.is_at(one, index));
        assert_ne!(flying.add(one, view(1)), index, "another has its place");
        assert_eq!((flying.relqueries(), flying.check(3)), (3, Ok(())));
    }
}
