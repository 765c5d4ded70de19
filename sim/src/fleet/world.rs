//! Replicas beside each other in virtual time: whose step ends next, and what a method sends then.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use base::{Nanos, Time};
use scheduler::{ConfigError, Refused, Usage};

use super::method::Method;
use super::replica::{EndedRow, Replica};

/// What came of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct FleetOutcome {
    /// When the last row ended.
    pub total: Nanos,
    /// When the first did.
    pub first: Nanos,
    /// Rows that ended.
    pub rows: u64,
    /// Their tokens.
    pub usage: Usage,
    /// Time that replicas ran steps, together.
    pub busy: Nanos,
    /// Steps, together.
    pub steps: u64,
    /// Rows that gave up their memory.
    pub preemptions: u64,
    /// When the source had been read.
    pub read: Nanos,
}

impl FleetOutcome {
    fn count(&mut self, ended: &EndedRow, now: Time) {
        if self.rows == 0 {
            self.first = Nanos(now.0);
        }
        self.total = Nanos(now.0);
        self.rows += 1;
        self.usage += ended.usage;
    }

    /// Prompt tokens that the caches supplied, of all.
    pub fn hit_rate(&self) -> f64 {
        self.usage.cached.0 as f64 / (self.usage.prompt.0 as f64).max(1.0)
    }
}

/// A run that could not be.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// A machine that cannot be.
    #[error(transparent)]
    Machine(#[from] ConfigError),
    /// A row that a replica does not take.
    #[error("a replica refused a row: {0}")]
    Refused(#[from] Refused),
    /// A method without an end.
    #[error("rows are left and nothing happens any more")]
    Stuck,
}

/// What happens at a time, the earlier first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FleetEvent {
    StepEnds(usize),
    Look,
}

/// Runs a method on these replicas until all `rows` have ended.
pub fn run(
    mut replicas: Vec<Box<dyn Replica>>,
    rows: u64,
    method: &mut dyn Method,
) -> Result<FleetOutcome, WorldError> {
    let mut agenda = BinaryHeap::from([Reverse((Time(0), FleetEvent::Look))]);
    let mut next_look = Some(Time(0));
    let mut outcome = FleetOutcome::default();
    while outcome.rows < rows {
        let Some(Reverse((now, happening))) = agenda.pop() else { return Err(WorldError::Stuck) };
        let mut woken = Vec::new();
        match happening {
            FleetEvent::StepEnds(replica) => {
                for ended in replicas[replica].end(now) {
                    outcome.count(&ended, now);
                    method.ended(replica, ended, now);
                }
                woken.push(replica);
            }
            FleetEvent::Look => next_look = None,
        }
        for send in method.send(now) {
            replicas[send.replica].send(send.tag, send.item, now)?;
            woken.push(send.replica);
        }
        if outcome.read == Nanos(0) && method.has_read_all() {
            outcome.read = Nanos(now.0);
        }
        for replica in woken {
            if let Some(end) = replicas[replica].begin(now) {
                agenda.push(Reverse((end, FleetEvent::StepEnds(replica))));
            }
        }
        if next_look.is_none()
            && let Some(at) = method.looks_at(now)
        {
            next_look = Some(at);
            agenda.push(Reverse((at, FleetEvent::Look)));
        }
    }
    for tally in replicas.iter().map(|replica| replica.tally()) {
        outcome.busy += tally.busy;
        outcome.steps += tally.steps;
        outcome.preemptions += tally.preemptions;
    }
    Ok(outcome)
}
