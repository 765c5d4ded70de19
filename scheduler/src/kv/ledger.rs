//! Who holds which block: grant, share, release, evict. Integers only.
//!
//! A block is *held* (some row counts on it), *cached* (nobody holds it, its content can be hit) or
//! *free*. New blocks come from the free ones first and from the cached ones, oldest first, only when
//! no free one is left. A row releases its blocks from the tail, so tails grow old before heads.

use base::{BlockId, TokenId};

use super::prefix::{BlockKey, Link, PrefixIndex, Publication};

/// A neighbour in the list of cached blocks: none at its ends.
type Neighbour = Option<u32>;

/// One block's state.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    holders: u32,
    older: Neighbour,
    younger: Neighbour,
}

/// The pool as numbers.
#[derive(Clone, Debug)]
pub struct Ledger {
    blocks: Vec<Block>,
    free: Vec<BlockId>,
    oldest: Neighbour,
    youngest: Neighbour,
    cached: u32,
    index: PrefixIndex,
}

impl Ledger {
    /// A pool of `total` free blocks.
    pub fn new(total: u32) -> Self {
        Self {
            blocks: vec![Block::default(); total as usize],
            free: (0..total).rev().map(BlockId).collect(),
            oldest: None,
            youngest: None,
            cached: 0,
            index: PrefixIndex::new(total),
        }
    }

