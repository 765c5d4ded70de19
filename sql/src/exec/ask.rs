//! The calls that rows need: bound, told apart, and sent once each.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::physical_expr::PhysicalExpr;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::reduce::{Reduction, packed};
use super::rows::{Held, Waiter};
use super::{Compiled, CompiledCall};
use crate::cell;
use crate::function::{Bound, BoundInput, Function};
use crate::options::{CallOptions, OnError};
use crate::program::AiCall;
use crate::query::{CallKey, OperatorProgress, Query};
use crate::runner::{AiColumn, Outcome, Row, RowAnswer, Run};

/// What an answer is for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Row(Waiter),
    /// One prompt of a group that is reduced.
    Part {
        reduction: u64,
        place: usize,
    },
}

#[derive(Debug)]
struct Sent {
    key: CallKey,
    purposes: Vec<Purpose>,
}

/// A row whose call is answered.
pub(super) struct Answered {
    pub waiter: Waiter,
    pub column: Arc<AiColumn>,
    pub outcome: Outcome,
}

/// The calls of one operator.
pub(super) struct Asked {
    query: Arc<Query>,
    pub progress: Arc<OperatorProgress>,
    columns: HashMap<Arc<AiColumn>, Box<dyn Run>>,
    /// Rows to send with the next window.
    outbox: Vec<(Arc<AiColumn>, Vec<Row>)>,
    in_flight: HashMap<u64, Sent>,
    by_key: HashMap<CallKey, u64>,
    /// Groups that become one text, with the arguments of their calls.
    reductions: HashMap<u64, (Reduction, Function, Vec<ScalarValue>)>,
    next_id: u64,
    answers: UnboundedReceiver<RowAnswer>,
    answering: UnboundedSender<RowAnswer>,
}

/// Rows of a batch that ask.
pub(super) struct Asking<'a> {
    pub batch: u64,
    pub conjunct: usize,
    pub rows: &'a [u32],
}

impl Asked {
    pub(super) fn new(query: Arc<Query>, progress: Arc<OperatorProgress>) -> Self {
        let (answering, answers) = unbounded_channel();
        Self {
            query,
            progress,
            columns: HashMap::new(),
            outbox: Vec::new(),
            in_flight: HashMap::new(),
            by_key: HashMap::new(),
            reductions: HashMap::new(),
            next_id: 0,
            answers,
            answering,
        }
    }

    /// Asks for the answers of calls for rows. Gives how many answers each row waits for.
    pub(super) fn ask(
        &mut self,
        compiled: &Compiled,
        calls: &[usize],
        held: &mut Held,
        asking: &Asking<'_>,
    ) -> Result<Vec<u32>> {
        let mut waiting = vec![0; asking.rows.len()];
        for call in calls {
            let open: Vec<usize> = (0..asking.rows.len())
                .filter(|place| held.answer(*call, asking.rows[*place]).is_none())
                .collect();
            if open.is_empty() {
                continue;
            }
            let rows: Vec<u32> = open.iter().map(|place| asking.rows[*place]).collect();
            let view = held.view(compiled, &rows)?;
            let (own, written) = (&compiled.calls[*call], &compiled.program.calls[*call]);
            let values = Values::of(own, &view)?;
            for (at, place) in open.iter().enumerate() {
                let row = rows[at];
                let waiter = Waiter { batch: asking.batch, row, call: *call, conjunct: asking.conjunct };
                match self.row(written, own, &values, at, waiter)? {
                    Some(value) => held.set_answer(*call, row, value),
                    None => waiting[*place] += 1,
                }
            }
        }
        Ok(waiting)
    }

    /// One row's call: its value, where that is known; else it is on its way.
    fn row(
        &mut self,
        call: &AiCall,
        own: &CompiledCall,
        values: &Values,
        at: usize,
        waiter: Waiter,
    ) -> Result<Option<ScalarValue>> {
        let function = call.function;
        if !values.is_wanted(at) {
            return Ok(Some(function.output().null()));
        }
        let (input, rest) = values.at(own, at)?;
        if let (true, BoundInput::Value(list)) = (function.is_aggregate(), &input) {
            return match self.reduce(function, list, rest, waiter) {
                Ok(Some((column, outcome))) => self.value(call, &column, &outcome).map(Some),
                Ok(None) => Ok(None),
                Err(reason) if reason.is_empty() => Ok(Some(function.output().null())),
                Err(reason) => self.failed(call, &reason).map(Some),
            };
        }
        let bound = match function.bind(&input, &rest, &call.options) {
            Ok(Some(bound)) => bound,
            Ok(None) => return Ok(Some(function.output().null())),
            Err(reason) => return self.failed(call, &reason).map(Some),
        };
        match self.enqueue(bound, Purpose::Row(waiter)) {
            Some((column, outcome)) => self.value(call, &column, &outcome).map(Some),
            None => Ok(None),
        }
    }

