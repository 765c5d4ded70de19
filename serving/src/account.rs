//! Requests and tokens, added up in memory by tenant and route, and written to the store in batches.
//!
//! A batch that may or may not have been kept is sent again as it was, under its number, so that the store can tell.
//! Of rows that the store gets with what they used ([`crate::ticket_usage`]) only their tokens are known here meanwhile.
//! Bounded by three times tenants times routes. Must not know where the sums are stored.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard};

use base::{Money, TenantId};
use scheduler::Usage;
use tokio::sync::{RwLockReadGuard, RwLockWriteGuard};

/// The route of batches. What their rows use is recorded with the lines, by who records these, so that a kill separates
/// neither from the other, and what rows used that were called off with their batch is recorded with what is said of that;
/// until then it is withheld here.
pub const BATCHES: &str = "batches";

/// What a sum is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    pub tenant: TenantId,
    /// Through which route.
    pub route: &'static str,
}

/// What was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Calls.
    pub requests: u64,
    /// Rows that ran.
    pub rows: u64,
    /// Their tokens.
    pub usage: Usage,
    /// What those cost.
    pub cost: Money,
}

impl Spent {
    /// Tokens of prompts that were computed, and of answers.
    pub fn tokens(&self) -> u64 {
        self.usage.computed.0.saturating_add(self.usage.output.0)
    }
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, more: Self) {
        self.requests += more.requests;
        self.rows += more.rows;
        self.usage += more.usage;
        self.cost = self.cost.saturating_add(more.cost);
    }
}

/// Sums on their way to the store.
#[derive(Debug)]
pub struct SentSums {
    /// Larger than that of those before.
    pub number: u64,
    /// The UTC day that they are of, counted from 1970-01-01.
    pub day: u64,
    pub sums: BTreeMap<Account, Spent>,
}

#[derive(Debug, Default)]
struct Sums {
    /// What was used since sums were last sent.
    new: BTreeMap<Account, Spent>,
    /// What was sent and is not known to be kept.
    sent: Option<Arc<SentSums>>,
    /// The number of what was sent last.
    last: u64,
    /// Tokens that the store gets with the rows that took them.
    withheld: BTreeMap<Account, u64>,
}

/// The sums.
#[derive(Debug)]
pub struct Accounts {
    writer: String,
    sums: Mutex<Sums>,
    /// Held from sending sums to knowing that they are kept: whoever adds these to the store's meanwhile would count
    /// them twice.
    writing: tokio::sync::RwLock<()>,
}

impl Accounts {
    /// Nothing used. No two accounts that one store ever has may have one name as its writers.
    pub fn new(writer: String) -> Self {
        Self { writer, sums: Mutex::default(), writing: tokio::sync::RwLock::default() }
    }

    /// Their name in the store.
    pub fn writer(&self) -> &str {
        &self.writer
    }

    fn sums(&self) -> MutexGuard<'_, Sums> {
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
        *self.sums().new.entry(account).or_default() += more;
    }

    /// What a sum holds that is not known to be in the store.
    pub fn of(&self, account: Account) -> Spent {
        let sums = self.sums();
        let mut spent = sums.new.get(&account).copied().unwrap_or_default();
        if let Some(more) = sums.sent.as_ref().and_then(|sent| sent.sums.get(&account)) {
            spent += *more;
        }
        spent
    }

    /// A row has ended that the store gets with what it used.
    pub(crate) fn withhold(&self, account: Account, spent: &Spent) {
        let mut sums = self.sums();
        let tokens = sums.withheld.entry(account).or_default();
        *tokens = tokens.saturating_add(spent.tokens());
    }

    /// The store has that row, or never gets it.
    pub(crate) fn release(&self, account: Account, spent: &Spent) {
        if let Entry::Occupied(mut tokens) = self.sums().withheld.entry(account) {
            *tokens.get_mut() = tokens.get().saturating_sub(spent.tokens());
            if *tokens.get() == 0 {
                tokens.remove();
            }
        }
    }

    /// Tokens, computed and put out, of an account that are not known to be in the store. Who adds the store's asks here
    /// first: what moves meanwhile counts twice then, and never not at all.
    pub fn unwritten_tokens(&self, account: Account) -> u64 {
        let withheld = self.sums().withheld.get(&account).copied().unwrap_or_default();
        withheld.saturating_add(self.of(account).tokens())
    }

    /// The sums to write: those that were sent and not [`kept`](Self::kept), as they were; else what was used since,
    /// which is of `day`. `None`: nothing.
    pub fn send(&self, day: u64) -> Option<Arc<SentSums>> {
        let mut sums = self.sums();
        if sums.sent.is_none() && !sums.new.is_empty() {
            sums.last += 1;
            let (number, new) = (sums.last, std::mem::take(&mut sums.new));
            sums.sent = Some(Arc::new(SentSums { number, day, sums: new }));
        }
        sums.sent.clone()
    }

    /// What was sent is in the store.
    pub fn kept(&self) {
        self.sums().sent = None;
    }
}

#[cfg(test)]
mod tests {
    use base::TokenCount;

    use super::*;

    const ACCOUNT: Account = Account { tenant: TenantId(1), route: "cells" };

    #[test]
    fn sums_that_may_have_been_kept_are_sent_again_as_they_were() {
        let accounts = Accounts::new("a process".to_owned());
        let add = |rows| accounts.add(ACCOUNT, Spent { rows, ..Spent::default() });
        assert!(accounts.send(1).is_none());
        add(3);
        let first = accounts.send(1).expect("something was used");
        add(4);
        let again = accounts.send(2).expect("it is not known to be kept");
        assert_eq!((again.number, again.day, again.sums[&ACCOUNT].rows), (first.number, 1, 3));
        assert_eq!(accounts.of(ACCOUNT).rows, 7, "each counts, once");
        accounts.kept();
        assert_eq!(accounts.of(ACCOUNT).rows, 4);
        let second = accounts.send(2).expect("what came since");
        assert!(second.number > first.number);
        assert_eq!((second.day, second.sums[&ACCOUNT].rows), (2, 4));
        accounts.kept();
        assert!(accounts.send(2).is_none());
        assert_eq!(accounts.of(ACCOUNT), Spent::default());
    }

    #[test]
    fn tokens_of_rows_that_are_not_stored_yet_count_until_they_are() {
        let accounts = Accounts::new("a process".to_owned());
        let spent = |computed, output| {
            let usage =
                Usage { computed: TokenCount(computed), output: TokenCount(output), ..Usage::default() };
            Spent { rows: 1, usage, ..Spent::default() }
        };
        accounts.add(ACCOUNT, spent(3, 1));
        accounts.withhold(ACCOUNT, &spent(20, 5));
        accounts.withhold(ACCOUNT, &spent(100, 0));
        assert_eq!((accounts.unwritten_tokens(ACCOUNT), accounts.of(ACCOUNT).rows), (129, 1));
        assert_eq!(accounts.send(1).expect("a row").sums[&ACCOUNT], spent(3, 1), "the others are not sent");
        accounts.release(ACCOUNT, &spent(20, 5));
        assert_eq!(accounts.unwritten_tokens(ACCOUNT), 104);
        accounts.release(ACCOUNT, &spent(100, 0));
        accounts.release(ACCOUNT, &spent(100, 0));
        accounts.kept();
        assert_eq!(accounts.unwritten_tokens(ACCOUNT), 0);
    }
}
