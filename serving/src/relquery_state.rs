//! The state of one relQuery: what is known of every row, written by the loop thread and read by
//! whoever waits: a JSON reply, an event stream, a `GET`, a ticket writer.
//!
//! Readers come at their own pace and read state, not messages, so a slow one costs nothing and a state
//! is never larger than the relQuery itself. A version counter wakes readers. What they may show of it, [`State`]'s
//! `shown_` methods say. Must not know HTTP.

pub(crate) mod charges;
mod left;
mod scores;
mod shown;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use base::{End, Nanos, Periods, PromptToken, RelQueryId, TenantId, Time, TokenCount, TokenId, TokenLogprob};
/// Tokens of a row or of many, as the scheduler counts them; of a whole cached answer all prompt tokens are
/// cached.
pub use scheduler::Usage;
use tokio::sync::{OwnedSemaphorePermit, watch};

pub use self::charges::{RowCharge, TakenRows};
use self::left::LeftCalls;
pub use self::scores::{SCORES_MAX, ScoresBudget};
use crate::budgets::BudgetReservation;
use crate::error::RequestError;
use crate::traces::open::RelQueryTrace;

/// Where a row's answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerSource {
    /// It ran.
    Model,
    /// The same prompt ran for another row.
    Shared,
    /// The tenant's result cache.
    Cache,
}

/// How far a row is.
#[derive(Clone, Debug, PartialEq)]
pub enum RowProgress {
    /// Not finished.
    Pending,
    /// Finished.
    Done {
        /// Why it ended.
        end: End,
        /// Its tokens.
        usage: Usage,
        /// Where the answer came from.
        source: AnswerSource,
    },
    /// Failed, alone.
    Failed(RequestError),
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerRow {
    /// Its output so far.
    pub text: String,
    /// Pieces of output so far: tokens, while the row runs.
    pub pieces: u64,
    /// Those tokens, where the relQuery is of [`RelQueryKind::Calls`] or some row of it tells them.
    pub tokens: Vec<TokenId>,
    /// Log probabilities of its tokens, where they were asked for.
    pub logprobs: Vec<TokenLogprob>,
    /// The tokens of its prompt, piece by piece, where it was asked how likely they were.
    pub prompt: Vec<Arc<[PromptToken]>>,
    /// How likely its output was among all that its constraint allowed, where that is known.
    pub probability: Option<f64>,
    /// When its prefill began; of rows that ran themselves, that joined one before it began, or that one went on for.
    pub start: Option<RowStart>,
    /// When it finished or failed.
    pub ended: Option<Time>,
    /// How far it is.
    pub state: RowProgress,
}

/// The start of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowStart {
    /// When.
    pub at: Time,
    /// Rows of its relQuery that had started before.
    pub before: u32,
}

/// What the server held when a relQuery came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueDepth {
    /// Rows that waited, of all tenants.
    pub waiting: u32,
    /// Rows that ran.
    pub running: u32,
}

/// When a relQuery came, on two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Unix milliseconds, for people.
    pub unix_ms: u64,
    /// On the loop's clock.
    pub time: Time,
}

/// How far the relQuery is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Rows are unfinished.
    Running,
    /// Every row finished or failed.
    Completed,
    /// Its owner cancelled it or went away; unfinished rows stay unfinished.
    Cancelled,
    /// The server gave it up.
    Failed(RequestError),
}

/// What is known of a relQuery.
#[derive(Clone, Debug)]
pub struct State {
    /// The rows in input order.
    pub rows: Vec<AnswerRow>,
    /// Rows in the order in which they finished or failed.
    pub finished: Vec<u32>,
    /// Of a ticket: how many of those are in the store, or were shown before there was a ticket. Of a batch, whose lines
    /// nobody is shown before: none.
    recorded: Option<usize>,
    /// What the others used that ran.
    charges: BTreeMap<u32, RowCharge>,
    left: LeftCalls,
    /// How many of all rows so far failed.
    pub failed: usize,
    /// How far it is.
    pub status: Status,
    /// Whether its unfinished rows run again elsewhere, which counts them.
    runs_again: bool,
    /// Tokens of all finished rows.
    pub usage: Usage,
    /// Rows answered from the result cache.
    pub from_cache: usize,
    /// Rows that ran once for several.
    pub deduplicated: usize,
    /// When it ended.
    pub ended: Option<Time>,
    /// The latency's periods, once it ended.
    pub periods: Option<Periods>,
    /// From its arrival to the first token of any row.
    pub first_token: Option<Nanos>,
    /// Rows that have started.
    started: u32,
    /// Whether further rows may come, so that the last answer so far is not its end.
    takes_rows: bool,
    /// Numbers of rows whose answers were taken, for further rows.
    free: Vec<u32>,
    /// What of its tenant's budget is set aside for rows that have not ended.
    reservation: Option<Arc<BudgetReservation>>,
    /// What it takes of what may be known together of prompts and named tokens.
    scores: Option<Arc<OwnedSemaphorePermit>>,
    first_start: Option<Time>,
    last_prefill: Option<Time>,
}

