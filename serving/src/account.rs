//! Requests and tokens, added up in memory by tenant and route, and written to the store in batches; until then they
//! are in a journal too, where there is one.
//!
//! A batch that may or may not have been kept is sent again as it was, under its number, so that the store can tell.
//! Of rows that the store gets with what they used ([`crate::ticket_usage`]) only their tokens are known here meanwhile.
//! Bounded by three times tenants times routes. Must not know where the sums are stored.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::{Money, TenantId};
use scheduler::Usage;
use tokio::sync::{RwLockReadGuard, RwLockWriteGuard};

use crate::usage_journal::{JournalEntry, UsageJournal};

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
    /// The UTC day that was last heard of.
    day: u64,
    /// What outlives the process of what is new and what was sent.
    journal: Option<UsageJournal>,
}

impl Sums {
    /// Writes down what was added. `new` is what is sent under the next number.
    fn write_down(&mut self, account: Account, more: &Spent) {
        if let Some(journal) = &mut self.journal {
            journal.add(self.last + 1, &entry(self.day, account, more), entries(self.day, &self.new));
        }
    }

    /// Writes down what could not be written down before.
    fn complete_journal(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        if let Some(sent) = &self.sent {
            journal.complete(sent.number, entries(sent.day, &sent.sums));
        }
        if !self.new.is_empty() {
            journal.complete(self.last + 1, entries(self.day, &self.new));
        }
        journal.prepare();
    }
}

/// What an account used on a day, as a journal has it.
fn entry(day: u64, account: Account, spent: &Spent) -> JournalEntry {
    JournalEntry {
        tenant: account.tenant.0,
        day,
        route: Cow::Borrowed(account.route),
        requests: spent.requests,
        rows: spent.rows,
        prompt: spent.usage.prompt.0,
        cached: spent.usage.cached.0,
        computed: spent.usage.computed.0,
        output: spent.usage.output.0,
        cost: spent.cost.0,
    }
}

fn entries(day: u64, sums: &BTreeMap<Account, Spent>) -> impl Iterator<Item = JournalEntry> {
    sums.iter().map(move |(account, spent)| entry(day, *account, spent))
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

    /// The same with a journal of this writer. `day`: the UTC day, until [`Self::send`] is told another.
    pub fn with_journal(mut self, journal: UsageJournal, day: u64) -> Self {
        let sums = self.sums.get_mut().unwrap_or_else(PoisonError::into_inner);
        (sums.journal, sums.day) = (Some(journal), day);
        self
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

    /// Adds to a sum. Where there is a journal it has it from here on.
    pub fn add(&self, account: Account, more: Spent) {
        let mut sums = self.sums();
        *sums.new.entry(account).or_default() += more;
        sums.write_down(account, &more);
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
        sums.day = day;
        if sums.sent.is_none() && !sums.new.is_empty() {
            sums.last += 1;
            let (number, new) = (sums.last, std::mem::take(&mut sums.new));
            sums.sent = Some(Arc::new(SentSums { number, day, sums: new }));
        }
        sums.complete_journal();
        sums.sent.clone()
    }

    /// What was sent is in the store.
    pub fn kept(&self) {
        let mut sums = self.sums();
        let sent = sums.sent.take();
        if let (Some(sent), Some(journal)) = (sent, &mut sums.journal) {
            journal.remove(sent.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use base::TokenCount;

    use super::*;
    use crate::clock::Clock;
    use crate::usage_journal::tests::on_disk;
    use crate::usage_journal::{JournalFolder, LeftSegment};

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
    fn what_the_store_may_not_have_is_in_the_journal_under_the_number_that_it_is_sent_with() {
        let data = tempfile::tempdir().expect("a folder");
        let folder = Arc::new(JournalFolder::open(data.path()).expect("made"));
        let failures = prometheus::IntCounter::new("failures", "of writes").expect("a name");
        let names = ("a process".to_owned(), "demo".to_owned());
        let journal = UsageJournal::new(folder, names, Clock::stopped(), failures);
        let accounts = Accounts::new("a process".to_owned()).with_journal(journal, 1);
        let add = |rows| accounts.add(ACCOUNT, Spent { rows, ..Spent::default() });
        // Of each write its number, and days and rows of its amounts.
        let amounts = |left: &LeftSegment| -> Vec<(u64, u64)> {
            left.entries.iter().map(|entry| (entry.day, entry.rows)).collect()
        };
        let left = || -> Vec<(u64, Vec<(u64, u64)>)> {
            on_disk(data.path()).iter().map(|left| (left.head.number, amounts(left))).collect()
        };
        assert!(accounts.send(1).is_none() && left().is_empty());
        add(3);
        assert_eq!(left(), [(1, vec![(1, 3)])]);
        assert_eq!(accounts.send(2).expect("something was used").number, 1);
        add(4);
        add(5);
        assert_eq!(accounts.send(2).expect("it is not known to be kept").number, 1);
        assert_eq!(left(), [(1, vec![(1, 3)]), (2, vec![(2, 4), (2, 5)])]);
        accounts.kept();
        assert_eq!(left(), [(2, vec![(2, 4), (2, 5)])]);
        assert_eq!(accounts.send(2).expect("what came since").number, 2);
        accounts.kept();
        assert!(left().is_empty());
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
