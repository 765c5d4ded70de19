//! A model on the devices of its ranks: weights that are loaded once, and what follows from them.

use std::sync::Arc;

use base::Bytes;

use super::rank::{Rank, RankWeights};
use super::shard::{ShardError, ShardSource, Share};
use super::shared::RankGroup;
use super::together::{Peers, side_by_side};
use super::{Alone, Collective};
use crate::checkpoint::names::{model_names, weight};
use crate::checkpoint::{Dtype, ModelConfig, WeightSource};
use crate::decoder::{Decoder, GpuDecoder, GpuDemand, LoadOptions, check_fit};
use crate::device::Cpu;
use crate::device::cuda::{Gpu, GpuError};
use crate::pool::{PoolError, PoolShape};
use crate::settings::{Keep, KvFormat, NO_FP8_ON_CPU};

/// A model's weights, cut among ranks; copies share them.
#[derive(Clone)]
pub struct ShardedModel {
    /// Of the whole model.
    config: Arc<ModelConfig>,
    weights: Vec<Arc<dyn RankWeights>>,
    peers: Arc<Peers>,
}

impl From<Decoder> for ShardedModel {
    /// The only rank.
    fn from(decoder: Decoder) -> Self {
        let config = Arc::new(decoder.config().clone());
        let peers = Peers::new(RankGroup::new(1), &[Arc::clone(decoder.cpu())], &[]);
        Self { config, weights: vec![Arc::new(decoder)], peers }
    }
}

impl ShardedModel {
    /// Loads a model as one rank on each of `cpus`, all at once.
    pub fn load(
        config: &ModelConfig,
        source: &dyn WeightSource,
        cpus: &[Arc<Cpu>],
        keep: Keep,
    ) -> Result<Self, ShardError> {
        if keep.kv == Some(KvFormat::Fp8) {
            return Err(ShardError::Kv(NO_FP8_ON_CPU.to_owned()));
        }
        let group = RankGroup::new(cpus.len());
        let weights = load_shares(config, source, cpus, |index, config, source| {
            let options = LoadOptions { cpu: Arc::clone(&cpus[index]), keep };
            let member = member(&group, index, cpus.len());
            Ok(Arc::new(Decoder::load_rank(config, source, options, member)?))
        })?;
        Ok(Self { config: Arc::new(config.clone()), weights, peers: Peers::new(group, cpus, &[]) })
    }

    /// Fails where `gpus` cannot keep a model whose weights are stored as `stored`, a rank on each.
    pub fn check_gpus(
        config: &ModelConfig,
        stored: Dtype,
        gpus: &[Arc<dyn Gpu>],
        keep: Keep,
    ) -> Result<(), ShardError> {
        for (index, gpu) in gpus.iter().enumerate() {
            let share = Share { index, of: gpus.len() };
            check_fit(&share.config(config)?, stored, keep, &**gpu)?;
        }
        Ok(())
    }

    /// What each of `ranks` GPUs must have for its rank of a model, with keys and values in blocks of `block_tokens`;
    /// fails where none can keep it so.
    pub fn gpu_demand(
        config: &ModelConfig,
        source: &dyn WeightSource,
        ranks: usize,
        keep: Keep,
        block_tokens: u32,
    ) -> Result<GpuDemand, ShardError> {
        let stored = stored_as(config, source)?;
        let share = Share { index: 0, of: ranks };
        Ok(GpuDemand::of(&share.config(config)?, stored, keep, block_tokens as usize)?)
    }

    /// Loads a model as one rank on each of `gpus`, all at once; each has a thread of `cpus`, rank 0 all of
    /// its. Nothing is read of one that does not fit.
    pub fn load_on_gpus(
        config: &ModelConfig,
        source: &dyn WeightSource,
        (gpus, cpus): (&[Arc<dyn Gpu>], &[Arc<Cpu>]),
        keep: Keep,
    ) -> Result<Self, ShardError> {
        let stored = stored_as(config, source)?;
        Self::check_gpus(config, stored, gpus, keep)?;
        let group = RankGroup::new(gpus.len());
        let weights = load_shares(config, source, cpus, |index, config, source| {
            let member = member(&group, index, gpus.len());
            Ok(Arc::new(GpuDecoder::load(config, source, (Arc::clone(&gpus[index]), member), keep)?))
        })?;
        Ok(Self { config: Arc::new(config.clone()), weights, peers: Peers::new(group, cpus, gpus) })
    }

    /// The whole model's configuration.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Number of ranks.
    pub fn count(&self) -> usize {
        self.weights.len()
    }

    /// The processor of rank 0, which samples.
    pub fn cpu(&self) -> &Arc<Cpu> {
        &self.peers.cpus()[0]
    }

    /// The ranks' GPUs; none where they are on the processor.
    pub fn gpus(&self) -> &[Arc<dyn Gpu>] {
        self.peers.gpus()
    }

    /// What weights are kept as that are not in fewer bits.
    pub fn dtype(&self) -> Dtype {
        self.weights[0].dtype()
    }

    /// Whether a product of it rounds activations to bf16.
    pub fn rounds_activations(&self) -> bool {
        self.weights[0].rounds_activations()
    }

    /// Whether a matrix of it is kept as half floats, to which products round activations.
    pub fn multiplies_halves(&self) -> bool {
        self.weights[0].multiplies_halves()
    }

