//! Requests to cancel: they come over connections of their own, with the number and the secret of another.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use super::scram;

/// Names a connection, and proves the right to cancel what it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CancelKey {
    pub(super) pid: i32,
    pub(super) secret: i32,
}

/// The connections that may be cancelled.
#[derive(Debug, Default)]
pub(super) struct Cancels {
    connections: Mutex<HashMap<CancelKey, watch::Sender<u64>>>,
    pid: AtomicI32,
}

impl Cancels {
    /// Lists a connection until the result is dropped.
    pub(super) fn register(self: &Arc<Self>) -> std::io::Result<Cancel> {
        let mut secret = [0; 4];
        scram::fill(&mut secret)?;
        let pid = self.pid.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let key = CancelKey { pid, secret: i32::from_be_bytes(secret) };
        let (sender, requests) = watch::channel(0);
        self.lock().insert(key, sender);
        Ok(Cancel { key, requests, all: Arc::clone(self) })
    }

    /// Cancels what a connection runs; nothing where the key is wrong.
    pub(super) fn cancel(&self, key: CancelKey) {
        if let Some(connection) = self.lock().get(&key) {
            connection.send_modify(|requests| *requests += 1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CancelKey, watch::Sender<u64>>> {
        self.connections.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A connection's side.
#[derive(Debug)]
pub(super) struct Cancel {
    pub(super) key: CancelKey,
    requests: watch::Receiver<u64>,
    all: Arc<Cancels>,
}

impl Cancel {
    /// Forgets requests that came before: they meant a statement that is over.
    pub(super) fn forget(&mut self) {
        self.requests.mark_unchanged();
    }

    /// Returns when a request comes.
    pub(super) async fn requested(&mut self) {
        if self.requests.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

impl Drop for Cancel {
    fn drop(&mut self) {
        self.all.lock().remove(&self.key);
    }
}
