//! The cost model: two lines from batch to duration (RelServe, Eq. 9), fitted and refitted.
//!
//! Integer nanoseconds, so that a plan never depends on rounding. It must not know where the
//! durations were measured.

use base::{Nanos, TokenCount};
use serde::{Deserialize, Serialize};

/// Estimated device time of a prefill batch and of one decode step (RelServe, Eq. 9), and of a step
/// that does both (no equation of the paper: its engine never mixes).
///
/// ```text
/// prefill = a_p * utok + b_p        decode = a_d * req + b_d
/// mixed   = a_d * req + b_d + max(0, a_p * utok - H)
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
    /// `H`: ns of prompt work that a mixed step hides behind its decodes. Below `-b_p`, a mixed step
    /// takes longer than a prefill and a decode apart.
    #[serde(default)]
    pub mixed_hidden: i64,
}

impl Default for CostModel {
    /// What the traces use (OPT-13B on one A100-40GB); any real engine is measured first.
    fn default() -> Self {
        Self {
            prefill_per_token: Nanos(100_000),
            prefill_base: Nanos(10_000_000),
            decode_per_sequence: Nanos(450_000),
            decode_base: Nanos(25_000_000),
            mixed_hidden: 15_000_000,
        }
    }
}

/// A measured step.
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
    /// A step that does both.
    Mixed {
        /// Prompt tokens computed.
        tokens: TokenCount,
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

    /// The duration of a step of `uncached` prompt tokens and `sequences` decodes; either may be 0.
    pub fn mixed(&self, uncached: TokenCount, sequences: u64) -> Nanos {
        match (uncached.0, sequences) {
            (_, 0) => self.prefill(uncached),
            (0, _) => self.decode(sequences),
            _ => {
                let prompts = i128::from(self.prefill_per_token.0) * i128::from(uncached.0);
                let seen = (prompts - i128::from(self.mixed_hidden)).max(0);
                Nanos(self.decode(sequences).0.saturating_add(u64::try_from(seen).unwrap_or(u64::MAX)))
            }
        }
    }

    /// The same engine, of whose difference `b_d - b_p` a mixed step hides `permille` thousandths
    /// (1000: the roofline; 0: nothing).
    pub fn hiding(self, permille: u64) -> Self {
        let slack = self.decode_base.saturating_sub(self.prefill_base).0;
        let hidden = u128::from(slack) * u128::from(permille) / 1_000;
        Self { mixed_hidden: i64::try_from(hidden).unwrap_or(i64::MAX), ..self }
    }

    /// `H / (b_d - b_p)` in thousandths, for reports; `None` where a decode step has no more overhead
    /// than a prefill.
    pub fn hide_permille(&self) -> Option<i64> {
        let slack = self.decode_base.0.checked_sub(self.prefill_base.0).filter(|slack| *slack > 0)?;
        i64::try_from(i128::from(self.mixed_hidden) * 1_000 / i128::from(slack)).ok()
    }

    /// What one mixed step takes less than a prefill and a decode apart, when its prompts are long: ns,
    /// negative where mixing costs.
    pub fn mixing_saves(&self) -> i64 {
        i64::try_from(self.prefill_base.0).unwrap_or(i64::MAX).saturating_add(self.mixed_hidden)
    }

    /// The model of least squares through `samples`, in their order. A line with no sample keeps the
    /// default, and without mixed steps `H` is 0; slopes and intercepts are never negative, whatever the
    /// samples say.
    pub fn fit(samples: &[Sample]) -> Self {
        let mut fitter = Refit::empty();
        for sample in samples {
            fitter.add(*sample);
        }
        let lines = fitter.solve(Self { mixed_hidden: 0, ..Self::default() });
        for sample in samples {
            fitter.add_mixed(*sample, &lines);
        }
        fitter.solve(lines)
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
/// Mixed steps over which `H` follows the engine.
const MIXED_WINDOW: i128 = 16;
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
    /// `H` so far, ns; `None` before the first mixed step.
    hidden: Option<i128>,
}

impl Refit {
    fn empty() -> Self {
        Self { prefill: Sums::default(), decode: Sums::default(), hidden: None }
    }

    /// Starts from a model that counts as some tens of samples.
    pub fn new(model: &CostModel) -> Self {
        let mut refit = Self { hidden: Some(i128::from(model.mixed_hidden)), ..Self::empty() };
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
            Sample::Mixed { .. } => {}
        }
    }

    /// Moves `H` towards what a mixed step shows of it. One whose prompts vanish behind its decodes
    /// only shows that `H` is at least as large as they are.
    fn add_mixed(&mut self, sample: Sample, lines: &CostModel) {
        let Sample::Mixed { tokens, sequences, elapsed } = sample else { return };
        let decode = i128::from(lines.decode(sequences).0);
        let prompts = i128::from(lines.prefill_per_token.0) * i128::from(tokens.0).min(X_MAX);
        let apart = decode + prompts;
        let seen = i128::from(elapsed.0).clamp(apart / PULL_MAX, apart.saturating_mul(PULL_MAX));
        let shown = apart - seen;
        let hidden = self.hidden.unwrap_or(shown);
        let is_bound = seen <= decode;
        if !is_bound || shown > hidden {
            self.hidden = Some(hidden + (shown - hidden) / MIXED_WINDOW);
        }
    }

    /// Takes a measured step in and gives the model that follows from it.
    pub fn observe(&mut self, sample: Sample, model: CostModel) -> CostModel {
        self.add_mixed(sample, &model);
        let (sums, estimate, x, elapsed) = match sample {
            Sample::Prefill { tokens, elapsed } => {
                (&mut self.prefill, model.prefill(tokens), tokens.0, elapsed)
            }
            Sample::Decode { sequences, elapsed } => {
                (&mut self.decode, model.decode(sequences), sequences, elapsed)
            }
            Sample::Mixed { .. } => return self.solve(model),
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
        if let Some(hidden) = self.hidden {
            model.mixed_hidden = hidden.clamp(-Y_MAX, Y_MAX) as i64;
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
            mixed_hidden: 0,
        };
        let mut samples = Vec::new();
        for i in [1, 5, 20, 100, 400] {
            samples.push(prefill(i, truth.prefill(TokenCount(i)).0));
            samples.push(decode(i, truth.decode(i).0));
        }
        assert_eq!(CostModel::fit(&samples), truth);
    }

    #[test]
    fn what_a_mixed_step_hides_is_found_and_followed() {
        let truth = CostModel::default().hiding(400);
        assert_eq!(truth.mixed_hidden, 6_000_000);
        let start = truth.hiding(1_000);
        let mut refit = Refit::new(&start);
        let mut model = start;
        for i in 0..400 {
            let (tokens, sequences) = (TokenCount(32 + 8 * (i % 50)), 1 + i % 30);
            let elapsed = truth.mixed(tokens, sequences);
            model = refit.observe(Sample::Mixed { tokens, sequences, elapsed }, model);
        }
        assert!((model.mixed_hidden - truth.mixed_hidden).abs() < 200_000, "{model:?}");
        assert_eq!(model.prefill(TokenCount(7)), truth.prefill(TokenCount(7)));
        // An engine on which mixing costs: a prefill and a decode apart would take less.
        let costly = Sample::Mixed { tokens: TokenCount(100), sequences: 1, elapsed: Nanos(75_450_000) };
        for _ in 0..200 {
            model = refit.observe(costly, model);
        }
        assert!(model.mixing_saves() < 0, "{model:?}");
    }

    #[test]
    fn garbage_gives_no_negative_slope_and_no_overflow() {
        let falling = CostModel::fit(&[prefill(1, 1_000), prefill(100, 10)]);
        assert_eq!(falling.prefill_per_token, Nanos(0));
        let steep = CostModel::fit(&[prefill(10, 0), prefill(20, 1_000)]);
        assert_eq!(steep.prefill_base, Nanos(0));
        let broken = CostModel::fit(&[decode(u64::MAX, u64::MAX), decode(0, 0), decode(0, u64::MAX)]);
        assert!(broken.decode(u64::MAX) <= Nanos::MAX);
        assert_eq!(CostModel::fit(&[]), CostModel::default().hiding(0));
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
