//! Why the last step is what it is: plain data for logs, the live view and `explain`.

use base::{Nanos, RelQueryId, RequestId, StepId, Time, TokenCount};

use serde::Serialize;

use crate::arrange::Delta;
use crate::breakdown::PriorityBreakdown;
use crate::paper_variant::DeltaReading;
use crate::priority::RelQueryKey;
use crate::truncated::Truncated;

/// What planning a step consists of, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Priorities are up to date (RelServe: the dynamic priority updater).
    Updated,
    /// The candidates are built and one is chosen (RelServe: the adaptive batch arranger).
    Chosen,
    /// Blocks are granted and the plan is written.
    Granted,
}

/// Why a step prefills, decodes or does both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No step has been planned yet.
    #[default]
    Nothing,
    /// A prefill-first policy could admit a row.
    PrefillFirst,
    NothingRuns,
    /// No row waits.
    NothingWaits,
    /// The first waiting row finds no free sequence or no free block.
    NoRoom,
    /// A mixed policy does both.
    Mixed,
    /// Rows of a failed step are tried in smaller groups.
    Trial,
    /// The first waiting relQuery goes before all that run (RelServe: preemption).
    Overtakes,
    /// The first relQuery both waits and runs (RelServe: internal).
    Internal,
    /// Prefilling first lowers the mean latency (RelServe: transitional, delta below zero).
    TransitionPrefill,
    /// Decoding first lowers the mean latency, or changes nothing (RelServe: transitional).
    TransitionDecode,
    /// The first rows of a relQuery that is alone end before its others are prefilled, or beside few prompts of these.
    FirstRows,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing planned yet",
            Self::PrefillFirst => "prefill first: a waiting row can be admitted",
            Self::NothingRuns => "nothing runs",
            Self::NothingWaits => "nothing waits",
            Self::NoRoom => "the first waiting row finds no room",
            Self::Trial => "tries rows of a failed step again",
            Self::Mixed => "decodes with a chunk of prompts",
            Self::Overtakes => "preemption: the first waiting relQuery goes before all that run",
            Self::Internal => "internal: the first relQuery still has prompts",
            Self::TransitionPrefill => "transition: prefilling first lowers the mean latency",
            Self::TransitionDecode => "transition: decoding first lowers the mean latency",
            Self::FirstRows => "first rows of a relQuery that is alone end early",
        })
    }
}

/// What [`Delta`] is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trade {
    /// What each running relQuery loses.
    pub losses: Truncated<Loss>,
    /// relQueries that wait.
    pub waiting: u64,
    /// Decode steps that each of them gains.
    pub steps: u64,
}

/// A relQuery that a decision looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Touched {
    pub id: RelQueryId,
    /// Prio(R).
    pub priority: Nanos,
    /// What it is made of.
    pub breakdown: PriorityBreakdown,
    /// Since when it is here.
    pub age: Nanos,
    /// Whether it was computed for this step, and not reused (RelServe, Eq. 12).
    pub is_new: bool,
    /// Whether rows of it wait.
    pub waits: bool,
    /// Whether rows of it run.
    pub runs: bool,
}

/// What one running relQuery loses by a prefill (a term of RelServe, Eq. 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Loss {
    pub id: RelQueryId,
    /// The time of the prefill.
    pub prefill: Nanos,
    /// What the new rows add to its decode steps.
    pub sequences: Nanos,
}

/// What a relQuery that is alone gives so that its first rows end early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HeadStartTrade {
    /// By how much its last row may end later.
    pub allowed: Nanos,
    /// By how much it does by the cost model, after this step.
    pub spent: Nanos,
}

impl std::fmt::Display for HeadStartTrade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (spent, allowed) = (self.spent.as_seconds(), self.allowed.as_seconds());
        write!(f, "its last row ends {spent:.6} s later so far, of {allowed:.6} s that it may")
    }
}

/// The last planning.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// The step; absent before the first.
    pub step: Option<StepId>,
    /// When it was planned.
    pub now: Time,
    pub reason: Reason,
    /// The first waiting relQuery.
    pub front: Option<RelQueryKey>,
    /// The first running relQuery.
    pub first_running: Option<RelQueryKey>,
    /// Prompt tokens of the candidate prefill batch; absent where none was built.
    pub candidate_tokens: Option<TokenCount>,
    /// Rows of the candidate prefill batch.
    pub candidate_rows: u32,
    /// relQueries of the candidate prefill batch.
    pub candidate_relqueries: u32,
    /// Rows that ran when the step was planned.
    pub running_rows: u32,
    /// relQueries of these.
    pub running_relqueries: u32,
    pub decode_rows: u32,
    /// The trade-off, in the transitional case.
    pub delta: Option<Delta>,
    /// What the trade-off is made of.
    pub trade: Option<Trade>,
    /// What first rows cost, in a step in which they go first.
    pub head_start: Option<HeadStartTrade>,
    /// The first waiting relQuery, those of the step's prefill, those that run.
    pub touched: Truncated<Touched>,
    /// Rows that gave up their blocks.
    pub preempted: Vec<RequestId>,
}

impl std::fmt::Display for Decision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.step {
            Some(step) => write!(f, "step {step}: {}", self.reason)?,
            None => return write!(f, "{}", self.reason),
        }
        for (name, key) in [("front", self.front), ("running", self.first_running)] {
            if let Some(key) = key {
                let priority = Nanos(key.priority).as_seconds();
                write!(f, "; {name} relQuery {} at {priority:.6} s", key.id)?;
            }
        }
        if let Some(tokens) = self.candidate_tokens {
            write!(f, "; candidate of {} rows, {tokens}", self.candidate_rows)?;
        }
        if let Some(delta) = self.delta {
            let (loss, gain) = (Nanos(delta.running).as_seconds(), Nanos(delta.waiting).as_seconds());
            let sign = if delta.reading == DeltaReading::Figure8 { '-' } else { '+' };
            write!(f, "; delta = {loss:.6} {sign} {gain:.6} s")?;
        }
        if let Some(head_start) = self.head_start {
            write!(f, "; {head_start}")?;
        }
        if !self.preempted.is_empty() {
            write!(f, "; preempted {} rows", self.preempted.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_reads_as_a_line() {
        let decision = Decision {
            step: Some(StepId(4)),
            reason: Reason::TransitionPrefill,
            delta: Some(Delta { running: 26_500_000, waiting: 125_000_000, reading: DeltaReading::Figure8 }),
            ..Decision::default()
        };
        assert_eq!(
            decision.to_string(),
            "step 4: transition: prefilling first lowers the mean latency; delta = 0.026500 - 0.125000 s"
        );
    }
}
