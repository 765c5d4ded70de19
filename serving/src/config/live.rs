//! The live view: who may look, how often, and what is remembered of the last minutes.

use base::{Millis, TokenCount};
use serde::{Deserialize, Serialize};

use super::{InvalidConfig, invalid};

/// The live view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LiveConfig {
    /// Streams of all tenants open at once; more get a 429.
    pub readers_max: usize,
    /// Of those, streams of one tenant.
    pub tenant_readers_max: usize,
    /// Streams of operators, beside those of tenants.
    pub operator_readers_max: usize,
    /// Time between two frames of a stream.
    pub frame_ms: Millis,
    /// Time between two looks at queue and memory, while somebody looks.
    pub snapshot_ms: Millis,
    /// RelQueries that such a look lists.
    pub relqueries_max: usize,
    /// Steps kept, for who opens the view later and for readers that are behind; what is older is lost to them.
    pub steps_max: usize,
    /// Time after which a stream ends, so that its client shows its key again.
    pub stream_ms_max: Millis,
    /// Age after which an ended relQuery is left out of the trace and of what-ifs, counted from its arrival.
    pub record_ms_max: Millis,
    /// How many of them; 0: none.
    pub record_relqueries_max: usize,
    /// Their rows, together: 20 bytes each.
    pub record_rows_max: u64,
    /// Time that one what-if may take, all its policies together.
    pub what_if_ms_max: Millis,
    /// Tokens of the relQueries that it replays, an output token counted as 16; the newest are taken.
    pub what_if_tokens_max: TokenCount,
}

impl Default for LiveConfig {
    fn default() -> Self {
        Self {
            readers_max: 32,
            tenant_readers_max: 8,
            operator_readers_max: 8,
            frame_ms: Millis(100),
            snapshot_ms: Millis(250),
            relqueries_max: 256,
            steps_max: 1_024,
            stream_ms_max: Millis(600_000),
            record_ms_max: Millis(600_000),
            record_relqueries_max: 2_000,
            record_rows_max: 100_000,
            what_if_ms_max: Millis(10_000),
            what_if_tokens_max: TokenCount(8_000_000),
        }
    }
}

impl LiveConfig {
    /// Refuses what could not work, and names the field.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        let positive: &[(&str, u64)] = &[
            ("live.readers_max", self.readers_max as u64),
            ("live.tenant_readers_max", self.tenant_readers_max as u64),
            ("live.operator_readers_max", self.operator_readers_max as u64),
            ("live.frame_ms", self.frame_ms.0),
            ("live.snapshot_ms", self.snapshot_ms.0),
            ("live.relqueries_max", self.relqueries_max as u64),
            ("live.steps_max", self.steps_max as u64),
            ("live.stream_ms_max", self.stream_ms_max.0),
            ("live.what_if_ms_max", self.what_if_ms_max.0),
        ];
        match positive.iter().find(|(_, value)| *value == 0) {
            Some((field, _)) => Err(invalid(field, "must be positive")),
            None => Ok(()),
        }
    }
}
