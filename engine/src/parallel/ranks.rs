//! The ranks of a model as one: the same plan goes to all of them, each on threads of its own.
//!
//! A rank is a decoder on its device. One that fails or panics fails the step as a whole: the others leave their next
//! collective operation at once, and the panic goes on in the caller when all have stopped.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use base::{Bytes, Moves, Slot};

use super::shard::{ShardSource, Share};
use super::shared::Group;
use super::watchdog::Watchdog;
use super::{ShardError, StepError};
use crate::checkpoint::{ModelConfig, WeightSource};
use crate::decoder::{Decoder, GpuDecoder, GpuMemory, LoadOptions, Wish, Workspace};
use crate::device::Cpu;
use crate::device::cpu::Highest;
use crate::device::cuda::{Element, Gpu, GpuError};
use crate::pool::{KvPool, PoolError, PoolShape};
use crate::settings::{Keep, KvFormat};

/// A step of several GPUs that takes longer than this has a rank that will not answer.
const STEP_MAX: Duration = Duration::from_secs(120);

/// A model on its ranks.
pub struct Ranks {
    /// Of the whole model.
    config: ModelConfig,
    ranks: Vec<Rank>,
    group: Arc<Group>,
    /// Where several GPUs wait for one another.
    watchdog: Option<Watchdog>,
}

/// A decoder on its device.
enum Rank {
    Cpu(Box<Decoder>),
    Gpu(Box<GpuDecoder>),
}

/// A rank's keys and values, and the memory of its steps.
pub struct Memory(Kind);

enum Kind {
    Cpu(Box<CpuMemory>),
    Gpu(Box<GpuMemory>),
}

struct CpuMemory {
    pool: KvPool,
    /// Where blocks of the pool move to that give way to others, where there is such a place.
    tier: Option<KvPool>,
    work: Workspace,
}

/// Hidden states of a step's sampling rows, or, where they stay on their device until the next step, how many they are.
#[derive(Clone, Debug)]
pub struct Hidden {
    rows: usize,
    states: Vec<f32>,
}

impl Hidden {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The states of some rows, of `width` numbers each.
    fn of(&self, rows: Range<usize>, width: usize) -> &[f32] {
        &self.states[rows.start * width..rows.end * width]
    }
}

impl Rank {
    /// A rank's own where it is one of several.
    fn config(&self) -> &ModelConfig {
        match self {
            Self::Cpu(decoder) => decoder.config(),
            Self::Gpu(decoder) => decoder.config(),
        }
    }

    /// Its threads; beside a GPU, those that wait for it.
    fn cpu(&self) -> &Arc<Cpu> {
        match self {
            Self::Cpu(decoder) => decoder.cpu(),
            Self::Gpu(decoder) => decoder.cpu(),
        }
    }

    fn kv(&self) -> KvFormat {
        match self {
            Self::Cpu(decoder) => decoder.kv(),
            Self::Gpu(decoder) => match decoder.element() {
                Element::F32 => KvFormat::F32,
                Element::Bf16 => KvFormat::Bf16,
            },
        }
    }

    fn memory(&self, shape: PoolShape) -> Result<Memory, GpuError> {
        Ok(Memory(match self {
            Self::Cpu(_) => {
                let (pool, work) = (KvPool::new(shape), Workspace::default());
                Kind::Cpu(Box::new(CpuMemory { pool, tier: None, work }))
            }
            Self::Gpu(decoder) => Kind::Gpu(Box::new(decoder.memory(shape)?)),
        }))
    }

    fn forward(&self, memory: &mut Memory, slots: &[Slot]) -> Result<Hidden, StepError> {
        match (self, &mut memory.0) {
            (Self::Cpu(decoder), Kind::Cpu(memory)) => {
                let CpuMemory { pool, work, .. } = &mut **memory;
                let states = decoder.forward(pool, slots, work)?;
                Ok(Hidden { rows: states.len() / decoder.config().embedding, states })
            }
            (Self::Gpu(decoder), Kind::Gpu(memory)) => {
                let rows = decoder.forward(memory, slots)?;
                Ok(Hidden { rows, states: Vec::new() })
            }
            _ => unreachable!("a rank's memory is its device's"),
        }
    }

