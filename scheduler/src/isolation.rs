//! Rows of steps that failed whole: one of them may be poison, with which every step fails.
//!
//! They are tried again before anything else runs, in groups that halve with each failure, so that a
//! poisonous row is alone after log2(n) failed steps and its neighbours go free; then it has
//! `attempts_max` attempts of its own. A row is cleared by its next token. Pure books: it must not know
//! what a row is.
//!
//! Where a step takes the executor with it, a failure costs minutes and a step still milliseconds: then rows
//! are tried one by one, and one that loses the executor again, alone, is the poison.

use std::collections::{BTreeMap, BTreeSet};

use base::{RelQueryId, RowError};

/// Losses of the executor that a row may be part of before it fails whoever was with it: rows that lose it
/// only together would go on for as long as they have tokens.
const LOSSES_MAX: u32 = 4;

/// What a step that failed whole did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureScope {
    /// Nothing beside its failure.
    Step,
    /// The executor is lost.
    Executor,
}

impl FailureScope {
    /// The next trial of a row has half as many rows as this: of a step, those that were in it; after a lost
    /// executor, each is tried alone.
    pub(crate) fn bisect_from(self, rows: u32) -> u32 {
        match self {
            Self::Step => rows,
            Self::Executor => 1,
        }
    }
}

/// What is held against one row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FaultRecord {
    /// Steps of it alone that failed, since its last token.
    failures: u32,
    /// Steps with it that lost the executor, ever, and whether it was alone in the last one.
    losses: u32,
    lost_alone: bool,
    /// The executor was lost while it decoded: the prefill that computes it anew proves nothing.
    must_decode: bool,
}

impl FaultRecord {
    /// A step with it failed.
    pub(crate) fn add(&mut self, scope: FailureScope, alone: bool, is_prefill: bool) {
        match scope {
            FailureScope::Step => self.failures += u32::from(alone),
            FailureScope::Executor => {
                self.losses += 1;
                (self.lost_alone, self.must_decode) = (alone, !is_prefill);
            }
        }
    }

    /// Why it fails after that, if it does.
    pub(crate) fn row_error(&self, scope: FailureScope, reason: &str, attempts_max: u32) -> Option<RowError> {
        let Self { failures, losses, .. } = *self;
        match scope {
            FailureScope::Step => (failures >= attempts_max).then(|| RowError::Failed(reason.to_owned())),
            FailureScope::Executor => (losses >= LOSSES_MAX || losses > 1 && self.lost_alone).then(|| {
                let company = if self.lost_alone { "alone" } else { "beside others" };
                RowError::Failed(format!(
                    "quarantined: {losses} steps with it lost the model's executor, the last one with it {company}: {reason}"
                ))
            }),
        }
    }

    /// It got a token from a prefill or a decode: says whether nothing is held against it any longer.
    pub(crate) fn is_cleared_by(&mut self, is_prefill: bool) -> bool {
        self.failures = 0;
        self.must_decode &= is_prefill;
        !self.must_decode
    }
}

/// A row: its relQuery and its index there.
pub(crate) type RowAt = (RelQueryId, u32);

/// The rows under suspicion, each with the most rows it may share a step with, itself included.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultIsolation {
    limits: BTreeMap<RowAt, u32>,
    order: BTreeSet<(u32, RowAt)>,
}

impl FaultIsolation {
    pub(crate) fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// A step of `slots` rows failed, this one among them.
    pub(crate) fn narrow(&mut self, row: RowAt, slots: u32) {
        self.clear(row);
        let limit = slots.div_ceil(2);
        self.limits.insert(row, limit);
        self.order.insert((limit, row));
    }

    /// Nothing is held against the row any longer.
    pub(crate) fn clear(&mut self, row: RowAt) {
        if let Some(limit) = self.limits.remove(&row) {
            self.order.remove(&(limit, row));
        }
    }

    /// The rows that are tried next: the most suspect ones, as many as those may be together.
    pub(crate) fn group(&self) -> impl Iterator<Item = RowAt> + '_ {
        let limit = self.order.first().map_or(0, |(limit, _)| *limit);
        self.order.iter().take(limit as usize).map(|(_, row)| *row)
    }

    /// Each row under suspicion `is_open`.
    pub(crate) fn check(&self, is_open: impl Fn(RowAt) -> bool) -> Result<(), String> {
        match self.limits.keys().find(|row| !is_open(**row)) {
            Some((id, index)) => {
                Err(format!("row {index} of relQuery {id} is under suspicion and has ended"))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(index: u32) -> RowAt {
        (RelQueryId(1), index)
    }

    #[test]
    fn a_group_halves_until_the_last_one_is_alone() {
        let mut isolation = FaultIsolation::default();
        let mut group: Vec<RowAt> = (0..64).map(row).collect();
        let mut failed = 0;
        while group.len() > 1 {
            group.iter().for_each(|row| isolation.narrow(*row, group.len() as u32));
            failed += 1;
            group = isolation.group().collect();
        }
        assert_eq!((failed, group), (6, vec![row(0)]));
        isolation.clear(row(0));
        assert_eq!(isolation.group().collect::<Vec<_>>(), [row(1)], "its last neighbour is next");
        (1..64).for_each(|index| isolation.clear(row(index)));
        assert!(isolation.is_empty());
    }
}
