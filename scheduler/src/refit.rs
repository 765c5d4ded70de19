//! Fits the cost model to measured steps, and follows the engine while it serves.
//!
//! Three lines through three clouds of samples: prefill steps, decode steps, steps that do both. They share their
//! slopes (a prompt token or a sequence costs the same in any step) and differ in their bases, which is an analysis
//! of covariance: slopes from the spread within each cloud, bases from its mean. A step's error grows with its
//! length, so a step counts by the inverse of its estimate; else a few long prefills would decide what a decode
//! of one row costs.
//!
//! Floating point, without fused operations: the same samples give the same model on every machine.

use base::Nanos;

use crate::cost::{CostModel, Sample};

/// Largest batch and duration that count; beyond them a measurement is a broken clock.
const BATCH_MAX: f64 = (1 << 24) as f64;
const ELAPSED_MAX: f64 = 600e9;
/// Samples of a kind after which older ones count half: the model follows the engine within as many steps.
const WINDOW: f64 = 512.0;
/// How far from its estimate a step may pull the lines: an outlier counts as this many times the estimate.
const PULL_MAX: f64 = 4.0;
/// Weight, in samples of each kind, of the model one starts from.
const PRIOR: u64 = 32;
/// Mixed steps change most from machine to machine: one starts from fewer.
const PRIOR_MIXED: u64 = 8;
/// Part of a batch's spread, squared, below which rounding decides.
const SPREAD_MIN: f64 = 1e-9;

/// A step as a point: prompt tokens, sequences, ns.
#[derive(Clone, Copy, Debug)]
struct Point {
    kind: usize,
    tokens: f64,
    sequences: f64,
    elapsed: f64,
}

const PREFILL: usize = 0;
const DECODE: usize = 1;
const MIXED: usize = 2;

impl From<Sample> for Point {
    fn from(sample: Sample) -> Self {
        let (kind, tokens, sequences, elapsed) = match sample {
            Sample::Prefill { tokens, elapsed } => (PREFILL, tokens.0, 0, elapsed),
            Sample::Decode { sequences, elapsed } => (DECODE, 0, sequences, elapsed),
            Sample::Mixed { tokens, sequences, elapsed } => (MIXED, tokens.0, sequences, elapsed),
        };
        Self {
            kind,
            tokens: (tokens as f64).min(BATCH_MAX),
            sequences: (sequences as f64).min(BATCH_MAX),
            elapsed: (elapsed.0 as f64).min(ELAPSED_MAX),
        }
    }
}

/// Weighted sums over the points of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    count: f64,
    weight: f64,
    tokens: f64,
    sequences: f64,
    elapsed: f64,
    tokens_2: f64,
    sequences_2: f64,
    tokens_sequences: f64,
    tokens_elapsed: f64,
    sequences_elapsed: f64,
}

impl Sums {
    fn add(&mut self, point: &Point, weight: f64) {
        let Point { tokens, sequences, elapsed, .. } = *point;
        self.count += 1.0;
        self.weight += weight;
        self.tokens += weight * tokens;
        self.sequences += weight * sequences;
        self.elapsed += weight * elapsed;
        self.tokens_2 += weight * tokens * tokens;
        self.sequences_2 += weight * sequences * sequences;
        self.tokens_sequences += weight * tokens * sequences;
        self.tokens_elapsed += weight * tokens * elapsed;
        self.sequences_elapsed += weight * sequences * elapsed;
    }

    fn halve(&mut self) {
        let Self { count, weight, tokens, sequences, elapsed, .. } = self;
        for sum in [count, weight, tokens, sequences, elapsed] {
            *sum /= 2.0;
        }
        let Self { tokens_2, sequences_2, tokens_sequences, tokens_elapsed, sequences_elapsed, .. } = self;
        for sum in [tokens_2, sequences_2, tokens_sequences, tokens_elapsed, sequences_elapsed] {
            *sum /= 2.0;
        }
    }

    /// The base that fits best with these slopes.
    fn base(&self, slopes: (f64, f64)) -> f64 {
        (self.elapsed - slopes.0 * self.tokens - slopes.1 * self.sequences) / self.weight
    }
}

/// Follows the engine: least squares over a window that forgets, each step with bounded influence.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refit {
    kinds: [Sums; 3],
}

impl CostModel {
    /// The model of least squares through `samples`. What no sample tells keeps the default, and without mixed
    /// steps `H` is 0; slopes and bases are never negative, whatever the samples say.
    pub fn fit(samples: &[Sample]) -> Self {
        let start = Self { mixed_hidden: 0, ..Self::default() };
        let points: Vec<Point> = samples.iter().map(|sample| Point::from(*sample)).collect();
        let apart = points.iter().filter(|point| point.kind != MIXED);
        let mut refit = Refit { kinds: Default::default() };
        for point in apart {
            refit.kinds[point.kind].add(point, 1.0 / point.elapsed.max(1.0));
        }
        let mut model = refit.solve(start);
        // Weights come from estimates, estimates from weights; mixed steps need lines to stand on.
        for _ in 0..4 {
            refit = Refit { kinds: Default::default() };
            for point in &points {
                refit.add(point, &model);
            }
            model = refit.solve(model);
        }
        model
    }
}

