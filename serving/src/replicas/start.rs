//! The start of a fleet: what is known of its model without any checkpoint, its replicas, and its watchers
//! of health.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::{Compiled, Constraint, ConstraintCompiler, ConstraintError, SectionReuse, TokenCount};
use sha2::{Digest, Sha256};

use super::dialect;
use super::discovery::dns::DnsReader;
use super::discovery::file::ReplicaFileReader;
use super::discovery::{self, Findings};
use super::factory::ReplicaFactory;
use super::fleet::{Fleet, FleetThreads};
use super::members::ReplicaMembers;
use super::names::ReplicaNames;
use super::source::ReplicaSource;
use super::start_error::FleetStartError;
use super::text::PlainText;
use crate::clock::Clock;
use crate::config::{BackendConfig, Dialect, PromptForm, ReplicaKind, ReplicaSettings};
use crate::driver::Engine;
use crate::model::{Defaults, Model, ReplicaLimits, Runs, Text};
use crate::shared::Shared;

/// Threads that send requests and read replies.
const THREADS: usize = 2;
/// Bytes of a prompt and its output where prompts are texts: servers say in tokens how much they take, and
/// refuse more.
const TEXT_CONTEXT: TokenCount = TokenCount(u32::MAX as u64);

/// What is known of the model of a fleet without a local engine.
pub fn model(config: BackendConfig<'_>, clock: Clock) -> Result<Model, FleetStartError> {
    let form = config.prompt_form();
    let first = config.known_replicas().find_map(|replica| replica.model.as_deref());
    let name = config.model.name.or(first).unwrap_or_default().to_owned();
    let mut hash = Sha256::new().chain_update(b"relserve fleet").chain_update(name.as_bytes());
    // However many servers there are: answers that are kept stay good when one comes or goes.
    let models = config.known_replicas().filter_map(|replica| replica.model.as_deref());
    for model in models.collect::<BTreeSet<&str>>() {
        hash.update((model.len() as u64).to_le_bytes());
        hash.update(model.as_bytes());
    }
    let plain = Defaults { temperature: 1.0, top_p: 1.0, top_k: None };
    let (text, has_chat, vocab, context_max, defaults): (Arc<dyn Text>, _, _, _, _) =
        match config.model.tokenizer {
            None => (Arc::new(PlainText), true, u32::MAX, TEXT_CONTEXT, plain),
            Some(folder) => {
                let opened = engine::CheckpointText::folder(folder, config.engine.template_date)
                    .map_err(|error| FleetStartError::Tokenizer(error.to_string()))?;
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
        aliases: config.model.aliases.to_vec(),
        description: "on replicas".to_owned(),
        picks_only: false,
        knows_bare_prompts: false,
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
        scores_prompts: true,
        replicas: None,
        defaults,
        created: clock.unix_ms() / 1_000,
        runs: Runs::Fleet(form),
    })
}

/// A fleet that is ready, and which replicas it should have.
pub struct StartedFleet {
    pub fleet: Fleet,
    pub members: Arc<ReplicaMembers>,
}

/// Starts the replicas, and what looks for more; `engine` is the local one's, where it is among them.
pub fn start(
    config: BackendConfig<'_>,
    model: &mut Model,
    engine: Option<Engine>,
    shared: &Arc<Shared>,
    names: &Arc<ReplicaNames>,
) -> Result<StartedFleet, FleetStartError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("relserve-fleet")
        .enable_all()
        .build()?;
    let (handle, threads) = (runtime.handle().clone(), FleetThreads(Some(runtime)));
    let file = replica_file(config)?;
    let members = Arc::new(members_of(config, file.as_ref(), (&model.name, names), shared)?);
    let form = config.prompt_form();
    model.runs = Runs::Fleet(form);
    model.replicas = Some(Arc::new(MemberLimits(Arc::clone(&members))));
    model.constraints =
        Some(Arc::new(ReplicaConstraints::new(Arc::clone(&members), form, model.constraints.take())));
    let factory = ReplicaFactory {
        form,
        model: model.name.clone(),
        context_max: model.context_max,
        output_tokens_max: config.output_tokens_max,
        prices: config.model.prices,
        shared: Arc::clone(shared),
        runtime: handle,
    };
    discover(config, file, &members, &factory)?;
    let mut fleet = Fleet::new((config.fleet.clone(), config.scheduler.clone()), factory, threads)?;
    let mut engine = engine;
    for member in members.list() {
        let engine = engine.take_if(|_| member.settings.kind == ReplicaKind::Local);
        fleet.add(member, engine)?;
    }
    Ok(StartedFleet { fleet, members })
}

