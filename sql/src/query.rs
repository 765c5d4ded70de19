//! What a running query has: who runs its calls, what it remembers and may spend, and how far it is.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use ir::Cell;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::budget::{BudgetLimit, BudgetLimits, StatementBudget, TenantBudget};
use crate::program::AiCall;
use crate::runner::{AiColumn, Outcome, PromptOrder, RunOptions, Runner, Tokens};
use crate::scans::ScanningTool;

/// Number of a column in its query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ColumnId(usize);

/// Who answers the rows of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnsweredBy {
    /// A model, by relQueries.
    Model,
    /// The embedding model.
    Embedder,
}

/// A column with its number: rows are told apart without reading labels and prompts again.
#[derive(Clone, Debug)]
pub struct QueryColumn {
    pub id: ColumnId,
    pub answered_by: AnsweredBy,
    pub column: Arc<AiColumn>,
}

/// A row of a column, to the letter.
pub type CallKey = (ColumnId, Vec<Cell>);

/// What a session lets its queries do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryLimits {
    /// Rows of an AI operator that are undecided at a time.
    pub window_rows: usize,
    /// Tokens that a query may compute, prompts and answers; 0: any number.
    pub max_tokens: u64,
    /// Calls that a query may compute; 0: any number.
    pub max_calls: u64,
    /// Answers known already are given, nothing is computed.
    pub cached_only: bool,
    /// What may be moved in the prompts of a window.
    pub order: PromptOrder,
    /// The tool that makes such a query by itself, where that is why nothing is computed.
    pub scan: Option<ScanningTool>,
}

impl QueryLimits {
    /// Those that a budget holds.
    fn budget(&self) -> BudgetLimits {
        let limit = |name: &str, max: u64| (max > 0).then(|| BudgetLimit { name: name.to_owned(), max });
        BudgetLimits {
            tokens: limit("relserve.max_tokens", self.max_tokens),
            calls: limit("relserve.max_calls", self.max_calls),
        }
    }
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self {
            window_rows: 2_000,
            max_tokens: 0,
            max_calls: 0,
            cached_only: false,
            order: PromptOrder::default(),
            scan: None,
        }
    }
}

/// A running query.
#[derive(Debug)]
pub struct Query {
    pub runner: Arc<dyn Runner>,
    pub limits: QueryLimits,
    /// The model that answers calls which name none; without, the default one.
    model: Option<String>,
    /// What it may still compute.
    pub budget: Arc<StatementBudget>,
    pub progress: Progress,
    /// As it was written.
    statement: Arc<str>,
    columns: Mutex<HashMap<(AnsweredBy, Arc<AiColumn>), ColumnId>>,
    known: Cache<CallKey, Outcome, AnswerBytes>,
}

/// Bytes of prompts and answers that a query remembers.
const KNOWN_BYTES_MAX: u64 = 64 << 20;
/// Answers that fit, where they are as short as they are mostly.
const KNOWN_EXPECTED: usize = 100_000;

/// What an answer takes of a query's memory.
#[derive(Clone, Debug)]
struct AnswerBytes;

impl Weighter<CallKey, Outcome> for AnswerBytes {
    fn weight(&self, (_, cells): &CallKey, outcome: &Outcome) -> u64 {
        let text = match outcome {
            Outcome::Text { text, .. } | Outcome::Failed(text) => text.len(),
            Outcome::Stopped(error) => error.reason.len(),
            Outcome::Vector(vector) => size_of_val(&**vector),
            Outcome::Unknown => 0,
        };
        let cells: usize = cells.iter().map(|cell| cell.text().len() + size_of::<Cell>()).sum();
        (cells + text + size_of::<(CallKey, Outcome)>()) as u64
    }
}

impl Query {
    /// A query of a session.
    pub fn new(runner: Arc<dyn Runner>, limits: QueryLimits, budget: Arc<TenantBudget>, text: &str) -> Self {
        Self {
            runner,
            limits,
            model: None,
            budget: StatementBudget::new(limits.budget(), budget),
            progress: Progress::new(text),
            statement: text.into(),
            columns: Mutex::default(),
            known: Cache::with_weighter(KNOWN_EXPECTED, KNOWN_BYTES_MAX, AnswerBytes),
        }
    }