    /// Puts a row into the next window, unless its answer is known or on its way.
    fn enqueue(&mut self, bound: Bound, purpose: Purpose) -> Option<(Arc<AiColumn>, Outcome)> {
        let column = match self.columns.get_key_value(&bound.column) {
            Some((column, _)) => Arc::clone(column),
            None => {
                let column = Arc::new(bound.column);
                let run = self.query.runner.open(&column, self.query.options(), self.answering.clone());
                self.columns.insert(Arc::clone(&column), run);
                column
            }
        };
        let key = (column, bound.cells);
        if let Some(outcome) = self.query.known(&key) {
            return Some((key.0, outcome));
        }
        if let Some(id) = self.by_key.get(&key) {
            if let Some(sent) = self.in_flight.get_mut(id) {
                sent.purposes.push(purpose);
            }
            return None;
        }
        let id = self.number();
        let row = Row { id, cells: key.1.clone() };
        match self.outbox.iter_mut().find(|(column, _)| Arc::ptr_eq(column, &key.0)) {
            Some((_, rows)) => rows.push(row),
            None => self.outbox.push((Arc::clone(&key.0), vec![row])),
        }
        self.by_key.insert(key.clone(), id);
        self.in_flight.insert(id, Sent { key, purposes: vec![purpose] });
        None
    }

