//! What the gateway's tests share: a server on a real socket over a model that is a table lookup.

pub mod alike;
pub mod batch;
pub mod checkpoint;
pub mod client;
pub mod double;
pub mod faulty;
pub mod left;
pub mod program;
pub mod replica;
pub mod watcher;
pub mod websocket;
pub mod words;

use std::path::PathBuf;
use std::sync::Arc;

use base::text::ByteText;
use base::{Millis, SectionReuse, TokenCount};
use client::{Client, Reply};
use double::{Double, Gate};
use gateway::app::{Running, start};
use gateway::config::Config;
use scheduler::CostModel;
use serving::clock::Clock;
use serving::config::Secret;
use serving::load::LoadedModel;
use serving::model::{Defaults, Model, Runs};
use store::{KeyScope, NewKey, Store, UnixMillis};

/// A running server, its key, and the gate in front of its executor.
pub struct Server {
    /// The server.
    pub running: Running,
    /// A client with a key of the default tenant.
    pub client: Client,
    /// Lets steps through.
    pub gate: Arc<Gate>,
}

/// A model of bytes.
pub fn model() -> Model {
    Model {
        name: "double".into(),
        aliases: Vec::new(),
        description: "a table lookup".into(),
        picks_only: false,
        knows_bare_prompts: false,
        text: Arc::new(ByteText),
        has_chat: false,
        constraints: None,
        context_max: TokenCount(2_048),
        vocab: 257,
        revision: 7,
        kv_blocks: 1_024,
        host_kv_blocks: 0,
        block_tokens: 16,
        reuse: SectionReuse::Anywhere,
        scores_prompts: false,
        replicas: None,
        defaults: Defaults { temperature: 1.0, top_p: 1.0, top_k: None },
        created: 0,
        runs: Runs::Engine,
    }
}

/// The defaults on a free port.
pub fn config() -> Config {
    let mut config = Config::default();
    config.server.listen = ([127, 0, 0, 1], 0).into();
    config.server.workers = 1;
    config.store.flush_ms = Millis(20);
    // Not there: whoever wants a folder of data makes one.
    config.store.data_dir = std::env::temp_dir().join(format!("relserve-{}", std::process::id()));
    // What `auto` chooses hangs on how fast the machine is.
    config.scheduler.policy = scheduler::Policy::MarginalWork;
    // Tokens of modules and spans are counted as they are read; `repair` counts those computed again.
    config.reuse.repair_tokens = 0;
    config
}

/// Starts a server with an empty store of its own, all steps allowed.
pub async fn serve() -> Server {
    serve_with(config(), model()).await
}

/// Starts a server with this configuration and model.
pub async fn serve_with(config: Config, model: Model) -> Server {
    serve_on(config, model, Store::open("sqlite::memory:").await.unwrap()).await
}

/// Starts a server whose rows other servers run, or a local engine among them.
pub async fn serve_fleet(config: Config) -> Server {
    serve_fleet_on(config, Store::open("sqlite::memory:").await.unwrap()).await
}

/// Starts one on a store.
pub async fn serve_fleet_on(config: Config, store: Store) -> Server {
    let key = key_of(&store, store::DEFAULT_TENANT).await;
    let backend = serving::load::prepare(config.backend(), &store, Clock::start()).await.unwrap();
    let running = start(config, backend, store).await.unwrap();
    let client = Client { address: running.address, key: Some(key) };
    Server { running, client, gate: Arc::new(Gate::open()) }
}

/// Starts a server on a store, or says why it does not start.
pub async fn start_on(
    config: Config,
    model: Model,
    store: Store,
) -> Result<(Running, Arc<Gate>), gateway::app::StartError> {
    let gate = Arc::new(Gate::open());
    Ok((start_behind(&gate, config, model, store).await?, gate))
}

/// Starts a server on a store, whose steps pass a gate.
pub async fn start_behind(
    gate: &Arc<Gate>,
    config: Config,
    model: Model,
    store: Store,
) -> Result<Running, gateway::app::StartError> {
    let executor = Box::new(Double::new(Arc::clone(gate), model.block_tokens));
    let backend = LoadedModel { executor: Some(executor), fresh: None, model, cost: CostModel::default() };
    start(config, backend, store).await
}

/// Starts a server on a store.
pub async fn serve_on(config: Config, model: Model, store: Store) -> Server {
    let key = key_of(&store, store::DEFAULT_TENANT).await;
    let (running, gate) = start_on(config, model, store).await.unwrap();
    let client = Client { address: running.address, key: Some(key) };
    Server { running, client, gate }
}

