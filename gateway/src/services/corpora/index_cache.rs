//! Indexes in memory: made from the store when a corpus is first asked for, kept while there is room. Of
//! those that nobody uses, the ones that are asked for again stay while those that were asked for once go.
//!
//! An index belongs to one revision of its corpus. Who finds another revision in the store makes it anew, so
//! several gateways can share a database; a write through this gateway is applied to the index at hand.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use base::TenantId;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};
use retrieval::{Fragment, Index};
use store::NewDocument;
use tokio::sync::RwLock;

/// Whose corpus, of what name.
pub(super) type Key = (TenantId, String);

/// An index and the revision of its corpus.
#[derive(Debug)]
pub(super) struct Indexed {
    pub(super) revision: u64,
    pub(super) index: Index,
    /// About what it takes in memory.
    pub(super) bytes: u64,
    /// Whether a graph is being made for it.
    pub(super) is_linking: bool,
}

/// The place of a corpus' index; its lock lets one task make it while others wait.
pub(super) type IndexSlot = Arc<RwLock<Option<Indexed>>>;

#[derive(Clone, Debug)]
struct CachedIndex {
    place: IndexSlot,
    bytes: u64,
}

/// An entry's bytes in memory.
#[derive(Clone, Copy, Debug)]
struct InBytes;

impl Weighter<Key, CachedIndex> for InBytes {
    fn weight(&self, _: &Key, entry: &CachedIndex) -> u64 {
        entry.bytes
    }
}

/// Who uses an index has its place, and it stays: to let it go would free nothing.
#[derive(Clone, Copy, Debug)]
struct UnlessUsed;

impl Lifecycle<Key, CachedIndex> for UnlessUsed {
    type RequestState = ();

    fn begin_request(&self) {}

    fn is_pinned(&self, _: &Key, entry: &CachedIndex) -> bool {
        Arc::strong_count(&entry.place) > 1
    }
}

/// Corpora of which it is remembered that they were asked for, beyond those in memory.
const REMEMBERED: usize = 1_000;

/// All indexes in memory.
#[derive(Debug)]
pub(super) struct IndexCache {
    entries: Cache<Key, CachedIndex, InBytes, DefaultHashBuilder, UnlessUsed>,
    /// Places whose index is not made yet, while somebody wants it. They join the entries with the weight
    /// that they have: one that weighed nothing at first would take the place of those in use.
    unmade: Mutex<HashMap<Key, Weak<RwLock<Option<Indexed>>>>>,
}

impl IndexCache {
    pub(super) fn new(bytes_max: u64) -> Self {
        // One shard: each would have a share of the bytes to itself, and a large index fits no share.
        let options = OptionsBuilder::new()
            .weight_capacity(bytes_max)
            .estimated_items_capacity(REMEMBERED)
            .shards(1)
            .build()
            .expect("every option that has no default is given");
        let entries = Cache::with_options(options, InBytes, DefaultHashBuilder::default(), UnlessUsed);
        Self { entries, unmade: Mutex::default() }
    }

    fn unmade(&self) -> MutexGuard<'_, HashMap<Key, Weak<RwLock<Option<Indexed>>>>> {
        self.unmade.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The place of a corpus' index, used now.
    pub(super) fn place(&self, key: &Key) -> IndexSlot {
        let mut unmade = self.unmade();
        if let Some(entry) = self.entries.get(key) {
            return entry.place;
        }
        if let Some(place) = unmade.get(key).and_then(Weak::upgrade) {
            return place;
        }
        unmade.retain(|_, place| place.strong_count() > 0);
        let place = IndexSlot::default();
        unmade.insert(key.clone(), Arc::downgrade(&place));
        place
    }

    /// Notes how large an index is, and lets others go that nobody uses until all fit.
    pub(super) fn note(&self, key: &Key, bytes: u64) {
        let mut unmade = self.unmade();
        let made = unmade.remove(key).and_then(|place| place.upgrade());
        if let Some(place) = made {
            self.entries.insert(key.clone(), CachedIndex { place, bytes });
        } else if let Some(CachedIndex { place, .. }) = self.entries.peek(key) {
            // `Err`: it was forgotten meanwhile, and stays so.
            drop(self.entries.replace(key.clone(), CachedIndex { place, bytes }, true));
        }
    }

