//! The step in flight: what is remembered of its slots until it is settled.

use base::{BlockId, RelQueryId, RequestId, StepId};

use crate::speculate::{DraftTokens, Source};

/// One slot of the step in flight.
#[derive(Clone, Debug)]
pub(crate) struct FlightSlot {
    pub(crate) request: RequestId,
    /// Whose row it is.
    pub(crate) relquery: RelQueryId,
    /// First position it computes.
    pub(crate) start: u32,
    /// Positions in the pool once it has run, beside those of guesses that were right.
    pub(crate) end: u32,
    /// What it guesses behind them.
    pub(crate) drafted: Option<DraftTokens>,
    /// Whether it computes prompt tokens.
    pub(crate) is_prefill: bool,
    /// Whether it samples.
    pub(crate) samples: bool,
    /// How many tokens of its prompt it scores, where its row asks for that.
    pub(crate) targets: Option<u64>,
    /// Whether the row was admitted with this step.
    pub(crate) is_new: bool,
    /// Whether it is the first of its row: one with sections may have several.
    pub(crate) leads: bool,
}

impl FlightSlot {
    /// Tokens of a decode that were forced: all but the last sampled one, which every decode computes.
    pub(crate) fn forced(&self) -> u64 {
        if self.is_prefill { 0 } else { u64::from(self.end - self.start) - 1 }
    }

    /// Tokens that it guesses.
    pub(crate) fn guessed(&self) -> u64 {
        self.drafted_by(|source| source != Source::Opening)
    }

    /// Tokens behind its prompt with which the output must begin.
    pub(crate) fn opening(&self) -> u64 {
        self.drafted_by(|source| source == Source::Opening)
    }

    fn drafted_by(&self, is_wanted: impl Fn(Source) -> bool) -> u64 {
        let drafted = self.drafted.as_ref().filter(|drafted| is_wanted(drafted.source));
        drafted.map_or(0, |drafted| drafted.tokens.len() as u64)
    }
}

/// The step in flight.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) step: StepId,
    pub(crate) slots: Vec<FlightSlot>,
    /// Blocks that became hittable with this step, and whose they are.
    pub(crate) published: Vec<(RequestId, BlockId)>,
    /// Requests the plan retired.
    pub(crate) retired: Vec<RequestId>,
}

/// A slot before its context is cut into runs.
pub(crate) struct Draft {
    pub(crate) relquery: RelQueryId,
    pub(crate) index: u32,
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) drafted: Option<DraftTokens>,
    pub(crate) is_new: bool,
    pub(crate) leads: bool,
    pub(crate) is_prefill: bool,
}
