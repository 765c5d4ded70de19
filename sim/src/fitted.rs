//! Machines that were measured: a running engine's limits and fitted cost model, as a JSON file has them. It
//! must not know how they were measured.

use base::{Nanos, TokenCount};
use scheduler::{CostModel, SchedulerConfig};
use serde::{Deserialize, Serialize};

use crate::replay_config::ReplayConfig;

/// A machine that was measured, as its JSON file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// What it is: model, device, when.
    pub name: String,
    pub cost: CostModel,
    /// Positions of the KV pool.
    pub kv_tokens: u64,
    /// Positions of a block.
    pub block_tokens: u32,
    /// Most prompt tokens of a prefill step.
    pub step_tokens_max: TokenCount,
    /// Tokens of a mixed step of `sarathi`.
    pub chunk_tokens: TokenCount,
    /// Most rows that hold KV at a time.
    pub sequences_max: u32,
    /// Thousandths of the pool that an admission leaves free.
    pub watermark_permille: u32,
    /// Whether generated tokens enter the prefix cache too.
    pub publish_generated: bool,
    /// Blocks of the host tier.
    #[serde(default)]
    pub host_kv_blocks: u32,
    /// What a token takes between pool and host tier; where it was not measured, nothing.
    #[serde(default)]
    pub move_per_token: Nanos,
}

/// A machine that cannot be replayed on.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// Not the JSON expected.
    #[error("not a machine: {0}")]
    Json(#[from] serde_json::Error),
    /// A number that cannot be.
    #[error("machine `{name}`: {field} {reason}")]
    Invalid {
        name: String,
        field: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl Fitted {
    /// A running scheduler's limits with the model fitted to its engine.
    pub fn of(name: String, limits: &SchedulerConfig, cost: CostModel) -> Self {
        Self {
            name,
            cost,
            kv_tokens: limits.kv_tokens(),
            block_tokens: limits.block_tokens,
            step_tokens_max: limits.step_tokens_max,
            chunk_tokens: limits.chunk_tokens,
            sequences_max: limits.sequences_max,
            watermark_permille: limits.watermark_permille,
            publish_generated: limits.publish_generated,
            host_kv_blocks: limits.host_kv_blocks,
            move_per_token: Nanos(0),
        }
    }

    /// Reads one.
    pub fn parse(json: &str) -> Result<Self, MachineError> {
        Ok(serde_json::from_str(json)?)
    }

    /// The machine for a replay.
    pub fn config(&self) -> Result<ReplayConfig, MachineError> {
        let invalid = |field, reason| MachineError::Invalid { name: self.name.clone(), field, reason };
        if self.block_tokens == 0 {
            return Err(invalid("block_tokens", "must be positive"));
        }
        let blocks = self.kv_tokens / u64::from(self.block_tokens);
        let scheduler = SchedulerConfig {
            kv_blocks: u32::try_from(blocks).map_err(|_| invalid("kv_tokens", "is more than 2^32 blocks"))?,
            host_kv_blocks: self.host_kv_blocks,
            block_tokens: self.block_tokens,
            step_tokens_max: self.step_tokens_max,
            chunk_tokens: self.chunk_tokens,
            sequences_max: self.sequences_max,
            watermark_permille: self.watermark_permille,
            publish_generated: self.publish_generated,
            ..ReplayConfig::default().scheduler
        };
        scheduler.validate().map_err(|error| invalid(error.field, error.reason))?;
        if self.cost.prefill(TokenCount(1)) == Nanos(0) || self.cost.decode(1) == Nanos(0) {
            return Err(invalid("cost", "has steps that take no time"));
        }
        Ok(ReplayConfig { scheduler, cost: self.cost, move_per_token: self.move_per_token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fitted_machine_comes_back_from_its_file_as_it_was() {
        let limits = SchedulerConfig { refit: false, ..ReplayConfig::default().scheduler };
        let fitted = Fitted::of("a laptop".into(), &limits, CostModel::default());
        let json = serde_json::to_string(&fitted).expect("plain data");
        let read = Fitted::parse(&json).expect("what was written");
        let reference = ReplayConfig { move_per_token: Nanos(0), ..ReplayConfig::default() };
        assert_eq!(read.config().expect("a machine"), reference);
        let zero = Fitted { kv_tokens: 0, ..read.clone() };
        assert_eq!(
            zero.config().expect_err("no memory").to_string(),
            "machine `a laptop`: kv_blocks must be positive"
        );
        let free = Fitted {
            cost: CostModel { decode_base: Nanos(0), decode_per_sequence: Nanos(0), ..read.cost },
            ..read
        };
        assert!(free.config().is_err());
        assert!(matches!(Fitted::parse(r#"{"name": "x", "speed": 3}"#), Err(MachineError::Json(_))));
    }
}
