//! Admission: which waiting rows would fit into a prefill, without touching the ledger.
//!
//! Rows are offered in order; the first that does not fit ends the batch. A row hits what the pool
//! holds and what earlier rows of the same batch are about to compute (trie prefill).

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use base::RelQueryId;

use crate::cache_view::CacheView;
use crate::kv::prefix::KeyBits;
use crate::kv::{BlockKey, BlockPlace};
use crate::row::Row;

/// Why a row is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectReason {
    /// All rows of a step are taken.
    Sequences,
    /// All tokens of the step are.
    Tokens,
    /// All memory is.
    Blocks,
    /// It would delay others by more than its joining gains.
    NotWorth,
}

/// A waiting row that a batch may take.
pub(crate) struct OfferedRow<'a> {
    pub(crate) relquery: RelQueryId,
    /// Namespace of its cached blocks.
    pub(crate) scope: u128,
    pub(crate) index: u32,
    pub(crate) row: &'a mut Row,
    /// Most tokens that it is worth, beside what is free; absent: any number.
    pub(crate) tokens_max: Option<u64>,
}

/// A row that fits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted {
    pub(crate) relquery: RelQueryId,
    pub(crate) index: u32,
    /// Tokens it computes in this step.
    pub(crate) take: u32,
}

/// What a batch may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Rows.
    pub(crate) free_sequences: u32,
    /// Uncached tokens.
    pub(crate) tokens: u64,
    pub(crate) free_blocks: u32,
    /// Whether a prompt may be cut to fit; if not, the first row is taken even if it is larger.
    pub(crate) cuts: bool,
    /// Of the tokens, those that cost nothing: a row that is not worth its tokens may have them.
    pub(crate) free: u64,
}

/// A batch in the making.
pub(crate) struct Admission {
    pub(crate) rows: Vec<Admitted>,
    /// Uncached tokens of it.
    pub(crate) tokens: u64,
    /// What the first row that was not taken lacked.
    pub(crate) rejected: Option<RejectReason>,
    budget: Budget,
    /// Blocks it needs.
    need: u32,
    /// Keys of blocks that its rows will compute.
    promised: HashSet<BlockKey, BuildHasherDefault<KeyBits>>,
    /// Unheld blocks that its rows will hold: they cannot be granted. One that moves back takes a block that
    /// can.
    pinned: HashSet<BlockPlace, BuildHasherDefault<KeyBits>>,
}

impl Admission {
    pub(crate) fn new(budget: Budget) -> Self {
        Self {
            rows: Vec::new(),
            tokens: 0,
            rejected: None,
            budget,
            need: 0,
            promised: HashSet::default(),
            pinned: HashSet::default(),
        }
    }

    /// Counts these blocks as computed by the end of the step.
    pub(crate) fn promise(&mut self, keys: &[BlockKey]) {
        self.promised.extend(keys);
    }

    /// Takes the row if it fits and computes no more than it is worth.
    pub(crate) fn offer(&mut self, view: &CacheView<'_>, offered: OfferedRow<'_>) -> bool {
        self.rejected = self.take(view, offered).err();
        self.rejected.is_none()
    }

    fn take(&mut self, view: &CacheView<'_>, offered: OfferedRow<'_>) -> Result<(), RejectReason> {
        let OfferedRow { relquery, scope, index, row, tokens_max } = offered;
        let left = self.budget.tokens.saturating_sub(self.tokens);
        if self.rows.len() as u32 >= self.budget.free_sequences {
            return Err(RejectReason::Sequences);
        }
        if self.need >= self.budget.free_blocks {
            return Err(RejectReason::Blocks);
        }
        if left == 0 {
            return Err(RejectReason::Tokens);
        }
        let mut unheld = Vec::new();
        let (mut hits, mut cached) = (0, 0);
        for number in 0..=row.parts.len() {
            let resident = view.resident(scope, row, number, |place| {
                let is_held = matches!(place, BlockPlace::Device(block) if view.ledger.holders(block) > 0);
                if !is_held && !self.pinned.contains(&place) {
                    unheld.push(place);
                }
            });
            let keys = &row.chain(number).keys[resident as usize..view.hittable(row, number) as usize];
            let promised = keys.iter().take_while(|key| self.promised.contains(key)).count();
            let found = resident + promised as u32;
            hits += found;
            cached += view.tokens_in(row, number, found);
        }
        let uncached = row.total() - cached;
        let left = match tokens_max {
            Some(most) if u64::from(uncached) > most => {
                left.min(self.budget.free.saturating_sub(self.tokens))
            }
            _ => left,
        };
        if left == 0 {
            return Err(RejectReason::NotWorth);
        }
        let take = match self.budget.cuts {
            true => uncached.min(u32::try_from(left).unwrap_or(u32::MAX)),
            false if u64::from(uncached) > left && !self.rows.is_empty() => return Err(RejectReason::Tokens),
            false => uncached,
        };
        let need = row.blocks_needed(view.block_tokens) - hits + unheld.len() as u32;
        if self.need + need > self.budget.free_blocks {
            return Err(RejectReason::Blocks);
        }
        for number in 0..=row.parts.len() {
            let hittable = view.hittable(row, number) as usize;
            self.promised.extend(&row.chain(number).keys[..hittable]);
        }
        self.pinned.extend(unheld);
        self.need += need;
        self.tokens += u64::from(take);
        self.rows.push(Admitted { relquery, index, take });
        Ok(())
    }
}
