//! The batches that run on this gateway. Must not know what a batch does.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, watch as signal};

use crate::config::BulkConfig;

/// How long the end of the server waits for workers to record their last rows.
const LAST_WRITES_MAX: Duration = Duration::from_secs(5);

/// The batches of this gateway.
#[derive(Debug)]
pub struct Batches {
    /// Rooms for batches that run.
    pub(super) running: Semaphore,
    /// Those that a worker has.
    started: Mutex<HashSet<String>>,
    /// Tells workers to look at their batch; who is busy meanwhile sees it later.
    pub(super) look: signal::Sender<()>,
    /// Tells who waits for workers that one has ended.
    pub(super) ended: Notify,
}

impl Batches {
    /// None yet.
    pub fn new(config: &BulkConfig) -> Self {
        let running = Semaphore::new(config.running_max.min(Semaphore::MAX_PERMITS));
        Self { running, started: Mutex::default(), look: signal::Sender::new(()), ended: Notify::new() }
    }

    pub(super) fn started(&self) -> MutexGuard<'_, HashSet<String>> {
        self.started.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.started().len()
    }

    /// Waits, for a while, until no worker is left: the server has ended their rows.
    pub async fn ended(&self) {
        self.look.send_replace(());
        let wait = async {
            loop {
                let ended = self.ended.notified();
                if self.workers() == 0 {
                    return;
                }
                ended.await;
            }
        };
        if tokio::time::timeout(LAST_WRITES_MAX, wait).await.is_err() {
            tracing::warn!("some batches did not record their last rows; the next start repeats those");
        }
    }
}
