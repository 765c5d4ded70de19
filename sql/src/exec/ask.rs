//! The calls that rows need: bound, told apart, and sent once each.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, ScalarValue};

use super::bind::{Binder, BoundRow, CallArguments};
use super::pending::PendingCalls;
use super::reduce::{Reduction, packed};
use super::rows::{Held, Waiter};
use super::{Compiled, CompiledCall};
use crate::cell;
use crate::function::{Bound, BoundInput, Function};
use crate::options::CallOptions;
use crate::program::AiCall;
use crate::query::{AnsweredBy, OperatorProgress, Query};
use crate::runner::{AiColumn, Outcome, RowAnswer};

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

/// A row whose call is answered.
pub(super) struct Answered {
    pub waiter: Waiter,
    pub column: Arc<AiColumn>,
    pub outcome: Outcome,
}

/// The calls of one operator.
pub(super) struct Asked {
    pending: PendingCalls<Purpose>,
    /// One for each call of the program.
    binders: Vec<Binder>,
    /// Groups that become one text.
    reductions: HashMap<u64, Reduced>,
}

/// A group that becomes one text.
struct Reduced {
    reduction: Reduction,
    call: GroupCall,
}

/// How the texts of a group are asked about.
#[derive(Clone)]
struct GroupCall {
    function: Function,
    rest: Vec<ScalarValue>,
    /// The model that it names.
    model: Option<String>,
    /// Whether the texts come first, before what is asked.
    has_shared_texts: bool,
}

/// Rows of a batch that ask.
pub(super) struct Asking<'a> {
    pub batch: u64,
    pub conjunct: usize,
    pub rows: &'a [u32],
}

impl Asked {
    pub(super) fn new(query: Arc<Query>, progress: Arc<OperatorProgress>, calls: usize) -> Self {
        let binders = std::iter::repeat_with(Binder::default).take(calls).collect();
        Self { pending: PendingCalls::new(query, progress), binders, reductions: HashMap::new() }
    }

    pub(super) fn progress(&self) -> &OperatorProgress {
        &self.pending.progress
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
            let values = CallArguments::of(own, &view)?;
            for (at, place) in open.iter().enumerate() {
                let row = rows[at];
                let waiter = Waiter { batch: asking.batch, row, call: *call, conjunct: asking.conjunct };
                match self.row((written, own), &values, at, waiter)? {
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
        (call, own): (&AiCall, &CompiledCall),
        values: &CallArguments,
        at: usize,
        waiter: Waiter,
    ) -> Result<Option<ScalarValue>> {
        let function = call.function;
        if !values.is_wanted(at) {
            return Ok(Some(function.output().null()));
        }
        if function.is_aggregate() {
            let (input, rest) = values.at(own, at)?;
            let BoundInput::Value(list) = input else { return Ok(Some(function.output().null())) };
            let model = call.options.model.clone();
            let group = GroupCall { function, rest, model, has_shared_texts: own.has_shared_texts };
            return match self.reduce(group, &list, waiter) {
                Ok(Some((column, outcome))) => self.value(call, &column, &outcome).map(Some),
                Ok(None) => Ok(None),
                Err(reason) if reason.is_empty() => Ok(Some(function.output().null())),
                Err(reason) => self.pending.failed(call, &reason).map(Some),
            };
        }
        let binder = &mut self.binders[waiter.call];
        match binder.bind(&self.pending.query, (call, own), values, at)? {
            BoundRow::Null => Ok(Some(function.output().null())),
            BoundRow::Failed(reason) => self.pending.failed(call, &reason).map(Some),
            BoundRow::Row(column, cells) => match self.pending.put(&column, cells, Purpose::Row(waiter)) {
                Some(outcome) => self.value(call, &column.column, &outcome).map(Some),
                None => Ok(None),
            },
        }
    }

    /// Begins to reduce a group. An empty reason: it has no texts, and no answer.
    fn reduce(
        &mut self,
        call: GroupCall,
        list: &ScalarValue,
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
        let reduction = self.pending.number();
        self.reductions.insert(reduction, Reduced { reduction: Reduction::new(waiter, 0), call });
        self.level(reduction, texts)
    }

    /// Asks for one level of a group, and for the next where all of it is known.
    fn level(
        &mut self,
        number: u64,
        mut texts: Vec<String>,
    ) -> Result<Option<(Arc<AiColumn>, Outcome)>, String> {
        loop {
            let Some(Reduced { reduction, call }) = self.reductions.get_mut(&number) else { return Ok(None) };
            let query = &self.pending.query;
            let prompts = packed(&texts, query.runner.prompt_chars_max(query.model(call.model.as_deref())));
            let call = call.clone();
            let options = CallOptions { model: call.model.clone(), ..CallOptions::default() };
            reduction.begin(prompts.len());
            let is_last = prompts.len() == 1;
            let mut is_whole = false;
            for (place, prompt) in prompts.into_iter().enumerate() {
                let input = BoundInput::Value(ScalarValue::from(prompt));
                let bound = call.function.bind(&input, &call.rest, &options);
                let bound = bound.inspect_err(|_| drop(self.reductions.remove(&number)))?;
                let Some(Bound { mut column, cells }) = bound else { continue };
                if call.has_shared_texts {
                    column.put_row_first();
                }
                let column = self.pending.query.column(AnsweredBy::Model, column);
                match self.pending.put(&column, cells, Purpose::Part { reduction: number, place }) {
                    Some(outcome) => match outcome {
                        Outcome::Text { text, .. } if !is_last => {
                            if let Some(Reduced { reduction, .. }) = self.reductions.get_mut(&number) {
                                is_whole = reduction.answered(place, text);
                            }
                        }
                        outcome => {
                            self.reductions.remove(&number);
                            return Ok(Some((column.column, outcome)));
                        }
                    },
                    None => is_whole = false,
                }
            }
            if !is_whole {
                return Ok(None);
            }
            let Some(Reduced { reduction, .. }) = self.reductions.get_mut(&number) else { return Ok(None) };
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
        let Reduced { reduction, .. } = self.reductions.get_mut(&number)?;
        let waiter = reduction.waiter;
        let is_last = reduction.is_last();
        let finished = match outcome {
            Outcome::Text { text, .. } if !is_last => {
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
    pub(super) async fn send(&mut self) {
        self.pending.send().await;
    }

    /// Whether nothing more is sent.
    pub(super) fn is_stopped(&self) -> bool {
        self.pending.is_stopped()
    }

    /// Why nothing more is sent, for whoever ends with it.
    pub(super) fn take_stopped(&mut self) -> Option<DataFusionError> {
        self.pending.take_stopped()
    }

    /// Whether answers are on their way.
    pub(super) fn is_waiting(&self) -> bool {
        self.pending.is_waiting()
    }

    /// The next answer; never, where nothing is on its way.
    pub(super) async fn answer(&mut self) -> RowAnswer {
        self.pending.answer().await
    }

    /// An answer that is there.
    pub(super) fn try_answer(&mut self) -> Option<RowAnswer> {
        self.pending.try_answer()
    }

    /// Takes an answer in. Gives the rows that waited for it.
    pub(super) fn take(&mut self, answer: &RowAnswer) -> Vec<Answered> {
        let Some((column, purposes)) = self.pending.take(answer) else { return Vec::new() };
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

    /// What an outcome is in SQL.
    pub(super) fn value(&self, call: &AiCall, column: &AiColumn, outcome: &Outcome) -> Result<ScalarValue> {
        self.pending.value(call, column, outcome)
    }
}
