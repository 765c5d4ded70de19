//! SQL: a tenant's statements, whose AI columns run as relQueries of class `dashboard`.

pub mod accounts;
pub mod runner;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use actix_web::web::Data;
use base::TenantId;
use serving::caller::Caller;
use serving::error::{RequestError, internal};
use sql::registry::Registry;
use sql::tables::source::Source;
use sql::tables::{Memory, MemoryLimits, TenantTables, TenantTablesOptions};
use sql::{DataFusionError, Session};

use crate::config::Config;
use crate::state::App;

/// What all sessions share.
pub struct Sql {
    memory: Memory,
    tenants: Mutex<HashMap<TenantId, Tenant>>,
    /// Databases, connected when the first session needs them.
    sources: tokio::sync::OnceCell<Vec<Arc<Source>>>,
}

/// What the sessions of a tenant share.
#[derive(Clone)]
struct Tenant {
    registry: Arc<Registry>,
    tables: Arc<TenantTables>,
}

impl Sql {
    /// Nobody has a session yet.
    pub fn new(config: &Config) -> Result<Self, DataFusionError> {
        let limits = MemoryLimits {
            bytes_max: usize::try_from(config.sql.memory_bytes_max.0).unwrap_or(usize::MAX),
            spill_bytes_max: config.sql.spill_bytes_max.0,
            spill_folder: None,
        };
        let memory = Memory::new(&limits)?;
        Ok(Self { memory, tenants: Mutex::default(), sources: tokio::sync::OnceCell::new() })
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<TenantId, Tenant>> {
        self.tenants.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The databases of the configuration.
    async fn sources(&self, config: &Config) -> Result<&Vec<Arc<Source>>, DataFusionError> {
        let connect = async || {
            let mut sources = Vec::with_capacity(config.sql.sources.len());
            for (name, url) in &config.sql.sources {
                sources.push(Source::connect(name, &url.0).await?);
            }
            Ok(sources)
        };
        self.sources.get_or_try_init(connect).await
    }

    async fn tenant(&self, config: &Config, tenant: TenantId) -> Result<Tenant, DataFusionError> {
        if let Some(known) = self.tenants().get(&tenant) {
            return Ok(known.clone());
        }
        let sources = self.sources(config).await?.clone();
        let all = config.sql.folder.clone().unwrap_or_else(|| config.store.data_dir.join("tables"));
        let folder = all.join(tenant.0.to_string());
        std::fs::create_dir_all(&folder).map_err(DataFusionError::IoError)?;
        let created_bytes_max = config.sql.created_bytes_max.0;
        let options = TenantTablesOptions { sources, created_bytes_max, ..TenantTablesOptions::of_folder(&folder) };
        let tables = Arc::new(TenantTables::new(options, &self.memory)?);
        let made = Tenant { registry: Arc::default(), tables };
        Ok(self.tenants().entry(tenant).or_insert(made).clone())
    }
}

/// A session of a caller, with the tables that it may read.
pub async fn session(app: &Data<App>, caller: Caller) -> Result<Session, RequestError> {
    let Tenant { registry, tables } =
        app.sql.tenant(&app.config, caller.tenant).await.map_err(|error| match error {
            DataFusionError::IoError(error) => internal(error),
            error => RequestError::invalid("sql.sources", plain(&error)),
        })?;
    let session = Session::new(runner::Rows::new(app.clone(), caller), registry);
    tables.install(session.context()).map_err(internal)?;
    Ok(session)
}

/// Sets a setting of a session.
pub async fn set(session: &Session, name: &str, value: &str) -> Result<(), RequestError> {
    let field = || format!("settings.{name}");
    if name.is_empty() || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || "._".contains(letter)) {
        return Err(RequestError::invalid(field(), "must be a setting's name: letters, digits, `_` and `.`"));
    }
    let statement = format!("SET {name} = '{}'", value.replace('\'', "''"));
    let done = session.query(&statement).await;
    done.map(drop).map_err(|error| RequestError::invalid(field(), plain(&error)))
}

/// Why a statement has no result.
pub fn failed(error: DataFusionError) -> RequestError {
    match error.find_root() {
        DataFusionError::Internal(_) => internal(error),
        DataFusionError::ResourcesExhausted(reason) => {
            RequestError::TooLarge { what: "the statement's memory".into(), limit: reason.clone() }
        }
        _ => RequestError::invalid("query", plain(&error)),
    }
}

/// An error's cause, without the names of rules that it passed.
fn plain(error: &DataFusionError) -> String {
    error.find_root().strip_backtrace()
}
