//! Idempotency keys: which relQuery a tenant's key began, so that a repeated request is not a second run.
//!
//! Kept in memory, a bounded number per tenant, each as long as a ticket; what is over, and what has a ticket, is in the
//! store ([`crate::kept_replies`]), and so is which gateway runs what, where there are several
//! ([`crate::services::key_claims`]). A key is taken while its first request
//! is being prepared: repeats wait for that. Must not know HTTP or what a request means.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use base::{Nanos, TenantId, Time};
use serving::clock::Deadline;
use serving::ownership::Owners;
use tokio::sync::OwnedMutexGuard;

use crate::config::Config;
use crate::services::held_claims::HeldClaim;

/// Identity of a request's path and body.
pub type Digest = [u8; 32];

/// A request's key, and what the request is.
#[derive(Clone, Debug)]
pub struct RequestKey {
    /// The client's word.
    pub name: String,
    pub digest: Digest,
}

/// What a key began.
#[derive(Clone, Debug)]
pub struct First {
    /// The relQuery's public id.
    pub id: String,
    /// Ownership of its relQuery.
    pub owners: Arc<Owners>,
    /// Whether the request wants events.
    pub stream: bool,
    /// When a partial reply goes out.
    pub deadline: Option<Deadline>,
    /// What keeps other gateways from the key, while anybody waits here.
    pub claim: Weak<HeldClaim>,
}

/// The key belongs to another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reused;

type Slot = Arc<tokio::sync::Mutex<Option<First>>>;

#[derive(Debug)]
struct KeyEntry {
    serial: u64,
    digest: Digest,
    since: Time,
    slot: Slot,
}

/// The keys of one tenant.
#[derive(Debug, Default)]
struct Keys {
    entries: HashMap<String, KeyEntry>,
    /// The keys by serial number: oldest first.
    by_age: BTreeMap<u64, String>,
    last: u64,
}

impl Keys {
    fn remove(&mut self, serial: u64) {
        if let Some(key) = self.by_age.remove(&serial) {
            self.entries.remove(&key);
        }
    }

    /// Forgets what is past its time, and the oldest of more than `limit`.
    fn prune(&mut self, limit: usize, lifetime: Nanos, now: Time) {
        while let Some((&serial, key)) = self.by_age.first_key_value() {
            let is_old = self.entries.get(key).is_none_or(|entry| now.since(entry.since) >= lifetime);
            if !is_old && self.entries.len() <= limit {
                return;
            }
            self.remove(serial);
        }
    }
}

/// How many keys of a tenant are kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct KeyBounds {
    pub keys_max: usize,
    pub lifetime: Nanos,
}

impl KeyBounds {
    /// Those of a configuration.
    pub fn of(config: &Config) -> Self {
        Self { keys_max: config.limits.idempotency_keys_max, lifetime: config.store.ticket_ms_max.into() }
    }
}

/// A request's key as it comes: whose it is, the client's word, and what the request is.
#[derive(Clone, Copy, Debug)]
pub struct ClaimedKey<'a> {
    pub tenant: TenantId,
    pub name: &'a str,
    pub digest: Digest,
}

/// The keys of all tenants.
#[derive(Debug, Default)]
pub struct IdempotencyKeys {
    tenants: Mutex<HashMap<TenantId, Keys>>,
}

impl IdempotencyKeys {
    fn tenants(&self) -> MutexGuard<'_, HashMap<TenantId, Keys>> {
        self.tenants.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes a key, once nobody else has it; the guard shows what the key began, if anything.
    pub async fn claim(
        self: &Arc<Self>,
        key: ClaimedKey<'_>,
        bounds: KeyBounds,
        now: Time,
    ) -> Result<IdempotencyGuard, Reused> {
        loop {
            let (serial, slot) = self.find(key, bounds, now)?;
            let first = slot.lock_owned().await;
            let guard = IdempotencyGuard { keys: Arc::clone(self), tenant: key.tenant, serial, first };
            // The one before may have failed, and taken its key out, while this one waited.
            if self.tenants().get(&key.tenant).is_some_and(|keys| keys.by_age.contains_key(&serial)) {
                return Ok(guard);
            }
        }
    }

    /// The place of a key; made where there is none.
    fn find(&self, key: ClaimedKey<'_>, bounds: KeyBounds, now: Time) -> Result<(u64, Slot), Reused> {
        let (ClaimedKey { tenant, name, digest }, KeyBounds { keys_max, lifetime }) = (key, bounds);
        let mut tenants = self.tenants();
        let keys = tenants.entry(tenant).or_default();
        keys.prune(keys_max, lifetime, now);
        if let Some(entry) = keys.entries.get(name) {
            let is_same = entry.digest == digest;
            return if is_same { Ok((entry.serial, Arc::clone(&entry.slot))) } else { Err(Reused) };
        }
        keys.prune(keys_max.saturating_sub(1), lifetime, now);
        keys.last += 1;
        let entry = KeyEntry { serial: keys.last, digest, since: now, slot: Slot::default() };
        let place = (entry.serial, Arc::clone(&entry.slot));
        keys.by_age.insert(entry.serial, name.to_owned());
        keys.entries.insert(name.to_owned(), entry);
        Ok(place)
    }
}

