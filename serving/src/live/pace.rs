//! How long steps took, beside what the cost model says of them: kept for the last minutes, whether anybody looks
//! or not, so that a replay of them can go as quickly as they went.
//!
//! The cost model is fitted for the scheduler: it starts from a measurement that counts as some tens of steps, and
//! then forgets slowly. A replay wants the steps of just these minutes.

use base::{Nanos, Time, TokenCount};
use scheduler::CostModel;

/// Steps that are kept: 32 bytes each.
pub const TIMED_STEPS_MAX: usize = 16_384;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedStep {
    /// When it ended.
    pub at: Time,
    /// Prompt tokens computed, forced ones among them.
    pub tokens: TokenCount,
    /// Rows extended, guesses counted as rows.
    pub sequences: u64,
    /// From the end of the step before, or from its planning where the engine had rested.
    pub elapsed: Nanos,
}

/// Steps in sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// How many.
    pub steps: u64,
    /// What they took.
    pub measured: Nanos,
    /// What the cost model says of them.
    pub modelled: Nanos,
}

impl Pace {
    /// Of these steps, by this model.
    pub fn of<'a>(steps: impl Iterator<Item = &'a TimedStep>, cost: &CostModel) -> Self {
        steps.fold(Self::default(), |sum, step| Self {
            steps: sum.steps + 1,
            measured: Nanos(sum.measured.0.saturating_add(step.elapsed.0)),
            modelled: Nanos(sum.modelled.0.saturating_add(cost.mixed(step.tokens, step.sequences).0)),
        })
    }

    /// What was measured over what the model says; none where there is nothing to compare.
    pub fn ratio(&self) -> Option<f64> {
        let is_known = self.measured.0 > 0 && self.modelled.0 > 0;
        is_known.then(|| self.measured.0 as f64 / self.modelled.0 as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_goes_as_quickly_as_the_steps_that_were_measured() {
        let cost = CostModel::default();
        let step = |tokens, sequences, elapsed: u64| TimedStep {
            at: Time(1),
            tokens: TokenCount(tokens),
            sequences,
            elapsed: Nanos(elapsed),
        };
        let quick =
            |tokens, sequences| step(tokens, sequences, cost.mixed(TokenCount(tokens), sequences).0 / 5);
        let steps = [quick(300, 0), quick(0, 12), quick(200, 8), quick(0, 12)];
        let pace = Pace::of(steps.iter(), &cost);
        assert_eq!(pace.steps, 4);
        assert!(pace.ratio().is_some_and(|ratio| (ratio - 0.2).abs() < 1e-6), "{pace:?}");
        let paced = cost.paced(pace.measured, pace.modelled);
        let again = Pace::of(steps.iter(), &paced);
        assert!(again.ratio().is_some_and(|ratio| (ratio - 1.0).abs() < 1e-3), "{again:?}");
        assert_eq!(Pace::of([].iter(), &cost).ratio(), None);
        assert_eq!(cost.paced(Nanos(0), Nanos(7)), cost, "nothing measured changes nothing");
        assert_eq!(cost.paced(Nanos(7), Nanos(0)), cost);
    }
}
