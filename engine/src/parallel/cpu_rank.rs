//! A rank on the processor.

use std::ops::Range;
use std::sync::Arc;

use base::{Moves, Slot};

use super::StepError;
use super::gpu_logits::GpuLogits;
use super::rank::{HiddenStates, Rank, RankWeights};
use crate::checkpoint::{Dtype, ModelConfig};
use crate::decoder::{Decoder, Workspace};
use crate::device::cpu::TopK;
use crate::device::cuda::GpuError;
use crate::pool::{KvPool, PoolShape};
use crate::settings::KvFormat;

struct CpuRank {
    decoder: Arc<Decoder>,
    pool: KvPool,
    /// Where blocks of the pool move to that give way to others, where there is such a place.
    tier: Option<KvPool>,
    work: Workspace,
}

impl RankWeights for Decoder {
    fn config(&self) -> &ModelConfig {
        self.config()
    }

    fn dtype(&self) -> Dtype {
        self.dtype()
    }

    fn kv(&self) -> KvFormat {
        self.kv()
    }

    fn step_bytes(&self) -> usize {
        self.step_bytes()
    }

    fn step_operations(&self, tokens: usize, sampled: usize) -> f64 {
        self.step_operations(tokens, sampled)
    }

    fn step_memory(&self, _: usize, _: usize) -> usize {
        0
    }

    fn start(self: Arc<Self>, shape: PoolShape) -> Result<Box<dyn Rank>, GpuError> {
        let (mut pool, work) = (KvPool::new(shape), Workspace::default());
        self.cpu().run(|| pool.fault_in());
        Ok(Box::new(CpuRank { decoder: self, pool, tier: None, work }))
    }
}

impl Rank for CpuRank {
    fn forward(&mut self, slots: &[Slot]) -> Result<HiddenStates, StepError> {
        let width = self.decoder.config().embedding;
        let states = self.decoder.forward(&mut self.pool, slots, &mut self.work)?;
        let states = targets_first(states, width, slots);
        Ok(HiddenStates { first: 0, rows: states.len() / width, states })
    }

    fn keys(&mut self, slots: &[Slot], number: usize) -> Result<Option<Vec<f32>>, StepError> {
        Ok(Some(self.decoder.keys(&mut self.pool, slots, number, &mut self.work)?))
    }

    fn logits(&mut self, hidden: &HiddenStates, rows: Range<usize>) -> Result<Vec<f32>, StepError> {
        let width = self.decoder.config().embedding;
        let hidden = &hidden.states[rows.start * width..rows.end * width];
        Ok(self.decoder.logits(hidden, &mut self.work)?)
    }

    fn top_k(
        &mut self,
        hidden: &HiddenStates,
        wanted: &[usize],
        ids_end: usize,
    ) -> Result<Vec<TopK>, StepError> {
        Ok(self.decoder.top_k(&hidden.states, wanted, ids_end, &mut self.work)?)
    }

    /// Ranks on the processor exchange theirs.
    fn is_partial(&self) -> bool {
        false
    }

    fn keep_logits(&mut self, logits: Vec<f32>) {
        self.work.keep_logits(logits);
    }

    fn add_tier(&mut self, tier: PoolShape) -> Result<(), GpuError> {
        self.tier = Some(KvPool::new(tier));
        Ok(())
    }

    fn move_blocks(&mut self, moves: &Moves) -> Result<(), StepError> {
        self.tier.iter_mut().for_each(|tier| self.pool.move_blocks(tier, moves));
        Ok(())
    }

    fn gpu_logits(&mut self) -> Option<GpuLogits<'_>> {
        None
    }
}

/// Hidden states as the decoder gives them, slot by slot, with those before all slots' targets in front of those
/// that sample.
fn targets_first(states: Vec<f32>, width: usize, slots: &[Slot]) -> Vec<f32> {
    if slots.iter().all(|slot| slot.prompt_targets.is_none()) {
        return states;
    }
    let (mut rest, mut first, mut sampled) = (&states[..], Vec::with_capacity(states.len()), Vec::new());
    for slot in slots {
        let targets = slot.prompt_targets.as_ref().map_or(0, |targets| targets.tokens.len());
        let samples = if slot.sample.is_some() { 1 + slot.guesses as usize } else { 0 };
        let (own, behind) = rest.split_at((targets + samples) * width);
        let (targets, samples) = own.split_at(targets * width);
        first.extend_from_slice(targets);
        sampled.extend_from_slice(samples);
        rest = behind;
    }
    first.append(&mut sampled);
    first
}
