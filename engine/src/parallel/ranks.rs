//! The ranks of a model as one: the same plan goes to all of them, each on threads of its own.
//!
//! A rank that panics fails the step as a whole: the others leave their next collective operation at once, and the
//! panic goes on in the caller when all have stopped.

use std::sync::Arc;

use base::{Bytes, Slot};

use super::shard::{ShardSource, Share};
use super::shared::Group;
use super::{Broken, ShardError};
use crate::checkpoint::{ModelConfig, WeightSource};
use crate::decoder::{Decoder, LoadOptions, Workspace};
use crate::device::Cpu;
use crate::device::cpu::Highest;
use crate::pool::{KvPool, PoolError, PoolShape};
use crate::settings::{Keep, KvFormat};

/// A model on its ranks.
pub struct Ranks {
    /// Of the whole model.
    config: ModelConfig,
    decoders: Vec<Decoder>,
    group: Arc<Group>,
}

/// A rank's keys and values, and the memory of its steps.
pub struct Memory {
    pool: KvPool,
    work: Workspace,
}

impl From<Decoder> for Ranks {
    /// The only rank.
    fn from(decoder: Decoder) -> Self {
        Self { config: decoder.config().clone(), decoders: vec![decoder], group: Group::new(1) }
    }
}

impl Ranks {
    /// Loads a model as one rank on each of `cpus`, all at once.
    pub fn load(
        config: &ModelConfig,
        source: &dyn WeightSource,
        cpus: &[Arc<Cpu>],
        keep: Keep,
    ) -> Result<Self, ShardError> {
        let (of, group) = (cpus.len(), Group::new(cpus.len()));
        let load = |index: usize| {
            let options = LoadOptions { cpu: Arc::clone(&cpus[index]), keep };
            if of == 1 {
                return Ok(Decoder::load(config, source, options)?);
            }
            let share = Share { index, of };
            let (config, source) = (share.config(config)?, ShardSource::new(source, config, share));
            Ok(Decoder::load_rank(&config, &source, options, Box::new(group.member(index)))?)
        };
        let load = &load;
        let jobs = cpus.iter().enumerate().map(|(index, cpu)| (&**cpu, move || load(index)));
        let decoders = side_by_side(jobs.collect()).into_iter().collect::<Result<_, ShardError>>()?;
        Ok(Self { config: config.clone(), decoders, group })
    }

    /// The whole model's configuration.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Its decoders, one per rank.
    pub fn decoders(&self) -> &[Decoder] {
        &self.decoders
    }

    /// The device of rank 0, which samples.
    pub fn cpu(&self) -> &Arc<Cpu> {
        self.decoders[0].cpu()
    }

    /// What keys and values are kept as.
    pub fn kv(&self) -> KvFormat {
        self.decoders[0].kv()
    }

    /// Compute threads of all ranks.
    pub fn threads(&self) -> usize {
        self.decoders.iter().map(|decoder| decoder.cpu().threads()).sum()
    }

    /// Bytes of weights that one step reads on all ranks, whatever its batch.
    pub fn step_bytes(&self) -> usize {
        self.decoders.iter().map(Decoder::step_bytes).sum()
    }

    /// Operations of a step's products on all ranks: [`Decoder::step_operations`].
    pub fn step_operations(&self, tokens: usize, sampled: usize) -> f64 {
        self.decoders.iter().map(|decoder| decoder.step_operations(tokens, sampled)).sum()
    }

    /// Extents of the pool that each rank has where all ranks together have `kv_bytes`.
    pub fn pool_shape(&self, block_tokens: u32, kv_bytes: Bytes) -> Result<PoolShape, PoolError> {
        let ranks = self.decoders.len() as u64;
        let config = self.decoders[0].config();
        PoolShape::fit(config, self.kv(), block_tokens, Bytes(kv_bytes.0 / ranks))
    }

    /// The ranks' memory, each with a pool of `shape`.
    pub fn memory(&self, shape: PoolShape) -> Vec<Memory> {
        let one = |_: &Decoder| Memory { pool: KvPool::new(shape), work: Workspace::default() };
        self.decoders.iter().map(one).collect()
    }

    /// Hidden states from which the sampling slots' logits follow: [`Decoder::forward`].
    pub fn forward(&self, memory: &mut [Memory], slots: &[Slot]) -> Result<Vec<f32>, Broken> {
        self.together(memory, |decoder, memory| decoder.forward(&mut memory.pool, slots, &mut memory.work))
    }

    /// Logits `[rows, vocab]` of hidden states `[rows, embedding]`.
    pub fn logits(&self, memory: &mut [Memory], hidden: &[f32]) -> Result<Vec<f32>, Broken> {
        self.together(memory, |decoder, memory| decoder.logits(hidden, &mut memory.work))
    }

    /// The highest logits of hidden states: [`Decoder::highest`].
    pub fn highest(
        &self,
        memory: &mut [Memory],
        hidden: &[f32],
        (wanted, end): (&[usize], usize),
    ) -> Result<Vec<Highest>, Broken> {
        self.together(memory, |decoder, memory| decoder.highest(hidden, (wanted, end), &mut memory.work))
    }

    /// Takes back what [`Self::logits`] gave, for the next step.
    pub fn keep_logits(&self, memory: &mut [Memory], logits: Vec<f32>) {
        if let [only] = memory {
            only.work.keep_logits(logits);
        }
    }

