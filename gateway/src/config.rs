//! The whole configuration: one TOML file, a struct per concern, a default for everything.
//!
//! The only module that reads files of settings and the environment. `${NAME}` inside a string is
//! replaced by that environment variable, so that secrets stay out of the file. Unknown fields are
//! refused and [`Config::validate`] names the field that would not work.

mod bulk;
mod cells;
mod certificate;
mod changed;
mod logging;
#[cfg(test)]
mod model_tests;
mod openai;
mod reloadable;
mod renamed;
#[cfg(test)]
mod replica_tests;
mod retrieval;
mod reuse;
mod server;
mod sql;
mod workbooks;

use std::path::{Path, PathBuf};

use base::{Bytes, Millis};
pub use bulk::BulkConfig;
pub use cells::CellsConfig;
pub(crate) use certificate::CertificateFiles;
pub use changed::changed_keys;
pub use openai::{OpenAiConfig, UnknownFields};
pub use reloadable::{ReplicaListChange, is_reloadable};
pub use retrieval::RetrievalConfig;
pub use reuse::ReuseConfig;
use scheduler::SchedulerConfig;
use scheduler::fleet::FleetConfig;
use serde::{Deserialize, Serialize};
pub use server::ServerConfig;
use serving::config::{
    BackendConfig, CacheConfig, CoalesceConfig, DiscoveryConfig, InvalidConfig, LiveConfig, ModelConfig,
    ModelPoolConfig, ReplicaSettings, RestartConfig, Secret, TracesConfig, Variable, expand, invalid,
    validate_models,
};
use serving::registry::Retention;
pub use sql::{SqlBudget, SqlConfig};
pub use workbooks::WorkbooksConfig;

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}: {cause}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
    /// The file is not the TOML it must be.
    #[error("the configuration is not valid: {0}")]
    Parse(String),
    /// A value that cannot work.
    #[error(transparent)]
    Invalid(#[from] InvalidConfig),
}

/// Everything `relserve serve` can be told.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The listener and its clients' patience.
    pub server: ServerConfig,
    /// Who may call.
    pub auth: AuthConfig,
    /// Bounds of what one request and all of them may ask.
    pub limits: LimitsConfig,
    /// What is served.
    pub model: ModelConfig,
    /// How the local engine runs it.
    pub engine: engine::EngineConfig,
    /// What is done when it loses its device.
    pub restart: RestartConfig,
    /// How steps are planned.
    pub scheduler: SchedulerConfig,
    /// What survives a restart.
    pub store: StoreConfig,
    /// Answers kept for the next recalculation.
    pub cache: CacheConfig,
    /// When single cell calls join an open relQuery.
    pub coalesce: CoalesceConfig,
    /// How cell functions are put to a model.
    pub cells: CellsConfig,
    /// How OpenAI's routes read requests.
    pub openai: OpenAiConfig,
    /// How modules and spans that saw only themselves are read in prompts.
    pub reuse: ReuseConfig,
    /// Corpora and their embedding model.
    pub retrieval: RetrievalConfig,
    /// SQL for BI tools.
    pub sql: SqlConfig,
    /// Files and batches.
    pub bulk: BulkConfig,
    /// Workbooks that the page keeps on the server.
    pub workbooks: WorkbooksConfig,
    /// The live view.
    pub live: LiveConfig,
    /// Traces.
    pub traces: TracesConfig,
    /// How rows are shared out among replicas.
    pub fleet: FleetConfig,
    /// What runs rows; without any, the local engine alone.
    pub replicas: Vec<ReplicaSettings>,
    /// Where more replicas are found.
    pub discovery: DiscoveryConfig,
    /// Further models, each on servers of its own.
    pub models: Vec<ModelPoolConfig>,
}

/// Who may call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthMode {
    /// Every call carries an API key.
    #[default]
    Keys,
    /// Nobody is asked: one tenant for all. Only sensible on loopback.
    None,
}

/// Keys and how long a verdict about one is remembered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthConfig {
    /// Who may call.
    pub mode: AuthMode,
    /// A revoked key stops working within this time.
    pub remember_ms: Millis,
    /// While the database is away, keys that worked within this time before still do.
    pub away_ms_max: Millis,
    /// A key of operators beside those that `relserve key create --operator` makes. Write `${NAME}` to take it from
    /// the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_key: Option<Secret>,
    /// How long a link that signs the page in works; it works once.
    pub sign_in_ms_max: Millis,
    /// How long the key works that such a link is exchanged for.
    pub sign_in_key_ms_max: Millis,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            mode: AuthMode::Keys,
            remember_ms: Millis(2_000),
            away_ms_max: Millis(60 * 60_000),
            admin_key: None,
            sign_in_ms_max: Millis(10 * 60_000),
            sign_in_key_ms_max: Millis(30 * 86_400_000),
        }
    }
}

