//! What runs rows, as the loop sees it: the local engine alone, or a fleet. Both take the same work and tell
//! of it in the same events, so that flights, coalescing, single-flight and cancellation are one code path.

use base::{Nanos, PinId, RelQueryId, Submission, Time, TokenCount, WorkItem};
use scheduler::{Event, Policy, Refused, SchedulerSnapshot, Stats};

use super::engine::{Engine, StepReport, StepResult};
use crate::replicas::{Fleet, FleetMessage, RowLikelihood, RowPrices, RowUse};
use crate::shared::Shared;
use crate::traces::open::RelQueryTrace;
use crate::view::View;

/// What runs rows.
pub enum Backend {
    /// The local engine alone.
    Engine(Box<Engine>),
    /// Several replicas.
    Fleet(Box<Fleet>),
}

impl Backend {
    /// Takes a relQuery, or nothing of it.
    pub(super) fn submit(&mut self, submission: Submission) -> Result<(), Refused> {
        match self {
            Self::Engine(engine) => engine.scheduler.submit(submission),
            Self::Fleet(fleet) => fleet.submit(submission),
        }
    }

    /// Notes where a relQuery comes from, for the replicas that run its rows.
    pub(super) fn comes_from(&mut self, id: RelQueryId, trace: &RelQueryTrace) {
        if let Self::Fleet(fleet) = self
            && let Some(passed) = trace.passed_on()
        {
            fleet.pass_on(id, passed);
        }
    }

    /// A relQuery has ended, or was called off.
    pub(super) fn forget(&mut self, id: RelQueryId) {
        if let Self::Fleet(fleet) = self {
            fleet.forget(id);
        }
    }

    /// Adds rows to a relQuery.
    pub(super) fn extend(&mut self, id: RelQueryId, items: Vec<WorkItem>) -> Result<(), Refused> {
        match self {
            Self::Engine(engine) => engine.scheduler.extend(id, items),
            Self::Fleet(fleet) => fleet.extend(id, items),
        }
    }

    /// The policy in force.
    pub(super) fn policy(&self) -> Policy {
        match self {
            Self::Engine(engine) => engine.scheduler.config().policy,
            Self::Fleet(fleet) => fleet.policy(),
        }
    }

    /// Serves by this policy from now on. Between two turns of the loop no step is in flight.
    pub(super) fn set_policy(&mut self, policy: Policy) {
        match self {
            Self::Engine(engine) => {
                engine.scheduler.set_policy(policy);
            }
            Self::Fleet(fleet) => fleet.set_policy(policy),
        }
    }

    /// Calls a relQuery off.
    pub(super) fn cancel(&mut self, id: RelQueryId) {
        match self {
            Self::Engine(engine) => {
                engine.scheduler.cancel(id);
            }
            Self::Fleet(fleet) => fleet.cancel(id),
        }
    }

    /// Calls a row off.
    pub(super) fn cancel_row(&mut self, id: RelQueryId, row: u32) {
        match self {
            Self::Engine(engine) => {
                engine.scheduler.cancel_row(id, row);
            }
            Self::Fleet(fleet) => fleet.cancel_row(id, row),
        }
    }

    /// The unfinished rows of a relQuery that a fleet has sent to a replica: what that has done for them is not known. Rows
    /// of an engine begin with its steps.
    pub(super) fn sent(&self, id: RelQueryId) -> Vec<u32> {
        match self {
            Self::Engine(_) => Vec::new(),
            Self::Fleet(fleet) => fleet.sent(id),
        }
    }

    /// What an unfinished row has used so far; `None`: it has not begun. `told`: the tokens that it was heard to put out,
    /// which an engine knows itself.
    pub(super) fn used_so_far(&self, id: RelQueryId, row: u32, told: TokenCount) -> Option<RowUse> {
        match self {
            Self::Engine(engine) => {
                let usage = engine.scheduler.row_usage(id, row)?;
                Some(RowUse { usage, prices: None })
            }
            Self::Fleet(fleet) => fleet.used_so_far(id, row, told),
        }
    }

