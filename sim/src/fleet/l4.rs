//! A replica of the published benchmark: Qwen3-8B in bfloat16 on one NVIDIA L4, under vLLM's defaults.
//!
//! Data sheets: L4 24 GB, 300 GB/s, 121 TFLOP/s dense (242 with sparsity); Qwen3-8B 8.19e9 parameters, 36
//! layers, 8 KV heads of 128. The efficiencies and the host's overheads are those of
//! [`crate::roofline::Roofline`], which explain the one engine whose constants are known; the limits are
//! vLLM's defaults (`gpu_memory_utilization` 0.9, `max_num_seqs` 256, `max_num_batched_tokens` 2048, blocks
//! of 16, first come first served with chunked prompts). Nothing is fitted to the benchmark's results.
//!
//! ```text
//! a_p = 2 * 8.19e9 / (121e12 * 0.82)              0.165 ms per prompt token
//! b_d = 16.4 GB / (300e9 * 0.85) + 5.6 ms         69.9 ms per decode step
//! a_d = KV of 576 tokens / (300e9 * 0.85) + 0.307 ms   0.640 ms per row (prompt and half of the output)
//! b_p = 10 ms
//! KV  = (24 GB * 0.9 - 16.4 GB - 1.5 GB) / 147,456 bytes  =  25,092 tokens
//! ```

use base::{Nanos, TokenCount};
use scheduler::{CostModel, Policy, SchedulerConfig};

const FLOPS: f64 = 121e12;
const MEMORY: f64 = 300e9 * 0.85;
const PARAMETERS: f64 = 8.19e9;
const WEIGHT_BYTES: f64 = 16.4e9;
/// Keys and values, 36 layers, 8 heads of 128 numbers of 2 bytes.
const KV_BYTES: f64 = 2.0 * 36.0 * 8.0 * 128.0 * 2.0;
const USABLE: f64 = 24e9 * 0.9 - 1.5e9;
const BLOCK: u32 = 16;

/// What is not known for certain of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct L4 {
    /// Share of the peak that prompts are computed at.
    pub flops_share: f64,
    /// Thousandths of a decode step's overhead that a mixed step hides prompts behind; 1000 is the roofline.
    pub hide_permille: u64,
}

impl Default for L4 {
    fn default() -> Self {
        Self { flops_share: 0.82, hide_permille: 1_000 }
    }
}

impl L4 {
    /// How long steps take.
    pub fn cost(self) -> CostModel {
        let nanos = |seconds: f64| Nanos((seconds * 1e9).round() as u64);
        let context = 512.0 + 64.0;
        let cost = CostModel {
            prefill_per_token: nanos(2.0 * PARAMETERS / (FLOPS * self.flops_share)),
            prefill_base: nanos(10e-3),
            decode_per_sequence: nanos(context * KV_BYTES / MEMORY + 0.307e-3),
            decode_base: nanos(WEIGHT_BYTES / MEMORY + 5.6e-3),
            mixed_hidden: 0,
            mixed_hidden_few: None,
        };
        cost.hiding(self.hide_permille)
    }

    /// Its engine.
    pub fn scheduler(self) -> SchedulerConfig {
        SchedulerConfig {
            policy: Policy::Sarathi,
            chunk_tokens: TokenCount(2_048),
            step_tokens_max: TokenCount(2_048),
            sequences_max: 256,
            kv_blocks: Self::kv_tokens() / BLOCK,
            block_tokens: BLOCK,
            rows_max: u32::MAX,
            relqueries_max: u32::MAX,
            refit: false,
            ..SchedulerConfig::default()
        }
    }

    /// Tokens that its KV memory holds.
    pub fn kv_tokens() -> u32 {
        ((USABLE - WEIGHT_BYTES) / KV_BYTES) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_are_those_of_the_comment() {
        let cost = L4::default().cost();
        let micros =
            [cost.prefill_per_token, cost.decode_base, cost.decode_per_sequence].map(|span| span.0 / 1_000);
        assert_eq!(micros, [165, 69_913, 640]);
        assert_eq!(L4::kv_tokens(), 25_092);
        assert_eq!(L4::default().scheduler().validate(), Ok(()));
    }
}