/// The right to say what a key began; others with the key wait until it is dropped. Dropped without an
/// answer (the request failed, its client left), the key is free again.
#[derive(Debug)]
pub struct IdempotencyGuard {
    keys: Arc<IdempotencyKeys>,
    tenant: TenantId,
    serial: u64,
    first: OwnedMutexGuard<Option<First>>,
}

impl IdempotencyGuard {
    /// What the key began.
    pub fn first(&self) -> Option<&First> {
        self.first.as_ref()
    }

    /// What the key began, from now on; `None` where that cannot be had any more.
    pub fn set(&mut self, first: Option<First>) {
        *self.first = first;
    }
}

impl Drop for IdempotencyGuard {
    fn drop(&mut self) {
        // Before the lock on the slot is given back, so that who waits for it sees that the key is gone.
        if self.first.is_none()
            && let Some(keys) = self.keys.tenants().get_mut(&self.tenant)
        {
            keys.remove(self.serial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantId = TenantId(1);

    fn first(id: &str) -> First {
        First { id: id.into(), owners: Arc::default(), stream: false, deadline: None, claim: Weak::new() }
    }

    fn bounds(keys_max: usize) -> KeyBounds {
        KeyBounds { keys_max, lifetime: Nanos(1_000_000) }
    }

    fn key_of(tenant: TenantId, name: &str, digest: Digest) -> ClaimedKey<'_> {
        ClaimedKey { tenant, name, digest }
    }

    async fn begin(
        (keys, bounds): (&Arc<IdempotencyKeys>, KeyBounds),
        key: &str,
        now: u64,
    ) -> Option<String> {
        let claimed = keys.claim(key_of(TENANT, key, [1; 32]), bounds, Time(now)).await;
        let mut guard = claimed.expect("the same request");
        let known = guard.first().map(|first| first.id.clone());
        if known.is_none() {
            guard.set(Some(first(key)));
        }
        known
    }

    #[tokio::test]
    async fn a_key_names_one_request_for_its_lifetime() {
        let (keys, bounds) = (Arc::<IdempotencyKeys>::default(), bounds(10));
        assert_eq!(begin((&keys, bounds), "a", 0).await, None);
        assert_eq!(begin((&keys, bounds), "a", 999_999).await.as_deref(), Some("a"));
        let other = keys.claim(key_of(TENANT, "a", [2; 32]), bounds, Time(999_999)).await;
        assert_eq!(other.err(), Some(Reused));
        let foreign = keys.claim(key_of(TenantId(2), "a", [2; 32]), bounds, Time(0)).await;
        assert!(foreign.is_ok(), "another tenant's key");
        assert_eq!(begin((&keys, bounds), "a", 1_000_000).await, None, "forgotten");
    }

    #[tokio::test]
    async fn the_oldest_key_leaves_when_there_are_too_many() {
        let keys = Arc::<IdempotencyKeys>::default();
        for key in ["a", "b", "c"] {
            assert_eq!(begin((&keys, bounds(2)), key, 0).await, None);
        }
        assert_eq!(begin((&keys, bounds(2)), "c", 0).await.as_deref(), Some("c"));
        assert_eq!(begin((&keys, bounds(2)), "b", 0).await.as_deref(), Some("b"));
        assert_eq!(begin((&keys, bounds(2)), "a", 0).await, None);
        let left = || {
            let tenants = keys.tenants();
            (tenants[&TENANT].entries.len(), tenants[&TENANT].by_age.len())
        };
        assert_eq!(left(), (2, 2));
        assert_eq!(begin((&keys, bounds(3)), "b", 0).await, None);
        assert_eq!(left(), (3, 3), "a larger bound holds from the next request on");
        assert_eq!(begin((&keys, bounds(1)), "b", 0).await.as_deref(), Some("b"), "the newest");
        assert_eq!(left(), (1, 1), "as does a smaller one");
    }

    #[tokio::test]
    async fn a_turn_without_an_answer_frees_the_key_for_those_who_wait() {
        let (keys, bounds) = (Arc::<IdempotencyKeys>::default(), bounds(10));
        let failing = keys.claim(key_of(TENANT, "a", [1; 32]), bounds, Time(0)).await.expect("a new key");
        let waiting = begin((&keys, bounds), "a", 0);
        let fail = async { drop(failing) };
        assert_eq!(tokio::join!(waiting, fail).0, None);
        let again = begin((&keys, bounds), "a", 0).await;
        assert_eq!(again.as_deref(), Some("a"), "the one that waited began it");
    }
}
