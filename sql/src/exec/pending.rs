//! Rows on their way to a model and back: equal rows are sent once, and an answer is told to all who wait for it.
//!
//! Once some row cannot run at all (a budget is spent, say) nothing more is sent: the answers of what was sent before still
//! come, for they are paid for, and whoever gives them out ends with the error behind them.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, ScalarValue, exec_err};
use ir::Cell;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::embed::EmbeddingRun;
use crate::budget::BudgetSpent;
use crate::options::OnError;
use crate::program::AiCall;
use crate::query::{AnsweredBy, CallKey, ColumnId, OperatorProgress, Query, QueryColumn};
use crate::runner::{AiColumn, Outcome, Row, RowAnswer, Run, RunError, Unsent};

/// Parts of a window in which the rows of several columns are sent in turn, where a budget may end the statement: what is
/// paid for of rows that lack another answer then is of one part at most.
const TURNS: usize = 64;

/// The rows of one operator that are on their way; `P` says what an answer is for.
pub(super) struct PendingCalls<P> {
    pub query: Arc<Query>,
    pub progress: Arc<OperatorProgress>,
    runs: HashMap<ColumnId, Box<dyn Run>>,
    /// Rows to send with the next window.
    waiting: Vec<(ColumnId, Vec<Row>)>,
    in_flight: HashMap<u64, PendingCall<P>>,
    by_key: HashMap<Arc<CallKey>, u64>,
    next_id: u64,
    /// Why nothing more is sent.
    stopped: Option<DataFusionError>,
    answers: UnboundedReceiver<RowAnswer>,
    answering: UnboundedSender<RowAnswer>,
}

#[derive(Debug)]
struct PendingCall<P> {
    key: Arc<CallKey>,
    column: Arc<AiColumn>,
    purposes: Vec<P>,
}

impl<P> PendingCalls<P> {
    pub(super) fn new(query: Arc<Query>, progress: Arc<OperatorProgress>) -> Self {
        let (answering, answers) = unbounded_channel();
        Self {
            query,
            progress,
            runs: HashMap::new(),
            waiting: Vec::new(),
            in_flight: HashMap::new(),
            by_key: HashMap::new(),
            next_id: 0,
            stopped: None,
            answers,
            answering,
        }
    }

    /// Puts a row into the next window, unless its answer is known or on its way, or none is sent any more.
    pub(super) fn put(&mut self, column: &QueryColumn, cells: Vec<Cell>, purpose: P) -> Option<Outcome> {
        let key = (column.id, cells);
        if let Some(outcome) = self.query.known(&key) {
            return Some(outcome);
        }
        if let Some(id) = self.by_key.get(&key) {
            if let Some(sent) = self.in_flight.get_mut(id) {
                sent.purposes.push(purpose);
            }
            return None;
        }
        if self.stopped.is_some() {
            return None;
        }
        let id = self.number();
        let row = Row { id, cells: key.1.clone() };
        match self.waiting.iter_mut().rev().find(|(known, _)| *known == column.id) {
            Some((_, rows)) => rows.push(row),
            None => self.waiting.push((column.id, vec![row])),
        }
        if !self.runs.contains_key(&column.id) {
            self.runs.insert(column.id, self.open(column));
        }
        let key = Arc::new(key);
        self.by_key.insert(Arc::clone(&key), id);
        let column = Arc::clone(&column.column);
        self.in_flight.insert(id, PendingCall { key, column, purposes: vec![purpose] });
        None
    }