    /// Holds a relQuery's sections after its end. A fleet has none.
    pub(super) fn pin(&mut self, id: RelQueryId, pin: PinId) {
        if let Self::Engine(engine) = self {
            engine.scheduler.pin(id, pin);
        }
    }

    /// Lets go what a pin holds.
    pub(super) fn unpin(&mut self, pin: PinId) {
        if let Self::Engine(engine) = self {
            engine.scheduler.unpin(pin);
        }
    }

    /// Whether a pin holds anything.
    pub(super) fn is_pinned(&self, pin: PinId) -> bool {
        match self {
            Self::Engine(engine) => engine.scheduler.pinned(pin).is_some(),
            Self::Fleet(_) => false,
        }
    }

    /// Pins that lost what they held.
    pub(super) fn drain_lost_pins(&mut self) -> Vec<PinId> {
        match self {
            Self::Engine(engine) => engine.scheduler.drain_lost_pins(),
            Self::Fleet(_) => Vec::new(),
        }
    }

    /// Takes in what a replica of a fleet reports.
    pub(super) fn poll(&mut self, message: FleetMessage, shared: &Shared) -> Vec<Event> {
        match self {
            Self::Engine(_) => Vec::new(),
            Self::Fleet(fleet) => fleet.poll(message, shared),
        }
    }

    /// How likely the answers are that the last events have, of a fleet; an engine's events tell it themselves.
    pub(super) fn take_likelihoods(&mut self) -> Vec<RowLikelihood> {
        match self {
            Self::Engine(_) => Vec::new(),
            Self::Fleet(fleet) => fleet.take_likelihoods(),
        }
    }

    /// What tokens cost where the rows ran that the last events end; an engine alone has the model's prices.
    pub(super) fn take_prices(&mut self) -> Vec<RowPrices> {
        match self {
            Self::Engine(_) => Vec::new(),
            Self::Fleet(fleet) => fleet.take_prices(),
        }
    }

    /// Does what can be done now.
    pub(super) fn advance(&mut self, shared: &Shared) -> StepResult {
        match self {
            Self::Engine(engine) => engine.advance(shared),
            Self::Fleet(fleet) => match fleet.advance(shared) {
                events if events.is_empty() => StepResult::Idle,
                events => StepResult::Stepped(events, shared.clock.now(), None),
            },
        }
    }

    /// When the step began whose events came last; a fleet's come as they happen.
    pub(super) fn step_begun(&self) -> Option<Time> {
        match self {
            Self::Engine(engine) => engine.begun(),
            Self::Fleet(_) => None,
        }
    }

    /// What the last step left to be kept.
    pub(super) fn take_report(&mut self) -> StepReport {
        match self {
            Self::Engine(engine) => engine.take_report(),
            Self::Fleet(fleet) => StepReport { starts: fleet.take_starts(), timed: None },
        }
    }

    /// How long it may be left alone although nothing happens; without it, for ever.
    pub(super) fn patience(&self, shared: &Shared) -> Option<Nanos> {
        match self {
            Self::Engine(_) => None,
            Self::Fleet(fleet) => fleet.patience(shared.clock.now()),
        }
    }

    /// Queue and memory, with the first `most` relQueries.
    pub(super) fn snapshot(&self, most: usize) -> (Stats, SchedulerSnapshot) {
        match self {
            Self::Engine(engine) => (engine.scheduler.stats(), engine.scheduler.snapshot(most)),
            Self::Fleet(fleet) => fleet.snapshot(most),
        }
    }

    /// What it says of itself.
    pub(super) fn view(&self, shared: &Shared) -> View {
        match self {
            Self::Engine(engine) => View {
                policy: self.policy(),
                stats: engine.scheduler.stats(),
                cost: engine.scheduler.cost(),
                is_measured: true,
                decision: engine.scheduler.last_decision().to_string(),
                replicas: Vec::new(),
            },
            Self::Fleet(fleet) => fleet.view(shared),
        }
    }
}