    /// Logits of some rows: of the whole vocabulary, or of this rank's on a GPU.
    fn logits(
        &self,
        memory: &mut Memory,
        hidden: &Hidden,
        rows: Range<usize>,
    ) -> Result<Vec<f32>, StepError> {
        match (self, &mut memory.0) {
            (Self::Cpu(decoder), Kind::Cpu(memory)) => {
                Ok(decoder.logits(hidden.of(rows, decoder.config().embedding), &mut memory.work)?)
            }
            (Self::Gpu(decoder), Kind::Gpu(memory)) => Ok(decoder.logits(memory, (rows.start, rows.len()))?),
            _ => unreachable!("a rank's memory is its device's"),
        }
    }

    /// The highest logits: of the whole vocabulary, or of this rank's on a GPU.
    fn highest(
        &self,
        memory: &mut Memory,
        hidden: &Hidden,
        (wanted, end): (&[usize], usize),
    ) -> Result<Vec<Highest>, StepError> {
        match (self, &mut memory.0) {
            (Self::Cpu(decoder), Kind::Cpu(memory)) => {
                Ok(decoder.highest(&hidden.states, (wanted, end), &mut memory.work)?)
            }
            (Self::Gpu(decoder), Kind::Gpu(memory)) => {
                let wish = |wanted: &usize| Wish { highest: *wanted, ..Wish::default() };
                let wishes: Vec<Wish> = wanted.iter().map(wish).collect();
                let found = decoder.survey(memory, 0, (&wishes, end), &[])?;
                Ok(found.into_iter().map(|survey| survey.highest).collect())
            }
            _ => unreachable!("a rank's memory is its device's"),
        }
    }

    /// Gives its pool a tier of the same blocks, as many as `tier` says.
    fn add_tier(&self, memory: &mut Memory, tier: PoolShape) -> Result<(), GpuError> {
        match (self, &mut memory.0) {
            (Self::Gpu(decoder), Kind::Gpu(memory)) => decoder.add_tier(memory, tier.blocks),
            (_, Kind::Cpu(memory)) => {
                memory.tier = Some(KvPool::new(tier));
                Ok(())
            }
            _ => unreachable!("a rank's memory is its device's"),
        }
    }

    /// Moves blocks between its pool and its tier.
    fn move_blocks(&self, memory: &mut Memory, moves: &Moves) -> Result<(), StepError> {
        match (self, &mut memory.0) {
            (Self::Gpu(decoder), Kind::Gpu(memory)) => decoder.move_blocks(memory, moves)?,
            (_, Kind::Cpu(memory)) => {
                let CpuMemory { pool, tier, .. } = &mut **memory;
                tier.iter_mut().for_each(|tier| pool.move_blocks(tier, moves));
            }
            _ => unreachable!("a rank's memory is its device's"),
        }
        Ok(())
    }

    /// Whether each rank gives its own part of the vocabulary instead of all.
    fn is_partial(&self) -> bool {
        matches!(self, Self::Gpu(_))
    }

    /// Its GPU, if it is on one.
    fn gpu(&self) -> Option<&Arc<dyn Gpu>> {
        match self {
            Self::Cpu(_) => None,
            Self::Gpu(decoder) => Some(decoder.gpu()),
        }
    }
}

impl From<Decoder> for Ranks {
    /// The only rank.
    fn from(decoder: Decoder) -> Self {
        let config = decoder.config().clone();
        Self { config, ranks: vec![Rank::Cpu(Box::new(decoder))], group: Group::new(1), watchdog: None }
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
        let group = Group::new(cpus.len());
        let load = |index: usize, config: &ModelConfig, source: &dyn WeightSource| {
            let options = LoadOptions { cpu: Arc::clone(&cpus[index]), keep };
            let decoder = match cpus.len() {
                1 => Decoder::load(config, source, options)?,
                _ => Decoder::load_rank(config, source, options, Box::new(group.member(index)))?,
            };
            Ok(Rank::Cpu(Box::new(decoder)))
        };
        let ranks = load_shares(config, source, cpus, load)?;
        Ok(Self { config: config.clone(), ranks, group, watchdog: None })
    }

