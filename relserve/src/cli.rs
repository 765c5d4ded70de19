//! The `relserve` command: serve, keys, pull, batch, sim, reorder, model info, calibrate, bench, eval.

use std::net::SocketAddr;
use std::path::PathBuf;

use base::{Millis, TenantId};
use clap::{Args, Parser, Subcommand};
use engine::{KvFormat, Quantize};
use gateway::app;
use gateway::config::{AuthMode, Config};
use scheduler::{Policy, UnknownPolicy};
use serving::clock::Clock;
use serving::load;
use store::{DEFAULT_TENANT, NewKey, Store, UnixMillis};
use tokio::signal::unix::{SignalKind, signal};

use crate::reorder::Reorder;
use crate::simulate::Simulate;
use crate::{eval, jobs};

/// What went wrong, for a person at a terminal.
type Failure = Box<dyn std::error::Error>;

/// A self-hosted backend for LLM spreadsheet functions and dashboard columns.
#[derive(Debug, Parser)]
#[command(name = "relserve", version)]
pub struct Cli {
    /// The configuration file (TOML).
    #[arg(long, global = true)]
    config: Option<PathBuf>,
    /// Where the server writes its files.
    #[arg(long, global = true)]
    data_dir: Option<PathBuf>,
    /// `sqlite://...` or `postgres://...`.
    #[arg(long, global = true)]
    database: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves a model.
    Serve(Serve),
    /// Prints the configuration in force, every default included, as TOML.
    Config,
    /// API keys.
    #[command(subcommand)]
    Key(Key),
    /// Fetches a model from a hub into a folder.
    Pull {
        /// ORG/NAME.
        repo: String,
        /// The folder; by default NAME under the data folder's `models`.
        #[arg(long)]
        into: Option<PathBuf>,
        /// The hub.
        #[arg(long)]
        endpoint: Option<String>,
        /// Branch, tag or commit.
        #[arg(long)]
        revision: Option<String>,
    },
    /// Runs a prompt template over every row of a table and writes the table with a column of answers.
    ///
    /// A job that was stopped or killed goes on when the same command is run again.
    Batch(Box<jobs::Options>),
    /// Replays a trace under several policies in virtual time.
    Sim(Box<Simulate>),
    /// Says which order of a table's rows and fields shares most, and what that saves.
    Reorder(Box<Reorder>),
    /// Says what a model folder or GGUF file holds.
    ModelInfo {
        /// The folder or file.
        dir: Option<PathBuf>,
    },
    /// Measures a model on this machine: prefill, decode and mixed steps, the cost model they give, and how
    /// much of its prompts a mixed step hides.
    Calibrate(Measured),
    /// Measures speed as a fraction of what this machine can do.
    #[command(subcommand)]
    Bench(Bench),
    /// Measures how good a model's answers are.
    #[command(subcommand)]
    Eval(Eval),
}

