//! Output lengths learned from rows that have ended: by relQuery, and by kind of relQuery (its template
//! and its output limit), so that a new relQuery is expected to be like its predecessors.

use crate::kv::prefix::KeyMap;

/// What makes relQueries alike: a hash of scope, template and output limit.
pub(crate) type LengthKind = u128;

/// Kinds that are remembered; the one that was used longest ago gives way.
const KINDS_MAX: usize = 4_096;
/// Rows after which older ones count half.
const WINDOW: u64 = 512;
/// Rows of other relQueries that count as much as a relQuery's own, at most.
const PRIOR_MAX: u64 = 16;

/// Rows that ended, and their output tokens together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    pub rows: u64,
    /// Output tokens of them.
    pub tokens: u64,
}

impl Ended {
    /// Counts one row.
    pub fn add(&mut self, tokens: u64) {
        self.rows += 1;
        self.tokens += tokens;
    }
}

/// An expected number of output tokens, as a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The numerator.
    pub tokens: u64,
    /// The denominator; never 0.
    pub rows: u64,
}

impl Expected {
    /// What a row is expected to produce: the mean of its relQuery's ended rows, of some earlier ones of
    /// its kind, and of one row that reaches the limit.
    pub fn of(limit: u64, own: Ended, kind: Ended) -> Self {
        let prior = kind.rows.min(PRIOR_MAX);
        let earlier = (kind.tokens * prior).checked_div(kind.rows).unwrap_or_default();
        Self { tokens: limit.saturating_add(earlier).saturating_add(own.tokens), rows: 1 + prior + own.rows }
    }

    /// Every row reaches the limit.
    pub fn limit(limit: u64) -> Self {
        Self { tokens: limit, rows: 1 }
    }

    /// What a row that has produced `generated` of at most `limit` tokens still produces, in tokens, at
    /// least 1 before its end: the expectation, and beyond it a quarter of it, for a row that is longer
    /// than most has shown that it is.
    pub fn remaining(self, generated: u64, limit: u64) -> u64 {
        let expected = self.tokens.div_ceil(self.rows);
        let rest = expected.saturating_sub(generated).max(1 + expected / 4);
        rest.min(limit.saturating_sub(generated))
    }
}

/// The ended rows of each kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lengths {
    kinds: KeyMap<LengthKind, (Ended, u64)>,
    uses: u64,
}

impl Lengths {
    /// What is known of a kind.
    pub(crate) fn of(&self, kind: LengthKind) -> Ended {
        self.kinds.get(&kind).map(|(ended, _)| *ended).unwrap_or_default()
    }

    /// Counts a row that ended.
    pub(crate) fn add(&mut self, kind: LengthKind, tokens: u64) {
        if self.kinds.len() >= KINDS_MAX && !self.kinds.contains_key(&kind) {
            // Each use has a number of its own, so one is the oldest in whatever order they are read.
            let oldest = self.kinds.iter().min_by_key(|(_, (_, used))| *used).map(|(kind, _)| *kind);
            oldest.and_then(|oldest| self.kinds.remove(&oldest));
        }
        self.uses += 1;
        let (ended, used) = self.kinds.entry(kind).or_default();
        ended.add(tokens);
        if ended.rows >= WINDOW {
            (ended.rows, ended.tokens) = (ended.rows / 2, ended.tokens / 2);
        }
        *used = self.uses;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_rows_had_soon_outweighs_the_limit() {
        let mut lengths = Lengths::default();
        assert_eq!(Expected::of(100, Ended::default(), lengths.of(7)), Expected::limit(100));
        for _ in 0..40 {
            lengths.add(7, 20);
        }
        let expected = Expected::of(100, Ended { rows: 3, tokens: 60 }, lengths.of(7));
        assert_eq!(expected, Expected { tokens: 100 + 16 * 20 + 60, rows: 20 });
        assert_eq!(expected.remaining(0, 100), 24);
        assert_eq!(expected.remaining(30, 100), 7, "a long row is expected to go on for a while");
        assert_eq!(expected.remaining(98, 100), 2, "and never beyond its limit");
    }

    #[test]
    fn kinds_are_bounded_and_old_rows_fade() {
        let mut lengths = Lengths::default();
        for kind in 0..=KINDS_MAX as u128 {
            lengths.add(kind, 1);
        }
        assert_eq!(lengths.kinds.len(), KINDS_MAX);
        assert_eq!(lengths.of(0), Ended::default());
        for _ in 0..10_000 {
            lengths.add(9, 4);
        }
        assert!(lengths.of(9).rows < WINDOW);
    }
}
