//! Indexes in memory: made from the store when a corpus is first asked for, kept while there is room.
//!
//! An index belongs to one revision of its corpus. Who finds another revision in the store makes it anew, so several
//! gateways can share a database; a write through this gateway is applied to the index at hand.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use base::TenantId;
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

#[derive(Debug)]
struct CachedIndex {
    place: IndexSlot,
    bytes: u64,
    used: u64,
}

#[derive(Debug, Default)]
struct Inner {
    entries: HashMap<Key, CachedIndex>,
    uses: u64,
}

/// All indexes in memory.
#[derive(Debug)]
pub(super) struct IndexCache {
    bytes_max: u64,
    inner: Mutex<Inner>,
}

impl IndexCache {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The place of a corpus' index, used now.
    pub(super) fn place(&self, key: &Key) -> IndexSlot {
        let mut inner = self.inner();
        inner.uses += 1;
        let used = inner.uses;
        let entry = || CachedIndex { place: IndexSlot::default(), bytes: 0, used };
        let entry = inner.entries.entry(key.clone()).or_insert_with(entry);
        entry.used = used;
        Arc::clone(&entry.place)
    }

    /// Notes how large an index is, and lets the longest unused others go until all fit.
    pub(super) fn note(&self, key: &Key, bytes: u64) {
        let mut inner = self.inner();
        if let Some(entry) = inner.entries.get_mut(key) {
            entry.bytes = bytes;
        }
        while inner.entries.values().map(|entry| entry.bytes).sum::<u64>() > self.bytes_max {
            let others = inner.entries.iter().filter(|(other, entry)| *other != key && entry.bytes > 0);
            let Some(oldest) = others.min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone()) else {
                break;
            };
            inner.entries.remove(&oldest);
        }
    }

    /// Forgets a corpus.
    pub(super) fn forget(&self, key: &Key) {
        self.inner().entries.remove(key);
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

    #[test]
    fn the_longest_unused_index_goes_and_the_one_in_use_stays() {
        let indexes = IndexCache::new(10);
        let key = |name: &str| (TenantId(1), name.to_owned());
        let kept = |indexes: &IndexCache| {
            let mut names: Vec<String> =
                indexes.inner().entries.keys().map(|(_, name)| name.clone()).collect();
            names.sort();
            names
        };
        for name in ["a", "b", "c"] {
            indexes.place(&key(name));
            indexes.note(&key(name), 4);
        }
        assert_eq!(kept(&indexes), ["b", "c"]);
        indexes.place(&key("b"));
        indexes.place(&key("d"));
        indexes.note(&key("d"), 4);
        assert_eq!(kept(&indexes), ["b", "d"]);
        indexes.note(&key("d"), 40);
        assert_eq!(kept(&indexes), ["d"]);
        indexes.forget(&key("d"));
        assert_eq!(kept(&indexes), [""; 0]);
    }

    #[test]
    fn a_vector_is_read_as_it_was_written() {
        let vector = [0.5, -1.0, f32::MIN_POSITIVE];
        assert_eq!(parse_vector(&render_vector(&vector)), vector);
    }
}
