//! The loop thread: drain the inbox, plan a step, execute it, apply its outcome, fan events out to boards.
//!
//! The only owner of the scheduler and the executor, so single-flight, coalescing and cancellation need no
//! locks and cannot race: they are decided here, one message at a time. It never waits for a client; when
//! there is no work it waits for the inbox. Must not know HTTP or storage.

use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use base::{End, Executor, RelQueryId, StepOutcome, Submission, TenantId, Time, TokenCount};
use scheduler::{CostModel, Event, Refused, Scheduler, Stats};

use crate::account::{Account, Accounts, Spent};
use crate::board::{Board, RowState, Source, Status, Usage};
use crate::clock::Clock;
use crate::error::ApiError;
use crate::health::Pulse;
use crate::intake::{CellKey, Intake, Job, JobRow, Message, OpenKey, Part};
use crate::metrics::Metrics;
use crate::results::{Answer, Results};

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
}

/// Where rows go.
struct Place {
    account: Account,
    open: Option<OpenKey>,
    join: bool,
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
    /// Where the unfinished rows of each live board run.
    boards: HashMap<RelQueryId, (Arc<Board>, Vec<Spot>)>,
    /// Boards to wake once this round's events are all written.
    touched: HashMap<RelQueryId, Arc<Board>>,
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
            boards: HashMap::new(),
            touched: HashMap::new(),
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
                    Message::Stop => return self.fail_all(&ApiError::ShuttingDown),
                }
            }
            self.wake_readers();
            idle = !self.step();
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
        let Some(plan) = self.scheduler.plan(planning) else { return false };
        self.shared.pulse.busy(planning);
        let planned = clock.now();
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| self.executor.step(&plan)));
        let now = clock.now();
        let events = match result {
            Ok(Ok(outcome)) => self.applied(&outcome, now),
            Ok(Err(error)) => {
                tracing::warn!(step = plan.step.0, %error, "a step failed");
                self.shared.metrics.step_failures.increment(1);
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
        for event in events {
            self.event(event, now);
        }
        self.wake_readers();
        self.shared.metrics.step(&plan, planned.since(planning) + applied.since(now), now.since(planned));
        true
    }

    fn applied(&mut self, outcome: &StepOutcome, now: Time) -> Vec<Event> {
        self.scheduler.apply(outcome, now)
    }

    /// Takes rows in: joins what is in flight already, extends an open relQuery, submits the rest.
    fn submit(&mut self, job: Job) {
        let now = self.shared.clock.now();
        self.shared.pulse.busy(now);
        let Job { board, account, scope, class, parts } = job;
        let tenant = account.tenant;
        if self.shared.pulse.is_dead() {
            self.shared.intake.finished(parts.iter().map(|part| part.rows.len() as u64).sum());
            board.end(Status::Failed(ApiError::Dead), now);
            return;
        }
        self.boards.entry(board.id).or_insert_with(|| (Arc::clone(&board), Vec::new()));
        for part in parts {
            let (open, fresh) = self.join_in_flight(&board, tenant, part);
            if fresh.is_empty() {
                continue;
            }
            let open = open.map(|key| (tenant, key));
            let joined = open.and_then(|key| self.open_flight(key, now));
            let id = joined.unwrap_or_else(|| self.shared.ids.next());
            let empty = Submission { id, tenant, scope, class, arrival: board.arrival, items: Vec::new() };
            let place = Place { account, open: open.map(|(_, key)| key), join: joined.is_some() };
            self.launch(&board, empty, place, fresh);
        }
        self.touched.insert(board.id, board);
    }

    /// Rows whose answer is on its way already get it from there. Returns the others.
    fn join_in_flight(
        &mut self,
        board: &Arc<Board>,
        tenant: TenantId,
        part: Part,
    ) -> (Option<OpenKey>, Vec<JobRow>) {
        let mut fresh = Vec::new();
        for row in part.rows {
            let place = row.key.and_then(|key| self.in_flight.get(&(tenant, key)).copied());
            let flight = place.and_then(|(id, number)| {
                self.flights.get_mut(&id).and_then(|flight| flight.rows.get_mut(&number))
            });
            let (Some(place), Some(flight)) = (place, flight) else {
                fresh.push(row);
                continue;
            };
            for index in row.targets {
                board.token(index, &flight.text, flight.tokens > 0, self.shared.clock.now());
                flight.targets.push(Target { board: Arc::clone(board), index, source: Source::Shared });
                self.shared.metrics.rows_shared.increment(1);
            }
            if let Some((_, places)) = self.boards.get_mut(&board.id) {
                places.push(place);
            }
            self.shared.intake.finished(1);
        }
        (part.open, fresh)
    }

    /// The open relQuery of a tenant and template, where one may be joined.
    fn open_flight(&self, key: (TenantId, OpenKey), now: Time) -> Option<RelQueryId> {
        let id = *self.open.get(&key)?;
        let flight = self.flights.get(&id)?;
        let young = now.since(flight.opened) < self.coalescing.age_max;
        (young && (flight.next_row as usize) < self.coalescing.rows_max).then_some(id)
    }

    /// Hands rows to the scheduler, as a new relQuery or into an open one.
    fn launch(
        &mut self,
        board: &Arc<Board>,
        mut submission: Submission,
        Place { account, open, join }: Place,
        rows: Vec<JobRow>,
    ) {
        let (id, tenant) = (submission.id, submission.tenant);
        let first = self.flights.get(&id).filter(|_| join).map_or(0, |flight| flight.next_row);
        let mut flights = BTreeMap::new();
        for (number, row) in (first..).zip(rows) {
            submission.items.push(base::WorkItem { row: number, ..row.item });
            let targets = row.targets.into_iter().enumerate().map(|(i, index)| Target {
                board: Arc::clone(board),
                index,
                source: if i == 0 { Source::Model } else { Source::Shared },
            });
            let flight =
                RowFlight { targets: targets.collect(), text: String::new(), tokens: 0, key: row.key };
            flights.insert(number, flight);
        }
        let count = submission.items.len();
        let arrival = submission.arrival;
        let result = if join {
            self.shared.metrics.rows_coalesced.increment(count as u64);
            self.scheduler.extend(id, submission.items)
        } else {
            self.scheduler.submit(submission)
        };
        if let Err(refused) = result {
            return self.refuse(flights, &refused);
        }
        if let Some((_, places)) = self.boards.get_mut(&board.id) {
            places.extend(flights.keys().map(|number| (id, *number)));
        }
        for (number, row) in &flights {
            if let Some(key) = row.key {
                self.in_flight.insert((tenant, key), (id, *number));
            }
        }
        let owner = (!join).then(|| Arc::clone(board));
        let flight = self.flights.entry(id).or_insert(Flight {
            account,
            open,
            opened: arrival,
            owner: None,
            rows: BTreeMap::new(),
            next_row: 0,
        });
        flight.owner = owner;
        flight.next_row = first + u32::try_from(count).unwrap_or(u32::MAX);
        flight.rows.extend(flights);
        if let Some(key) = open {
            self.open.insert((tenant, key), id);
        }
    }

    /// The scheduler does not take the rows: they fail, each alone.
    fn refuse(&mut self, rows: BTreeMap<u32, RowFlight>, refused: &Refused) {
        let now = self.shared.clock.now();
        tracing::warn!(%refused, rows = rows.len(), "the scheduler refused rows that the gateway admitted");
        self.shared.intake.finished(rows.len() as u64);
        for target in rows.into_values().flat_map(|row| row.targets) {
            let error = match refused {
                Refused::QueueFull { rows, limit } => ApiError::Overloaded {
                    rows: u64::from(*rows),
                    limit: u64::from(*limit),
                    retry_after: base::Millis(1_000),
                },
                other => ApiError::Row(other.to_string()),
            };
            target.board.settle(target.index, RowState::Failed(error), now);
            self.touched.insert(target.board.id, target.board);
        }
    }

    /// Nobody reads a board any more: rows that nobody else wants are cancelled.
    fn leave(&mut self, board: &Arc<Board>) {
        let Some((_, places)) = self.boards.remove(&board.id) else { return };
        self.shared.metrics.relquery_done(&board.read());
        for (id, number) in places {
            let Some(flight) = self.flights.get_mut(&id) else { continue };
            let Some(row) = flight.rows.get_mut(&number) else { continue };
            row.targets.retain(|target| target.board.id != board.id);
            if !row.targets.is_empty() {
                continue;
            }
            let key = row.key;
            flight.rows.remove(&number);
            if let Some(key) = key {
                self.in_flight.remove(&(flight.account.tenant, key));
            }
            self.shared.intake.finished(1);
            self.shared.metrics.rows_cancelled.increment(1);
            if flight.rows.is_empty() {
                self.scheduler.cancel(id);
                self.close(id);
            } else {
                self.scheduler.cancel_row(id, number);
            }
        }
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

    /// Writes one event to the boards it concerns.
    fn event(&mut self, event: Event, now: Time) {
        match event {
            Event::Started { relquery, row } => {
                let row = self.flights.get(&relquery).and_then(|flight| flight.rows.get(&row));
                for target in row.into_iter().flat_map(|row| &row.targets) {
                    target.board.started(now);
                }
            }
            Event::Token { relquery, row, text, .. } => self.token(relquery, row, &text, now),
            Event::RowDone { relquery, row, end, usage } => self.row_done(relquery, row, end, usage, now),
            Event::RowFailed { relquery, row, error, usage } => {
                let Some((account, flight)) = self.finish_row(relquery, row) else { return };
                self.spend(account, usage_of(usage));
                self.shared.metrics.rows_failed.increment(1);
                for target in flight.targets {
                    let state = RowState::Failed(ApiError::Row(error.to_string()));
                    target.board.settle(target.index, state, now);
                    self.touched.insert(target.board.id, target.board);
                }
            }
            Event::RelQueryDone { relquery, periods, .. } => {
                if let Some(owner) = self.close(relquery).and_then(|flight| flight.owner) {
                    owner.set_periods(periods);
                }
            }
        }
    }

    fn token(&mut self, id: RelQueryId, number: u32, text: &str, now: Time) {
        let row = self.flights.get_mut(&id).and_then(|flight| flight.rows.get_mut(&number));
        let Some(row) = row else { return };
        row.tokens += 1;
        row.text.push_str(text);
        for target in &row.targets {
            target.board.token(target.index, text, row.tokens == 1, now);
            self.touched.entry(target.board.id).or_insert_with(|| Arc::clone(&target.board));
        }
    }

    fn row_done(&mut self, id: RelQueryId, number: u32, end: End, usage: scheduler::Usage, now: Time) {
        let Some((account, row)) = self.finish_row(id, number) else { return };
        let usage = usage_of(usage);
        self.spend(account, usage);
        self.shared.metrics.row_done(end, usage);
        if let Some(key) = row.key {
            let answer =
                Answer { text: row.text.as_str().into(), end, prompt: usage.prompt, output: usage.output };
            self.shared.results.put(account.tenant, key, answer);
        }
        for target in row.targets {
            let usage = match target.source {
                Source::Model => usage,
                Source::Shared | Source::Cache => {
                    Usage { cached: usage.prompt, computed: TokenCount(0), ..usage }
                }
            };
            let state = RowState::Done { end, usage, source: target.source };
            target.board.settle(target.index, state, now);
            self.touched.insert(target.board.id, target.board);
        }
    }

    fn spend(&self, account: Account, usage: Usage) {
        self.shared.accounts.add(account, Spent { requests: 0, rows: 1, usage });
    }

    /// Takes a row that ended out of the books.
    fn finish_row(&mut self, id: RelQueryId, number: u32) -> Option<(Account, RowFlight)> {
        let flight = self.flights.get_mut(&id)?;
        let row = flight.rows.remove(&number)?;
        if let Some(key) = row.key {
            self.in_flight.remove(&(flight.account.tenant, key));
        }
        self.shared.intake.finished(1);
        self.shared.pulse.row();
        Some((flight.account, row))
    }

    /// Wakes the readers of all boards that changed, once.
    fn wake_readers(&mut self) {
        for (id, board) in self.touched.drain() {
            let state = board.read();
            // A board that was ended early still has rows in flight: its `Leave` is on the way and takes them out.
            if state.status == Status::Completed {
                self.boards.remove(&id);
                self.shared.metrics.relquery_done(&state);
            }
            drop(state);
            board.notify();
        }
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

fn usage_of(usage: scheduler::Usage) -> Usage {
    Usage { prompt: usage.prompt, cached: usage.cached, computed: usage.computed, output: usage.output }
}
