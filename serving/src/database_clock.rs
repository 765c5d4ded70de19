//! The database's clock between two looks at it: the time by which what is stored begins and ends. Gateways that share a
//! database agree on it, and a wall clock that jumps takes no work from another gateway and ends nothing early. In between
//! it goes on as the process's own clock does, which only goes forward. Must not know how the database is asked.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::Time;
use store::UnixMillis;

/// Nanoseconds of a millisecond.
const NANOS: u64 = 1_000_000;
/// What is lost where both clocks are rounded to milliseconds.
const ROUNDING_MS: u64 = 2;

/// The database's clock, as a process knows it.
#[derive(Debug)]
pub struct DatabaseClock {
    /// How far its unix time is ahead of the process's own, in ms.
    ahead_ms: AtomicU64,
    is_known: AtomicBool,
}

impl DatabaseClock {
    /// A guess, until the database is asked: the process's wall clock, as it stands at `now`.
    pub fn guessed(wall: UnixMillis, now: Time) -> Self {
        let ahead_ms = AtomicU64::new(wall.0.saturating_sub(now.0 / NANOS));
        Self { ahead_ms, is_known: AtomicBool::new(false) }
    }

    /// Whether it is more than a guess: by one alone nothing is taken from another gateway, or deleted.
    pub fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Acquire)
    }

    /// The time by the database's clock.
    pub fn at(&self, now: Time) -> UnixMillis {
        UnixMillis(self.ahead_ms.load(Ordering::Relaxed).saturating_add(now.0 / NANOS))
    }

    /// The database was asked and said what time it was somewhere between. What that allows stays as it is: however long
    /// the answer took, time does not move for it.
    pub fn answered(&self, said: UnixMillis, (asked, came): (Time, Time)) {
        let ahead_at = |now: Time| said.0.saturating_sub(now.0 / NANOS);
        let least = ahead_at(came).saturating_sub(ROUNDING_MS);
        let most = ahead_at(asked).saturating_add(ROUNDING_MS);
        let known = self.ahead_ms.load(Ordering::Relaxed);
        self.ahead_ms.store(known.max(least).min(most), Ordering::Relaxed);
        self.is_known.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn ms(count: u64) -> Time {
        Time(count * NANOS)
    }

    #[test]
    fn a_wrong_wall_clock_is_forgotten_once_the_database_has_said_what_time_it_is() {
        let clock = DatabaseClock::guessed(UnixMillis(9 * HOUR), ms(10));
        assert_eq!(clock.at(ms(20)), UnixMillis(9 * HOUR + 10), "nobody was asked yet");
        assert!(!clock.is_known());
        clock.answered(UnixMillis(5 * HOUR), (ms(30), ms(30)));
        assert!(clock.is_known());
        assert_eq!(clock.at(ms(30)), UnixMillis(5 * HOUR + ROUNDING_MS));
        assert_eq!(clock.at(ms(1_030)), UnixMillis(5 * HOUR + ROUNDING_MS + 1_000), "it goes on by itself");
        clock.answered(UnixMillis(7 * HOUR), (ms(40), ms(40)));
        assert_eq!(clock.at(ms(40)), UnixMillis(7 * HOUR - ROUNDING_MS), "it follows a database that jumps");
    }

    #[test]
    fn an_answer_that_took_long_moves_the_time_no_further_than_it_must() {
        let clock = DatabaseClock::guessed(UnixMillis(5 * HOUR), ms(0));
        // Said at any instant of ten seconds.
        clock.answered(UnixMillis(5 * HOUR + 4_000), (ms(1_000), ms(11_000)));
        assert_eq!(clock.at(ms(11_000)), UnixMillis(5 * HOUR + 11_000), "it may be right");
        clock.answered(UnixMillis(6 * HOUR), (ms(20_000), ms(30_000)));
        assert_eq!(clock.at(ms(30_000)), UnixMillis(6 * HOUR - ROUNDING_MS), "said as late as can be");
        clock.answered(UnixMillis(5 * HOUR), (ms(40_000), ms(50_000)));
        assert_eq!(clock.at(ms(40_000)), UnixMillis(5 * HOUR + ROUNDING_MS), "said as early as can be");
    }
}