    /// Blocks of the pool.
    pub fn total(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Blocks with nothing in them.
    pub fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Blocks nobody holds whose content can be hit.
    pub fn cached(&self) -> u32 {
        self.cached
    }

    /// Blocks that can be granted: free or cached.
    pub fn available(&self) -> u32 {
        self.free() + self.cached
    }

    /// How many rows hold the block.
    pub fn holders(&self, block: BlockId) -> u32 {
        self.blocks[block.0 as usize].holders
    }

    /// The block with this content after `parent`, if it is still in the pool.
    pub fn find(
        &self,
        scope: u128,
        parent: Link,
        key: BlockKey,
        tokens: &[TokenId],
    ) -> Option<(BlockId, Link)> {
        self.index.find(scope, parent, key, tokens)
    }

    /// One more holder of a block that was found.
    pub fn hold(&mut self, block: BlockId) {
        if self.blocks[block.0 as usize].holders == 0 {
            self.unlink(block);
        }
        self.blocks[block.0 as usize].holders += 1;
    }

    /// A block with one holder and no content, or `None` when every block is held.
    pub fn grant(&mut self) -> Option<BlockId> {
        let block = match self.free.pop() {
            Some(block) => block,
            None => {
                let oldest = BlockId(self.oldest?);
                self.unlink(oldest);
                self.index.forget(oldest);
                oldest
            }
        };
        self.blocks[block.0 as usize].holders = 1;
        Some(block)
    }

    /// One holder less; the last one leaves the block cached if it has a content to hit, else free.
    pub fn release(&mut self, block: BlockId) {
        let state = &mut self.blocks[block.0 as usize];
        state.holders = state.holders.checked_sub(1).expect("only holders release, each once");
        if state.holders == 0 {
            if self.index.is_published(block) {
                self.link(block);
            } else {
                self.free.push(block);
            }
        }
    }

    /// Makes the block's content hittable. A content that is known already stays where it is, unless it
    /// cannot be reached any more.
    pub(crate) fn publish(
        &mut self,
        block: BlockId,
        scope: u128,
        parent: Link,
        key: BlockKey,
        tokens: &[TokenId],
    ) -> Publication {
        if let Some(orphan) = self.index.orphan(scope, parent, key, tokens) {
            self.unpublish(orphan);
        }
        self.index.publish(block, scope, parent, key, tokens)
    }

    /// Takes the content back: what a failed step promised to write is not there.
    pub fn unpublish(&mut self, block: BlockId) {
        if self.index.forget(block) && self.blocks[block.0 as usize].holders == 0 {
            self.unlink(block);
            self.free.push(block);
        }
    }

    /// Takes every content back: the memory behind the pool was lost.
    pub fn forget_all(&mut self) {
        for number in 0..self.total() {
            self.unpublish(BlockId(number));
        }
    }

    /// Adds a block at the young end of the cached list.
    fn link(&mut self, block: BlockId) {
        let older = self.youngest;
        self.blocks[block.0 as usize].older = older;
        self.blocks[block.0 as usize].younger = None;
        match older {
            Some(older) => self.blocks[older as usize].younger = Some(block.0),
            None => self.oldest = Some(block.0),
        }
        self.youngest = Some(block.0);
        self.cached += 1;
    }

    /// Takes a block out of the cached list.
    fn unlink(&mut self, block: BlockId) {
        let Block { older, younger, .. } = self.blocks[block.0 as usize];
        match older {
            Some(older) => self.blocks[older as usize].younger = younger,
            None => self.oldest = younger,
        }
        match younger {
            Some(younger) => self.blocks[younger as usize].older = older,
            None => self.youngest = older,
        }
        self.cached -= 1;
    }

    /// Compares the books with `held`, the number of holders each block should have.
    pub fn check(&self, held: &[u32]) -> Result<(), String> {
        let mut held_blocks = 0;
        for (number, block) in self.blocks.iter().enumerate() {
            if block.holders != held[number] {
                return Err(format!("block {number} has {} holders, {} rows", block.holders, held[number]));
            }
            held_blocks += u32::from(block.holders > 0);
        }
        let (mut listed, mut next, mut last) = (0, self.oldest, None);
        while let Some(number) = next {
            let block = &self.blocks[number as usize];
            if block.holders > 0 || !self.index.is_published(BlockId(number)) || block.older != last {
                return Err(format!("block {number} does not belong in the cached list"));
            }
            (listed, last, next) = (listed + 1, Some(number), block.younger);
        }
        if listed != self.cached || last != self.youngest {
            return Err(format!("{listed} blocks listed as cached, {} counted", self.cached));
        }
        if self.free.iter().any(|block| self.holders(*block) > 0 || self.index.is_published(*block)) {
            return Err("a free block is held or published".into());
        }
        if self.free() + self.cached + held_blocks != self.total() {
            return Err(format!(
                "{} free + {} cached + {held_blocks} held is not {}",
                self.free(),
                self.cached,
                self.total()
            ));
        }
        if self.index.len() > self.total() as usize {
            return Err("more published blocks than blocks".into());
        }
        self.index.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::Hasher;

    /// Grants and publishes a chain of one-token blocks.
    fn chain(ledger: &mut Ledger, ids: &[u32]) -> Vec<(BlockKey, BlockId)> {
        let hasher = Hasher::new([0, 0]);
        let (mut parent, mut link, mut made) = (None, Link(0), Vec::new());
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
        let mut ledger = Ledger::new(3);
        let made = chain(&mut ledger, &[1, 2, 3]);
        for (_, block) in made.iter().rev() {
            ledger.release(*block);
        }
        assert_eq!((ledger.free(), ledger.cached()), (0, 3));
        let taken = ledger.grant().expect("a cached block can be evicted");
        assert_eq!(taken, made[2].1);
        assert!(ledger.find(1, Link(0), made[0].0, &[TokenId(1)]).is_some());
        let mut held = vec![0; 3];
        held[taken.0 as usize] = 1;
        assert_eq!(ledger.check(&held), Ok(()));
    }

    #[test]
    fn a_held_block_is_never_granted() {
        let mut ledger = Ledger::new(2);
        chain(&mut ledger, &[1, 2]);
        assert_eq!(ledger.grant(), None);
    }

    #[test]
    fn an_unpublished_block_cannot_be_hit_and_becomes_free() {
        let mut ledger = Ledger::new(2);
        let made = chain(&mut ledger, &[1]);
        ledger.release(made[0].1);
        ledger.unpublish(made[0].1);
        ledger.unpublish(made[0].1);
        assert_eq!((ledger.free(), ledger.cached()), (2, 0));
        assert!(ledger.find(1, Link(0), made[0].0, &[TokenId(1)]).is_none());
        assert_eq!(ledger.check(&[0, 0]), Ok(()));
    }
}
