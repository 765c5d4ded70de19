//! One row of a relQuery while it lives here: its tokens, its blocks, where it stands.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use base::{
    BlockId, PromptTargets, PromptToken, RequestId, Section, Sees, SpanKind, TokenCount, TokenId, WorkItem,
};

use crate::event::Usage;
use crate::isolation::FaultRecord;
use crate::kv::Hasher;
use crate::sections::{self, Chain, PromptPart};

/// Where a row stands. A row that has ended is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowState {
    /// Holds nothing.
    Waiting,
    /// Holds blocks for its whole prompt, a part of which is computed.
    Prefilling,
    /// Its prompt is computed; every step may add a token.
    Running,
}

/// One row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Prompt, output limit, seed.
    pub(crate) item: WorkItem,
    /// Given when the row is first admitted.
    pub(crate) request: Option<RequestId>,
    pub(crate) state: RowState,
    /// Output so far; kept over a preemption.
    pub(crate) generated: Vec<TokenId>,
    /// Tokens of prompt and output whose keys and values are in the pool: those before this index, and the
    /// hits behind.
    pub(crate) computed: u32,
    /// Its sections but the last; an undivided prompt has none.
    pub(crate) parts: Vec<PromptPart>,
    /// The last section, and the output.
    pub(crate) own: Chain,
    /// Tokens of it that lay in the pool when the row was admitted.
    pub(crate) own_hit: u32,
    /// What steps that failed hold against it.
    pub(crate) faults: FaultRecord,
    pub(crate) usage: Usage,
    /// Whether its first prefill has run.
    pub(crate) has_started: bool,
    /// Prompt tokens that were in the pool at some time, computed or supplied.
    pub(crate) reached: u32,
    /// Prompt tokens of which was told how likely they were.
    pub(crate) scored: u32,
}

impl Row {
    pub(crate) fn new(item: WorkItem) -> Self {
        Self {
            parts: sections::parts(&item.sections),
            own: Chain::default(),
            own_hit: 0,
            item,
            request: None,
            state: RowState::Waiting,
            generated: Vec::new(),
            computed: 0,
            faults: FaultRecord::default(),
            usage: Usage::default(),
            has_started: false,
            reached: 0,
            scored: 0,
        }
    }

    /// Tokens of independent sections among those at these indices.
    pub(crate) fn independent(&self, indices: Range<u32>) -> u32 {
        let parts = self.parts.iter().filter(|part| part.section.sees != Sees::Before);
        parts.map(|part| part.end().min(indices.end).saturating_sub(part.start.max(indices.start))).sum()
    }

    /// Tokens that the prompt has twice: as they see their unit, and as they see all before them.
    pub(crate) fn repaired(&self) -> u32 {
        self.parts.iter().map(PromptPart::repaired_tokens).sum()
    }

    /// Whether it asks how likely its prompt's tokens are, and is still to be told of some: these have to be
    /// computed, whatever the prefix cache has of them. Nobody asks that of prompts with sections.
    pub(crate) fn scores_prompt(&self) -> bool {
        let is_asked = self.item.generation.prompt_logprobs.is_some() && self.parts.is_empty();
        is_asked && self.scored < self.prompt_len()
    }

    /// What is asked of tokens `start..end` of prompt and output when they are computed.
    pub(crate) fn prompt_targets(&self, start: u32, end: u32) -> Option<PromptTargets> {
        let top = self.item.generation.prompt_logprobs.filter(|_| self.scores_prompt())?;
        let behind = start + 1..(end + 1).min(self.prompt_len());
        let tokens =
            if behind.is_empty() { Vec::new() } else { self.tokens(behind.start, behind.end).into_owned() };
        Some(PromptTargets { tokens, top })
    }

    /// Takes in what was told of the prompt's tokens when those from `start` on were computed; those of them that
    /// are new, for a row that was taken back has some told again.
    pub(crate) fn take_scored(&mut self, start: u32, reported: &Arc<[PromptToken]>) -> Arc<[PromptToken]> {
        let first = if start == 0 { 0 } else { start + 1 };
        let known = self.scored.saturating_sub(first) as usize;
        self.scored = self.scored.max(first + reported.len() as u32);
        match known {
            0 => Arc::clone(reported),
            _ => reported.get(known..).unwrap_or_default().into(),
        }
    }