    fn number(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Begins to reduce a group. An empty reason: it has no texts, and no answer.
    fn reduce(
        &mut self,
        function: Function,
        list: &ScalarValue,
        rest: Vec<ScalarValue>,
        waiter: Waiter,
    ) -> Result<Option<(Arc<AiColumn>, Outcome)>, String> {
        let texts = cell::items(list).unwrap_or_default();
        let texts: Vec<String> = texts
            .iter()
            .map(cell::of)
            .filter(|cell| !cell.is_blank())
            .map(|cell| cell.text().into_owned())
            .collect();
        if texts.is_empty() {
            return Err(String::new());
        }
        let reduction = self.number();
        self.reductions.insert(reduction, (Reduction::new(waiter, 0), function, rest));
        self.level(reduction, texts)
    }

    /// Asks for one level of a group, and for the next where all of it is known.
    fn level(
        &mut self,
        number: u64,
        mut texts: Vec<String>,
    ) -> Result<Option<(Arc<AiColumn>, Outcome)>, String> {
        loop {
            let Some((reduction, function, rest)) = self.reductions.get_mut(&number) else { return Ok(None) };
            let prompts = packed(&texts, self.query.runner.prompt_chars_max());
            let (function, rest) = (*function, rest.clone());
            reduction.begin(prompts.len());
            let is_last = prompts.len() == 1;
            let mut is_whole = false;
            for (place, prompt) in prompts.into_iter().enumerate() {
                let input = BoundInput::Value(ScalarValue::from(prompt));
                let bound = function.bind(&input, &rest, &CallOptions::default());
                let bound = bound.inspect_err(|_| drop(self.reductions.remove(&number)))?;
                let Some(bound) = bound else { continue };
                match self.enqueue(bound, Purpose::Part { reduction: number, place }) {
                    Some((column, outcome)) => match outcome {
                        Outcome::Text(text) if !is_last => {
                            if let Some((reduction, ..)) = self.reductions.get_mut(&number) {
                                is_whole = reduction.answered(place, text);
                            }
                        }
                        outcome => {
                            self.reductions.remove(&number);
                            return Ok(Some((column, outcome)));
                        }
                    },
                    None => is_whole = false,
                }
            }
            if !is_whole {
                return Ok(None);
            }
            let Some((reduction, ..)) = self.reductions.get_mut(&number) else { return Ok(None) };
            texts = reduction.texts();
        }
    }

    /// An answer to a prompt of a group. Gives the row whose last text it is.
    fn part(
        &mut self,
        number: u64,
        place: usize,
        (column, outcome): (&Arc<AiColumn>, &Outcome),
    ) -> Option<Answered> {
        let (reduction, ..) = self.reductions.get_mut(&number)?;
        let waiter = reduction.waiter;
        let is_last = reduction.is_last();
        let finished = match outcome {
            Outcome::Text(text) if !is_last => {
                if !reduction.answered(place, text.clone()) {
                    return None;
                }
                let texts = reduction.texts();
                match self.level(number, texts) {
                    Ok(None) => return None,
                    Ok(Some(finished)) => finished,
                    Err(reason) => (Arc::clone(column), Outcome::Failed(reason)),
                }
            }
            outcome => (Arc::clone(column), outcome.clone()),
        };
        self.reductions.remove(&number);
        let (column, outcome) = finished;
        Some(Answered { waiter, column, outcome })
    }

    /// Sends what is to be sent.
    pub(super) async fn send(&mut self) -> Result<()> {
        for (column, rows) in std::mem::take(&mut self.outbox) {
            if self.query.is_spent() {
                return exec_err!(
                    "the query has computed {} tokens: relserve.max_tokens is {}",
                    self.query.progress.tokens(),
                    self.query.limits.max_tokens
                );
            }
            self.progress.sent.add(rows.len());
            let Some(run) = self.columns.get_mut(&column) else { continue };
            if let Err(error) = run.send(rows).await {
                return exec_err!("{error}");
            }
        }
        Ok(())
    }

    /// Whether answers are on their way.
    pub(super) fn is_waiting(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// The next answer, with who waits for it; never, where nothing is on its way.
    pub(super) async fn answer(&mut self) -> RowAnswer {
        match self.answers.recv().await {
            Some(answer) => answer,
            // This operator holds a sender itself.
            None => std::future::pending().await,
        }
    }

    /// An answer that is there.
    pub(super) fn try_answer(&mut self) -> Option<RowAnswer> {
        self.answers.try_recv().ok()
    }

    /// Takes an answer in. Gives the rows that waited for it.
    pub(super) fn take(&mut self, answer: &RowAnswer) -> Vec<Answered> {
        let Some(Sent { key, purposes }) = self.in_flight.remove(&answer.id) else { return Vec::new() };
        self.by_key.remove(&key);
        self.progress.answered.add(1);
        if answer.is_computed {
            self.progress.computed.add(1);
            self.query.progress.spend(answer.tokens);
            self.progress.prompt_tokens.add(answer.tokens.prompt.0 as usize);
            self.progress.cached_tokens.add(answer.tokens.cached.0 as usize);
            self.progress.output_tokens.add(answer.tokens.output.0 as usize);
        }
        let column = Arc::clone(&key.0);
        self.query.remember(key, answer.outcome.clone());
        let mut rows = Vec::with_capacity(purposes.len());
        for purpose in purposes {
            match purpose {
                Purpose::Row(waiter) => {
                    let (column, outcome) = (Arc::clone(&column), answer.outcome.clone());
                    rows.push(Answered { waiter, column, outcome });
                }
                Purpose::Part { reduction, place } => {
                    rows.extend(self.part(reduction, place, (&column, &answer.outcome)));
                }
            }
        }
        rows
    }

    /// What an outcome is in SQL. A failure is NULL and told, or the query's.
    pub(super) fn value(&self, call: &AiCall, column: &AiColumn, outcome: &Outcome) -> Result<ScalarValue> {
        match outcome {
            Outcome::Text(text) => match call.function.read(column, text) {
                Ok(value) => Ok(value),
                Err(reason) => self.failed(call, &reason),
            },
            Outcome::Failed(reason) => self.failed(call, reason),
            Outcome::Unknown => Ok(call.function.output().null()),
        }
    }

    fn failed(&self, call: &AiCall, reason: &str) -> Result<ScalarValue> {
        if call.options.on_error == OnError::Error {
            return exec_err!("{}: {reason}", call.written);
        }
        self.progress.failed.add(1);
        self.query.progress.fail(&call.written, reason);
        Ok(call.function.output().null())
    }
}

/// The arguments of a call for some rows.
pub(super) struct Values {
    input: Vec<Arc<dyn Array>>,
    rest: Vec<Arc<dyn Array>>,
    guard: Option<Arc<dyn Array>>,
}

impl Values {
    pub(super) fn of(call: &CompiledCall, view: &datafusion::arrow::array::RecordBatch) -> Result<Self> {
        let evaluate = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(view)?.into_array(view.num_rows());
        Ok(Self {
            input: call.input.iter().map(evaluate).collect::<Result<_>>()?,
            rest: call.rest.iter().map(evaluate).collect::<Result<_>>()?,
            guard: call.guard.as_ref().map(evaluate).transpose()?,
        })
    }

    /// Whether anybody looks at the row's answer.
    pub(super) fn is_wanted(&self, at: usize) -> bool {
        self.guard.as_ref().is_none_or(|guard| !guard.is_null(at) && guard.as_boolean().value(at))
    }

    pub(super) fn at(&self, call: &CompiledCall, at: usize) -> Result<(BoundInput, Vec<ScalarValue>)> {
        let scalars = |arrays: &[Arc<dyn Array>]| {
            arrays.iter().map(|array| ScalarValue::try_from_array(array, at)).collect::<Result<Vec<_>>>()
        };
        let mut input = scalars(&self.input)?;
        let input = match &call.prompt {
            Some(template) => BoundInput::Prompt(template.clone(), input),
            None => BoundInput::Value(input.pop().unwrap_or(ScalarValue::Null)),
        };
        Ok((input, scalars(&self.rest)?))
    }
}
