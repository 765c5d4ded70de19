//! How much memory a model's keys and values may have on its devices.

use base::Bytes;

use super::model::ShardedModel;
use crate::decoder::{STEP_ROWS, STEP_TOKENS, default_pool};
use crate::memory;
use crate::pool::PoolError;
use crate::settings::EngineConfig;

/// Bytes of keys and values on the processor where no setting says how many.
const ON_PROCESSOR: u64 = 1 << 30;

impl ShardedModel {
    /// Memory for the KV pools of all ranks: what is configured, or else 1 GiB on the processor, and on GPUs all
    /// that steps leave; but no more than `sequences_max` requests of full length could fill, nor than nine tenths of what weights
    /// have left.
    pub fn kv_bytes(&self, config: &EngineConfig) -> Result<Bytes, PoolError> {
        let available = self.available()?;
        let wanted = match (config.kv_bytes, available) {
            (Some(bytes), _) => bytes.0,
            (None, Some(available)) if !self.gpus().is_empty() => {
                let tokens = STEP_TOKENS.min(self.config().context_max);
                let of_steps = (self.count() * self.step_memory(tokens, STEP_ROWS)) as u64;
                default_pool(available, of_steps)
            }
            (None, _) => ON_PROCESSOR,
        };
        let blocks = self.pool_shape(config.block_tokens, Bytes(wanted))?.blocks as u128;
        let per_sequence = self.config().context_max.div_ceil(config.block_tokens as usize) as u128;
        let useful = blocks.min(per_sequence * u128::from(config.sequences_max));
        let useful = (u128::from(wanted) * useful).div_ceil(blocks) as u64; // at most `wanted`
        let room = available.map_or(useful, nine_tenths);
        if room < useful {
            tracing::warn!(kv_bytes = room, wanted = useful, "the KV pool is cut to the memory that is left");
        }
        Ok(Bytes(useful.min(room)))
    }

    /// Bytes that all ranks could still take, each as many as the others; `None` where the system does not say.
    fn available(&self) -> Result<Option<u64>, PoolError> {
        if self.gpus().is_empty() {
            return Ok(memory::available().map(|bytes| bytes.0));
        }
        let mut least = u64::MAX;
        for gpu in self.gpus() {
            let available = gpu.available().map_err(|error| PoolError::Gpu(error.to_string()))?;
            least = least.min(available as u64);
        }
        Ok(Some(least * self.count() as u64))
    }
}

fn nine_tenths(bytes: u64) -> u64 {
    bytes / 10 * 9
}