impl State {
    /// Tokens spent so far: of the finished rows, and what the others have put out.
    pub fn spent(&self) -> Usage {
        let mut spent = self.usage;
        let unfinished = self.rows.iter().filter(|row| row.state == RowProgress::Pending);
        spent.output += TokenCount(unfinished.map(|row| row.pieces).sum());
        spent
    }

    /// Whether nothing will change any more.
    pub fn is_over(&self) -> bool {
        self.status != Status::Running
    }

    /// Rows whose answers are not there or not taken.
    pub fn held(&self) -> usize {
        self.rows.len() - self.free.len()
    }

    pub(crate) fn settle(&mut self, index: u32, state: RowProgress, now: Time, arrival: Time) {
        if self.is_over() {
            return;
        }
        let row = &mut self.rows[index as usize];
        if row.state != RowProgress::Pending {
            return;
        }
        match &state {
            RowProgress::Pending => return,
            RowProgress::Done { usage, source, .. } => {
                self.usage += *usage;
                match source {
                    AnswerSource::Model => {}
                    AnswerSource::Shared => self.deduplicated += 1,
                    AnswerSource::Cache => self.from_cache += 1,
                }
            }
            RowProgress::Failed(_) => self.failed += 1,
        }
        row.state = state;
        row.ended = Some(now);
        if let Some(reservation) = &self.reservation {
            reservation.release(index);
        }
        self.finished.push(index);
        if self.finished.len() == self.held() && !self.takes_rows {
            self.end(Status::Completed, now, arrival);
        }
    }

    /// Ends it and measures the three periods (RelServe, Eq. 2) as the gateway saw them.
    fn end(&mut self, status: Status, now: Time, arrival: Time) {
        if self.is_over() {
            return;
        }
        self.status = status;
        self.ended = Some(now);
        if let Some(reservation) = self.reservation.take() {
            reservation.release_all();
        }
        self.periods = Some(Periods::between(arrival, self.first_start, self.last_prefill, now));
    }
}

/// How the rows of a relQuery are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelQueryKind {
    /// Rows of a table.
    RelQuery,
    /// Cell calls; each says how its text becomes a value.
    Cells(Arc<[ir::catalogue::Answer]>),
    /// Calls of span queries: their outputs are inputs of other calls, token by token.
    Calls,
    /// A column whose rows come in windows. Answers are taken, and make room for further rows.
    Column,
}

impl AnswerRow {
    /// Not answered yet.
    const fn pending() -> Self {
        Self {
            text: String::new(),
            pieces: 0,
            tokens: Vec::new(),
            logprobs: Vec::new(),
            prompt: Vec::new(),
            probability: None,
            start: None,
            ended: None,
            state: RowProgress::Pending,
        }
    }
}

/// One relQuery as its clients see it.
#[derive(Debug)]
pub struct RelQueryState {
    /// Its public identity.
    pub id: RelQueryId,
    /// Whose it is.
    pub tenant: TenantId,
    /// How its rows are shown.
    pub kind: RelQueryKind,
    /// When it came, unix milliseconds.
    pub created_ms: u64,
    /// When it came, on the loop's clock.
    pub arrival: Time,
    /// Its place in a trace.
    pub trace: RelQueryTrace,
    queue: OnceLock<QueueDepth>,
    /// Whether the tokens of its outputs are kept.
    keeps_tokens: AtomicBool,
    state: Mutex<State>,
    version: watch::Sender<u64>,
}

impl RelQueryState {
    /// A relQuery of pending rows.
    pub fn new(
        id: RelQueryId,
        tenant: TenantId,
        kind: RelQueryKind,
        rows: usize,
        arrival: Arrival,
    ) -> Arc<Self> {
        let state = State {
            rows: vec![AnswerRow::pending(); rows],
            finished: Vec::new(),
            recorded: None,
            charges: BTreeMap::new(),
            left: LeftCalls::default(),
            failed: 0,
            status: Status::Running,
            runs_again: false,
            usage: Usage::default(),
            from_cache: 0,
            deduplicated: 0,
            ended: None,
            periods: None,
            first_token: None,
            started: 0,
            takes_rows: kind == RelQueryKind::Column,
            free: Vec::new(),
            reservation: None,
            scores: None,
            first_start: None,
            last_prefill: None,
        };
        let (version, _) = watch::channel(0);
        let Arrival { unix_ms: created_ms, time: arrival } = arrival;
        let (queue, state) = (OnceLock::new(), Mutex::new(state));
        let keeps_tokens = AtomicBool::new(kind == RelQueryKind::Calls);
        let trace = RelQueryTrace::default();
        Arc::new(Self { id, tenant, kind, created_ms, arrival, trace, queue, keeps_tokens, state, version })
    }

