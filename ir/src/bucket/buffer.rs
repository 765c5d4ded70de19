//! The buffer: rows in order of their prompts, cut into buckets, each change in the time of a look-up.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::settings::BucketSettings;

/// Where a row stands: its prompt, and its number among rows with the same.
type RowKey<U> = (Arc<[U]>, u64);

/// A row that waits.
#[derive(Clone, Debug)]
struct WaitingRow<T> {
    row: T,
    bytes: u64,
}

/// Rows that leave together, in the order of their prompts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket<T> {
    /// The rows; never empty.
    pub rows: Vec<T>,
    /// How many units their prompts begin with in common.
    pub shared: usize,
}

/// Rows of a stream, held back until enough of them have a prefix in common.
///
/// `U` is the unit of a prompt: its tokens, or the bytes of its text. Where all rows begin with the same
/// template, what is given for a prompt had better begin behind it: [`BucketSettings::match_min`] is a share
/// of what is given.
#[derive(Clone, Debug)]
pub struct Buffer<U, T> {
    settings: BucketSettings,
    rows: BTreeMap<RowKey<U>, WaitingRow<T>>,
    bytes: u64,
    next: u64,
    /// Rows of each bucket, by the place of its first.
    buckets: BTreeMap<RowKey<U>, usize>,
    /// The same, the largest last; of equally large ones, the first of the order.
    by_size: BTreeSet<(usize, Reverse<RowKey<U>>)>,
    /// A row of the bucket that left in part: the rest follows while its prefix is still warm.
    begun: Option<RowKey<U>>,
}

impl<U: Ord, T> Buffer<U, T> {
    /// An empty buffer.
    pub fn new(settings: BucketSettings) -> Self {
        Self {
            settings,
            rows: BTreeMap::new(),
            bytes: 0,
            next: 0,
            buckets: BTreeMap::new(),
            by_size: BTreeSet::new(),
            begun: None,
        }
    }

    /// Rows held.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether no row is held.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// What the rows held count for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether rows should leave before another comes.
    pub fn is_full(&self) -> bool {
        self.rows.len() >= self.settings.rows_max || self.bytes >= self.settings.bytes_max
    }

    /// How many buckets the rows are in.
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Takes a row in, also where the buffer [is full](Self::is_full). `bytes` is what it counts for.
    pub fn push(&mut self, prompt: impl Into<Arc<[U]>>, bytes: u64, row: T) {
        let place = (prompt.into(), self.next);
        self.next += 1;
        self.bytes += bytes;
        let before = self.rows.range(..&place).next_back().map(|(before, _)| before.clone());
        let after = self.rows.range(&place..).next().map(|(after, _)| after.clone());
        self.rows.insert(place.clone(), WaitingRow { row, bytes });
        let joins =
            |other: &Option<RowKey<U>>| other.as_ref().is_some_and(|other| self.are_joined(other, &place));
        let (joins_before, joins_after) = (joins(&before), joins(&after));
        let left = before.and_then(|before| self.first_of(&before));
        // A neighbour that no bucket begins with is in the bucket of the one before it.
        let is_inside = after.as_ref().is_some_and(|after| !self.buckets.contains_key(after));
        match (left, after, is_inside) {
            (Some(left), Some(after), true) => {
                if !(joins_before && joins_after) {
                    // The new row stands between two that had just enough in common: of its two sides one
                    // still has.
                    let cut = if joins_before { &after } else { &place };
                    self.cut(&left, cut);
                }
                let grown = if joins_before { left } else { place };
                self.resize(&grown, |size| size + 1);
            }
            (left, after, _) => {
                let mut size = 1;
                if let Some(after) = after.filter(|_| joins_after) {
                    size += self.close(&after);
                }
                match left.filter(|_| joins_before) {
                    Some(left) => self.resize(&left, |before| before + size),
                    None => self.open(place, size),
                }
            }
        }
    }