    /// The same with another model than the default one.
    pub fn with_model(self, model: Option<String>) -> Self {
        Self { model, ..self }
    }

    /// The model of a call that names this one, or none.
    pub fn model<'a>(&'a self, named: Option<&'a str>) -> Option<&'a str> {
        named.or(self.model.as_deref())
    }

    /// How its rows are to run.
    pub fn options(&self) -> RunOptions {
        RunOptions {
            cached_only: self.limits.cached_only,
            order: self.limits.order,
            budget: Some(Arc::clone(&self.budget)),
            statement: Some(Arc::clone(&self.statement)),
        }
    }

    /// The models of calls, each once.
    pub(crate) fn models(&self, calls: &[AiCall]) -> Vec<Option<String>> {
        let of = |call: &AiCall| self.model(call.options.model.as_deref()).map(str::to_owned);
        calls.iter().map(of).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The column that is equal to this one, or this one as a further column of the query.
    pub fn column(&self, answered_by: AnsweredBy, mut column: AiColumn) -> QueryColumn {
        if answered_by == AnsweredBy::Model && column.search.is_none() && column.model.is_none() {
            column.model.clone_from(&self.model);
        }
        let mut columns = self.columns.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let next = ColumnId(columns.len());
        let key = (answered_by, Arc::new(column));
        let (_, column) = &key;
        let column = columns
            .get_key_value(&key)
            .map_or_else(|| Arc::clone(column), |((_, known), _)| Arc::clone(known));
        let id = *columns.entry(key).or_insert(next);
        QueryColumn { id, answered_by, column }
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
    unknown: AtomicU64,
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
            unknown: AtomicU64::new(0),
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
    pub fn operator(
        &self,
        (label, models): (&str, Vec<Option<String>>),
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
    ) -> Arc<OperatorProgress> {
        let operator = OperatorProgress { models, ..OperatorProgress::new(label, metrics, partition) };
        let operator = Arc::new(operator);
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

    /// A row's answer is not known, and was not to be computed.
    pub fn leave_unknown(&self) {
        self.unknown.fetch_add(1, Ordering::Relaxed);
    }

    /// Answers that are not known.
    pub fn unknown(&self) -> u64 {
        self.unknown.load(Ordering::Relaxed)
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

/// How far one AI operator is. `EXPLAIN ANALYZE` shows the same counts as `relserve.queries`.
#[derive(Debug)]
pub struct OperatorProgress {
    /// Its calls, as they were written.
    pub label: String,
    /// The models that its calls ask; `None` is the default one.
    pub models: Vec<Option<String>>,
    /// Rows that came in.
    pub rows: Count,
    /// Rows that are decided.
    pub decided: Count,
    /// Rows that were sent to the model: distinct prompts.
    pub sent: Count,
    /// Answers that came.
    pub answered: Count,
    /// Answers that were computed; the others were known.
    pub computed: Count,
    /// Calls that failed.
    pub failed: Count,
    /// Tokens of prompts.
    pub prompt_tokens: Count,
    /// Tokens of prompts whose keys and values were there.
    pub cached_tokens: Count,
    /// Tokens of answers.
    pub output_tokens: Count,
}

impl OperatorProgress {
    fn new(label: &str, metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let count = |name: &'static str| MetricBuilder::new(metrics).counter(name, partition);
        Self {
            label: label.to_owned(),
            models: Vec::new(),
            rows: count("input_rows"),
            decided: count("decided_rows"),
            sent: count("prompts"),
            answered: count("answers"),
            computed: count("answers_computed"),
            failed: count("failed_calls"),
            prompt_tokens: count("prompt_tokens"),
            cached_tokens: count("cached_tokens"),
            output_tokens: count("answer_tokens"),
        }
    }
}