/// A server with two tenants and an operator.
pub struct Parties {
    /// The server, with a key of the one tenant.
    pub server: Server,
    /// A client with a key of the other.
    pub theirs: Client,
    /// A client with the operators' key.
    pub operators: Client,
}

/// Starts a server with two tenants and an operator.
pub async fn serve_parties(mut config: Config) -> Parties {
    const ADMIN_KEY: &str = "the operator's";
    config.auth.admin_key = Some(Secret(ADMIN_KEY.into()));
    let store = Store::open("sqlite::memory:").await.unwrap();
    let other = store.create_tenant("other", 1.0, UnixMillis(1)).await.unwrap().id;
    let key = key_of(&store, other).await;
    let server = serve_on(config, model(), store).await;
    let (theirs, operators) = (server.client.with_key(&key), server.client.with_key(ADMIN_KEY));
    Parties { server, theirs, operators }
}

/// A store that a second server can open after the first one's end. A file: a store in memory lives in its
/// one connection, which goes when a worker's runtime ends while it gives the connection back.
pub async fn lasting_store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&format!("sqlite://{}", dir.path().join("test.db").display())).await.unwrap();
    (dir, store)
}

/// The browser that pages are tried in, where there is one.
pub fn browser() -> Option<PathBuf> {
    let named = std::env::var_os("CHROMIUM").map(PathBuf::from);
    named.or_else(|| Some("/usr/bin/chromium".into())).filter(|path| path.exists())
}

/// A new key of a tenant.
pub async fn key_of(store: &Store, tenant: base::TenantId) -> String {
    let new = NewKey { tenant, name: "test", expires: None, is_operator: false, scope: KeyScope::ALL };
    store.create_key(new, UnixMillis(1)).await.unwrap().plaintext
}

/// What a wait gives; gives up only where it never would.
pub async fn seen_in_time<T>(what: &str, wait: impl Future<Output = T>) -> T {
    let hang = std::time::Duration::from_secs(60);
    tokio::time::timeout(hang, wait).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// Waits until a query of a database counts this many.
pub async fn until_count(database: &sqlx::AnyPool, count: i64, counting: &'static str) {
    let wait = async {
        let mut looks = tokio::time::interval(std::time::Duration::from_millis(5));
        while sqlx::query_scalar::<_, i64>(counting).fetch_one(database).await.unwrap() != count {
            looks.tick().await;
        }
    };
    seen_in_time(counting, wait).await;
}

impl Server {
    /// Posts a relQuery.
    pub async fn relquery(&self, body: serde_json::Value) -> Reply {
        self.client.post("/v1/relqueries", &body).await
    }

    /// Waits until the server shows what is expected; gives up only where it never would.
    pub async fn until(&self, what: &str, mut seen: impl FnMut(&Self) -> bool) {
        let wait = async {
            // A look every millisecond: a busy wait would take the core that the server needs.
            let mut looks = tokio::time::interval(std::time::Duration::from_millis(1));
            while !seen(self) {
                looks.tick().await;
            }
        };
        seen_in_time(what, wait).await;
    }

    /// The value of a metric without labels (or with these labels).
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.running.app.runtime.shared.metrics.render();
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        text.lines().find_map(value).unwrap_or_else(|| panic!("no metric {name}"))
    }

    /// `/metrics` of all models, as operators see it.
    pub fn all_metrics(&self) -> String {
        let models = self.running.app.models.iter().map(|model| &model.runtime.shared.metrics);
        serving::metrics::Metrics::render_all(&models.collect::<Vec<_>>())
    }

    /// `GET /v1/replicas` as an operator is shown it.
    pub async fn replicas(&self) -> serde_json::Value {
        let store = &self.running.app.runtime.store;
        let new = NewKey {
            tenant: store::DEFAULT_TENANT,
            name: "operator",
            expires: None,
            is_operator: true,
            scope: KeyScope::ALL,
        };
        let key = store.create_key(new, UnixMillis(1)).await.unwrap().plaintext;
        self.client.with_key(&key).get("/v1/replicas").await.json()
    }

    /// Waits until no row is under way.
    pub async fn until_rows_end(&self) {
        let ended = |server: &Self| {
            server.running.app.runtime.shared.intake.unfinished() == 0
                && server.running.app.runtime.view().stats.relqueries == 0
        };
        self.until("no row is under way", ended).await;
    }

    /// Waits until nothing is held any more.
    pub async fn until_free(&self) {
        self.until("everything is given back", Self::is_free).await;
    }

    /// Whether nothing is held any more: no row, no block.
    pub fn is_free(&self) -> bool {
        let stats = self.running.app.runtime.view().stats;
        self.running.app.runtime.shared.intake.unfinished() == 0
            && stats.relqueries == 0
            && stats.kv_used_blocks == 0
    }
}
