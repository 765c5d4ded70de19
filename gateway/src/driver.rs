//! The loop thread: drain the inbox, plan a step, execute it, apply its outcome, fan events out to boards.
//!
//! The only owner of the scheduler and the executor, so single-flight, coalescing and cancellation need no
//! locks and cannot race: they are decided here, one message at a time. It never waits for a client; when
//! there is no work it waits for the inbox. Must not know HTTP or storage.

mod fan_out;
mod intake;

use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, Weak};

use base::{Executor, PinId, RelQueryId, StepOutcome, TenantId, Time};
use scheduler::{CostModel, Event, Scheduler, Stats};

use crate::account::{Account, Accounts};
use crate::board::{Board, Source, Status};
use crate::clock::Clock;
use crate::error::ApiError;
use crate::health::Pulse;
use crate::intake::{CellKey, Intake, Message, OpenKey};
use crate::metrics::Metrics;
use crate::pins::{self, Filling, Pin};
use crate::results::Results;

/// What the loop shares with the handlers.
pub struct Shared {
    /// The way in.
    pub intake: Intake,
    /// Health by progress.
    pub pulse: Pulse,
    /// The one clock.
    pub clock: Clock,
    /// Every metric.
    pub metrics: Metrics,
    /// Finished cells.
    pub results: Results,
    /// Tokens used, by tenant and route.
    pub accounts: Accounts,
    /// What the scheduler last said of itself.
    pub view: Mutex<View>,
    /// Makes identifiers.
    pub ids: Ids,
}

/// Makes relQuery ids that are never used twice, restarts included: they count up from the start's wall time.
#[derive(Debug)]
pub struct Ids(std::sync::atomic::AtomicU64);

impl Ids {
    /// Ids of a process that started at this wall time.
    pub fn starting_at(unix_ms: u64) -> Self {
        Self(std::sync::atomic::AtomicU64::new(unix_ms << 16))
    }

    /// The next id.
    pub fn next(&self) -> RelQueryId {
        RelQueryId(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
    }
}

/// The scheduler's state, for `/v1/scheduler` and `/metrics`.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Counts.
    pub stats: Stats,
    /// The cost model as refitted so far.
    pub cost: CostModel,
    /// The last decision, in words.
    pub decision: String,
}

/// A row in flight: its relQuery of the scheduler and its number there.
type Spot = (RelQueryId, u32);

/// Who gets a row's answer.
struct Target {
    board: Arc<Board>,
    index: u32,
    source: Source,
}

/// A row in flight.
struct RowFlight {
    targets: Vec<Target>,
    text: String,
    tokens: u64,
    key: Option<CellKey>,
}

/// A relQuery of the scheduler.
struct Flight {
    account: Account,
    open: Option<OpenKey>,
    opened: Time,
    /// The board it was made for, while nobody else's rows joined.
    owner: Option<Arc<Board>>,
    rows: BTreeMap<u32, RowFlight>,
    next_row: u32,
    /// The pin that its rows fill, as long as none has failed.
    pin: Option<Filling>,
}

/// When calls may join an open relQuery.
#[derive(Clone, Copy, Debug)]
pub struct Coalescing {
    /// Age above which nothing joins.
    pub age_max: base::Nanos,
    /// Rows above which nothing joins.
    pub rows_max: usize,
}

/// The loop's state.
pub struct Driver {
    scheduler: Scheduler,
    executor: Box<dyn Executor>,
    shared: Arc<Shared>,
    coalescing: Coalescing,
    flights: HashMap<RelQueryId, Flight>,
    open: HashMap<(TenantId, OpenKey), RelQueryId>,
    in_flight: HashMap<(TenantId, CellKey), Spot>,
    /// Pins that hold something, or soon will.
    pins: HashMap<PinId, Weak<Pin>>,
    /// Where the unfinished rows of each live board run.
    boards: HashMap<RelQueryId, (Arc<Board>, Vec<Spot>)>,
    /// Boards to wake once this round's events are all written.
    touched: HashMap<RelQueryId, Arc<Board>>,
    /// When the last step ended, while steps follow one another.
    last_end: Option<Time>,
}

