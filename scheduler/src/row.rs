//! One row of a relQuery while it lives here: its tokens, its blocks, where it stands.

use std::borrow::Cow;

use base::{BlockId, RequestId, SpanKind, TokenId, WorkItem};

use crate::event::Usage;
use crate::kv::{BlockKey, Hasher, Link};

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
    /// Positions whose keys and values lie in `blocks`.
    pub(crate) computed: u32,
    /// Blocks held, in reading order.
    pub(crate) blocks: Vec<BlockId>,
    /// Publications of the leading blocks; shorter than `blocks` where one is private.
    pub(crate) links: Vec<Link>,
    /// Keys of the leading full blocks, made when first needed.
    keys: Vec<BlockKey>,
    /// Steps of it alone that failed, since its last token.
    pub(crate) failures: u32,
    pub(crate) usage: Usage,
    /// Whether its first prefill has run.
    pub(crate) has_started: bool,
    /// Prompt tokens that were in the pool at some time, computed or supplied.
    pub(crate) reached: u32,
}

impl Row {
    pub(crate) fn new(item: WorkItem) -> Self {
        Self {
            item,
            request: None,
            state: RowState::Waiting,
            generated: Vec::new(),
            computed: 0,
            blocks: Vec::new(),
            links: Vec::new(),
            keys: Vec::new(),
            failures: 0,
            usage: Usage::default(),
            has_started: false,
            reached: 0,
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

    /// Tokens whose keys and values are not in the pool.
    pub(crate) fn missing(&self) -> u32 {
        self.total() - self.computed
    }

    /// Blocks that it needs, beside those it holds, to compute them.
    pub(crate) fn blocks_missing(&self, block_tokens: u32) -> u32 {
        self.total().div_ceil(block_tokens).saturating_sub(self.blocks.len() as u32)
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

    /// Tokens of full block `number`.
    pub(crate) fn block_content(&self, number: usize, block_tokens: u32) -> Cow<'_, [TokenId]> {
        let start = number as u32 * block_tokens;
        self.tokens(start, start + block_tokens)
    }

    /// Makes the keys of the first `blocks` blocks, all of them full, unless they exist.
    pub(crate) fn make_keys(&mut self, hasher: &Hasher, scope: u128, blocks: u32, block_tokens: u32) {
        while self.keys.len() < blocks as usize {
            let number = self.keys.len();
            let parent = self.keys.last().copied();
            let key = hasher.block(scope, parent, &self.block_content(number, block_tokens));
            self.keys.push(key);
        }
    }

    /// The keys made so far.
    pub(crate) fn keys(&self) -> &[BlockKey] {
        &self.keys
    }
}