    /// Loads a model as one rank on each of `gpus`, all at once; each has a thread of `cpus`, rank 0 all of its.
    pub fn load_on_gpus(
        config: &ModelConfig,
        source: &dyn WeightSource,
        (gpus, cpus): (&[Arc<dyn Gpu>], &[Arc<Cpu>]),
        keep: Keep,
    ) -> Result<Self, ShardError> {
        let load = |index: usize, config: &ModelConfig, source: &dyn WeightSource| {
            let device = (Arc::clone(&gpus[index]), Arc::clone(&cpus[index]));
            Ok(Rank::Gpu(Box::new(GpuDecoder::load(config, source, device, keep)?)))
        };
        let ranks = load_shares(config, source, cpus, load)?;
        let watchdog = (gpus.len() > 1).then(|| {
            let gpus = gpus.to_vec();
            Watchdog::new(STEP_MAX, move || gpus.iter().for_each(|gpu| gpu.abort()))
        });
        Ok(Self { config: config.clone(), ranks, group: Group::new(gpus.len()), watchdog })
    }

    /// The whole model's configuration.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Number of ranks.
    pub fn count(&self) -> usize {
        self.ranks.len()
    }

    /// The processor of rank 0, which samples.
    pub fn cpu(&self) -> &Arc<Cpu> {
        self.ranks[0].cpu()
    }

    /// What the GPUs are called; none where the ranks are on the processor.
    pub fn gpus(&self) -> impl Iterator<Item = &Arc<dyn Gpu>> {
        self.ranks.iter().filter_map(Rank::gpu)
    }

    /// What keys and values are kept as.
    pub fn kv(&self) -> KvFormat {
        self.ranks[0].kv()
    }

    /// Compute threads of all ranks.
    pub fn threads(&self) -> usize {
        self.ranks.iter().map(|rank| rank.cpu().threads()).sum()
    }

    /// Bytes of weights that one step reads on all ranks, whatever its batch.
    pub fn step_bytes(&self) -> usize {
        let bytes = |rank: &Rank| match rank {
            Rank::Cpu(decoder) => decoder.step_bytes(),
            Rank::Gpu(decoder) => decoder.step_bytes(),
        };
        self.ranks.iter().map(bytes).sum()
    }

    /// Operations of a step's products on all ranks: [`Decoder::step_operations`].
    pub fn step_operations(&self, tokens: usize, sampled: usize) -> f64 {
        let operations = |rank: &Rank| match rank {
            Rank::Cpu(decoder) => decoder.step_operations(tokens, sampled),
            Rank::Gpu(decoder) => decoder.step_operations(tokens, sampled),
        };
        self.ranks.iter().map(operations).sum()
    }

    /// Extents of the pool that each rank has where all ranks together have `kv_bytes`.
    pub fn pool_shape(&self, block_tokens: u32, kv_bytes: Bytes) -> Result<PoolShape, PoolError> {
        let ranks = self.ranks.len() as u64;
        PoolShape::fit(self.ranks[0].config(), self.kv(), block_tokens, Bytes(kv_bytes.0 / ranks))
    }

    /// The ranks' memory, each with a pool of `shape`.
    pub fn memory(&self, shape: PoolShape) -> Result<Vec<Memory>, PoolError> {
        let made: Result<_, GpuError> = self.ranks.iter().map(|rank| rank.memory(shape)).collect();
        made.map_err(|error| PoolError::Gpu(error.to_string()))
    }

    /// Gives each rank's pool of `shape` its part of a tier of `bytes`; how many blocks that is.
    pub fn add_tier(
        &self,
        memory: &mut [Memory],
        shape: PoolShape,
        bytes: Bytes,
    ) -> Result<usize, PoolError> {
        let tier = shape.tier(Bytes(bytes.0 / self.ranks.len() as u64))?;
        if tier.blocks > 0 {
            let mut ranks = self.ranks.iter().zip(memory);
            let made = ranks.try_for_each(|(rank, memory)| rank.add_tier(memory, tier));
            made.map_err(|error: GpuError| PoolError::Gpu(error.to_string()))?;
        }
        Ok(tier.blocks)
    }

    /// Moves blocks between each rank's pool and its tier, which holds all that are named.
    pub fn move_blocks(&self, memory: &mut [Memory], moves: &Moves) -> Result<(), StepError> {
        if moves.is_empty() {
            return Ok(());
        }
        self.together(memory, |rank, memory| rank.move_blocks(memory, moves)).map(drop)
    }

