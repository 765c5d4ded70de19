//! One step as the live view has it: what the scheduler decided, whose rows it was made of, how long it took.
//!
//! Copied out of what planning left behind; the only thing computed is whose the slots are.

use base::{BatchKind, BatchPlan, Nanos, RelQueryId, StepId, TenantId, Time};
use scheduler::arrange::Delta;
use scheduler::priority::RelQueryKey;
use scheduler::snapshot::TenantPart;
use scheduler::{Reason, Scheduler};

/// A relQuery that a decision looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub id: RelQueryId,
    pub tenant: TenantId,
    /// Prio(R).
    pub priority: u64,
}

/// How large a batch is, or could have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchSize {
    pub relqueries: u32,
    pub rows: u32,
    /// Uncached prompt tokens.
    pub tokens: u64,
}

/// One step.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its number.
    pub step: StepId,
    /// What it was made of.
    pub kind: BatchKind,
    pub reason: Reason,
    /// What could have been prefilled; absent where no candidate was built.
    pub candidate: Option<BatchSize>,
    /// RelQueries with rows that ran when it was planned.
    pub running_relqueries: u32,
    /// Rows that ran when it was planned.
    pub running_rows: u32,
    /// The trade-off, in the transitional case (RelServe, Eq. 15-17).
    pub delta: Option<Delta>,
    /// The first waiting relQuery.
    pub front: Option<Seen>,
    pub first_running: Option<Seen>,
    /// Rows that gave up their memory.
    pub preempted: u32,
    /// Tokens guessed ahead.
    pub guesses: u64,
    /// Whose rows it was made of.
    pub parts: Vec<TenantPart>,
    /// How it went.
    pub timing: StepTiming,
}

/// How a step went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTiming {
    /// When the executor began.
    pub start: Time,
    /// How long the executor took.
    pub took: Nanos,
    /// How long it took to plan it and to apply its outcome.
    pub scheduling: Nanos,
    /// From the end of the step before to its start, where it followed at once.
    pub gap: Option<Nanos>,
    /// Whether it failed whole.
    pub is_failed: bool,
}

impl Step {
    /// The step in flight, before its outcome is applied: who ends with it is still known.
    pub fn of(scheduler: &Scheduler, plan: &BatchPlan) -> Self {
        let decision = scheduler.last_decision();
        let seen = |key: Option<RelQueryKey>| {
            let RelQueryKey { id, priority, .. } = key?;
            Some(Seen { id, tenant: scheduler.tenant_of(id)?, priority })
        };
        let candidate = decision.candidate_tokens.map(|tokens| BatchSize {
            relqueries: decision.candidate_relqueries,
            rows: decision.candidate_rows,
            tokens: tokens.0,
        });
        Self {
            step: plan.step,
            kind: plan.kind(),
            reason: decision.reason,
            candidate,
            running_relqueries: decision.running_relqueries,
            running_rows: decision.running_rows,
            delta: decision.delta,
            front: seen(decision.front),
            first_running: seen(decision.first_running),
            preempted: u32::try_from(decision.preempted.len()).unwrap_or(u32::MAX),
            guesses: plan.guesses(),
            parts: scheduler.parts(),
            timing: StepTiming::default(),
        }
    }
}
