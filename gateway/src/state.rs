//! What handlers share. Must not know the handlers, nor the services that read it.

use std::sync::Arc;

use serving::Runtime;

use crate::auth::remembered::Remembered;
use crate::body::budget::BodyBudget;
use crate::config::Config;
use crate::models::ServedModels;
use crate::services::batches::running::Batches;
use crate::services::corpora::loaded::Corpora;
use crate::services::idempotency::IdempotencyKeys;
use crate::services::sql::tenants::Sql;

/// Why there is no state.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The embedding model.
    #[error("retrieval.model: {0}")]
    Retrieval(#[from] retrieval::Error),
    /// What the models are called.
    #[error("models: {0}")]
    Models(String),
    /// The memory of statements.
    #[error("sql: {0}")]
    Sql(#[from] sql::DataFusionError),
}

/// What handlers share.
pub struct App {
    /// The configuration.
    pub config: Config,
    /// The models that are served.
    pub models: ServedModels,
    /// The runtime of the default model: what all share (the store, the clock) is read here.
    pub runtime: Arc<Runtime>,
    /// Verdicts about keys.
    pub remembered: Remembered,
    /// Bytes of request bodies.
    pub bodies: Arc<BodyBudget>,
    /// Corpora in memory, and the embedding model.
    pub corpora: Corpora,
    pub idempotency: Arc<IdempotencyKeys>,
    /// Batches that run here.
    pub batches: Batches,
    /// Statements of SQL.
    pub sql: Sql,
}

impl App {
    /// State over the runtimes of the models, the default one's first; opens the embedding model that the
    /// configuration names.
    pub fn new(runtimes: Vec<Arc<Runtime>>, config: Config) -> Result<Self, StateError> {
        let models = ServedModels::new(runtimes, &config).map_err(StateError::Models)?;
        let runtime = Arc::clone(&models.usual().runtime);
        Ok(Self {
            models,
            remembered: Remembered::default(),
            bodies: BodyBudget::new(config.limits.bodies_bytes_max.0),
            corpora: Corpora::open(&config.retrieval)?,
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
}
