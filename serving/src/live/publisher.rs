//! The loop's end of the live view: what it has to tell waits here until it gets the buffer without waiting
//! for it.
//!
//! Of relQueries that are not over it keeps the record; there are as many as the scheduler holds. One that somebody
//! was handed is copied when it changes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use base::{Periods, RelQueryId, Submission, Time};

use super::decision::DecisionRecord;
use super::describe::Step;
use super::pace::{TIMED_STEPS_MAX, TimedStep};
use super::record::{Outcome, RelQueryRecord, RowEnd};
use super::ring::Ring;
use super::{Live, LiveSnapshot, RelQueryName};

/// RelQueries that have not ended whose records are handed over at a time.
const OPEN_MAX: usize = 2_000;

/// Things that wait for a ring.
#[derive(Debug)]
struct Outbox<T> {
    waiting: VecDeque<(T, u64)>,
    /// Those that never came in because as many waited as may.
    skipped: u64,
}

impl<T> Default for Outbox<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), skipped: 0 }
    }
}

impl<T> Outbox<T> {
    fn push(&mut self, item: T, weight: u64, most: usize) {
        if self.waiting.len() >= most.max(1) {
            self.skipped += u64::from(self.waiting.pop_front().is_some());
        }
        self.waiting.push_back((item, weight));
    }

    fn empty_into(&mut self, ring: &mut Ring<T>) {
        ring.skip(std::mem::take(&mut self.skipped));
        self.waiting.drain(..).for_each(|(item, weight)| ring.push(item, weight));
    }
}

/// What the loop has to tell.
#[derive(Debug)]
pub struct LivePublisher {
    live: Arc<Live>,
    steps: Outbox<Arc<Step>>,
    ended: Outbox<Arc<RelQueryRecord>>,
    decisions: Outbox<Arc<DecisionRecord>>,
    timed: Outbox<TimedStep>,
    snapshot: Option<Arc<LiveSnapshot>>,
    /// When somebody last looked at queue and memory.
    snapshot_at: Option<Time>,
    open: HashMap<RelQueryId, Arc<RelQueryRecord>>,
}

/// The rows of a submission in lengths, before the scheduler takes them.
#[derive(Debug)]
pub struct Measured(Arc<RelQueryRecord>);

impl LivePublisher {
    /// With nothing to tell.
    pub fn new(live: Arc<Live>) -> Self {
        let (steps, ended, decisions, timed) = Default::default();
        let (snapshot, snapshot_at, open) = (None, None, HashMap::new());
        Self { live, steps, ended, decisions, timed, snapshot, snapshot_at, open }
    }

    /// Rows are about to be handed over, to a new relQuery or to one that is open; none where nothing is
    /// recorded.
    pub fn measure(&mut self, submission: &Submission, name: RelQueryName) -> Option<Measured> {
        if self.live.settings().record_relqueries_max == 0 {
            return None;
        }
        let known = self.open.get(&submission.id).cloned();
        let mut record = known.unwrap_or_else(|| Arc::new(RelQueryRecord::begun(submission, name.clone())));
        let longer = Arc::make_mut(&mut record);
        longer.name = name;
        longer.add(submission.scope, &submission.items);
        Some(Measured(record))
    }

    /// The scheduler has taken them.
    pub fn arrived(&mut self, measured: Option<Measured>) {
        if let Some(Measured(record)) = measured {
            self.open.insert(record.id, record);
        }
    }

    /// A row has ended.
    pub fn row_ended(&mut self, id: RelQueryId, row: u32, end: RowEnd) {
        if let Some(record) = self.open.get_mut(&id) {
            Arc::make_mut(record).row_ended(row, end);
        }
    }

    /// A relQuery is over; without periods, it was called off.
    pub fn ended(&mut self, id: RelQueryId, periods: Option<Periods>, now: Time) {
        let Some(mut record) = self.open.remove(&id) else { return };
        let over = Arc::make_mut(&mut record);
        over.end = now;
        over.outcome = periods.map_or(Outcome::Cancelled, |periods| Outcome::Completed { periods });
        let rows = record.rows.len() as u64;
        self.ended.push(record, rows, self.live.settings().record_relqueries_max);
    }

    /// Records of relQueries that have not ended, the newest [`OPEN_MAX`] of them.
    pub fn open(&self) -> Vec<Arc<RelQueryRecord>> {
        let mut ids: Vec<RelQueryId> = self.open.keys().copied().collect();
        ids.sort_unstable();
        let newest = ids.into_iter().rev().take(OPEN_MAX).rev();
        newest.filter_map(|id| self.open.get(&id)).map(Arc::clone).collect()
    }