/// Bounds of what one request and all of them may ask.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Bytes of a request body.
    pub body_bytes_max: Bytes,
    /// Bytes of all bodies that are held at once; what arrives beyond them is refused.
    pub bodies_bytes_max: Bytes,
    /// Rows of one relQuery, or calls of one cells request.
    pub rows_max: usize,
    /// Columns of a table.
    pub columns_max: usize,
    /// Bytes of one cell.
    pub cell_bytes_max: Bytes,
    /// Bytes of a template.
    pub template_bytes_max: Bytes,
    /// Bytes of a PML schema.
    pub schema_bytes_max: Bytes,
    /// Bytes of all tenants' PML schemas that are held ready; others are read again when next used.
    pub schemas_bytes_max: Bytes,
    /// PML schemas of one tenant.
    pub tenant_schemas_max: u64,
    /// Bytes of those, together; one more gets a 413.
    pub tenant_schemas_bytes_max: Bytes,
    /// Tokens of one tenant's PML schemas that may be pinned, together.
    pub tenant_pinned_tokens_max: u64,
    /// Stretches that a PML prompt may be cut into: its modules' texts, and its own between them.
    pub prompt_sections_max: usize,
    /// Output tokens of one row. OpenAI's and Anthropic's routes lower a larger number to it, as `openai.unknown_fields`
    /// says; all others refuse one.
    pub output_tokens_max: u64,
    /// Nodes of a span query, those counted that its rules make: one of its calls is several.
    pub query_nodes_max: usize,
    /// Stop strings of a request.
    pub stops_max: usize,
    /// Texts that a constraint may offer to choose from.
    pub choices_max: usize,
    /// Bytes of a constraint: its texts, its pattern or its schema.
    pub constraint_bytes_max: Bytes,
    /// Different constraints of one tenant in memory, each of up to 16 MB. Where all are in use, another gets
    /// a 429.
    pub tenant_constraints_max: usize,
    /// Time of compiling constraints that one tenant has in a minute; beyond it a new one gets a 429.
    pub tenant_compile_ms_max: Millis,
    /// Unfinished rows of all tenants together; more get a 429. The last tenth takes no rows of a tenant that would then
    /// have more than its share of the queue: its weight among those of all that have rows in it and of one more tenant.
    pub queue_rows_max: u64,
    /// Finished relQueries kept in memory for `GET`.
    pub finished_max: usize,
    /// Rows of those, together.
    pub finished_rows_max: usize,
    /// Bytes of the tickets of one tenant: requests, results until they are forgotten, and answers that statements keep
    /// while they run. Beyond it what passes its deadline gets a 429 in place of a ticket.
    pub tenant_ticket_bytes_max: Bytes,
    /// Idempotency keys remembered of one tenant.
    pub idempotency_keys_max: usize,
    /// Bytes of an answer that is kept for its idempotency key; a longer one is computed again.
    pub idempotency_reply_bytes_max: Bytes,
    /// Bytes of those of one tenant, together; the oldest go first, and what they answered is computed again.
    pub tenant_idempotency_bytes_max: Bytes,
    /// How long a request waits whose idempotency key another gateway uses for the same one; then it gets a 409. 0: at
    /// once.
    pub idempotency_wait_ms_max: Millis,
    /// Tokens of prompts and answers that a tenant's cells (`/v1/cells`) compute in a day (UTC); known answers
    /// cost nothing. Once they are spent more cells get a 429; what began before runs to its end. Without it
    /// there is no limit.
    pub tenant_day_cell_tokens_max: Option<u64>,
}