/// The file of replicas as it is at the start: how it is read, its text, and its entries.
struct FileAtStart {
    reader: ReplicaFileReader,
    text: String,
    replicas: Vec<ReplicaSettings>,
}

/// Reads the file that the configuration names. At the start it has to be there and valid, as the
/// configuration itself.
fn replica_file(config: BackendConfig<'_>) -> Result<Option<FileAtStart>, FleetStartError> {
    let Some(path) = config.discovery.file.clone() else { return Ok(None) };
    let reader = ReplicaFileReader { path, variable: config.variable };
    let text = reader.text().map_err(FleetStartError::File)?;
    let replicas = reader.parse(&text).map_err(FleetStartError::File)?;
    Ok(Some(FileAtStart { reader, text, replicas }))
}

/// The replicas that are known at the start.
fn members_of(
    config: BackendConfig<'_>,
    file: Option<&FileAtStart>,
    (model, names): (&str, &Arc<ReplicaNames>),
    shared: &Arc<Shared>,
) -> Result<ReplicaMembers, FleetStartError> {
    let in_file = file.map_or(&[][..], |file| &file.replicas);
    let servers = config.known_replicas().chain(in_file);
    let servers = servers.filter(|replica| replica.kind == ReplicaKind::Openai);
    let dialects = servers.map(|replica| replica.dialect);
    let names = (model, Arc::clone(names));
    let (rules, named) = (config.rules(), config.named_replicas());
    let members = ReplicaMembers::new(rules, named, dialects, names, Arc::clone(shared))?;
    if let Some(file) = file {
        members
            .set(ReplicaSource::File, file.replicas.clone())
            .map_err(|error| FleetStartError::File(format!("{}: {error}", file.reader.path.display())))?;
    }
    Ok(members)
}

/// Begins to look for replicas where the configuration says so.
fn discover(
    config: BackendConfig<'_>,
    file: Option<FileAtStart>,
    members: &Arc<ReplicaMembers>,
    factory: &ReplicaFactory,
) -> Result<(), FleetStartError> {
    let settings = config.discovery;
    let findings = |source: ReplicaSource| {
        let metrics = factory.shared.metrics.discovery(source.name());
        Findings { members: Arc::clone(members), source, metrics }
    };
    if let Some(FileAtStart { reader, text, .. }) = file {
        let every = Duration::from_millis(settings.file_ms.0);
        factory.runtime.spawn(discovery::file::follow(reader, every, text, findings(ReplicaSource::File)));
    }
    if settings.asks_dns() {
        let reader = DnsReader::new(settings).map_err(FleetStartError::Dns)?;
        factory.runtime.spawn(discovery::dns::follow(reader, findings(ReplicaSource::Dns)));
    }
    Ok(())
}

/// What the replicas of a fleet can do.
struct MemberLimits(Arc<ReplicaMembers>);

impl ReplicaLimits for MemberLimits {
    /// A row can go to any of them. A fleet that began without servers has not said before the first what they speak.
    fn can_score(&self) -> bool {
        let dialects = self.0.dialects();
        !dialects.is_empty() && dialects.into_iter().all(Dialect::scores_prompts)
    }

    fn row_tokens_max(&self) -> Option<TokenCount> {
        self.0.tokens_max()
    }

    fn serving_tokens_max(&self) -> Option<TokenCount> {
        self.0.serving_tokens_max()
    }
}

/// Says which constraints all servers of a fleet can hold outputs to; servers compile for themselves.
pub struct ReplicaConstraints {
    members: Arc<ReplicaMembers>,
    is_chat: bool,
    /// The local engine's, where it is among them.
    engine: Option<Arc<dyn ConstraintCompiler>>,
}

impl ReplicaConstraints {
    /// Of the servers that a fleet may have.
    pub fn new(
        members: Arc<ReplicaMembers>,
        form: PromptForm,
        engine: Option<Arc<dyn ConstraintCompiler>>,
    ) -> Self {
        Self { members, is_chat: form == PromptForm::Messages, engine }
    }
}

impl ConstraintCompiler for ReplicaConstraints {
    fn compile(&self, constraint: &Constraint) -> Result<Compiled, ConstraintError> {
        for dialect in self.members.dialects() {
            dialect::constrained(constraint, dialect, self.is_chat).map_err(ConstraintError)?;
        }
        self.engine.as_ref().map_or_else(|| Ok(Compiled::new(())), |engine| engine.compile(constraint))
    }
}
