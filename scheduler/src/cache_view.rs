//! What the pool and its host tier hold of a row: the hits that admission counts on and priorities sample.

use crate::config::SchedulerConfig;
use crate::kv::{BlockPlace, Hasher, Ledger, PublicationId};
use crate::row::Row;

/// What is looked at to find a row's hits; nothing is changed by looking.
pub(crate) struct CacheView<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) hasher: &'a Hasher,
    pub(crate) block_tokens: u32,
    pub(crate) prefix_cache: bool,
    pub(crate) publish_generated: bool,
}

impl<'a> CacheView<'a> {
    pub(crate) fn new(ledger: &'a Ledger, hasher: &'a Hasher, config: &SchedulerConfig) -> Self {
        let SchedulerConfig { block_tokens, prefix_cache, publish_generated, .. } = *config;
        Self { ledger, hasher, block_tokens, prefix_cache, publish_generated }
    }

    /// Blocks of part `number` of a row (behind all parts, of its own text) that can ever be hit.
    pub(crate) fn hittable(&self, row: &Row, number: usize) -> u32 {
        if !self.prefix_cache || row.scores_prompt() {
            return 0;
        }
        let content = if self.publish_generated { row.total() } else { row.prompt_len() };
        row.hittable(number, content, self.block_tokens)
    }

    /// Leading blocks of that part that lie in the pool or its host tier, which count alike: moving a block
    /// back takes a fraction of what computing it does. They are given to `see`, their number is returned.
    pub(crate) fn resident(
        &self,
        scope: u128,
        row: &mut Row,
        number: usize,
        mut see: impl FnMut(BlockPlace),
    ) -> u32 {
        let hittable = self.hittable(row, number);
        row.make_keys(self.hasher, scope, (number, hittable), self.block_tokens);
        let scope = row.chain_scope(self.hasher, scope, number);
        let mut parent = PublicationId::default();
        for (block, key) in row.chain(number).keys.iter().enumerate().take(hittable as usize) {
            let content = row.block_content(number, block, self.block_tokens);
            match self.ledger.find(scope, parent, *key, &content) {
                Some((place, link)) => {
                    parent = link;
                    see(place);
                }
                None => return block as u32,
            }
        }
        hittable
    }

    /// Tokens of part `number` that its first `blocks` blocks hold.
    pub(crate) fn tokens_in(&self, row: &Row, number: usize, blocks: u32) -> u32 {
        let tokens = blocks * self.block_tokens;
        row.parts.get(number).map_or(tokens, |part| part.tokens().min(tokens))
    }

    /// `utok(r)`: tokens that a prefill of the row would compute now.
    pub(crate) fn uncached(&self, scope: u128, row: &mut Row) -> u32 {
        let mut cached = 0;
        for number in 0..=row.parts.len() {
            let blocks = self.resident(scope, row, number, |_| ());
            cached += self.tokens_in(row, number, blocks);
        }
        row.total() - cached
    }
}
