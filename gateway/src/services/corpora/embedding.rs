//! Embedding off the connections' threads: a bounded number of groups of texts at once, a bounded number
//! waiting, and an end between two batches when nobody waits for the vectors any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use base::Millis;
use retrieval::{Embedder, Error};
use serving::Runtime;
use serving::error::{RequestError, internal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::RetrievalConfig;

/// When a refused request may come back.
const RETRY_AFTER: Millis = Millis(1_000);

/// The embedding model and who may use it now.
pub(super) struct Embedding {
    /// The model.
    pub(super) embedder: Arc<Embedder>,
    /// Its identity, as the store keeps it.
    pub(super) identity: String,
    tasks: Arc<Semaphore>,
    waiting: AtomicUsize,
    waiting_max: usize,
}

/// Says that nobody waits any more, when it is dropped.
struct Leaving(Arc<AtomicBool>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A place among those that wait.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Embedding {
    pub(super) fn new(embedder: Embedder, config: &RetrievalConfig) -> Self {
        let identity = embedder.revision().iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            embedder: Arc::new(embedder),
            identity,
            tasks: Arc::new(Semaphore::new(config.tasks_max)),
            waiting: AtomicUsize::new(0),
            waiting_max: config.waiting_max,
        }
    }

    /// Runs `work` on a thread of its own when it is its turn. Dropped before its end, it makes `work` see a
    /// stop.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        runtime: &Arc<Runtime>,
        work: impl FnOnce(&Embedder, &(dyn Fn() -> bool + Sync)) -> Result<T, RequestError> + Send + 'static,
    ) -> Result<T, RequestError> {
        let permit = self.turn().await?;
        let is_left = Arc::new(AtomicBool::new(false));
        let _leaving = Leaving(Arc::clone(&is_left));
        let (state, embedder) = (Arc::clone(runtime), Arc::clone(&self.embedder));
        let done = tokio::task::spawn_blocking(move || {
            // The turn ends with the work, not with who waits for it.
            let _permit = permit;
            work(&embedder, &|| is_left.load(Ordering::Acquire) || state.is_draining())
        });
        done.await.map_err(internal)?
    }

    async fn turn(&self) -> Result<OwnedSemaphorePermit, RequestError> {
        if let Ok(permit) = Arc::clone(&self.tasks).try_acquire_owned() {
            return Ok(permit);
        }
        let before = self.waiting.fetch_add(1, Ordering::AcqRel);
        let _waiting = Waiting(&self.waiting);
        if before >= self.waiting_max {
            let limit = format!("{} (retrieval.waiting_max)", self.waiting_max);
            return Err(RequestError::Busy {
                what: "requests that wait to be embedded",
                limit,
                retry_after: RETRY_AFTER,
            });
        }
        Arc::clone(&self.tasks).acquire_owned().await.map_err(internal)
    }
}

/// What the embedding model's refusal means to the caller.
pub(super) fn of_retrieval(error: Error) -> RequestError {
    match error {
        // Who has left does not read this.
        Error::Stopped { .. } => RequestError::ShuttingDown,
        Error::Invalid { field, reason } => RequestError::invalid(field, reason),
        Error::Unsound { .. } => RequestError::Row(error.to_string()),
        Error::File { .. } | Error::Field { .. } | Error::Model(_) => internal(error),
    }
}

#[cfg(test)]
mod tests {
    use retrieval::synthetic::Synthetic;

    use super::*;

    #[actix_web::test]
    async fn more_than_may_wait_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        Synthetic::tiny(&[], 1).write(folder.path()).unwrap();
        let embedder = Embedder::load(folder.path(), 1).unwrap();
        let config = RetrievalConfig { tasks_max: 1, waiting_max: 0, ..RetrievalConfig::default() };
        let embedding = Embedding::new(embedder, &config);
        let first = embedding.turn().await.unwrap();
        let refused = embedding.turn().await.unwrap_err();
        assert!(refused.to_string().contains("retrieval.waiting_max"), "{refused}");
        drop(first);
        drop(embedding.turn().await.unwrap());
        assert_eq!(embedding.waiting.load(Ordering::Acquire), 0);
    }
}
