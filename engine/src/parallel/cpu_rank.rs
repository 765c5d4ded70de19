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
        let states = self.decoder.forward(&mut self.pool, slots, &mut self.work)?;
        Ok(HiddenStates { rows: states.len() / self.decoder.config().embedding, states })
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
