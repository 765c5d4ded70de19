//! Who holds which block: grant, share, release, evict. Integers only.
//!
//! A block is *held* (some row counts on it), *cached* (nobody holds it, its content can be hit) or
//! *free*. New blocks come from the free ones first and from the cached ones, oldest first, only when
//! no free one is left. A row releases its blocks from the tail, so tails grow old before heads.
//!
//! What is evicted moves to the host tier and keeps its name, where there is a tier; what is hit there moves
//! back. A content lies in one of the two. Moves are copies that the next step does before anything else.

use base::{BlockId, HostBlockId, Moves, TokenId};

use super::lru::LruList;
use super::prefix::{BlockKey, BlockPlace, PrefixIndex, Publication, PublicationId};
use super::tier::{Tier, TierStats};

/// The pool and its tier as numbers.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// How many hold each block.
    holders: Vec<u32>,
    free: Vec<BlockId>,
    cached: LruList,
    index: PrefixIndex,
    tier: Tier,
    /// Whether each block's content was hit since it was written.
    was_hit: Vec<bool>,
    reused_only: bool,
}

impl Ledger {
    /// A pool of `total` free blocks before a tier of `host` ones; 0: what is evicted is gone. `reused_only`:
    /// so is what was never hit.
    pub fn new(total: u32, host: u32, reused_only: bool) -> Self {
        Self {
            holders: vec![0; total as usize],
            free: (0..total).rev().map(BlockId).collect(),
            cached: LruList::new(total),
            index: PrefixIndex::new(total, host),
            tier: Tier::new(host),
            was_hit: vec![false; total as usize],
            reused_only,
        }
    }

    /// Blocks of the pool.
    pub fn total(&self) -> u32 {
        self.holders.len() as u32
    }

    /// Blocks with nothing in them.
    pub fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Blocks nobody holds whose content can be hit.
    pub fn cached(&self) -> u32 {
        self.cached.len()
    }

    /// Blocks that can be granted: free or cached.
    pub fn available(&self) -> u32 {
        self.free() + self.cached()
    }

    /// How many rows hold the block.
    pub fn holders(&self, block: BlockId) -> u32 {
        self.holders[block.0 as usize]
    }

    /// How full the tier is, and what has moved.
    pub fn tier(&self) -> TierStats {
        self.tier.stats()
    }

    /// Where this content after `parent` lies, if it is still anywhere. What leaves the pool with the step in
    /// the making is not found: it could not be back in time.
    pub fn find(
        &self,
        scope: u128,
        parent: PublicationId,
        key: BlockKey,
        tokens: &[TokenId],
    ) -> Option<(BlockPlace, PublicationId)> {
        let found = self.index.find(scope, parent, key, tokens)?;
        let is_late = matches!(found.0, BlockPlace::Host(block) if self.tier.is_arriving(block));
        (!is_late).then_some(found)
    }

    /// One more holder of a block that was found.
    pub fn hold(&mut self, block: BlockId) {
        self.cached.remove(block.0);
        self.holders[block.0 as usize] += 1;
    }

    /// Holds what was found; what lies on the host moves back to a block that is granted for it. `None` when
    /// every block is held.
    pub fn take(&mut self, place: BlockPlace) -> Option<BlockId> {
        let from = match place {
            BlockPlace::Device(block) => {
                self.was_hit[block.0 as usize] = true;
                self.hold(block);
                return Some(block);
            }
            BlockPlace::Host(from) => from,
        };
        // The grant must not give up what it is for.
        self.tier.want(from);
        let Some(to) = self.grant() else {
            self.tier.end_wants(); // Nothing is evicted where nothing is cached.
            return None;
        };
        let tokens = self.index.relocate(place, BlockPlace::Device(to)).expect("it was found there");
        self.tier.move_back(from, to, tokens);
        self.was_hit[to.0 as usize] = true;
        Some(to)
    }

    /// Keeps what was found from being evicted, until [`Ledger::unprotect`] is told what this returns.
    pub fn protect(&mut self, found: &[BlockPlace]) -> Vec<BlockId> {
        let mut held = Vec::new();
        for place in found {
            match *place {
                BlockPlace::Device(block) => {
                    self.hold(block);
                    held.push(block);
                }
                BlockPlace::Host(block) => self.tier.want(block),
            }
        }
        held
    }

    /// What was protected and is not held may be evicted again.
    pub fn unprotect(&mut self, held: &[BlockId]) {
        held.iter().rev().for_each(|block| self.release(*block));
        self.tier.end_wants();
    }

