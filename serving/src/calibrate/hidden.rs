//! What mixed steps show of `H`, against noise: medians of differences of steps that ran one after the other.
//!
//! It must not know how steps are run.

use base::Nanos;
use scheduler::CostModel;

/// A prefill, a decode, and the step that does both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    /// As it was measured, or as its line says.
    pub(super) prefill: Nanos,
    pub(super) decode: Nanos,
    pub(super) mixed: Nanos,
}

impl Pair {
    /// `H = b_d + a_d n + a_p u - t(u, n)`, ns, its first three terms from the prefill and the decode: where the
    /// prefill was measured, long prompts do not drown `H` in the error of `a_p`, nor does a machine's change of pace.
    fn hidden(&self, lines: &CostModel) -> i128 {
        i128::from(self.decode.0) + self.prompts(lines) - i128::from(self.mixed.0)
    }

    /// What the prompts take beside a prefill's base.
    fn prompts(&self, lines: &CostModel) -> i128 {
        i128::from(self.prefill.0) - i128::from(lines.prefill_base.0)
    }

    /// Whether the mixed step takes less longer than the decode than half of its prompts do: `H` is then at least what
    /// is shown of it, for it may have hidden all that there was.
    fn vanishes(&self, lines: &CostModel) -> bool {
        2 * (i128::from(self.mixed.0) - i128::from(self.decode.0)) < self.prompts(lines)
    }
}

/// How far values lie apart that steps showed of `H`: the middle half of them, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HiddenSpread {
    pub(super) pairs: usize,
    pub(super) least: i64,
    pub(super) most: i64,
}

/// What mixed steps showed of `H`, ns.
#[derive(Default)]
pub(super) struct HiddenWork {
    shown: Vec<i128>,
    /// `H` is no smaller.
    least: Option<i128>,
}

impl HiddenWork {
    /// Takes pairs of one size in. Most of them say whether their prompts vanish: one that was held up must not.
    pub(super) fn add(&mut self, lines: &CostModel, pairs: &[Pair]) {
        let mut hidden: Vec<i128> = pairs.iter().map(|pair| pair.hidden(lines)).collect();
        let vanished = pairs.iter().filter(|pair| pair.vanishes(lines)).count();
        if 2 * vanished > pairs.len() {
            hidden.sort_unstable();
            self.least = self.least.max(hidden.get(hidden.len() / 2).copied());
        } else {
            self.shown.extend(hidden);
            self.shown.sort_unstable();
        }
    }

    /// The median, and no less than the bound; `None` where nothing was measured.
    pub(super) fn median(&self) -> Option<i64> {
        let median = self.shown.get(self.shown.len() / 2).copied();
        // `None` is below every value: a bound counts only where there is one.
        median.max(self.least).map(nanos)
    }

    /// How far apart they lie; `None` where all prompts vanished, or nothing was measured.
    pub(super) fn spread(&self) -> Option<HiddenSpread> {
        let pairs = self.shown.len();
        let at = |place: usize| self.shown.get(place).copied().map(nanos);
        let quarter = pairs / 4;
        Some(HiddenSpread { pairs, least: at(quarter)?, most: at(pairs.checked_sub(quarter + 1)?)? })
    }
}

fn nanos(hidden: i128) -> i64 {
    i64::try_from(hidden).unwrap_or(if hidden < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of so many ms of prompts, of which `hidden` ms hide, each held up by so many ms at one of its three steps.
    fn pairs(prompts: u64, hidden: u64, held_up: &[(usize, u64)]) -> Vec<Pair> {
        let ms = |count: u64| Nanos(count * 1_000_000);
        let mut pairs = Vec::new();
        for (step, late) in held_up {
            let mut spans = [prompts + 10, 60, 60 + prompts.saturating_sub(hidden)];
            spans[*step] += late;
            let [prefill, decode, mixed] = spans.map(ms);
            pairs.push(Pair { prefill, decode, mixed });
        }
        pairs
    }

    fn lines() -> CostModel {
        CostModel { prefill_base: Nanos(10_000_000), ..CostModel::default() }
    }

    #[test]
    fn one_step_that_is_held_up_decides_nothing() {
        // A late decode looks as if all prompts had vanished, and more; a late mixed step as if mixing cost.
        for held_up in [(0, 400), (1, 400), (2, 400)] {
            let mut work = HiddenWork::default();
            work.add(&lines(), &pairs(100, 28, &[(0, 0), held_up, (1, 1), (2, 1), (0, 1)]));
            assert!(
                work.median().is_some_and(|hidden| (27_000_000..=29_000_000).contains(&hidden)),
                "{held_up:?}"
            );
        }
    }

    #[test]
    fn prompts_that_vanish_are_a_bound_and_not_a_value() {
        let mut work = HiddenWork::default();
        let quiet = [(0, 0), (0, 0), (0, 0)];
        assert_eq!((work.median(), work.spread()), (None, None), "nothing was measured");
        work.add(&lines(), &pairs(20, 28, &quiet));
        assert_eq!((work.median(), work.spread()), (Some(20_000_000), None));
        // Decodes that are a little longer at times show no value either.
        work.add(&lines(), &pairs(22, 28, &[(2, 1), (2, 1), (1, 1)]));
        assert_eq!((work.median(), work.spread()), (Some(21_000_000), None));
        work.add(&lines(), &pairs(100, 28, &quiet));
        assert_eq!(work.median(), Some(28_000_000));
    }

    #[test]
    fn the_spread_is_the_middle_half_of_what_was_shown() {
        let mut work = HiddenWork::default();
        work.add(
            &lines(),
            &pairs(100, 28, &[(0, 5), (2, 90), (0, 3), (0, 4), (0, 2), (0, 200), (0, 1), (0, 6)]),
        );
        let spread = HiddenSpread { pairs: 8, least: 30_000_000, most: 33_000_000 };
        assert_eq!((work.spread(), work.median()), (Some(spread), Some(32_000_000)));
    }
}
