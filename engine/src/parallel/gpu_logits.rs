//! Logits of a rank's last step where they stay on its GPU: what can be asked of them.

use std::ops::Range;

use crate::decoder::{Draw, GpuDecoder, GpuMemory, LogitPlace, LogitQueries, LogitStats, PlaceQuery};
use crate::device::cuda::GpuError;

/// The logits of one rank's part of the vocabulary.
pub(super) struct GpuLogits<'a> {
    decoder: &'a GpuDecoder,
    memory: &'a mut GpuMemory,
}

impl<'a> GpuLogits<'a> {
    pub(super) fn new(decoder: &'a GpuDecoder, memory: &'a mut GpuMemory) -> Self {
        Self { decoder, memory }
    }

    /// Waits until what was asked for is computed.
    pub(super) fn wait(&self) -> Result<(), GpuError> {
        self.decoder.wait(self.memory)
    }

    /// [`GpuDecoder::query_logits`]
    pub(super) fn query_logits(&mut self, asked: LogitQueries<'_>) -> Result<Vec<LogitStats>, GpuError> {
        self.decoder.query_logits(self.memory, asked)
    }

    /// [`GpuDecoder::queried_logits`]
    pub(super) fn queried_logits(&self, rows: Range<usize>) -> Result<Vec<f32>, GpuError> {
        self.decoder.queried_logits(self.memory, rows)
    }

    /// [`GpuDecoder::token_places`]
    pub(super) fn token_places(
        &mut self,
        queries: &[PlaceQuery],
        ids_end: usize,
    ) -> Result<Vec<LogitPlace>, GpuError> {
        self.decoder.token_places(self.memory, queries, ids_end)
    }

    /// [`GpuDecoder::draw`]
    pub(super) fn draw(&mut self, draws: &[Draw], ids_end: usize) -> Result<Vec<Option<u32>>, GpuError> {
        self.decoder.draw(self.memory, draws, ids_end)
    }
}