    /// Forgets a corpus.
    pub(super) fn forget(&self, key: &Key) {
        self.unmade().remove(key);
        self.entries.remove(key);
    }
}

impl Indexed {
    /// An empty index.
    pub(super) fn new(revision: u64, dims: usize, fragments_max: usize) -> Self {
        Self { revision, index: Index::new(dims, fragments_max), bytes: 0, is_linking: false }
    }

    /// Adds a stored fragment.
    pub(super) fn add(
        &mut self,
        (document, number): (Arc<str>, u32),
        stored: &store::StoredFragment,
    ) -> Result<(), retrieval::Error> {
        let vector = parse_vector(&stored.vector);
        // The graph has a copy of the vector and some links.
        self.bytes += 2 * stored.vector.len() as u64 + stored.text.len() as u64 + FRAGMENT_BYTES;
        let tokens = u32::try_from(stored.tokens.0).unwrap_or(u32::MAX);
        self.index.add(Fragment { document, number, text: stored.text.as_str().into(), tokens }, &vector)
    }

    /// Does to the index what the store did: replaces documents.
    pub(super) fn replace(
        &mut self,
        revision: u64,
        documents: &[NewDocument],
    ) -> Result<(), retrieval::Error> {
        for document in documents {
            self.index.remove(&document.id);
        }
        for document in documents {
            let id: Arc<str> = document.id.as_str().into();
            for (stored, number) in document.fragments.iter().zip(0..) {
                self.add((Arc::clone(&id), number), stored)?;
            }
        }
        self.revision = revision;
        Ok(())
    }
}

/// About what a fragment takes beside its text and vector.
const FRAGMENT_BYTES: u64 = 2_048;

/// A vector as the store keeps it: little-endian floats.
pub(super) fn render_vector(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn parse_vector(bytes: &[u8]) -> Vec<f32> {
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        (TenantId(1), name.to_owned())
    }

    fn kept(indexes: &IndexCache) -> Vec<String> {
        let mut names: Vec<String> = indexes.entries.iter().map(|((_, name), _)| name).collect();
        names.sort();
        names
    }

    /// A corpus is asked for once.
    fn ask(indexes: &IndexCache, name: &str, bytes: u64) {
        let place = indexes.place(&key(name));
        indexes.note(&key(name), bytes);
        drop(place);
    }

    #[test]
    fn indexes_are_bounded_in_bytes_and_one_in_use_stays() {
        let indexes = IndexCache::new(10);
        let used = indexes.place(&key("a"));
        indexes.note(&key("a"), 4);
        for name in ["b", "c", "d", "e"] {
            ask(&indexes, name, 4);
        }
        assert_eq!(indexes.entries.weight(), 8);
        assert!(Arc::ptr_eq(&used, &indexes.place(&key("a"))), "{:?}", kept(&indexes));
        drop(used);
        let large = indexes.place(&key("large"));
        indexes.note(&key("large"), 40);
        assert_eq!(kept(&indexes), ["large"], "one that is larger than all room serves who asked for it");
        drop(large);
        ask(&indexes, "f", 4);
        assert_eq!(kept(&indexes), ["f"]);
        let using = indexes.place(&key("f"));
        indexes.forget(&key("f"));
        indexes.note(&key("f"), 4);
        drop(using);
        assert_eq!(kept(&indexes), [""; 0], "what is forgotten is not noted");
    }

    #[test]
    fn an_index_that_is_asked_for_again_survives_many_that_are_asked_for_once() {
        let indexes = IndexCache::new(10);
        (0..3).for_each(|_| ask(&indexes, "hot", 2));
        let first = Arc::downgrade(&indexes.place(&key("hot")));
        for number in 0..100 {
            ask(&indexes, &number.to_string(), 2);
        }
        assert!(indexes.entries.weight() <= 10);
        let now = Arc::downgrade(&indexes.place(&key("hot")));
        assert!(first.ptr_eq(&now), "{:?}", kept(&indexes));
    }

    #[test]
    fn a_vector_is_read_as_it_was_written() {
        let vector = [0.5, -1.0, f32::MIN_POSITIVE];
        assert_eq!(parse_vector(&render_vector(&vector)), vector);
    }
}
