//! Fits the cost model to measured steps, and follows the engine while it serves.
//!
//! Three lines through three clouds of samples: prefill steps, decode steps, steps that do both. They share
//! their slopes (a prompt token or a sequence costs the same in any step) and differ in their bases, which is
//! an analysis of covariance: slopes from the spread within each cloud, bases from its mean. A step's error
//! grows with its length, so a step counts by the inverse of its estimate; else a few long prefills would
//! decide what a decode of one row costs.
//!
//! Where what few rows hide was measured apart, it is followed apart, by those of the mixed steps that show it: they
//! take these slopes and have no part in them beyond that of all mixed steps.
//!
//! Integers throughout: the same samples give the same model on every machine.

use base::{Nanos, TokenCount};

use crate::cost::{CostModel, FEW_SEQUENCES, Sample};

/// Largest batch and duration that count; beyond them a measurement is a broken clock.
const BATCH_MAX: u64 = 1 << 20;
const ELAPSED_MAX: i128 = 600 * 1_000_000_000;
/// A step's weight times its estimate in ns. Steps under a microsecond count alike.
const WEIGHT: i128 = 1 << 40;
const ESTIMATE_MIN: i128 = 1 << 10;
/// Samples of a kind after which older ones count half: the model follows the engine within as many steps.
const WINDOW: u64 = 512;
/// How far from its estimate a step may pull the lines: an outlier counts as this many times the estimate.
const PULL_MAX: i128 = 4;
/// Weight, in samples of each kind, of the model one starts from.
const PRIOR: u64 = 32;
/// Mixed steps differ most from machine to machine: one starts from fewer.
const PRIOR_MIXED: u64 = 8;
/// Prompts of a step of few rows take at most so many times `b_d`: of longer ones an error of `a_p` drowns `H`.
const FEW_BASES_MAX: i128 = 4;
/// Bits below a sum of squares that rounding may have made of its spread.
const SPREAD_BITS: u32 = 30;
/// Bits of a sum such that the difference of two products of sums fits.
const SUM_BITS: u32 = 62;

/// A step as a point: prompt tokens, sequences, ns.
#[derive(Clone, Copy, Debug)]
struct Point {
    kind: usize,
    tokens: i128,
    sequences: i128,
    elapsed: i128,
}

const PREFILL: usize = 0;
const DECODE: usize = 1;
const MIXED: usize = 2;
const KINDS: usize = 3;

impl Point {
    fn new(kind: usize, tokens: u64, sequences: u64, elapsed: Nanos) -> Self {
        Self {
            kind,
            tokens: tokens.min(BATCH_MAX).into(),
            sequences: sequences.min(BATCH_MAX).into(),
            elapsed: i128::from(elapsed.0).min(ELAPSED_MAX),
        }
    }

    /// What the model says of the step, if a mixed one hides so much.
    fn estimate(&self, model: &CostModel, hidden: i64) -> i128 {
        let prompts = i128::from(model.prefill_per_token.0) * self.tokens;
        let decodes = i128::from(model.decode_per_sequence.0) * self.sequences;
        let rest = match self.kind {
            PREFILL => i128::from(model.prefill_base.0) + prompts,
            DECODE => model.decode_base.0.into(),
            _ => i128::from(model.decode_base.0) + (prompts - i128::from(hidden)).max(0),
        };
        (decodes + rest).max(ESTIMATE_MIN)
    }

    /// Whether a mixed step lies on its line. One whose prompts vanish behind its decodes for the most part
    /// shows no more than that `H` is at least what it hides.
    fn tells_hidden(&self, model: &CostModel, hidden: i64) -> bool {
        let prompts = i128::from(model.prefill_per_token.0) * self.tokens;
        let decodes = i128::from(model.decode_per_sequence.0) * self.sequences;
        let seen = self.elapsed - decodes - i128::from(model.decode_base.0);
        2 * seen >= prompts || prompts - seen > i128::from(hidden)
    }

    /// What the model says that few rows hide, where this is a step that can tell.
    fn hidden_beside_few(&self, model: &CostModel) -> Option<i64> {
        let prompts = i128::from(model.prefill_per_token.0) * self.tokens;
        let is_few = self.kind == MIXED
            && self.sequences <= i128::from(FEW_SEQUENCES)
            && prompts <= FEW_BASES_MAX * i128::from(model.decode_base.0);
        model.mixed_hidden_few.filter(|_| is_few)
    }
}

