//! The way to a model: relQueries whose rows come in windows and whose answers come one by one.
//!
//! This crate decides which rows need an answer; who runs them, and how, stands behind [`Runner`]. Must not
//! know HTTP, the engine or the scheduler.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;

use base::{Constraint, TokenCount};
use datafusion::common::DataFusionError;
use futures_util::future::BoxFuture;
use ir::catalogue::{Answer, Guide, SharedCall};
use ir::{Cell, Template, TemplatePart};
use tokio::sync::mpsc::UnboundedSender;

use crate::budget::StatementBudget;

/// What all rows of an AI column have in common: they are rows of one relQuery.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AiColumn {
    /// The prompt, the limit of output tokens and how answers are read.
    pub shared: SharedCall,
    /// JSON Schema (or another constraint) that answers keep to, where the caller gave one.
    pub constraint: Option<Constraint>,
    /// Names of the cells that the prompt's record holds; none without one.
    pub record: Vec<String>,
    /// Where rows are looked for in a corpus, and no model is asked.
    pub search: Option<CorpusSearch>,
    /// The model that is asked; without, the default one.
    pub model: Option<String>,
}

/// Fragments of a corpus that are most like a row's text; the answer is a JSON array of their texts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CorpusSearch {
    /// A corpus of the tenant.
    pub corpus: String,
    /// Fragments for each row.
    pub count: usize,
}

impl AiColumn {
    /// Names of a row's cells: the prompt's fields, then the columns of its record.
    pub fn columns(&self) -> Vec<String> {
        self.shared.columns().into_iter().chain(self.record.iter().cloned()).collect()
    }
}

/// What of a column's prompts may be moved so that neighbours begin alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromptOrder {
    /// Nothing: rows run as they come.
    Exact,
    /// Rows.
    #[default]
    Rows,
    /// Rows, and in each row the columns of its record, which changes prompts.
    Fields,
}

impl AiColumn {
    /// The texts that an embedding model reads: no prompt is around them.
    pub fn embedding() -> Self {
        let mut template = Template::default();
        template.push_field("text");
        let output_max = TokenCount(0);
        Self::plain(SharedCall::plain("embed", template, output_max, Answer::Text))
    }

    /// Puts the row's own text before what all rows share: calls over the same texts then begin alike, and what
    /// one has computed the next finds.
    pub fn put_row_first(&mut self) {
        let parts = self.shared.template.parts().to_vec();
        let mut template = Template::default();
        let is_text = |part: &TemplatePart| matches!(part, TemplatePart::Text(_));
        let (texts, fields): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_text);
        for field in &fields {
            if let TemplatePart::Field(name) = field {
                template.push_field(name);
            }
        }
        for text in &texts {
            if let TemplatePart::Text(text) = text {
                template.push_text("\n\n");
                template.push_text(text.trim());
            }
        }
        self.shared.template = template;
        // Turns before it would not begin alike.
        self.shared.guide = Guide::default();
    }

    /// A prompt that asks which of so many texts fits a criterion best.
    pub fn comparison(criterion: &str, texts: usize) -> Self {
        let mut template = Template::default();
        template.push_text(&format!(
            "Which of these texts fits best: {criterion}? Answer with the number of one text.\n"
        ));
        for number in 1..=texts {
            template.push_text(&format!("\n{number}. "));
            template.push_field(&number.to_string());
        }
        let answer = Answer::Label { labels: (1..=texts).map(|number| number.to_string()).collect() };
        Self::plain(SharedCall::plain("rank", template, TokenCount(4), answer))
    }

    fn plain(shared: SharedCall) -> Self {
        Self { shared, constraint: None, record: Vec::new(), search: None, model: None }
    }
}

/// How a query wants its rows run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Answers known already are given, nothing is computed.
    pub cached_only: bool,
    /// The order of rows within a window, and of the columns of their records.
    pub order: PromptOrder,
    /// What the query may still compute: whoever runs its rows sets their most aside before they run.
    pub budget: Option<Arc<StatementBudget>>,
    /// The statement that the column is of, as it was written.
    pub statement: Option<Arc<str>>,
}

/// A row for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Names the row in its answer.
    pub id: u64,
    /// Its cells, as [`AiColumn::columns`] names them.
    pub cells: Vec<Cell>,
}

/// Tokens of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Tokens of the prompt.
    pub prompt: TokenCount,
    /// Those of them whose keys and values were there already.
    pub cached: TokenCount,
    /// Tokens of the answer.
    pub output: TokenCount,
}

/// What became of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// What the model wrote.
    Text {
        text: String,
        /// How likely that was among all that the answer may be, 0 to 1; where it is one of a list, and what ran the
        /// row tells it.
        probability: Option<f64>,
    },
    /// What an embedding model gives.
    Vector(Arc<[f32]>),
    /// Why there is no answer.
    Failed(String),
    /// Why neither this row nor another of its column gets one: the statement ends with it.
    Stopped(RunError),
    /// Nobody has computed it, and nobody was to.
    Unknown,
}

impl Outcome {
    /// A text of which nobody says how likely it was.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), probability: None }
    }
}

