//! Finished cells in memory: the front of the result cache, and the answers not yet written behind it.
//!
//! Only answers that are the same every time come here (temperature 0, or a seed the caller gave); keys
//! are hashes and always looked up together with their tenant. Bounded in entries, oldest out first. Must not
//! know what the answers are to.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use base::{End, TenantId, TokenCount};

use crate::intake::CellKey;

/// A finished cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its text.
    pub text: Arc<str>,
    /// Why it ended.
    pub end: End,
    /// Its prompt tokens.
    pub prompt: TokenCount,
    /// Its output tokens.
    pub output: TokenCount,
}

type TenantCell = (TenantId, CellKey);

#[derive(Debug, Default)]
struct Inner {
    answers: HashMap<TenantCell, Answer>,
    order: VecDeque<TenantCell>,
    unwritten: Vec<TenantCell>,
}

/// The memory in front of the stored cache.
#[derive(Debug)]
pub struct Results {
    entries_max: usize,
    inner: Mutex<Inner>,
}

impl Results {
    /// An empty cache; 0 entries keep nothing.
    pub fn new(entries_max: usize) -> Self {
        Self { entries_max, inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Keeps an answer, to be written too.
    pub fn put(&self, tenant: TenantId, key: CellKey, answer: Answer) {
        self.keep(tenant, key, answer, true);
    }

    /// Keeps an answer that was read from the store.
    pub fn put_stored(&self, tenant: TenantId, key: CellKey, answer: Answer) {
        self.keep(tenant, key, answer, false);
    }

    fn keep(&self, tenant: TenantId, key: CellKey, answer: Answer, write: bool) {
        if self.entries_max == 0 {
            return;
        }
        let place = (tenant, key);
        let mut inner = self.inner();
        if inner.answers.insert(place, answer).is_none() {
            inner.order.push_back(place);
        }
        if write {
            inner.unwritten.push(place);
        }
        while inner.answers.len() > self.entries_max {
            let Some(oldest) = inner.order.pop_front() else { break };
            inner.answers.remove(&oldest);
        }
        // An answer that was evicted before it was written is lost to the cache, never to its client.
        let excess = inner.unwritten.len().saturating_sub(self.entries_max);
        inner.unwritten.drain(..excess);
    }

    /// A tenant's answer.
    pub fn get(&self, tenant: TenantId, key: &CellKey) -> Option<Answer> {
        self.inner().answers.get(&(tenant, *key)).cloned()
    }

    /// Takes up to `most` answers that were not written yet.
    pub fn take_unwritten(&self, most: usize) -> Vec<(TenantId, CellKey, Answer)> {
        let mut inner = self.inner();
        let count = most.min(inner.unwritten.len());
        let places: Vec<TenantCell> = inner.unwritten.drain(..count).collect();
        let find =
            |place: TenantCell| inner.answers.get(&place).map(|answer| (place.0, place.1, answer.clone()));
        places.into_iter().filter_map(find).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Answer {
        Answer { text: text.into(), end: End::Stop, prompt: TokenCount(1), output: TokenCount(1) }
    }

    #[test]
    fn the_oldest_answer_leaves_and_tenants_do_not_meet() {
        let results = Results::new(2);
        let (a, b) = (TenantId(1), TenantId(2));
        results.put(a, [1; 32], answer("x"));
        assert_eq!(results.get(b, &[1; 32]), None);
        results.put(a, [2; 32], answer("y"));
        results.put_stored(a, [3; 32], answer("z"));
        assert_eq!(results.get(a, &[1; 32]), None);
        assert_eq!(results.get(a, &[3; 32]).map(|answer| answer.text), Some("z".into()));
        let unwritten = results.take_unwritten(10);
        assert_eq!(unwritten.len(), 1, "the first was evicted, the third is stored already");
        assert_eq!(results.take_unwritten(10), vec![]);
    }
}