#[derive(Debug, Subcommand)]
enum Eval {
    /// What keeping weights in fewer bits does: greedy agreement with weights in f32, and how far the distributions
    /// are.
    Quant {
        /// The folder; the built-in demo model without it.
        dir: Option<PathBuf>,
        /// A file of prompts, one a line; a small set of labelling prompts without it.
        #[arg(long)]
        prompts: Option<PathBuf>,
    },
    /// What computing spans and modules apart does: greedy agreement with undivided prompts, and how far the
    /// distributions are.
    Spans {
        /// The folder; the built-in demo model without it.
        dir: Option<PathBuf>,
        /// A file of prompts, JSON in each line: `{"query": ..}` as `/v1/query` takes it, or `{"schema": .., "prompt": ..}`
        /// as `/v1/schemas` and `/v1/prompts` do; a small set without it.
        #[arg(long)]
        prompts: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// The engine on a model: prefill, decode and a whole relQuery. On an otherwise idle machine.
    Engine {
        #[command(flatten)]
        measured: Measured,
        #[command(flatten)]
        choice: crate::bench::Choice,
    },
    /// Time to the first token of prompts whose modules are cached, against a plain prefill of the same tokens. On an
    /// otherwise idle machine.
    Pml {
        #[command(flatten)]
        measured: Measured,
        #[command(flatten)]
        sizes: crate::bench::pml::Sizes,
    },
    /// Prompts that share prefixes, from a source, in four ways: naive batches, continuous, sorted, in prefix buckets. On an
    /// otherwise idle machine.
    Buckets {
        #[command(flatten)]
        measured: Measured,
        #[command(flatten)]
        shape: crate::bench::buckets::Shape,
    },
    /// The 16 queries of the GGR paper over tables in CSV files: no cache, a cache, and a cache with rows and fields
    /// reordered. On an otherwise idle machine.
    Queries {
        #[command(flatten)]
        measured: Measured,
        #[command(flatten)]
        tables: crate::bench::queries::Tables,
    },
    /// Time to the first token of span queries: documents that were seen before, and a judge of candidates.
    Spans {
        #[command(flatten)]
        measured: Measured,
        #[command(flatten)]
        sizes: crate::bench::spans::Sizes,
    },
    /// Steps of one relQuery with and without guessed tokens (`scheduler.speculation`).
    Speculation {
        #[command(flatten)]
        measured: Measured,
        #[command(flatten)]
        rows: crate::bench::speculation::Rows,
    },
}

/// The model of a measurement.
#[derive(Debug, Args)]
struct Measured {
    /// The folder or GGUF file; the built-in demo model without it.
    dir: Option<PathBuf>,
    #[command(flatten)]
    weights: Weights,
    #[command(flatten)]
    place: Place,
}

/// Where a model runs.
#[derive(Debug, Args)]
struct Place {
    /// Where the model runs: auto, cpu, cuda:0, cuda:0,1 and so on.
    #[arg(long)]
    device: Option<engine::Device>,
    /// Ranks that the model is cut into (tensor parallelism).
    #[arg(long, value_name = "RANKS")]
    tp: Option<usize>,
}

impl Place {
    fn apply(&self, config: &mut Config) {
        config.engine.tensor_parallel = self.tp.unwrap_or(config.engine.tensor_parallel);
        if let Some(device) = &self.device {
            config.engine.device.clone_from(device);
        }
    }
}

/// How a model's weights, keys and values are kept.
#[derive(Debug, Args)]
struct Weights {
    /// Keeps weights in fewer bits than they are stored: q8, eight-bit integers, on the processor; fp8, eight-bit floats,
    /// on GPUs.
    #[arg(long, value_parser = quantize)]
    quantize: Option<Quantize>,
    /// What keys and values of tokens are kept as: f32, bf16 or q8. Without it bf16 where weights are bf16 or fewer bits.
    #[arg(long, value_parser = kv_format)]
    kv: Option<KvFormat>,
}

impl Weights {
    fn apply(&self, config: &mut Config) {
        config.engine.quantize = self.quantize.or(config.engine.quantize);
        config.engine.kv = self.kv.or(config.engine.kv);
    }
}

impl Measured {
    /// The configuration with this model in it.
    fn apply(self, mut config: Config) -> Config {
        self.weights.apply(&mut config);
        self.place.apply(&mut config);
        config.model.dir = self.dir.or(config.model.dir);
        config
    }
}

#[derive(Debug, Args)]
struct Serve {
    /// Address and port.
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// A Hugging Face folder or a GGUF file.
    #[arg(long)]
    model: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    weights: Weights,
    /// fcfs, sarathi, static-priority, relserve, relserve-pp, relserve-dp or marginal-work.
    #[arg(long, value_parser = policy)]
    policy: Option<Policy>,
}

#[derive(Debug, Subcommand)]
enum Key {
    /// Makes a key and prints it, once.
    Create {
        /// What to call it.
        name: String,
        /// The tenant's name; made where there is none of that name.
        #[arg(long)]
        tenant: Option<String>,
        /// Days until it expires.
        #[arg(long)]
        days: Option<u64>,
    },
    /// Lists keys.
    List,
    /// Revokes a key by its number.
    Revoke {
        /// The number that `list` shows.
        id: u64,
    },
}

fn policy(name: &str) -> Result<Policy, String> {
    let known: Vec<&str> = Policy::ALL.iter().map(|policy| policy.name()).collect();
    match name.parse() {
        Ok(policy) if Policy::ALL.contains(&policy) => Ok(policy),
        Err(renamed @ UnknownPolicy::Renamed { .. }) => Err(renamed.to_string()),
        _ => Err(format!("must be one of {}", known.join(", "))),
    }
}

fn quantize(name: &str) -> Result<Quantize, String> {
    let known = Quantize::ALL.map(Quantize::name);
    let found = Quantize::ALL.into_iter().find(|quantize| quantize.name() == name);
    found.ok_or_else(|| format!("must be one of {}", known.join(", ")))
}

fn kv_format(name: &str) -> Result<KvFormat, String> {
    let known = KvFormat::ALL.map(KvFormat::name);
    let found = KvFormat::ALL.into_iter().find(|format| format.name() == name);
    found.ok_or_else(|| format!("must be one of {}", known.join(", ")))
}

/// Prints what the command was asked for.
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write;
        // Nobody listens any more: nothing is left to do about it.
        let _ = writeln!(std::io::stdout(), $($arg)*);
    }};
}

