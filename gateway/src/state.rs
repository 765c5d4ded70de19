//! What handlers share, and which of it a request sees: the configuration changes while the server runs, and each
//! request keeps to its end the one that it began with. Must not know the handlers, nor the services that read it.

use std::sync::{Arc, PoisonError, RwLock};

use serving::Runtime;

use crate::access_log::AccessLog;
use crate::auth::remembered::Remembered;
use crate::body::budget::BodyBudget;
use crate::config::Config;
use crate::models::ServedModels;
use crate::services::batches::running::Batches;
use crate::services::corpora::loaded::Corpora;
use crate::services::held_claims::HeldClaims;
use crate::services::idempotency::IdempotencyKeys;
use crate::services::responses::running::RunningResponses;
use crate::services::sql::tenants::Sql;
use crate::services::takes::AloneQueue;
use crate::services::upload_joins::UploadJoins;

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
    /// The access log.
    #[error("server.access_log: {0}")]
    AccessLog(std::io::Error),
}

/// What handlers share, under one configuration. A clone shares all of it.
#[derive(Clone)]
pub struct App {
    /// The configuration.
    pub config: Arc<Config>,
    /// The models that are served.
    pub models: Arc<ServedModels>,
    /// The runtime of the default model: what all share (the store, the clock) is read here.
    pub runtime: Arc<Runtime>,
    /// Verdicts about keys.
    pub remembered: Arc<Remembered>,
    /// Bytes of request bodies.
    pub bodies: Arc<BodyBudget>,
    /// Corpora in memory, and the embedding model.
    pub corpora: Arc<Corpora>,
    pub idempotency: Arc<IdempotencyKeys>,
    /// Keys that no other gateway may use meanwhile.
    pub key_claims: Arc<HeldClaims>,
    /// Batches that run here.
    pub batches: Arc<Batches>,
    /// Work with which servers have ended, one after the other.
    pub alone: Arc<AloneQueue>,
    /// Responses in the background that run here.
    pub(crate) responses: Arc<RunningResponses>,
    /// Uploads whose parts are put together here.
    pub upload_joins: Arc<UploadJoins>,
    /// Statements of SQL.
    pub sql: Arc<Sql>,
    /// A line for each request, where one is kept.
    pub access_log: Option<Arc<AccessLog>>,
}

impl App {
    /// State over the runtimes of the models, the default one's first; opens the embedding model that the
    /// configuration names.
    pub fn new(runtimes: Vec<Arc<Runtime>>, config: Config) -> Result<Self, StateError> {
        let models = ServedModels::new(runtimes, &config).map_err(StateError::Models)?;
        let runtime = Arc::clone(&models.usual().runtime);
        let access_log = config.server.access_log.as_deref().map(AccessLog::open).transpose();
        Ok(Self {
            models: Arc::new(models),
            remembered: Arc::default(),
            bodies: Arc::default(),
            corpora: Arc::new(Corpora::open(&config.retrieval)?),
            idempotency: Arc::default(),
            key_claims: Arc::default(),
            batches: Arc::new(Batches::new(&config.bulk)),
            alone: Arc::default(),
            responses: Arc::default(),
            upload_joins: Arc::default(),
            sql: Arc::new(Sql::new(&config)?),
            access_log: access_log.map_err(StateError::AccessLog)?.map(Arc::new),
            runtime,
            config: Arc::new(config),
        })
    }
}

/// The state that requests see which begin now.
pub struct CurrentApp(RwLock<Arc<App>>);

impl CurrentApp {
    /// This one, for now.
    pub fn new(app: Arc<App>) -> Self {
        Self(RwLock::new(app))
    }

    /// The state of now, which its holder sees unchanged for as long as it has it.
    pub fn get(&self) -> Arc<App> {
        // Nothing is half changed: what is in it is replaced as a whole.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on this is the configuration. What has begun goes on with the one that it has, beside others' work
    /// within the bounds of what all share: those are of the new one.
    pub fn set_config(&self, config: Config) {
        let mut app = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *app = Arc::new(App { config: Arc::new(config), ..App::clone(&app) });
        let limits = &app.config.limits;
        for model in app.models.iter() {
            model.runtime.shared.intake.set_rows_max(limits.queue_rows_max);
            model.runtime.registry.set_retention(limits.retention());
            model.schemas.set_bytes_max(limits);
        }
    }
}
