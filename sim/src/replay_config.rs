//! What a trace is replayed on: the scheduler's limits and how fast the machine is.

use base::{Nanos, TokenCount};
use scheduler::{CostModel, MarginalWorkConfig, SchedulerConfig, Speculation};

use crate::roofline::Roofline;

/// The machine a trace is replayed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayConfig {
    /// Limits; the policy in it is replaced by the replay's.
    pub scheduler: SchedulerConfig,
    /// How fast the machine is; the scheduler knows it exactly.
    pub cost: CostModel,
    /// What the keys and values of a token take between pool and host tier, either way; the scheduler does
    /// not know it.
    pub move_per_token: Nanos,
}

impl Default for ReplayConfig {
    /// The machine of the reference traces: OPT-13B on one A100-40GB, 10,000 tokens of memory counted
    /// token by token.
    fn default() -> Self {
        let scheduler = SchedulerConfig {
            step_tokens_max: TokenCount(2_048),
            sequences_max: 256,
            kv_blocks: 10_000,
            block_tokens: 1,
            watermark_permille: 10,
            rows_max: u32::MAX,
            relqueries_max: u32::MAX,
            publish_generated: false,
            // Tokens of traces are made up: what follows them says nothing.
            speculation: Speculation::Off,
            refit: false,
            // What was published was measured with classes that differ in order alone.
            marginal_work: MarginalWorkConfig { bulk_share_permille: None, ..MarginalWorkConfig::default() },
            ..SchedulerConfig::default()
        };
        Self { scheduler, cost: CostModel::default(), move_per_token: Roofline::OPT_13B.move_per_token() }
    }
}