impl Cli {
    /// The configuration: defaults, the file, then flags.
    pub fn configuration(&self) -> Result<Config, Failure> {
        let mut config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        if let Some(folder) = &self.data_dir {
            config.store.data_dir.clone_from(folder);
        }
        if let Some(url) = &self.database {
            config.store.database = Some(url.clone());
        }
        if let Command::Serve(flags) = &self.command {
            config.server.listen = flags.listen.unwrap_or(config.server.listen);
            config.scheduler.policy = flags.policy.unwrap_or(config.scheduler.policy);
            flags.weights.apply(&mut config);
            flags.place.apply(&mut config);
            if let Some(folder) = &flags.model {
                config.model.dir = Some(folder.clone());
            }
        }
        config.validate()?;
        Ok(config)
    }

    /// Runs the command.
    pub async fn run(self) -> Result<(), Failure> {
        let config = self.configuration()?;
        match self.command {
            Command::Serve(_) => serve(config).await,
            Command::Config => print_configuration(config),
            Command::Batch(options) => jobs::run(*options, config).await,
            Command::Sim(simulate) => {
                say!("{}", simulate.run()?);
                Ok(())
            }
            Command::Reorder(reorder) => {
                say!("{}", reorder.run(config)?);
                Ok(())
            }
            Command::Key(key) => keys(key, &open(&config).await?).await,
            Command::Pull { repo, into, endpoint, revision } => {
                let folder = into.unwrap_or_else(|| {
                    let name = repo.rsplit('/').next().unwrap_or(&repo);
                    config.store.data_dir.join("models").join(name)
                });
                pull(repo, folder, endpoint, revision)
            }
            Command::Calibrate(measured) => {
                let config = measured.apply(config);
                let mut engine = load::load(config.backend())?;
                let model = load::model_of(&engine, config.backend(), Clock::start());
                say!("{}: {}", model.name, model.description);
                say!("{}", serving::calibrate::measure(&mut engine.executor, &model)?.text());
                Ok(())
            }
            Command::Bench(Bench::Engine { measured, choice }) => {
                let config = measured.apply(config);
                let mut engine = load::load(config.backend())?;
                let model = load::model_of(&engine, config.backend(), Clock::start());
                say!("{}: {}", model.name, model.description);
                say!("{}", crate::bench::measure(&mut engine, &config.scheduler, &choice)?);
                Ok(())
            }
            Command::Bench(Bench::Pml { measured, sizes }) => {
                say!("{}", crate::bench::pml::measure(&measured.apply(config), &sizes)?);
                Ok(())
            }
            Command::Bench(Bench::Buckets { measured, shape }) => {
                crate::bench::buckets::measure(&measured.apply(config), &shape, &mut |line| say!("{line}"))?;
                Ok(())
            }
            Command::Bench(Bench::Queries { measured, tables }) => {
                crate::bench::queries::measure(&measured.apply(config), &tables, &mut |line| say!("{line}"))?;
                Ok(())
            }
            Command::Bench(Bench::Spans { measured, sizes }) => {
                crate::bench::spans::measure(&measured.apply(config), &sizes, &mut |line| say!("{line}"))?;
                Ok(())
            }
            Command::Bench(Bench::Speculation { measured, rows }) => {
                say!("{}", crate::bench::speculation::measure(&measured.apply(config), &rows)?);
                Ok(())
            }
            Command::Eval(Eval::Quant { dir, prompts }) => {
                let mut config = config;
                config.model.dir = dir.or(config.model.dir);
                let prompts = eval::prompts(prompts.as_deref())?;
                let lines = eval::measure(&config, &prompts)?;
                say!("{}", eval::text(prompts.len(), &lines));
                Ok(())
            }
            Command::Eval(Eval::Spans { dir, prompts }) => {
                let mut config = config;
                config.model.dir = dir.or(config.model.dir);
                let items = eval::spans::items(prompts.as_deref())?;
                say!("{}", eval::spans::text(&eval::spans::measure(&config, &items)?));
                Ok(())
            }
            Command::ModelInfo { dir } => {
                let mut config = config;
                config.model.dir = dir.or(config.model.dir);
                let model = load::model_of(&load::load(config.backend())?, config.backend(), Clock::start());
                say!("{}: {}", model.name, model.description);
                say!("context {}, vocabulary {}", model.context_max, model.vocab);
                say!("chat template: {}", if model.has_chat { "yes" } else { "no" });
                say!("KV pool: {} blocks of {} tokens", model.kv_blocks, model.block_tokens);
                say!("revision {:032x}", model.revision);
                Ok(())
            }
        }
    }
}

/// The configuration as a file could hold it; a database URL may carry a password and is left out.
fn print_configuration(mut config: Config) -> Result<(), Failure> {
    if config.store.database.take().is_some() {
        say!("# store.database is set and not shown");
    }
    for replica in &mut config.replicas {
        if replica.api_key.take().is_some() {
            say!("# an replica's api_key is set and not shown");
        }
    }
    if config.auth.admin_key.take().is_some() {
        say!("# auth.admin_key is set and not shown");
    }
    say!("{}", toml::to_string_pretty(&config)?);
    Ok(())
}

