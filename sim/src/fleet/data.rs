//! The benchmark's rows: prompts that are a prefix out of a few and tokens of their own (vLLM's
//! `PrefixRepetitionRandomDataset`), in an order of chance, read from a source of a stated rate.

use std::sync::Arc;

use base::{Generation, Nanos, Span, SpanKind, Time, TokenCount, TokenId, WorkItem};

use crate::draws::Draws;

/// Nanoseconds that a stalled source may make up for at once.
const TICK: u64 = 10_000_000;
const VOCABULARY: u64 = 150_000;

/// Tokens of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowTokens {
    /// Of its prefix, which other rows share.
    pub prefix: u64,
    /// Of the rest of its prompt.
    pub own: u64,
    pub output: u64,
}

/// A data set.
#[derive(Clone, Debug)]
pub struct Data {
    /// Prefix of each row, in the order in which they are read.
    prefix_of: Vec<u32>,
    prefix_tokens: u64,
    own_tokens: u64,
    generation: Arc<Generation>,
    spans: Arc<[Span]>,
    seed: u64,
}

impl Data {
    /// `rows` rows over `prefixes` prefixes, as many of each as of any other but one.
    pub fn new(rows: usize, prefixes: u32, tokens: RowTokens, seed: u64) -> Self {
        let mut prefix_of: Vec<u32> = (0..rows).map(|row| row as u32 % prefixes).collect();
        Draws::new(seed, 1).shuffle(&mut prefix_of);
        let RowTokens { prefix, own, output } = tokens;
        let tokens = TokenCount(prefix + own);
        Self {
            prefix_of,
            prefix_tokens: prefix,
            own_tokens: own,
            generation: Arc::new(Generation { output_max: TokenCount(output), ..Generation::default() }),
            spans: Arc::from([Span { kind: SpanKind::Field, tokens }]),
            seed,
        }
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.prefix_of.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.prefix_of.is_empty()
    }

    /// The prompt of a row.
    pub fn prompt(&self, row: usize) -> Arc<[TokenId]> {
        let tokens = |purpose, count| {
            let mut draws = Draws::new(self.seed, purpose);
            (0..count).map(move |_| TokenId(draws.between(0, VOCABULARY - 1) as u32))
        };
        let prefix = tokens(2 + u64::from(self.prefix_of[row]), self.prefix_tokens);
        prefix.chain(tokens((1 << 32) + row as u64, self.own_tokens)).collect()
    }

    /// A row as a work item.
    pub fn item(&self, row: usize) -> WorkItem {
        WorkItem {
            row: row as u32,
            prompt: self.prompt(row),
            spans: Arc::clone(&self.spans),
            sections: Arc::default(),
            generation: Arc::clone(&self.generation),
            seed: row as u64,
        }
    }

    /// All rows in the order of their prompts, as a global sort leaves them.
    pub fn sorted(&self) -> Vec<usize> {
        let mut rows: Vec<usize> = (0..self.len()).collect();
        // Prompts of random tokens: rows of one prefix lie together, and the order of prefixes is any.
        rows.sort_by_key(|row| self.prefix_of[*row]);
        rows
    }
}

/// Where rows are read from, one after the other, as fast as they come and are taken.
#[derive(Clone, Debug)]
pub struct RowSource {
    next: usize,
    rows: usize,
    period: Nanos,
    /// When the next row is there.
    at: Time,
}

impl RowSource {
    /// A source of so many rows.
    pub fn new(rows: usize, rows_per_second: u64) -> Self {
        Self { next: 0, rows, period: Nanos(1_000_000_000 / rows_per_second.max(1)), at: Time(0) }
    }

    /// The next row, if it is there. A source whose rows nobody takes waits and does not run ahead.
    pub fn pull(&mut self, now: Time) -> Option<usize> {
        if self.next >= self.rows || self.at > now {
            return None;
        }
        self.at = Time(self.at.0.max(now.0.saturating_sub(TICK))) + self.period;
        self.next += 1;
        Some(self.next - 1)
    }

    /// Whether all rows were taken.
    pub fn is_over(&self) -> bool {
        self.next >= self.rows
    }

    /// When to look again.
    pub fn next_look(&self, now: Time) -> Option<Time> {
        (!self.is_over()).then(|| now + Nanos(TICK))
    }
}