    /// Whether its prompt is computed.
    pub(crate) fn is_running(&self) -> bool {
        self.state == RowState::Running
    }

    pub(crate) fn prompt_len(&self) -> u32 {
        self.item.prompt.len() as u32
    }

    /// Prompt and output so far: what a prefill has to bring into the pool.
    pub(crate) fn total(&self) -> u32 {
        self.prompt_len() + self.generated.len() as u32
    }

    /// Index of the first token of its own text, which the output continues.
    pub(crate) fn own_start(&self) -> u32 {
        self.parts.last().map_or(0, PromptPart::end)
    }

    /// Its own text as a section.
    pub(crate) fn own_section(&self) -> Section {
        let whole =
            Section { tokens: TokenCount(u64::from(self.prompt_len())), position: 0, sees: Sees::Before };
        self.item.sections.last().copied().unwrap_or(whole)
    }

    /// Tokens of its own text and of the output.
    pub(crate) fn own_total(&self) -> u32 {
        self.total() - self.own_start()
    }

    /// What of prompt and output was not in the pool when the row was admitted, section by section.
    fn gaps(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        let parts = self.parts.iter().map(|part| part.start + part.hit..part.end());
        let own = self.own_start() + self.own_hit..self.total();
        parts.chain(std::iter::once(own)).filter(|gap| !gap.is_empty())
    }

