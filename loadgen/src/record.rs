//! What became of each relQuery: one JSON line, flushed as it ends, so that a run that is cut short keeps
//! what it measured.

use std::io::Write;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::workload::RelQuery;

/// The server's own account of a relQuery's latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Periods {
    /// Arrival to first prefill, ms.
    pub waiting_ms: f64,
    /// First prefill to the end of the last, ms.
    pub core_ms: f64,
    /// End of the last prefill to the end of the last decode, ms.
    pub tail_ms: f64,
}

/// The server's own account of a relQuery's tokens. What the server does not say is absent, not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    pub prompt: Option<u64>,
    /// Prompt tokens from the prefix cache.
    pub cached: Option<u64>,
    /// Prompt tokens computed.
    pub computed: Option<u64>,
    pub output: Option<u64>,
}

impl TokenUsage {
    /// Both accounts together; a part that one of them lacks stays absent.
    pub fn plus(self, other: Self) -> Self {
        let add = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        Self {
            prompt: add(self.prompt, other.prompt),
            cached: add(self.cached, other.cached),
            computed: add(self.computed, other.computed),
            output: add(self.output, other.output),
        }
    }

    /// An account of nothing, to add to.
    pub const NONE_YET: Self = Self { prompt: Some(0), cached: Some(0), computed: Some(0), output: Some(0) };
}

/// What an attempt came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RelQueryOutcome {
    /// Rows answered.
    pub rows_done: u32,
    /// Rows that ended in an error of their own.
    pub rows_failed: u32,
    /// Answers beyond the first of a row.
    pub rows_twice: u32,
    /// The server's periods.
    pub periods: Option<Periods>,
    /// The server's tokens.
    pub tokens: TokenUsage,
    /// Those of each row, in the rows' order; empty where rows are not told of.
    pub row_tokens: Vec<TokenUsage>,
    /// Why the first of the failed rows did.
    pub row_error: Option<String>,
    /// Why the relQuery as a whole failed, if it did.
    pub error: Option<String>,
}

impl RelQueryOutcome {
    /// A relQuery that failed as a whole.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self { error: Some(reason.into()), ..Self::default() }
    }
}

/// One line of requests.jsonl.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The relQuery's number in the trace.
    pub index: u32,
    pub task: String,
    pub table: String,
    pub rows: u32,
    /// Its longest answer, in tokens.
    pub max_tokens: u32,
    /// When it was due, ms from the start. Latency counts from here, so a late sender hides nothing.
    pub arrival_ms: f64,
    /// From its arrival to its first answered row, ms.
    pub first_row_ms: Option<f64>,
    /// From its arrival to its last answered row, ms; absent where it failed.
    pub latency_ms: Option<f64>,
    /// The server's periods.
    #[serde(flatten)]
    pub periods: Option<Periods>,
    /// The server's tokens.
    pub tokens: TokenUsage,
    /// Those of each row, in the rows' order; empty where rows are not told of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub row_tokens: Vec<TokenUsage>,
    /// Rows answered.
    pub rows_done: u32,
    /// Rows that ended in an error.
    pub rows_failed: u32,
    /// Answers beyond the first of a row.
    #[serde(default)]
    pub rows_twice: u32,
    /// Why the first of the failed rows did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_error: Option<String>,
    /// Why it failed as a whole.
    pub error: Option<String>,
}

impl Record {
    /// The record of an attempt that ended `elapsed_ms` after its arrival.
    pub fn new(
        relquery: &RelQuery,
        outcome: RelQueryOutcome,
        first_row_ms: Option<f64>,
        elapsed_ms: f64,
    ) -> Self {
        Self {
            index: relquery.index,
            task: relquery.task.clone(),
            table: relquery.table.clone(),
            rows: u32::try_from(relquery.rows.len()).unwrap_or(u32::MAX),
            max_tokens: relquery.max_tokens,
            arrival_ms: relquery.arrival.as_secs_f64() * 1e3,
            first_row_ms,
            latency_ms: outcome.error.is_none().then_some(elapsed_ms),
            periods: outcome.periods,
            tokens: outcome.tokens,
            row_tokens: outcome.row_tokens,
            rows_done: outcome.rows_done,
            rows_failed: outcome.rows_failed,
            rows_twice: outcome.rows_twice,
            row_error: outcome.row_error,
            error: outcome.error,
        }
    }
}

/// Writes one line and flushes it.
pub fn write_line(to: &mut impl Write, record: &Record) -> Result<(), Error> {
    let fail = |reason: String| Error::File { path: "requests.jsonl".into(), reason };
    let line = serde_json::to_string(record).map_err(|error| fail(error.to_string()))?;
    writeln!(to, "{line}").and_then(|()| to.flush()).map_err(|error| fail(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_one_server_does_not_tell_stay_unknown() {
        let reported = TokenUsage { prompt: Some(5), cached: None, computed: Some(1), output: Some(2) };
        let sum = TokenUsage::NONE_YET.plus(reported).plus(reported);
        assert_eq!(sum, TokenUsage { prompt: Some(10), cached: None, computed: Some(2), output: Some(4) });
    }
}
