//! Runs the calls of planned queries: whatever has its inputs starts, calls alike as rows of one relQuery,
//! and each output goes where the plan says.
//!
//! While a call waits for others, the spans it will read are computed ahead (the paper's G¹), so that it
//! begins with nothing but what is new. A call that fails takes its query with it, and no other.

use std::collections::HashMap;
use std::sync::Arc;

use base::{Generation, ServiceClass, TokenCount, WorkItem};
use ir::span::{CallId, Plan, SpanPart};
use serving::caller::Caller;
use serving::clock::{Deadline, Late};
use serving::error::{RequestError, internal};
use serving::intake::{PendingRow, TemplateRows};
use serving::ownership::OwnerHandle;
use serving::relquery_state::{RelQueryKind, RowProgress, State, Status};
use serving::submit::{self, Prepared, Resumed};
use tokio::sync::mpsc;
use tokio::sync::watch;
use tokio::task::JoinError;

use super::Planned;
use super::progress::{Ended, QueryOutcome, QueryProgress};
use super::prompt::{Ask, CallOutput, Outputs, item};
use crate::models::ServedModel;

/// What happens while queries run.
#[derive(Clone, Debug)]
pub enum QueryEvent {
    /// More text of a call whose output is part of the result.
    Delta(usize, CallId, String),
    Ended(usize, CallId, Ended),
}

/// Who asks, and how they wait.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// Whose queries.
    pub caller: Caller,
    /// Who waits.
    pub class: ServiceClass,
    /// When they wait no longer: what has not ended by then fails.
    pub deadline: Option<Deadline>,
}

/// Runs queries to their ends; the outcomes stand in the order of the queries. Dropping the future calls off
/// what runs.
pub async fn run(
    model: &Arc<ServedModel>,
    asker: Asker,
    planned: &[Planned],
    events: Option<mpsc::Sender<QueryEvent>>,
) -> Vec<QueryOutcome> {
    let queries = planned.iter().map(QueryProgress::new).collect();
    let mut runner = QueryRunner { model, asker, queries, flights: Vec::new(), events };
    runner.start().await;
    while !runner.queries.iter().all(QueryProgress::is_over) {
        if runner.flights.is_empty() {
            // Every call that waits reads one that ran or runs: nothing else can keep it waiting.
            runner
                .queries
                .iter_mut()
                .for_each(|progress| progress.fail(internal("a call waits for nothing")));
            break;
        }
        if !runner.wait().await {
            runner.expire();
        } else if runner.collect().await {
            runner.start().await;
        }
    }
    runner.queries.into_iter().map(QueryProgress::outcome).collect()
}

/// What a row is made from; the number is that of the spans' tokens to repair.
type RowInputs = (Arc<Plan>, Arc<[Arc<Generation>]>, Arc<Outputs>, u32);

/// A query's number, what it asks, and the row of that.
type LoweredAsk = (usize, Ask, Result<WorkItem, RequestError>);

/// A relQuery of calls that run.
struct CallFlight {
    handle: OwnerHandle,
    version: watch::Receiver<u64>,
    /// Which query and what of it each row is.
    rows: Vec<(usize, Ask)>,
    /// Rows that have ended and were seen to.
    seen: usize,
    /// Whether it was over when it was last looked at: then all its rows were.
    is_over: bool,
    /// Bytes of each row's text that were told.
    reported: Vec<usize>,
}

struct QueryRunner<'a> {
    model: &'a Arc<ServedModel>,
    asker: Asker,
    queries: Vec<QueryProgress>,
    flights: Vec<CallFlight>,
    events: Option<mpsc::Sender<QueryEvent>>,
}