    /// Runs `work` on all ranks at once; what it gives on rank 0, or the failure of any.
    fn together<T: Send>(
        &self,
        memory: &mut [Memory],
        work: impl Fn(&Decoder, &mut Memory) -> Result<T, Broken> + Sync,
    ) -> Result<T, Broken> {
        assert_eq!(memory.len(), self.decoders.len(), "each rank has its memory");
        self.group.begin();
        let one = |decoder: &Decoder, memory: &mut Memory| {
            let release = FailOnDrop(&self.group);
            let result = work(decoder, memory)?;
            std::mem::forget(release);
            Ok(result)
        };
        let one = &one;
        let jobs = self.decoders.iter().zip(memory);
        let jobs = jobs.map(|(decoder, memory)| (&**decoder.cpu(), move || one(decoder, memory)));
        let results = side_by_side(jobs.collect()).into_iter().collect::<Result<Vec<T>, Broken>>()?;
        Ok(results.into_iter().next().expect("a model has a rank"))
    }
}

/// Frees the other ranks of a group when one leaves its work early, by an error or a panic.
struct FailOnDrop<'a>(&'a Group);

impl Drop for FailOnDrop<'_> {
    fn drop(&mut self) {
        self.0.fail();
    }
}

/// Runs each job on its device's threads, all at once. Their results in order; where one panics, so does this, when all
/// have ended.
fn side_by_side<T: Send, J: FnOnce() -> T + Send>(jobs: Vec<(&Cpu, J)>) -> Vec<T> {
    let mut results: Vec<Option<T>> = jobs.iter().map(|_| None).collect();
    launch(jobs.into_iter().zip(&mut results));
    results.into_iter().map(|result| result.expect("every job has ended")).collect()
}

/// Starts the first job and, beside it, the others.
fn launch<'a, T, J, I>(mut jobs: I)
where
    T: Send + 'a,
    J: FnOnce() -> T + Send,
    I: Iterator<Item = ((&'a Cpu, J), &'a mut Option<T>)>,
{
    if let Some(((cpu, job), result)) = jobs.next() {
        cpu.run_beside(|| *result = Some(job()), || launch(jobs));
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::checkpoint::Synthetic;
    use crate::checkpoint::config::Family;

    fn ranks(count: usize) -> Ranks {
        let model = Synthetic::tiny(Family::Llama, 3);
        let cpu = |_| Arc::new(Cpu::new(Some(1)).expect("threads start"));
        let cpus: Vec<Arc<Cpu>> = (0..count).map(cpu).collect();
        Ranks::load(&model.config, &model.weights(), &cpus, Keep::default()).expect("the model divides")
    }

    #[test]
    fn a_rank_that_fails_or_panics_fails_the_step_and_never_hangs_the_others() {
        let ranks = ranks(4);
        let shape = ranks.pool_shape(8, Bytes(1 << 20)).expect("blocks fit");
        let mut memory = ranks.memory(shape);
        let sum = |decoder: &Decoder| {
            let mut values = [1.0];
            decoder.collective().all_reduce(&mut values).map(|()| values[0])
        };
        for bad in 0..4 {
            let failed = ranks.together(&mut memory, |decoder, _| {
                sum(decoder)?;
                if decoder.collective().rank() == bad { Err(Broken) } else { sum(decoder) }
            });
            assert_eq!(failed, Err(Broken));
            let last = |decoder: &Decoder, _: &mut Memory| {
                let sum = sum(decoder);
                if decoder.collective().rank() == bad { Err(Broken) } else { sum }
            };
            assert_eq!(ranks.together(&mut memory, last), Err(Broken), "even after the last operation");
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                ranks.together(&mut memory, |decoder, _| {
                    sum(decoder)?;
                    assert!(decoder.collective().rank() != bad, "rank {bad} is meant to panic here");
                    sum(decoder)
                })
            }));
            assert!(panicked.is_err(), "the panic goes on in the caller");
            assert_eq!(ranks.together(&mut memory, |decoder, _| sum(decoder)), Ok(4.0), "the next step runs");
        }
    }

    #[test]
    fn extents_that_do_not_divide_are_named() {
        let refused = |family, change: &dyn Fn(&mut ModelConfig), ranks: usize| {
            let mut model = Synthetic::tiny(family, 3);
            change(&mut model.config);
            let cpus: Vec<_> =
                (0..ranks).map(|_| Arc::new(Cpu::new(Some(1)).expect("threads start"))).collect();
            match Ranks::load(&model.config, &model.weights(), &cpus, Keep::default()) {
                Err(ShardError::Uneven { field, count, .. }) => (field, count),
                Err(other) => panic!("{other}"),
                Ok(_) => panic!("it divides"),
            }
        };
        let odd = |config: &mut ModelConfig| (config.heads, config.kv_heads) = (6, 2);
        assert_eq!(refused(Family::Llama, &odd, 4), ("num_attention_heads", 6));
        let odd = |config: &mut ModelConfig| (config.heads, config.kv_heads) = (12, 3);
        assert_eq!(refused(Family::Qwen3, &odd, 4), ("num_key_value_heads", 3));
        assert_eq!(refused(Family::Qwen3, &odd, 2), ("num_key_value_heads", 3));
        assert_eq!(refused(Family::Qwen2, &|config| config.intermediate = 50, 4), ("intermediate_size", 50));
        assert_eq!(refused(Family::Opt, &|config| config.intermediate = 50, 4), ("ffn_dim", 50));
        assert_eq!(refused(Family::Mistral, &|config| config.vocab = 301, 2), ("vocab_size", 301));
    }
}