    /// All that is open is lost.
    pub fn forget_open(&mut self) {
        self.open.clear();
    }

    /// A step has ended.
    pub fn stepped(&mut self, step: Step) {
        self.steps.push(Arc::new(step), 1, self.live.settings().steps_max);
    }

    /// How long a step took.
    pub fn timed(&mut self, step: TimedStep) {
        self.timed.push(step, 1, TIMED_STEPS_MAX);
    }

    /// A relQuery began.
    pub fn decided(&mut self, decision: DecisionRecord) {
        let most = self.live.settings().record_relqueries_max;
        if most > 0 {
            self.decisions.push(Arc::new(decision), 1, most);
        }
    }

    /// Whether queue and memory should be looked at: somebody looks, and has not seen them for a while, or
    /// there is nothing in them, so that this may be the last look for long.
    pub fn wants_snapshot(&self, now: Time, is_empty: bool) -> bool {
        let every = self.live.settings().snapshot_ms.into();
        self.live.is_watched() && (is_empty || self.snapshot_at.is_none_or(|last| now.since(last) >= every))
    }

    /// Queue and memory were looked at.
    pub fn snapshot_taken(&mut self, snapshot: LiveSnapshot) {
        self.snapshot_at = Some(snapshot.at);
        self.snapshot = Some(Arc::new(snapshot));
    }

    /// Whether there is something to tell that no reader can see yet.
    pub fn has_more(&self) -> bool {
        let has_events = !self.steps.waiting.is_empty() || !self.ended.waiting.is_empty();
        has_events || !self.decisions.waiting.is_empty() || self.snapshot.is_some()
    }

