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
use sql::runner::{AiColumn, Estimate, Outcome, Row, RowAnswer, Run, RunError, RunOptions, Runner, Tokens};
use sql::{Running, Session};
use tokio::sync::mpsc::UnboundedSender;

/// What a model says to a prompt; an error fails the row.
type Says = dyn Fn(&str) -> Result<String, String> + Send + Sync;

/// A model that is a function.
pub(crate) struct Model {
    says: Box<Says>,
    /// Every prompt, in the order in which they were computed.
    asked: Mutex<Vec<String>>,
    /// Rows of each `send`.
    windows: Mutex<Vec<usize>>,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Model")
    }
}

impl Model {
    pub(crate) fn new(says: impl Fn(&str) -> Result<String, String> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { says: Box::new(says), asked: Mutex::default(), windows: Mutex::default() })
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

    fn prompt_chars_max(&self) -> usize {
        200
    }

    fn estimate<'a>(
        &'a self,
        column: &'a AiColumn,
        rows: Vec<Vec<Cell>>,
    ) -> BoxFuture<'a, Result<Estimate, RunError>> {
        let prompt = rows.iter().map(|cells| filled(column, cells).len() as u64).sum();
        Box::pin(async move { Ok(Estimate { prompt: TokenCount(prompt), ..Estimate::default() }) })
    }
}

impl Run for Open {
    fn send(&mut self, rows: Vec<Row>) -> BoxFuture<'_, Result<(), RunError>> {
        Box::pin(async move {
            self.model.windows.lock().unwrap().push(rows.len());
            for Row { id, cells } in rows {
                let prompt = filled(&self.column, &cells);
                let (outcome, is_computed) = if self.options.cached_only {
                    (Outcome::Unknown, false)
                } else {
                    self.model.asked.lock().unwrap().push(prompt.clone());
                    ((self.model.says)(&prompt).map_or_else(Outcome::Failed, Outcome::Text), true)
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