    /// Reads the state. Short: the loop thread waits meanwhile.
    pub fn read(&self) -> MutexGuard<'_, State> {
        // A reader that panicked cannot have left the state half written: readers do not write.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Follows changes; a receiver sees the latest version, never a backlog.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Follows changes from the first on: what happened before this call is news too.
    pub fn follow_all(&self) -> watch::Receiver<u64> {
        let mut version = self.follow();
        version.mark_changed();
        version
    }

    /// Keeps what is set aside for its rows; nothing is, of one that is over.
    pub(crate) fn keep_reservation(&self, reservation: Arc<BudgetReservation>) {
        let mut state = self.read();
        if state.is_over() {
            return reservation.release_all();
        }
        match &state.reservation {
            Some(kept) => kept.take_over(&reservation),
            None => state.reservation = Some(reservation),
        }
    }

    /// Wakes the readers.
    pub fn notify(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    /// Notes what the server held when it came; what is noted later is of rows that came later.
    pub fn came_behind(&self, queue: QueueDepth) {
        self.queue.get_or_init(|| queue);
    }

    /// What the server held when it came, as the loop had last published it.
    pub fn queue(&self) -> Option<QueueDepth> {
        self.queue.get().copied()
    }

    /// A row's prefill began, as is known at the end of its step; after a preemption, again.
    pub fn started(&self, index: u32, begun: Time, now: Time) {
        let mut state = self.read();
        state.first_start.get_or_insert(now);
        if state.rows[index as usize].start.is_none() {
            state.rows[index as usize].start = Some(RowStart { at: begun, before: state.started });
            state.started += 1;
        }
    }

    /// Output of a row; the first ends its prefill.
    pub fn token(&self, index: u32, text: &str, is_first: bool, now: Time) {
        let mut state = self.read();
        if is_first {
            state.first_start.get_or_insert(now);
            state.last_prefill = Some(now);
            state.first_token.get_or_insert(now.since(self.arrival));
        }
        if !state.is_over() {
            let row = &mut state.rows[index as usize];
            row.text.push_str(text);
            row.pieces += 1;
        }
    }

    /// Has the tokens of its outputs kept from now on.
    pub fn keep_tokens(&self) {
        self.keeps_tokens.store(true, Ordering::Relaxed);
    }

    /// A token of a row's output, where the relQuery keeps them.
    pub fn keep_token(&self, index: u32, token: TokenId) {
        if self.keeps_tokens.load(Ordering::Relaxed) {
            self.read().rows[index as usize].tokens.push(token);
        }
    }

    /// Further log probabilities of a row's output.
    pub fn keep_logprobs(&self, index: u32, logprobs: &[TokenLogprob]) {
        self.read().rows[index as usize].logprobs.extend_from_slice(logprobs);
    }

    /// How likely the output of a row was that is about to be settled.
    pub fn keep_probability(&self, index: u32, probability: Option<f64>) {
        let mut state = self.read();
        let row = &mut state.rows[index as usize];
        if row.state == RowProgress::Pending {
            row.probability = probability;
        }
    }

    /// A row finished or failed.
    pub fn settle(&self, index: u32, row: RowProgress, now: Time) {
        self.read().settle(index, row, now, self.arrival);
    }

    /// A row is answered with text known already.
    pub fn answer(&self, index: u32, text: &str, row: RowProgress, now: Time) {
        let mut state = self.read();
        if state.rows[index as usize].state == RowProgress::Pending {
            state.rows[index as usize].text = text.to_owned();
            state.settle(index, row, now, self.arrival);
        }
    }

    /// Makes place for further rows of a column; their numbers. `None`: it is over.
    pub fn extend(&self, rows: usize) -> Option<Vec<u32>> {
        let mut state = self.read();
        if state.is_over() {
            return None;
        }
        let kept = state.free.len().saturating_sub(rows);
        let mut numbers = state.free.split_off(kept);
        while numbers.len() < rows {
            numbers.push(state.rows.len() as u32);
            state.rows.push(AnswerRow::pending());
        }
        Some(numbers)
    }

    /// No further rows of a column come: it is completed, where every row has its answer. True: it was
    /// running, and is completed.
    pub fn close(&self, now: Time) -> bool {
        let mut state = self.read();
        state.takes_rows = false;
        if state.is_over() || state.held() > state.finished.len() {
            return false;
        }
        state.end(Status::Completed, now, self.arrival);
        drop(state);
        self.notify();
        true
    }

    /// Ends it early, whatever is unfinished. True the first time.
    pub fn end(&self, status: Status, now: Time) -> bool {
        let mut state = self.read();
        let was_running = !state.is_over();
        state.end(status, now, self.arrival);
        drop(state);
        self.notify();
        was_running
    }

    /// The scheduler's own measurement replaces the gateway's, where a relQuery ran alone.
    pub fn set_periods(&self, periods: Periods) {
        let mut state = self.read();
        if state.status == Status::Completed {
            state.periods = Some(periods);
        }
    }

    /// Age at `now`, or the whole latency once it ended.
    pub fn age(&self, state: &State, now: Time) -> Nanos {
        state.ended.unwrap_or(now).since(self.arrival)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relquery(rows: usize) -> Arc<RelQueryState> {
        RelQueryState::new(
            RelQueryId(1),
            TenantId(1),
            RelQueryKind::RelQuery,
            rows,
            Arrival { unix_ms: 0, time: Time(10) },
        )
    }

    fn done(output: u64) -> RowProgress {
        let usage = Usage { output: TokenCount(output), ..Usage::default() };
        RowProgress::Done { end: End::Stop, usage, source: AnswerSource::Model }
    }

    #[test]
    fn the_three_periods_add_up_to_the_latency() {
        let relquery = relquery(2);
        relquery.started(0, Time(25), Time(30));
        relquery.started(0, Time(35), Time(35));
        relquery.started(1, Time(36), Time(36));
        relquery.token(0, "a", true, Time(40));
        relquery.token(1, "b", true, Time(60));
        relquery.settle(0, done(1), Time(60));
        assert!(!relquery.read().is_over());
        relquery.settle(1, done(2), Time(100));
        let state = relquery.read();
        let periods = state.periods.expect("it ended");
        assert_eq!((periods.waiting, periods.core, periods.tail), (Nanos(20), Nanos(30), Nanos(40)));
        assert_eq!(periods.total(), relquery.age(&state, Time(999)));
        assert_eq!((state.usage.output, &state.finished[..]), (TokenCount(3), &[0, 1][..]));
        let start = |row: usize| state.rows[row].start.expect("it started");
        assert_eq!(start(0), RowStart { at: Time(25), before: 0 }, "a second start is no start");
        assert_eq!(start(1), RowStart { at: Time(36), before: 1 });
        assert_eq!(state.rows[1].ended, Some(Time(100)));
    }

    #[test]
    fn who_follows_all_is_told_of_what_happened_before() {
        let relquery = relquery(1);
        relquery.settle(0, done(1), Time(20));
        relquery.notify();
        assert!(!relquery.follow().has_changed().unwrap());
        let mut version = relquery.follow_all();
        assert!(version.has_changed().unwrap());
        version.mark_unchanged();
        assert!(!version.has_changed().unwrap());
    }

    #[test]
    fn a_column_holds_the_rows_that_are_under_way_and_ends_when_it_is_closed() {
        let arrival = Arrival { unix_ms: 0, time: Time(10) };
        let column = RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::Column, 0, arrival);
        for window in 0..100 {
            let numbers = column.extend(10).expect("it is open");
            assert_eq!(column.read().held(), 10, "window {window}");
            for number in &numbers {
                column.answer(*number, "yes", done(1), Time(20));
            }
            let TakenRows { rows, charges, status } = column.take_finished();
            assert_eq!(rows.iter().map(|(number, _)| *number).collect::<Vec<_>>(), numbers);
            assert!(charges.is_empty() && rows.iter().all(|(_, row)| row.text == "yes"));
            assert_eq!(status, Status::Running);
        }
        assert_eq!(column.read().rows.len(), 10);
        assert_eq!(column.read().usage.output, TokenCount(1_000));
        let last = column.extend(1).expect("it is open");
        assert!(!column.close(Time(30)), "a row has no answer");
        column.settle(last[0], done(1), Time(40));
        assert!(column.read().is_over(), "it was its last");
        assert!(column.extend(1).is_none());
    }

    #[test]
    fn nothing_changes_after_the_end() {
        let relquery = relquery(2);
        assert!(relquery.end(Status::Cancelled, Time(20)));
        assert!(!relquery.end(Status::Completed, Time(30)));
        relquery.token(0, "late", false, Time(30));
        relquery.settle(0, done(1), Time(30));
        let state = relquery.read();
        assert_eq!((state.finished.len(), state.rows[0].text.as_str()), (0, ""));
        assert_eq!(state.status, Status::Cancelled);
    }
}
