//! The host tier as numbers: which of its blocks hold something, and what moves between it and the pool.
//!
//! A host block is *free*, *kept* (its content can be hit; the one that came first gives way first), *wanted*
//! (rows of the step in the making hit it: it gives way to nothing) or *leaving* (it moves back with a step,
//! and is free once the step is done). Moves are planned, sent with a plan, and then done or failed. What is
//! where is the index's to say.

use std::collections::{BTreeMap, BTreeSet};

use base::{BlockId, HostBlockId, MoveBack, MoveOut, Moves};

use super::lru::LruList;

/// How full the tier is, and what has moved since it was made; moves count once their step is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierStats {
    /// Blocks of the tier; 0: there is none.
    pub total: u32,
    /// Those that hold something.
    pub used: u32,
    /// Blocks moved out of the pool.
    pub moved_out: u64,
    /// Blocks moved back into it.
    pub moved_back: u64,
    /// Tokens of those: each was not computed again.
    pub restored_tokens: u64,
}

/// A block on its way back.
#[derive(Clone, Copy, Debug)]
struct Return {
    from: HostBlockId,
    tokens: u32,
}

/// A host block to move into.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) block: HostBlockId,
    /// Whether something is given up for it.
    pub(super) has_content: bool,
}

/// The tier.
#[derive(Clone, Debug)]
pub(super) struct Tier {
    free: Vec<HostBlockId>,
    kept: LruList,
    wanted: BTreeSet<HostBlockId>,
    /// Moves that no plan has been told of yet, by where they lead.
    out: BTreeMap<HostBlockId, BlockId>,
    back: BTreeMap<BlockId, Return>,
    /// Those of the step in flight.
    sent_out: Vec<HostBlockId>,
    sent_back: Vec<(BlockId, Return)>,
    stats: TierStats,
}

impl Tier {
    /// A tier of `total` free blocks.
    pub(super) fn new(total: u32) -> Self {
        Self {
            free: (0..total).rev().map(HostBlockId).collect(),
            kept: LruList::new(total),
            wanted: BTreeSet::new(),
            out: BTreeMap::new(),
            back: BTreeMap::new(),
            sent_out: Vec::new(),
            sent_back: Vec::new(),
            stats: TierStats { total, ..TierStats::default() },
        }
    }

    pub(super) fn stats(&self) -> TierStats {
        TierStats { used: self.stats.total - self.free.len() as u32, ..self.stats }
    }

    /// A block to move into: a free one, else what was kept longest. `None` where all are wanted or leaving.
    pub(super) fn make_room(&mut self) -> Option<Room> {
        if let Some(block) = self.free.pop() {
            return Some(Room { block, has_content: false });
        }
        let block = HostBlockId(self.kept.oldest()?);
        self.kept.remove(block.0);
        self.out.remove(&block);
        Some(Room { block, has_content: true })
    }

    /// Plans a move into a block that room was made in.
    pub(super) fn move_out(&mut self, from: BlockId, to: HostBlockId) {
        self.out.insert(to, from);
        self.kept.push(to.0);
    }

    /// Whether the block's content is on its way there: it cannot move back with the same step.
    pub(super) fn is_arriving(&self, block: HostBlockId) -> bool {
        self.out.contains_key(&block)
    }

    /// Keeps the block from giving way.
    pub(super) fn want(&mut self, block: HostBlockId) {
        if self.kept.remove(block.0) {
            self.wanted.insert(block);
        }
    }

    /// What is still wanted may give way again.
    pub(super) fn end_wants(&mut self) {
        for block in std::mem::take(&mut self.wanted) {
            self.kept.push(block.0);
        }
    }

    /// Plans a move back.
    pub(super) fn move_back(&mut self, from: HostBlockId, to: BlockId, tokens: u32) {
        self.leave(from);
        self.back.insert(to, Return { from, tokens });
    }