impl From<Sample> for Point {
    fn from(sample: Sample) -> Self {
        match sample {
            Sample::Prefill { tokens, elapsed } => Self::new(PREFILL, tokens.0, 0, elapsed),
            Sample::Decode { sequences, elapsed } => Self::new(DECODE, 0, sequences, elapsed),
            Sample::Mixed { tokens, sequences, elapsed } => Self::new(MIXED, tokens.0, sequences, elapsed),
        }
    }
}

/// Weighted sums over the points of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    count: u64,
    weight: i128,
    tokens: i128,
    sequences: i128,
    elapsed: i128,
    products: Products,
}

/// Sums of products, or what is left of them beside a mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Products {
    tokens_2: i128,
    sequences_2: i128,
    tokens_sequences: i128,
    tokens_elapsed: i128,
    sequences_elapsed: i128,
}

impl Products {
    /// Each member of this one and the other's.
    fn zip(self, other: Self, with: impl Fn(i128, i128) -> i128) -> Self {
        Self {
            tokens_2: with(self.tokens_2, other.tokens_2),
            sequences_2: with(self.sequences_2, other.sequences_2),
            tokens_sequences: with(self.tokens_sequences, other.tokens_sequences),
            tokens_elapsed: with(self.tokens_elapsed, other.tokens_elapsed),
            sequences_elapsed: with(self.sequences_elapsed, other.sequences_elapsed),
        }
    }

    /// ns per prompt token and per sequence, neither negative; 0 where batches do not differ, beside sums
    /// of `squares`.
    fn slopes(self, squares: Self) -> (i128, i128) {
        let most = [self.tokens_elapsed, self.sequences_elapsed, squares.tokens_2, squares.sequences_2];
        let bits = most.into_iter().map(|sum| i128::BITS - sum.unsigned_abs().leading_zeros()).max();
        let shift = bits.unwrap_or(0).saturating_sub(SUM_BITS);
        let scaled = |sums: Self| sums.zip(sums, |sum, _| sum >> shift);
        let (spread, squares) = (scaled(self), scaled(squares));
        let alone = |square: i128, product: i128, whole: i128| {
            if square > whole >> SPREAD_BITS { divide(product, square).max(0) } else { 0 }
        };
        let tokens = alone(spread.tokens_2, spread.tokens_elapsed, squares.tokens_2);
        let sequences = alone(spread.sequences_2, spread.sequences_elapsed, squares.sequences_2);
        let Self { tokens_2: tt, sequences_2: ss, tokens_sequences: ts, .. } = spread;
        let (te, se) = (spread.tokens_elapsed, spread.sequences_elapsed);
        let determinant = tt * ss - ts * ts;
        if determinant <= (squares.tokens_2 * squares.sequences_2) >> SPREAD_BITS {
            return (tokens, sequences);
        }
        let both = (divide(te * ss - se * ts, determinant), divide(se * tt - te * ts, determinant));
        match (both.0 < 0, both.1 < 0) {
            (true, _) => (0, sequences),
            (_, true) => (tokens, 0),
            _ => both,
        }
    }
}

impl Sums {
    /// Takes a step in, with bounded influence, if it lies on the line of a model that hides so much.
    fn take(&mut self, mut point: Point, model: &CostModel, hidden: i64) {
        let estimate = point.estimate(model, hidden);
        point.elapsed = point.elapsed.clamp(estimate / PULL_MAX, estimate.saturating_mul(PULL_MAX));
        if point.kind == MIXED && !point.tells_hidden(model, hidden) {
            return;
        }
        self.add(&point, (WEIGHT / estimate).max(1));
        if self.count >= WINDOW {
            self.halve();
        }
    }

    fn add(&mut self, point: &Point, weight: i128) {
        let Point { tokens, sequences, elapsed, .. } = *point;
        let products = Products {
            tokens_2: weight * tokens * tokens,
            sequences_2: weight * sequences * sequences,
            tokens_sequences: weight * tokens * sequences,
            tokens_elapsed: weight * tokens * elapsed,
            sequences_elapsed: weight * sequences * elapsed,
        };
        self.count += 1;
        self.weight += weight;
        self.tokens += weight * tokens;
        self.sequences += weight * sequences;
        self.elapsed += weight * elapsed;
        self.products = self.products.zip(products, |sum, product| sum + product);
    }

