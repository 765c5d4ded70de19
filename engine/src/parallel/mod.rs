//! Tensor parallelism: a model cut into ranks that compute every step together.
//!
//! Megatron-LM (arXiv 1909.08053), section 3: queries, keys, values and the feed-forward block's inner width are cut
//! by outputs, the projections behind them by inputs, so that a layer needs one sum over ranks after its attention
//! and one after its feed-forward block; the embedding and the head are cut by the vocabulary. Every rank holds
//! its own heads' part of the KV pool. Ranks obey one plan and never decide; this knows nothing of requests.

mod collective;
mod ranks;
mod shard;
mod shared;

pub use collective::{Alone, Broken, Collective};
pub use ranks::{Memory, Ranks};
pub use shard::ShardError;
