//! The loop thread: drain the inbox, plan a step, execute it, apply its outcome, fan events out to
//! relQueries.
//!
//! The only owner of the scheduler and the executor, so single-flight, coalescing and cancellation need no
//! locks and cannot race: they are decided here, one message at a time. It never waits for a client; when
//! there is no work it waits for the inbox. Must not know HTTP or storage.

mod backend;
mod engine;
mod fan_out;
mod intake;
mod publish;
mod restart;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

pub use backend::Backend;
use base::{Nanos, PinId, RelQueryId, TenantId, Time, TokenCount};
pub use engine::Engine;
pub(crate) use engine::StepResult;
pub use restart::ExecutorFactory;

use crate::account::Account;
use crate::error::RequestError;
use crate::intake::{CellKey, Message, OpenKey, Wait};
use crate::label::Label;
use crate::live::publisher::LivePublisher;
use crate::pins::{self, Pin, PinPermit};
use crate::price::TokenPrices;
use crate::relquery_state::{AnswerSource, RelQueryState, Status};
use crate::shared::Shared;

/// Until the live buffer is tried again, where a reader has it: it copies a few pointers.
const BUFFER_TAKEN: Nanos = Nanos(1_000_000);

/// A row in flight: its relQuery of the scheduler and its number there.
type RowKey = (RelQueryId, u32);

/// Who gets a row's answer.
struct AnswerTarget {
    relquery: Arc<RelQueryState>,
    index: u32,
    /// Of the first that still waits: the model. That one pays for the row.
    source: AnswerSource,
    /// Where what the row used is counted, if this one pays for it.
    account: Account,
}

/// A row in flight.
struct RowFlight {
    targets: Vec<AnswerTarget>,
    text: String,
    tokens: u64,
    /// Steps that gave its tokens; 0 where they came as text.
    samplings: u32,
    /// When its last output came.
    last_text: Option<Time>,
    /// How likely its answer is, where that is known before its end.
    probability: Option<f64>,
    /// What its tokens cost where it ran, where a fleet says so.
    prices: Option<TokenPrices>,
    key: Option<CellKey>,
}

/// A relQuery of the scheduler.
struct RelQueryFlight {
    account: Account,
    label: Option<Arc<Label>>,
    open: Option<OpenKey>,
    opened: Time,
    /// When a row of it last came or ended.
    moved: Time,
    /// The relQuery it was made for, while nobody else's rows joined.
    owner: Option<Arc<RelQueryState>>,
    rows: BTreeMap<u32, RowFlight>,
    next_row: u32,
    /// The pin that its rows fill, as long as none has failed.
    pin: Option<PinPermit>,
}

/// A relQuery whose rows are with the scheduler.
struct PlacedRelQuery {
    relquery: Arc<RelQueryState>,
    /// Where its rows run; some may have ended.
    places: Vec<RowKey>,
    /// How many were left when those that had ended were last taken out.
    places_kept: usize,
    /// The scheduler's relQuery that took its last rows.
    last: Option<RelQueryId>,
}

/// When calls may join an open relQuery.
#[derive(Clone, Copy, Debug)]
pub struct Coalescing {
    /// Age above which nothing joins rows of a template.
    pub age_max: Nanos,
    /// Time without a row that comes or ends after which nothing joins a client's loop.
    pub idle_max: Nanos,
    /// Rows above which nothing joins.
    pub rows_max: usize,
}

/// The loop's state.
pub struct Driver {
    backend: Backend,
    shared: Arc<Shared>,
    coalescing: Coalescing,
    flights: HashMap<RelQueryId, RelQueryFlight>,
    open: HashMap<(TenantId, OpenKey), RelQueryId>,
    in_flight: HashMap<(TenantId, CellKey), RowKey>,
    /// Pins that hold something, or soon will.
    pins: HashMap<PinId, Weak<Pin>>,
    /// Where the unfinished rows of each live relQuery run.
    relqueries: HashMap<RelQueryId, PlacedRelQuery>,
    /// RelQueries to wake once this round's events are all written.
    touched: HashMap<RelQueryId, Arc<RelQueryState>>,
    /// What is to be told to those who look.
    publisher: LivePublisher,
}

impl Driver {
    /// A loop at rest.
    pub fn new(backend: Backend, shared: Arc<Shared>, coalescing: Coalescing) -> Self {
        Self {
            publisher: LivePublisher::new(Arc::clone(&shared.live)),
            backend,
            shared,
            coalescing,
            flights: HashMap::new(),
            open: HashMap::new(),
            in_flight: HashMap::new(),
            pins: HashMap::new(),
            relqueries: HashMap::new(),
            touched: HashMap::new(),
        }
    }

