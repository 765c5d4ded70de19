//! When time alone changes something about a relQuery: at most one instant for each, of which only the
//! earliest is read.
//!
//! The instant and the id together are the priority, so the order is total: no tie hangs on the queue's
//! inside.

use std::cmp::Reverse;
use std::hash::BuildHasherDefault;

use base::{RelQueryId, Time};
use priority_queue::PriorityQueue;

use crate::kv::prefix::KeyBits;

#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    queue: PriorityQueue<RelQueryId, Reverse<(Time, RelQueryId)>, BuildHasherDefault<KeyBits>>,
}

impl Timers {
    /// Sets the relQuery's timer, in place of the one it had; `None`: it has none from now on.
    pub(crate) fn set(&mut self, id: RelQueryId, at: Option<Time>) {
        match at {
            Some(at) => self.queue.push(id, Reverse((at, id))).map(|_| ()),
            None => self.queue.remove(&id).map(|_| ()),
        };
    }

    /// The earliest instant.
    pub(crate) fn next(&self) -> Option<Time> {
        self.queue.peek().map(|(_, Reverse((at, _)))| *at)
    }

    /// Takes the earliest timer if it `has_come`.
    pub(crate) fn take_if(&mut self, has_come: impl Fn(Time) -> bool) -> Option<(Time, RelQueryId)> {
        let at = self.next().filter(|at| has_come(*at))?;
        self.queue.pop().map(|(id, _)| (at, id))
    }

    /// Each timer is of a relQuery that `is_open`.
    pub(crate) fn check(&self, is_open: impl Fn(RelQueryId) -> bool) -> Result<(), String> {
        match self.queue.iter().find(|(id, _)| !is_open(**id)) {
            Some((id, _)) => Err(format!("relQuery {id} is gone and has a timer")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_of_two_at_once_the_one_of_the_lower_id() {
        let mut timers = Timers::default();
        for (id, at) in [(1, 9), (2, 5), (3, 5), (4, 1)] {
            timers.set(RelQueryId(id), Some(Time(at)));
        }
        timers.set(RelQueryId(1), Some(Time(4)));
        timers.set(RelQueryId(4), None);
        assert_eq!(timers.take_if(|at| at < Time(4)), None);
        assert_eq!(timers.next(), Some(Time(4)));
        let taken: Vec<_> = std::iter::from_fn(|| timers.take_if(|at| at <= Time(5))).collect();
        assert_eq!(taken, [(4, 1), (5, 2), (5, 3)].map(|(at, id)| (Time(at), RelQueryId(id))));
    }
}
