//! KV memory as segments: who refers to what, what is still there, what goes first.

use std::collections::{BTreeSet, VecDeque};

/// Tokens that stand together: a template, a shared value, or what a row has alone.
#[derive(Clone, Copy, Debug)]
struct Segment {
    size: u64,
    resident: u64,
    references: u64,
}

/// The memory.
#[derive(Debug)]
pub(crate) struct ReferenceMemory {
    cap: u64,
    segments: Vec<Segment>,
    /// Segments nobody refers to and of which something is resident, the oldest first.
    idle: VecDeque<usize>,
    /// Slots of generated tokens.
    slots: u64,
}

impl ReferenceMemory {
    pub(crate) fn new(cap: u64) -> Self {
        Self { cap, segments: Vec::new(), idle: VecDeque::new(), slots: 0 }
    }

    pub(crate) fn add_segment(&mut self, size: u64) -> usize {
        self.segments.push(Segment { size, resident: 0, references: 0 });
        self.segments.len() - 1
    }

    /// Tokens that a new prompt finds, when the segments of `taken` count as resident.
    pub(crate) fn hit(&self, path: &[usize], taken: &BTreeSet<usize>) -> u64 {
        let mut hit = 0;
        for id in path {
            let segment = self.segments[*id];
            let resident = if taken.contains(id) { segment.size } else { segment.resident };
            hit += resident;
            if resident < segment.size {
                break;
            }
        }
        hit
    }

    /// Tokens of room that pinning a path takes.
    pub(crate) fn need(&self, path: &[usize], taken: &BTreeSet<usize>) -> u64 {
        let fresh = path.iter().filter(|id| !taken.contains(id)).map(|id| self.segments[*id]);
        fresh.map(|one| one.size - one.resident + if one.references == 0 { one.resident } else { 0 }).sum()
    }

    /// Tokens free or evictable.
    pub(crate) fn room(&self) -> u64 {
        self.cap - self.used() + self.idle.iter().map(|id| self.segments[*id].resident).sum::<u64>()
    }

    fn used(&self) -> u64 {
        self.segments.iter().map(|segment| segment.resident).sum::<u64>() + self.slots
    }

    /// Refers to every segment of a path; nothing of it is evicted from now on.
    pub(crate) fn pin(&mut self, path: &[usize]) {
        for id in path {
            self.segments[*id].references += 1;
            self.idle.retain(|other| other != id);
        }
    }

    /// Makes a pinned path resident.
    pub(crate) fn fill(&mut self, path: &[usize]) {
        for id in path {
            let missing = self.segments[*id].size - self.segments[*id].resident;
            self.make_room(missing);
            self.segments[*id].resident += missing;
        }
    }

    /// Takes slots for generated tokens.
    pub(crate) fn take_slots(&mut self, slots: u64) {
        self.make_room(slots);
        self.slots += slots;
    }

    /// Evicts from the old end exactly what is missing; a segment evicted in part keeps its head.
    fn make_room(&mut self, tokens: u64) {
        let mut missing = (self.used() + tokens).saturating_sub(self.cap);
        while missing > 0 {
            let oldest = *self.idle.front().expect("callers asked for no more than there is room");
            let evicted = missing.min(self.segments[oldest].resident);
            self.segments[oldest].resident -= evicted;
            missing -= evicted;
            if self.segments[oldest].resident == 0 {
                self.idle.pop_front();
            }
        }
    }

    /// Gives back a path and slots: the tail first, so that heads are younger.
    pub(crate) fn release(&mut self, path: &[usize], slots: u64) {
        self.slots -= slots;
        for id in path.iter().rev() {
            self.segments[*id].references -= 1;
            if self.segments[*id].references == 0 && self.segments[*id].resident > 0 {
                self.idle.push_back(*id);
            }
        }
    }
}
