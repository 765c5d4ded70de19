//! What the live view shows, and how it leaves the loop thread (`docs/LIVE.md`).
//!
//! The loop puts what it did into bounded rings; readers take copies out at their own pace, and one that is behind
//! loses old steps and is told how many. The loop never waits for a reader: where one has the lock, the loop keeps
//! what it has for its next turn. While nobody looks nothing is told of steps; only what became of relQueries is kept,
//! for the last minutes (`record`). Must not know HTTP.

pub mod describe;
pub mod record;
pub mod ring;
pub mod seats;
pub mod tell;
pub mod trace;
pub mod what_if;
pub mod why;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use base::{RelQueryId, TenantId, Time};
use describe::Step;
use record::Record;
use ring::Ring;
use scheduler::{SchedulerSnapshot, Stats};
use seats::{Full, Seat, Seats};

use crate::config::LiveConfig;

/// Steps that one frame carries at most.
pub const FRAME_STEPS_MAX: usize = 256;
/// RelQueries that ended, in one frame.
pub const FRAME_ENDED_MAX: usize = 128;

/// How a relQuery of the scheduler is called outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// The route that it came by.
    pub route: &'static str,
    /// The request that it was made for, while nobody else's rows joined.
    pub request: Option<RelQueryId>,
}

/// What was held at a time.
#[derive(Clone, Debug)]
pub struct Scene {
    /// When.
    pub at: Time,
    /// Counts.
    pub stats: Stats,
    /// Queue and memory.
    pub survey: SchedulerSnapshot,
    /// What the survey's relQueries are called, in its order.
    pub names: Vec<Name>,
}

/// What readers take copies of.
#[derive(Debug)]
pub struct Shelf {
    steps: Ring<Arc<Step>>,
    ended: Ring<Arc<Record>>,
    scene: Option<Arc<Scene>>,
    scenes: u64,
}

/// How far a reader is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    steps: u64,
    ended: u64,
    scenes: u64,
}

/// What a reader has not seen yet, or the first of it.
#[derive(Debug, Default)]
pub struct Fresh {
    /// Steps.
    pub steps: Vec<Arc<Step>>,
    /// Steps that were gone before this reader came to them.
    pub lost_steps: u64,
    /// RelQueries that ended.
    pub ended: Vec<Arc<Record>>,
    /// What is held, if somebody looked at it since.
    pub scene: Option<Arc<Scene>>,
}

impl Fresh {
    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.lost_steps == 0 && self.ended.is_empty() && self.scene.is_none()
    }
}

/// What the loop shares with those who look.
#[derive(Debug)]
pub struct Live {
    settings: LiveConfig,
    seats: Arc<Seats>,
    is_replaying: AtomicBool,
    shelf: Mutex<Shelf>,
}

impl Live {
    /// Empty.
    pub fn new(settings: LiveConfig) -> Self {
        let shelf = Shelf {
            steps: Ring::new(settings.steps_max, u64::MAX),
            ended: Ring::new(settings.record_relqueries_max, settings.record_rows_max),
            scene: None,
            scenes: 0,
        };
        Self {
            seats: Arc::new(Seats::new(&settings)),
            settings,
            is_replaying: AtomicBool::new(false),
            shelf: Mutex::new(shelf),
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
        self.seats.taken()
    }

    /// One more who looks, or the bound that is reached.
    pub fn join(&self, viewer: Viewer) -> Result<Seat, Full> {
        self.seats.take(viewer)
    }

    /// The right to replay; none where somebody has it.
    pub fn begin_replay(self: &Arc<Self>) -> Option<Turn> {
        let was = self.is_replaying.swap(true, Ordering::AcqRel);
        (!was).then(|| Turn(Arc::clone(self)))
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The shelf, unless a reader has it.
    fn try_shelf(&self) -> Option<MutexGuard<'_, Shelf>> {
        match self.shelf.try_lock() {
            Ok(shelf) => Some(shelf),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// Where a new reader begins: with the steps that one frame carries, and what ended lately.
    pub fn cursor(&self) -> Cursor {
        let shelf = self.shelf();
        Cursor {
            steps: shelf.steps.end().saturating_sub(FRAME_STEPS_MAX as u64).max(shelf.steps.start()),
            ended: shelf.ended.end().saturating_sub(FRAME_ENDED_MAX as u64).max(shelf.ended.start()),
            scenes: 0,
        }
    }

    /// What a reader has not seen, as much as one frame carries.
    pub fn read(&self, cursor: &mut Cursor) -> Fresh {
        let shelf = self.shelf();
        let (steps, lost_steps) = shelf.steps.after(&mut cursor.steps, FRAME_STEPS_MAX);
        let (ended, _) = shelf.ended.after(&mut cursor.ended, FRAME_ENDED_MAX);
        let is_new = cursor.scenes != shelf.scenes;
        cursor.scenes = shelf.scenes;
        Fresh { steps, lost_steps, ended, scene: shelf.scene.clone().filter(|_| is_new) }
    }

    /// What is remembered of relQueries that arrived after `since`.
    pub fn records(&self, since: Time) -> Vec<Arc<Record>> {
        let shelf = self.shelf();
        shelf.ended.iter().filter(|record| record.arrival >= since).cloned().collect()
    }
}

/// The right to replay, given back when dropped.
#[derive(Debug)]
pub struct Turn(Arc<Live>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.is_replaying.store(false, Ordering::Release);
    }
}

/// Who looks, and so what can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Viewer {
    /// Its own relQueries; of others how much there is of them together.
    Tenant(TenantId),
    /// All.
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
