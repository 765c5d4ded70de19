//! The responses in the background that run here, for those who read them meanwhile. Must not know who reads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::{RelQueryId, TenantId};
use serving::relquery_state::RelQueryState;

use crate::wire::openai::ResponseEnvelope;

/// A response that runs here.
#[derive(Clone, Debug)]
pub(crate) struct RunningResponse {
    pub(crate) relquery: Arc<RelQueryState>,
    /// What its replies have in common, and how its answer is read.
    pub(crate) envelope: Arc<ResponseEnvelope>,
}

/// Those that run here: as many as the queue has room for.
#[derive(Debug, Default)]
pub(crate) struct RunningResponses(Mutex<HashMap<RelQueryId, RunningResponse>>);

impl RunningResponses {
    /// One begins.
    pub(super) fn enter(&self, response: RunningResponse) {
        self.all().insert(response.relquery.id, response);
    }

    /// A tenant's response, while it runs here.
    pub(super) fn get(&self, tenant: TenantId, id: RelQueryId) -> Option<RunningResponse> {
        self.find(id).filter(|response| response.relquery.tenant == tenant)
    }

    /// The same, for whoever's it is.
    pub(super) fn find(&self, id: RelQueryId) -> Option<RunningResponse> {
        self.all().get(&id).cloned()
    }

    /// Whether none runs here.
    pub(super) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// One runs no more. Where it was taken up anew meanwhile, that one stays.
    pub(super) fn leave(&self, relquery: &Arc<RelQueryState>) {
        let mut all = self.all();
        if all.get(&relquery.id).is_some_and(|response| Arc::ptr_eq(&response.relquery, relquery)) {
            all.remove(&relquery.id);
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<RelQueryId, RunningResponse>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
