//! Pins as handlers see them: what keeps a schema's modules in the engine's memory as long as somebody keeps
//! the pin.
//!
//! The loop thread holds and loses; a handler that finds a pin empty has its modules computed again, one at a
//! time. Must not know schemas.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use base::{Nanos, PinId, Time};

use crate::clock::Clock;

/// How long a pin that could not be filled is left empty: others hold what it needs.
const PAUSE: Nanos = Nanos(10_000_000_000);

/// It holds nothing.
const EMPTY: u8 = 0;
/// What it shall hold is being computed.
const FILLING: u8 = 1;
/// It holds what it shall.
const HELD: u8 = 2;

/// A pin; dropped, it lets go.
pub struct Pin {
    id: PinId,
    state: AtomicU8,
    /// It is not filled before this instant.
    not_before: AtomicU64,
    clock: Clock,
    /// Tells the loop that it may let go.
    release: Box<dyn Fn(PinId) + Send + Sync>,
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pin").field("id", &self.id).field("held", &self.is_held()).finish_non_exhaustive()
    }
}

/// The right to fill a pin, which goes with the rows that do. Dropped, it leaves the pin empty.
#[derive(Debug)]
pub struct PinPermit {
    id: PinId,
    pin: Weak<Pin>,
}

impl Pin {
    /// An empty pin; `release` is called with its id when it is dropped.
    pub(crate) fn new(id: PinId, clock: Clock, release: Box<dyn Fn(PinId) + Send + Sync>) -> Arc<Self> {
        let (state, not_before) = (AtomicU8::new(EMPTY), AtomicU64::new(0));
        Arc::new(Self { id, state, not_before, clock, release })
    }

    /// Whether it holds what it shall.
    pub fn is_held(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD
    }

    /// The right to fill it; `None` where it is full, somebody has the right, or the last who had it failed
    /// just now.
    pub fn fill(self: &Arc<Self>) -> Option<PinPermit> {
        if self.clock.now() < Time(self.not_before.load(Ordering::Acquire)) {
            return None;
        }
        let empty = self.state.compare_exchange(EMPTY, FILLING, Ordering::AcqRel, Ordering::Acquire);
        empty.ok().map(|_| PinPermit { id: self.id, pin: Arc::downgrade(self) })
    }

    /// It gave way.
    fn lose(&self) {
        // One that is being filled stays so: whoever fills it finds out.
        let _ = self.state.compare_exchange(HELD, EMPTY, Ordering::AcqRel, Ordering::Acquire);
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        (self.release)(self.id);
    }
}

impl PinPermit {
    /// Of which pin.
    pub fn id(&self) -> PinId {
        self.id
    }

    /// The pin, to be told of its loss.
    pub fn pin(&self) -> Weak<Pin> {
        Weak::clone(&self.pin)
    }

    /// It is full.
    pub fn done(self) {
        if let Some(pin) = self.pin.upgrade() {
            pin.state.store(HELD, Ordering::Release);
        }
    }
}

impl Drop for PinPermit {
    fn drop(&mut self) {
        let Some(pin) = self.pin.upgrade().filter(|pin| pin.state.load(Ordering::Acquire) == FILLING) else {
            return;
        };
        let not_before = pin.clock.now() + PAUSE;
        pin.not_before.store(not_before.0, Ordering::Release);
        pin.state.store(EMPTY, Ordering::Release);
    }
}

/// The loop gave these up.
pub fn lost(pins: impl Iterator<Item = Weak<Pin>>) {
    pins.filter_map(|pin| pin.upgrade()).for_each(|pin| pin.lose());
}