    /// What keys and values are kept as.
    pub fn kv(&self) -> KvFormat {
        self.weights[0].kv()
    }

    /// Compute threads of all ranks.
    pub fn threads(&self) -> usize {
        self.peers.cpus().iter().map(|cpu| cpu.threads()).sum()
    }

    /// Bytes of weights that one step reads on all ranks, whatever its batch.
    pub fn step_bytes(&self) -> usize {
        self.weights.iter().map(|rank| rank.step_bytes()).sum()
    }

    /// Operations of a step's products on all ranks: [`Decoder::step_operations`].
    pub fn step_operations(&self, tokens: usize, sampled: usize) -> f64 {
        self.weights.iter().map(|rank| rank.step_operations(tokens, sampled)).sum()
    }

    /// Extents of the pool that each rank has where all ranks together have `kv_bytes`.
    pub fn pool_shape(&self, block_tokens: u32, kv_bytes: Bytes) -> Result<PoolShape, PoolError> {
        let ranks = self.weights.len() as u64;
        PoolShape::fit(self.weights[0].config(), self.kv(), block_tokens, Bytes(kv_bytes.0 / ranks))
    }

    /// Bytes of its GPU that a rank's step takes at most beside weights and pool:
    /// [`RankWeights::step_memory`].
    pub(super) fn step_memory(&self, tokens: usize, sampled: usize) -> usize {
        self.weights.iter().map(|rank| rank.step_memory(tokens, sampled)).max().unwrap_or(0)
    }

    /// Its ranks, each with a pool of `shape`.
    pub(super) fn ranks(&self, shape: PoolShape) -> Result<Vec<Box<dyn Rank>>, GpuError> {
        self.weights.iter().map(|rank| Arc::clone(rank).start(shape)).collect()
    }

    pub(super) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Logits over the whole vocabulary, from what each rank has of each row.
    pub(super) fn whole_rows(&self, parts: &[Vec<f32>], rows: usize) -> Vec<f32> {
        let vocab = self.weights[0].config().vocab;
        let row = |row: usize| parts.iter().flat_map(move |part| &part[row * vocab..][..vocab]);
        (0..rows).flat_map(row).copied().collect()
    }
}

/// The type that most weights are stored in: the embedding's.
fn stored_as(config: &ModelConfig, source: &dyn WeightSource) -> Result<Dtype, ShardError> {
    Ok(source.layout(&weight(&model_names(config.family).embedding))?.0)
}

/// The end of a group of `ranks` that rank `index` has.
fn member(group: &Arc<RankGroup>, index: usize, ranks: usize) -> Box<dyn Collective> {
    if ranks == 1 { Box::new(Alone) } else { Box::new(group.member(index)) }
}

/// Loads each rank's share by `load`, which is told the rank's number, configuration and weights.
fn load_shares(
    config: &ModelConfig,
    source: &dyn WeightSource,
    cpus: &[Arc<Cpu>],
    load: impl Fn(usize, &ModelConfig, &dyn WeightSource) -> Result<Arc<dyn RankWeights>, ShardError> + Sync,
) -> Result<Vec<Arc<dyn RankWeights>>, ShardError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Synthetic;
    use crate::checkpoint::config::Family;
    use crate::settings::Quantize;

    #[test]
    fn the_processor_refuses_keys_and_values_in_eight_bit_floats() {
        let model = Synthetic::tiny(Family::Llama, 3);
        let cpus = [Arc::new(Cpu::new(Some(1)).expect("a thread starts"))];
        let keep = Keep { kv: Some(KvFormat::Fp8), ..Keep::default() };
        match ShardedModel::load(&model.config, &model.weights(), &cpus, keep) {
            Err(ShardError::Kv(reason)) => assert_eq!(reason, NO_FP8_ON_CPU),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it is refused"),
        }
    }

    #[test]
    fn what_a_rank_takes_is_known_only_where_it_can_be_multiplied() {
        let model = Synthetic::tiny(Family::Llama, 3);
        let demand = |ranks, quantize| {
            let keep = Keep { quantize: Some(quantize), ..Keep::default() };
            let demand = ShardedModel::gpu_demand(&model.config, &model.weights(), ranks, keep, 16);
            demand.map(drop).map_err(|error| error.to_string())
        };
        // 48 inner numbers: of two ranks each has 24, of four 12.
        let module = "model.layers.0.mlp.down_proj";
        assert_eq!(demand(1, Quantize::Fp8), Ok(()));
        let refused = format!("is fp8, but `{module}` is 32 x 24, not multiples of 16");
        assert_eq!(demand(2, Quantize::Fp8), Err(refused));
        assert_eq!(demand(2, Quantize::Q4), Ok(()));
        let refused = format!("is q4, but `{module}` has 12 inputs, no multiple of 8");
        assert_eq!(demand(4, Quantize::Q4), Err(refused));
    }

    #[test]
    fn extents_that_do_not_divide_are_named() {
        let refused = |family, change: &dyn Fn(&mut ModelConfig), ranks: usize| {
            let mut model = Synthetic::tiny(family, 3);
            change(&mut model.config);
            let cpus: Vec<_> =
                (0..ranks).map(|_| Arc::new(Cpu::new(Some(1)).expect("threads start"))).collect();
            match ShardedModel::load(&model.config, &model.weights(), &cpus, Keep::default()) {
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
