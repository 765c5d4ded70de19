//! The cost model: two lines from batch to duration (RelServe, Eq. 9), fitted and refitted.
//!
//! Integer nanoseconds, so that a plan never depends on rounding. It must not know where the
//! durations were measured.

use base::{Nanos, TokenCount};
use serde::{Deserialize, Serialize};

/// Estimated device time of a prefill batch and of one decode step (RelServe, Eq. 9).
///
/// ```text
/// prefill = a_p * utok + b_p        decode = a_d * req + b_d
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostModel {
    /// `a_p`: ns per prompt token that the prefix cache does not supply.
    pub prefill_per_token: Nanos,
    /// `b_p`: ns per prefill step.
    pub prefill_base: Nanos,
    /// `a_d`: ns per sequence of a decode step.
    pub decode_per_sequence: Nanos,
    /// `b_d`: ns per decode step.
    pub decode_base: Nanos,
}

impl Default for CostModel {
    /// What the traces use (OPT-13B on one A100-40GB); any real engine is measured first.
    fn default() -> Self {
        Self {
            prefill_per_token: Nanos(100_000),
            prefill_base: Nanos(10_000_000),
            decode_per_sequence: Nanos(450_000),
            decode_base: Nanos(25_000_000),
        }
    }
}

/// A measured step of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// A prefill step.
    Prefill {
        /// Prompt tokens computed.
        tokens: TokenCount,
        /// How long it took.
        elapsed: Nanos,
    },
    /// A decode step.
    Decode {
        /// Rows extended.
        sequences: u64,
        /// How long it took.
        elapsed: Nanos,
    },
}

impl CostModel {
    /// `L^prefill(p)` of Eq. 9.
    pub fn prefill(&self, uncached: TokenCount) -> Nanos {
        line(self.prefill_per_token, self.prefill_base, uncached.0)
    }

    /// `L^decode(d)` of Eq. 9.
    pub fn decode(&self, sequences: u64) -> Nanos {
        line(self.decode_per_sequence, self.decode_base, sequences)
    }

    /// The model of least squares through `samples`. A kind with no sample keeps the default; slopes
    /// and intercepts are never negative, whatever the samples say.
    pub fn fit(samples: &[Sample]) -> Self {
        let mut fitter = Refit::empty();
        for sample in samples {
            fitter.add(*sample);
        }
        fitter.solve(Self::default())
    }
}

/// `slope * x + base`, at most the longest span.
fn line(slope: Nanos, base: Nanos, x: u64) -> Nanos {
    Nanos(slope.0.saturating_mul(x).saturating_add(base.0))
}

/// Sums of a least-squares line, in integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    n: i128,
    x: i128,
    y: i128,
    xx: i128,
    xy: i128,
}

/// Largest batch and duration that count; beyond them a measurement is a broken clock.
const X_MAX: i128 = 1 << 24;
const Y_MAX: i128 = 600 * 1_000_000_000;
/// Samples after which older ones count half: the model follows the engine within as many steps.
const WINDOW: i128 = 512;
/// How far from its estimate a step may pull the line: an outlier counts as this many times the estimate.
const PULL_MAX: i128 = 4;
/// Weight, in samples, of the model one starts from.
const PRIOR: u64 = 32;

impl Sums {
    fn add(&mut self, x: u64, y: i128) {
        let (x, y) = (i128::from(x).min(X_MAX), y.clamp(0, Y_MAX));
        self.n += 1;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.xy += x * y;
    }

    fn halve(&mut self) {
        for sum in [&mut self.n, &mut self.x, &mut self.y, &mut self.xx, &mut self.xy] {
            *sum /= 2;
        }
    }

    /// Slope and intercept, neither negative; `None` without samples.
    fn solve(&self) -> Option<(Nanos, Nanos)> {
        if self.n <= 0 {
            return None;
        }
        let spread = self.n * self.xx - self.x * self.x;
        let mut slope = if spread > 0 { (self.n * self.xy - self.x * self.y) / spread } else { 0 };
        let mut base = (self.y - slope * self.x) / self.n;
        if base < 0 && self.xx > 0 {
            // Through the origin: the best line whose intercept is not negative.
            (slope, base) = (self.xy / self.xx, 0);
        }
        if slope < 0 {
            (slope, base) = (0, self.y / self.n);
        }
        let clip = |value: i128| Nanos(u64::try_from(value.clamp(0, Y_MAX)).expect("clamped to a u64"));
        Some((clip(slope), clip(base)))
    }
}

