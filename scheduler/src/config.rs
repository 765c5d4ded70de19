//! What an operator may set about scheduling: a default per field, unknown fields refused, one
//! validation at start. It must not know where the values come from.

mod renamed;

use base::{Millis, TokenCount};
use serde::{Deserialize, Serialize};

use crate::cost::CostModel;
use crate::paper_variant::PaperVariant;
use crate::policy::Policy;
use crate::policy::auto::AutoConfig;
use crate::policy::marginal_work::config::MarginalWorkConfig;
use crate::speculate::Speculation;

/// Limits and policy of one scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, remote = "Self")]
pub struct SchedulerConfig {
    /// Which order to serve in.
    pub policy: Policy,
    /// Most prompt tokens a prefill step computes (`max_num_batched_tokens`); a larger row goes alone.
    pub step_tokens_max: TokenCount,
    /// Tokens of a mixed step, decodes included; only `sarathi` cuts prompts.
    pub chunk_tokens: TokenCount,
    /// Most rows that hold KV at a time (`max_num_seqs`).
    pub sequences_max: u32,
    /// Blocks of the KV pool.
    pub kv_blocks: u32,
    /// Blocks of the host tier: as many evicted ones can be hit still. 0: none.
    pub host_kv_blocks: u32,
    /// Whether only blocks that were hit at least once move there: beginnings that rows share, not what a row
    /// has for itself, whose copies cost where it is never asked for again.
    pub host_kv_reused_only: bool,
    /// Positions of a block.
    pub block_tokens: u32,
    /// Thousandths of the pool that an admission must leave free, so that what runs can grow.
    pub watermark_permille: u32,
    /// Thousandths of the pool that pins may hold together; beyond it the oldest gives way.
    pub pinned_permille: u32,
    /// Most rows held, waiting and running.
    pub rows_max: u32,
    /// Most relQueries held.
    pub relqueries_max: u32,
    /// How often a step of one row alone may fail whole before the row fails. Rows of larger steps that
    /// failed are tried in smaller ones first.
    pub attempts_max: u32,
    /// Rows sampled for the cache miss ratio (RelServe, Eq. 11).
    pub sample_rows: u32,
    /// Waiting per row after which a relQuery goes first (RelServe, Eq. 13); absent: never.
    pub unit_waiting_ms_max: Option<Millis>,
    /// Whether rows reuse the blocks of prefixes that were computed before; else each computes all of its own.
    pub prefix_cache: bool,
    /// Whether full blocks of generated tokens enter the prefix cache too.
    pub publish_generated: bool,
    /// Whether decode steps guess tokens ahead: see [`crate::speculate`].
    pub speculation: Speculation,
    /// How the paper is read, by the policies that are its own.
    pub paper_variant: PaperVariant,
    /// Whether service classes, tenants' shares and deadlines come before the policy's own order; Eq. 13 has no
    /// effect then. Absent: under `marginal-work` and `auto`, and not under the published policies.
    pub fairness: Option<bool>,
    /// Settings of policy `auto`.
    pub auto: AutoConfig,
    /// Settings of policy `marginal-work`.
    pub marginal_work: MarginalWorkConfig,
    /// Whether measured steps refit the cost model.
    pub refit: bool,
    /// Key of the block hash. Any value is right; a secret one keeps outsiders from making collisions.
    pub prefix_hash_key: [u64; 2],
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            step_tokens_max: TokenCount(2_048),
            chunk_tokens: TokenCount(512),
            sequences_max: 256,
            kv_blocks: 4_096,
            host_kv_blocks: 0,
            host_kv_reused_only: false,
            block_tokens: 16,
            watermark_permille: 10,
            pinned_permille: 500,
            rows_max: 100_000,
            relqueries_max: 10_000,
            attempts_max: 3,
            sample_rows: 8,
            unit_waiting_ms_max: None,
            prefix_cache: true,
            publish_generated: true,
            speculation: Speculation::default(),
            paper_variant: PaperVariant::default(),
            fairness: None,
            auto: AutoConfig::default(),
            marginal_work: MarginalWorkConfig::default(),
            refit: true,
            prefix_hash_key: [0x7265_6c53_6572_7665, 0x6b76_2d62_6c6f_636b],
        }
    }
}