impl QueryRunner<'_> {
    /// Starts what is ready, alike with alike.
    async fn start(&mut self) {
        let mut asks: Vec<(usize, Ask)> = Vec::new();
        for (number, progress) in self.queries.iter_mut().enumerate() {
            asks.extend(progress.ready().into_iter().map(|ask| (number, ask)));
        }
        self.submit(asks).await;
    }

    /// Submits rows: calls that generate alike are one relQuery, and so are spans computed ahead.
    async fn submit(&mut self, asks: Vec<(usize, Ask)>) {
        let mut groups: Vec<Vec<(usize, Ask)>> = Vec::new();
        let mut group_of = HashMap::new();
        for (number, ask) in asks {
            // Calls that generate alike have one generation between them: planning saw to that.
            let generation = match ask {
                Ask::Call(id) => Some(Arc::as_ptr(&self.queries[number].generations[id.0])),
                Ask::Ahead(_) => None,
            };
            let group = *group_of.entry(generation).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[group].push((number, ask));
        }
        for group in groups {
            if self.submit_group(group).await == Err(Late) {
                return self.expire();
            }
        }
    }

    async fn submit_group(&mut self, group: Vec<(usize, Ask)>) -> Result<(), Late> {
        let lowered = match self.lower(group).await? {
            Ok(lowered) => lowered,
            Err(error) => {
                self.fail_all(&internal(error));
                return Ok(());
            }
        };
        let (mut rows, mut places) = (Vec::new(), Vec::new());
        for (number, ask, item) in lowered {
            match item {
                Ok(item) => {
                    let row = places.len() as u32;
                    rows.push(PendingRow { targets: vec![row], item, key: None });
                    places.push((number, ask));
                }
                // What cannot be computed ahead is not missed: its reader says what is wrong.
                Err(error) if matches!(ask, Ask::Call(_)) => self.queries[number].fail(error),
                Err(_) => {}
            }
        }
        if rows.is_empty() {
            return Ok(());
        }
        let work = Prepared {
            kind: RelQueryKind::Calls,
            route: "query",
            class: self.asker.class,
            rows: rows.len(),
            failed: Vec::new(),
            answered: Vec::new(),
            deadline: self.asker.deadline,
            pin: None,
            parts: vec![TemplateRows { open: None, label: None, rows }],
        };
        match submit::submit(&self.model.runtime, self.asker.caller, work, Resumed::default()).await {
            Ok(handle) => {
                // It may have ended since: the loop does not wait for who asked.
                let version = handle.relquery().follow_all();
                let reported = vec![0; places.len()];
                self.flights.push(CallFlight {
                    handle,
                    version,
                    rows: places,
                    seen: 0,
                    is_over: false,
                    reported,
                });
            }
            Err(error) => {
                for (number, _) in places.iter().filter(|(_, ask)| matches!(ask, Ask::Call(_))) {
                    self.queries[*number].fail(error.clone());
                }
            }
        }
        Ok(())
    }

    /// Makes rows of what is asked, off the connections' threads: tokenizing takes a while.
    async fn lower(&self, group: Vec<(usize, Ask)>) -> Result<Result<Vec<LoweredAsk>, JoinError>, Late> {
        let inputs: Vec<_> = group
            .into_iter()
            .map(|(number, ask)| {
                let progress = &self.queries[number];
                let (plan, generations) = (Arc::clone(&progress.plan), Arc::clone(&progress.generations));
                (number, ask, (plan, generations, Arc::clone(&progress.outputs), progress.repair_tokens))
            })
            .collect();
        let model = self.model.clone();
        let made = tokio::task::spawn_blocking(move || {
            let make = |(number, ask, (plan, generations, outputs, repair)): (usize, Ask, RowInputs)| {
                let item = item(&model, &plan, &generations, (&ask, &outputs), repair);
                (number, ask, item)
            };
            inputs.into_iter().map(make).collect::<Vec<_>>()
        });
        self.model.runtime.shared.clock.within(self.asker.deadline, made).await
    }

    fn fail_all(&mut self, error: &RequestError) {
        self.queries.iter_mut().for_each(|progress| progress.fail(error.clone()));
    }

    /// Waits until something has changed; false where the deadline passes first.
    async fn wait(&mut self) -> bool {
        let changes = self.flights.iter_mut().map(|flight| Box::pin(flight.version.changed()));
        // The sender lives in the relQuery, which the handle holds: it cannot be gone.
        let change = futures_util::future::select_all(changes);
        self.model.runtime.shared.clock.within(self.asker.deadline, change).await.is_ok()
    }

    /// Fails what has not ended. What it has put out is spent all the same.
    fn expire(&mut self) {
        for flight in &self.flights {
            let state = flight.handle.relquery().read();
            for (row, (number, _)) in state.rows.iter().zip(&flight.rows) {
                if row.state == RowProgress::Pending {
                    self.queries[*number].usage.output += TokenCount(row.pieces);
                }
            }
        }
        self.fail_all(&RequestError::Deadline);
    }

    /// Sees to what has changed; whether a call has ended.
    async fn collect(&mut self) -> bool {
        let mut flights = std::mem::take(&mut self.flights);
        let (mut reported, mut ended) = (Vec::new(), Vec::new());
        for flight in &mut flights {
            flight.version.mark_unchanged();
            let relquery = Arc::clone(flight.handle.relquery());
            let state = relquery.read();
            if self.events.is_some() {
                reported.extend(flight.deltas(&state, &self.queries));
            }
            self.take_in(flight, &state, &mut ended);
        }
        // As of that look, not of now: what ended since was not seen to.
        flights.retain(|flight| !flight.is_over);
        self.flights = flights;
        let ahead = ended.iter().filter(|(number, id)| self.queries[*number].is_waited_with(*id));
        let ahead = ahead.map(|(number, id)| (*number, Ask::Ahead(vec![SpanPart::Whole(*id)]))).collect();
        self.submit(ahead).await;
        if let Some(events) = &self.events {
            let ends = ended.iter().filter_map(|(number, id)| {
                let progress = &self.queries[*number];
                Some(QueryEvent::Ended(progress.index, *id, progress.ended(*id)?.clone()))
            });
            for reported in reported.into_iter().chain(ends) {
                // Who listens may have left; the runner is dropped with them.
                let _ = events.send(reported).await;
            }
        }
        !ended.is_empty()
    }

    /// Takes in the rows of a relQuery that have ended; their calls are added to `ended`.
    fn take_in(&mut self, flight: &mut CallFlight, state: &State, ended: &mut Vec<(usize, CallId)>) {
        for row in &state.finished[flight.seen..] {
            let (number, ask) = &flight.rows[*row as usize];
            let progress = &mut self.queries[*number];
            match (ask, outcome(state, *row)) {
                (Ask::Call(id), Ok((call, output))) => {
                    progress.end(*id, call, output);
                    ended.push((*number, *id));
                }
                (Ask::Call(_), Err(error)) => progress.fail(error),
                (Ask::Ahead(_), Ok((span, _))) => progress.usage += span.usage,
                // Its reader computes the span itself, or says what is wrong with it.
                (Ask::Ahead(_), Err(_)) => {}
            }
        }
        flight.seen = state.finished.len();
        flight.is_over = state.is_over();
        let error = match &state.status {
            Status::Running | Status::Completed => return,
            Status::Cancelled => RequestError::Cancelled,
            Status::Failed(error) => error.clone(),
        };
        for (number, ask) in &flight.rows {
            if let Ask::Call(id) = ask
                && self.queries[*number].ended(*id).is_none()
            {
                self.queries[*number].fail(error.clone());
            }
        }
    }
}

