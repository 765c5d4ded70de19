//! One rank of a model on one device: what it holds, and what it computes.
//!
//! A rank knows its share of the model and its own memory; it must not know where a step comes from, nor how
//! many others there are beyond the collective operations of its decoder.

use std::ops::Range;
use std::sync::Arc;

use base::{Moves, Slot};

use super::StepError;
use super::gpu_logits::GpuLogits;
use crate::checkpoint::{Dtype, ModelConfig};
use crate::device::cpu::TopK;
use crate::device::cuda::GpuError;
use crate::pool::PoolShape;
use crate::settings::KvFormat;

/// A rank's weights on its device: no step changes them.
pub(super) trait RankWeights: Send + Sync {
    /// The rank's own where it is one of several.
    fn config(&self) -> &ModelConfig;

    /// What weights are kept as that are not in fewer bits.
    fn dtype(&self) -> Dtype;

    /// Whether a product of them rounds activations to bf16.
    fn rounds_activations(&self) -> bool;

    /// Whether a matrix of them is kept as half floats, to which products round activations.
    fn multiplies_halves(&self) -> bool;

    /// What keys and values are kept as.
    fn kv(&self) -> KvFormat;

    /// Bytes of weights that one step reads, whatever its batch.
    fn step_bytes(&self) -> usize;

    /// Operations of a step's products: [`crate::decoder::Decoder::step_operations`].
    fn step_operations(&self, tokens: usize, sampled: usize) -> f64;

    /// Bytes of its device that a step of so many tokens takes beside weights and pool, of which logits of `sampled`
    /// are there together; none where that is the host's memory.
    fn step_memory(&self, tokens: usize, sampled: usize) -> usize;

    /// A rank that computes with them, with a pool of its own.
    fn start(self: Arc<Self>, shape: PoolShape) -> Result<Box<dyn Rank>, GpuError>;
}

/// A rank that computes: weights, keys and values, and the memory of its steps.
pub(super) trait Rank: Send {
    /// Hidden states from which logits follow: those before all slots' targets, then those of all that sample.
    fn forward(&mut self, slots: &[Slot]) -> Result<HiddenStates, StepError>;

    /// Keys of layer `number`, those of the rank's own heads: [`crate::decoder::Decoder::keys`]. `None` where
    /// they stay on its device.
    fn keys(&mut self, slots: &[Slot], number: usize) -> Result<Option<Vec<f32>>, StepError>;

    /// Logits of some rows.
    fn logits(&mut self, hidden: &HiddenStates, rows: Range<usize>) -> Result<Vec<f32>, StepError>;

    /// The highest logits of each row, as many as `wanted` says; tokens from `ids_end` on are not kept.
    fn top_k(
        &mut self,
        hidden: &HiddenStates,
        wanted: &[usize],
        ids_end: usize,
    ) -> Result<Vec<TopK>, StepError>;

    /// Whether logits are those of the rank's own part of the vocabulary, which its caller puts together.
    fn is_partial(&self) -> bool;

    /// Takes back what [`Self::logits`] gave, for the next step.
    fn keep_logits(&mut self, logits: Vec<f32>);

    /// Gives its pool a tier of the same blocks, as many as `tier` says.
    fn add_tier(&mut self, tier: PoolShape) -> Result<(), GpuError>;

    /// Moves blocks between its pool and its tier.
    fn move_blocks(&mut self, moves: &Moves) -> Result<(), StepError>;

    /// Its logits where they stay on its device, to be drawn from there.
    fn gpu_logits(&mut self) -> Option<GpuLogits<'_>>;
}

/// Hidden states of rows of a step, or, where they stay on their device until the next step, which rows these
/// are.
#[derive(Clone, Debug)]
pub struct HiddenStates {
    /// Where their device has the first of them.
    pub(super) first: usize,
    pub(super) rows: usize,
    /// `[rows, embedding]`; none where they are on a device.
    pub(super) states: Vec<f32>,
}

impl HiddenStates {
    /// Number of the first row among those that the step keeps on its device.
    pub fn first(&self) -> usize {
        self.first
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The first `count` rows, and the others.
    pub fn split(self, count: usize) -> (Self, Self) {
        let Self { first, rows, mut states } = self;
        let width = states.len() / rows.max(1);
        let others = states.split_off(count * width);
        let others = Self { first: first + count, rows: rows - count, states: others };
        (Self { first, rows: count, states }, others)
    }
}
