//! The server's one clock: monotonic time for the loop, wall time for records.
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

    /// A clock for tests that nothing takes time by: it starts after their end.
    #[cfg(test)]
    pub(crate) fn stopped() -> Self {
        Self { start: Instant::now() + Duration::from_secs(86_400) }
    }

    /// What a future gives, unless the deadline passes first. What is ready at once is never late.
    pub async fn within<F: Future>(&self, deadline: Option<Deadline>, work: F) -> Result<F::Output, Late> {
        match deadline {
            None => Ok(work.await),
            Some(deadline) => {
                tokio::time::timeout_at(self.timer(deadline.at()), work).await.map_err(|_| Late)
            }
        }
    }

    /// An instant of this clock, for a timer.
    pub fn timer(&self, at: Time) -> tokio::time::Instant {
        let at = self.start.checked_add(Duration::from_nanos(at.0));
        at.map_or_else(|| until(FAR), Into::into)
    }

    /// Monotonic time since the start.
    pub fn now(&self) -> Time {
        Time(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Wall time of what this clock measured, as both clocks stand now.
    pub fn wall(&self) -> WallClock {
        WallClock { now: self.now(), wall: SystemTime::now() }
    }

    /// Wall time in unix milliseconds, for logs, traces and replies. What is stored goes by the database's clock
    /// ([`crate::shared::Shared::unix_now`]).
    pub fn unix_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Two clocks that were read at once.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    now: Time,
    wall: SystemTime,
}

impl WallClock {
    /// Wall time of an instant.
    pub fn at(&self, instant: Time) -> SystemTime {
        let later = self.wall + Duration::from_nanos(instant.since(self.now).0);
        later.checked_sub(Duration::from_nanos(self.now.since(instant).0)).unwrap_or(UNIX_EPOCH)
    }
}

/// Further off than any deadline, for an instant that the system cannot hold.
const FAR: Millis = Millis(365 * 86_400_000);

/// When a reply is due: fixed by the arrival of its request, whatever comes between and whoever waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    arrival: Time,
    span: Millis,
}

impl Deadline {
    /// The deadline of a request whose head was read at `arrival`.
    pub fn new(arrival: Time, span: Millis) -> Self {
        Self { arrival, span }
    }

    /// The instant.
    pub fn at(self) -> Time {
        self.arrival + self.span.into()
    }

    /// That of the same request, sent again.
    pub fn again(self, arrival: Time) -> Self {
        Self { arrival, ..self }
    }
}

/// The deadline passed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late;

/// The instant at which a wait of `span` from now ends, for a timer.
pub fn until(span: Millis) -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_millis(span.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_deadline_that_has_passed_waits_for_nothing_and_takes_what_is_ready() {
        let clock = Clock::start();
        let past = Some(Deadline::new(Time(0), Millis(0)));
        assert_eq!(clock.within(past, std::future::ready(1)).await, Ok(1));
        assert_eq!(clock.within(past, std::future::pending::<()>()).await, Err(Late));
        assert_eq!(clock.within(None, std::future::ready(2)).await, Ok(2));
    }

    #[test]
    fn an_instant_is_as_far_from_now_on_the_wall_as_on_the_clock() {
        let wall = WallClock { now: Time(5_000), wall: UNIX_EPOCH + Duration::from_nanos(90_000) };
        let nanos = |instant| wall.at(Time(instant)).duration_since(UNIX_EPOCH).expect("later").as_nanos();
        assert_eq!([4_000, 5_000, 6_500].map(nanos), [89_000, 90_000, 91_500]);
    }

    #[test]
    fn a_deadline_counts_from_the_arrival_of_its_request() {
        let deadline = Deadline::new(Time(5_000_000), Millis(2));
        assert_eq!(deadline.at(), Time(7_000_000));
        assert_eq!(deadline.again(Time(9_000_000)).at(), Time(11_000_000));
        let never = Deadline::new(Time(u64::MAX), Millis(u64::MAX));
        assert_eq!(never.at(), Time(u64::MAX));
    }
}