impl LimitsConfig {
    /// What is kept in memory of relQueries that ended.
    pub fn retention(&self) -> Retention {
        Retention { relqueries: self.finished_max, rows: self.finished_rows_max }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            body_bytes_max: Bytes(16 << 20),
            bodies_bytes_max: Bytes(256 << 20),
            rows_max: 20_000,
            columns_max: 256,
            cell_bytes_max: Bytes(256 << 10),
            template_bytes_max: Bytes(64 << 10),
            schema_bytes_max: Bytes(2 << 20),
            schemas_bytes_max: Bytes(32 << 20),
            tenant_schemas_max: 1_000,
            tenant_schemas_bytes_max: Bytes(64 << 20),
            tenant_pinned_tokens_max: 32_768,
            prompt_sections_max: 1_024,
            output_tokens_max: 16_384,
            query_nodes_max: 4_096,
            stops_max: 16,
            choices_max: 1_000,
            constraint_bytes_max: Bytes(64 << 10),
            tenant_constraints_max: 64,
            tenant_compile_ms_max: Millis(5_000),
            queue_rows_max: 50_000,
            finished_max: 512,
            finished_rows_max: 200_000,
            tenant_ticket_bytes_max: Bytes(256 << 20),
            idempotency_keys_max: 10_000,
            idempotency_reply_bytes_max: Bytes(1 << 20),
            tenant_idempotency_bytes_max: Bytes(64 << 20),
            idempotency_wait_ms_max: Millis(10_000),
            tenant_day_cell_tokens_max: None,
        }
    }
}

/// The longest time between two writes: leases are renewed beside them, and last three times as long.
const FLUSH_MAX: Millis = Millis(20_000);

/// Most days of usage that can be asked for.
pub const USAGE_DAYS_MAX: u32 = 400;

/// What survives a restart.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// Where files live that the server writes.
    pub data_dir: PathBuf,
    /// `sqlite://...` or `postgres://...`; by default a SQLite file in `data_dir`.
    pub database: Option<String>,
    /// Seconds for which a start waits for a database that does not answer yet; 0: it ends at once. A wrong password, a
    /// certificate that is not trusted, or a database that there is not, ends it at once whatever this is.
    pub start_wait_s: u64,
    /// Time between two writes of usage, cached answers and the like; at most 20000.
    pub flush_ms: Millis,
    /// How long a ticket can be fetched.
    pub ticket_ms_max: Millis,
    /// How often a ticket or batch is taken up of which no row is stored, because the server is killed or ends by itself
    /// each time; then it fails, of a batch the line that ran. The last time it is taken up alone, a batch line by line. At
    /// least 2.
    pub takes_max: u32,
    /// Days of which usage is kept day by day, at least 400: so many can be asked for. Of months that were over before, it
    /// is merged into one sum a month (by tenant, model and route), on the month's first day. Without it all days stay.
    pub usage_days_max: Option<u64>,
    /// This gateway's name among those that share a database; the same after a restart. A second gateway of
    /// that name is refused while the first runs.
    pub node: String,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("relserve-data"),
            database: None,
            start_wait_s: 60,
            flush_ms: Millis(500),
            ticket_ms_max: Millis(24 * 3_600_000),
            takes_max: 3,
            usage_days_max: None,
            node: "relserve".into(),
        }
    }
}

impl StoreConfig {
    /// The database's address.
    pub fn url(&self) -> String {
        match &self.database {
            Some(url) => url.clone(),
            None => format!("sqlite://{}", self.data_dir.join("relserve.db").display()),
        }
    }
}

