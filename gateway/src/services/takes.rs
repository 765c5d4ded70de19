//! Work that ends the server that takes it up is not taken up for ever: how many servers have ended with it decides what
//! becomes of it. The store counts them (`store::takes`). Must not know what the work is.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How a ticket or batch is taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeUp {
    /// Beside other work.
    Beside,
    /// For the last time, and alone ([`AloneQueue`]): the lines of a batch one after the other. What ends the server then
    /// is known.
    Alone,
    /// No more: so many servers have ended with it.
    Never { ends: u64 },
}

/// What becomes of work with which so many servers have ended, where at most `takes_max` may.
pub fn decide(ends: u64, takes_max: u32) -> TakeUp {
    match u64::from(takes_max).saturating_sub(ends) {
        0 => TakeUp::Never { ends },
        1 => TakeUp::Alone,
        _ => TakeUp::Beside,
    }
}

/// Work that is taken up alone, one after the other: who has the permit keeps it until something of its work is stored,
/// or the work is over. Other work goes on beside it.
#[derive(Debug)]
pub struct AloneQueue {
    free: Arc<Semaphore>,
    /// The tickets that wait for it or have it.
    tickets: Mutex<HashSet<String>>,
}

impl Default for AloneQueue {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(1)), tickets: Mutex::default() }
    }
}

impl AloneQueue {
    /// Waits for those that came before.
    pub async fn permit(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.free).acquire_owned().await.expect("nobody closes it")
    }

    /// The permit, where nobody has it or waits for it.
    pub fn try_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }

    /// Notes that a ticket waits. `false`: it does already.
    pub fn enter(&self, id: &str) -> bool {
        self.tickets().insert(id.to_owned())
    }

    /// It waits no more.
    pub fn leave(&self, id: &str) {
        self.tickets().remove(id);
    }

    fn tickets(&self) -> MutexGuard<'_, HashSet<String>> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn the_last_time_is_alone_and_then_there_is_none() {
        for (ends, takes_max, expected) in [
            (0, 3, TakeUp::Beside),
            (1, 3, TakeUp::Beside),
            (2, 3, TakeUp::Alone),
            (3, 3, TakeUp::Never { ends: 3 }),
            (9, 3, TakeUp::Never { ends: 9 }),
            (1, 2, TakeUp::Alone),
            (u64::MAX, u32::MAX, TakeUp::Never { ends: u64::MAX }),
        ] {
            assert_eq!(decide(ends, takes_max), expected, "{ends} of {takes_max}");
        }
    }

    #[test]
    fn one_is_alone_at_a_time_and_waits_once() {
        let queue = AloneQueue::default();
        let first = queue.permit().now_or_never().expect("it is free");
        assert!(queue.permit().now_or_never().is_none() && queue.try_permit().is_none());
        drop(first);
        assert!(queue.try_permit().is_some());
        assert!(queue.permit().now_or_never().is_some());
        assert!(queue.enter("rq-1") && !queue.enter("rq-1"));
        queue.leave("rq-1");
        assert!(queue.enter("rq-1"));
    }
}
