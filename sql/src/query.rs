//! What a running query has: who runs its calls, what it remembers and may spend, and how far it is.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ir::Cell;
use quick_cache::sync::Cache;

use crate::runner::{Column, Outcome, RunOptions, Runner, Tokens};

/// A row of a column, to the letter.
pub type CallKey = (Arc<Column>, Vec<Cell>);

/// What a session lets its queries do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows of an AI operator that are undecided at a time.
    pub window_rows: usize,
    /// Tokens that a query may compute, prompts and answers; 0: any number.
    pub max_tokens: u64,
    /// Answers known already are given, nothing is computed.
    pub cached_only: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { window_rows: 2_000, max_tokens: 0, cached_only: false }
    }
}

/// A running query.
#[derive(Debug)]
pub struct Query {
    pub runner: Arc<dyn Runner>,
    pub limits: Limits,
    pub progress: Progress,
    known: Cache<CallKey, Outcome>,
}

/// Answers of a query that are remembered.
const KNOWN_MAX: usize = 100_000;

impl Query {
    /// A query of a session.
    pub fn new(runner: Arc<dyn Runner>, limits: Limits, text: &str) -> Arc<Self> {
        Arc::new(Self { runner, limits, progress: Progress::new(text), known: Cache::new(KNOWN_MAX) })
    }

    /// How its rows are to run.
    pub fn options(&self) -> RunOptions {
        RunOptions { cached_only: self.limits.cached_only }
    }

    /// The answer of a row that this query has asked for already.
    pub fn known(&self, key: &CallKey) -> Option<Outcome> {
        self.known.get(key)
    }

    /// Remembers an answer.
    pub fn remember(&self, key: CallKey, outcome: Outcome) {
        self.known.insert(key, outcome);
    }

    /// Whether its budget is spent.
    pub fn is_spent(&self) -> bool {
        let max = self.limits.max_tokens;
        max > 0 && self.progress.tokens() >= max
    }
}

/// Most failures of a query that are told one by one.
const ERRORS_MAX: usize = 100;

/// How far a query is.
#[derive(Debug)]
pub struct Progress {
    /// The statement.
    pub text: String,
    operators: Mutex<Vec<Arc<OperatorProgress>>>,
    errors: Mutex<Vec<CallFailure>>,
    failed: AtomicU64,
    tokens: AtomicU64,
    is_over: AtomicBool,
}

/// A row that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFailure {
    /// The call as it was written.
    pub call: String,
    /// Why it failed.
    pub reason: String,
}

impl Progress {
    fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            operators: Mutex::default(),
            errors: Mutex::default(),
            failed: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// `running` or `ended`.
    pub fn state(&self) -> &'static str {
        if self.is_over() { "ended" } else { "running" }
    }

    /// Whether its stream was read to the end or dropped.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// It runs no more.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// A further AI operator of the query.
    pub fn operator(&self, label: &str) -> Arc<OperatorProgress> {
        let operator = Arc::new(OperatorProgress { label: label.to_owned(), ..OperatorProgress::default() });
        self.operators.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(Arc::clone(&operator));
        operator
    }

    /// Its AI operators.
    pub fn operators(&self) -> Vec<Arc<OperatorProgress>> {
        self.operators.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// A row's call failed.
    pub fn fail(&self, call: &str, reason: &str) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut errors = self.errors.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if errors.len() < ERRORS_MAX {
            errors.push(CallFailure { call: call.to_owned(), reason: reason.to_owned() });
        }
    }

    /// Calls that failed.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// The first failures.
    pub fn errors(&self) -> Vec<CallFailure> {
        self.errors.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Tokens computed so far.
    pub fn tokens(&self) -> u64 {
        self.tokens.load(Ordering::Relaxed)
    }

    /// An answer was computed.
    pub fn spend(&self, tokens: Tokens) {
        self.tokens.fetch_add(tokens.prompt.0 + tokens.output.0, Ordering::Relaxed);
    }
}

/// How far one AI operator is.
#[derive(Debug, Default)]
pub struct OperatorProgress {
    /// Its calls, as they were written.
    pub label: String,
    /// Rows that came in.
    pub rows: AtomicU64,
    /// Rows that are decided.
    pub decided: AtomicU64,
    /// Rows that were sent to the model: distinct prompts.
    pub sent: AtomicU64,
    /// Answers that came.
    pub answered: AtomicU64,
    /// Answers that were known before.
    pub cached: AtomicU64,
    /// Calls that failed.
    pub failed: AtomicU64,
    /// Tokens of prompts.
    pub prompt_tokens: AtomicU64,
    /// Tokens of prompts whose keys and values were there.
    pub cached_tokens: AtomicU64,
    /// Tokens of answers.
    pub output_tokens: AtomicU64,
}

impl OperatorProgress {
    /// Adds to a count.
    pub fn add(count: &AtomicU64, more: usize) {
        count.fetch_add(more as u64, Ordering::Relaxed);
    }
}
