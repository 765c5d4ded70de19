//! Finished cells in memory: the front of the result cache, and the answers not yet written behind it.
//!
//! Only answers that are the same every time come here (temperature 0, or a seed the caller gave); keys are
//! hashes and always looked up together with their tenant. Bounded in entries; what is asked for again stays
//! while what is seen once goes. Must not know what the answers are to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use base::{End, TenantId, TokenCount};
use quick_cache::sync::Cache;

/// Identity of a cell's answer within a tenant: model revision, prompt tokens and generation, hashed.
pub type CellKey = [u8; 32];

/// A finished cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub text: Arc<str>,
    /// Why it ended.
    pub end: End,
    pub prompt: TokenCount,
    pub output: TokenCount,
    /// How likely it was among all that its constraint allowed, where that is known.
    pub probability: Option<f64>,
}

type TenantCell = (TenantId, CellKey);

/// The memory in front of the stored cache.
#[derive(Debug)]
pub struct Results {
    entries_max: usize,
    answers: Cache<TenantCell, Answer>,
    /// Oldest first, with their texts: an answer that memory has let go is written all the same.
    unwritten: Mutex<VecDeque<(TenantId, CellKey, Answer)>>,
}

impl Results {
    /// An empty cache; 0 entries keep nothing.
    pub fn new(entries_max: usize) -> Self {
        Self { entries_max, answers: Cache::new(entries_max), unwritten: Mutex::default() }
    }

    fn unwritten(&self) -> MutexGuard<'_, VecDeque<(TenantId, CellKey, Answer)>> {
        self.unwritten.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Has an answer written that memory has had.
    pub fn write_later(&self, tenant: TenantId, key: CellKey, answer: Answer) {
        if self.entries_max == 0 {
            return;
        }
        let mut unwritten = self.unwritten();
        // What the store does not take in time is lost to the cache, never to its client.
        if unwritten.len() == self.entries_max {
            unwritten.pop_front();
        }
        unwritten.push_back((tenant, key, answer));
    }

    /// Keeps an answer in memory: one that was read from the store, or that is [written later](Self::write_later).
    pub fn put_in_memory(&self, tenant: TenantId, key: CellKey, answer: Answer) {
        if self.entries_max > 0 {
            self.answers.insert((tenant, key), answer);
        }
    }

    /// Forgets an answer in memory.
    pub(crate) fn forget(&self, tenant: TenantId, key: &CellKey) {
        self.answers.remove(&(tenant, *key));
    }

    /// A tenant's answer.
    pub fn get(&self, tenant: TenantId, key: &CellKey) -> Option<Answer> {
        self.answers.get(&(tenant, *key))
    }

    /// Takes up to `most` answers that were not written yet.
    pub fn take_unwritten(&self, most: usize) -> Vec<(TenantId, CellKey, Answer)> {
        let mut unwritten = self.unwritten();
        let count = most.min(unwritten.len());
        unwritten.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Answer {
        Answer {
            text: text.into(),
            end: End::Stop,
            prompt: TokenCount(1),
            output: TokenCount(1),
            probability: None,
        }
    }

    fn key(number: u32) -> CellKey {
        let mut key = [0; 32];
        key[..4].copy_from_slice(&number.to_le_bytes());
        key
    }

    #[test]
    fn entries_are_bounded_and_tenants_do_not_meet() {
        let results = Results::new(2);
        let (a, b) = (TenantId(1), TenantId(2));
        results.put_in_memory(a, key(1), answer("x"));
        assert_eq!(results.get(b, &key(1)), None);
        results.put_in_memory(a, key(2), answer("y"));
        assert_eq!(results.get(a, &key(2)).map(|answer| answer.text), Some("y".into()));
        results.forget(b, &key(2));
        assert!(results.get(a, &key(2)).is_some(), "it is another tenant's");
        results.forget(a, &key(2));
        assert_eq!(results.get(a, &key(2)), None);
        (3..100).for_each(|number| results.put_in_memory(a, key(number), answer("z")));
        assert_eq!((1..100).filter(|number| results.get(a, &key(*number)).is_some()).count(), 2);
        let nothing = Results::new(0);
        nothing.put_in_memory(a, key(1), answer("x"));
        nothing.write_later(a, key(1), answer("x"));
        assert_eq!((nothing.get(a, &key(1)), nothing.take_unwritten(10)), (None, vec![]));
    }

    #[test]
    fn what_was_not_written_is_taken_once_in_its_order_and_bounded() {
        let results = Results::new(3);
        let numbers = |taken: Vec<(TenantId, CellKey, Answer)>| -> Vec<u8> {
            taken.into_iter().map(|(_, key, _)| key[0]).collect()
        };
        for number in 1..=5 {
            results.write_later(TenantId(1), key(number), answer("x"));
            results.put_in_memory(TenantId(1), key(100 + number), answer("stored already"));
        }
        assert_eq!(numbers(results.take_unwritten(2)), [3, 4]);
        assert_eq!(numbers(results.take_unwritten(10)), [5], "whether memory still has it or not");
        assert_eq!(numbers(results.take_unwritten(10)), [0; 0]);
    }

    #[test]
    fn cells_that_are_asked_for_again_survive_a_sheet_that_is_read_once() {
        let (results, tenant) = (Results::new(1_000), TenantId(1));
        let hot = 0..100;
        for number in hot.clone() {
            results.put_in_memory(tenant, key(number), answer("hot"));
        }
        for _ in 0..3 {
            assert!(hot.clone().all(|number| results.get(tenant, &key(number)).is_some()));
        }
        // Oldest first out, these would be gone after a tenth of it.
        for number in 1_000..11_000 {
            results.put_in_memory(tenant, key(number), answer("once"));
        }
        let left = hot.filter(|number| results.get(tenant, &key(*number)).is_some()).count();
        assert!(left >= 95, "{left} of 100 hot cells are left");
    }
}
