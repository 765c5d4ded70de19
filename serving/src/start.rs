//! The start of the runtime: shared state, the backend that runs rows, and the loop thread.

use std::sync::{Arc, Mutex};

use base::Nanos;
use scheduler::{CostModel, FleetConfig, Policy, Scheduler, SchedulerConfig};
use store::{Store, UnixMillis};
use tokio::sync::Notify;

use crate::account::Accounts;
use crate::auto::AutoPolicy;
use crate::budgets::Budgets;
use crate::clock::Clock;
use crate::config::{BackendConfig, CacheConfig, CoalesceConfig, LiveConfig, RestartConfig};
use crate::database_clock::DatabaseClock;
use crate::driver::{Backend, Coalescing, Driver, Engine};
use crate::gateway_ids::GatewayIds;
use crate::health::Pulse;
use crate::intake::Intake;
use crate::live::Live;
use crate::live::auto::AutoState;
use crate::live::what_if::ReplayMachine;
use crate::load::LoadedModel;
use crate::metrics::{Metrics, ScrapedStates, SeriesLimits};
use crate::model::Model;
use crate::price::ModelPrices;
use crate::registry::{Registry, Retention};
use crate::relquery_state::ScoresBudget;
use crate::replicas::{self, LeaseSignal, ReplicaMembers, ReplicaNames, StartedFleet};
use crate::results::Results;
use crate::runtime::Runtime;
use crate::shared::{Ids, Shared};
use crate::traces::Traces;
use crate::usage_journal::{JournalFolder, UsageJournal};
use crate::view::View;

/// What the runtime is told.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// What runs the model.
    pub backend: BackendConfig<'a>,
    /// Whether it is the one that requests mean that name none.
    pub is_default: bool,
    /// How steps are planned; the model's own KV sizes replace those in it.
    pub scheduler: &'a SchedulerConfig,
    /// What is done when the engine loses its device.
    pub restart: &'a RestartConfig,
    /// Answers kept for the next recalculation.
    pub cache: &'a CacheConfig,
    /// When single cell calls join an open relQuery.
    pub coalesce: &'a CoalesceConfig,
    /// The live view.
    pub live: &'a LiveConfig,
    /// Unfinished rows of all tenants together.
    pub queue_rows_max: u64,
    /// What is kept of relQueries that ended.
    pub finished: Retention,
    /// Which tenants have series of their own in `/metrics`.
    pub tenant_series: SeriesLimits,
}

