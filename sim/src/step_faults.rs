//! What goes wrong with steps: slow ones, failed ones, rows that are not numbers, lost replicas.
//!
//! Plain data that a world asks about each step. It must not know the scheduler, nor where faults
//! come from.

use std::collections::BTreeSet;

use base::{Nanos, RelQueryId, StepId, Time};

/// How long a step takes that fails.
pub const FAILURE: Nanos = Nanos(1_000_000);

/// What becomes of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepEnd {
    /// It runs, and ends then.
    Runs(Time),
    /// It fails whole; its owner learns it then.
    Fails(Time),
    /// It fails, and so does the replica: what it computed is gone. Its owner learns it when the
    /// replica is back.
    Lost(Time),
}

/// The faults to come.
#[derive(Clone, Debug, Default)]
pub struct StepFaults {
    slow: Vec<(Time, Time, u64)>,
    failing_steps: BTreeSet<StepId>,
    failing_times: BTreeSet<Time>,
    broken: BTreeSet<(RelQueryId, u32)>,
    outages: BTreeSet<(Time, Time)>,
}

impl StepFaults {
    /// Steps that start from `from` on and before `until` take `permille` thousandths of their time.
    pub fn slow(&mut self, from: Time, until: Time, permille: u64) {
        self.slow.push((from, until, permille));
    }

    /// This step fails.
    pub fn fail_step(&mut self, step: StepId) {
        self.failing_steps.insert(step);
    }

    /// The first step that starts at this time or later fails.
    pub fn fail_at(&mut self, at: Time) {
        self.failing_times.insert(at);
    }

    /// The row's next token is not a number.
    pub fn break_row(&mut self, id: RelQueryId, row: u32) {
        self.broken.insert((id, row));
    }

    /// The replica is gone from `from` on and back, with an empty memory, at `until`.
    pub fn lose(&mut self, from: Time, until: Time) {
        self.outages.insert((from, until));
    }

    /// Whether a step that starts now fails without being run.
    pub fn strikes(&mut self, step: StepId, start: Time) -> Option<StepEnd> {
        if let Some(back) = self.back_from(start, start) {
            return Some(StepEnd::Lost(back));
        }
        if self.failing_steps.remove(&step) {
            return Some(StepEnd::Fails(start + FAILURE));
        }
        let due = self.failing_times.first().copied().filter(|at| *at <= start)?;
        self.failing_times.remove(&due);
        Some(StepEnd::Fails(start + FAILURE))
    }

    /// What becomes of a step that would take `elapsed`.
    pub fn end(&mut self, start: Time, elapsed: Nanos) -> StepEnd {
        let slow = self.slow.iter().filter(|(from, until, _)| (*from..*until).contains(&start));
        let elapsed = slow.fold(u128::from(elapsed.0), |elapsed, (_, _, permille)| {
            (elapsed * u128::from(*permille) / 1_000).min(u128::from(u64::MAX))
        });
        let end = start + Nanos(u64::try_from(elapsed).expect("at most u64::MAX"));
        match self.back_from(start, end) {
            Some(back) => StepEnd::Lost(back),
            None => StepEnd::Runs(end),
        }
    }

    /// Ends the outages that are over before a step has run into them; says whether there was one.
    pub fn outage_passed(&mut self, now: Time) -> bool {
        let before = self.outages.len();
        self.outages.retain(|(_, until)| *until > now);
        self.outages.len() < before
    }

    /// When the replica is back, if it goes before `end`; outages that touch each other are one.
    fn back_from(&mut self, start: Time, end: Time) -> Option<Time> {
        let hits = |from: Time, last: Time| from < last || from <= start;
        let (first, mut back) = self.outages.first().copied().filter(|(from, _)| hits(*from, end))?;
        self.outages.remove(&(first, back));
        while let Some((from, until)) = self.outages.first().copied().filter(|(from, _)| *from <= back) {
            self.outages.remove(&(from, until));
            back = back.max(until);
        }
        Some(back.max(start + FAILURE))
    }

    /// Whether this row's token is not a number; true once.
    pub fn breaks(&mut self, id: RelQueryId, row: u32) -> bool {
        self.broken.remove(&(id, row))
    }

    /// Whether any row will break.
    pub fn breaks_rows(&self) -> bool {
        !self.broken.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outages_that_touch_are_one_and_a_step_that_ends_before_is_none_of_it() {
        let mut faults = StepFaults::default();
        for (from, until) in [(10, 20), (20, 30), (50, 60)] {
            faults.lose(Time(from * 1_000_000), Time(until * 1_000_000));
        }
        assert_eq!(faults.end(Time(0), Nanos(10_000_000)), StepEnd::Runs(Time(10_000_000)));
        assert_eq!(faults.end(Time(5_000_000), Nanos(6_000_000)), StepEnd::Lost(Time(30_000_000)));
        assert_eq!(faults.strikes(StepId(1), Time(30_000_000)), None);
        assert!(!faults.outage_passed(Time(59_000_000)));
        assert_eq!(faults.strikes(StepId(2), Time(59_500_000)), Some(StepEnd::Lost(Time(60_500_000))));
        assert!(!faults.outage_passed(Time(70_000_000)), "it has been met");
    }

    #[test]
    fn a_slow_span_counts_by_where_a_step_starts() {
        let mut faults = StepFaults::default();
        faults.slow(Time(10), Time(20), 2_500);
        assert_eq!(faults.end(Time(9), Nanos(8)), StepEnd::Runs(Time(17)));
        assert_eq!(faults.end(Time(10), Nanos(8)), StepEnd::Runs(Time(30)));
        assert_eq!(faults.end(Time(20), Nanos(8)), StepEnd::Runs(Time(28)));
    }
}