    /// Runs until told to stop.
    pub fn run(mut self) {
        let mut idle = true;
        // What there is can be seen before anything has run.
        self.publish_view();
        loop {
            let wait = match (idle, self.backend.patience(&self.shared)) {
                (false, _) => Wait::No,
                // A reader has the buffer: what is left is published a moment later, not with the next step.
                (true, _) if self.publisher.has_more() => Wait::For(BUFFER_TAKEN),
                (true, Some(span)) => Wait::For(span),
                (true, None) => Wait::Forever,
            };
            for message in self.shared.intake.take(wait) {
                match message {
                    Message::Submit(job) => self.submit(job),
                    Message::Leave(relquery) => self.leave(&relquery),
                    Message::Unpin(pin) => {
                        self.pins.remove(&pin);
                        self.backend.unpin(pin);
                    }
                    Message::Fleet(message) => {
                        let events = self.backend.poll(message, &self.shared);
                        // Before the answers: who sees one end finds them with it.
                        let reported = self.backend.take_likelihoods();
                        reported.iter().for_each(|reported| self.keep_likelihood(reported));
                        let reported = self.backend.take_prices();
                        reported.iter().for_each(|reported| self.keep_prices(reported));
                        let now = self.shared.clock.now();
                        events.into_iter().for_each(|event| self.event(event, now));
                    }
                    // Who asked may have gone.
                    Message::Open(to) => drop(to.send(self.publisher.open())),
                    Message::SetPolicy(policy) => self.backend.set_policy(policy),
                    Message::Look => {}
                    Message::Stop => {
                        self.shared.auto.stop();
                        return self.fail_all(&RequestError::ShuttingDown);
                    }
                }
            }
            self.wake_readers();
            idle = !self.advance();
            let lost = self.backend.drain_lost_pins();
            pins::lost(lost.into_iter().filter_map(|pin| self.pins.remove(&pin)));
            if idle && self.flights.is_empty() {
                self.shared.pulse.idle();
            }
            self.publish_view();
            self.publish_live();
        }
    }

    /// Has the backend do what can be done now. False: there was nothing to do.
    fn advance(&mut self) -> bool {
        let result = self.backend.advance(&self.shared);
        self.keep_report();
        if self.shared.pulse.is_resting() && !matches!(result, StepResult::Restarting(_)) {
            self.shared.pulse.wake(self.shared.clock.now());
        }
        match result {
            StepResult::Idle => false,
            StepResult::Restarting(since) => {
                self.shared.pulse.rest(since);
                false
            }
            StepResult::Stepped(events, now, step) => {
                step.into_iter().for_each(|step| self.publisher.stepped(*step));
                events.into_iter().for_each(|event| self.event(event, now));
                self.wake_readers();
                true
            }
            StepResult::Dead => {
                self.shared.pulse.die();
                self.fail_all(&RequestError::Dead);
                false
            }
        }
    }

    /// Forgets a relQuery of the scheduler.
    fn close(&mut self, id: RelQueryId) -> Option<RelQueryFlight> {
        self.backend.forget(id);
        let flight = self.flights.remove(&id)?;
        if let Some(key) = flight.open.map(|key| (flight.account.tenant, key))
            && self.open.get(&key) == Some(&id)
        {
            self.open.remove(&key);
        }
        Some(flight)
    }

    /// Publishes what the scheduler says of itself.
    fn publish_view(&self) {
        let view = self.backend.view(&self.shared);
        *self.shared.view.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = view;
    }

    /// Ends everything unfinished with an error.
    fn fail_all(&mut self, error: &RequestError) {
        let now = self.shared.clock.now();
        let sent = self.sent(self.flights.keys().copied());
        for (id, flight) in &self.flights {
            for (number, row) in &flight.rows {
                let is_sent = sent.contains(&(*id, *number));
                let output = (!is_sent).then_some(TokenCount(row.tokens));
                let asked = row.targets.iter().filter(|target| target.source == AnswerSource::Model);
                asked.for_each(|target| target.relquery.leave_call(target.index, is_sent, output));
            }
        }
        for (_, placed) in self.relqueries.drain() {
            if placed.relquery.end(Status::Failed(error.clone()), now) {
                self.shared.relquery_ended(&placed.relquery, &placed.relquery.read());
            }
            placed.relquery.let_go();
        }
        for (id, flight) in self.flights.drain() {
            self.shared.intake.finished(flight.account.tenant, flight.rows.len() as u64);
            self.backend.cancel(id);
        }
        self.publisher.forget_open();
        self.open.clear();
        self.in_flight.clear();
        self.touched.clear();
    }
}
