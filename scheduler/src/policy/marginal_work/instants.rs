//! When time alone changes a relQuery's place: near its deadline it becomes urgent, one of a lower service
//! class that has waited long rises.

use base::{Nanos, Time};

/// Times that the run alone is thought to take before a deadline makes a relQuery urgent: others run too.
const HASTE: u64 = 2;

/// When a relQuery is urgent, and when it rises to the first class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Instants {
    /// First and last instant; later its deadline is missed, and it gains nothing by going first.
    pub(crate) urgent: Option<(Time, Time)>,
    /// From when on it counts as interactive.
    pub(crate) rises: Option<Time>,
}

impl Instants {
    /// The instants of a relQuery that would take `alone` without others.
    pub(crate) fn new(
        arrival: Time,
        deadline: Option<Time>,
        alone: Nanos,
        rises_after: Option<Nanos>,
    ) -> Self {
        let haste = Nanos(alone.0.saturating_mul(HASTE));
        let urgent = deadline.map(|at| (Time(at.0.saturating_sub(haste.0)), at));
        Self { urgent, rises: rises_after.map(|span| arrival + span) }
    }

    /// Whether it is urgent at `now`.
    pub(crate) fn is_urgent(&self, now: Time) -> bool {
        self.urgent.is_some_and(|(from, until)| from <= now && now < until)
    }

    /// The first instant after `now` at which something changes.
    pub(crate) fn next_timer(&self, now: Time) -> Option<Time> {
        let (from, until) = self.urgent.unzip();
        [from, until, self.rises].into_iter().flatten().filter(|at| *at > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_urgent_from_twice_the_run_before_it_until_it_is_missed() {
        let instants = Instants::new(Time(100), Some(Time(1_000)), Nanos(200), Some(Nanos(500)));
        let states = [0, 599, 600, 999, 1_000].map(|now| instants.is_urgent(Time(now)));
        assert_eq!(states, [false, false, true, true, false]);
        let next = [0, 600, 700, 1_000].map(|now| instants.next_timer(Time(now)));
        assert_eq!(next, [Some(Time(600)), Some(Time(1_000)), Some(Time(1_000)), None]);
        assert_eq!(instants.rises, Some(Time(600)));
    }
}
