//! A circuit breaker: after failures one after another nothing goes to a server for a while, then one row
//! does, and what becomes of it decides.
//!
//! Pure: time is an argument. What the server itself asks for (`Retry-After`) pauses it the same way, and
//! blames nobody.

use base::{Nanos, Time};

/// Longest time for which it lets nothing through.
const OPEN_MAX: Nanos = Nanos(60_000_000_000);

/// Settings.
#[derive(Clone, Copy, Debug)]
pub struct BreakerSettings {
    /// Failures one after another that open it.
    pub failures_max: u32,
    /// Time for which it is open at first.
    pub open: Nanos,
}

/// How far it lets rows through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    Closed,
    /// None, until then.
    Open(Time),
    /// One, to see.
    HalfOpen,
}

impl Passage {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open(_) => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// The breaker of one server.
#[derive(Clone, Debug)]
pub struct Breaker {
    limits: BreakerSettings,
    failures: u32,
    /// Since it opened: until when, and for how long.
    opened: Option<(Time, Nanos)>,
    paused: Option<Time>,
}

impl Breaker {
    /// A closed one.
    pub fn new(limits: BreakerSettings) -> Self {
        Self { limits, failures: 0, opened: None, paused: None }
    }

    /// How far it lets rows through at `now`.
    pub fn passage(&self, now: Time) -> Passage {
        let opened = self.opened.map(|(until, _)| until);
        match opened.max(self.paused.filter(|until| now < *until)) {
            Some(until) if now < until => Passage::Open(until),
            _ if opened.is_some() => Passage::HalfOpen,
            _ => Passage::Closed,
        }
    }

    /// A row was answered, whatever the answer: the server works.
    pub fn succeeded(&mut self) {
        self.failures = 0;
        self.opened = None;
    }

    /// A row was lost at `now`.
    pub fn failed(&mut self, now: Time) {
        self.failures = self.failures.saturating_add(1);
        let span = match (self.passage(now), self.opened) {
            (Passage::HalfOpen, Some((_, span))) => Nanos(span.0.saturating_mul(2)),
            (Passage::Closed, _) if self.failures >= self.limits.failures_max => self.limits.open,
            // What was on its way when it opened says nothing new.
            _ => return,
        };
        let span = span.min(OPEN_MAX);
        self.opened = Some((now + span, span));
    }

    /// The server asks for a pause.
    pub fn pause(&mut self, now: Time, span: Nanos) {
        self.paused = self.paused.max(Some(now + span.min(OPEN_MAX)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> Breaker {
        Breaker::new(BreakerSettings { failures_max: 3, open: Nanos(10) })
    }

    #[test]
    fn only_failures_one_after_another_open_it() {
        let mut breaker = breaker();
        for _ in 0..2 {
            breaker.failed(Time(1));
            breaker.failed(Time(1));
            breaker.succeeded();
        }
        assert_eq!(breaker.passage(Time(1)), Passage::Closed);
        for now in 1..=3 {
            breaker.failed(Time(now));
        }
        assert_eq!(breaker.passage(Time(3)), Passage::Open(Time(13)));
        breaker.failed(Time(4));
        assert_eq!(breaker.passage(Time(12)), Passage::Open(Time(13)), "what was on its way changes nothing");
        assert_eq!(breaker.passage(Time(13)), Passage::HalfOpen);
    }

    #[test]
    fn the_row_after_it_decides_and_each_failure_doubles_the_wait_up_to_a_minute() {
        let mut breaker = breaker();
        (0..3).for_each(|_| breaker.failed(Time(0)));
        breaker.failed(Time(10));
        assert_eq!(breaker.passage(Time(10)), Passage::Open(Time(30)));
        let mut now = 30;
        for _ in 0..40 {
            breaker.failed(Time(now));
            let Passage::Open(until) = breaker.passage(Time(now)) else { panic!("it failed again") };
            assert!(until.since(Time(now)) <= OPEN_MAX);
            now = until.0;
        }
        breaker.succeeded();
        assert_eq!(breaker.passage(Time(now)), Passage::Closed);
        breaker.failed(Time(now));
        assert_eq!(breaker.passage(Time(now)), Passage::Closed, "it counts from the start");
    }

    #[test]
    fn a_pause_ends_by_itself_and_blames_nobody() {
        let mut breaker = breaker();
        breaker.pause(Time(5), Nanos(20));
        breaker.pause(Time(5), Nanos(2));
        assert_eq!(breaker.passage(Time(24)), Passage::Open(Time(25)));
        assert_eq!(breaker.passage(Time(25)), Passage::Closed);
        breaker.pause(Time(30), Nanos(u64::MAX));
        assert_eq!(breaker.passage(Time(30)), Passage::Open(Time(30 + OPEN_MAX.0)), "it is bounded");
    }
}
