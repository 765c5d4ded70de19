//! Routes and state. The `relserve` command and the tests start this same app.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::web::{self, Data};
use actix_web::{HttpServer, middleware};
use base::Executor;
use ir::Tags;
use scheduler::{CostModel, Scheduler};
use store::Store;
use tokio::sync::watch;

use crate::account::Accounts;
use crate::auth::Remembered;
use crate::batches::{self, Batches};
use crate::board::Status;
use crate::clock::Clock;
use crate::config::Config;
use crate::constraints::Constraints;
use crate::corpora::Corpora;
use crate::driver::{Coalescing, Driver, Engine, Ids, Maker, Plant, Shared, View};
use crate::error::ApiError;
use crate::health::Pulse;
use crate::intake::Intake;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::model::{Model, Runs};
use crate::remote::Expressible;

use crate::registry::{Kept, Registry};
use crate::repeats::Repeats;
use crate::results::Results;
use crate::schemas::Schemas;
use crate::{claim, cors, flush, remote, routes, tickets};

/// What handlers share.
pub struct App {
    /// The configuration.
    pub config: Config,
    /// The model.
    pub model: Model,
    /// What survives a restart.
    pub store: Store,
    /// What the loop shares.
    pub shared: Arc<Shared>,
    /// Boards by id.
    pub registry: Registry,
    /// Verdicts about keys.
    pub remembered: Remembered,
    /// What tenants have compiled.
    pub constraints: Constraints,
    tags: Result<Tags, String>,
    /// PML schemas.
    pub schemas: Schemas,
    /// Corpora in memory, and the embedding model.
    pub corpora: Corpora,
    /// Idempotency keys.
    pub repeats: Arc<Repeats>,
    /// Batches that run here.
    pub batches: Batches,
    is_draining: AtomicBool,
}

impl App {
    /// The markup of messages, or why the model has none.
    pub fn tags(&self) -> Result<&Tags, &str> {
        self.tags.as_ref().map_err(String::as_str)
    }

