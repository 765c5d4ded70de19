//! A model that is a function, and what it was asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use base::TokenCount;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::Result;
use futures_util::TryStreamExt as _;
use futures_util::future::BoxFuture;
use ir::{Cell, TemplatePart};
use sql::budget::ComputedCalls;
use sql::runner::{
    AiColumn, Estimate, Outcome, Row, RowAnswer, Run, RunError, RunOptions, Runner, TextEmbedder, TextVector,
    TokenPrice, Tokens, Unsent,
};
use sql::{Running, Session};
use tokio::sync::mpsc::UnboundedSender;

/// What a model says to a prompt; an error fails the row.
type Says = dyn Fn(&str) -> Result<String, String> + Send + Sync;

/// A model that is a function.
pub(crate) struct Model {
    says: Box<Says>,
    /// Every prompt, in the order in which they were computed.
    asked: Mutex<Vec<String>>,
    /// The model that each of them was for; `None` is the default one.
    models: Mutex<Vec<Option<String>>>,
    /// Rows of each `send`.
    windows: Mutex<Vec<usize>>,
    /// Words whose numbers in a text are its vector; without any there is no embedding model.
    vector_of: &'static [&'static str],
    /// Texts of each group that was embedded.
    embedded: Mutex<Vec<Vec<String>>>,
    price: Option<TokenPrice>,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Model")
    }
}

impl Model {
    pub(crate) fn new(says: impl Fn(&str) -> Result<String, String> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self::of(says))
    }

    fn of(says: impl Fn(&str) -> Result<String, String> + Send + Sync + 'static) -> Self {
        let (asked, models) = (Mutex::default(), Mutex::default());
        let (windows, embedded) = (Mutex::default(), Mutex::default());
        Self { says: Box::new(says), asked, models, windows, vector_of: &[], embedded, price: None }
    }

    /// Embeds texts by the words that they have.
    pub(crate) fn embedder(words: &'static [&'static str]) -> Arc<Self> {
        Arc::new(Self { vector_of: words, ..Self::of(|_| Ok("yes".into())) })
    }

    /// Says yes, for money.
    pub(crate) fn paid(price: TokenPrice) -> Arc<Self> {
        Arc::new(Self { price: Some(price), ..Self::of(|_| Ok("yes".into())) })
    }

    /// Says yes where the prompt has one of the words, for filters; the first label, for others.
    pub(crate) fn words(words: &'static [(&'static str, &'static str)]) -> Arc<Self> {
        Self::new(move |prompt| {
            let found = words.iter().find(|(word, _)| prompt.contains(word));
            Ok(found.map_or("no", |(_, answer)| answer).to_owned())
        })
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// The models that were asked since this was looked at last, each once.
    pub(crate) fn take_models(&self) -> Vec<Option<String>> {
        let mut models = std::mem::take(&mut *self.models.lock().unwrap());
        models.sort();
        models.dedup();
        models
    }

    pub(crate) fn embedded(&self) -> Vec<Vec<String>> {
        self.embedded.lock().unwrap().clone()
    }

    pub(crate) fn windows(&self) -> Vec<usize> {
        self.windows.lock().unwrap().clone()
    }

    /// How often each prompt was asked, where more than once.
    pub(crate) fn repeated(&self) -> HashMap<String, usize> {
        let mut counts = HashMap::new();
        for prompt in self.asked() {
            *counts.entry(prompt).or_insert(0) += 1;
        }
        counts.retain(|_, count| *count > 1);
        counts
    }
}

#[derive(Debug)]
struct ModelRunner(Arc<Model>);

struct Open {
    model: Arc<Model>,
    column: AiColumn,
    options: RunOptions,
    answers: UnboundedSender<RowAnswer>,
}

/// The prompt that a row fills.
fn filled(column: &AiColumn, cells: &[Cell]) -> String {
    let places = column.columns();
    let text = |part: &TemplatePart| match part {
        TemplatePart::Text(text) => text.clone(),
        TemplatePart::Field(name) => {
            let at = places.iter().position(|place| place == name).expect("a field is a place");
            cells[at].text().into_owned()
        }
        TemplatePart::Record => {
            let from = cells.len() - column.record.len();
            let entries = column.record.iter().zip(&cells[from..]);
            let entries = entries.map(|(name, cell)| format!("{name}: {}", cell.text()));
            entries.collect::<Vec<_>>().join(", ")
        }
    };
    column.shared.template.parts().iter().map(text).collect()
}

impl Runner for ModelRunner {
    fn open(
        &self,
        column: &AiColumn,
        options: RunOptions,
        answers: UnboundedSender<RowAnswer>,
    ) -> Box<dyn Run> {
        Box::new(Open { model: Arc::clone(&self.0), column: column.clone(), options, answers })
    }

    /// `m` is the default model, `n` another, which may be called `nn`.
    fn model(&self, name: &str) -> Result<String, RunError> {
        match name {
            "m" | "n" => Ok(name.to_owned()),
            "nn" => Ok("n".to_owned()),
            _ => Err(RunError::new(format!("the model `{name}` does not exist; served: `m`, `n`"))),
        }
    }