/// Why the runtime did not start.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeStartError {
    /// The scheduler's configuration together with the model.
    #[error(transparent)]
    Scheduler(#[from] scheduler::ConfigError),
    /// The replicas.
    #[error(transparent)]
    Fleet(#[from] replicas::FleetStartError),
    /// The loop thread.
    #[error("cannot start the loop thread: {0}")]
    Thread(std::io::Error),
}

/// What the runtimes of all models of a process have in common.
pub struct Process {
    clock: Clock,
    database_clock: Arc<DatabaseClock>,
    ids: Arc<Ids>,
    budgets: Arc<Budgets>,
    results: Arc<Results>,
    replica_names: Arc<ReplicaNames>,
    leases: Option<Arc<LeaseSignal>>,
    gateway: Arc<GatewayIds>,
    traces: Arc<Traces>,
    journals: Option<Arc<JournalFolder>>,
}

impl Process {
    /// For models that are served with these settings on this store. `journals`: where usage is written down until the store
    /// has it; without it a kill loses that of the last moments.
    pub fn new(
        settings: Settings<'_>,
        store: &Store,
        traces: Traces,
        journals: Option<JournalFolder>,
    ) -> Self {
        let clock = Clock::start();
        let entries = if settings.cache.enabled { settings.cache.memory_entries_max } else { 0 };
        Self {
            clock,
            database_clock: Arc::new(DatabaseClock::guessed(UnixMillis(clock.unix_ms()), clock.now())),
            ids: Arc::new(Ids::starting_at(clock.unix_ms(), rand::random())),
            budgets: Arc::default(),
            results: Arc::new(Results::new(entries)),
            replica_names: Arc::default(),
            leases: lease_signal(settings.backend.fleet, store).map(Arc::new),
            gateway: Arc::new(GatewayIds::of(rand::random(), rand::random())),
            traces: Arc::new(traces),
            journals: journals.map(Arc::new),
        }
    }

    /// Their clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }
}

/// The loop, ready to run.
pub struct Loop(Driver);

impl Loop {
    /// Runs it on a thread of its own, until [`Intake::stop`].
    pub fn spawn(self) -> Result<std::thread::JoinHandle<()>, RuntimeStartError> {
        let Self(driver) = self;
        let thread = std::thread::Builder::new().name("relserve-loop".into());
        thread.spawn(move || driver.run()).map_err(RuntimeStartError::Thread)
    }
}

/// Makes the runtime of a model, and its loop.
pub fn start(
    settings: Settings<'_>,
    loaded: LoadedModel,
    store: Store,
    process: &Process,
) -> Result<(Arc<Runtime>, Loop), RuntimeStartError> {
    let LoadedModel { executor, fresh, mut model, cost } = loaded;
    let shared = Arc::new(shared(settings, &model, cost, (process, &store)));
    let engine = match executor {
        Some(executor) => {
            let scheduler = Scheduler::new(sized(settings.scheduler, &model), cost)?;
            Some(Engine::new(scheduler, executor, (fresh, settings.restart.clone())))
        }
        None => None,
    };
    let (backend, members) =
        backend(settings.backend, (&mut model, engine), &shared, &process.replica_names)?;
    if settings.scheduler.policy == Policy::Auto && settings.live.record_relqueries_max > 0 {
        let fleet = settings.backend.has_fleet().then(|| settings.backend.fleet.clone());
        let machine = imitated(settings.scheduler, fleet, &model);
        AutoPolicy::new(Arc::clone(&shared), machine).spawn().map_err(RuntimeStartError::Thread)?;
    }
    let coalescing = Coalescing {
        age_max: settings.coalesce.age_ms_max.into(),
        idle_max: settings.coalesce.idle_ms_max.into(),
        rows_max: settings.coalesce.rows_max,
    };
    let driver = Driver::new(backend, Arc::clone(&shared), coalescing);
    let registry = Registry::new(settings.finished);
    let runtime = Runtime::new((model, members), store, shared, registry, settings.cache.clone());
    Ok((Arc::new(runtime), Loop(driver)))
}

/// What runs the rows: the engine alone, or the replicas that are named.
fn backend(
    config: BackendConfig<'_>,
    (model, engine): (&mut Model, Option<Engine>),
    shared: &Arc<Shared>,
    names: &Arc<ReplicaNames>,
) -> Result<(Backend, Option<Arc<ReplicaMembers>>), RuntimeStartError> {
    match engine {
        Some(engine) if !config.has_fleet() => {
            let woken = Arc::clone(shared);
            Ok((Backend::Engine(Box::new(engine.woken_by(Arc::new(move || woken.intake.look())))), None))
        }
        engine => {
            let StartedFleet { fleet, members } = replicas::start(config, model, engine, shared, names)?;
            Ok((Backend::Fleet(Box::new(fleet)), Some(members)))
        }
    }
}

/// The settings with the sizes of the model's memory.
fn sized(settings: &SchedulerConfig, model: &Model) -> SchedulerConfig {
    SchedulerConfig {
        kv_blocks: model.kv_blocks,
        host_kv_blocks: model.host_kv_blocks,
        block_tokens: model.block_tokens,
        ..settings.clone()
    }
}

/// The server as the simulator needs it.
pub fn imitated(settings: &SchedulerConfig, fleet: Option<FleetConfig>, model: &Model) -> ReplayMachine {
    ReplayMachine { limits: sized(settings, model), fleet }
}

/// What renews leases of replicas, where another gateway may use them by the same database.
fn lease_signal(config: &FleetConfig, store: &Store) -> Option<LeaseSignal> {
    // The others take what this one had after the whole time: until then its rows in flight may end.
    let use_max = Nanos::from(config.leases.expire_ms).0 / 2;
    store.outlives_its_process().then(|| LeaseSignal { wanted: Notify::new(), use_max: Nanos(use_max) })
}

fn shared(
    settings: Settings<'_>,
    model: &Model,
    cost: CostModel,
    (process, store): (&Process, &Store),
) -> Shared {
    let view = Arc::new(Mutex::new(View { cost, ..View::default() }));
    let live = Arc::new(Live::new(settings.live.clone()));
    let metrics = Metrics::new(
        &model.name,
        settings.tenant_series,
        ScrapedStates {
            view: Arc::clone(&view),
            live: Arc::clone(&live),
            store: Arc::clone(store.health()),
            traces: Arc::clone(process.traces.counts()),
        },
    );
    Shared {
        intake: Intake::new(settings.queue_rows_max),
        pulse: Pulse::default(),
        results: Arc::clone(&process.results),
        accounts: accounts(&model.name, &metrics, process),
        journals: process.journals.clone(),
        metrics,
        budgets: Arc::clone(&process.budgets),
        scores: ScoresBudget::default(),
        prices: ModelPrices::new(settings.backend.token_prices()),
        view,
        live,
        auto: AutoState::default(),
        leases: process.leases.clone().filter(|_| settings.backend.has_fleet()),
        // No other name of a server holds a space.
        lease_suffix: if settings.is_default { String::new() } else { format!(" model={}", model.name) },
        gateway: Arc::clone(&process.gateway),
        ids: Arc::clone(&process.ids),
        traces: Arc::clone(&process.traces),
        clock: process.clock,
        database_clock: Arc::clone(&process.database_clock),
    }
}

/// Sums of a model's usage, with a journal where the process has a place for it.
fn accounts(model: &str, metrics: &Metrics, process: &Process) -> Accounts {
    let writer = format!("{:032x}", rand::random::<u128>());
    let accounts = Accounts::new(writer.clone());
    let Some(folder) = &process.journals else { return accounts };
    let failures = metrics.usage_journal_failures.clone();
    let journal = UsageJournal::new(Arc::clone(folder), (writer, model.to_owned()), process.clock, failures);
    accounts.with_journal(journal, process.database_clock.at(process.clock.now()).day())
}
