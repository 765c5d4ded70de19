//! The one transformer: every family is this decoder with other values of
//! [`ModelConfig`](crate::checkpoint::ModelConfig).
//!
//! It computes flat batches, `[tokens, hidden]`, of slots whose blocks are given; it must not know requests,
//! text or where blocks come from. It is a whole model or one rank of it ([`crate::parallel`]): a rank's
//! configuration has the rank's share of heads, inner width and vocabulary, and a sum over ranks adds up what
//! their shares give. Each device has a decoder of its own; what they compute, and in what order, is
//! [`layer`].

mod cpu;
mod gpu;
mod layer;
mod tensors;

pub use cpu::{Decoder, LoadOptions, Workspace};
pub use gpu::{
    Draw, GpuDecoder, GpuDemand, GpuLoadError, GpuMemory, LogitPlace, LogitQueries, LogitStats, PlaceQuery,
    SampleQuery, check_fit, kernel_set, refusal as gpu_refusal,
};
pub(crate) use gpu::{STEP_ROWS, STEP_TOKENS, default_pool};

/// A small configuration for this crate's unit tests.
#[cfg(test)]
pub(crate) fn tests_config() -> crate::checkpoint::ModelConfig {
    use crate::checkpoint::ModelConfig;
    use crate::checkpoint::config::{Family, Mlp, Norm, Position, Residual, RopeScaling};
    ModelConfig {
        family: Family::Llama,
        vocab: 61,
        hidden: 32,
        embedding: 32,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 8,
        intermediate: 48,
        norm: Norm::Rms { epsilon: 1e-5 },
        norm_first: true,
        post_norms: false,
        norm_bias: false,
        norm_above_one: false,
        final_norm: true,
        residual: Residual::Sequential,
        position: Position::Rotary { theta: 10_000.0, scaling: RopeScaling::None },
        mlp: Mlp::GatedSilu,
        qkv_bias: false,
        out_bias: false,
        mlp_bias: false,
        qkv_clip: None,
        qk_norm: false,
        score_scale: None,
        score_cap: None,
        scales_embedding: false,
        tied_head: true,
        logit_cap: None,
        context_max: 256,
        sliding_window: None,
        local_layers: None,
    }
}
