//! What policy `auto` chose last, for those who look, and the word that ends its thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::{Nanos, Time};
use sim::auto::Verdict;

/// A choice, and when it was made.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// When.
    pub at: Time,
    /// What came out.
    pub verdict: Verdict,
}

/// What the thread and those who look share.
#[derive(Debug, Default)]
pub struct AutoState {
    last: Mutex<Option<Chosen>>,
    /// Not behind a lock: it is read between the steps of a replay, whose thread may lose the processor there.
    is_stopped: AtomicBool,
    resting: Mutex<()>,
    stopped: Condvar,
}

impl AutoState {
    /// The last choice, if there was one.
    pub fn last(&self) -> Option<Chosen> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers a choice.
    pub(crate) fn chose(&self, chosen: Chosen) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(chosen);
    }

    /// Whether the thread is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Ends the thread, and the replay that it is at.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        // Who was about to rest has seen that, or waits by now.
        drop(self.resting());
        self.stopped.notify_all();
    }

    fn resting(&self) -> MutexGuard<'_, ()> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits; says whether it is over.
    pub(crate) fn rest(&self, span: Nanos) -> bool {
        let span = Duration::from_nanos(span.0);
        drop(self.stopped.wait_timeout_while(self.resting(), span, |_| !self.is_stopped()));
        self.is_stopped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_ends_a_rest_that_has_begun_and_those_that_come_later() {
        const HOUR: Nanos = Nanos(3_600_000_000_000);
        let state = AutoState::default();
        assert!(!state.rest(Nanos(0)));
        std::thread::scope(|scope| {
            let rests = scope.spawn(|| state.rest(HOUR));
            state.stop();
            assert!(rests.join().expect("it does not panic"));
        });
        assert!(state.rest(HOUR) && state.is_stopped());
    }
}