    /// Calls a planned move back off, whose content is not needed after all: where it still lies.
    pub(super) fn stay(&mut self, to: BlockId) -> Option<HostBlockId> {
        let from = self.back.remove(&to)?.from;
        self.kept.push(from.0);
        Some(from)
    }

    /// Calls a planned move back off, whose content was forgotten.
    pub(super) fn drop_move(&mut self, to: BlockId) {
        self.free.extend(self.back.remove(&to).map(|planned| planned.from));
    }

    /// Empties a block that is not leaving.
    pub(super) fn empty(&mut self, block: HostBlockId) {
        self.leave(block);
        self.out.remove(&block);
        self.free.push(block);
    }

    fn leave(&mut self, block: HostBlockId) {
        let was_there = self.wanted.remove(&block) || self.kept.remove(block.0);
        debug_assert!(was_there, "host block {block} holds nothing");
    }

    /// All planned moves, for the plan that is to do them.
    pub(super) fn send(&mut self) -> Moves {
        let (out, back) = (std::mem::take(&mut self.out), std::mem::take(&mut self.back));
        let moves = Moves {
            out: out.iter().map(|(to, from)| MoveOut { from: *from, to: *to }).collect(),
            back: back.iter().map(|(to, Return { from, .. })| MoveBack { from: *from, to: *to }).collect(),
        };
        self.sent_out = out.into_keys().collect();
        self.sent_back = back.into_iter().collect();
        moves
    }

    /// The step has done its moves.
    pub(super) fn done(&mut self) {
        self.stats.moved_out += std::mem::take(&mut self.sent_out).len() as u64;
        for (_, Return { from, tokens }) in std::mem::take(&mut self.sent_back) {
            self.stats.moved_back += 1;
            self.stats.restored_tokens += u64::from(tokens);
            self.free.push(from);
        }
    }

    /// The step has failed: where its moves out led, and its moves back, whose host blocks are as they were.
    pub(super) fn failed(&mut self) -> (Vec<HostBlockId>, Vec<(BlockId, HostBlockId)>) {
        let back =
            std::mem::take(&mut self.sent_back).into_iter().map(|(to, Return { from, .. })| (to, from));
        (std::mem::take(&mut self.sent_out), back.collect())
    }

    /// A block that was leaving holds its content again, or nothing.
    pub(super) fn settle(&mut self, block: HostBlockId, has_content: bool) {
        match has_content {
            true => self.kept.push(block.0),
            false => self.free.push(block),
        }
    }

    /// Everything is lost; no step is in flight.
    pub(super) fn clear(&mut self) {
        *self = Self { stats: self.stats, ..Self::new(self.stats.total) };
    }

    /// Host blocks whose content is named by where they are.
    pub(super) fn holding(&self) -> impl Iterator<Item = HostBlockId> + '_ {
        self.kept.iter().map(HostBlockId).chain(self.wanted.iter().copied())
    }

    /// Pool blocks that something is planned to move back to.
    pub(super) fn returning(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.back.keys().copied()
    }

    /// Compares its own books.
    pub(super) fn check(&self) -> Result<(), String> {
        self.kept.check()?;
        if !self.wanted.is_empty() {
            return Err("a host block is wanted by nobody".into());
        }
        let leaving =
            self.back.values().chain(self.sent_back.iter().map(|(_, sent)| sent)).map(|one| one.from);
        let mut seen = BTreeSet::new();
        let mut all = self.free.iter().copied().chain(self.holding()).chain(leaving);
        if let Some(block) = all.find(|block| !seen.insert(*block)) {
            return Err(format!("host block {block} is in two places"));
        }
        if seen.len() != self.stats.total as usize {
            return Err(format!("{} of {} host blocks are somewhere", seen.len(), self.stats.total));
        }
        let mut arriving = self.out.keys().chain(&self.sent_out);
        match arriving.find(|block| !self.kept.contains(block.0)) {
            Some(block) => Err(format!("host block {block} is to get a content and is not kept")),
            None => Ok(()),
        }
    }
}