    /// A block with one holder and no content, or `None` when every block is held.
    pub fn grant(&mut self) -> Option<BlockId> {
        let block = match self.free.pop() {
            Some(block) => block,
            None => self.evict()?,
        };
        self.holders[block.0 as usize] = 1;
        self.was_hit[block.0 as usize] = false;
        Some(block)
    }

    /// Empties the oldest cached block.
    fn evict(&mut self) -> Option<BlockId> {
        let oldest = BlockId(self.cached.oldest()?);
        self.cached.remove(oldest.0);
        let place = BlockPlace::Device(oldest);
        let is_worth = self.was_hit[oldest.0 as usize] || !self.reused_only;
        if let Some(stays) = self.tier.stay(oldest) {
            self.index.relocate(place, BlockPlace::Host(stays));
        } else if let Some(room) = is_worth.then(|| self.tier.make_room()).flatten() {
            if room.has_content {
                self.index.forget(BlockPlace::Host(room.block));
            }
            self.index.relocate(place, BlockPlace::Host(room.block));
            self.tier.move_out(oldest, room.block);
        } else {
            self.index.forget(place);
        }
        Some(oldest)
    }

    /// One holder less; the last one leaves the block cached if it has a content to hit, else free.
    pub fn release(&mut self, block: BlockId) {
        let holders = &mut self.holders[block.0 as usize];
        *holders = holders.checked_sub(1).expect("only holders release, each once");
        if *holders == 0 {
            if self.index.is_published(BlockPlace::Device(block)) {
                self.cached.push(block.0);
            } else {
                self.vacate(block);
            }
        }
    }

    /// A block without holder and content is free.
    fn vacate(&mut self, block: BlockId) {
        self.tier.drop_move(block);
        self.free.push(block);
    }

    /// Makes the block's content hittable. A content that is known already stays where it is, unless it
    /// cannot be reached any more, or lies on the host: what is in the pool again need not move back.
    pub(crate) fn publish(
        &mut self,
        block: BlockId,
        scope: u128,
        parent: PublicationId,
        key: BlockKey,
        tokens: &[TokenId],
    ) -> Publication {
        match self.index.orphan(scope, parent, key, tokens) {
            Some(BlockPlace::Device(orphan)) => self.unpublish(orphan),
            Some(BlockPlace::Host(orphan)) => self.forget_host(orphan),
            None => {}
        }
        if let Some((BlockPlace::Host(known), link)) = self.index.find(scope, parent, key, tokens) {
            self.index.relocate(BlockPlace::Host(known), BlockPlace::Device(block));
            self.tier.empty(known);
            return Publication::New(link);
        }
        self.index.publish(block, scope, parent, key, tokens)
    }

    /// Takes the content back: what a failed step promised to write is not there.
    pub fn unpublish(&mut self, block: BlockId) {
        if self.index.forget(BlockPlace::Device(block)) {
            self.uncache(block);
        }
    }

    /// A block that has lost its content is free unless it is held.
    fn uncache(&mut self, block: BlockId) {
        if self.cached.remove(block.0) {
            self.vacate(block);
        }
    }

    fn forget_host(&mut self, block: HostBlockId) {
        self.index.forget(BlockPlace::Host(block));
        self.tier.empty(block);
    }

    /// All moves since the last plan, for the plan that is to do them.
    pub fn send_moves(&mut self) -> Moves {
        self.tier.send()
    }

    /// The step that had the moves is done.
    pub fn moves_done(&mut self) {
        self.tier.done();
    }

    /// The step that had the moves has failed: what it moved out is lost, what it moved back still lies on
    /// the host.
    pub fn moves_failed(&mut self) {
        let (out, back) = self.tier.failed();
        for (to, from) in back {
            let stays = self.index.relocate(BlockPlace::Device(to), BlockPlace::Host(from));
            self.tier.settle(from, stays.is_some());
            self.uncache(to);
        }
        out.into_iter().for_each(|block| self.forget_host(block));
    }

    /// Takes every content back: the memory behind pool and tier was lost. No step is in flight.
    pub fn forget_all(&mut self) {
        for number in 0..self.total() {
            self.unpublish(BlockId(number));
        }
        for number in 0..self.tier.stats().total {
            self.index.forget(BlockPlace::Host(HostBlockId(number)));
        }
        self.tier.clear();
    }

