//! The flow of rows through an operator: let in, asked for, decided, given out in order.
//!
//! Rows are let in by windows, so that a column of any length needs bounded memory and a `LIMIT` computes
//! little more than it gives. Nothing moves unless the consumer asks: dropping the stream drops the open
//! relQueries, which cancels what still runs. Where rows cannot run any more, of this operator or of one below (a budget
//! is spent, say), those that were sent before are answered and given out, up to the first without an answer; then
//! comes the error.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan as _;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures_util::StreamExt as _;

use super::ask::{Answered, Asked, Asking};
use super::order::ConditionOrder;
use super::outer::Unmatched;
use super::rows::Held;
use super::{AiExec, RowProgram};
use crate::budget::BudgetSpent;
use crate::node::AiKind;
use crate::query::Query;
use crate::runner::{PromptOrder, RowAnswer, RunError};

/// Batches that are held at most, decided or not.
const BATCHES_MAX: usize = 16;

/// One execution of an operator.
pub(super) struct RowFlow {
    work: RowProgram,
    schema: SchemaRef,
    input: SendableRecordBatchStream,
    is_input_over: bool,
    /// Why no more input comes, where an operator below can run no more rows.
    input_stopped: Option<DataFusionError>,
    batches: VecDeque<Held>,
    /// Rows that wait until there are as many as a window has: their prompts are ordered together.
    gathered: Vec<RecordBatch>,
    /// Whether rows wait for one another, because the order of their fields is theirs together.
    gathers: bool,
    /// Rows that an outer join gives back.
    unmatched: Option<Unmatched>,
    /// The number of the first batch that is held.
    first: u64,
    /// Rows let in and not decided.
    undecided: usize,
    asked: Asked,
    order: ConditionOrder,
    window: usize,
    /// Rows still to be given.
    fetch: Option<usize>,
}

impl RowFlow {
    /// The operator's output.
    pub(super) fn stream(
        exec: &AiExec,
        query: Arc<Query>,
        input: SendableRecordBatchStream,
        unmatched: Option<Unmatched>,
        partition: usize,
    ) -> SendableRecordBatchStream {
        let labels: Vec<&str> = exec.program().calls.iter().map(|call| call.written.as_str()).collect();
        let models = query.models(&exec.program().calls);
        let progress = query.progress.operator((&labels.join(", "), models), &exec.metrics, partition);
        let flow = Self {
            work: exec.work.clone(),
            schema: exec.schema(),
            input,
            is_input_over: false,
            input_stopped: None,
            batches: VecDeque::new(),
            gathered: Vec::new(),
            unmatched,
            first: 0,
            undecided: 0,
            gathers: query.limits.order == PromptOrder::Fields,
            window: query.limits.window_rows.max(1),
            asked: Asked::new(query, progress, exec.work.compiled.calls.len()),
            order: ConditionOrder::new(exec.work.compiled.conjuncts.len()),
            fetch: exec.fetch,
        };
        let schema = exec.schema();
        let stream = futures_util::stream::try_unfold(flow, |mut flow| async move {
            Ok(flow.next().await?.map(|batch| (batch, flow)))
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, stream))
    }