impl Config {
    /// Reads a file; `variable` looks up the environment.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|cause| ConfigError::Read { path: path.to_owned(), cause })?;
        Self::parse(&text, &variable)
    }

    /// Takes what OpenTelemetry's variables say of traces where nothing is set.
    pub fn take_environment(&mut self) {
        self.traces.take_environment(&variable);
    }

    /// Parses the file's text; `variable` looks up the environment.
    pub fn parse(text: &str, variable: Variable<'_>) -> Result<Self, ConfigError> {
        let mut table: toml::Table =
            toml::from_str(text).map_err(|error| ConfigError::Parse(error.to_string()))?;
        renamed::refuse_old_names(&table)?;
        // The typed parse of the raw text first: its errors carry lines. Its strings may still hold
        // references.
        if !text.contains("${") {
            return toml::from_str(text).map_err(|error| ConfigError::Parse(error.to_string()));
        }
        for (field, value) in &mut table {
            expand(field, value, variable)?;
        }
        table.try_into().map_err(|error: toml::de::Error| ConfigError::Parse(error.to_string()))
    }

    /// Refuses what could not work, and names the field.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let positive: &[(&str, u64)] = &[
            ("auth.sign_in_ms_max", self.auth.sign_in_ms_max.0),
            ("auth.sign_in_key_ms_max", self.auth.sign_in_key_ms_max.0),
            ("limits.body_bytes_max", self.limits.body_bytes_max.0),
            ("limits.bodies_bytes_max", self.limits.bodies_bytes_max.0),
            ("limits.rows_max", self.limits.rows_max as u64),
            ("limits.columns_max", self.limits.columns_max as u64),
            ("limits.cell_bytes_max", self.limits.cell_bytes_max.0),
            ("limits.template_bytes_max", self.limits.template_bytes_max.0),
            ("limits.schema_bytes_max", self.limits.schema_bytes_max.0),
            ("limits.tenant_schemas_max", self.limits.tenant_schemas_max),
            ("limits.tenant_schemas_bytes_max", self.limits.tenant_schemas_bytes_max.0),
            ("limits.prompt_sections_max", self.limits.prompt_sections_max as u64),
            ("limits.output_tokens_max", self.limits.output_tokens_max),
            ("limits.tenant_constraints_max", self.limits.tenant_constraints_max as u64),
            ("limits.tenant_compile_ms_max", self.limits.tenant_compile_ms_max.0),
            ("limits.queue_rows_max", self.limits.queue_rows_max),
            ("limits.idempotency_keys_max", self.limits.idempotency_keys_max as u64),
            ("store.flush_ms", self.store.flush_ms.0),
        ];
        for (field, value) in positive {
            if *value == 0 {
                return Err(invalid(field, "must be positive").into());
            }
        }
        self.server.validate()?;
        if self.store.flush_ms > FLUSH_MAX {
            let reason =
                format!("must be at most {}: leases of tickets are renewed beside these writes", FLUSH_MAX.0);
            return Err(invalid("store.flush_ms", &reason).into());
        }
        if self.store.takes_max < 2 {
            return Err(invalid("store.takes_max", "must be at least 2: the last time is alone").into());
        }
        if self.store.usage_days_max.is_some_and(|days| days < u64::from(USAGE_DAYS_MAX)) {
            let reason = format!("must be at least {USAGE_DAYS_MAX}: so many days can be asked for");
            return Err(invalid("store.usage_days_max", &reason).into());
        }
        if let Some(url) = &self.store.database
            && !["sqlite:", "postgres:", "postgresql:"].iter().any(|scheme| url.starts_with(scheme))
        {
            return Err(invalid("store.database", "must start with sqlite: or postgres:").into());
        }
        self.retrieval.validate()?;
        self.bulk.validate()?;
        self.workbooks.validate()?;
        self.sql.validate()?;
        if self.sql.require_tls && self.sql.certificate.is_none() && self.server.certificate.is_none() {
            return Err(invalid("sql.require_tls", "needs sql.certificate or server.certificate").into());
        }
        let listen = self.server.listen;
        if self.sql.listen == Some(listen) && listen.port() != 0 {
            return Err(invalid("sql.listen", "must not be the address of server.listen").into());
        }
        self.live.validate()?;
        self.traces.validate()?;
        self.restart.validate()?;
        validate_models(&self.backends())?;
        self.engine.validate().map_err(|(field, reason)| invalid(field, &reason))?;
        self.scheduler.validate().map_err(|error| invalid("scheduler", &error.to_string()))?;
        Ok(())
    }

    /// What runs the default model: `[model]`, or the first of `[[models]]` where nothing is said of that one.
    pub fn backend(&self) -> BackendConfig<'_> {
        match self.models.first() {
            Some(first) if !self.has_own_model() => self.backend_of(first),
            _ => BackendConfig {
                model: self.model.settings(),
                engine: &self.engine,
                scheduler: &self.scheduler,
                fleet: &self.fleet,
                replicas: &self.replicas,
                discovery: &self.discovery,
                variable,
                output_tokens_max: self.limits.output_tokens_max,
                is_further: false,
            },
        }
    }

    /// What runs each model, the default one first, with the place of its section; that of `[model]` is empty.
    pub fn backends(&self) -> Vec<(String, BackendConfig<'_>)> {
        let own = (self.models.is_empty() || self.has_own_model()).then(|| (String::new(), self.backend()));
        let further = self.models.iter().enumerate();
        let further = further.map(|(index, pool)| (format!("models[{index}]"), self.backend_of(pool)));
        own.into_iter().chain(further).collect()
    }

    /// Whether anything is said of a model at the top: without, `[[models]]` are all that there is.
    fn has_own_model(&self) -> bool {
        self.model != ModelConfig::default() || !self.replicas.is_empty() || self.discovery.is_on()
    }

    fn backend_of<'a>(&'a self, pool: &'a ModelPoolConfig) -> BackendConfig<'a> {
        BackendConfig {
            model: pool.model(),
            engine: &self.engine,
            scheduler: &self.scheduler,
            fleet: &self.fleet,
            replicas: &pool.replicas,
            discovery: &pool.discovery,
            variable,
            output_tokens_max: self.limits.output_tokens_max,
            is_further: true,
        }
    }

    /// What the operator should know before anyone else does.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.server.listen.ip().is_loopback() {
            if self.server.certificate.is_none() {
                warnings.push(format!(
                    "listening on {}, beyond loopback, without TLS: name server.certificate, or put a TLS proxy in \
                     front",
                    self.server.listen
                ));
            }
            if self.auth.mode == AuthMode::None {
                warnings.push("auth.mode is \"none\": anyone who reaches this address can use it".into());
            }
        }
        warnings
    }
}