impl Refit {
    /// Starts from a model that counts as some tens of samples.
    pub(crate) fn new(model: &CostModel) -> Self {
        let mut refit = Self { kinds: Default::default() };
        let at = |kind, tokens: u64, sequences: u64| Point {
            kind,
            tokens: tokens as f64,
            sequences: sequences as f64,
            elapsed: model.mixed(base::TokenCount(tokens), sequences).0 as f64,
        };
        for i in 1..=PRIOR {
            refit.add(&at(PREFILL, i * 32, 0), model);
            refit.add(&at(DECODE, 0, i), model);
        }
        let free = free_tokens(model);
        for i in 1..=PRIOR_MIXED {
            refit.add(&at(MIXED, free * 2 + i * 64, i), model);
        }
        refit
    }

    /// Takes a measured step in and gives the model that follows from it.
    pub(crate) fn observe(&mut self, sample: Sample, model: CostModel) -> CostModel {
        let mut point = Point::from(sample);
        let estimate = estimate(&point, &model);
        point.elapsed = point.elapsed.clamp(estimate / PULL_MAX, estimate * PULL_MAX);
        self.add(&point, &model);
        self.solve(model)
    }

    fn add(&mut self, point: &Point, model: &CostModel) {
        if point.kind == MIXED && !tells_hidden(point, model) {
            return;
        }
        let sums = &mut self.kinds[point.kind];
        sums.add(point, 1.0 / estimate(point, model));
        if sums.count >= WINDOW {
            sums.halve();
        }
    }

    /// Slopes from the spread within each kind, bases from its mean; a kind whose base would be negative is
    /// fitted through the origin.
    fn solve(&self, fallback: CostModel) -> CostModel {
        let mut has_base = self.kinds.map(|sums| sums.count > 0.0);
        let known = has_base;
        let mut slopes = self.slopes(has_base);
        for _ in 0..self.kinds.len() {
            let below = |kind: usize| has_base[kind] && self.kinds[kind].base(slopes) < 0.0;
            let Some(kind) = (0..self.kinds.len()).find(|kind| below(*kind)) else { break };
            has_base[kind] = false;
            slopes = self.slopes(has_base);
        }
        let base = |kind: usize| if has_base[kind] { self.kinds[kind].base(slopes) } else { 0.0 };
        let mut model = fallback;
        if known[PREFILL] {
            (model.prefill_per_token, model.prefill_base) = (nanos(slopes.0), nanos(base(PREFILL)));
        }
        if known[DECODE] {
            (model.decode_per_sequence, model.decode_base) = (nanos(slopes.1), nanos(base(DECODE)));
        }
        if known[MIXED] {
            let hidden = model.decode_base.0 as f64 - base(MIXED);
            model.mixed_hidden = hidden.round() as i64;
        }
        model
    }

    /// ns per prompt token and per sequence, neither negative; 0 where batches do not differ.
    fn slopes(&self, has_base: [bool; 3]) -> (f64, f64) {
        let (mut tt, mut ss, mut ts, mut te, mut se) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let (mut tokens_2, mut sequences_2) = (0.0, 0.0);
        for (sums, has_base) in self.kinds.iter().zip(has_base).filter(|(sums, _)| sums.count > 0.0) {
            let mean = if has_base { 1.0 / sums.weight } else { 0.0 };
            tt += sums.tokens_2 - sums.tokens * sums.tokens * mean;
            ss += sums.sequences_2 - sums.sequences * sums.sequences * mean;
            ts += sums.tokens_sequences - sums.tokens * sums.sequences * mean;
            te += sums.tokens_elapsed - sums.tokens * sums.elapsed * mean;
            se += sums.sequences_elapsed - sums.sequences * sums.elapsed * mean;
            tokens_2 += sums.tokens_2;
            sequences_2 += sums.sequences_2;
        }
        let alone = |spread: f64, with: f64, square: f64| {
            if spread > square * SPREAD_MIN { (with / spread).max(0.0) } else { 0.0 }
        };
        let (t_alone, s_alone) = (alone(tt, te, tokens_2), alone(ss, se, sequences_2));
        let determinant = tt * ss - ts * ts;
        if determinant <= tokens_2 * sequences_2 * SPREAD_MIN {
            return (t_alone, s_alone);
        }
        let (t, s) = ((te * ss - se * ts) / determinant, (se * tt - te * ts) / determinant);
        match (t < 0.0, s < 0.0) {
            (true, _) => (0.0, s_alone),
            (_, true) => (t_alone, 0.0),
            _ => (t, s),
        }
    }
}

