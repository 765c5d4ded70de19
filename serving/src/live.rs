//! What the live view shows, and how it leaves the loop thread (`docs/LIVE.md`).
//!
//! The loop puts what it did into bounded rings; readers take copies out at their own pace, and one that is
//! behind loses old steps and is told how many. The loop never waits for a reader: where one has the lock,
//! the loop keeps what it has for its next turn. The last steps are kept whether anybody looks or not: who opens the view
//! after a column has filled sees why; and for the last minutes what became of relQueries (`record`). Must not know HTTP.

pub mod auto;
pub mod decision;
pub mod describe;
pub mod pace;
pub mod publisher;
pub mod record;
pub mod ring;
pub mod subscriptions;
pub mod trace;
pub mod what_if;
pub mod why;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use base::{RelQueryId, TenantId, Time};
use decision::DecisionRecord;
use describe::Step;
use pace::{Pace, TIMED_STEPS_MAX, TimedStep};
use record::RelQueryRecord;
use ring::Ring;
use scheduler::{CostModel, Policy, SchedulerSnapshot, Stats};
use subscriptions::{Full, Subscription, Subscriptions};

use crate::config::LiveConfig;
use crate::label::Label;

/// Steps that one frame carries at most.
pub const FRAME_STEPS_MAX: usize = 256;
/// RelQueries that ended, in one frame.
pub const FRAME_ENDED_MAX: usize = 128;

/// How a relQuery of the scheduler is called outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelQueryName {
    /// The route that it came by.
    pub route: &'static str,
    /// The request that it was made for, while nobody else's rows joined.
    pub request: Option<RelQueryId>,
    /// What it is for, where its client said so.
    pub label: Option<Arc<Label>>,
}

/// What was held at a time.
#[derive(Clone, Debug)]
pub struct LiveSnapshot {
    pub at: Time,
    /// The policy in force.
    pub policy: Policy,
    /// Counts.
    pub stats: Stats,
    /// Queue and memory.
    pub scheduler: SchedulerSnapshot,
    /// What the snapshot's relQueries are called, in its order.
    pub names: Vec<RelQueryName>,
}

/// What readers take copies of.
#[derive(Debug)]
pub struct LiveBuffer {
    steps: Ring<Arc<Step>>,
    ended: Ring<Arc<RelQueryRecord>>,
    decisions: Ring<Arc<DecisionRecord>>,
    timed: Ring<TimedStep>,
    snapshot: Option<Arc<LiveSnapshot>>,
    snapshots: u64,
}

/// How far a reader is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    steps: u64,
    ended: u64,
    decisions: u64,
    snapshots: u64,
}

/// What a reader has not seen yet, or the first of it.
#[derive(Debug, Default)]
pub struct Fresh {
    pub steps: Vec<Arc<Step>>,
    /// Steps that were gone before this reader came to them.
    pub lost_steps: u64,
    /// RelQueries that ended.
    pub ended: Vec<Arc<RelQueryRecord>>,
    /// RelQueries that began.
    pub decisions: Vec<Arc<DecisionRecord>>,
    /// What is held, if somebody looked at it since.
    pub snapshot: Option<Arc<LiveSnapshot>>,
}

impl Fresh {
    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        let nothing_ran = self.steps.is_empty() && self.lost_steps == 0;
        nothing_ran && self.ended.is_empty() && self.decisions.is_empty() && self.snapshot.is_none()
    }
}

/// What the loop shares with those who look.
#[derive(Debug)]
pub struct Live {
    settings: LiveConfig,
    subscriptions: Arc<Subscriptions>,
    is_replaying: AtomicBool,
    buffer: Mutex<LiveBuffer>,
}