/// A row's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct RowAnswer {
    /// The row.
    pub id: u64,
    /// What became of it.
    pub outcome: Outcome,
    /// What it cost.
    pub tokens: Tokens,
    /// Whether it ran; else the answer was known.
    pub is_computed: bool,
}

/// Why rows cannot be run at all.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct RunError {
    /// In words.
    pub reason: String,
    /// As whoever was to run them knows it.
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

impl RunError {
    /// One that its words say all of.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), cause: None }
    }

    /// One that whoever runs rows has a type for: [`Self::cause_of`] gives it back.
    pub fn caused_by(cause: impl Error + Send + Sync + 'static) -> Self {
        Self { reason: cause.to_string(), cause: Some(Arc::new(cause)) }
    }

    /// What whoever runs rows has given as the cause of a statement's error.
    pub fn cause_of<T: Error + 'static>(error: &DataFusionError) -> Option<&T> {
        let DataFusionError::External(error) = error.find_root() else { return None };
        error.downcast_ref::<Self>()?.cause.as_deref()?.downcast_ref()
    }

    /// Whether a statement ends with one that has a cause.
    pub(crate) fn is_root_of(error: &DataFusionError) -> bool {
        matches!(error.find_root(), DataFusionError::External(error) if error.is::<Self>())
    }
}

/// Two are one where their words are.
impl PartialEq for RunError {
    fn eq(&self, other: &Self) -> bool {
        self.reason == other.reason
    }
}

impl From<RunError> for DataFusionError {
    fn from(error: RunError) -> Self {
        match error.cause {
            Some(_) => Self::External(Box::new(error)),
            None => Self::Execution(error.reason),
        }
    }
}

/// A relQuery that is open: it takes rows until it is dropped, and what still runs then is cancelled.
pub trait Run: Send {
    /// Hands rows over; waits where the queue is full. Those that were handed over before an error are answered.
    fn send(&mut self, rows: Vec<Row>) -> BoxFuture<'_, Result<(), Unsent>>;

    /// Whether a budget may refuse rows of it.
    fn is_limited(&self) -> bool {
        false
    }
}

/// Rows that are not handed over, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Unsent {
    /// How many of the rows were before, the first ones.
    pub handed: usize,
    pub error: RunError,
}

impl From<RunError> for Unsent {
    /// None of the rows was.
    fn from(error: RunError) -> Self {
        Self { handed: 0, error }
    }
}

/// A text's vector.
#[derive(Clone, Debug, PartialEq)]
pub struct TextVector {
    /// Of length 1; all vectors of an embedding model have as many numbers.
    pub vector: Arc<[f32]>,
    /// Tokens that were computed.
    pub tokens: TokenCount,
}

/// Who makes vectors of texts.
pub trait TextEmbedder: Debug + Send + Sync + 'static {
    /// The vectors of texts, in their order, or why a text has none. Waits while others have their turn.
    /// Dropped, it computes no more.
    fn embed(&self, texts: Vec<String>) -> BoxFuture<'_, Result<Vec<Result<TextVector, String>>, RunError>>;
}

/// What tokens cost, in whatever currency the configuration means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenPrice {
    /// Of a million prompt tokens.
    pub prompt: f64,
    /// Of a million output tokens.
    pub output: f64,
}

impl TokenPrice {
    /// The price of so many tokens.
    pub fn of(self, prompt: u64, output: u64) -> f64 {
        (self.prompt * prompt as f64 + self.output * output as f64) / 1e6
    }
}

/// What answers are expected to cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Prompt tokens of the rows asked about.
    pub prompt: TokenCount,
    /// Rows of them whose answer is known.
    pub known: usize,
    /// Seconds that computing the others takes, by the fitted cost model; of nothing where none is fitted.
    pub seconds: Option<f64>,
    /// What the others cost at most, in the configuration's currency, where a replica has a price.
    pub price: Option<f64>,
}

/// Who runs relQueries.
pub trait Runner: Debug + Send + Sync + 'static {
    /// Opens a relQuery. Its answers go to `answers`, in the order in which they come.
    fn open(
        &self,
        column: &AiColumn,
        options: RunOptions,
        answers: UnboundedSender<RowAnswer>,
    ) -> Box<dyn Run>;

    /// The name of the model that is called so; else an error that names those that are served.
    fn model(&self, name: &str) -> Result<String, RunError>;

    /// Characters of a prompt that surely fit a model, by default the default one.
    fn prompt_chars_max(&self, model: Option<&str>) -> usize;

    /// The embedding model; where there is none, an error that names its setting.
    fn embedder(&self) -> Result<Arc<dyn TextEmbedder>, RunError> {
        Err(RunError::new("there is no embedding model"))
    }

    /// What computed tokens of a model cost, where a replica of it has a price: that of the dearest.
    fn price(&self, _model: Option<&str>) -> Option<TokenPrice> {
        None
    }

    /// What rows would cost; nothing is computed.
    fn estimate<'a>(
        &'a self,
        column: &'a AiColumn,
        rows: Vec<Vec<Cell>>,
    ) -> BoxFuture<'a, Result<Estimate, RunError>>;
}
