//! What sessions of SQL share: tables and the list of queries for each tenant, memory for all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use base::TenantId;
use sql::DataFusionError;
use sql::registry::Registry;
use sql::tables::source::Source;
use sql::tables::{Memory, MemoryLimits, TenantTables, TenantTablesOptions};

use crate::config::Config;

/// What all sessions share.
pub struct Sql {
    memory: Memory,
    tenants: Mutex<HashMap<TenantId, TenantSql>>,
    /// Databases, connected when the first session needs them.
    sources: tokio::sync::OnceCell<Vec<Arc<Source>>>,
}

/// What the sessions of a tenant share.
#[derive(Clone)]
pub struct TenantSql {
    pub registry: Arc<Registry>,
    pub tables: Arc<TenantTables>,
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

    fn tenants(&self) -> MutexGuard<'_, HashMap<TenantId, TenantSql>> {
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

    /// What the sessions of a tenant share; its folder is made where there is none.
    pub async fn tenant(&self, config: &Config, tenant: TenantId) -> Result<TenantSql, DataFusionError> {
        if let Some(known) = self.tenants().get(&tenant) {
            return Ok(known.clone());
        }
        let sources = self.sources(config).await?.clone();
        let all = config.sql.folder.clone().unwrap_or_else(|| config.store.data_dir.join("tables"));
        let folder = all.join(tenant.0.to_string());
        std::fs::create_dir_all(&folder).map_err(DataFusionError::IoError)?;
        let created_bytes_max = config.sql.created_bytes_max.0;
        let options =
            TenantTablesOptions { sources, created_bytes_max, ..TenantTablesOptions::of_folder(&folder) };
        let tables = Arc::new(TenantTables::new(options, &self.memory)?);
        let made = TenantSql { registry: Arc::default(), tables };
        Ok(self.tenants().entry(tenant).or_insert(made).clone())
    }
}
