//! The start of the runtime: shared state, the backend that runs rows, and the loop thread.

use std::sync::{Arc, Mutex};

use base::Nanos;
use scheduler::{CostModel, Policy, Scheduler, SchedulerConfig};
use store::Store;
use tokio::sync::Notify;

use crate::account::Accounts;
use crate::auto::AutoPolicy;
use crate::clock::Clock;
use crate::config::{BackendConfig, CacheConfig, CoalesceConfig, LiveConfig, RestartConfig};
use crate::driver::{Backend, Coalescing, Driver, Engine};
use crate::health::Pulse;
use crate::intake::Intake;
use crate::live::Live;
use crate::live::auto::AutoState;
use crate::live::what_if::ReplayMachine;
use crate::load::LoadedModel;
use crate::metrics::{Metrics, SeriesLimits};
use crate::model::Model;
use crate::registry::{Registry, Retention};
use crate::replicas::{self, LeaseSignal, ReplicaMembers, StartedFleet};
use crate::results::Results;
use crate::runtime::Runtime;
use crate::shared::{Ids, Shared};
use crate::view::View;

/// What the runtime is told.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// What runs the model.
    pub backend: BackendConfig<'a>,
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
pub enum StartError {
    /// The scheduler's configuration together with the model.
    #[error(transparent)]
    Scheduler(#[from] scheduler::ConfigError),
    /// The replicas.
    #[error(transparent)]
    Fleet(#[from] replicas::StartError),
    /// The loop thread.
    #[error("cannot start the loop thread: {0}")]
    Thread(std::io::Error),
}

/// The loop, ready to run.
pub struct Loop(Driver);

impl Loop {
    /// Runs it on a thread of its own, until [`Intake::stop`].
    pub fn spawn(self) -> Result<std::thread::JoinHandle<()>, StartError> {
        let Self(driver) = self;
        let thread = std::thread::Builder::new().name("relserve-loop".into());
        thread.spawn(move || driver.run()).map_err(StartError::Thread)
    }
}

/// Makes the runtime and its loop.
pub fn start(
    settings: Settings<'_>,
    loaded: LoadedModel,
    store: Store,
) -> Result<(Arc<Runtime>, Loop), StartError> {
    let LoadedModel { executor, fresh, mut model, cost } = loaded;
    let leases = lease_signal(settings.backend, &store);
    let shared = Arc::new(shared(settings, &model, cost, leases));
    let engine = match executor {
        Some(executor) => {
            let scheduler = Scheduler::new(sized(settings.scheduler, &model), cost)?;
            Some(Engine::new(scheduler, executor, (fresh, settings.restart.clone())))
        }
        None => None,
    };
    let (backend, members) = backend(settings.backend, &mut model, engine, &shared)?;
    if settings.scheduler.policy == Policy::Auto && settings.live.record_relqueries_max > 0 {
        let machine = imitated(settings.scheduler, settings.backend, &model);
        AutoPolicy::new(Arc::clone(&shared), machine).spawn().map_err(StartError::Thread)?;
    }
    let coalescing =
        Coalescing { age_max: settings.coalesce.age_ms_max.into(), rows_max: settings.coalesce.rows_max };
    let driver = Driver::new(backend, Arc::clone(&shared), coalescing);
    let registry = Registry::new(settings.finished);
    let runtime = Runtime::new((model, members), store, shared, registry, settings.cache.clone());
    Ok((Arc::new(runtime), Loop(driver)))
}

/// What runs the rows: the engine alone, or the replicas that are named.
fn backend(
    config: BackendConfig<'_>,
    model: &mut Model,
    engine: Option<Engine>,
    shared: &Arc<Shared>,
) -> Result<(Backend, Option<Arc<ReplicaMembers>>), StartError> {
    match engine {
        Some(engine) if !config.has_fleet() => {
            let woken = Arc::clone(shared);
            Ok((Backend::Engine(Box::new(engine.woken_by(Arc::new(move || woken.intake.look())))), None))
        }
        engine => {
            model.has_logprobs = !config.has_local_engine();
            let StartedFleet { fleet, members } = replicas::start(config, model, engine, shared)?;
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
pub fn imitated(settings: &SchedulerConfig, backend: BackendConfig<'_>, model: &Model) -> ReplayMachine {
    let fleet = backend.has_fleet().then(|| backend.fleet.clone());
    ReplayMachine { limits: sized(settings, model), fleet }
}

/// What renews leases of replicas, where another gateway may use them by the same database.
fn lease_signal(config: BackendConfig<'_>, store: &Store) -> Option<LeaseSignal> {
    let is_shared = config.has_fleet() && store.outlives_its_process();
    // The others take what this one had after the whole time: until then its rows in flight may end.
    let use_max = Nanos::from(config.fleet.leases.expire_ms).0 / 2;
    is_shared.then(|| LeaseSignal { wanted: Notify::new(), use_max: Nanos(use_max) })
}

fn shared(settings: Settings<'_>, model: &Model, cost: CostModel, leases: Option<LeaseSignal>) -> Shared {
    let clock = Clock::start();
    let entries = if settings.cache.enabled { settings.cache.memory_entries_max } else { 0 };
    let view = Arc::new(Mutex::new(View { cost, ..View::default() }));
    let live = Arc::new(Live::new(settings.live.clone()));
    Shared {
        intake: Intake::new(settings.queue_rows_max),
        pulse: Pulse::default(),
        metrics: Metrics::new(&model.name, settings.tenant_series, (Arc::clone(&view), Arc::clone(&live))),
        results: Results::new(entries),
        accounts: Accounts::default(),
        view,
        live,
        auto: AutoState::default(),
        leases,
        ids: Ids::starting_at(clock.unix_ms()),
        clock,
    }
}
