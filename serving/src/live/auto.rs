//! What policy `auto` chose last, for those who look, and the word that ends its thread.

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
    is_stopped: Mutex<bool>,
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
        *self.flag()
    }

    /// Ends the thread, and the replay that it is at.
    pub fn stop(&self) {
        *self.flag() = true;
        self.stopped.notify_all();
    }

    fn flag(&self) -> MutexGuard<'_, bool> {
        self.is_stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits; says whether it is over.
    pub(crate) fn rest(&self, span: Nanos) -> bool {
        let span = Duration::from_nanos(span.0);
        let waited = self.stopped.wait_timeout_while(self.flag(), span, |is_stopped| !*is_stopped);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