    fn open(&self, column: &QueryColumn) -> Box<dyn Run> {
        let (options, answers) = (self.query.options(), self.answering.clone());
        match column.answered_by {
            AnsweredBy::Model => self.query.runner.open(&column.column, options, answers),
            AnsweredBy::Embedder => {
                Box::new(EmbeddingRun::new(self.query.runner.embedder(), options, answers))
            }
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Sends what is to be sent.
    pub(super) async fn send(&mut self) {
        let rows_max = self.turn_rows_max();
        while !self.waiting.is_empty() {
            for (column, rows) in self.next_turn(rows_max) {
                let ids: Vec<u64> = rows.iter().map(|row| row.id).collect();
                if self.stopped.is_some() {
                    self.forget(ids);
                } else if let Err((handed, error)) = self.send_rows(column, rows).await {
                    self.forget(ids.into_iter().skip(handed));
                    self.stop(error);
                }
            }
        }
    }

    /// Sends rows of a column. The error comes with how many of them were handed over before.
    async fn send_rows(&mut self, column: ColumnId, rows: Vec<Row>) -> Result<(), (usize, DataFusionError)> {
        if self.query.is_spent() {
            let (max, computed) = (self.query.limits.max_tokens, self.query.progress.tokens());
            let spent = BudgetSpent::of_session(max, computed);
            return Err((0, DataFusionError::External(Box::new(spent))));
        }
        self.progress.sent.add(rows.len());
        let Some(run) = self.runs.get_mut(&column) else { return Ok(()) };
        run.send(rows).await.map_err(|Unsent { handed, error }| (handed, error.into()))
    }

    /// How many rows of a column are sent before those of the next column have their turn.
    fn turn_rows_max(&self) -> usize {
        let rows = self.waiting.iter().map(|(_, rows)| rows.len()).max().unwrap_or_default();
        let mut runs = self.waiting.iter().filter_map(|(column, _)| self.runs.get(column));
        if self.waiting.len() > 1 && runs.any(|run| run.is_limited()) { rows.div_ceil(TURNS) } else { rows }
    }

    /// The next rows of each column, at most so many.
    fn next_turn(&mut self, rows_max: usize) -> Vec<(ColumnId, Vec<Row>)> {
        let next = |(column, rows): &mut (ColumnId, Vec<Row>)| {
            let count = rows.len().min(rows_max);
            (*column, rows.drain(..count).collect())
        };
        let turn = self.waiting.iter_mut().map(next).collect();
        self.waiting.retain(|(_, rows)| !rows.is_empty());
        turn
    }

    /// Sends nothing any more; the first reason stays.
    fn stop(&mut self, error: DataFusionError) {
        if self.stopped.is_none() {
            self.stopped = Some(error);
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.forget(waiting.into_iter().flat_map(|(_, rows)| rows).map(|row| row.id));
    }

    /// Rows that get no answer.
    fn forget(&mut self, ids: impl IntoIterator<Item = u64>) {
        for id in ids {
            if let Some(call) = self.in_flight.remove(&id) {
                self.by_key.remove(&call.key);
            }
        }
    }

    /// Whether nothing more is sent.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Why nothing more is sent, for whoever ends with it.
    pub(super) fn take_stopped(&mut self) -> Option<DataFusionError> {
        self.stopped.take()
    }

    /// Whether answers are on their way.
    pub(super) fn is_waiting(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// The next answer; never, where nothing is on its way.
    pub(super) async fn answer(&mut self) -> RowAnswer {
        match self.answers.recv().await {
            Some(answer) => answer,
            // A sender is held here too.
            None => std::future::pending().await,
        }
    }

    /// An answer that is there.
    pub(super) fn try_answer(&mut self) -> Option<RowAnswer> {
        self.answers.try_recv().ok()
    }

    /// Takes an answer in. Gives its column, and what waits for it.
    pub(super) fn take(&mut self, answer: &RowAnswer) -> Option<(Arc<AiColumn>, Vec<P>)> {
        if let Outcome::Stopped(error) = &answer.outcome {
            self.forget([answer.id]);
            self.stop(error.clone().into());
            return None;
        }
        let PendingCall { key, column, purposes } = self.in_flight.remove(&answer.id)?;
        self.by_key.remove(&key);
        self.progress.answered.add(1);
        if answer.is_computed {
            self.progress.computed.add(1);
            self.query.progress.spend(answer.tokens);
            self.progress.prompt_tokens.add(answer.tokens.prompt.0 as usize);
            self.progress.cached_tokens.add(answer.tokens.cached.0 as usize);
            self.progress.output_tokens.add(answer.tokens.output.0 as usize);
        }
        self.query.remember(Arc::unwrap_or_clone(key), answer.outcome.clone());
        Some((column, purposes))
    }

    /// What an outcome is in SQL. A failure is NULL and told, or the query's.
    pub(super) fn value(&self, call: &AiCall, column: &AiColumn, outcome: &Outcome) -> Result<ScalarValue> {
        match outcome {
            Outcome::Text { text, probability } => match call.function.read(column, text, *probability) {
                Ok(value) => Ok(value),
                Err(reason) => self.failed(call, &reason),
            },
            Outcome::Vector(vector) => Ok(crate::cell::number_list(vector)),
            Outcome::Failed(reason) | Outcome::Stopped(RunError { reason, .. }) => self.failed(call, reason),
            Outcome::Unknown => {
                self.query.progress.leave_unknown();
                Ok(call.function.output().null())
            }
        }
    }

    /// A row's call failed.
    pub(super) fn failed(&self, call: &AiCall, reason: &str) -> Result<ScalarValue> {
        if call.options.on_error == OnError::Error {
            return exec_err!("{}: {reason}", call.written);
        }
        self.progress.failed.add(1);
        self.query.progress.fail(&call.written, reason);
        Ok(call.function.output().null())
    }
}
