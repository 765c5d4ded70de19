//! What the scheduler tells its owner: refusals, events, counts. Plain data.

use std::sync::Arc;

use base::{End, Periods, PromptToken, RelQueryId, RowError, TokenCount, TokenId, TokenLogprob};

use crate::kv::TierStats;

/// Why a submission was not taken. Nothing of it was kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No rows.
    #[error("a relQuery needs at least one row")]
    Empty,
    /// A row without prompt tokens.
    #[error("row {row} has an empty prompt")]
    EmptyPrompt { row: u32 },
    /// A row that may produce no token.
    #[error("row {row} allows no output token")]
    NoOutput { row: u32 },
    /// Too many rows are held already.
    #[error("the queue holds {rows} rows of at most {limit}")]
    QueueFull {
        /// Rows held now.
        rows: u32,
        /// Most rows held.
        limit: u32,
    },
    /// Too many relQueries are held already.
    #[error("the queue holds {relqueries} relQueries of at most {limit}")]
    TooManyRelQueries {
        /// RelQueries held now.
        relqueries: u32,
        /// Most relQueries held.
        limit: u32,
    },
    /// A row that could not run even alone.
    #[error("row {row} needs {tokens} of KV memory, the pool has {limit}")]
    NeverFits {
        row: u32,
        /// Its prompt and longest output.
        tokens: TokenCount,
        /// The pool's size.
        limit: TokenCount,
    },
    /// A prompt cut into sections that no prompt has.
    #[error("row {row}: {reason}")]
    Sections {
        row: u32,
        /// What is wrong with them.
        reason: &'static str,
    },
    /// The relQuery's id is in use.
    #[error("relQuery {0} exists already")]
    Duplicate(RelQueryId),
    /// Two rows of a relQuery have one number.
    #[error("row {row} exists already in its relQuery")]
    DuplicateRow { row: u32 },
    /// The relQuery to extend is not open (any more).
    #[error("relQuery {0} is not open")]
    Unknown(RelQueryId),
}

/// Tokens of a row, or of the rows of a relQuery together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt: TokenCount,
    /// Prompt tokens that are wanted twice: in an independent section, and again as they see all before them.
    /// What was cached and what was computed add up to the prompt and these, unless rows were preempted.
    pub repaired: TokenCount,
    /// Prompt tokens that the prefix cache, or another row of the same step, supplied.
    pub cached: TokenCount,
    /// Of those, tokens of independent sections: they saw their unit only, wherever it stood when it was
    /// computed.
    pub shifted: TokenCount,
    /// Prompt tokens really computed, those recomputed after a preemption included.
    pub computed: TokenCount,
    pub output: TokenCount,
}

impl Usage {
    /// Of the cached tokens, those that saw all that stands before them.
    pub fn exact(&self) -> TokenCount {
        TokenCount(self.cached.0.saturating_sub(self.shifted.0))
    }

    /// Of a row that may be midway through its prompt: no more of that than what was cached and what was computed.
    pub(crate) fn so_far(self) -> Self {
        let reached = TokenCount(self.cached.0.saturating_add(self.computed.0));
        let prompt = self.prompt.min(reached);
        let repaired = self.repaired.min(reached - prompt);
        Self { prompt, repaired, ..self }
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.prompt += other.prompt;
        self.repaired += other.repaired;
        self.cached += other.cached;
        self.shifted += other.shifted;
        self.computed += other.computed;
        self.output += other.output;
    }
}

/// What happened to a row or relQuery. A relQuery's events end with `RelQueryDone`, unless it is
/// cancelled: then they just stop.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The row's first step has run.
    Started { relquery: RelQueryId, row: u32 },
    /// The next tokens of the row's prompt, and how likely they were, where the row asks for that. They all come
    /// before the first token of its output.
    Prompt { relquery: RelQueryId, row: u32, tokens: Arc<[PromptToken]> },
    /// A token of the row.
    Token {
        relquery: RelQueryId,
        row: u32,
        token: TokenId,
        /// Text that is final with it.
        text: String,
        /// How likely it was, where the row asks for that.
        logprob: Option<Box<TokenLogprob>>,
    },
    /// Text of a row whose tokens are not known: it comes from a replica that sends text.
    Text { relquery: RelQueryId, row: u32, text: String },
    /// The row has ended.
    RowDone {
        relquery: RelQueryId,
        row: u32,
        end: End,
        /// Its tokens.
        usage: Usage,
        /// How likely its output was among those that its constraint allows, where that is known.
        probability: Option<f64>,
    },
    /// The row has failed; its neighbours go on.
    RowFailed {
        relquery: RelQueryId,
        row: u32,
        error: RowError,
        /// Its tokens.
        usage: Usage,
    },
    /// All rows have ended, failed or been cancelled.
    RelQueryDone {
        relquery: RelQueryId,
        /// Its latency in three parts.
        periods: Periods,
        /// The tokens of all its rows.
        usage: Usage,
    },
}

/// How full the scheduler is, and what it has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// RelQueries held.
    pub relqueries: u32,
    /// RelQueries with a waiting row.
    pub relqueries_waiting: u32,
    /// RelQueries with a row that holds KV.
    pub relqueries_running: u32,
    pub rows_waiting: u32,
    /// Rows that hold KV.
    pub rows_running: u32,
    /// Blocks of the pool.
    pub kv_total_blocks: u32,
    /// Blocks that running rows, or pins, hold.
    pub kv_used_blocks: u32,
    /// Blocks nobody holds whose content can still be hit.
    pub kv_cached_blocks: u32,
    /// Blocks with nothing in them.
    pub kv_free_blocks: u32,
    /// Of the used blocks, those that pins hold; one of two pins counts twice.
    pub kv_pinned_blocks: u32,
    /// The host tier.
    pub tier: TierStats,
    /// Prompt tokens (recomputed ones included) that prefills asked for.
    pub prompt_tokens: u64,
    /// Of those, tokens that the prefix cache supplied, out of the pool or the host tier
    /// ([`TierStats::restored_tokens`]).
    pub prefix_hit_tokens: u64,
    /// Tokens of outputs, sampled and forced.
    pub output_tokens: u64,
    /// Of those, tokens that came with a sampled one because a constraint left no choice.
    pub forced_tokens: u64,
    /// Tokens that decode steps computed as guesses.
    pub guessed_tokens: u64,
    /// Tokens of outputs that were guessed: each saved its row a step.
    pub accepted_tokens: u64,
    /// Steps planned.
    pub steps: u64,
    /// Rows preempted for want of blocks, or taken back when the memory was lost.
    pub preemptions: u64,
}