/// Follows the engine: least squares over a window that forgets, each step with bounded influence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refit {
    prefill: Sums,
    decode: Sums,
}

impl Refit {
    fn empty() -> Self {
        Self { prefill: Sums::default(), decode: Sums::default() }
    }

    /// Starts from a model that counts as some tens of samples.
    pub fn new(model: &CostModel) -> Self {
        let mut refit = Self::empty();
        for i in 1..=PRIOR {
            refit.prefill.add(i * 32, i128::from(model.prefill(TokenCount(i * 32)).0));
            refit.decode.add(i, i128::from(model.decode(i).0));
        }
        refit
    }

    fn add(&mut self, sample: Sample) {
        match sample {
            Sample::Prefill { tokens, elapsed } => self.prefill.add(tokens.0, i128::from(elapsed.0)),
            Sample::Decode { sequences, elapsed } => self.decode.add(sequences, i128::from(elapsed.0)),
        }
    }

    /// Takes a measured step in and gives the model that follows from it.
    pub fn observe(&mut self, sample: Sample, model: CostModel) -> CostModel {
        let (sums, estimate, x, elapsed) = match sample {
            Sample::Prefill { tokens, elapsed } => {
                (&mut self.prefill, model.prefill(tokens), tokens.0, elapsed)
            }
            Sample::Decode { sequences, elapsed } => {
                (&mut self.decode, model.decode(sequences), sequences, elapsed)
            }
        };
        let estimate = i128::from(estimate.0).max(1);
        sums.add(x, i128::from(elapsed.0).clamp(estimate / PULL_MAX, estimate * PULL_MAX));
        if sums.n >= WINDOW {
            sums.halve();
        }
        self.solve(model)
    }

    fn solve(&self, fallback: CostModel) -> CostModel {
        let mut model = fallback;
        if let Some((slope, base)) = self.prefill.solve() {
            (model.prefill_per_token, model.prefill_base) = (slope, base);
        }
        if let Some((slope, base)) = self.decode.solve() {
            (model.decode_per_sequence, model.decode_base) = (slope, base);
        }
        model
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefill(tokens: u64, elapsed: u64) -> Sample {
        Sample::Prefill { tokens: TokenCount(tokens), elapsed: Nanos(elapsed) }
    }

    fn decode(sequences: u64, elapsed: u64) -> Sample {
        Sample::Decode { sequences, elapsed: Nanos(elapsed) }
    }

    #[test]
    fn a_fit_finds_the_lines_that_made_the_samples() {
        let truth = CostModel {
            prefill_per_token: Nanos(70),
            prefill_base: Nanos(900),
            decode_per_sequence: Nanos(5),
            decode_base: Nanos(300),
        };
        let mut samples = Vec::new();
        for i in [1, 5, 20, 100, 400] {
            samples.push(prefill(i, truth.prefill(TokenCount(i)).0));
            samples.push(decode(i, truth.decode(i).0));
        }
        assert_eq!(CostModel::fit(&samples), truth);
    }

    #[test]
    fn garbage_gives_no_negative_slope_and_no_overflow() {
        let falling = CostModel::fit(&[prefill(1, 1_000), prefill(100, 10)]);
        assert_eq!(falling.prefill_per_token, Nanos(0));
        let steep = CostModel::fit(&[prefill(10, 0), prefill(20, 1_000)]);
        assert_eq!(steep.prefill_base, Nanos(0));
        let broken = CostModel::fit(&[decode(u64::MAX, u64::MAX), decode(0, 0), decode(0, u64::MAX)]);
        assert!(broken.decode(u64::MAX) <= Nanos::MAX);
        assert_eq!(CostModel::fit(&[]), CostModel::default());
    }

    #[test]
    fn one_stalled_step_hardly_moves_the_model_and_a_slower_engine_is_followed() {
        let start = CostModel::default();
        let mut refit = Refit::new(&start);
        let shaken = refit.observe(decode(16, u64::MAX), start);
        assert!(shaken.decode(16).0 < start.decode(16).0 * 5 / 4);
        let mut model = shaken;
        for i in 0..4_096_u64 {
            let sequences = 1 + i % 64;
            model = refit.observe(decode(sequences, 2 * start.decode(sequences).0), model);
        }
        let (got, want) = (model.decode(40).0, 2 * start.decode(40).0);
        assert!(got.abs_diff(want) < want / 50, "{got} against {want}");
    }
}