    fn halve(&mut self) {
        self.count /= 2;
        for sum in [&mut self.weight, &mut self.tokens, &mut self.sequences, &mut self.elapsed] {
            *sum /= 2;
        }
        self.products = self.products.zip(self.products, |sum, _| sum / 2);
    }

    /// The products beside those of the mean.
    fn spread(&self) -> Products {
        let weight = self.weight.max(1);
        let of_mean = Products {
            tokens_2: self.tokens * self.tokens / weight,
            sequences_2: self.sequences * self.sequences / weight,
            tokens_sequences: self.tokens * self.sequences / weight,
            tokens_elapsed: self.tokens * self.elapsed / weight,
            sequences_elapsed: self.sequences * self.elapsed / weight,
        };
        self.products.zip(of_mean, |sum, of_mean| sum - of_mean)
    }

    /// The base that fits best with these slopes.
    fn base(&self, slopes: (i128, i128)) -> i128 {
        divide(self.elapsed - slopes.0 * self.tokens - slopes.1 * self.sequences, self.weight.max(1))
    }
}

/// Follows the engine: least squares over a window that forgets, each step with bounded influence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refit {
    kinds: [Sums; KINDS],
    /// The mixed steps of few rows and short prompts, where these are told apart.
    few: Sums,
}

impl CostModel {
    /// The model of least squares through `samples`. What no sample tells keeps the default, and without
    /// mixed steps `H` is 0; slopes and bases are never negative, whatever the samples say.
    pub fn fit(samples: &[Sample]) -> Self {
        let points: Vec<Point> = samples.iter().map(|sample| Point::from(*sample)).collect();
        let mut refit = Refit::default();
        for point in points.iter().filter(|point| point.kind != MIXED) {
            refit.kinds[point.kind].add(point, WEIGHT / point.elapsed.max(ESTIMATE_MIN));
        }
        let mut model = refit.solve(Self { mixed_hidden: 0, ..Self::default() });
        // Weights come from estimates and estimates from weights; mixed steps need lines to stand on.
        for _ in 0..4 {
            refit = Refit::default();
            for point in &points {
                refit.add(*point, &model);
            }
            model = refit.solve(model);
        }
        model
    }
}

impl Refit {
    /// Starts from a model that counts as some tens of samples.
    pub(crate) fn new(model: &CostModel) -> Self {
        let mut refit = Self::default();
        for i in 1..=PRIOR {
            let (tokens, sequences) = (TokenCount(32 * i), i);
            refit.add(Point::new(PREFILL, tokens.0, 0, model.prefill(tokens)), model);
            refit.add(Point::new(DECODE, 0, sequences, model.decode(sequences)), model);
        }
        // Twice the tokens that vanish, so that the steps lie on their line.
        let twice_free = |hidden: i64| {
            let free = hidden.max(0).unsigned_abs() / model.prefill_per_token.0.max(1);
            free.min(BATCH_MAX) * 2
        };
        let all = CostModel { mixed_hidden_few: None, ..*model };
        for i in 1..=PRIOR_MIXED {
            let tokens = TokenCount(twice_free(model.mixed_hidden) + 64 * i);
            refit.add(Point::new(MIXED, tokens.0, i, all.mixed(tokens, i)), &all);
        }
        if let Some(hidden) = model.mixed_hidden_few {
            for i in 1..=PRIOR_MIXED {
                // Few tokens: slopes that are found later move it little.
                let tokens = TokenCount(twice_free(hidden) + 8 * i);
                let point = Point::new(MIXED, tokens.0, i, model.mixed(tokens, i));
                refit.few.take(point, model, hidden);
            }
        }
        refit
    }

    /// Takes a measured step in and gives the model that follows from it.
    pub(crate) fn observe(&mut self, sample: Sample, model: CostModel) -> CostModel {
        self.add(Point::from(sample), &model);
        self.solve(model)
    }

    fn add(&mut self, point: Point, model: &CostModel) {
        if let Some(hidden) = point.hidden_beside_few(model) {
            self.few.take(point, model, hidden);
        }
        self.kinds[point.kind].take(point, model, model.mixed_hidden);
    }

