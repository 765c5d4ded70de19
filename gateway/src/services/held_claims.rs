//! Idempotency keys that this gateway has claimed in a store that several share, and how they are given back: when the
//! last that holds one lets go. Must not know what is done with them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use store::{KeyClaim, Store};

/// Tries to give a key back while the database is away, and the time between two: longer than it is claimed for.
const TRIES_MAX: u32 = 60;
const RETRY: Duration = Duration::from_secs(1);

/// The tokens of all that are held.
#[derive(Debug, Default)]
pub struct HeldClaims(Mutex<BTreeSet<String>>);

impl HeldClaims {
    /// Their tokens.
    pub fn tokens(&self) -> Vec<String> {
        self.all().iter().cloned().collect()
    }

    fn all(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key that is this gateway's for as long as this lives.
#[derive(Debug)]
pub struct HeldClaim {
    pub claim: KeyClaim,
    store: Store,
    all: Arc<HeldClaims>,
    may_be_ours: AtomicBool,
}

impl HeldClaim {
    /// One that is about to be asked for.
    pub fn new(claim: KeyClaim, store: &Store, all: &Arc<HeldClaims>) -> Self {
        all.all().insert(claim.token.clone());
        Self { claim, store: store.clone(), all: Arc::clone(all), may_be_ours: AtomicBool::new(false) }
    }

    /// Whether it may be in the store: then it is taken out at the end.
    pub fn note(&self, may_be_ours: bool) {
        self.may_be_ours.store(may_be_ours, Ordering::Relaxed);
    }
}

impl Drop for HeldClaim {
    fn drop(&mut self) {
        self.all.all().remove(&self.claim.token);
        if !self.may_be_ours.load(Ordering::Relaxed) {
            return;
        }
        // Without a runtime the process ends, which gives all of them back at once.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (store, claim) = (self.store.clone(), self.claim.clone());
        runtime.spawn(async move {
            for _ in 0..TRIES_MAX {
                match store.end_key_claim(&claim).await {
                    Err(error) if error.is_transient() => tokio::time::sleep(RETRY).await,
                    Err(error) => return tracing::warn!(%error, "an idempotency key was not given back"),
                    Ok(()) => return,
                }
            }
        });
    }
}
