//! A checkpoint to an [`Engine`]: text, weights on the device, a KV pool of a sensible size.

mod devices;
mod revision;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use base::{Bytes, SectionReuse, TokenCount};

use crate::checkpoint::config::{Family, Position};
use crate::checkpoint::generation::GenerationDefaults;
use crate::checkpoint::names::{model_names, weight};
use crate::checkpoint::shapes::parameters;
use crate::checkpoint::{CheckpointError, Dtype, ModelConfig, WeightSource};
use crate::checkpoint_reader::{Checkpoint, ModelFiles};
use crate::device::cuda::{CudaRuntime, Gpu, GpuError};
use crate::executor::{LocalExecutor, PoolSettings};
use crate::memory;
use crate::parallel::{ShardError, ShardedModel};
use crate::pool::PoolError;
use crate::settings::{Device, EngineConfig, KvFormat, Quantize};
use crate::text::ModelText;

/// What the rest of the system may know of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInfo {
    /// What it is called.
    pub name: String,
    pub family: Family,
    /// Number of weights.
    pub parameters: u64,
    /// Most tokens of one request: prompt and answer.
    pub context_max: TokenCount,
    /// Number of token ids.
    pub vocab: u32,
    /// Changes with every file, and every setting, that decides an answer.
    pub revision: u128,
    /// Blocks of the KV pool.
    pub kv_blocks: u32,
    /// Blocks of the host tier.
    pub host_kv_blocks: u32,
    /// Positions of a block.
    pub block_tokens: u32,
    /// Where keys of independent sections can be read.
    pub reuse: SectionReuse,
    /// What weights are kept as.
    pub dtype: Dtype,
    /// What those that products read are kept as instead.
    pub quantize: Option<Quantize>,
    /// What keys and values are kept as.
    pub kv: KvFormat,
    /// How its makers sample it.
    pub defaults: GenerationDefaults,
}

impl ModelInfo {
    /// What most weights are kept as, in a word.
    pub fn kept_as(&self) -> &'static str {
        self.quantize.map_or(self.dtype.name(), Quantize::name)
    }
}