    /// Hidden states from which the sampling slots' logits follow: [`Decoder::forward`].
    pub fn forward(&self, memory: &mut [Memory], slots: &[Slot]) -> Result<Hidden, StepError> {
        if self.watchdog.is_some() {
            return self.forward_on_gpus(memory, slots);
        }
        let computed = self.together(memory, |rank, memory| rank.forward(memory, slots))?;
        Ok(computed.into_iter().next().expect("a model has a rank"))
    }

    /// The same on several GPUs, which compare what they are about to compute.
    fn forward_on_gpus(&self, memory: &mut [Memory], slots: &[Slot]) -> Result<Hidden, StepError> {
        let marks = self.together_on_gpus(memory, |_, decoder, memory| {
            decoder.prepare(memory, slots)?;
            Ok(memory.mark())
        })?;
        if marks.iter().any(|mark| *mark != marks[0]) {
            return Err(GpuError::Lost("the ranks prepare different steps".into()).into());
        }
        let rows = self.together_on_gpus(memory, |_, decoder, memory| decoder.launch_prepared(memory))?;
        Ok(Hidden { rows: rows[0], states: Vec::new() })
    }

    /// Waits until a step is computed of which nothing is read.
    pub fn wait(&self, memory: &mut [Memory]) -> Result<(), StepError> {
        match self.surveys() {
            true => self.together_on_gpus(memory, |_, decoder, memory| decoder.wait(memory)).map(drop),
            false => Ok(()),
        }
    }

    /// Logits `[rows, vocab]` of some of a step's rows.
    pub fn logits(
        &self,
        memory: &mut [Memory],
        hidden: &Hidden,
        rows: Range<usize>,
    ) -> Result<Vec<f32>, StepError> {
        let parts = self.together(memory, |rank, memory| rank.logits(memory, hidden, rows.clone()))?;
        Ok(self.whole(parts, rows.len()))
    }

    /// Logits of `rows` rows over the whole vocabulary, from what each rank has of them.
    pub(super) fn whole(&self, mut parts: Vec<Vec<f32>>, rows: usize) -> Vec<f32> {
        if parts.len() == 1 || !self.ranks[0].is_partial() {
            return parts.swap_remove(0);
        }
        let vocab = self.ranks[0].config().vocab;
        let row = |row: usize| parts.iter().flat_map(move |part| &part[row * vocab..][..vocab]);
        (0..rows).flat_map(row).copied().collect()
    }

    /// The highest logits of a step's rows: [`Decoder::highest`].
    pub fn highest(
        &self,
        memory: &mut [Memory],
        hidden: &Hidden,
        (wanted, end): (&[usize], usize),
    ) -> Result<Vec<Highest>, StepError> {
        let found = self.together(memory, |rank, memory| rank.highest(memory, hidden, (wanted, end)))?;
        let mut parts = found.into_iter();
        let mut whole = parts.next().expect("a model has a rank");
        for part in parts.filter(|_| self.ranks[0].is_partial()) {
            whole.iter_mut().zip(&part).for_each(|(whole, part)| whole.append(part));
        }
        Ok(whole)
    }

    /// Takes back what [`Self::logits`] gave, for the next step.
    pub fn keep_logits(&self, memory: &mut [Memory], logits: Vec<f32>) {
        if let [Memory(Kind::Cpu(memory))] = memory {
            memory.work.keep_logits(logits);
        }
    }

