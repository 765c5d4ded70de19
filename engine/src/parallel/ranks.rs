//! The ranks of a model as one: the same plan goes to all of them, and what they give is put together.

use std::ops::Range;

use base::{Bytes, Moves, Slot};

use super::StepError;
use super::model::ShardedModel;
use super::rank::{HiddenStates, Rank};
use super::sampling::GpuRanks;
use crate::device::cpu::TopK;
use crate::pool::{PoolError, PoolShape};

/// A model that computes: its ranks, each with its pool.
pub struct Ranks {
    model: ShardedModel,
    shape: PoolShape,
    ranks: Vec<Box<dyn Rank>>,
}

impl Ranks {
    /// Ranks that compute with a model's weights, each with a pool of `shape`.
    pub fn start(model: &ShardedModel, shape: PoolShape) -> Result<Self, PoolError> {
        let ranks = model.ranks(shape).map_err(|error| PoolError::Gpu(error.to_string()))?;
        Ok(Self { model: model.clone(), shape, ranks })
    }

    /// The weights that they compute with.
    pub fn model(&self) -> &ShardedModel {
        &self.model
    }

    /// Extents of each rank's pool.
    pub fn pool_shape(&self) -> PoolShape {
        self.shape
    }

    /// Gives each rank's pool its part of a tier of `bytes`; how many blocks that is.
    pub fn add_tier(&mut self, bytes: Bytes) -> Result<usize, PoolError> {
        let tier = self.shape.tier(Bytes(bytes.0 / self.ranks.len() as u64))?;
        if tier.blocks > 0 {
            let made = self.ranks.iter_mut().try_for_each(|rank| rank.add_tier(tier));
            made.map_err(|error| PoolError::Gpu(error.to_string()))?;
        }
        Ok(tier.blocks)
    }

    /// Moves blocks between each rank's pool and its tier, which holds all that are named.
    pub fn move_blocks(&mut self, moves: &Moves) -> Result<(), StepError> {
        if moves.is_empty() {
            return Ok(());
        }
        self.together(|rank| rank.move_blocks(moves)).map(drop)
    }

    /// Hidden states from which logits follow: those before all slots' targets, then those of all that sample,
    /// each slot by slot.
    pub fn forward(&mut self, slots: &[Slot]) -> Result<HiddenStates, StepError> {
        let computed = self.together(|rank| rank.forward(slots))?;
        Ok(computed.into_iter().next().expect("a model has a rank"))
    }

    /// Keys of layer `number`, of each rank's own heads: [`crate::decoder::Decoder::keys`]. `None` of models on
    /// GPUs.
    pub fn keys(&mut self, slots: &[Slot], number: usize) -> Result<Option<Vec<Vec<f32>>>, StepError> {
        Ok(self.together(|rank| rank.keys(slots, number))?.into_iter().collect())
    }

    /// Logits `[rows, vocab]` of some of a step's rows.
    pub fn logits(&mut self, hidden: &HiddenStates, rows: Range<usize>) -> Result<Vec<f32>, StepError> {
        let mut parts = self.together(|rank| rank.logits(hidden, rows.clone()))?;
        Ok(match self.is_partial() {
            true => self.model.whole_rows(&parts, rows.len()),
            false => parts.swap_remove(0),
        })
    }

    /// The highest logits of each of a step's rows, as many as `wanted` says, but of tokens before `ids_end`
    /// alone.
    pub fn top_k(
        &mut self,
        hidden: &HiddenStates,
        wanted: &[usize],
        ids_end: usize,
    ) -> Result<Vec<TopK>, StepError> {
        let mut parts = self.together(|rank| rank.top_k(hidden, wanted, ids_end))?.into_iter();
        let mut whole = parts.next().expect("a model has a rank");
        for part in parts.filter(|_| self.is_partial()) {
            whole.iter_mut().zip(&part).for_each(|(whole, part)| whole.append(part));
        }
        Ok(whole)
    }

    /// Takes back what [`Self::logits`] gave, for the next step.
    pub fn keep_logits(&mut self, logits: Vec<f32>) {
        if let [rank] = &mut *self.ranks {
            rank.keep_logits(logits);
        }
    }

    /// The same ranks where logits stay on their devices, to be drawn from there.
    pub fn on_gpus(&mut self) -> Option<GpuRanks<'_>> {
        let ranks = self.ranks.iter_mut().map(|rank| rank.gpu_logits());
        Some(GpuRanks::new(&self.model, ranks.collect::<Option<_>>()?))
    }

    /// Whether each rank gives its own part of several of the vocabulary.
    fn is_partial(&self) -> bool {
        self.ranks.len() > 1 && self.ranks[0].is_partial()
    }

    fn together<T: Send>(
        &mut self,
        work: impl Fn(&mut dyn Rank) -> Result<T, StepError> + Sync,
    ) -> Result<Vec<T>, StepError> {
        self.model.peers().together(self.ranks.iter_mut(), |_, rank| work(&mut **rank))
    }
}