/// A variable of the environment.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A token for private models on a hub, from the variable that its own tools read.
pub fn hub_token() -> Option<String> {
    std::env::var("HF_TOKEN").ok().filter(|token| !token.is_empty())
}

/// The hub's address, from the variable that its own tools read.
pub fn hub_endpoint() -> Option<String> {
    std::env::var("HF_ENDPOINT").ok().filter(|endpoint| !endpoint.is_empty())
}

/// Whether models may not be fetched: `RELSERVE_OFFLINE`, set to anything but nothing or 0.
pub fn is_offline() -> bool {
    std::env::var_os("RELSERVE_OFFLINE").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Whether the first key of a database is printed where the output is no terminal too: `RELSERVE_SHOW_KEY=1`.
pub fn shows_key() -> bool {
    std::env::var_os("RELSERVE_SHOW_KEY").is_some_and(|value| value == "1")
}

/// Whether a terminal may be written to in colour: `NO_COLOR` and `TERM=dumb` say no.
pub fn wants_color() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && !is_dumb_terminal()
}

/// Whether the terminal takes lines alone, as `TERM=dumb` says.
pub fn is_dumb_terminal() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// What is logged: `RELSERVE_LOG`, in the syntax of `tracing_subscriber::EnvFilter`, or else `default`.
pub fn log_filter(default: &str) -> String {
    let filter = std::env::var("RELSERVE_LOG").unwrap_or_else(|_| default.to_owned());
    logging::without_contents(&filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, &|name| (name == "DB_PASSWORD").then(|| "s3${x}".into()))
    }

    fn refused(text: &str, part: &str) {
        let error = match parse(text).and_then(|config| config.validate()) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    }

    #[test]
    fn an_empty_file_is_a_valid_configuration_on_loopback() {
        let config = parse("").expect("defaults");
        config.validate().expect("defaults are valid");
        assert!(config.warnings().is_empty());
    }

    #[test]
    fn a_secret_comes_from_the_environment_and_is_not_expanded_twice() {
        let config = parse("[store]\ndatabase = \"postgres://u:${DB_PASSWORD}@h/d\"").expect("valid");
        assert_eq!(config.store.url(), "postgres://u:s3${x}@h/d");
        refused("[store]\ndatabase = \"postgres://${NOPE}\"", "store.database");
        refused("[store]\ndatabase = \"postgres://${NOPE}\"", "NOPE");
    }

    #[test]
    fn a_wrong_field_is_named() {
        refused("[server]\nlisen = \"127.0.0.1:1\"", "lisen");
        refused("[limits]\nrows_max = 0", "limits.rows_max");
        refused("[live]\nframe_ms = 0", "live.frame_ms");
        refused("[store]\ndatabase = \"mysql://x\"", "store.database");
        refused("[store]\nflush_ms = 20001", "store.flush_ms");
        refused("[store]\ntakes_max = 1", "store.takes_max");
        refused("[store]\nusage_days_max = 399", "store.usage_days_max");
        refused("[server]\nlisten = \"nowhere\"", "line 2");
        refused("[sql]\nlisten = \"127.0.0.1:8080\"", "sql.listen");
    }

    #[test]
    fn an_open_address_without_keys_is_warned_about() {
        let config = parse("[server]\nlisten = \"0.0.0.0:8080\"\n[auth]\nmode = \"none\"").expect("valid");
        assert_eq!(config.warnings().len(), 2);
    }
}
