//! How many tokens ahead a guess pays: measured acceptance against what guesses cost.

use super::Terms;

/// Most tokens of a guess. With four of five accepted, the ninth would come by it once in seven times.
const DEPTH_MAX: usize = 8;

/// Guessed tokens after which older ones count half.
const WINDOW: u32 = 64;

/// Guessed tokens of one source that were drawn beside, and those that were right: what follows a wrong one
/// was never put to the test.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    tried: u32,
    right: u32,
}

impl Tally {
    /// Counts a guess of `guessed` tokens of which `kept` were right.
    pub(super) fn count(&mut self, guessed: u32, kept: u32) {
        self.tried += guessed.min(kept + 1);
        self.right += kept;
        if self.tried >= WINDOW {
            (self.tried, self.right) = (self.tried / 2, self.right / 2);
        }
    }

    /// How many tokens ahead a guess pays, 0 for none: token `n` is right with probability `q^n`, where
    ///
    /// ```text
    /// q = (right + 1) / (tried + 2)        q^n * saved > cost
    /// ```
    ///
    /// (Laplace's rule of succession: what was never tried is right half the time.)
    pub(super) fn depth(self, Terms { saved, cost }: Terms) -> usize {
        // What guess `n` is expected to save.
        let mut gain = u128::from(saved.0);
        let pays = |_: &usize| {
            gain = gain * u128::from(self.right + 1) / u128::from(self.tried + 2);
            gain > u128::from(cost.0)
        };
        (0..DEPTH_MAX).take_while(pays).count()
    }
}

#[cfg(test)]
mod tests {
    use base::Nanos;

    use super::*;

    #[test]
    fn a_guess_is_as_deep_as_its_last_token_still_pays() {
        let check = |right: u32, wrong: u32, saved: u64, cost: u64, depth: usize| {
            let mut tally = Tally::default();
            (0..right).for_each(|_| tally.count(1, 1));
            (0..wrong).for_each(|_| tally.count(1, 0));
            assert_eq!(
                tally.depth(Terms { saved: Nanos(saved), cost: Nanos(cost) }),
                depth,
                "{right}:{wrong}"
            );
        };
        check(0, 0, 1_000, 100, 3);
        check(0, 0, 1_000, 500, 0);
        check(30, 0, 1_000, 100, DEPTH_MAX);
        check(30, 0, 1_000, 1_000, 0);
        check(0, 30, 1_000, 100, 0);
        check(0, 30, 1_000, 10, 1);
        check(8, 8, u64::MAX, 0, DEPTH_MAX);
    }

    #[test]
    fn tokens_behind_a_wrong_one_were_not_tried() {
        let mut tally = Tally::default();
        tally.count(8, 2);
        assert_eq!((tally.tried, tally.right), (3, 2));
        tally.count(8, 8);
        assert_eq!((tally.tried, tally.right), (11, 10));
    }
}