/// A model that is ready to run.
pub struct Engine {
    /// Runs batch plans.
    pub executor: LocalExecutor,
    /// Its tokenizer and chat template.
    pub text: Arc<ModelText>,
    pub info: ModelInfo,
    /// What opened its GPUs, to load it again with.
    pub cuda: Arc<CudaRuntime>,
}

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A setting.
    #[error("`{field}` {reason}")]
    Config {
        /// The setting.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The KV pool.
    #[error("the KV pool cannot be made: {0}")]
    Pool(#[from] PoolError),
    #[error("the engine's threads cannot be started: {0}")]
    Threads(std::io::Error),
}

impl From<ShardError> for EngineError {
    fn from(error: ShardError) -> Self {
        match error {
            ShardError::Checkpoint(error) => Self::Checkpoint(error),
            ShardError::Gpu(error) => Self::Gpu(error),
            ShardError::Quantize(reason) => Self::Config { field: "engine.quantize", reason },
            ShardError::Kv(reason) => Self::Config { field: "engine.kv", reason },
            ShardError::Unsupported(reason) => {
                Self::Config { field: "engine.device", reason: format!("names GPUs, but {reason}") }
            }
            ShardError::Uneven { ranks, .. } => {
                Self::Config { field: "engine.tensor_parallel", reason: format!("is {ranks}, but {error}") }
            }
        }
    }
}

/// Loads a Hugging Face folder, or a GGUF file; GPUs are opened by `cuda`, one for all loads of a process.
pub fn load_dir(path: &Path, config: &EngineConfig, cuda: &Arc<CudaRuntime>) -> Result<Engine, EngineError> {
    check(config)?;
    assemble(Checkpoint::path(path, config.template_date)?, config, cuda)
}

/// Loads a model that is in memory.
pub fn load_bytes(
    files: ModelFiles<'_>,
    config: &EngineConfig,
    cuda: &Arc<CudaRuntime>,
) -> Result<Engine, EngineError> {
    check(config)?;
    assemble(Checkpoint::bytes(files, config.template_date)?, config, cuda)
}

fn check(config: &EngineConfig) -> Result<(), EngineError> {
    config.validate().map_err(|(field, reason)| EngineError::Config { field, reason })
}

/// Packs the weights and makes the pool.
fn assemble(
    checkpoint: Checkpoint,
    config: &EngineConfig,
    cuda: &Arc<CudaRuntime>,
) -> Result<Engine, EngineError> {
    let Checkpoint { name, config: model, weights, text, defaults, revision } = checkpoint;
    let stored = stored_dtype(&model, &weights)?;
    let mut gpus = devices::gpus((config, &model), stored, cuda)?;
    let on_gpus = match &gpus {
        Some(gpus) => load_on_gpus(&model, &weights, gpus, config)?,
        None => None,
    };
    let sharded = match on_gpus {
        Some(sharded) => sharded,
        None => {
            gpus = None;
            config.validate_on_cpu().map_err(|(field, reason)| EngineError::Config { field, reason })?;
            ShardedModel::load(&model, &weights, &devices::cpus(config)?, config.keep())?
        }
    };
    let dtype = sharded.dtype();
    let (isa, kv, ranks) = (sharded.cpu().isa(), sharded.kv(), sharded.count());
    let rounds =
        revision::Rounds { activations: sharded.rounds_activations(), halves: sharded.multiplies_halves() };
    let rounds_queries = gpus.is_some() || isa.rounds_activations();
    drop(weights);
    let text = Arc::new(text);
    let settings = PoolSettings { block_tokens: config.block_tokens, kv_bytes: sharded.kv_bytes(config)? };
    let host_kv_bytes = host_kv_bytes(config, settings.kv_bytes, gpus.is_some());
    let executor = LocalExecutor::new(sharded, text.clone(), text.ends().to_vec(), settings)?;
    let executor = executor.with_tier(host_kv_bytes)?;
    let info = ModelInfo {
        name,
        family: model.family,
        parameters: parameters(&model),
        context_max: TokenCount(model.context_max as u64),
        vocab: u32::try_from(model.vocab).expect("read_config bounds every extent"),
        revision: revision
            ^ revision::rounding_mark((stored, dtype), rounds, config.quantize, ranks)
            ^ revision::kv_mark(kv, rounds_queries)
            ^ (u128::from(gpus.is_some()) << 100),
        kv_blocks: u32::try_from(executor.pool_shape().blocks).expect("the pool has at most u32::MAX blocks"),
        host_kv_blocks: u32::try_from(executor.tier_blocks()).expect("nor has the tier more"),
        block_tokens: config.block_tokens,
        reuse: section_reuse(&model),
        dtype,
        quantize: config.quantize,
        kv,
        defaults,
    };
    let (parameters, kept, kv) = (info.parameters, info.kept_as(), kv.name());
    let (kv_blocks, host_kv_blocks) = (info.kv_blocks, info.host_kv_blocks);
    let kv_tokens = u64::from(kv_blocks) * u64::from(info.block_tokens);
    let kv_bytes = executor.kv_bytes().0;
    tracing::info!(
        model = %info.name, parameters, kv_blocks, kv_tokens, kv_bytes, host_kv_blocks, kept, kv, ?isa, ranks,
        "model loaded"
    );
    Ok(Engine { executor, text, info, cuda: Arc::clone(cuda) })
}

/// Packs the weights on GPUs; `None`: they have no room after all, and nobody named them. What is planned is the least: of
/// weights that are stored in blocks some are kept in more bits.
fn load_on_gpus(
    model: &ModelConfig,
    weights: &dyn WeightSource,
    gpus: &[Arc<dyn Gpu>],
    config: &EngineConfig,
) -> Result<Option<ShardedModel>, EngineError> {
    let cpus = devices::beside_gpus(gpus.len())?;
    match ShardedModel::load_on_gpus(model, weights, (gpus, &cpus), config.keep()) {
        Ok(sharded) => Ok(Some(sharded)),
        Err(ShardError::Gpu(error @ GpuError::OutOfMemory { .. })) if config.device == Device::Auto => {
            tracing::warn!(%error, "no GPU is used");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// What the executor's checks let through.
fn section_reuse(model: &ModelConfig) -> SectionReuse {
    match &model.position {
        _ if model.sliding_window.is_some() => SectionReuse::Never,
        Position::Rotary { .. } | Position::Alibi(_) => SectionReuse::Anywhere,
        Position::Learned { .. } => SectionReuse::InPlace,
    }
}

/// The type most of the weights are stored in: the embedding's.
fn stored_dtype(model: &ModelConfig, weights: &dyn WeightSource) -> Result<Dtype, CheckpointError> {
    let name = weight(&model_names(model.family).embedding);
    Ok(weights.layout(&name)?.0)
}

/// Memory for the host tier: what is configured, but no more than nine tenths of what the machine has left
/// after weights and pool, where they are the machine's own.
fn host_kv_bytes(config: &EngineConfig, kv_bytes: Bytes, on_gpus: bool) -> Bytes {
    let wanted = config.host_kv_bytes.0;
    let pool = if on_gpus { 0 } else { kv_bytes.0 };
    let room = |available: Bytes| (available.0 / 10 * 9).saturating_sub(pool);
    let room = memory::available().map_or(wanted, room);
    if room < wanted {
        tracing::warn!(host_kv_bytes = room, wanted, "the host tier is cut to the memory that is left");
    }
    Bytes(wanted.min(room))
}
