//! The start of a fleet: what is known of its model without any checkpoint, its replicas, and its watchers
//! of health.

use std::sync::Arc;
use std::time::Duration;

use base::{Compiled, Constraint, ConstraintCompiler, ConstraintError, SectionReuse, TokenCount};
use scheduler::fleet::ReplicaId;
use sha2::{Digest, Sha256};

use super::client::Client;
use super::dialect;
use super::fleet::{Fleet, HealthCheck, watch};
use super::local::Local;
use super::replica::{Replica, Transport};
use super::request::RequestStyle;
use super::text::PlainText;
use crate::clock::Clock;
use crate::config::{BackendConfig, Dialect, PromptForm, ReplicaKind};
use crate::driver::Engine;
use crate::model::{Defaults, Model, Runs, Text};
use crate::shared::Shared;

/// Threads that send requests and read replies.
const THREADS: usize = 2;
/// Bytes of a prompt and its output where prompts are texts: servers say in tokens how much they take, and
/// refuse more.
const TEXT_CONTEXT: TokenCount = TokenCount(u32::MAX as u64);

/// Why there is no fleet.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting.
    #[error(transparent)]
    Config(#[from] scheduler::ConfigError),
    #[error("model.tokenizer: {0}")]
    Tokenizer(String),
    /// A client.
    #[error("replica `{name}`: {reason}")]
    Replica {
        /// Of which replica.
        name: String,
        /// Why there is none.
        reason: String,
    },
    #[error("cannot start the fleet's threads: {0}")]
    Threads(#[from] std::io::Error),
}

/// What is known of the model of a fleet without a local engine.
pub fn model(config: BackendConfig<'_>, clock: Clock) -> Result<Model, StartError> {
    let form = config.prompt_form();
    let first = config.replicas.iter().find_map(|replica| replica.model.clone());
    let name = config.model.name.clone().or(first).unwrap_or_default();
    let mut hash = Sha256::new().chain_update(b"relserve fleet").chain_update(name.as_bytes());
    for replica in config.replicas {
        let model = replica.model.as_deref().unwrap_or_default();
        hash.update((model.len() as u64).to_le_bytes());
        hash.update(model.as_bytes());
    }
    let plain = Defaults { temperature: 1.0, top_p: 1.0, top_k: None };
    let (text, has_chat, vocab, context_max, defaults): (Arc<dyn Text>, _, _, _, _) =
        match &config.model.tokenizer {
            None => (Arc::new(PlainText), true, u32::MAX, TEXT_CONTEXT, plain),
            Some(folder) => {
                let opened = engine::CheckpointText::folder(folder, config.engine.template_date)
                    .map_err(|error| StartError::Tokenizer(error.to_string()))?;
                hash.update(opened.revision.to_le_bytes());
                let has_chat = opened.text.has_chat_template();
                let own = TokenCount(opened.config.context_max as u64);
                let vocab = u32::try_from(opened.config.vocab).unwrap_or(u32::MAX);
                let defaults = Defaults {
                    temperature: opened.defaults.temperature.unwrap_or(1.0),
                    top_p: opened.defaults.top_p.unwrap_or(1.0),
                    top_k: opened.defaults.top_k,
                };
                (Arc::new(opened.text), has_chat, vocab, config.model.context_max.unwrap_or(own), defaults)
            }
        };
    let digest = hash.finalize();
    let half: [u8; 16] = digest[..16].try_into().expect("a SHA-256 has 32 bytes");
    Ok(Model {
        name,
        description: format!("on {} replicas", config.replicas.len()),
        text,
        has_chat,
        constraints: None,
        context_max,
        vocab,
        revision: u128::from_le_bytes(half),
        // Memory is theirs.
        kv_blocks: u32::MAX,
        host_kv_blocks: 0,
        block_tokens: 16,
        reuse: SectionReuse::Never,
        defaults,
        created: clock.unix_ms() / 1_000,
        runs: Runs::Fleet(form),
        has_logprobs: true,
    })
}

/// Starts the replicas; `engine` is the local one's, where it is among them.
pub fn start(
    config: BackendConfig<'_>,
    model: &Model,
    engine: Option<Engine>,
    shared: &Arc<Shared>,
) -> Result<Fleet, StartError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("relserve-fleet")
        .enable_all()
        .build()?;
    let mut engine = engine;
    let mut replicas = Vec::with_capacity(config.replicas.len());
    for (index, settings) in config.replicas.iter().enumerate() {
        let replica = ReplicaId(u32::try_from(index).unwrap_or(u32::MAX));
        let name = config.replica_name(index);
        let transport = match (settings.kind, engine.take_if(|_| settings.kind == ReplicaKind::Local)) {
            (ReplicaKind::Local, Some(engine)) => {
                Transport::Local(Local::start(replica, engine, Arc::clone(shared))?)
            }
            (ReplicaKind::Local, None) => {
                return Err(StartError::Replica { name, reason: "there is no engine to run".into() });
            }
            (ReplicaKind::Openai, _) => {
                let client = Client::new(settings);
                let client = client.map_err(|reason| StartError::Replica { name: name.clone(), reason })?;
                let served = settings.model.clone().unwrap_or_else(|| model.name.clone());
                let takes_tokens = config.prompt_form() == PromptForm::Tokens;
                let check = HealthCheck {
                    client: client.clone(),
                    model: served.clone(),
                    every: Duration::from_millis(settings.health_ms.0),
                    context_max: takes_tokens.then_some(model.context_max),
                };
                runtime.spawn(watch(replica, check, Arc::clone(shared)));
                let style = RequestStyle {
                    model: served,
                    dialect: settings.dialect,
                    form: config.prompt_form(),
                    priority: settings.priority,
                    salt: settings.salt,
                    open_end: config.output_tokens_max,
                };
                Transport::Server { client, style }
            }
        };
        let metrics = shared.metrics.replica(&name);
        replicas.push(Replica::new(name, transport, settings, metrics));
    }
    let settings = (config.fleet.clone(), config.scheduler.clone());
    Ok(Fleet::new(settings, replicas, runtime, Arc::clone(shared))?)
}

/// Says which constraints all servers of a fleet can hold outputs to; servers compile for themselves.
pub struct ReplicaConstraints {
    dialects: Vec<Dialect>,
    is_chat: bool,
    /// The local engine's, where it is among them.
    engine: Option<Arc<dyn ConstraintCompiler>>,
}

impl ReplicaConstraints {
    /// Of a configuration.
    pub fn new(config: BackendConfig<'_>, engine: Option<Arc<dyn ConstraintCompiler>>) -> Self {
        let servers = config.replicas.iter().filter(|replica| replica.kind == ReplicaKind::Openai);
        let mut dialects: Vec<Dialect> = servers.map(|replica| replica.dialect).collect();
        dialects.sort_unstable();
        dialects.dedup();
        Self { dialects, is_chat: config.prompt_form() == PromptForm::Messages, engine }
    }
}

impl ConstraintCompiler for ReplicaConstraints {
    fn compile(&self, constraint: &Constraint) -> Result<Compiled, ConstraintError> {
        for dialect in &self.dialects {
            dialect::constrained(constraint, *dialect, self.is_chat).map_err(ConstraintError)?;
        }
        self.engine.as_ref().map_or_else(|| Ok(Compiled::new(())), |engine| engine.compile(constraint))
    }
}
