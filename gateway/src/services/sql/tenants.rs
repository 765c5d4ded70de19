//! What sessions of SQL share: tables and the list of queries for each tenant, memory for all.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base::{Nanos, TenantId, Time};
use futures_util::future::join_all;
use serving::Runtime;
use serving::clock::Clock;
use sql::DataFusionError;
use sql::registry::Registry;
use sql::tables::source::Source;
use sql::tables::{Files, Memory, MemoryLimits, TenantTables, TenantTablesOptions};

use super::budgets::Budgets;
use super::running::RunningTickets;
use super::uploads::Uploads;
use crate::config::Config;

/// Time for the databases of the configuration to answer a session that wants their tables.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// For so long a database that did not answer is not asked again: sessions begin without it at once.
const SILENT: Nanos = Nanos(30_000_000_000);

/// What all sessions share.
pub struct Sql {
    memory: Memory,
    registries: Mutex<HashMap<TenantId, Arc<Registry>>>,
    tables: Mutex<HashMap<TenantId, Arc<TenantTables>>>,
    sources: tokio::sync::Mutex<Sources>,
    pub budgets: Budgets,
    /// Statements that outlive their clients.
    pub tickets: RunningTickets,
}

/// The databases of the configuration, by their names.
#[derive(Default)]
struct Sources {
    connected: BTreeMap<String, Arc<Source>>,
    /// When those that did not answer are asked again.
    silent: BTreeMap<String, Time>,
}

impl Sql {
    /// Nobody has a session yet.
    pub fn new(config: &Config) -> Result<Self, DataFusionError> {
        let limits = MemoryLimits {
            bytes_max: usize::try_from(config.sql.memory_bytes_max.0).unwrap_or(usize::MAX),
            spill_bytes_max: config.sql.spill_bytes_max.0,
            spill_folder: None,
        };
        Ok(Self {
            memory: Memory::new(&limits)?,
            registries: Mutex::default(),
            tables: Mutex::default(),
            sources: tokio::sync::Mutex::default(),
            budgets: Budgets::default(),
            tickets: RunningTickets::new(config.sql.tickets_max),
        })
    }

    /// The queries of a tenant.
    pub fn registry(&self, tenant: TenantId) -> Arc<Registry> {
        let mut registries = self.registries.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        Arc::clone(registries.entry(tenant).or_default())
    }

    fn known_tables(&self) -> MutexGuard<'_, HashMap<TenantId, Arc<TenantTables>>> {
        self.tables.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The databases of the configuration that answer, and whether these are all. One that does not is told
    /// and asked again by a later session; the others' tables are there meanwhile.
    async fn sources(&self, config: &Config, clock: Clock) -> (Vec<Arc<Source>>, bool) {
        let mut known = self.sources.lock().await;
        let Sources { connected, silent } = &mut *known;
        let now = clock.now();
        silent.retain(|_, until| *until > now);
        let wanted = config.sql.sources.iter();
        let wanted = wanted.filter(|(name, _)| !connected.contains_key(*name) && !silent.contains_key(*name));
        let asked = wanted.map(async |(name, url)| {
            (name, tokio::time::timeout(CONNECT_MAX, Source::connect(name, &url.0)).await)
        });
        for (name, answer) in join_all(asked).await {
            match answer {
                Ok(Ok(source)) => {
                    connected.insert(name.clone(), source);
                    continue;
                }
                Ok(Err(error)) => tracing::warn!(%error, "a database of sql.sources cannot be read"),
                Err(_) => tracing::warn!(source = %name, "a database of sql.sources does not answer"),
            }
            silent.insert(name.clone(), clock.now() + SILENT);
        }
        (connected.values().cloned().collect(), connected.len() == config.sql.sources.len())
    }

    /// A tenant's tables; its folder is made where there is none.
    pub async fn tables(
        &self,
        runtime: &Arc<Runtime>,
        config: &Config,
        tenant: TenantId,
    ) -> Result<Arc<TenantTables>, DataFusionError> {
        if let Some(known) = self.known_tables().get(&tenant) {
            return Ok(Arc::clone(known));
        }
        let (sources, are_all) = self.sources(config, runtime.shared.clock).await;
        let folder = made_folder(config, tenant).map_err(DataFusionError::IoError)?;
        let files = Arc::new(Files::of_origin(Arc::new(Uploads::of(runtime, config, tenant))));
        let options = TenantTablesOptions {
            folder,
            files,
            sources,
            created_bytes_max: config.sql.created_bytes_max.0,
            tenant_created_bytes_max: config.sql.tenant_created_bytes_max.0,
        };
        let tables = Arc::new(TenantTables::new(options, &self.memory)?);
        if are_all {
            return Ok(Arc::clone(self.known_tables().entry(tenant).or_insert(tables)));
        }
        Ok(tables)
    }
}

/// Where a tenant's tables are.
pub fn folder(config: &Config, tenant: TenantId) -> PathBuf {
    let all = config.sql.folder.clone().unwrap_or_else(|| config.store.data_dir.join("tables"));
    all.join(tenant.0.to_string())
}

/// The same, made where there is none.
pub fn made_folder(config: &Config, tenant: TenantId) -> std::io::Result<PathBuf> {
    let folder = folder(config, tenant);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