    /// Whether new work is refused because the server ends.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// The scheduler's last word about itself.
    pub fn view(&self) -> View {
        self.shared.view.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}

/// What runs the model.
pub struct Backend {
    /// Runs steps; none where only other servers run rows.
    pub executor: Option<Box<dyn Executor>>,
    /// Makes another like it when it is lost; without it the engine is dead then.
    pub fresh: Option<Maker>,
    /// What is known of the model.
    pub model: Model,
    /// What its steps cost.
    pub cost: CostModel,
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// The scheduler's configuration together with the model.
    #[error(transparent)]
    Scheduler(#[from] scheduler::ConfigError),
    /// The executors.
    #[error(transparent)]
    Fleet(#[from] remote::StartError),
    /// The embedding model.
    #[error("retrieval.model: {0}")]
    Retrieval(#[from] retrieval::Error),
    /// The listener.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        cause: std::io::Error,
    },
    /// The loop thread.
    #[error("cannot start the loop thread: {0}")]
    Thread(std::io::Error),
}

/// A running server.
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its state.
    pub app: Data<App>,
    server: ServerHandle,
    loop_thread: Option<std::thread::JoinHandle<()>>,
    stop_flush: watch::Sender<bool>,
    flushed: tokio::task::JoinHandle<()>,
}

/// Starts the loop, the writer and the listener.
pub async fn start(config: Config, backend: Backend, store: Store) -> Result<Running, StartError> {
    config.validate()?;
    let Backend { executor, fresh, mut model, cost } = backend;
    let shared = Arc::new(shared(&config, &model, cost));
    let engine = match executor {
        Some(executor) => {
            let mut scheduling = config.scheduler.clone();
            scheduling.kv_blocks = model.kv_blocks;
            scheduling.host_kv_blocks = model.host_kv_blocks;
            scheduling.block_tokens = model.block_tokens;
            let scheduler = Scheduler::new(scheduling, cost)?;
            Some(Engine::new(scheduler, executor, (fresh, config.restart.clone())))
        }
        None => None,
    };
    let plant = plant(&config, &mut model, engine, &shared)?;
    let app = Data::new(App {
        registry: Registry::new(Kept {
            boards: config.limits.finished_max,
            rows: config.limits.finished_rows_max,
        }),
        remembered: Remembered::default(),
        corpora: Corpora::open(&config.retrieval)?,
        constraints: Constraints::new(model.constraints.clone(), &config.limits, shared.clock),
        tags: model.tags(),
        schemas: Schemas::new(&config.limits),
        repeats: Arc::new(Repeats::new(config.limits.idempotency_keys_max, config.store.ticket_ms_max)),
        batches: Batches::new(&config.bulk),
        is_draining: AtomicBool::new(false),
        shared: Arc::clone(&shared),
        store,
        model,
        config,
    });
    let coalescing =
        Coalescing { age_max: app.config.coalesce.age_ms_max.into(), rows_max: app.config.coalesce.rows_max };
    let (address, server) = listen(&app)?;
    let driver = Driver::new(plant, shared, coalescing);
    let loop_thread = std::thread::Builder::new()
        .name("relserve-loop".into())
        .spawn(move || driver.run())
        .map_err(StartError::Thread)?;
    let (stop_flush, stopped) = watch::channel(false);
    let lease = tickets::lease(&app);
    let is_left = tickets::resume(&app, &lease).await;
    batches::resume(&app, &lease).await;
    let flushed = tokio::spawn(flush::run(app.clone(), stopped, is_left));
    Ok(Running { address, app, server, loop_thread: Some(loop_thread), stop_flush, flushed })
}

/// What runs the rows: the engine alone, or all executors that are configured.
fn plant(
    config: &Config,
    model: &mut Model,
    engine: Option<Engine>,
    shared: &Arc<Shared>,
) -> Result<Plant, StartError> {
    match engine {
        Some(engine) if !config.has_fleet() => {
            let woken = Arc::clone(shared);
            Ok(Plant::Engine(Box::new(engine.woken_by(Arc::new(move || woken.intake.look())))))
        }
        engine => {
            model.runs = Runs::Fleet(config.prompt_form());
            model.constraints = Some(Arc::new(Expressible::new(config, model.constraints.take())));
            Ok(Plant::Fleet(Box::new(remote::start(config, model, engine, shared)?)))
        }
    }
}

fn shared(config: &Config, model: &Model, cost: CostModel) -> Shared {
    let clock = Clock::start();
    let entries = if config.cache.enabled { config.cache.memory_entries_max } else { 0 };
    Shared {
        intake: Intake::new(config.limits.queue_rows_max),
        pulse: Pulse::default(),
        metrics: Metrics::new(&model.name, config.server.metric_tenants_max),
        results: Results::new(entries),
        accounts: Accounts::default(),
        view: Mutex::new(View { cost, ..View::default() }),
        live: Arc::new(Live::new(config.live.clone())),
        ids: Ids::starting_at(clock.unix_ms()),
        clock,
    }
}

/// Binds the listener and starts to serve.
fn listen(app: &Data<App>) -> Result<(SocketAddr, ServerHandle), StartError> {
    let settings = &app.config.server;
    let failed = |cause| StartError::Listen { address: settings.listen, cause };
    let write_max = Duration::from_millis(settings.write_ms_max.0);
    let state = app.clone();
    let server = HttpServer::new(move || {
        actix_web::App::new()
            .app_data(state.clone())
            .app_data(
                web::QueryConfig::default()
                    .error_handler(|error, _| ApiError::invalid("query", error.to_string()).into()),
            )
            .wrap(middleware::from_fn(cors::answer))
            .configure(routes::configure)
            .default_service(web::to(routes::not_found))
    })
    .workers(settings.workers)
    .max_connections(settings.connections_max)
    .client_request_timeout(Duration::from_millis(settings.header_ms_max.0))
    .keep_alive(Duration::from_millis(settings.idle_ms_max.0))
    // A client that closes its writing half is taken for gone, which is how its cancellation is noticed.
    .h1_allow_half_closed(false)
    .on_connect(move |io, _| {
        if let Some(stream) = io.downcast_ref::<tokio::net::TcpStream>() {
            give_up_after(stream, write_max);
        }
    })
    .disable_signals()
    .shutdown_timeout(SHUTDOWN_SECONDS)
    .bind(settings.listen)
    .map_err(failed)?;
    let address = server.addrs().first().copied().ok_or_else(|| failed(std::io::ErrorKind::Other.into()))?;
    let server = server.run();
    let handle = server.handle();
    tokio::spawn(server);
    Ok((address, handle))
}

/// Time for connections to take their last bytes, after the drain.
const SHUTDOWN_SECONDS: u64 = 3;

/// Has the kernel drop a client that takes no bytes for `span`.
fn give_up_after(stream: &tokio::net::TcpStream, span: Duration) {
    #[cfg(target_os = "linux")]
    if let Err(error) = socket2::SockRef::from(&stream.as_fd()).set_tcp_user_timeout(Some(span)) {
        tracing::debug!(%error, "no write timeout on this connection");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (stream, span);
}

impl Running {
    /// Stops taking work, lets running relQueries finish until `drain_ms_max` or until `now` resolves, ends
    /// the rest with an error, writes what is unwritten, and closes.
    pub async fn drain(mut self, now: impl Future<Output = ()>) {
        self.app.is_draining.store(true, Ordering::Release);
        let patience = Duration::from_millis(self.app.config.server.drain_ms_max.0);
        let running = self.app.registry.running();
        let all = futures_util::future::join_all(running.iter().map(|board| claim::finished(board)));
        tokio::select! {
            _ = all => {}
            () = tokio::time::sleep(patience) => {}
            () = now => {}
        }
        let at = self.app.shared.clock.now();
        for board in self.app.registry.running() {
            if board.end(Status::Failed(ApiError::ShuttingDown), at) {
                self.app.shared.intake.leave(board);
            }
        }
        self.app.batches.ended().await;
        self.server.stop(true).await;
        self.app.shared.intake.stop();
        if let Some(thread) = self.loop_thread.take() {
            // The loop ends after the step in flight.
            let joined = tokio::task::spawn_blocking(move || thread.join()).await;
            if !matches!(joined, Ok(Ok(()))) {
                tracing::error!("the loop thread did not end well");
            }
        }
        // The writer sees the end of the loop's last rows.
        self.stop_flush.send_replace(true);
        if self.flushed.await.is_err() {
            tracing::error!("the writer did not end well");
        }
    }
}