/// Opens the store, pending its folder where it is missing.
async fn open(config: &Config) -> Result<Store, Failure> {
    if config.store.database.is_none() {
        let folder = &config.store.data_dir;
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("cannot make the data folder {}: {error}", folder.display()))?;
    }
    Ok(Store::open(&config.store.url()).await?)
}

async fn serve(config: Config) -> Result<(), Failure> {
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    let store = open(&config).await?;
    let clock = Clock::start();
    let backend = load::prepare(config.backend(), &store, clock).await?;
    let mode = config.auth.mode;
    let model = backend.model.name.clone();
    // Signals are caught before the address is announced: whoever reads it may stop the server.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let running = app::start(config, backend, store).await?;
    // Last, when nothing can fail any more: a key that is made but not shown is lost.
    let first_key = first_key(mode, &running.app.runtime.store, clock).await?;
    announce(&running, &model, first_key.as_deref());
    tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} }
    tracing::info!("draining; a second signal ends at once");
    running
        .drain(async {
            tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} }
        })
        .await;
    Ok(())
}

/// Makes the first key of a new database.
async fn first_key(mode: AuthMode, store: &Store, clock: Clock) -> Result<Option<String>, Failure> {
    if mode == AuthMode::None || !store.keys(None).await?.is_empty() {
        return Ok(None);
    }
    let new = NewKey { tenant: DEFAULT_TENANT, name: "first", expires: None };
    Ok(Some(store.create_key(new, UnixMillis(clock.unix_ms())).await?.plaintext))
}

fn announce(running: &app::Running, model: &str, key: Option<&str>) {
    say!("RelServe serves {model} on http://{}", running.address);
    if let Some(key) = key {
        say!("API key: {key}");
        say!("(shown this once; `relserve key create NAME` makes more)");
    }
    let key = key.unwrap_or("$RELSERVE_KEY");
    say!(
        "Try: curl -N http://{}/v1/relqueries -H 'Authorization: Bearer {key}' \
         -H 'Content-Type: application/json' -d '{{\"template\": \"Classify the text. Answer with one of these \
         labels: positive, negative.\\n\\nText: {{text}}\", \"rows\": [[\"A wonderful film.\"], [\"Two lost hours.\"]], \
         \"stream\": true}}'",
        running.address
    );
}

async fn keys(command: Key, store: &Store) -> Result<(), Failure> {
    let now = UnixMillis(Clock::start().unix_ms());
    match command {
        Key::Create { name, tenant, days } => {
            let tenant = tenant_of(store, tenant, now).await?;
            let expires = days.map(|days| now.after(Millis(days.saturating_mul(86_400_000))));
            let created = store.create_key(NewKey { tenant, name: &name, expires }, now).await?;
            say!("API key: {}", created.plaintext);
            say!("number {}, tenant {}; shown this once", created.info.id, created.info.tenant);
        }
        Key::List => {
            for key in store.keys(None).await? {
                let state = if key.revoked.is_some() { "revoked" } else { "valid" };
                say!("{}\t{}...\ttenant {}\t{state}\t{}", key.id, key.shown, key.tenant, key.name);
            }
        }
        Key::Revoke { id } => {
            if !store.revoke_key(id, now).await? {
                return Err(format!("there is no key {id}").into());
            }
            say!("revoked {id}; running servers notice within seconds");
        }
    }
    Ok(())
}

async fn tenant_of(store: &Store, name: Option<String>, now: UnixMillis) -> Result<TenantId, Failure> {
    let Some(name) = name else { return Ok(DEFAULT_TENANT) };
    match store.tenant_named(&name).await? {
        Some(tenant) => Ok(tenant.id),
        None => Ok(store.create_tenant(&name, 1.0, now).await?.id),
    }
}

fn pull(
    repo: String,
    folder: PathBuf,
    endpoint: Option<String>,
    revision: Option<String>,
) -> Result<(), Failure> {
    let mut request = engine::hub::PullRequest::new(repo);
    request.token = gateway::config::hub_token();
    request.endpoint = endpoint.unwrap_or(request.endpoint);
    request.revision = revision.unwrap_or(request.revision);
    let mut last = String::new();
    let commit = engine::hub::pull(&request, &folder, &mut |progress| {
        if progress.file != last {
            last = progress.file.to_owned();
            say!("{} ({} bytes)", progress.file, progress.total);
        }
    })?;
    say!("{} is in {}; serve it with: relserve serve --model {}", commit, folder.display(), folder.display());
    Ok(())
}
