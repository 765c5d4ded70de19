//! A rank on a GPU.

use std::ops::Range;
use std::sync::Arc;

use base::{Moves, Slot};

use super::StepError;
use super::rank::{HiddenStates, Rank, RankWeights};
use crate::checkpoint::ModelConfig;
use crate::decoder::{Draw, GpuDecoder, GpuMemory, LogitQueries, LogitStats, SampleQuery};
use crate::device::cpu::TopK;
use crate::device::cuda::{Element, GpuError};
use crate::pool::PoolShape;
use crate::settings::KvFormat;

pub(super) struct GpuRank {
    decoder: Arc<GpuDecoder>,
    memory: GpuMemory,
}

impl RankWeights for GpuDecoder {
    fn config(&self) -> &ModelConfig {
        self.config()
    }

    fn kv(&self) -> KvFormat {
        match self.element() {
            Element::F32 => KvFormat::F32,
            Element::Bf16 => KvFormat::Bf16,
        }
    }

    fn step_bytes(&self) -> usize {
        self.step_bytes()
    }

    fn step_operations(&self, tokens: usize, sampled: usize) -> f64 {
        self.step_operations(tokens, sampled)
    }

    fn start(self: Arc<Self>, shape: PoolShape) -> Result<Box<dyn Rank>, GpuError> {
        Ok(Box::new(GpuRank { memory: self.memory(shape)?, decoder: self }))
    }
}

impl Rank for GpuRank {
    fn forward(&mut self, slots: &[Slot]) -> Result<HiddenStates, StepError> {
        let rows = self.decoder.forward(&mut self.memory, slots)?;
        Ok(HiddenStates { rows, states: Vec::new() })
    }

    fn logits(&mut self, _: &HiddenStates, rows: Range<usize>) -> Result<Vec<f32>, StepError> {
        Ok(self.decoder.logits(&mut self.memory, rows)?)
    }

    fn top_k(&mut self, _: &HiddenStates, wanted: &[usize], ids_end: usize) -> Result<Vec<TopK>, StepError> {
        let query = |wanted: &usize| SampleQuery { top_k: *wanted, ..SampleQuery::default() };
        let queries: Vec<SampleQuery> = wanted.iter().map(query).collect();
        let found = self.query_logits(LogitQueries { first: 0, queries: &queries, ids_end, masks: &[] })?;
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

    fn on_gpu(&mut self) -> Option<&mut GpuRank> {
        Some(self)
    }
}

impl GpuRank {
    /// Waits until what was asked for is computed.
    pub(super) fn wait(&self) -> Result<(), GpuError> {
        self.decoder.wait(&self.memory)
    }

    /// [`GpuDecoder::query_logits`]
    pub(super) fn query_logits(&mut self, asked: LogitQueries<'_>) -> Result<Vec<LogitStats>, GpuError> {
        self.decoder.query_logits(&mut self.memory, asked)
    }

    /// [`GpuDecoder::queried_logits`]
    pub(super) fn queried_logits(&self, rows: Range<usize>) -> Result<Vec<f32>, GpuError> {
        self.decoder.queried_logits(&self.memory, rows)
    }

    /// [`GpuDecoder::draw`]
    pub(super) fn draw(&mut self, draws: &[Draw], ids_end: usize) -> Result<Vec<Option<u32>>, GpuError> {
        self.decoder.draw(&mut self.memory, draws, ids_end)
    }
}
