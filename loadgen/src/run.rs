//! One run: sends a trace on time, whatever the server does, and records each relQuery as it ends.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc};

use crate::Error;
use crate::client::{self, Targets};
use crate::record::{Record, RelQueryOutcome, write_line};
use crate::scenario::Scenario;
use crate::single::{self, ChoiceField, Endpoint};
use crate::workload::RelQuery;

/// How rows are sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// Each relQuery is one request.
    RelQuery,
    /// Each row is one request, naming this model.
    Single {
        /// The route.
        endpoint: Endpoint,
        /// How it says which answers are allowed.
        choice: ChoiceField,
        model: String,
        /// With it, the request's `priority` is the tokens of the whole relQuery, counted with so many tokens
        /// to a character of its prompts.
        tokens_per_char: Option<f64>,
    },
}

/// What all sending tasks share.
struct SendContext {
    targets: Targets,
    scenario: Scenario,
    mode: Mode,
    in_flight: Arc<Semaphore>,
    start: Instant,
}

/// Sends the trace, to several servers in turn, and gives its records in the order of arrival; each is appended to `lines` as it ends.
pub async fn run(
    targets: impl Into<Targets>,
    scenario: &Scenario,
    mode: Mode,
    trace: &[RelQuery],
    lines: &Path,
) -> Result<Vec<Record>, Error> {
    let mut file = std::fs::File::create(lines).map_err(|error| Error::file(lines, error))?;
    let shared = Arc::new(SendContext {
        targets: targets.into(),
        scenario: scenario.clone(),
        mode,
        in_flight: Arc::new(Semaphore::new(scenario.requests_in_flight_max as usize)),
        start: Instant::now(),
    });
    // Unbounded in name: it never holds more than the trace's own length.
    let (done, mut ended) = mpsc::unbounded_channel();
    let sender = tokio::spawn(dispatch(shared, trace.to_vec(), done));
    let mut records = Vec::with_capacity(trace.len());
    while let Some(record) = ended.recv().await {
        write_line(&mut file, &record)?;
        records.push(record);
    }
    sender.await.map_err(|error| Error::Client(error.to_string()))?;
    records.sort_by_key(|record| record.index);
    Ok(records)
}

/// Starts every relQuery at its time. An open loop: never waits for an answer.
async fn dispatch(shared: Arc<SendContext>, trace: Vec<RelQuery>, done: mpsc::UnboundedSender<Record>) {
    for relquery in trace {
        tokio::time::sleep_until((shared.start + relquery.arrival).into()).await;
        let (shared, done) = (Arc::clone(&shared), done.clone());
        tokio::spawn(async move {
            let record = attempt(&shared, &relquery).await;
            // The receiver is gone only where the run was given up.
            let _ = done.send(record);
        });
    }
}

/// Sends one relQuery, if there is room for it.
async fn attempt(shared: &SendContext, relquery: &RelQuery) -> Record {
    let requests = match shared.mode {
        Mode::RelQuery => 1,
        Mode::Single { .. } => u32::try_from(relquery.rows.len()).unwrap_or(u32::MAX),
    };
    let Ok(_room) = shared.in_flight.try_acquire_many(requests) else {
        let limit = shared.scenario.requests_in_flight_max;
        let reason = format!("not sent: `requests_in_flight_max` ({limit}) is reached");
        return Record::new(relquery, RelQueryOutcome::failed(reason), None, 0.0);
    };
    let (outcome, first) = match &shared.mode {
        Mode::RelQuery => client::send(shared.targets.in_turn(), &shared.scenario, relquery).await,
        Mode::Single { endpoint, choice, model, tokens_per_char } => {
            let priority = tokens_per_char.map(|tokens| relquery.total_tokens(tokens));
            let route = single::Route { endpoint: *endpoint, choice: *choice, model, priority };
            single::send(&shared.targets, route, &shared.scenario, relquery).await
        }
    };
    let due = shared.start + relquery.arrival;
    let since_due = |instant: Instant| ms(instant.saturating_duration_since(due));
    Record::new(relquery, outcome, first.map(since_due), since_due(Instant::now()))
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}
