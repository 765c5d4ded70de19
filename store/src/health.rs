//! Whether the database answers and takes what is written, as the calls of late found it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, StoreOutage};

/// What calls of a store came to. Shared by all clones of it.
#[derive(Debug, Default)]
pub struct StoreHealth {
    is_away: AtomicBool,
    is_unwritable: AtomicBool,
    away: AtomicU64,
    unwritable: AtomicU64,
    failed: AtomicU64,
}

/// Calls that failed, by what was to blame, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreErrors {
    /// The database did not answer in time.
    pub away: u64,
    /// It took nothing.
    pub unwritable: u64,
    /// It refused the call itself, or what it holds is broken: trying again does not help.
    pub failed: u64,
}

impl StoreHealth {
    /// What is wrong now. Any call that is answered ends [`StoreOutage::Away`]; only
    /// [`Store::try_to_write`](crate::Store::try_to_write) ends [`StoreOutage::Unwritable`]: many a call that could
    /// write has nothing to.
    pub fn outage(&self) -> Option<StoreOutage> {
        if self.is_away.load(Ordering::Relaxed) {
            return Some(StoreOutage::Away);
        }
        self.is_unwritable.load(Ordering::Relaxed).then_some(StoreOutage::Unwritable)
    }

    /// How many calls failed.
    pub fn errors(&self) -> StoreErrors {
        StoreErrors {
            away: self.away.load(Ordering::Relaxed),
            unwritable: self.unwritable.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    /// A call ended. What the caller asked wrongly (a name that is taken, a thing that is missing) says nothing of
    /// the database but that it answers.
    pub(crate) fn called<T>(&self, result: &Result<T, Error>) {
        match result {
            Err(Error::Away(_)) => {
                self.away.fetch_add(1, Ordering::Relaxed);
                self.is_away.store(true, Ordering::Relaxed);
            }
            Err(Error::Unwritable(_)) => {
                self.unwritable.fetch_add(1, Ordering::Relaxed);
                self.is_unwritable.store(true, Ordering::Relaxed);
                self.is_away.store(false, Ordering::Relaxed);
            }
            Err(Error::Sql(_) | Error::Broken { .. } | Error::Damaged { .. }) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                self.is_away.store(false, Ordering::Relaxed);
            }
            _ => self.is_away.store(false, Ordering::Relaxed),
        }
    }

    /// What was written to try it lasts.
    pub(crate) fn wrote(&self) {
        self.is_unwritable.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_works_does_not_end_what_keeps_writes_away() {
        let health = StoreHealth::default();
        assert_eq!(health.outage(), None);
        health.called(&Err::<(), _>(Error::Unwritable("full".into())));
        health.called(&Ok(()));
        assert_eq!(health.outage(), Some(StoreOutage::Unwritable));
        health.called(&Err::<(), _>(Error::Away("gone".into())));
        assert_eq!(health.outage(), Some(StoreOutage::Away));
        health.called(&Err::<(), _>(Error::Missing("tenant")));
        assert_eq!(health.outage(), Some(StoreOutage::Unwritable), "it answered");
        health.wrote();
        assert_eq!(health.outage(), None);
        assert_eq!(health.errors(), StoreErrors { away: 1, unwritable: 1, failed: 0 });
    }
}
