//! A rank on the processor.

use std::ops::Range;
use std::sync::Arc;

use base::{Moves, Slot};

use super::StepError;
use super::gpu_logits::GpuLogits;
use super::rank::{HiddenStates, Rank, RankWeights};
use crate::checkpoint::{Dtype, ModelConfig};
use crate::decoder::{Decoder, Workspace};
use crate::device::Cpu;
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

    fn rounds_activations(&self) -> bool {
        self.rounds_activations()
    }

    fn multiplies_halves(&self) -> bool {
        self.multiplies_halves()
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
        let (pool, work) = (handed_out(shape, self.cpu()), Workspace::default());
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
        self.tier = Some(handed_out(tier, self.decoder.cpu()));
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

/// A pool whose pages the system has handed out, to all threads of the device at once.
fn handed_out(shape: PoolShape, cpu: &Cpu) -> KvPool {
    let mut pool = KvPool::new(shape);
    cpu.run(|| pool.fault_in());
    pool
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

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::checkpoint::Synthetic;
    use crate::checkpoint::config::Family;
    use crate::decoder::LoadOptions;
    use crate::settings::Keep;

    #[test]
    fn the_pages_of_a_tier_are_handed_out_when_it_is_added() {
        let shape = PoolShape {
            format: KvFormat::F32,
            layers: 2,
            kv_heads: 2,
            head_dim: 8,
            block_tokens: 16,
            blocks: 256,
        };
        let mut tried = KvPool::new(shape);
        let before = tried.pages();
        tried.fault_in();
        // Systems that cannot, or do not say, have nothing to try.
        let Some((0, all)) = before.filter(|(_, all)| tried.pages() == Some((*all, *all))) else { return };
        let model = Synthetic::tiny(Family::Llama, 3);
        let cpu = Arc::new(Cpu::new(Some(2)).expect("threads start"));
        let options = LoadOptions { cpu, keep: Keep::default() };
        let decoder = Decoder::load(&model.config, &model.weights(), options).expect("a valid model");
        let mut rank = CpuRank {
            decoder: Arc::new(decoder),
            pool: KvPool::new(shape),
            tier: None,
            work: Workspace::default(),
        };
        rank.add_tier(shape).expect("there is memory");
        assert_eq!(rank.tier.expect("it was added").pages(), Some((all, all)));
    }
}
