//! What changes with time alone: a relQuery near its deadline becomes urgent, one of a lower service
//! class that has waited long rises. Instants, of which the scheduler's timers read the earliest: nobody
//! scans the queue.

use base::{Nanos, RelQueryId, ServiceClass, Time};

use crate::Scheduler;
use crate::relquery::RelQuery;

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
    pub(crate) fn new(relquery: &RelQuery, alone: Nanos, rises_after: Option<Nanos>) -> Self {
        let haste = Nanos(alone.0.saturating_mul(HASTE));
        let urgent = relquery.deadline.map(|at| (Time(at.0.saturating_sub(haste.0)), at));
        Self { urgent, rises: rises_after.map(|span| relquery.arrival + span) }
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

impl Scheduler {
    /// Sets the timer of a relQuery to which rows were added.
    pub(crate) fn set_timer(&mut self, id: RelQueryId, alone: Nanos) {
        let settings = &self.config.marginal_work;
        let Some(relquery) = self.relqueries.get_mut(&id) else { return };
        let rises_after = match relquery.submitted_class {
            ServiceClass::Interactive => None,
            ServiceClass::Dashboard => Some(settings.dashboard_wait_ms_max),
            ServiceClass::Bulk => Some(settings.bulk_wait_ms_max),
        };
        relquery.instants = Instants::new(relquery, alone, rises_after.map(Nanos::from));
        // Whatever has passed already takes effect with the next step.
        self.timers.set(id, Some(Time(0)));
    }

    /// Lets everything whose time has come take effect.
    pub(crate) fn run_timers(&mut self, now: Time) {
        while let Some((_, id)) = self.timers.take_if(|at| at <= now) {
            let Some(relquery) = self.relqueries.get_mut(&id) else { continue };
            relquery.is_promoted = relquery.instants.is_urgent(now);
            if relquery.instants.rises.is_some_and(|rises| rises <= now) {
                relquery.class = ServiceClass::Interactive;
            }
            self.timers.set(id, relquery.instants.next_timer(now));
            self.update_priority(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use base::Submission;

    use super::*;
    use crate::common::submission;

    #[test]
    fn a_deadline_is_urgent_from_twice_the_run_before_it_until_it_is_missed() {
        let relquery =
            RelQuery::new(&Submission { deadline: Some(Time(1_000)), ..submission(1, 100, Vec::new()) });
        let instants = Instants::new(&relquery, Nanos(200), Some(Nanos(500)));
        let states = [0, 599, 600, 999, 1_000].map(|now| instants.is_urgent(Time(now)));
        assert_eq!(states, [false, false, true, true, false]);
        let next = [0, 600, 700, 1_000].map(|now| instants.next_timer(Time(now)));
        assert_eq!(next, [Some(Time(600)), Some(Time(1_000)), Some(Time(1_000)), None]);
        assert_eq!(instants.rises, Some(Time(600)));
    }
}
