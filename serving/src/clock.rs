//! The gateway's one clock: monotonic time for the loop, wall time for records.
//!
//! Everything else is given `now`, so a test can give it any.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base::{Millis, Time};

/// Reads time. [`Time`] counts from the clock's start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts a clock.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Monotonic time since the start.
    pub fn now(&self) -> Time {
        Time(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Wall time in unix milliseconds, for records that outlive the process.
    pub fn unix_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// The instant at which a wait of `span` from now ends, for a timer.
pub fn until(span: Millis) -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_millis(span.0)
}
