//! A bounded sequence whose readers know how far they are: what is old makes room for what is new.
//!
//! Everything that was ever put in has a number, so a reader that comes too late can be told how much it
//! lost.

use std::collections::VecDeque;

/// The sequence.
#[derive(Debug)]
pub struct Ring<T> {
    /// Number, weight, what it is.
    items: VecDeque<(u64, u64, T)>,
    /// The number of the next one.
    next: u64,
    weight: u64,
    items_max: usize,
    weight_max: u64,
}

impl<T> Ring<T> {
    /// An empty one of at most so many items, and so much weight together.
    pub fn new(items_max: usize, weight_max: u64) -> Self {
        Self { items: VecDeque::new(), next: 0, weight: 0, items_max, weight_max }
    }

    /// Adds one; the oldest make room. One that is too heavy alone is not kept.
    pub fn push(&mut self, item: T, weight: u64) {
        let number = self.next;
        self.next += 1;
        if self.items_max == 0 || weight > self.weight_max {
            return;
        }
        while self.items.len() >= self.items_max || self.weight > self.weight_max - weight {
            let Some((_, freed, _)) = self.items.pop_front() else { break };
            self.weight -= freed;
        }
        self.weight += weight;
        self.items.push_back((number, weight, item));
    }

    /// Counts items that were never put in.
    pub fn skip(&mut self, items: u64) {
        self.next += items;
    }

    /// The number of the oldest one that is there.
    pub fn start(&self) -> u64 {
        self.items.front().map_or(self.next, |(number, ..)| *number)
    }

    /// The number of the next one.
    pub fn end(&self) -> u64 {
        self.next
    }

    /// What is there, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter().map(|(.., item)| item)
    }

    /// The number of the oldest item of which this is so, of those that are there; else of the next one.
    pub fn first_where(&self, is_wanted: impl Fn(&T) -> bool) -> u64 {
        let found = self.items.iter().find(|(.., item)| is_wanted(item));
        found.map_or(self.next, |(number, ..)| *number)
    }
}

impl<T: Clone> Ring<T> {
    /// The first `most` from number `from` on, which moves behind them; and how many that should stand there
    /// are gone.
    pub fn after(&self, from: &mut u64, most: usize) -> (Vec<T>, u64) {
        let first = self.items.partition_point(|(number, ..)| number < from);
        let taken: Vec<T> = self.items.range(first..).take(most).map(|(.., item)| item.clone()).collect();
        let end = match self.items.get(first + taken.len()) {
            Some((number, ..)) if taken.is_empty() => *number,
            Some(_) => self.items[first + taken.len() - 1].0 + 1,
            None => self.next,
        };
        let lost = end.saturating_sub(*from) - taken.len() as u64;
        *from = end.max(*from);
        (taken, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(items_max: usize, weight_max: u64, weights: &[u64]) -> Ring<usize> {
        let mut ring = Ring::new(items_max, weight_max);
        weights.iter().enumerate().for_each(|(item, weight)| ring.push(item, *weight));
        ring
    }

    #[test]
    fn two_readers_come_at_their_own_pace_and_the_slow_one_is_told_what_it_lost() {
        let mut ring = Ring::new(4, u64::MAX);
        let (mut quick, mut slow) = (0, 0);
        for item in 0..10 {
            ring.push(item, 1);
            assert_eq!(ring.after(&mut quick, 8), (vec![item], 0));
        }
        assert_eq!(ring.after(&mut slow, 3), (vec![6, 7, 8], 6));
        assert_eq!(ring.after(&mut slow, 3), (vec![9], 0));
        assert_eq!(ring.after(&mut slow, 3), (vec![], 0));
        assert_eq!((slow, ring.start(), ring.end()), (10, 6, 10));
    }

    #[test]
    fn weight_bounds_it_too_and_what_is_too_heavy_alone_is_left_out() {
        let ring = ring(100, 10, &[4, 4, 4, 11, 2]);
        assert_eq!(ring.iter().copied().collect::<Vec<_>>(), [1, 2, 4]);
        let mut from = 0;
        assert_eq!(ring.after(&mut from, 2), (vec![1, 2], 1));
        assert_eq!(ring.after(&mut from, 2), (vec![4], 1));
    }

    #[test]
    fn what_was_skipped_counts_as_lost() {
        let mut ring = ring(4, 100, &[1]);
        ring.skip(5);
        let mut from = 0;
        assert_eq!(ring.after(&mut from, 9), (vec![0], 5));
        assert_eq!((from, ring.end()), (6, 6));
        assert!(self::ring(0, 100, &[1]).iter().next().is_none(), "a ring of no items keeps none");
    }

    #[test]
    fn a_reader_may_begin_at_the_first_of_which_something_is_so() {
        let ring = ring(3, 100, &[1, 1, 1, 1, 1]);
        assert_eq!(ring.first_where(|item| *item >= 3), 3);
        assert_eq!(ring.first_where(|_| true), 2, "the oldest that is there");
        assert_eq!(ring.first_where(|item| *item > 9), 5, "none is: it waits for the next");
    }
}