    /// Runs `work` on all ranks at once; what each gives, or the failure of any: where several fail, that of one that did
    /// not fail for another's sake.
    fn together<T: Send>(
        &self,
        memory: &mut [Memory],
        work: impl Fn(&Rank, &mut Memory) -> Result<T, StepError> + Sync,
    ) -> Result<Vec<T>, StepError> {
        assert_eq!(memory.len(), self.ranks.len(), "each rank has its memory");
        self.group.begin();
        let _watch = self.watchdog.as_ref().map(Watchdog::watch);
        let one = |rank: &Rank, memory: &mut Memory| {
            let release = FailOnDrop(self);
            let result = work(rank, memory)?;
            std::mem::forget(release);
            Ok(result)
        };
        if let ([rank @ Rank::Gpu(_)], [memory]) = (&*self.ranks, &mut *memory) {
            // What its device computes needs no threads, and handing over to one takes longer than launching a step.
            return Ok(vec![one(rank, memory)?]);
        }
        let one = &one;
        let jobs = self.ranks.iter().zip(memory);
        let jobs = jobs.map(|(rank, memory)| (&**rank.cpu(), move || one(rank, memory)));
        let results: Vec<Result<T, StepError>> = side_by_side(jobs.collect());
        let own =
            results.iter().filter_map(|result| result.as_ref().err()).find(|error| !error.is_of_another());
        match own {
            Some(own) => Err(own.clone()),
            None => results.into_iter().collect(),
        }
    }

    /// The same where the ranks are GPUs; each is told its number.
    pub(super) fn together_on_gpus<T: Send>(
        &self,
        memory: &mut [Memory],
        work: impl Fn(usize, &GpuDecoder, &mut GpuMemory) -> Result<T, GpuError> + Sync,
    ) -> Result<Vec<T>, StepError> {
        self.together(memory, |rank, memory| match (rank, &mut memory.0) {
            (Rank::Gpu(decoder), Kind::Gpu(memory)) => Ok(work(decoder.gpu().rank(), decoder, memory)?),
            _ => unreachable!("only asked of GPUs"),
        })
    }

    /// Frees whoever waits for a rank that will not come.
    fn fail(&self) {
        self.group.fail();
        if self.ranks.len() > 1 {
            self.gpus().for_each(|gpu| gpu.abort());
        }
    }
}

/// Loads each rank's share by `load`, which is told the rank's number, configuration and weights.
fn load_shares(
    config: &ModelConfig,
    source: &dyn WeightSource,
    cpus: &[Arc<Cpu>],
    load: impl Fn(usize, &ModelConfig, &dyn WeightSource) -> Result<Rank, ShardError> + Sync,
) -> Result<Vec<Rank>, ShardError> {
    let of = cpus.len();
    let one = |index: usize| {
        if of == 1 {
            return load(index, config, source);
        }
        let share = Share { index, of };
        load(index, &share.config(config)?, &ShardSource::new(source, config, share))
    };
    let one = &one;
    let jobs = cpus.iter().enumerate().map(|(index, cpu)| (&**cpu, move || one(index)));
    side_by_side(jobs.collect()).into_iter().collect()
}

/// Frees the other ranks of a group when one leaves its work early, by an error or a panic.
struct FailOnDrop<'a>(&'a Ranks);

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
    use crate::parallel::Broken;

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
        let mut memory = ranks.memory(shape).expect("it is the processor's");
        let of = |rank: &Rank| match rank {
            Rank::Cpu(decoder) => decoder.collective().rank(),
            Rank::Gpu(_) => unreachable!("all are on the processor"),
        };
        let sum = |rank: &Rank| -> Result<f32, StepError> {
            let Rank::Cpu(decoder) = rank else { unreachable!("all are on the processor") };
            let mut values = [1.0];
            Ok(decoder.collective().all_reduce(&mut values).map(|()| values[0])?)
        };
        let broken = || Err(StepError::from(Broken));
        for bad in 0..4 {
            let failed = ranks.together(&mut memory, |rank, _| {
                sum(rank)?;
                if of(rank) == bad { broken() } else { sum(rank) }
            });
            assert_eq!(failed, Err(Broken.into()));
            let last = |rank: &Rank, _: &mut Memory| {
                let sum = sum(rank);
                if of(rank) == bad { broken() } else { sum }
            };
            assert_eq!(
                ranks.together(&mut memory, last),
                Err(Broken.into()),
                "even after the last operation"
            );
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                ranks.together(&mut memory, |rank, _| {
                    sum(rank)?;
                    assert!(of(rank) != bad, "rank {bad} is meant to panic here");
                    sum(rank)
                })
            }));
            assert!(panicked.is_err(), "the panic goes on in the caller");
            let next = ranks.together(&mut memory, |rank, _| sum(rank));
            assert_eq!(next, Ok(vec![4.0; 4]), "the next step runs");
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
