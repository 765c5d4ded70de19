//! What a policy has to say: four functions over the scheduler, and those that several policies share.
//!
//! The scheduler calls them at four places and asks for nothing else: `update` for a priority, `plan` for a
//! choice and before it, `intake` when rows arrive.

use base::{Nanos, RelQueryId, Time};

use crate::Scheduler;
use crate::breakdown::PriorityBreakdown;
use crate::choice::Choice;

use super::transition::Transition;
use super::view::RelQueryView;
use crate::priority::RelQueryKey;

/// What a policy does. The functions are called by the scheduler and nobody else.
pub(crate) struct Rules {
    /// Prio(R) of a relQuery, and what it was computed from: on its arrival, when rows are added, and
    /// whenever `on_plan` asks for it anew. A fleet asks when something of the relQuery has changed.
    pub(crate) priority: fn(&mut dyn RelQueryView) -> (Nanos, PriorityBreakdown),
    /// Which candidate the next step runs.
    pub(crate) choose: fn(&mut Scheduler) -> Choice,
    /// A relQuery got rows; before its priority is computed.
    pub(crate) on_arrival: fn(&mut Scheduler, RelQueryId),
    /// A step is about to be planned: brings priorities up to date.
    pub(crate) on_plan: fn(&mut Scheduler, Time),
    /// Whether rows of the first waiting relQuery go to a replica at which others run that come before it; none: they
    /// always go, and nothing is weighed.
    pub(crate) sends: Option<fn(&Transition<'_>) -> bool>,
}

impl Scheduler {
    /// A relQuery got rows.
    pub(crate) fn on_arrival(&mut self, id: RelQueryId) {
        match self.config.is_fair() {
            true => self.prepare_rows(id),
            false => (self.config.policy.rules().on_arrival)(self, id),
        }
    }

    /// A step is about to be planned.
    pub(crate) fn on_plan(&mut self, now: Time) {
        if self.config.is_fair() {
            self.run_timers(now);
        }
        (self.config.policy.rules().on_plan)(self, now);
    }

    /// The first waiting relQueries: where tenants have shares, those of whom others are not behind.
    pub(crate) fn first_waiting(&self, most: usize) -> Vec<RelQueryKey> {
        let lag = Nanos::from(self.config.marginal_work.tenant_lag_ms_max);
        let by_share = self.config.is_fair().then(|| self.queues.tenants.order(lag, most)).flatten();
        by_share.unwrap_or_else(|| self.queues.waiting.iter().take(most).copied().collect())
    }
}

/// A priority of nothing: the key's arrival and id decide.
pub(super) fn by_arrival(_: &mut dyn RelQueryView) -> (Nanos, PriorityBreakdown) {
    (Nanos(0), PriorityBreakdown::default())
}

/// Nothing is kept by arrival.
pub(super) fn no_arrival(_: &mut Scheduler, _: RelQueryId) {}

/// Priorities stay what they were on arrival.
pub(super) fn no_update(_: &mut Scheduler, _: Time) {}