    /// The next rows that are decided.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            while let Some(answer) = self.asked.try_answer() {
                self.answered(&answer)?;
            }
            if let Some(batch) = self.emit()? {
                return Ok(Some(batch));
            }
            if self.fetch == Some(0) {
                return Ok(None);
            }
            if self.is_input_over && self.batches.is_empty() {
                return self.input_stopped.take().map_or_else(|| self.given_back(), Err);
            }
            if self.asked.is_stopped() && self.asked.is_waiting() {
                let answer = self.asked.answer().await;
                self.answered(&answer)?;
                continue;
            }
            if let Some(error) = self.asked.take_stopped() {
                return Err(error);
            }
            self.admit()?;
            self.asked.send().await;
            if self.asked.is_stopped() || self.batches.front().is_some_and(Held::is_ready) {
                continue;
            }
            let wants_input = !self.is_input_over
                && self.batches.len() < BATCHES_MAX
                && self.batches.back().is_none_or(Held::is_admitted)
                && self.undecided < self.target();
            match (wants_input, self.asked.is_waiting()) {
                (true, true) => tokio::select! {
                    biased;
                    batch = self.input.next() => self.arrived(batch)?,
                    answer = self.asked.answer() => self.answered(&answer)?,
                },
                (true, false) => {
                    let batch = self.input.next().await;
                    self.arrived(batch)?;
                }
                (false, true) => {
                    let answer = self.asked.answer().await;
                    self.answered(&answer)?;
                }
                // All that is held is decided: the next round gives it out.
                (false, false) => {}
            }
        }
    }

    /// Rows of an outer join that are left without a partner.
    fn given_back(&mut self) -> Result<Option<RecordBatch>> {
        let Some(batch) = self.unmatched.as_mut().map(Unmatched::next).transpose()?.flatten() else {
            return Ok(None);
        };
        let rows = self.fetch.map_or(batch.num_rows(), |fetch| fetch.min(batch.num_rows()));
        if let Some(fetch) = &mut self.fetch {
            *fetch -= rows;
        }
        Ok(Some(batch.slice(0, rows)))
    }

    /// Rows that are decided, from the first on.
    fn emit(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(held) = self.batches.front_mut() {
            let most = self.fetch.unwrap_or(usize::MAX);
            let batch = held.emit(&self.work.compiled, &self.schema, most, self.unmatched.as_mut())?;
            if held.is_emitted() {
                self.batches.pop_front();
                self.first += 1;
            }
            let Some(batch) = batch else { return Ok(None) };
            if let Some(fetch) = &mut self.fetch {
                *fetch -= batch.num_rows();
            }
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    fn arrived(&mut self, batch: Option<Result<RecordBatch>>) -> Result<()> {
        match batch {
            Some(Ok(batch)) => {
                self.asked.progress().rows.add(batch.num_rows());
                self.gathered.push(batch);
            }
            // What came before is paid for: it is answered and given out first.
            Some(Err(error)) if BudgetSpent::of(&error).is_some() || RunError::is_root_of(&error) => {
                (self.input_stopped, self.is_input_over) = (Some(error), true);
            }
            Some(Err(error)) => return Err(error),
            None => self.is_input_over = true,
        }
        let rows: usize = self.gathered.iter().map(RecordBatch::num_rows).sum();
        let wanted = if self.gathers { self.target() } else { 1 };
        let Some(first) = self.gathered.first().filter(|_| rows >= wanted || self.is_input_over) else {
            return Ok(());
        };
        let batch = concat_batches(&first.schema(), &self.gathered)?;
        self.gathered.clear();
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.batches.push_back(self.work.held(batch)?);
        Ok(())
    }

    /// How many rows are to be undecided at a time: the window, or what a `LIMIT` is likely to need.
    fn target(&self) -> usize {
        let window = self.order.sampling().map_or(self.window, |rows| rows.min(self.window));
        let Some(fetch) = self.fetch.filter(|_| self.work.kind != AiKind::Map) else { return window };
        let found = self.batches.iter().flat_map(|held| &held.rows[..held.admitted]);
        let needed = fetch.saturating_sub(found.filter(|row| row.decided == Some(true)).count());
        ((needed as f64 / self.order.passing()).ceil() as usize).clamp(1, window)
    }

    /// Lets rows in, a good part of a window at a time: neighbours that are sent together share more.
    fn admit(&mut self) -> Result<()> {
        let target = self.target();
        if self.undecided * 2 > target {
            return Ok(());
        }
        for place in 0..self.batches.len() {
            let free = target.saturating_sub(self.undecided);
            let held = &mut self.batches[place];
            let more = free.min(held.rows.len() - held.admitted);
            if more == 0 {
                continue;
            }
            let rows: Vec<u32> = (held.admitted..held.admitted + more).map(|row| row as u32).collect();
            held.admitted += more;
            self.undecided += more;
            self.advance(self.first + place as u64, rows)?;
        }
        Ok(())
    }

    /// Takes rows as far as they get without an answer.
    fn advance(&mut self, batch: u64, rows: Vec<u32>) -> Result<()> {
        let compiled = Arc::clone(&self.work.compiled);
        let mut ready = rows;
        while !ready.is_empty() {
            let mut groups: BTreeMap<(usize, usize), Vec<u32>> = BTreeMap::new();
            for row in std::mem::take(&mut ready) {
                if let Some(at) = self.place(batch, row) {
                    groups.entry(at).or_default().push(row);
                }
            }
            for ((conjunct, level), rows) in groups {
                let own = &compiled.conjuncts[conjunct];
                let place = (batch - self.first) as usize;
                let held = &mut self.batches[place];
                if let Some(calls) = own.levels.get(level) {
                    let asking = Asking { batch, conjunct, rows: &rows };
                    let waiting = self.asked.ask(&compiled, calls, held, &asking)?;
                    for (row, waiting) in rows.into_iter().zip(waiting) {
                        let state = &mut held.rows[row as usize];
                        (state.at, state.waiting) = (Some((conjunct, level + 1)), waiting);
                        if waiting == 0 {
                            ready.push(row);
                        }
                    }
                    continue;
                }
                let holds = match &own.condition {
                    None => vec![true; rows.len()],
                    Some(condition) => {
                        let view = held.view(&compiled, &rows)?;
                        let holds = condition.evaluate(&view)?.into_array(rows.len())?;
                        let holds = holds.as_boolean();
                        (0..rows.len()).map(|at| !holds.is_null(at) && holds.value(at)).collect()
                    }
                };
                for (row, holds) in rows.into_iter().zip(holds) {
                    self.order.decided(conjunct, holds);
                    let state = &mut held.rows[row as usize];
                    state.at = None;
                    if holds {
                        state.held |= 1 << conjunct;
                        ready.push(row);
                    } else {
                        state.decided = Some(false);
                        self.undecided -= 1;
                        self.asked.progress().decided.add(1);
                    }
                }
            }
        }
        Ok(())
    }

    /// Where a row goes on; `None`: all its conditions hold, and it stays.
    fn place(&mut self, batch: u64, row: u32) -> Option<(usize, usize)> {
        let state = &mut self.batches[(batch - self.first) as usize].rows[row as usize];
        if state.at.is_none() {
            let held = state.held;
            let left =
                (0..self.work.compiled.conjuncts.len()).filter(move |conjunct| held & (1 << conjunct) == 0);
            state.at = self.order.next(left, held == 0).map(|conjunct| (conjunct, 0));
        }
        if state.at.is_none() {
            state.decided = Some(true);
            self.undecided -= 1;
            self.asked.progress().decided.add(1);
        }
        state.at
    }

    /// Gives an answer to the rows that wait for it, and takes them further.
    fn answered(&mut self, answer: &RowAnswer) -> Result<()> {
        let rows = self.asked.take(answer);
        let mut ready: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (number, Answered { waiter, column, outcome }) in rows.into_iter().enumerate() {
            let call = &self.work.compiled.program.calls[waiter.call];
            let value = self.asked.value(call, &column, &outcome)?;
            if number == 0 {
                let tokens = answer.tokens;
                self.order.paid(
                    waiter.conjunct,
                    tokens.prompt.0 - tokens.cached.0.min(tokens.prompt.0) + tokens.output.0,
                );
            }
            let held = &mut self.batches[(waiter.batch - self.first) as usize];
            held.set_answer(waiter.call, waiter.row, value);
            let state = &mut held.rows[waiter.row as usize];
            state.waiting -= 1;
            if state.waiting == 0 {
                ready.entry(waiter.batch).or_default().push(waiter.row);
            }
        }
        for (batch, rows) in ready {
            self.advance(batch, rows)?;
        }
        Ok(())
    }
}
