//! The model behind the server: the engine's checkpoint becomes a [`Backend`].

use std::path::Path;
use std::sync::Arc;

use scheduler::CostModel;
use store::Store;

use crate::app::Backend;
use crate::calibrate;
use crate::clock::Clock;
use crate::config::Config;
use crate::demo;
use crate::model::{Defaults, Model, Runs};
use crate::remote;

/// Why there is no model.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The engine's reason.
    #[error(transparent)]
    Engine(#[from] engine::EngineError),
    /// The other executors.
    #[error(transparent)]
    Fleet(#[from] remote::StartError),
    /// The executor cannot even be measured.
    #[error("the model does not run: {0}")]
    Executor(#[from] base::ExecError),
}

/// Loads the configured model; the built-in demo model where none is named.
pub fn load(config: &Config) -> Result<engine::Engine, BackendError> {
    match &config.model.dir {
        Some(folder) => load_dir(folder, config),
        None => {
            tracing::warn!(
                model = demo::NAME,
                "serving the built-in demo model, for labels, ratings and yes-no questions only; \
                 name a real one with --model DIR (`relserve pull ORG/NAME` fetches one)"
            );
            Ok(engine::load_bytes(demo::files(), &config.engine)?)
        }
    }
}

fn load_dir(folder: &Path, config: &Config) -> Result<engine::Engine, BackendError> {
    Ok(engine::load_dir(folder, &config.engine)?)
}

/// What the gateway knows of a loaded engine.
pub fn model_of(engine: &engine::Engine, config: &Config, clock: Clock) -> Model {
    let info = &engine.info;
    Model {
        name: config.model.name.clone().unwrap_or_else(|| info.name.clone()),
        description: format!("{:?}, {} parameters, {}", info.family, info.parameters, info.kept_as()),
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
        defaults: Defaults {
            temperature: info.defaults.temperature.unwrap_or(1.0),
            top_p: info.defaults.top_p.unwrap_or(1.0),
            top_k: info.defaults.top_k,
        },
        created: clock.unix_ms() / 1_000,
        runs: Runs::Engine,
    }
}

/// What runs the rows, ready: the local engine where there is one, measured; else what is known of a fleet's model.
pub async fn prepare(config: &Config, store: &Store, clock: Clock) -> Result<Backend, BackendError> {
    if config.has_local_engine() {
        return ready(load(config)?, config, store, clock).await;
    }
    Ok(Backend { executor: None, model: remote::model(config, clock)?, cost: CostModel::default() })
}

/// Measures the engine, or takes what was measured on this machine before.
pub async fn ready(
    mut engine: engine::Engine,
    config: &Config,
    store: &Store,
    clock: Clock,
) -> Result<Backend, BackendError> {
    let model = model_of(&engine, config, clock);
    let kept = if config.model.recalibrate { None } else { calibrate::kept(store, &model).await };
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
        hide_permille = cost.hide_permille(),
        kv_blocks = model.kv_blocks,
        "the model is ready"
    );
    Ok(Backend { executor: Some(Box::new(engine.executor)), model, cost })
}
