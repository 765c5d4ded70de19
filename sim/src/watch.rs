//! What someone outside may see of a run while it goes: marks before and after each call to the scheduler.
//!
//! The world reads no clock; a watcher that has one learns from the marks what the scheduler's parts cost
//! in real time, beside the virtual time that the run takes.

use scheduler::{Decision, Phase};

/// A place that a run comes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// A relQuery is about to be submitted.
    SubmitBegins,
    /// It was taken or refused.
    Submitted,
    /// A step is about to be planned.
    PlanBegins,
    /// A phase of planning is over.
    Planned(Phase),
    /// A step's outcome is about to be applied.
    ApplyBegins,
    Applied,
}

/// Someone who watches a run.
pub trait Watcher {
    /// The run has come to `mark`.
    fn mark(&mut self, mark: Mark);

    /// A step is planned, for these reasons.
    fn planned(&mut self, _decision: &Decision) {}

    /// Whether the run shall end here, before its next step: it came to nothing then.
    fn is_over(&mut self) -> bool {
        false
    }
}

/// Nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watcher for Unwatched {
    fn mark(&mut self, _: Mark) {}
}

#[cfg(test)]
mod tests {
    use scheduler::Policy;

    use super::*;
    use crate::paper::{Workload, generate};
    use crate::replay::{SimError, replay, replay_watched};
    use crate::replay_config::ReplayConfig;

    /// Counts the marks.
    #[derive(Default)]
    struct Counter(std::collections::HashMap<Mark, u64>);

    impl Watcher for Counter {
        fn mark(&mut self, mark: Mark) {
            *self.0.entry(mark).or_default() += 1;
        }
    }

    /// Has had enough after so many looks.
    struct Patience(u64);

    impl Watcher for Patience {
        fn mark(&mut self, _: Mark) {}

        fn is_over(&mut self) -> bool {
            self.0 = self.0.saturating_sub(1);
            self.0 == 0
        }
    }

    #[test]
    fn a_watcher_can_end_a_run_that_takes_too_long() {
        let trace = generate(&Workload { seed: 5, relqueries: 6, rows: (1, 9), ..Workload::default() });
        let run = |looks| {
            replay_watched(&trace, Policy::MarginalWork, &ReplayConfig::default(), &mut Patience(looks))
                .map(|replay| replay.summary.n)
        };
        assert!(matches!(run(5), Err(SimError::Stopped)));
        assert_eq!(run(u64::MAX).expect("a replay"), 6);
    }

    #[test]
    fn every_step_comes_by_every_mark_and_watching_changes_nothing() {
        let trace = generate(&Workload { seed: 5, relqueries: 6, rows: (1, 9), ..Workload::default() });
        let config = ReplayConfig::default();
        let mut counter = Counter::default();
        let watched = replay_watched(&trace, Policy::RelServe, &config, &mut counter).expect("a replay");
        assert_eq!(watched, replay(&trace, Policy::RelServe, &config).expect("a replay"));
        assert_eq!(counter.0[&Mark::Submitted], 6);
        for mark in [Mark::Planned(Phase::Updated), Mark::Planned(Phase::Granted), Mark::Applied] {
            assert_eq!(counter.0[&mark], watched.counts.iters, "{mark:?}");
        }
    }
}
