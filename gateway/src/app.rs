//! The server: listener, runtime and upkeep, started and drained. The `relserve` command and the tests start
//! this same one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_server::{Server, ServerBuilder, ServerHandle};
use actix_web::middleware;
use actix_web::web::{self, Data};
use serving::Runtime;
use serving::config::BackendConfig;
use serving::error::RequestError;
use serving::leases;
use serving::load::{self, LoadedModel};
use serving::metrics::SeriesLimits;
use serving::ownership;
use serving::relquery_state::Status;
use serving::start::{Loop, Process, Settings};
use serving::traces::{Traces, TracesError};
use serving::usage_journal::JournalFolder;
use serving::usage_replay;
use sql::server::{ConnectionLimits, Tls};
use store::Store;
use tokio::sync::watch;

use crate::certificates::{Certificate, CertificateError};
use crate::config::Config;
use crate::connections::Connections;
use crate::error::ApiError;
use crate::listener::{ClientLimits, HttpListener, TlsListener};
use crate::openapi;
use crate::ports::{BindError, BoundPath, BoundPort, ListenerKind, PortError, Ports};
use crate::routes::ops::Description;
use crate::services::sql::accounts::SqlAccounts;
use crate::services::sql::tenants;
use crate::services::{batches, files, key_claims, limits, responses, tickets, upkeep};
use crate::state::{App, CurrentApp};
use crate::{cors, current_state, kept_replies, observed, origin_check, routes};

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// The runtime.
    #[error(transparent)]
    Serving(#[from] serving::start::RuntimeStartError),
    /// What is known of a model beside the default one.
    #[error("the model `{model}`: {cause}")]
    Load { model: String, cause: load::LoadError },
    /// The runtime of a model beside the default one.
    #[error("the model `{model}`: {cause}")]
    Model { model: String, cause: serving::start::RuntimeStartError },
    /// What sends traces.
    #[error(transparent)]
    Traces(#[from] TracesError),
    /// What handlers share.
    #[error(transparent)]
    State(#[from] crate::state::StateError),
    /// An address or a path that cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A folder of tables.
    #[error("sql.folder: {folder} cannot be made: {cause}")]
    SqlFolder { folder: String, cause: std::io::Error },
    /// The tenants, whose folders are made.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A listener's TLS.
    #[error("{section}.certificate: {cause}")]
    Tls { section: &'static str, cause: CertificateError },
}

/// A running server.
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it answers for its health alone.
    pub health_address: Option<SocketAddr>,
    /// Where it listens for the Postgres protocol.
    pub sql_address: Option<SocketAddr>,
    /// Its state under the configuration of the start; what is no configuration is the same under a later one.
    pub app: Data<App>,
    /// The state of now.
    pub current: Arc<CurrentApp>,
    server: ServerHandle,
    health: Option<ServerHandle>,
    /// The path of the Unix socket, which goes with the server.
    unix: Option<BoundPath>,
    certificates: Certificates,
    /// Of each model one.
    loop_threads: Vec<std::thread::JoinHandle<()>>,
    stop_upkeep: watch::Sender<bool>,
    upkeep: tokio::task::JoinHandle<()>,
    /// Renews leases of replicas that other gateways use too.
    leases: tokio::task::JoinHandle<()>,
    /// Tells other gateways how far responses are.
    progress: tokio::task::JoinHandle<()>,
    sql: Option<SqlListener>,
}

/// The certificates of listeners that have some.
#[derive(Debug)]
struct Certificates {
    http: Option<Arc<Certificate>>,
    sql: Option<Arc<Certificate>>,
}

impl Certificates {
    fn open(config: &Config) -> Result<Self, StartError> {
        let open = |section, files: Option<_>| {
            let opened = files.map(Certificate::open).transpose();
            opened.map_err(|cause| StartError::Tls { section, cause })
        };
        let invalid = crate::config::ConfigError::from;
        let http = open("server", config.server.certificate_files().map_err(invalid)?)?;
        let sql = open("sql", config.sql.certificate_files().map_err(invalid)?)?;
        Ok(Self { sql: sql.or_else(|| http.clone()), http })
    }
}

/// The listener of the Postgres protocol.
struct SqlListener {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

/// The runtimes of all models, the default one first, and their loops.
type StartedModels = (Vec<Arc<Runtime>>, Vec<Loop>);

/// Makes the runtime of each model; `loaded`: the default one's.
async fn start_models(
    config: &Config,
    loaded: LoadedModel,
    store: &Store,
) -> Result<StartedModels, StartError> {
    let mut backends = config.backends().into_iter().map(|(_, backend)| backend);
    let first = backends.next().unwrap_or_else(|| config.backend());
    let traces = Traces::start(&config.traces)?;
    let journals = journals(config, store);
    let has_failed = journals.is_err();
    let process = Process::new(settings(config, first, true), store, traces, journals.unwrap_or_default());
    let own = serving::start::start(settings(config, first, true), loaded, store.clone(), &process)?;
    own.0.shared.metrics.usage_journal_failures.inc_by(u64::from(has_failed));
    let mut started = vec![own];
    for backend in backends {
        let model = || backend.model.name.unwrap_or_default().to_owned();
        let loaded = load::prepare(backend, store, process.clock()).await;
        let loaded = loaded.map_err(|cause| StartError::Load { model: model(), cause })?;
        let runtime =
            serving::start::start(settings(config, backend, false), loaded, store.clone(), &process);
        started.push(runtime.map_err(|cause| StartError::Model { model: model(), cause })?);
    }
    Ok(started.into_iter().unzip())
}

/// Where usage is written down until the store has it: in the data folder, where there is one and the store outlives the
/// process. A place that cannot be had is no reason not to start.
fn journals(config: &Config, store: &Store) -> std::io::Result<Option<JournalFolder>> {
    let data = &config.store.data_dir;
    if !store.outlives_its_process() || !data.is_dir() {
        return Ok(None);
    }
    JournalFolder::open(data).map(Some).inspect_err(|error| {
        let folder = data.display();
        tracing::warn!(%error, %folder, "no journal of usage: a kill loses usage that the database does not have");
    })
}

/// Binds the addresses of a configuration and starts the server on them.
pub async fn start(config: Config, loaded: LoadedModel, store: Store) -> Result<Running, StartError> {
    config.validate()?;
    let ports = Ports::bind(&config)?;
    start_on(ports, config, loaded, store).await
}

/// Starts the loops, the writer and the listeners, on addresses that were bound before the model was loaded.
pub async fn start_on(
    ports: Ports,
    config: Config,
    loaded: LoadedModel,
    store: Store,
) -> Result<Running, StartError> {
    config.validate()?;
    let certificates = Certificates::open(&config)?;
    let (runtimes, loops) = start_models(&config, loaded, &store).await?;
    let app = Data::new(App::new(runtimes.clone(), config)?);
    let current = Arc::new(CurrentApp::new(Arc::clone(&app)));
    // Before anything is let in.
    app.runtime.look_at_database_clock().await;
    // What counts against budgets of today, too.
    usage_replay::begin(&runtimes).await;
    limits::refresh(&app).await;
    key_claims::end_all(&app).await;
    files::delete_drafts(&app).await;
    let sql = listen_sql(&current, ports.sql, certificates.sql.as_ref()).await?;
    let (address, (server, unix)) =
        (ports.http.address(), listen(&current, ports.http, ports.unix, certificates.http.as_ref())?);
    let health = ports.health.map(|port| listen_for_health(&current, port, certificates.http.as_ref()));
    let health = health.transpose()?;
    let (health_address, health) = health.unzip();
    let loop_threads = loops.into_iter().map(Loop::spawn).collect::<Result<_, _>>()?;
    let (stop_upkeep, stopped) = watch::channel(false);
    let node = app.config.store.node.clone();
    let leases = tokio::spawn(leases::run(runtimes, app.config.fleet.leases, node, stopped.clone()));
    let progress = tokio::spawn(responses::progress::run(Arc::clone(&current), stopped.clone()));
    let lease = tickets::lease(&app);
    // By a wall clock that may be wrong nothing is claimed: it is left until the database says what time it is.
    let mut is_left = true;
    if app.runtime.shared.database_clock.is_known() {
        is_left = tickets::resume(&app, &lease).await;
        batches::resume(&app, &lease).await;
    }
    let upkeep = tokio::spawn(upkeep::run(Arc::clone(&current), stopped, is_left));
    let sql_address = sql.as_ref().map(|sql| sql.address);
    Ok(Running {
        address,
        health_address,
        sql_address,
        app,
        current,
        server,
        health,
        unix,
        certificates,
        loop_threads,
        stop_upkeep,
        upkeep,
        leases,
        progress,
        sql,
    })
}

/// Starts to serve the Postgres protocol, where an address was bound for it.
async fn listen_sql(
    current: &Arc<CurrentApp>,
    port: Option<BoundPort>,
    certificate: Option<&Arc<Certificate>>,
) -> Result<Option<SqlListener>, StartError> {
    let Some(port) = port else { return Ok(None) };
    let app = current.get();
    let settings = &app.config.sql;
    let address = port.address();
    let tls = certificate.map(|certificate| encrypted("sql", certificate).map(Tls::new)).transpose()?;
    for tenant in app.runtime.store.tenants().await? {
        tenants::made_folder(&app.config, tenant.id).map_err(|cause| StartError::SqlFolder {
            folder: tenants::folder(&app.config, tenant.id).display().to_string(),
            cause,
        })?;
    }
    let failed = |cause| PortError { listener: ListenerKind::Sql, address, cause };
    let listener = tokio::net::TcpListener::from_std(port.listen().map_err(BindError::from)?);
    let listener = listener.map_err(failed).map_err(BindError::from)?;
    let limits = ConnectionLimits {
        connections_max: settings.connections_max,
        requires_tls: settings.require_tls,
        ..ConnectionLimits::default()
    };
    let (stop, stopped) = watch::channel(false);
    let accounts = Arc::new(SqlAccounts(Arc::clone(current)));
    let task = tokio::spawn(async move {
        if let Err(error) = sql::server::serve(listener, accounts, limits, tls, stopped).await {
            tracing::error!(%error, "the Postgres protocol is not served");
        }
    });
    Ok(Some(SqlListener { address, stop, task }))
}

/// What the runtime of a model is told.
fn settings<'a>(config: &'a Config, backend: BackendConfig<'a>, is_default: bool) -> Settings<'a> {
    Settings {
        backend,
        is_default,
        scheduler: &config.scheduler,
        restart: &config.restart,
        cache: &config.cache,
        coalesce: &config.coalesce,
        live: &config.live,
        queue_rows_max: config.limits.queue_rows_max,
        finished: config.limits.retention(),
        tenant_series: SeriesLimits {
            tenants_max: config.server.metric_tenants_max,
            idle_max: config.server.metric_tenant_idle_ms_max.into(),
        },
    }
}

/// TLS of a listener.
fn encrypted(
    section: &'static str,
    certificate: &Arc<Certificate>,
) -> Result<rustls::ServerConfig, StartError> {
    certificate.server_config().map_err(|cause| StartError::Tls { section, cause })
}

/// Starts to serve HTTP; the path of the Unix socket, where there is one, goes with what is given back.
fn listen(
    current: &Arc<CurrentApp>,
    port: BoundPort,
    unix: Option<BoundPath>,
    certificate: Option<&Arc<Certificate>>,
) -> Result<(ServerHandle, Option<BoundPath>), StartError> {
    let app = current.get();
    let settings = &app.config.server;
    let address = port.address();
    port.give_up_after(Duration::from_millis(settings.write_ms_max.0));
    let state = Data::from(Arc::clone(current));
    let description = Data::new(Description(openapi::document()));
    let api = move || {
        actix_web::App::new()
            .app_data(state.clone())
            .app_data(description.clone())
            .app_data(
                web::QueryConfig::default()
                    .error_handler(|error, _| ApiError::invalid("query", error.to_string()).into()),
            )
            .wrap(middleware::from_fn(kept_replies::answer_once))
            .wrap(middleware::from_fn(routes::without_nul))
            .wrap(middleware::from_fn(origin_check::of_no_foreign_page))
            .wrap(middleware::from_fn(cors::allow_origins))
            // The last two are the outermost: nothing is waited for before them.
            .wrap(middleware::from_fn(observed::observe))
            .wrap(middleware::from_fn(current_state::hold))
            .configure(routes::configure)
            .default_service(web::to(routes::not_found))
    };
    let limits = ClientLimits {
        header_max: Duration::from_millis(settings.header_ms_max.0),
        idle_max: Duration::from_millis(settings.idle_ms_max.0),
        write_max: Duration::from_millis(settings.write_ms_max.0),
        // Who closes it is taken for gone, which is how its cancellation is noticed.
        may_half_close: false,
    };
    let connections = Connections::new(settings.workers.saturating_mul(settings.connections_max));
    let mut server = new_server(settings.workers).max_concurrent_connections(settings.connections_max);
    let listener = HttpListener::new(api, limits, Some(connections), server.graceful_shutdown_signal());
    server = add_port(server, listener.clone(), (ListenerKind::Http, port), certificate)?;
    let mut path = None;
    if let Some(unix) = unix {
        let (socket, bound) = unix.listen().map_err(BindError::from)?;
        let added = server.listen_uds("unix", socket, move || listener.unix());
        server = added
            .map_err(|cause| BindError::from(PortError { listener: ListenerKind::Http, address, cause }))?;
        path = Some(bound);
    }
    Ok((run(server), path))
}

/// Starts to answer for health and metrics on an address of their own.
fn listen_for_health(
    current: &Arc<CurrentApp>,
    port: BoundPort,
    certificate: Option<&Arc<Certificate>>,
) -> Result<(SocketAddr, ServerHandle), StartError> {
    let (address, state) = (port.address(), Data::from(Arc::clone(current)));
    let health = move || {
        actix_web::App::new()
            .app_data(state.clone())
            .wrap(middleware::from_fn(current_state::hold))
            .configure(routes::ops::configure_health)
            .default_service(web::to(routes::not_found))
    };
    let app = current.get();
    let settings = &app.config.server;
    let limits = ClientLimits {
        header_max: Duration::from_millis(settings.header_ms_max.0),
        idle_max: HEALTH_IDLE_MAX,
        write_max: Duration::from_millis(settings.write_ms_max.0),
        // What asks by a script may close its half first, and no work of its is to be called off.
        may_half_close: true,
    };
    let server = new_server(1);
    let listener = HttpListener::new(health, limits, None, server.graceful_shutdown_signal());
    let server = add_port(server, listener, (ListenerKind::Health, port), certificate)?;
    Ok((address, run(server)))
}

/// A server without listeners, which ends when it is told to and never by itself.
fn new_server(workers: usize) -> ServerBuilder {
    Server::build().workers(workers).disable_signals().shutdown_timeout(SHUTDOWN_SECONDS)
}

/// Has a server listen on a port, for TLS alone where there is a certificate.
fn add_port(
    server: ServerBuilder,
    listener: HttpListener,
    (kind, port): (ListenerKind, BoundPort),
    certificate: Option<&Arc<Certificate>>,
) -> Result<ServerBuilder, StartError> {
    let address = port.address();
    let socket = port.listen().map_err(BindError::from)?;
    let added = match certificate {
        Some(certificate) => {
            let listener = TlsListener::new(listener, encrypted("server", certificate)?);
            server.listen("https", socket, move || listener.clone())
        }
        None => server.listen("http", socket, move || listener.clear_text()),
    };
    Ok(added.map_err(|cause| BindError::from(PortError { listener: kind, address, cause }))?)
}

/// Runs a server; what stops it.
fn run(server: ServerBuilder) -> ServerHandle {
    let server = server.run();
    let handle = server.handle();
    tokio::spawn(server);
    handle
}

/// Time for which a connection that asked for the server's health may stay without asking again.
const HEALTH_IDLE_MAX: Duration = Duration::from_secs(5);
/// Time for the last traces to be sent.
const FLUSH_MAX: Duration = Duration::from_secs(5);
/// Time for connections to take their last bytes, after the drain.
const SHUTDOWN_SECONDS: u64 = 3;

impl Running {
    /// The API's address as clients write it.
    pub fn url(&self) -> String {
        format!("{}://{}", self.app.config.server.scheme(), self.address)
    }

    /// Opens the file of the access log again, which may have been moved away.
    pub fn reopen_access_log(&self) {
        self.app.access_log.iter().for_each(|log| log.reopen());
    }

    /// Reads all certificates again; how many there are. Connections that are open keep theirs.
    ///
    /// # Errors
    /// The first that cannot be used: it stays as it was.
    pub fn reload_certificates(&self) -> Result<usize, CertificateError> {
        let Certificates { http, sql } = &self.certificates;
        // The SQL listener may share the other's.
        let own = sql.iter().filter(|sql| http.as_ref().is_none_or(|http| !Arc::ptr_eq(sql, http)));
        http.iter().chain(own).try_fold(0, |count, certificate| certificate.reload().map(|()| count + 1))
    }

    /// Stops taking work, lets running relQueries finish until `drain_ms_max` or until `now` resolves, ends
    /// the rest with an error, writes what is unwritten, and closes.
    pub async fn drain(mut self, now: impl Future<Output = ()>) {
        let runtimes: Vec<Arc<Runtime>> =
            self.app.models.iter().map(|model| Arc::clone(&model.runtime)).collect();
        runtimes.iter().for_each(|runtime| runtime.begin_drain());
        let patience = Duration::from_millis(self.current.get().config.server.drain_ms_max.0);
        let running: Vec<_> = runtimes.iter().flat_map(|runtime| runtime.registry.running()).collect();
        let all =
            futures_util::future::join_all(running.iter().map(|relquery| ownership::finished(relquery)));
        tokio::select! {
            _ = all => {}
            () = tokio::time::sleep(patience) => {}
            () = now => {}
        }
        let at = self.app.runtime.shared.clock.now();
        for runtime in &runtimes {
            for relquery in runtime.registry.running() {
                if relquery.end(Status::Failed(RequestError::ShuttingDown), at) {
                    runtime.shared.intake.leave(relquery);
                }
            }
        }
        if let Some(sql) = self.sql.take() {
            sql.stop.send_replace(true);
            // A connection that ends badly has said so itself.
            let _ = sql.task.await;
        }
        self.app.batches.ended().await;
        self.server.stop(true).await;
        drop(self.unix);
        runtimes.iter().for_each(|runtime| runtime.shared.intake.stop());
        for thread in self.loop_threads {
            // A loop ends after the step in flight.
            let joined = tokio::task::spawn_blocking(move || thread.join()).await;
            if !matches!(joined, Ok(Ok(()))) {
                tracing::error!("the loop thread did not end well");
            }
        }
        // The writer sees the end of the loop's last rows.
        self.stop_upkeep.send_replace(true);
        if self.upkeep.await.is_err() {
            tracing::error!("the writer did not end well");
        }
        if let Some(health) = self.health {
            health.stop(true).await;
        }
        if self.leases.await.is_err() {
            tracing::error!("what renews leases of replicas did not end well");
        }
        if self.progress.await.is_err() {
            tracing::error!("what tells other gateways how far responses are did not end well");
        }
        self.app.access_log.iter().for_each(|log| log.close());
        let traces = &self.app.runtime.shared.traces;
        if tokio::time::timeout(FLUSH_MAX, traces.flush()).await.is_err() {
            tracing::warn!("the collector of traces did not take the last of them in time");
        }
        self.app.runtime.shared.journals.iter().for_each(|journals| journals.release());
    }
}