impl Live {
    /// Empty.
    pub fn new(settings: LiveConfig) -> Self {
        let buffer = LiveBuffer {
            steps: Ring::new(settings.steps_max, u64::MAX),
            ended: Ring::new(settings.record_relqueries_max, settings.record_rows_max),
            decisions: Ring::new(settings.record_relqueries_max, u64::MAX),
            timed: Ring::new(TIMED_STEPS_MAX, u64::MAX),
            snapshot: None,
            snapshots: 0,
        };
        Self {
            subscriptions: Arc::new(Subscriptions::new(&settings)),
            settings,
            is_replaying: AtomicBool::new(false),
            buffer: Mutex::new(buffer),
        }
    }

    /// The settings.
    pub fn settings(&self) -> &LiveConfig {
        &self.settings
    }

    /// Whether anybody looks.
    pub fn is_watched(&self) -> bool {
        self.readers() > 0
    }

    /// How many look.
    pub fn readers(&self) -> usize {
        self.subscriptions.taken()
    }

    /// One more who looks, or the bound that is reached.
    pub fn join(&self, viewer: Viewer) -> Result<Subscription, Full> {
        self.subscriptions.take(viewer)
    }

    /// The right to replay; none where somebody has it.
    pub fn begin_replay(self: &Arc<Self>) -> Option<ReplayPermit> {
        let was = self.is_replaying.swap(true, Ordering::AcqRel);
        (!was).then(|| ReplayPermit(Arc::clone(self)))
    }

    fn buffer(&self) -> MutexGuard<'_, LiveBuffer> {
        self.buffer.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The buffer, unless a reader has it.
    fn try_buffer(&self) -> Option<MutexGuard<'_, LiveBuffer>> {
        match self.buffer.try_lock() {
            Ok(buffer) => Some(buffer),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// Where a new reader begins: with what ran, began and ended since `since`, of the steps as many as one frame carries.
    pub fn cursor(&self, since: Time) -> Cursor {
        let buffer = self.buffer();
        let young = buffer.steps.first_where(|step| step.timing.start >= since);
        Cursor {
            steps: buffer.steps.end().saturating_sub(FRAME_STEPS_MAX as u64).max(young),
            ended: buffer.ended.first_where(|record| record.end >= since),
            decisions: buffer.decisions.first_where(|decision| decision.at >= since),
            snapshots: 0,
        }
    }

    /// What a reader has not seen, as much as one frame carries.
    pub fn read(&self, cursor: &mut Cursor) -> Fresh {
        let buffer = self.buffer();
        let (steps, lost_steps) = buffer.steps.after(&mut cursor.steps, FRAME_STEPS_MAX);
        let (ended, _) = buffer.ended.after(&mut cursor.ended, FRAME_ENDED_MAX);
        let (decisions, _) = buffer.decisions.after(&mut cursor.decisions, FRAME_ENDED_MAX);
        let is_new = cursor.snapshots != buffer.snapshots;
        cursor.snapshots = buffer.snapshots;
        let snapshot = buffer.snapshot.clone().filter(|_| is_new);
        Fresh { steps, lost_steps, ended, decisions, snapshot }
    }

    /// What is remembered of relQueries that arrived after `since`.
    pub fn records(&self, since: Time) -> Vec<Arc<RelQueryRecord>> {
        let buffer = self.buffer();
        buffer.ended.iter().filter(|record| record.arrival >= since).cloned().collect()
    }

    /// The steps since `since`, as far as they are kept, beside what a cost model says of them.
    pub fn pace(&self, since: Time, cost: &CostModel) -> Pace {
        Pace::of(self.buffer().timed.iter().filter(|step| step.at >= since), cost)
    }
}

/// The right to replay, given back when dropped.
#[derive(Debug)]
pub struct ReplayPermit(Arc<Live>);

impl Drop for ReplayPermit {
    fn drop(&mut self) {
        self.0.is_replaying.store(false, Ordering::Release);
    }
}

/// Who looks, and so what can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Viewer {
    /// Its own relQueries; of others how much there is of them together.
    Tenant(TenantId),
    Operator,
}

impl Viewer {
    /// Whether it may see what is this tenant's.
    pub fn sees(self, tenant: TenantId) -> bool {
        match self {
            Self::Tenant(own) => own == tenant,
            Self::Operator => true,
        }
    }
}
