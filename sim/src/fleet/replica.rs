//! What a replica is, and the one that is real: the scheduler that serves under vLLM's policy, an executor
//! made of a cost model, and the step in flight. The other is [`super::counted`].

use base::{Executor, Nanos, RelQueryId, ServiceClass, StepOutcome, Submission, TenantId, Time, WorkItem};
use scheduler::{ConfigError, Event, Refused, Scheduler, Usage};

use super::l4::L4;
use crate::executor::SimExecutor;

/// A row that ended on a replica.
#[derive(Clone, Copy, Debug)]
pub struct EndedRow {
    /// As what it was sent.
    pub tag: u64,
    /// Its tokens.
    pub usage: Usage,
}

/// What a replica has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplicaCounts {
    /// Time in which a step ran.
    pub busy: Nanos,
    pub steps: u64,
    /// Rows that gave up their memory.
    pub preemptions: u64,
}

/// A replica at work: it runs one step after the other.
pub trait Replica {
    /// Gives it a row, which its end will call `tag`.
    fn send(&mut self, tag: u64, item: WorkItem, now: Time) -> Result<(), Refused>;
    /// Begins a step if none runs and there is work; when it ends.
    fn begin(&mut self, now: Time) -> Option<Time>;
    /// The step ends now: the rows that end with it.
    fn end(&mut self, now: Time) -> Vec<EndedRow>;
    /// What it has done so far.
    fn tally(&self) -> ReplicaCounts;
}

/// A replica with the real scheduler.
pub struct SchedulerReplica {
    scheduler: Scheduler,
    executor: SimExecutor,
    outcome: Option<StepOutcome>,
    tally: ReplicaCounts,
}

impl SchedulerReplica {
    /// An idle replica. The error says what is wrong with the machine.
    pub fn new(machine: L4) -> Result<Self, ConfigError> {
        let cost = machine.cost();
        Ok(Self {
            scheduler: Scheduler::new(machine.scheduler(), cost)?,
            executor: SimExecutor::new(cost),
            outcome: None,
            tally: ReplicaCounts::default(),
        })
    }
}

/// Rows of the one tenant's job.
pub(super) fn bulk(id: u64, items: Vec<WorkItem>, arrival: Time) -> Submission {
    Submission {
        id: RelQueryId(id),
        tenant: TenantId(1),
        weight: 1_000,
        scope: 0,
        class: ServiceClass::Bulk,
        arrival,
        deadline: None,
        items,
    }
}

impl Replica for SchedulerReplica {
    fn send(&mut self, tag: u64, item: WorkItem, now: Time) -> Result<(), Refused> {
        self.scheduler.submit(bulk(tag, vec![item], now))
    }

    fn begin(&mut self, now: Time) -> Option<Time> {
        if self.outcome.is_some() {
            return None;
        }
        let plan = self.scheduler.plan(now)?;
        let outcome = self.executor.step(&plan).ok()?;
        let elapsed = outcome.elapsed;
        self.tally.busy += elapsed;
        self.tally.steps += 1;
        self.outcome = Some(outcome);
        Some(now + elapsed)
    }

    fn end(&mut self, now: Time) -> Vec<EndedRow> {
        let Some(outcome) = self.outcome.take() else { return Vec::new() };
        let events = self.scheduler.apply(&outcome, now).into_iter();
        let ended = events.filter_map(|event| match event {
            Event::RowDone { relquery, usage, .. } => Some(EndedRow { tag: relquery.0, usage }),
            _ => None,
        });
        ended.collect()
    }

    fn tally(&self) -> ReplicaCounts {
        ReplicaCounts { preemptions: self.scheduler.stats().preemptions, ..self.tally }
    }
}
