//! Tensor parallelism: a model cut into ranks that compute every step together.
//!
//! Megatron-LM (arXiv 1909.08053), section 3: queries, keys, values and the feed-forward block's inner width
//! are cut by outputs, the projections behind them by inputs, so that a layer needs one sum over ranks after
//! its attention and one after its feed-forward block; the embedding and the head are cut by the vocabulary.
//! Every rank holds its own heads' part of the KV pool. Ranks obey one plan and never decide; this knows
//! nothing of requests.

mod collective;
mod cpu_rank;
mod gpu_logits;
mod gpu_rank;
mod model;
mod rank;
mod ranks;
mod room;
mod sampling;
mod shard;
mod shared;
mod together;
mod watchdog;

pub use collective::{Alone, Broken, Collective};
pub use model::ShardedModel;
pub use rank::HiddenStates;
pub use ranks::Ranks;
pub use sampling::{GpuRanks, RowDraw, RowStats};
pub use shard::ShardError;

use crate::device::cuda::GpuError;

/// Why a step of a model on its ranks failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// A rank on the processor.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// A rank on a GPU.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

impl StepError {
    /// Whether a rank failed only because another did.
    fn is_of_another(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::Gpu(GpuError::OtherRank))
    }
}
