//! A rank on a GPU.

use std::ops::Range;
use std::sync::Arc;

use base::{Moves, Slot};

use super::StepError;
use super::gpu_logits::GpuLogits;
use super::rank::{HiddenStates, Rank, RankWeights};
use crate::checkpoint::{Dtype, ModelConfig};
use crate::decoder::{GpuDecoder, GpuMemory, LogitQueries, SampleQuery};
use crate::device::cpu::TopK;
use crate::device::cuda::GpuError;
use crate::pool::PoolShape;
use crate::settings::KvFormat;

struct GpuRank {
    decoder: Arc<GpuDecoder>,
    memory: GpuMemory,
}

impl RankWeights for GpuDecoder {
    fn config(&self) -> &ModelConfig {
        self.config()
    }

    fn dtype(&self) -> Dtype {
        self.dtype()
    }

    fn rounds_activations(&self) -> bool {
        self.dtype() == Dtype::Bf16
    }

    fn multiplies_halves(&self) -> bool {
        false
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

    fn step_memory(&self, tokens: usize, sampled: usize) -> usize {
        self.step_memory(tokens, sampled)
    }

    fn start(self: Arc<Self>, shape: PoolShape) -> Result<Box<dyn Rank>, GpuError> {
        Ok(Box::new(GpuRank { memory: self.memory(shape)?, decoder: self }))
    }
}

impl Rank for GpuRank {
    fn forward(&mut self, slots: &[Slot]) -> Result<HiddenStates, StepError> {
        let rows = self.decoder.forward(&mut self.memory, slots)?;
        Ok(HiddenStates { first: 0, rows, states: Vec::new() })
    }

    fn keys(&mut self, _: &[Slot], _: usize) -> Result<Option<Vec<f32>>, StepError> {
        Ok(None)
    }

    fn logits(&mut self, hidden: &HiddenStates, rows: Range<usize>) -> Result<Vec<f32>, StepError> {
        let rows = hidden.first + rows.start..hidden.first + rows.end;
        Ok(self.decoder.logits(&mut self.memory, rows)?)
    }

    fn top_k(
        &mut self,
        hidden: &HiddenStates,
        wanted: &[usize],
        ids_end: usize,
    ) -> Result<Vec<TopK>, StepError> {
        let query = |wanted: &usize| SampleQuery { top_k: *wanted, ..SampleQuery::default() };
        let queries: Vec<SampleQuery> = wanted.iter().map(query).collect();
        let queries = LogitQueries { first: hidden.first, queries: &queries, ids_end, masks: &[] };
        let found = self.decoder.query_logits(&mut self.memory, queries)?;
        Ok(found.into_iter().map(|stats| stats.top_k).collect())
    }

    fn is_partial(&self) -> bool {
        true
    }

    fn keep_logits(&mut self, _: Vec<f32>) {}

    fn add_tier(&mut self, tier: PoolShape) -> Result<(), GpuError> {
        self.decoder.add_tier(&mut self.memory, tier.blocks)
    }

    fn move_blocks(&mut self, moves: &Moves) -> Result<(), StepError> {
        Ok(self.decoder.move_blocks(&self.memory, moves)?)
    }

    fn gpu_logits(&mut self) -> Option<GpuLogits<'_>> {
        Some(GpuLogits::new(&self.decoder, &mut self.memory))
    }
}