/// A configuration value under which the scheduler would stall.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid `scheduler.{field}`: {reason}")]
pub struct ConfigError {
    /// The field.
    pub field: &'static str,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl SchedulerConfig {
    /// Rejects values under which the scheduler would stall or overflow.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let positive = [
            ("step_tokens_max", self.step_tokens_max.0),
            ("chunk_tokens", self.chunk_tokens.0),
            ("sequences_max", u64::from(self.sequences_max)),
            ("kv_blocks", u64::from(self.kv_blocks)),
            ("block_tokens", u64::from(self.block_tokens)),
            ("rows_max", u64::from(self.rows_max)),
            ("relqueries_max", u64::from(self.relqueries_max)),
            ("attempts_max", u64::from(self.attempts_max)),
            ("sample_rows", u64::from(self.sample_rows)),
            ("auto.every_ms", self.auto.every_ms.0),
            ("auto.window_ms", self.auto.window_ms.0),
            ("auto.relqueries_min", u64::from(self.auto.relqueries_min)),
        ];
        if let Some((field, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(ConfigError { field, reason: "must be positive" });
        }
        if self.auto.p99_permille_max < 1_000 {
            let reason = "must be at least 1000, or no policy keeps it";
            return Err(ConfigError { field: "auto.p99_permille_max", reason });
        }
        let error = |field, reason| Err(ConfigError { field, reason });
        if self.watermark_permille >= 1_000 {
            return error("watermark_permille", "must be below 1000");
        }
        if self.pinned_permille > 1_000 {
            return error("pinned_permille", "must be at most 1000");
        }
        if self.kv_tokens() > u64::from(u32::MAX) {
            return error("kv_blocks", "the pool must hold fewer than 2^32 tokens");
        }
        if u64::from(self.host_kv_blocks) * u64::from(self.block_tokens) > u64::from(u32::MAX) {
            return error("host_kv_blocks", "the tier must hold fewer than 2^32 tokens");
        }
        if self.policy.always_cuts_prompts() && self.chunk_tokens.0 <= u64::from(self.sequences_max) {
            return error("chunk_tokens", "must exceed sequences_max, or decodes leave no room for a prompt");
        }
        Ok(())
    }

    /// Whether service classes, tenants' shares and deadlines come before the policy's own order.
    pub fn is_fair(&self) -> bool {
        self.fairness.unwrap_or_else(|| self.policy.is_fair())
    }

    /// Whether what waits too long goes first (RelServe, Eq. 13).
    pub(crate) fn starves(&self) -> bool {
        self.policy.reads_the_paper() && !self.is_fair()
    }

    /// The settings that a scheduler on a machine of these costs begins with: of `auto` a policy, as fair as
    /// it is itself.
    pub(crate) fn resolved(self, cost: &CostModel) -> Self {
        let fairness = self.fairness.or_else(|| (self.policy == Policy::Auto).then_some(true));
        Self { policy: self.policy.resolved(cost), fairness, ..self }
    }

    /// Tokens the pool holds: `cap` of RelServe, Algorithm 1.
    pub fn kv_tokens(&self) -> u64 {
        u64::from(self.kv_blocks) * u64::from(self.block_tokens)
    }

    /// Whether steps may prefill and decode at once.
    pub fn mixes_prefill_and_decode(&self) -> bool {
        self.policy.always_cuts_prompts() || self.policy.cuts_prompts() && self.marginal_work.mixes()
    }

    /// Most tokens that a step computes: of prompts, or where it mixes, of all.
    pub fn computed_tokens_max(&self) -> u64 {
        if self.policy.always_cuts_prompts() { self.chunk_tokens.0 } else { self.step_tokens_max.0 }
    }

    /// Blocks that an admission leaves free.
    pub fn watermark_blocks(&self) -> u32 {
        self.share(self.watermark_permille)
    }

    /// Blocks that pins may hold together.
    pub fn pinned_blocks_max(&self) -> u32 {
        self.share(self.pinned_permille)
    }

    /// So many thousandths of the pool.
    fn share(&self, permille: u32) -> u32 {
        let blocks = u64::from(self.kv_blocks) * u64::from(permille) / 1_000;
        u32::try_from(blocks).expect("a thousandth part of a u32 times at most 1000 is a u32")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_a_zero_is_named() {
        assert_eq!(SchedulerConfig::default().validate(), Ok(()));
        let bad = SchedulerConfig { kv_blocks: 0, ..SchedulerConfig::default() };
        assert_eq!(bad.validate().map_err(|error| error.field), Err("kv_blocks"));
    }

    #[test]
    fn a_mixed_step_must_leave_room_for_a_prompt() {
        let bad = SchedulerConfig {
            policy: Policy::Sarathi,
            chunk_tokens: TokenCount(256),
            ..SchedulerConfig::default()
        };
        assert_eq!(bad.validate().map_err(|error| error.field), Err("chunk_tokens"));
    }
}