impl CallFlight {
    /// Text of calls in the result that was not told yet.
    fn deltas(&mut self, state: &State, queries: &[QueryProgress]) -> Vec<QueryEvent> {
        let mut events = Vec::new();
        for ((row, (number, ask)), reported) in state.rows.iter().zip(&self.rows).zip(&mut self.reported) {
            let progress = &queries[*number];
            let Ask::Call(id) = ask else { continue };
            if row.text.len() > *reported && progress.is_result(*id) {
                events.push(QueryEvent::Delta(progress.index, *id, row.text[*reported..].to_owned()));
                *reported = row.text.len();
            }
        }
        events
    }
}

/// A row that has ended, and its output: servers tell no tokens.
fn outcome(state: &State, row: u32) -> Result<(Ended, CallOutput), RequestError> {
    let row = &state.rows[row as usize];
    match &row.state {
        RowProgress::Done { end, usage, .. } => {
            let ended = Ended { text: row.text.as_str().into(), end: *end, usage: *usage };
            let output = match row.tokens.as_slice() {
                [] => CallOutput::Text(Arc::clone(&ended.text)),
                tokens => CallOutput::Tokens(tokens.into()),
            };
            Ok((ended, output))
        }
        RowProgress::Failed(error) => Err(error.clone()),
        RowProgress::Pending => Err(internal("a row that has ended is pending")),
    }
}
