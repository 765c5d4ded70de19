//! One replica: the real scheduler under vLLM's policy, an executor made of a cost model, and the step in flight.

use base::{Executor, Nanos, RelQueryId, ServiceClass, StepOutcome, Submission, TenantId, Time, WorkItem};
use scheduler::{Event, Scheduler, Usage};

use super::l4::L4;
use crate::executor::SimExecutor;

/// A row that ended on a replica.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// As what it was sent.
    pub tag: u64,
    /// Its tokens.
    pub usage: Usage,
}

/// A replica at work.
pub struct Replica {
    scheduler: Scheduler,
    executor: SimExecutor,
    outcome: Option<StepOutcome>,
    /// Nanoseconds in which a step ran.
    pub busy: Nanos,
    /// Steps.
    pub steps: u64,
}

impl Replica {
    /// An idle replica. The error says what is wrong with the machine.
    pub fn new(machine: L4) -> Result<Self, scheduler::ConfigError> {
        let cost = machine.cost();
        Ok(Self {
            scheduler: Scheduler::new(machine.scheduler(), cost)?,
            executor: SimExecutor::new(cost),
            outcome: None,
            busy: Nanos(0),
            steps: 0,
        })
    }

    /// Gives it a row, which its end will call `tag`.
    pub fn send(&mut self, tag: u64, item: WorkItem, now: Time) -> Result<(), scheduler::Refused> {
        self.scheduler.submit(Submission {
            id: RelQueryId(tag),
            tenant: TenantId(1),
            weight: 1_000,
            scope: 0,
            class: ServiceClass::Bulk,
            arrival: now,
            deadline: None,
            items: vec![item],
        })
    }

    /// Begins a step if none runs and there is work; when it ends.
    pub fn begin(&mut self, now: Time) -> Option<Time> {
        if self.outcome.is_some() {
            return None;
        }
        let plan = self.scheduler.plan(now)?;
        let outcome = self.executor.step(&plan).ok()?;
        let elapsed = outcome.elapsed;
        self.busy += elapsed;
        self.steps += 1;
        self.outcome = Some(outcome);
        Some(now + elapsed)
    }

    /// The step ends now: the rows that end with it.
    pub fn end(&mut self, now: Time) -> Vec<Ended> {
        let Some(outcome) = self.outcome.take() else { return Vec::new() };
        let events = self.scheduler.apply(&outcome, now).into_iter();
        let ended = events.filter_map(|event| match event {
            Event::RowDone { relquery, usage, .. } => Some(Ended { tag: relquery.0, usage }),
            _ => None,
        });
        ended.collect()
    }

    /// Rows that gave up their memory.
    pub fn preemptions(&self) -> u64 {
        self.scheduler.stats().preemptions
    }
}
