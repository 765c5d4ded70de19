//! How much memory a step takes: it follows from the configuration, so that it is known before there are any weights.

use super::GpuDecoder;
use super::extent::StepExtent;
use super::tables::TABLES_BYTES;
use super::workspace::Sizes;
use crate::checkpoint::ModelConfig;
use crate::checkpoint::config::Position;
use crate::decoder::layer::LayerWeights;
use crate::device::cuda::Element;

/// What the sizes of a step's pieces follow from.
pub(super) struct StepSizes<'a> {
    pub(super) config: &'a ModelConfig,
    /// What activations are kept as.
    pub(super) element: Element,
    /// Whether the products of layers are of eight-bit floats.
    pub(super) in_fp8: bool,
}

impl StepSizes<'_> {
    /// Bytes that a step of so many tokens takes beside weights and pool, of which logits of `sampled` are there
    /// together. Where prompts are scored the hidden states of all are kept.
    pub(super) fn step_memory(&self, tokens: usize, sampled: usize) -> usize {
        let config = self.config;
        let extent = StepExtent { tokens, sampled: tokens, keeps_all: false, flat: 0, tall: 0, merges: true };
        // A prompt's tokens read what is cached, and themselves; a token's tables are a few numbers.
        let sizes = self.of(extent, 2 * tokens, 64 * tokens);
        let logits = sampled * config.vocab * size_of::<f32>();
        let masks = sampled * config.vocab / 8;
        let angles = match config.position {
            Position::Rotary { .. } => config.context_max * config.head_dim * size_of::<f32>(),
            Position::Learned { .. } | Position::Alibi(_) => 0,
        };
        (sizes.all() + logits + masks) / 2 * 3 + angles // what grows takes half as much again
    }

    /// Bytes of each piece of a step's memory.
    pub(super) fn of(&self, extent: StepExtent, partial_rows: usize, tables: usize) -> Sizes {
        let (config, single, number) = (self.config, size_of::<f32>(), self.element.bytes());
        let (tokens, sampled) = (extent.tokens, extent.sampled);
        let width = config.heads * config.head_dim;
        let qkv = (config.heads + 2 * config.kv_heads) * config.head_dim;
        let up = if config.mlp.is_gated() { 2 * config.intermediate } else { config.intermediate };
        let is_projected = config.embedding != config.hidden;
        // What is multiplied in eight bits.
        let fp8 = |bytes: usize| if self.in_fp8 { tokens * bytes } else { 0 };
        let (hidden, inner) = (config.hidden, config.intermediate);
        Sizes {
            tables: tables + TABLES_BYTES,
            x: tokens * hidden * single,
            normed: tokens * hidden * number,
            qkv: tokens * qkv * number,
            attended: tokens * width * number,
            wide: tokens * up * number,
            inner: tokens * inner * number,
            fp8: fp8(hidden.max(width).max(inner)),
            row_scales: fp8(single),
            row_most: fp8(size_of::<u32>()),
            sums: fp8(qkv.max(hidden).max(up) * single),
            partials: partial_rows * config.heads * (config.head_dim + 2) * single,
            embedded: if is_projected { tokens * config.embedding * single } else { 0 },
            rounded: if is_projected { tokens * config.embedding.max(hidden) * number } else { 0 },
            last_x: sampled * hidden * single,
            last_attended: sampled * width * number,
            hidden: sampled * config.embedding.max(hidden) * number,
        }
    }
}

impl GpuDecoder {
    pub(super) fn step_sizes(&self) -> StepSizes<'_> {
        let mut matrices = self.layers.iter().flat_map(LayerWeights::matrices);
        let in_fp8 = matrices.any(|weights| weights.scales.is_some());
        StepSizes { config: &self.config, element: self.element, in_fp8 }
    }

    /// Bytes that a step of so many tokens takes beside weights and pool, of which logits of `sampled` are there together.
    pub fn step_memory(&self, tokens: usize, sampled: usize) -> usize {
        self.step_sizes().step_memory(tokens, sampled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{Dtype, Synthetic};

    #[test]
    fn hidden_states_of_all_tokens_are_counted_and_logits_of_those_that_are_there_together() {
        let config = Synthetic::qwen2_5_7b(Dtype::Bf16, 1).config;
        let sizes = StepSizes { config: &config, element: Element::Bf16, in_fp8: false };
        let none = StepExtent { tokens: 64, sampled: 0, keeps_all: false, flat: 0, tall: 0, merges: true };
        let kept = sizes.of(StepExtent { sampled: 64, ..none }, 0, 0).all() - sizes.of(none, 0, 0).all();
        assert_eq!(
            kept,
            64 * 3_584 * (4 + 2 + 2),
            "the stream, what attention gives, and what is told of it"
        );
        let two_tiles = sizes.step_memory(128, 0) - sizes.step_memory(64, 0);
        assert!(two_tiles > kept, "{two_tiles} for 64 tokens more");
        let logits = sizes.step_memory(64, 16) - sizes.step_memory(64, 0);
        assert_eq!(logits, 16 * (4 * config.vocab + config.vocab / 8) / 2 * 3);
    }
}
