//! What a world keeps of a run: the steps as they ran, and how relQueries ended. Plain data; it must not know
//! what reports make of it.

use base::{Nanos, Periods, RelQueryId, Time, TokenCount};
use scheduler::Usage;

/// Whose rows an iteration was made of, each relQuery once, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Those of which a row finished its prompt.
    pub prefilled: Vec<RelQueryId>,
    /// Those of which a row decoded.
    pub decoded: Vec<RelQueryId>,
}

/// One model step as it ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iteration {
    /// When it began.
    pub start: Time,
    /// How long it took.
    pub duration: Nanos,
    /// Prompt tokens computed.
    pub uncached: TokenCount,
    /// Rows that decoded.
    pub decoding: u64,
    /// Whose they were, where a world lists that.
    pub members: Option<Members>,
}

/// How a relQuery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The relQuery that ended.
    pub relquery: RelQueryId,
    /// The end of its last row.
    pub at: Time,
    /// Its latency in three parts.
    pub periods: Periods,
    /// Its tokens.
    pub usage: Usage,
}