    /// What is left to compute before index `end`, section by section.
    pub(crate) fn left(&self, end: u32) -> impl Iterator<Item = Range<u32>> + '_ {
        let cut = move |gap: Range<u32>| gap.start.max(self.computed)..gap.end.min(end);
        self.gaps().map(cut).filter(|gap| !gap.is_empty())
    }

    /// The index behind the next `take` tokens that are to be computed.
    pub(crate) fn behind(&self, take: u32) -> u32 {
        let mut left = take;
        for gap in self.left(self.total()) {
            let tokens = gap.end - gap.start;
            if left <= tokens {
                return gap.start + left;
            }
            left -= tokens;
        }
        self.total()
    }

    /// Tokens whose keys and values are not in the pool.
    pub(crate) fn missing(&self) -> u32 {
        self.left(self.total()).map(|gap| gap.end - gap.start).sum()
    }

    /// Blocks that it needs, beside those it holds, to compute them. (What it needs for its parts it got with
    /// the first.)
    pub(crate) fn blocks_missing(&self, block_tokens: u32) -> u32 {
        self.own_total().div_ceil(block_tokens).saturating_sub(self.own.blocks.len() as u32)
    }

    /// Blocks for all of prompt and output.
    pub(crate) fn blocks_needed(&self, block_tokens: u32) -> u32 {
        let parts: u32 = self.parts.iter().map(|part| part.tokens().div_ceil(block_tokens)).sum();
        parts + self.own_total().div_ceil(block_tokens)
    }

    /// All blocks that it holds.
    pub(crate) fn blocks(&self) -> impl DoubleEndedIterator<Item = BlockId> + '_ {
        self.parts.iter().flat_map(|part| &part.chain.blocks).chain(&self.own.blocks).copied()
    }

    /// Gives all its blocks back, those of its end first; nothing of it is in the pool.
    pub(crate) fn release(&mut self, mut release: impl FnMut(BlockId)) {
        for chain in
            std::iter::once(&mut self.own).chain(self.parts.iter_mut().rev().map(|part| &mut part.chain))
        {
            chain.links.clear();
            std::mem::take(&mut chain.blocks).into_iter().rev().for_each(&mut release);
        }
        self.parts.iter_mut().for_each(|part| part.hit = 0);
        (self.computed, self.own_hit) = (0, 0);
    }

    /// Whether it holds any block.
    pub(crate) fn holds_blocks(&self) -> bool {
        self.blocks().next().is_some()
    }

    pub(crate) fn output_max(&self) -> u64 {
        self.item.generation.output_max.0
    }

    /// Tokens that no other row is expected to share: the last cell's value and what follows it.
    pub(crate) fn private_tokens(&self) -> u64 {
        let spans = &self.item.spans;
        let last_field = spans.iter().rposition(|span| span.kind == SpanKind::Field);
        match last_field {
            Some(at) => spans[at..].iter().map(|span| span.tokens.0).sum(),
            None => u64::from(self.prompt_len()),
        }
    }

    /// The token at `position` of prompt and output.
    fn token(&self, position: usize) -> TokenId {
        match position.checked_sub(self.item.prompt.len()) {
            None => self.item.prompt[position],
            Some(output) => self.generated[output],
        }
    }

    /// Tokens `start..end` of prompt and output.
    pub(crate) fn tokens(&self, start: u32, end: u32) -> Cow<'_, [TokenId]> {
        let (start, end) = (start as usize, end as usize);
        match self.item.prompt.get(start..end) {
            Some(prompt) => Cow::Borrowed(prompt),
            None => Cow::Owned((start..end).map(|position| self.token(position)).collect()),
        }
    }

    /// The chain of part `number`; behind all parts, its own.
    pub(crate) fn chain(&self, number: usize) -> &Chain {
        self.parts.get(number).map_or(&self.own, |part| &part.chain)
    }

    /// The same, to change.
    pub(crate) fn chain_mut(&mut self, number: usize) -> &mut Chain {
        match self.parts.get_mut(number) {
            Some(part) => &mut part.chain,
            None => &mut self.own,
        }
    }

    /// The part that the token at `index` belongs to; their number where that is its own text.
    pub(crate) fn part_at(&self, index: u32) -> usize {
        self.parts.partition_point(|part| part.end() <= index)
    }

    /// Index of the first token of part `number`, or of its own text.
    pub(crate) fn part_start(&self, number: usize) -> u32 {
        self.parts.get(number).map_or_else(|| self.own_start(), |part| part.start)
    }

    /// Tokens of block `block` of part `number`: the last one of a part may hold fewer than a block can.
    pub(crate) fn block_content(&self, number: usize, block: usize, block_tokens: u32) -> Cow<'_, [TokenId]> {
        let start = self.part_start(number) + block as u32 * block_tokens;
        let end = self.parts.get(number).map_or(u32::MAX, PromptPart::end);
        self.tokens(start, end.min(start + block_tokens))
    }

    /// Blocks of part `number` that can ever be hit: all; of its own text only full ones of the first
    /// `content` tokens of prompt and output, and never the one with its last token, which must be computed
    /// to sample from.
    pub(crate) fn hittable(&self, number: usize, content: u32, block_tokens: u32) -> u32 {
        match self.parts.get(number) {
            Some(part) => part.tokens().div_ceil(block_tokens),
            None => content.min(self.total() - 1).saturating_sub(self.own_start()) / block_tokens,
        }
    }

    /// Makes the keys of the first `blocks` blocks of part `number`, and of all parts before, unless they
    /// exist.
    pub(crate) fn make_keys(
        &mut self,
        hasher: &Hasher,
        scope: u128,
        (number, blocks): (usize, u32),
        block_tokens: u32,
    ) {
        for part in 0..number {
            let all = self.parts[part].tokens().div_ceil(block_tokens);
            self.make_chain_keys(hasher, scope, (part, all), block_tokens);
        }
        self.make_chain_keys(hasher, scope, (number, blocks), block_tokens);
    }

    fn make_chain_keys(
        &mut self,
        hasher: &Hasher,
        scope: u128,
        (number, blocks): (usize, u32),
        block_tokens: u32,
    ) {
        if self.chain(number).keys.len() >= blocks as usize {
            return;
        }
        let scope = self.chain_scope(hasher, scope, number);
        while self.chain(number).keys.len() < blocks as usize {
            let block = self.chain(number).keys.len();
            let parent = self.chain(number).keys.last().copied();
            let key = hasher.block(scope, parent, &self.block_content(number, block, block_tokens));
            self.chain_mut(number).keys.push(key);
        }
    }

    /// What the keys of part `number` begin with, in a relQuery of this scope. The parts before have their
    /// keys.
    pub(crate) fn chain_scope(&mut self, hasher: &Hasher, scope: u128, number: usize) -> u128 {
        if self.item.sections.is_empty() {
            return scope;
        }
        if let Some(known) = self.chain(number).scope {
            return known;
        }
        let section = self.parts.get(number).map_or_else(|| self.own_section(), |part| part.section);
        let made = sections::scope(hasher, scope, &self.parts, section, number);
        self.chain_mut(number).scope = Some(made);
        made
    }
}
