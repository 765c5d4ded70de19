//! What a policy has to say: four functions over the scheduler, and those that several policies share.
//!
//! The scheduler calls them at four places and asks for nothing else: `update` for a priority, `plan` for a
//! choice and before it, `intake` when rows arrive.

use base::{Nanos, RelQueryId, Time};

use crate::Scheduler;
use crate::breakdown::PriorityBreakdown;
use crate::choice::Choice;

use super::view::RelQueryView;

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
}

/// A priority of nothing: the key's arrival and id decide.
pub(super) fn by_arrival(_: &mut dyn RelQueryView) -> (Nanos, PriorityBreakdown) {
    (Nanos(0), PriorityBreakdown::default())
}

/// Nothing is kept by arrival.
pub(super) fn no_arrival(_: &mut Scheduler, _: RelQueryId) {}

/// Priorities stay what they were on arrival.
pub(super) fn no_update(_: &mut Scheduler, _: Time) {}
