//! What lowering goes by.

use base::{Bytes, TokenCount};

/// What lowering needs to know beside the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LowerOptions {
    /// Most tokens of a prompt and its output together.
    pub context_max: TokenCount,
    /// Most bytes of filled text between two special tokens: a bound on the work before the tokens are known.
    pub section_bytes_max: Bytes,
    /// The relQuery's seed; each row derives its own.
    pub seed: u64,
    /// Number of the first input row: not 0 where rows join a relQuery that has some.
    pub first_row: u32,
}

impl Default for LowerOptions {
    fn default() -> Self {
        Self { context_max: TokenCount(4_096), section_bytes_max: Bytes(1 << 20), seed: 0, first_row: 0 }
    }
}
