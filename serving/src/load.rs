//! The model behind the server: a checkpoint, or what is known of a fleet's model, becomes a [`LoadedModel`].

use std::path::Path;
use std::sync::Arc;

use base::Executor;
use engine::device::cuda::CudaRuntime;
use engine::executor::LocalExecutor;
use scheduler::CostModel;
use store::Store;

use crate::calibrate;
use crate::clock::Clock;
use crate::config::{BackendConfig, DemoFunctions};
use crate::demo;
use crate::digests;
use crate::driver::ExecutorFactory;
use crate::model::{Defaults, Model, Runs};
use crate::replicas;

/// A model and what runs it.
pub struct LoadedModel {
    /// Runs steps; none where only other servers run rows.
    pub executor: Option<Box<dyn Executor>>,
    /// Makes another like it when it is lost; without it the engine is dead then.
    pub fresh: Option<ExecutorFactory>,
    /// What is known of the model.
    pub model: Model,
    /// What its steps cost.
    pub cost: CostModel,
}

/// Why there is no model.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The checkpoint is not what its digests say.
    #[error(transparent)]
    Digest(#[from] digests::DigestError),
    /// The engine's reason.
    #[error(transparent)]
    Engine(#[from] engine::EngineError),
    /// The other replicas.
    #[error(transparent)]
    Fleet(#[from] replicas::FleetStartError),
    /// The executor cannot even be measured.
    #[error("the model does not run: {0}")]
    Executor(#[from] base::ExecError),
    /// The model is not the one that was served.
    #[error(
        "the checkpoint's files, or the settings that decide its answers, are not those the server started with"
    )]
    Replaced,
    /// The memory for keys and values is not there any more.
    #[error("there is memory for {blocks} KV blocks, and {needed} are counted on")]
    Pool {
        /// What there is room for.
        blocks: u32,
        /// What the scheduler gives out.
        needed: u32,
    },
}

/// Loads the configured model; the built-in demo model where none is named.
pub fn load(config: BackendConfig<'_>) -> Result<engine::Engine, LoadError> {
    if let Some(checkpoint) = config.model.dir {
        match digests::check(checkpoint)? {
            0 => {}
            files => tracing::info!(files, "the checkpoint is what {} says", digests::LIST),
        }
    }
    if config.model.dir.is_none() {
        tracing::warn!(
            model = demo::NAME,
            "serving the built-in {}; name a real one with --model (`relserve pull` lists some)",
            demo::CAN
        );
    }
    read(config.model.dir, config.engine, &Arc::default())
}

fn read(
    dir: Option<&Path>,
    config: &engine::EngineConfig,
    cuda: &Arc<CudaRuntime>,
) -> Result<engine::Engine, LoadError> {
    Ok(match dir {
        Some(folder) => engine::load_dir(folder, config, cuda)?,
        None => engine::load_bytes(demo::files(), config, cuda)?,
    })
}

/// Loads the model again when its executor is lost.
pub fn executor_factory(config: BackendConfig<'_>, model: &Model, cuda: Arc<CudaRuntime>) -> ExecutorFactory {
    let (dir, engine, model) = (config.model.dir.map(Path::to_owned), config.engine.clone(), model.clone());
    Arc::new(move || {
        let executor = fresh(dir.as_deref(), &engine, &model, &cuda).map_err(|error| error.to_string())?;
        Ok(Box::new(executor))
    })
}

/// An executor that goes on where another of this model left off, and runs.
fn fresh(
    dir: Option<&Path>,
    config: &engine::EngineConfig,
    model: &Model,
    cuda: &Arc<CudaRuntime>,
) -> Result<LocalExecutor, LoadError> {
    let mut engine = read(dir, config, cuda)?;
    let info = &engine.info;
    if info.revision != model.revision {
        return Err(LoadError::Replaced);
    }
    // The pool is cut to the memory that there is.
    if info.kv_blocks < model.kv_blocks {
        return Err(LoadError::Pool { blocks: info.kv_blocks, needed: model.kv_blocks });
    }
    calibrate::probe(&mut engine.executor, model)?;
    Ok(engine.executor)
}

/// What the gateway knows of a loaded engine.
pub fn model_of(engine: &engine::Engine, config: BackendConfig<'_>, clock: Clock) -> Model {
    let info = &engine.info;
    let is_demo = config.model.dir.is_none();
    let description = format!("{:?}, {} parameters, {}", info.family, info.parameters, info.kept_as());
    Model {
        name: config.model.name.unwrap_or(&info.name).to_owned(),
        aliases: config.model.aliases.to_vec(),
        description: if is_demo { format!("{}; {description}", demo::CAN) } else { description },
        knows_bare_prompts: is_demo,
        picks_only: is_demo && config.model.demo_functions == DemoFunctions::Picks,
        text: Arc::clone(&engine.text) as Arc<dyn crate::model::Text>,
        has_chat: engine.text.has_chat_template(),
        constraints: Some(engine.executor.constraints()),
        context_max: info.context_max,
        vocab: info.vocab,
        revision: info.revision,
        kv_blocks: info.kv_blocks,
        host_kv_blocks: info.host_kv_blocks,
        block_tokens: info.block_tokens,
        reuse: info.reuse,
        scores_prompts: true,
        replicas: None,
        defaults: Defaults {
            temperature: info.defaults.temperature.unwrap_or(1.0),
            top_p: info.defaults.top_p.unwrap_or(1.0),
            top_k: info.defaults.top_k,
        },
        created: clock.unix_ms() / 1_000,
        runs: Runs::Engine,
    }
}

/// What runs the rows, ready: the local engine where there is one, measured; else what is known of a fleet's
/// model.
pub async fn prepare(
    config: BackendConfig<'_>,
    store: &Store,
    clock: Clock,
) -> Result<LoadedModel, LoadError> {
    if config.has_local_engine() {
        let begin = clock.now();
        let engine = load(config)?;
        let load_ms = clock.now().since(begin).0 / 1_000_000;
        tracing::info!(load_ms, kept_as = engine.info.kept_as(), "the model is read and packed");
        return ready(engine, config, store, clock).await;
    }
    Ok(LoadedModel {
        executor: None,
        fresh: None,
        model: replicas::model(config, clock)?,
        cost: CostModel::default(),
    })
}

/// Measures the engine, or takes what was measured on this machine before.
pub async fn ready(
    mut engine: engine::Engine,
    config: BackendConfig<'_>,
    store: &Store,
    clock: Clock,
) -> Result<LoadedModel, LoadError> {
    let model = model_of(&engine, config, clock);
    let kept = if config.model.recalibrate { None } else { calibrate::kept(store, &model).await };
    let begin = clock.now();
    let cost: CostModel = match kept {
        Some(cost) => cost,
        None => {
            let cost = calibrate::measure(&mut engine.executor, &model)?.cost;
            calibrate::keep(store, &model, cost, clock.unix_ms()).await;
            cost
        }
    };
    tracing::info!(
        model = model.name,
        prefill_ns_per_token = cost.prefill_per_token.0,
        prefill_ns = cost.prefill_base.0,
        decode_ns_per_sequence = cost.decode_per_sequence.0,
        decode_ns = cost.decode_base.0,
        mixed_hidden_ns = cost.mixed_hidden,
        mixed_hidden_few_ns = cost.mixed_hidden_few,
        hide_permille = cost.hide_permille(),
        kv_blocks = model.kv_blocks,
        calibrate_ms = clock.now().since(begin).0 / 1_000_000,
        "the model is ready"
    );
    // One that is made anew runs where this one does, and counts on the blocks that the scheduler gives out, whatever
    // memory is free by then.
    let device = match (&config.engine.device, engine.executor.model().gpus().len()) {
        (engine::Device::Auto, 0) => engine::Device::Cpu,
        (engine::Device::Auto, count) => engine::Device::Cuda((0..count).collect()), // the first ones
        (named, _) => named.clone(),
    };
    let kv_bytes = Some(engine.executor.kv_bytes());
    let settings = engine::EngineConfig { device, kv_bytes, ..config.engine.clone() };
    let again = BackendConfig { engine: &settings, ..config };
    let fresh = Some(executor_factory(again, &model, engine.cuda));
    Ok(LoadedModel { executor: Some(Box::new(engine.executor)), fresh, model, cost })
}
