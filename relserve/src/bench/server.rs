//! A server in this process, for benchmarks of what its clients see: statements over HTTP, on a free port,
//! with an empty store and a folder of tables of its own.

use std::path::{Path, PathBuf};

use base::Millis;
use gateway::app::{self, Running};
use gateway::config::Config;
use serde_json::{Value, json};
use serving::clock::Clock;
use serving::config::DemoFunctions;
use serving::load;
use store::{DEFAULT_TENANT, KeyScope, NewKey, Store, UnixMillis};

use super::BenchError;

/// A running server and a client with a key of its one tenant.
pub(crate) struct BenchServer {
    running: Running,
    client: reqwest::Client,
    url: String,
    key: String,
}

/// What a request came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TimedReply {
    /// The lines of its body.
    pub(crate) lines: Vec<String>,
    /// Seconds until the first byte of the body, and until its last.
    pub(crate) first: f64,
    pub(crate) seconds: f64,
}

/// The configuration with a built-in model that may say anything: what is measured is speed.
pub(crate) fn saying_anything(config: &Config) -> Config {
    let mut config = config.clone();
    config.model.demo_functions = DemoFunctions::All;
    config
}

impl BenchServer {
    /// Starts a server whose tables are the files of `folder/1`. `cache_tokens` bounds the KV pool.
    pub(crate) async fn start(
        mut config: Config,
        folder: &Path,
        cache_tokens: Option<u32>,
    ) -> Result<Self, BenchError> {
        // Where something else has installed one already, that one is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        config.server.listen = ([127, 0, 0, 1], 0).into();
        config.sql.listen = None;
        config.sql.folder = Some(folder.to_owned());
        // Nobody waits beside it: on a busy machine its constraints take as long as they take.
        config.limits.tenant_compile_ms_max = Millis(600_000);
        // What one run has answered is not given to the next.
        config.cache.enabled = false;
        let store = Store::open("sqlite::memory:").await?;
        let new = NewKey {
            tenant: DEFAULT_TENANT,
            name: "bench",
            expires: None,
            is_operator: false,
            scope: KeyScope::ALL,
        };
        let key = store.create_key(new, UnixMillis(Clock::start().unix_ms())).await?.plaintext;
        let mut loaded = load::prepare(config.backend(), &store, Clock::start()).await?;
        let model = &mut loaded.model;
        if let Some(tokens) = cache_tokens {
            model.kv_blocks = (tokens / model.block_tokens).clamp(1, model.kv_blocks);
        }
        let running = app::start(config, loaded, store).await?;
        let url = format!("http://{}", running.address);
        Ok(Self { running, client: reqwest::Client::new(), url, key })
    }

    /// What runs here, in a line.
    pub(crate) fn model(&self) -> String {
        let model = &self.running.app.runtime.model;
        format!("{}: {}; KV pool of {} tokens", model.name, model.description, model.kv_tokens())
    }

    /// The model that runs here.
    pub(crate) fn loaded_model(&self) -> &serving::model::Model {
        &self.running.app.runtime.model
    }

    /// A counter of `/metrics`, over all labels.
    pub(crate) async fn counter(&self, name: &str) -> Result<f64, BenchError> {
        let request = self.client.get(format!("{}/metrics", self.url)).bearer_auth(&self.key);
        let text = request.send().await?.error_for_status()?.text().await?;
        let is_named = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        let values: Vec<f64> =
            text.lines().filter(is_named).filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        match values.is_empty() {
            true => Err(BenchError::Case(format!("/metrics has no {name}"))),
            false => Ok(values.iter().sum()),
        }
    }

    /// The folder of the tenant's tables.
    pub(crate) fn tables(folder: &Path) -> Result<PathBuf, BenchError> {
        let tables = folder.join(DEFAULT_TENANT.0.to_string());
        std::fs::create_dir_all(&tables).map_err(BenchError::file(&tables))?;
        Ok(tables)
    }

    /// Posts a body; the reply has to be a success.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<TimedReply, BenchError> {
        self.post_and(path, body, async || Ok(())).await
    }

    /// The same; `then` is done when the first byte of the reply's body is there.
    pub(crate) async fn post_and(
        &self,
        path: &str,
        body: &Value,
        then: impl AsyncFnOnce() -> Result<(), BenchError>,
    ) -> Result<TimedReply, BenchError> {
        let clock = Clock::start();
        let request = self.client.post(format!("{}{path}", self.url)).bearer_auth(&self.key).json(body);
        let mut reply = request.send().await?;
        let status = reply.status();
        let (mut bytes, mut first, mut then) = (Vec::new(), None, Some(then));
        while let Some(piece) = reply.chunk().await? {
            first.get_or_insert_with(|| seconds(clock));
            bytes.extend_from_slice(&piece);
            if let Some(then) = then.take().filter(|_| status.is_success()) {
                then().await?;
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        if !status.is_success() {
            return Err(BenchError::Case(format!("{path}: {status}: {text}")));
        }
        let seconds = seconds(clock);
        let lines = text.lines().map(str::to_owned).collect();
        Ok(TimedReply { lines, first: first.unwrap_or(seconds), seconds })
    }

    /// Runs a statement.
    pub(crate) async fn sql(&self, query: &str, settings: &Value) -> Result<TimedReply, BenchError> {
        let answered = self.post("/v1/sql", &json!({ "query": query, "settings": settings })).await?;
        match answered.lines.last().filter(|line| line.starts_with(r#"{"error""#)) {
            Some(error) => Err(BenchError::Case(format!("{error} of: {query}"))),
            None => Ok(answered),
        }
    }

    /// Ends it.
    pub(crate) async fn end(self) {
        self.running.drain(async {}).await;
    }
}

fn seconds(since: Clock) -> f64 {
    since.now().0 as f64 / 1e9
}
