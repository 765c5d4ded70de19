//! Statements under tickets that this server works on: how many there may be, and how they are stopped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use serving::error::RequestError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// The tickets that this server works on.
#[derive(Debug)]
pub struct RunningTickets {
    free: Arc<Semaphore>,
    running: Mutex<HashMap<String, watch::Sender<bool>>>,
    max: usize,
}

impl RunningTickets {
    /// None, of at most so many.
    pub fn new(max: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(max)), running: Mutex::default(), max }
    }

    pub(super) fn running(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<bool>>> {
        self.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Room for one more.
    pub(super) fn permit(&self) -> Result<OwnedSemaphorePermit, RequestError> {
        let limit = format!("statements go on under tickets (sql.tickets_max is {})", self.max);
        let full = |_| RequestError::TooLarge { what: "one more ticket".into(), limit };
        Arc::clone(&self.free).try_acquire_owned().map_err(full)
    }
}