/// Prompt tokens that ride free on a mixed step.
fn free_tokens(model: &CostModel) -> u64 {
    model.mixed_hidden.max(0).unsigned_abs() / model.prefill_per_token.0.max(1)
}

/// What the model says of a step, at least 1 ns.
fn estimate(point: &Point, model: &CostModel) -> f64 {
    let prompts = model.prefill_per_token.0 as f64 * point.tokens;
    let decodes = model.decode_per_sequence.0 as f64 * point.sequences;
    let rest = match point.kind {
        PREFILL => model.prefill_base.0 as f64 + prompts,
        DECODE => model.decode_base.0 as f64,
        _ => model.decode_base.0 as f64 + (prompts - model.mixed_hidden as f64).max(0.0),
    };
    (decodes + rest).max(1.0)
}

/// Whether a mixed step lies on its line. One whose prompts vanish behind its decodes for the most part shows no
/// more than that `H` is at least what it hides.
fn tells_hidden(point: &Point, model: &CostModel) -> bool {
    let prompts = model.prefill_per_token.0 as f64 * point.tokens;
    let decodes = model.decode_base.0 as f64 + model.decode_per_sequence.0 as f64 * point.sequences;
    let seen = point.elapsed - decodes;
    seen >= prompts / 2.0 || prompts - seen > model.mixed_hidden as f64
}

fn nanos(value: f64) -> Nanos {
    Nanos(value.round().clamp(0.0, ELAPSED_MAX) as u64)
}

#[cfg(test)]
mod tests {
    use base::TokenCount;

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

    /// Samples of every kind on an engine that behaves as `truth` says.
    fn steps(truth: &CostModel, count: u64) -> impl Iterator<Item = Sample> {
        (0..count).map(|i| {
            let (tokens, sequences) = (TokenCount(32 + 37 * (i % 50)), 1 + i * 7 % 30);
            match i % 3 {
                0 => Sample::Prefill { tokens, elapsed: truth.prefill(tokens) },
                1 => Sample::Decode { sequences, elapsed: truth.decode(sequences) },
                _ => Sample::Mixed { tokens, sequences, elapsed: truth.mixed(tokens, sequences) },
            }
        })
    }

    #[test]
    fn what_a_mixed_step_hides_is_found_and_followed() {
        for (start, truth) in [(1_000, 400), (400, 0), (0, 1_000), (300, 800)] {
            let (start, truth) = (CostModel::default().hiding(start), CostModel::default().hiding(truth));
            let mut refit = Refit::new(&start);
            let mut model = start;
            for sample in steps(&truth, 1_500) {
                model = refit.observe(sample, model);
            }
            assert!((model.mixed_hidden - truth.mixed_hidden).abs() < 1_000_000, "{start:?} {model:?}");
            let slope = model.prefill_per_token.0;
            assert!(slope.abs_diff(truth.prefill_per_token.0) < 2_000, "{start:?} {model:?}");
            // An engine on which mixing costs: a prefill and a decode apart would take less.
            let costly = CostModel { mixed_hidden: -25_000_000, ..truth };
            for sample in steps(&costly, 6_000) {
                model = refit.observe(sample, model);
            }
            assert!(model.mixing_saves() < -14_000_000, "{model:?}");
        }
    }

    #[test]
    fn mixed_steps_show_the_slopes_where_nothing_else_runs() {
        let truth = CostModel { prefill_per_token: Nanos(150_000), ..CostModel::default() };
        let mut refit = Refit::new(&CostModel::default());
        let mut model = CostModel::default();
        for sample in steps(&truth, 3_000).filter(|sample| matches!(sample, Sample::Mixed { .. })) {
            model = refit.observe(sample, model);
        }
        let (got, want) = (model.prefill_per_token.0, truth.prefill_per_token.0);
        assert!(got.abs_diff(want) < want / 20, "{model:?}");
    }

    #[test]
    fn short_steps_count_as_much_as_long_ones() {
        // Long prefills a tenth slower than the line must not decide what a short step costs.
        let truth = CostModel { prefill_base: Nanos(500_000), ..CostModel::default() };
        let mut samples = Vec::new();
        for i in 1..40 {
            samples.push(prefill(i, truth.prefill(TokenCount(i)).0));
            let tokens = 1_000 + 50 * i;
            let noise = if i % 2 == 0 { 90 } else { 110 };
            samples.push(prefill(tokens, truth.prefill(TokenCount(tokens)).0 * noise / 100));
        }
        let base = CostModel::fit(&samples).prefill_base.0;
        assert!(base.abs_diff(500_000) < 100_000, "{base}");
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