    /// Slopes from the spread within each kind, bases from its mean; a kind whose base would be negative is
    /// fitted through the origin.
    fn solve(&self, fallback: CostModel) -> CostModel {
        let known = self.kinds.map(|sums| sums.count > 0);
        let mut has_base = known;
        let mut slopes = self.slopes(has_base);
        for _ in 0..KINDS {
            let below = |kind: &usize| has_base[*kind] && self.kinds[*kind].base(slopes) < 0;
            let Some(kind) = (0..KINDS).find(below) else { break };
            has_base[kind] = false;
            slopes = self.slopes(has_base);
        }
        let base = |kind: usize| if has_base[kind] { self.kinds[kind].base(slopes) } else { 0 };
        let mut model = fallback;
        if known[PREFILL] {
            (model.prefill_per_token, model.prefill_base) = (nanos(slopes.0), nanos(base(PREFILL)));
        }
        if known[DECODE] {
            (model.decode_per_sequence, model.decode_base) = (nanos(slopes.1), nanos(base(DECODE)));
        }
        let decode_base = i128::from(model.decode_base.0);
        let hidden = |base: i128| (decode_base - base).clamp(-ELAPSED_MAX, ELAPSED_MAX) as i64;
        if known[MIXED] {
            model.mixed_hidden = hidden(base(MIXED));
        }
        if self.few.count > 0 {
            model.mixed_hidden_few = Some(hidden(self.few.base(slopes).max(0)));
        }
        model
    }

    /// ns per prompt token and per sequence.
    fn slopes(&self, has_base: [bool; KINDS]) -> (i128, i128) {
        let mut spread = Products::default();
        let mut squares = Products::default();
        for (sums, has_base) in self.kinds.iter().zip(has_base) {
            let own = if has_base { sums.spread() } else { sums.products };
            spread = spread.zip(own, |sum, own| sum + own);
            squares = squares.zip(sums.products, |sum, own| sum + own);
        }
        spread.slopes(squares)
    }
}

/// To the nearest.
fn divide(dividend: i128, divisor: i128) -> i128 {
    (dividend + divisor / 2).div_euclid(divisor)
}

fn nanos(value: i128) -> Nanos {
    Nanos(value.clamp(0, ELAPSED_MAX) as u64)
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
            mixed_hidden_few: None,
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
        steps_of(truth, count, |i| 32 + 37 * (i % 50))
    }

    /// The same with prompts of so many tokens.
    fn steps_of(truth: &CostModel, count: u64, tokens: fn(u64) -> u64) -> impl Iterator<Item = Sample> {
        (0..count).map(move |i| {
            let (tokens, sequences) = (TokenCount(tokens(i)), 1 + i * 7 % 30);
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

    /// An engine whose steps of few rows are bound by reading the weights, and those of many by arithmetic.
    const HIDES_BESIDE_FEW: CostModel = CostModel {
        prefill_per_token: Nanos(3_400_000),
        prefill_base: Nanos(10_000_000),
        decode_per_sequence: Nanos(2_900_000),
        decode_base: Nanos(52_000_000),
        mixed_hidden: -9_600_000,
        mixed_hidden_few: Some(28_000_000),
    };

    #[test]
    fn what_few_rows_hide_is_followed_apart_and_changes_nothing_else() {
        let follow = |start: CostModel| {
            let mut refit = Refit::new(&start);
            let samples = steps_of(&HIDES_BESIDE_FEW, 1_500, |i| 16 + 5 * (i % 9));
            samples.fold(start, |model, sample| refit.observe(sample, model))
        };
        let start = CostModel { mixed_hidden_few: Some(-9_600_000), ..HIDES_BESIDE_FEW };
        let model = follow(start);
        let base = |model: &CostModel| model.mixed_base(TokenCount(40)).0;
        assert_eq!((base(&HIDES_BESIDE_FEW), base(&start)), (24_000_000, 61_600_000));
        assert!(base(&model).abs_diff(24_000_000) < 4_000_000, "{model:?}");
        let alike = follow(CostModel { mixed_hidden_few: None, ..start });
        assert_eq!(alike, CostModel { mixed_hidden_few: None, ..model });
    }

    #[test]
    fn long_prompts_and_many_rows_tell_nothing_of_few() {
        let model = HIDES_BESIDE_FEW;
        for (tokens, sequences, tells) in [(512, 4, false), (40, 9, false), (40, 8, true)] {
            let mut refit = Refit::new(&model);
            let elapsed = Nanos(model.mixed(TokenCount(tokens), sequences).0 + 20_000_000);
            refit.observe(Sample::Mixed { tokens: TokenCount(tokens), sequences, elapsed }, model);
            assert_eq!(refit.few != Refit::new(&model).few, tells, "{tokens} tokens, {sequences} rows");
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