    fn prompt_chars_max(&self, _: Option<&str>) -> usize {
        200
    }

    fn embedder(&self) -> Result<Arc<dyn TextEmbedder>, RunError> {
        match self.0.vector_of {
            [] => Err(RunError::new("the setting `retrieval.model` is not set")),
            _ => Ok(Arc::new(Embedder(Arc::clone(&self.0)))),
        }
    }

    fn price(&self, _: Option<&str>) -> Option<TokenPrice> {
        self.0.price
    }

    fn estimate<'a>(
        &'a self,
        column: &'a AiColumn,
        rows: Vec<Vec<Cell>>,
    ) -> BoxFuture<'a, Result<Estimate, RunError>> {
        let prompt = rows.iter().map(|cells| filled(column, cells).len() as u64).sum();
        let output = rows.len() as u64 * column.shared.output_max.0;
        let price = self.0.price.map(|price| price.of(prompt, output));
        let estimate = Estimate { prompt: TokenCount(prompt), price, ..Estimate::default() };
        Box::pin(async move { Ok(estimate) })
    }
}

#[derive(Debug)]
struct Embedder(Arc<Model>);

impl TextEmbedder for Embedder {
    fn embed(&self, texts: Vec<String>) -> BoxFuture<'_, Result<Vec<Result<TextVector, String>>, RunError>> {
        let words = self.0.vector_of;
        let vector = |text: &String| {
            if text.contains("unreadable") {
                return Err("the text cannot be read".to_owned());
            }
            let counts: Vec<f32> = words.iter().map(|word| text.matches(word).count() as f32).collect();
            let length = counts.iter().map(|count| count * count).sum::<f32>().sqrt().max(1.0);
            let vector = counts.iter().map(|count| count / length).collect();
            Ok(TextVector { vector, tokens: TokenCount(text.len() as u64) })
        };
        let vectors = texts.iter().map(vector).collect();
        self.0.embedded.lock().unwrap().push(texts);
        Box::pin(async move { Ok(vectors) })
    }
}

/// What was said, and how likely it was where that stands behind it: `yes~0.75`.
fn likely(said: &str) -> Outcome {
    match said.split_once('~') {
        Some((text, probability)) => {
            Outcome::Text { text: text.to_owned(), probability: probability.parse().ok() }
        }
        None => Outcome::text(said),
    }
}

impl Open {
    /// Counts a call of so many tokens, where the statement's budget has room for it.
    async fn pay(&self, tokens: u64) -> Result<(), RunError> {
        let Some(budget) = &self.options.budget else { return Ok(()) };
        let reserved = budget.reserve(&[ComputedCalls::one(tokens)]).await;
        reserved.map_err(RunError::caused_by)?.settle(0, Some(tokens));
        Ok(())
    }
}

impl Run for Open {
    fn send(&mut self, rows: Vec<Row>) -> BoxFuture<'_, Result<(), Unsent>> {
        Box::pin(async move {
            self.model.windows.lock().unwrap().push(rows.len());
            for (handed, Row { id, cells }) in rows.into_iter().enumerate() {
                let prompt = filled(&self.column, &cells);
                if !self.options.cached_only {
                    let paid = self.pay(prompt.len() as u64 + 1).await;
                    paid.map_err(|error| Unsent { handed, error })?;
                }
                let (outcome, is_computed) = if self.options.cached_only {
                    (Outcome::Unknown, false)
                } else {
                    self.model.asked.lock().unwrap().push(prompt.clone());
                    self.model.models.lock().unwrap().push(self.column.model.clone());
                    ((self.model.says)(&prompt).map_or_else(Outcome::Failed, |said| likely(&said)), true)
                };
                let tokens = Tokens {
                    prompt: TokenCount(prompt.len() as u64),
                    cached: TokenCount(0),
                    output: TokenCount(1),
                };
                let _ = self.answers.send(RowAnswer { id, outcome, tokens, is_computed });
            }
            Ok(())
        })
    }

    fn is_limited(&self) -> bool {
        self.options.budget.as_ref().is_some_and(|budget| budget.is_limited())
    }
}

/// A session of a model, with tables made by statements.
pub(crate) async fn session(model: &Arc<Model>, tables: &[&str]) -> Session {
    let session = Session::new(Arc::new(ModelRunner(Arc::clone(model))), Arc::default());
    for table in tables {
        rows(session.query(table).await.expect("the table is made")).await.expect("the table is made");
    }
    session
}

/// All rows of a query.
pub(crate) async fn rows(running: Running) -> Result<Vec<RecordBatch>> {
    running.stream.try_collect().await
}

/// What a statement gives, as a table of text.
pub(crate) async fn shown(session: &Session, text: &str) -> String {
    match session.query(text).await {
        Ok(running) => match rows(running).await {
            Ok(batches) => pretty_format_batches(&batches).expect("batches can be shown").to_string(),
            Err(error) => format!("error: {error}"),
        },
        Err(error) => format!("error: {error}"),
    }
}
