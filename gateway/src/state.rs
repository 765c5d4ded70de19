//! What handlers share. Must not know the handlers, nor the services that read it.

use std::sync::Arc;

use ir::Tags;
use serving::Runtime;

use crate::auth::remembered::Remembered;
use crate::config::Config;
use crate::services::batches::running::Batches;
use crate::services::constraints::Constraints;
use crate::services::corpora::loaded::Corpora;
use crate::services::idempotency::IdempotencyKeys;
use crate::services::schemas::ready::Schemas;
use crate::services::sql::tenants::Sql;

/// Why there is no state.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The embedding model.
    #[error("retrieval.model: {0}")]
    Retrieval(#[from] retrieval::Error),
    /// The memory of statements.
    #[error("sql: {0}")]
    Sql(#[from] sql::DataFusionError),
}

/// What handlers share.
pub struct App {
    /// The configuration.
    pub config: Config,
    /// The runtime behind all doors.
    pub runtime: Arc<Runtime>,
    /// Verdicts about keys.
    pub remembered: Remembered,
    /// What tenants have compiled.
    pub constraints: Constraints,
    tags: Result<Tags, String>,
    /// PML schemas.
    pub schemas: Schemas,
    /// Corpora in memory, and the embedding model.
    pub corpora: Corpora,
    pub idempotency: Arc<IdempotencyKeys>,
    /// Batches that run here.
    pub batches: Batches,
    /// Statements of SQL.
    pub sql: Sql,
}

impl App {
    /// State over a runtime; opens the embedding model that the configuration names.
    pub fn new(runtime: Arc<Runtime>, config: Config) -> Result<Self, StateError> {
        let (model, clock) = (&runtime.model, runtime.shared.clock);
        Ok(Self {
            remembered: Remembered::default(),
            corpora: Corpora::open(&config.retrieval)?,
            constraints: Constraints::new(model.constraints.clone(), &config.limits, clock),
            tags: model.tags(),
            schemas: Schemas::new(&config.limits),
            idempotency: Arc::new(IdempotencyKeys::new(
                config.limits.idempotency_keys_max,
                config.store.ticket_ms_max,
            )),
            batches: Batches::new(&config.bulk),
            sql: Sql::new(&config)?,
            runtime,
            config,
        })
    }

    /// The markup of messages, or why the model has none.
    pub fn tags(&self) -> Result<&Tags, &str> {
        self.tags.as_ref().map_err(String::as_str)
    }
}
