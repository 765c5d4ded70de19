//! When the journal writes and when it rests: after a write that failed, and where writes take much of the time of those who
//! wait for them. Pure.

use base::{Nanos, Time};

/// One rest. Whoever counts waits for a write, so a disk that is slow is not tried more often.
const REST: Nanos = Nanos(10_000_000_000);
/// What counts of one write: a process that was stopped, or had no processor, has no slow disk.
const WRITE_NS_MAX: u64 = 100_000_000;
/// So much of the time between writes may go into writing, as a divisor, ...
const TIME_PER_WRITING: u64 = 4;
/// ... and so much beside that at once: a machine that is busy for a moment has no slow disk either.
const WRITING_NS_MAX: u64 = 1_000_000_000;
/// The same after a rest, until all is well: a disk that still hangs is left alone after one write.
const WRITING_AFTER_REST_NS_MAX: u64 = 50_000_000;
/// For so long after a rest all must be well until it is said.
const WELL: Nanos = Nanos(1_000_000_000);

/// How the last writes went.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Time that went into writing, less what was allowed since.
    writing_ns: u64,
    /// When the last write ended.
    ended: Time,
    rests_until: Option<Time>,
    is_failing: bool,
}

impl Pace {
    /// Whether nothing is to be written now.
    pub(super) fn rests(&self, now: Time) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }

    /// Something was written. Whether writing takes too long.
    pub(super) fn wrote(&mut self, began: Time, ended: Time) -> bool {
        let allowed = began.since(self.ended).0 / TIME_PER_WRITING;
        let took = ended.since(began).0.min(WRITE_NS_MAX);
        self.writing_ns = self.writing_ns.saturating_sub(allowed) + took;
        self.ended = ended;
        let at_once = if self.is_failing { WRITING_AFTER_REST_NS_MAX } else { WRITING_NS_MAX };
        self.writing_ns > at_once
    }

    /// From now on nothing is written for a while. Whether that is news.
    pub(super) fn rest(&mut self, now: Time) -> bool {
        (self.writing_ns, self.ended, self.rests_until) = (0, now, Some(now + REST));
        !std::mem::replace(&mut self.is_failing, true)
    }

    /// Whether all is well again, which is told once.
    pub(super) fn has_recovered(&mut self, now: Time) -> bool {
        let is_well = self.rests_until.is_none_or(|until| now > until + WELL);
        is_well && std::mem::take(&mut self.is_failing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Writes one after another, so long each and so long between, until the journal rests: how many.
    fn until_rest(took_ms: u64, between_ms: u64) -> Option<u64> {
        let (mut pace, mut now) = (Pace::default(), Time(1_000 * MS));
        (1..=10_000).find(|_| {
            let began = now + Nanos(between_ms * MS);
            now = began + Nanos(took_ms * MS);
            pace.wrote(began, now)
        })
    }

    #[test]
    fn a_slow_disk_makes_it_rest_and_a_process_that_was_stopped_does_not() {
        assert_eq!(until_rest(5_000, 0), Some(11), "one that hangs");
        assert_eq!(until_rest(5_000, 1_000), None, "one that was stopped, again and again");
        assert!(until_rest(10, 10).is_some());
        assert_eq!(until_rest(10, 50), None, "a sixth of the time");
    }

    #[test]
    fn a_failure_and_its_end_are_told_once() {
        let (mut pace, at) = (Pace::default(), |ms: u64| Time(ms * MS));
        assert!(!pace.rests(at(1)) && !pace.has_recovered(at(1)));
        assert!(pace.rest(at(1_000)), "news");
        assert!(pace.rests(at(10_999)) && !pace.rests(at(11_000)));
        assert!(!pace.rest(at(11_000)), "it is known");
        assert!(!pace.wrote(at(21_000), at(21_001)));
        assert!(!pace.has_recovered(at(21_001)));
        assert!(pace.has_recovered(at(22_500)) && !pace.has_recovered(at(22_501)));
        assert!(pace.rest(at(30_000)), "news again");
    }

    #[test]
    fn after_a_rest_one_write_tells_a_disk_that_still_hangs() {
        let (mut pace, at) = (Pace::default(), |ms: u64| Time(ms * MS));
        pace.rest(at(1_000));
        assert!(!pace.wrote(at(11_000), at(11_001)), "it is quick");
        assert!(pace.wrote(at(11_002), at(16_002)));
        assert!(!pace.rest(at(16_002)) && pace.rests(at(26_001)));
    }
}