    /// Compares the books with `held`, the number of holders each block should have.
    pub fn check(&self, held: &[u32]) -> Result<(), String> {
        let mut held_blocks = 0;
        for (number, (holders, held)) in self.holders.iter().zip(held).enumerate() {
            if holders != held {
                return Err(format!("block {number} has {holders} holders, {held} rows"));
            }
            held_blocks += u32::from(*holders > 0);
        }
        self.cached.check()?;
        let is_published = |block| self.index.is_published(BlockPlace::Device(block));
        for block in self.cached.iter().map(BlockId) {
            if self.holders(block) > 0 || !is_published(block) {
                return Err(format!("block {block} does not belong in the cached list"));
            }
        }
        if self.free.iter().any(|block| self.holders(*block) > 0 || is_published(*block)) {
            return Err("a free block is held or published".into());
        }
        if self.free() + self.cached() + held_blocks != self.total() {
            return Err(format!(
                "{} free + {} cached + {held_blocks} held is not {}",
                self.free(),
                self.cached(),
                self.total()
            ));
        }
        self.check_tier()?;
        self.index.check()
    }

    fn check_tier(&self) -> Result<(), String> {
        self.tier.check()?;
        let named =
            self.tier.holding().filter(|block| self.index.is_published(BlockPlace::Host(*block))).count();
        if (named, self.index.host_len() as usize) != (self.tier.holding().count(), named) {
            return Err(
                "a host block holds what has no name, or has the name of what it does not hold".into()
            );
        }
        let is_idle = |block: &BlockId| self.holders(*block) == 0 && !self.cached.contains(block.0);
        match self.tier.returning().find(is_idle) {
            Some(block) => Err(format!("something moves back to block {block}, which is free")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::Hasher;

    /// Grants and publishes a chain of one-token blocks.
    fn chain(ledger: &mut Ledger, ids: &[u32]) -> Vec<(BlockKey, BlockId)> {
        let hasher = Hasher::new([0, 0]);
        let (mut parent, mut link, mut made) = (None, PublicationId(0), Vec::new());
        for id in ids {
            let key = hasher.block(1, parent, &[TokenId(*id)]);
            let block = ledger.grant().expect("the test leaves room");
            if let Publication::New(new) = ledger.publish(block, 1, link, key, &[TokenId(*id)]) {
                link = new;
            }
            parent = Some(key);
            made.push((key, block));
        }
        made
    }

    #[test]
    fn released_tails_are_evicted_before_heads() {
        let mut ledger = Ledger::new(3, 0, false);
        let made = chain(&mut ledger, &[1, 2, 3]);
        for (_, block) in made.iter().rev() {
            ledger.release(*block);
        }
        assert_eq!((ledger.free(), ledger.cached()), (0, 3));
        let taken = ledger.grant().expect("a cached block can be evicted");
        assert_eq!(taken, made[2].1);
        assert!(ledger.find(1, PublicationId(0), made[0].0, &[TokenId(1)]).is_some());
        let mut held = vec![0; 3];
        held[taken.0 as usize] = 1;
        assert_eq!(ledger.check(&held), Ok(()));
    }

    #[test]
    fn a_held_block_is_never_granted() {
        let mut ledger = Ledger::new(2, 0, false);
        chain(&mut ledger, &[1, 2]);
        assert_eq!(ledger.grant(), None);
    }

    #[test]
    fn an_unpublished_block_cannot_be_hit_and_becomes_free() {
        let mut ledger = Ledger::new(2, 0, false);
        let made = chain(&mut ledger, &[1]);
        ledger.release(made[0].1);
        ledger.unpublish(made[0].1);
        ledger.unpublish(made[0].1);
        assert_eq!((ledger.free(), ledger.cached()), (2, 0));
        assert!(ledger.find(1, PublicationId(0), made[0].0, &[TokenId(1)]).is_none());
        assert_eq!(ledger.check(&[0, 0]), Ok(()));
    }

    #[test]
    fn what_leaves_with_a_step_is_found_again_once_the_step_is_done_and_its_name_follows_a_new_copy() {
        let mut ledger = Ledger::new(1, 1, false);
        let made = chain(&mut ledger, &[1]);
        let find =
            |ledger: &Ledger| ledger.find(1, PublicationId(0), made[0].0, &[TokenId(1)]).map(|found| found.0);
        ledger.release(made[0].1);
        let block = ledger.grant().expect("a cached block can be evicted");
        assert_eq!(find(&ledger), None, "it could not be back in time");
        let moves = ledger.send_moves();
        assert_eq!((moves.out.len(), moves.back.len()), (1, 0));
        ledger.moves_done();
        assert_eq!(find(&ledger), Some(BlockPlace::Host(HostBlockId(0))));
        // Somebody computes it again.
        let link = Publication::New(PublicationId(1));
        assert_eq!(ledger.publish(block, 1, PublicationId(0), made[0].0, &[TokenId(1)]), link);
        assert_eq!((find(&ledger), ledger.tier().used), (Some(BlockPlace::Device(block)), 0));
        assert_eq!(ledger.check(&[1]), Ok(()));
    }
}