    /// Puts all that there is into the buffer, unless a reader is at it.
    pub fn hand_over(&mut self) {
        if !self.has_more() && self.timed.waiting.is_empty() {
            return;
        }
        let Some(mut buffer) = self.live.try_buffer() else { return };
        self.steps.empty_into(&mut buffer.steps);
        self.ended.empty_into(&mut buffer.ended);
        self.decisions.empty_into(&mut buffer.decisions);
        self.timed.empty_into(&mut buffer.timed);
        if let Some(snapshot) = self.snapshot.take() {
            buffer.snapshot = Some(snapshot);
            buffer.snapshots += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use base::Nanos;
    use scheduler::snapshot::{RelQueryStatus, RowCounts};

    use super::*;
    use crate::config::LiveConfig;
    use crate::live::Viewer;
    use crate::live::decision::Contender;
    use crate::live::record::RowOutcome;
    use crate::live::record::tests::{NAME, item, submission};

    fn publisher(settings: LiveConfig) -> (Arc<Live>, LivePublisher) {
        let live = Arc::new(Live::new(settings));
        (Arc::clone(&live), LivePublisher::new(live))
    }

    fn tell(publisher: &mut LivePublisher, id: u64, periods: Option<Periods>) {
        let mut submission = submission(id, 1, id);
        submission.items = vec![item(0, 2, &[1, 2, 3])];
        let measured = publisher.measure(&submission, NAME);
        publisher.arrived(measured);
        publisher.row_ended(RelQueryId(id), 0, RowEnd { output: 4, samplings: 2, outcome: RowOutcome::Done });
        publisher.ended(RelQueryId(id), periods, Time(id + 10));
        publisher.hand_over();
    }

    #[test]
    fn the_loop_does_not_wait_for_a_reader_and_tells_later_what_it_could_not() {
        let (live, mut publisher) = publisher(LiveConfig::default());
        let mut cursor = live.cursor(Time(0));
        let buffer = live.buffer();
        tell(&mut publisher, 1, None);
        drop(buffer);
        assert!(live.read(&mut cursor).is_empty() && publisher.has_more(), "the buffer was taken");
        let periods = Periods { waiting: Nanos(1), core: Nanos(2), tail: Nanos(3) };
        tell(&mut publisher, 2, Some(periods));
        assert!(!publisher.has_more());
        let ended = live.read(&mut cursor).ended;
        let outcomes: Vec<Outcome> = ended.iter().map(|record| record.outcome).collect();
        assert_eq!(outcomes, [Outcome::Cancelled, Outcome::Completed { periods }]);
        assert_eq!(ended[0].rows[0].output, 4);
    }

    #[test]
    fn what_waits_for_the_buffer_is_bounded_and_counted() {
        let (live, mut publisher) =
            publisher(LiveConfig { record_relqueries_max: 2, ..LiveConfig::default() });
        let mut cursor = live.cursor(Time(0));
        let buffer = live.buffer();
        (1..=4).for_each(|id| tell(&mut publisher, id, None));
        drop(buffer);
        tell(&mut publisher, 5, None);
        let ids: Vec<u64> = live.read(&mut cursor).ended.iter().map(|record| record.id.0).collect();
        assert_eq!(ids, [4, 5]);
        assert_eq!(live.buffer().ended.end(), 5, "those that were lost are counted");
    }

    #[test]
    fn rows_that_were_refused_leave_no_trace_and_nothing_is_recorded_where_it_is_off() {
        let (_, mut first) = publisher(LiveConfig::default());
        let submission = submission(1, 1, 1);
        assert!(first.measure(&submission, NAME).is_some());
        first.ended(RelQueryId(1), None, Time(9));
        assert!(first.ended.waiting.is_empty());
        let (_, mut second) = publisher(LiveConfig { record_relqueries_max: 0, ..LiveConfig::default() });
        assert!(second.measure(&submission, NAME).is_none());
    }

    #[test]
    fn what_has_not_ended_is_handed_over_without_a_copy_and_stays_there_as_it_was() {
        let (_live, mut publisher) = publisher(LiveConfig::default());
        let mut submission = submission(1, 1, 1);
        submission.items = vec![item(0, 2, &[1, 2, 3])];
        let measured = publisher.measure(&submission, NAME);
        publisher.arrived(measured);
        let (one, other) = (publisher.open(), publisher.open());
        assert!(Arc::ptr_eq(&one[0], &other[0]));
        publisher.row_ended(RelQueryId(1), 0, RowEnd { output: 4, samplings: 2, outcome: RowOutcome::Done });
        assert_eq!((one[0].rows[0].output, publisher.open()[0].rows[0].output), (0, 4));
    }

    #[test]
    fn nobody_who_looks_means_no_look() {
        let (live, mut publisher) = publisher(LiveConfig::default());
        assert!(!publisher.wants_snapshot(Time(0), true));
        let subscription = live.join(Viewer::Operator).expect("there is room");
        assert!(publisher.wants_snapshot(Time(0), false));
        let (stats, scheduler, names) = Default::default();
        publisher.snapshot_taken(LiveSnapshot {
            at: Time(0),
            policy: ::scheduler::Policy::Fcfs,
            stats,
            scheduler,
            names,
        });
        assert!(!publisher.wants_snapshot(Time(1_000_000), false), "not twice in 250 ms");
        assert!(publisher.wants_snapshot(Time(1_000_000), true));
        assert!(publisher.wants_snapshot(Time(250_000_000), false));
        drop(subscription);
        assert!(!live.is_watched());
    }

    #[test]
    fn one_replays_at_a_time() {
        let (live, _) = publisher(LiveConfig::default());
        let permit = live.begin_replay();
        assert!(permit.is_some() && live.begin_replay().is_none());
        drop(permit);
        assert!(live.begin_replay().is_some());
    }

    #[test]
    fn steps_are_timed_and_decisions_kept_while_nobody_looks_and_a_late_reader_gets_what_is_young() {
        let (live, mut publisher) = publisher(LiveConfig::default());
        let status = |id, waiting| RelQueryStatus {
            id: RelQueryId(id),
            tenant: base::TenantId(1),
            class: base::ServiceClass::Interactive,
            arrival: Time(0),
            started: None,
            prefilled: None,
            rows: RowCounts { submitted: waiting, waiting, prefilling: 0, running: 0 },
            priority: 0,
            breakdown: None,
            is_new: true,
        };
        let contender = |id, waiting| Contender { status: status(id, waiting), name: NAME };
        for (id, at) in [(1, 10), (2, 90)] {
            let (first, rival) = (contender(id, 5), Some(contender(9, 5_000)));
            publisher.decided(DecisionRecord {
                at: Time(at),
                policy: ::scheduler::Policy::Fcfs,
                first,
                rival,
            });
            let (tokens, sequences) = (base::TokenCount(8), 0);
            publisher.timed(TimedStep { at: Time(at), tokens, sequences, elapsed: Nanos(50) });
        }
        tell(&mut publisher, 3, None);
        let cost = ::scheduler::CostModel::default();
        assert_eq!((live.pace(Time(0), &cost).steps, live.pace(Time(50), &cost).steps), (2, 1));
        let fresh = live.read(&mut live.cursor(Time(50)));
        let begun: Vec<u64> = fresh.decisions.iter().map(|one| one.first.status.id.0).collect();
        assert_eq!((begun, fresh.ended.len()), (vec![2], 0), "what is older is left out");
        let all = live.read(&mut live.cursor(Time(0)));
        assert_eq!((all.decisions.len(), all.ended.len()), (2, 1));
        assert_eq!(all.decisions[0].rival.as_ref().map(|one| one.status.rows.waiting), Some(5_000));
    }
}