impl Driver {
    /// A loop at rest.
    pub fn new(
        scheduler: Scheduler,
        executor: Box<dyn Executor>,
        shared: Arc<Shared>,
        coalescing: Coalescing,
    ) -> Self {
        Self {
            scheduler,
            executor,
            shared,
            coalescing,
            flights: HashMap::new(),
            open: HashMap::new(),
            in_flight: HashMap::new(),
            pins: HashMap::new(),
            boards: HashMap::new(),
            touched: HashMap::new(),
            last_end: None,
        }
    }

    /// Runs until told to stop.
    pub fn run(mut self) {
        let mut idle = true;
        loop {
            for message in self.shared.intake.take(idle) {
                match message {
                    Message::Submit(job) => self.submit(job),
                    Message::Leave(board) => self.leave(&board),
                    Message::Unpin(pin) => {
                        self.pins.remove(&pin);
                        self.scheduler.unpin(pin);
                    }
                    Message::Stop => return self.fail_all(&ApiError::ShuttingDown),
                }
            }
            self.wake_readers();
            idle = !self.step();
            let lost = self.scheduler.drain_lost_pins();
            pins::lost(lost.into_iter().filter_map(|pin| self.pins.remove(&pin)));
            if idle && self.flights.is_empty() {
                self.shared.pulse.idle();
            }
            self.look();
        }
    }

    /// Plans and runs one step. False: there was nothing to do.
    fn step(&mut self) -> bool {
        let clock = self.shared.clock;
        let planning = clock.now();
        let Some(plan) = self.scheduler.plan(planning) else {
            self.last_end = None;
            return false;
        };
        self.shared.pulse.busy(planning);
        let planned = clock.now();
        let gap = self.last_end.map(|end| planned.since(end));
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| self.executor.step(&plan)));
        let now = clock.now();
        let events = match result {
            Ok(Ok(outcome)) => self.applied(outcome, planning, now),
            Ok(Err(error)) => {
                tracing::warn!(step = plan.step.0, %error, "a step failed");
                self.shared.metrics.step_failures.increment(1);
                self.last_end = None;
                self.scheduler.abort_step(plan.step, &error.to_string(), now)
            }
            Err(_) => {
                tracing::error!(step = plan.step.0, "the executor panicked; nothing more will run");
                self.shared.pulse.die();
                self.fail_all(&ApiError::Dead);
                return false;
            }
        };
        self.shared.pulse.step(now);
        let applied = clock.now();
        let scheduling = planned.since(planning) + applied.since(now);
        self.shared.metrics.step(&plan, gap, scheduling, now.since(planned));
        for event in events {
            self.event(event, now);
        }
        self.wake_readers();
        true
    }

    /// The scheduler's model of the machine is fitted to the time from step to step, not to the executor's
    /// alone: planning, fan-out and whoever else has the processor are what a step costs as well.
    fn applied(&mut self, outcome: StepOutcome, planning: Time, now: Time) -> Vec<Event> {
        let begun = self.last_end.replace(now).unwrap_or(planning);
        self.scheduler.apply(&StepOutcome { elapsed: now.since(begun), ..outcome }, now)
    }

    /// Forgets a relQuery of the scheduler.
    fn close(&mut self, id: RelQueryId) -> Option<Flight> {
        let flight = self.flights.remove(&id)?;
        if let Some(key) = flight.open.map(|key| (flight.account.tenant, key))
            && self.open.get(&key) == Some(&id)
        {
            self.open.remove(&key);
        }
        Some(flight)
    }

    /// Publishes what the scheduler says of itself.
    fn look(&self) {
        let view = View {
            stats: self.scheduler.stats(),
            cost: self.scheduler.cost(),
            decision: self.scheduler.last_decision().to_string(),
        };
        self.shared.metrics.look(&view.stats);
        *self.shared.view.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = view;
    }

    /// Ends everything unfinished with an error.
    fn fail_all(&mut self, error: &ApiError) {
        let now = self.shared.clock.now();
        for (_, (board, _)) in self.boards.drain() {
            board.end(Status::Failed(error.clone()), now);
        }
        for (id, flight) in self.flights.drain() {
            self.shared.intake.finished(flight.rows.len() as u64);
            self.scheduler.cancel(id);
        }
        self.open.clear();
        self.in_flight.clear();
        self.touched.clear();
    }
}
