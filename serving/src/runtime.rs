//! What every door shares of a model that is served: the store, the loop's state and the relQueries in memory.
//! Each model has a runtime, and so a loop, of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use store::Store;

use crate::config::CacheConfig;
use crate::model::Model;
use crate::registry::Registry;
use crate::replicas::ReplicaMembers;
use crate::shared::Shared;
use crate::view::View;

/// What every door shares of a model.
pub struct Runtime {
    pub model: Model,
    /// Which replicas run its rows; none where the local engine is alone.
    pub members: Option<Arc<ReplicaMembers>>,
    /// What survives a restart.
    pub store: Store,
    /// What the loop shares.
    pub shared: Arc<Shared>,
    /// RelQueries by id.
    pub registry: Registry,
    /// Answers kept for the next recalculation.
    pub cache: CacheConfig,
    is_draining: AtomicBool,
}

impl Runtime {
    /// One that takes work.
    pub(crate) fn new(
        (model, members): (Model, Option<Arc<ReplicaMembers>>),
        store: Store,
        shared: Arc<Shared>,
        registry: Registry,
        cache: CacheConfig,
    ) -> Self {
        Self { model, members, store, shared, registry, cache, is_draining: AtomicBool::new(false) }
    }

    /// Asks the database for the time. Where it does not say, what is known of it goes on.
    pub async fn look_at_database_clock(&self) {
        let asked = self.shared.clock.now();
        match self.store.now().await {
            Ok(said) => self.shared.database_clock.answered(said, (asked, self.shared.clock.now())),
            Err(error) => tracing::warn!(%error, "the database does not say what time it is"),
        }
    }

    /// Whether new work is refused because the server ends.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Refuses new work from now on.
    pub fn begin_drain(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    /// Removes the series of tenants that have gone idle from `/metrics`.
    pub fn forget_idle_tenants(&self) {
        let running = self.registry.running().iter().map(|relquery| relquery.tenant).collect();
        self.shared.metrics.forget_idle_tenants(&running, self.shared.clock.now());
    }

    /// The scheduler's last word about itself.
    pub fn view(&self) -> View {
        self.shared.view.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}
