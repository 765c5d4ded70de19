//! Requests and tokens, added up in memory by tenant and route, and written to the store in batches.
//!
//! Bounded by tenants times routes. Must not know where the sums are stored.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use base::TenantId;
use tokio::sync::{RwLockReadGuard, RwLockWriteGuard};

use crate::relquery_state::Usage;

/// The route of batches. What their rows use is recorded with the rows, by who records these, so that a kill separates
/// neither from the other; it is in no sum here.
pub const BATCHES: &str = "batches";

/// What a sum is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    pub tenant: TenantId,
    /// Through which route.
    pub route: &'static str,
}

/// What was used since the sums were last taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Calls.
    pub requests: u64,
    /// Rows that ran.
    pub rows: u64,
    /// Their tokens.
    pub usage: Usage,
}

/// The sums.
#[derive(Debug, Default)]
pub struct Accounts {
    sums: Mutex<BTreeMap<Account, Spent>>,
    /// Held from taking the sums to having written them: whoever adds these to the store's meanwhile would miss
    /// them.
    writing: tokio::sync::RwLock<()>,
}

impl Accounts {
    fn sums(&self) -> MutexGuard<'_, BTreeMap<Account, Spent>> {
        self.sums.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// While this is held, each sum is either here or in the store.
    pub async fn settled(&self) -> RwLockReadGuard<'_, ()> {
        self.writing.read().await
    }

    /// The right to move sums from here to the store.
    pub async fn moving(&self) -> RwLockWriteGuard<'_, ()> {
        self.writing.write().await
    }

    /// Adds to a sum.
    pub fn add(&self, account: Account, more: Spent) {
        let mut sums = self.sums();
        let spent = sums.entry(account).or_default();
        spent.requests += more.requests;
        spent.rows += more.rows;
        spent.usage += more.usage;
    }

    /// What a sum holds that was not taken yet.
    pub fn of(&self, account: Account) -> Spent {
        self.sums().get(&account).copied().unwrap_or_default()
    }

    /// Takes the sums, to be written.
    pub fn take(&self) -> BTreeMap<Account, Spent> {
        std::mem::take(&mut *self.sums())
    }

    /// Puts sums back that could not be written.
    pub fn put_back(&self, sums: BTreeMap<Account, Spent>) {
        for (account, spent) in sums {
            self.add(account, spent);
        }
    }
}
