//! What changes with time alone takes effect: the scheduler's timers read the earliest instant, and nobody
//! scans the queue.

use base::{Nanos, RelQueryId, ServiceClass, Time};

use super::instants::Instants;
use crate::Scheduler;

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
        relquery.instants =
            Instants::new(relquery.arrival, relquery.deadline, alone, rises_after.map(Nanos::from));
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