    /// The next rows to run, at most `limit` of them: what is left of a bucket that was cut off at a limit
    /// before, else the largest bucket. Nothing where that is smaller than [`BucketSettings::bucket_min`],
    /// unless the buffer is full or rows `must` come, because the input has ended or nothing runs: then small
    /// buckets leave together.
    pub fn pop(&mut self, limit: usize, must: bool) -> Option<Bucket<T>> {
        if limit == 0 {
            return None;
        }
        let begun = self.begun.take().filter(|row| self.rows.contains_key(row));
        if let Some(first) = begun.and_then(|row| self.first_of(&row)) {
            return Some(self.take(first, limit));
        }
        let (size, Reverse(first)) = self.by_size.last()?.clone();
        if size >= self.settings.bucket_min {
            return Some(self.take(first, limit));
        }
        if !must && !self.is_full() {
            return None;
        }
        let enough = self.settings.bucket_min.min(limit);
        let mut bucket = self.take(first, limit);
        while bucket.rows.len() < enough
            && let Some((_, Reverse(first))) = self.by_size.last().cloned()
        {
            bucket.rows.extend(self.take(first, limit - bucket.rows.len()).rows);
            bucket.shared = 0;
        }
        Some(bucket)
    }

    /// Takes the first rows of a bucket out; `limit` is at least 1.
    fn take(&mut self, first: RowKey<U>, limit: usize) -> Bucket<T> {
        let size = self.close(&first);
        let count = size.min(limit);
        let places: Vec<RowKey<U>> =
            self.rows.range(&first..).take(count).map(|(place, _)| place.clone()).collect();
        let shared = places.last().map_or(0, |last| common(&first.0, &last.0));
        let mut rows = Vec::with_capacity(count);
        for place in &places {
            if let Some(entry) = self.rows.remove(place) {
                self.bytes -= entry.bytes;
                rows.push(entry.row);
            }
        }
        if size > count
            && let Some(rest) = self.rows.range(&first..).next().map(|(place, _)| place.clone())
        {
            self.begun = Some(rest.clone());
            self.open(rest, size - count);
        }
        Bucket { rows, shared }
    }

    /// Whether two neighbours belong together.
    fn are_joined(&self, a: &RowKey<U>, b: &RowKey<U>) -> bool {
        let (common, shorter) = (common(&a.0, &b.0), a.0.len().min(b.0.len()));
        // Nothing is no prefix worth keeping: an empty prompt joins empty ones alone.
        if shorter == 0 {
            a.0.len() == b.0.len()
        } else {
            common as f64 >= self.settings.match_min * shorter as f64
        }
    }

    /// The first row of the bucket that a row is in.
    fn first_of(&self, row: &RowKey<U>) -> Option<RowKey<U>> {
        self.buckets.range(..=row).next_back().map(|(first, _)| first.clone())
    }

    /// Has the bucket that begins with `left` end before `right`, where another begins. Both rows are held;
    /// the one of them that has just come is not counted yet.
    fn cut(&mut self, left: &RowKey<U>, right: &RowKey<U>) {
        let size = self.close(left);
        let kept = self.rows.range(left..right).count();
        let is_new = |place: &RowKey<U>| place.1 + 1 == self.next;
        // The new row stands right before the cut, and is among the kept, or it begins what is cut off.
        let kept = if is_new(right) { kept } else { kept - 1 };
        self.open(left.clone(), kept);
        self.open(right.clone(), size - kept);
    }

    fn open(&mut self, first: RowKey<U>, size: usize) {
        self.by_size.insert((size, Reverse(first.clone())));
        self.buckets.insert(first, size);
    }

    /// Forgets a bucket, not its rows. How many it had.
    fn close(&mut self, first: &RowKey<U>) -> usize {
        let Some(size) = self.buckets.remove(first) else { return 0 };
        self.by_size.remove(&(size, Reverse(first.clone())));
        size
    }

    fn resize(&mut self, first: &RowKey<U>, size: impl FnOnce(usize) -> usize) {
        let size = size(self.close(first));
        self.open(first.clone(), size);
    }
}

/// How many units two prompts begin with in common.
fn common<U: PartialEq>(a: &[U], b: &[U]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
