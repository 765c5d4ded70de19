//! Exponentials: the softmax of attention and of sampling.
//!
//! Written so that the compiler turns them into vectors; compiled once per instruction set.

use half::bf16;

use super::layout::blocks::LANES;
use super::per_isa::per_isa;

/// `e^x` to two units in the last place; 0 below -87, not a number for what is not a number.
///
/// Cephes `expf`: `x = n ln 2 + r`, a polynomial in `r`, and `n` put straight into the exponent.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    /// Adding it leaves `n + 127` in the low bits of the mantissa.
    const ROUND: f32 = 12_582_912.0 + 127.0;
    let held = if x > 88.0 { 88.0 } else { x };
    let held = if held < -87.0 { -87.0 } else { held };
    let shifted = held * LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = held - n * LN2_HIGH - n * LN2_LOW;
    let mut y = 1.987_569_1e-4;
    y = y * r + 1.398_199_9e-3;
    y = y * r + 8.333_452e-3;
    y = y * r + 4.166_579_6e-2;
    y = y * r + 1.666_666_5e-1;
    y = y * r + 0.5;
    y = (y * r * r + r + 1.0) * f32::from_bits(shifted.to_bits() << 23);
    if x < -87.0 { 0.0 } else { y }
}

/// The largest score, in powers of two, that weights can be told from; of more there is no number.
const SCORE_MAX: f32 = 2_097_152.0;

/// `2^(x - max)` to two units in the last place, for a whole `max` not below `x`; 0 below `2^-126`, not a
/// number for what is not a number and for an `x` above [`SCORE_MAX`].
///
/// Cephes `exp2f`: `x = n + r`, a polynomial in `r`, and `n - max` put straight into the exponent: the
/// mantissa depends on `x` alone, so weights under one maximum are those under another times an exact power
/// of two.
#[inline(always)]
fn exp2(x: f32, max: i32) -> f32 {
    /// Adding it leaves `n` in the low bits of the mantissa.
    const ROUND: f32 = 12_582_912.0;
    let held = if x < -SCORE_MAX { -SCORE_MAX } else { x };
    let shifted = held + ROUND;
    let r = held - (shifted - ROUND);
    let mut y = 1.535_336_2e-4;
    y = y * r + 1.339_887_4e-3;
    y = y * r + 9.618_437e-3;
    y = y * r + 5.550_332_5e-2;
    y = y * r + 2.402_264_8e-1;
    y = y * r + 6.931_472e-1;
    y = y * r + 1.0;
    // Wrapping, because checks for overflow, which tests are built with, would keep this from becoming
    // vectors.
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let exponent = n.wrapping_sub(max).wrapping_add(127);
    let exponent = if exponent < 0 { 0 } else { exponent }; // nor above 127, unless `y` is not a number
    y * f32::from_bits((exponent as u32) << 23)
}

/// The bits of a number rounded to bf16, to nearest even, in the upper half; what is not a number stays so.
#[inline(always)]
fn round(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1));
    (if x.is_nan() { bits | 0x40_0000 } else { rounded }) & 0xFFFF_0000
}

/// The whole number that scores are held against: the least that is above all of them, and not below
/// `max_before`.
#[inline(always)]
fn score_max(scores: &[f32], max_before: f32) -> f32 {
    let mut maxima = [f32::NEG_INFINITY; LANES];
    for lanes in scores.chunks_exact(LANES) {
        for (max, score) in maxima.iter_mut().zip(lanes) {
            *max = if *score > *max { *score } else { *max };
        }
    }
    let max = maxima.into_iter().fold(f32::NEG_INFINITY, f32::max);
    max_before.max(max.ceil())
}

/// A maximum as a number; of hidden scores alone any will do.
#[inline(always)]
fn whole(max: f32) -> i32 {
    if max == f32::NEG_INFINITY { 0 } else { max.clamp(-SCORE_MAX, SCORE_MAX) as i32 }
}

#[inline(always)]
fn soften_body(scores: &[f32], max_before: f32, weights: &mut [f32]) -> (f32, f32) {
    let max = score_max(scores, max_before);
    let base = whole(max);
    let mut sums = [0.0; LANES];
    for (lanes, weights) in scores.chunks_exact(LANES).zip(weights.chunks_exact_mut(LANES)) {
        for ((sum, score), weight) in sums.iter_mut().zip(lanes).zip(weights) {
            *weight = exp2(*score, base);
            *sum += *weight;
        }
    }
    (max, sum_of(sums, max))
}

#[inline(always)]
fn soften_rounded_body(scores: &[f32], max_before: f32, weights: &mut [bf16]) -> (f32, f32) {
    let max = score_max(scores, max_before);
    let base = whole(max);
    let mut sums = [0.0; LANES];
    let (scores, weights) = (scores.as_chunks::<LANES>().0, weights.as_chunks_mut::<LANES>().0);
    for (scores, weights) in scores.iter().zip(weights) {
        let mut rounded = [0; LANES];
        for (rounded, score) in rounded.iter_mut().zip(scores) {
            *rounded = round(exp2(*score, base));
        }
        for ((sum, weight), bits) in sums.iter_mut().zip(weights).zip(rounded) {
            *sum += f32::from_bits(bits);
            *weight = bf16::from_bits((bits >> 16) as u16);
        }
    }
    (max, sum_of(sums, max))
}

/// The sum of all lanes; not a number where scores are too large to tell apart.
#[inline(always)]
fn sum_of(sums: [f32; LANES], max: f32) -> f32 {
    if max > SCORE_MAX { f32::NAN } else { sums.into_iter().sum() }
}

#[inline(always)]
pub(super) fn round_body(from: &[f32], to: &mut [bf16]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = bf16::from_bits((round(*from) >> 16) as u16);
    }
}

#[inline(always)]
fn exp_sum_body(logits: &mut [f32], base: f32, scale: f32) {
    for logit in logits {
        *logit = exp((*logit - base) * scale);
    }
}

#[inline(always)]
fn bend_body(numbers: &mut [f32], cap: f32) {
    for x in numbers {
        // tanh u = 1 - 2 / (e^2u + 1); of small numbers it is the difference of two that are nearly the same,
        // and right to the rounding of the cap.
        let bent = cap - 2.0 * cap / (exp(*x * (2.0 / cap)) + 1.0);
        *x = if x.abs() == f32::INFINITY { *x } else { bent };
    }
}

#[inline(always)]
fn bias_body(scores: &mut [f32], positions: &[f32], angle: f32, (slope, scale): (f32, f32)) {
    let slope = scale * slope;
    for (score, position) in scores.iter_mut().zip(positions) {
        *score += slope * (position - angle);
    }
}

#[inline(always)]
fn bias_rounded_body(scores: &mut [f32], positions: &[f32], angle: f32, (slope, scale): (f32, f32)) {
    let rounded = |x: f32| f32::from_bits(round(x));
    // One and the same for all keys of a row, so no weight depends on its rounding.
    let nearest = slope * angle;
    for (score, position) in scores.iter_mut().zip(positions) {
        *score += scale * (rounded(slope * rounded(*position)) - nearest);
    }
}

per_isa!(
    /// Numbers become `cap tanh(x / cap)`; the infinite stay.
    pub(crate) bend, bend_body, (numbers: &mut [f32], cap: f32)
);
per_isa!(
    /// Each score gains `scale * slope * (position - angle)`: so much for each position that its key lies
    /// before the query is taken off.
    pub(crate) bias_by_distance, bias_body,
    (scores: &mut [f32], positions: &[f32], angle: f32, slope_and_scale: (f32, f32))
);
per_isa!(
    /// The same with positions and their products with the slope rounded to bf16.
    pub(crate) bias_by_rounded_distance, bias_rounded_body,
    (scores: &mut [f32], positions: &[f32], angle: f32, slope_and_scale: (f32, f32))
);
per_isa!(
    /// One row of scores, in powers of two, becomes weights `2^(score - max)`, unnormalised: `max` is the
    /// larger of `max_before` and the least whole number above all scores.
    ///
    /// Gives back `max` and the sum. The row's length is a multiple of [`LANES`].
    pub(super) soften, soften_body, (scores: &[f32], max_before: f32, weights: &mut [f32]) -> (f32, f32)
);
per_isa!(
    /// The same, weights rounded to bf16; the sum is that of the rounded ones.
    pub(super) soften_rounded, soften_rounded_body,
    (scores: &[f32], max_before: f32, weights: &mut [bf16]) -> (f32, f32)
);
per_isa!(
    /// `to` = `from`, rounded to nearest even.
    pub(super) round_all, round_body, (from: &[f32], to: &mut [bf16])
);
per_isa!(
    /// Each logit becomes `e^((logit - base) * scale)`.
    pub(crate) exp_all, exp_sum_body, (logits: &mut [f32], base: f32, scale: f32)
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cpu::isa::Isa;

    #[test]
    fn exponentials_are_right_to_two_units_and_keep_what_is_not_a_number() {
        for step in -8600..8800 {
            let x = step as f32 / 100.0 + 0.003;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp(x)) / exact - 1.0).abs() < 2.4e-7, "{x}: {} for {exact}", exp(x));
        }
        assert_eq!((exp(0.0), exp(f32::NEG_INFINITY), exp(-90.0)), (1.0, 0.0, 0.0));
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn powers_of_two_are_right_to_two_units_under_every_maximum() {
        for step in -9000..9000 {
            let x = step as f32 / 100.0 + 0.003;
            let exact = f64::from(x).exp2();
            assert!((f64::from(exp2(x, 0)) / exact - 1.0).abs() < 2.4e-7, "{x}: {} for {exact}", exp2(x, 0));
            for max in [1, 20, 30] {
                assert_eq!(exp2(x, max) * 2f32.powi(max), exp2(x, 0), "an exact power of two apart");
            }
        }
        assert_eq!((exp2(0.0, 0), exp2(f32::NEG_INFINITY, 0), exp2(-90.0, 60)), (1.0, 0.0, 0.0));
        assert!(exp2(f32::NAN, 3).is_nan() && exp2(f32::INFINITY, 3).is_nan());
    }

    #[test]
    fn bent_numbers_stay_within_their_cap_and_the_infinite_as_they_are() {
        let numbers: Vec<f32> = (-4_000..4_000).map(|step| step as f32 / 10.0).collect();
        for isa in Isa::available() {
            let mut bent = numbers.clone();
            bend(isa, &mut bent, 30.0);
            let exact = |x: f32| 30.0 * (f64::from(x) / 30.0).tanh();
            assert!(
                bent.iter().zip(&numbers).all(|(y, x)| (f64::from(*y) - exact(*x)).abs() < 1e-5),
                "{isa:?}"
            );
            let mut others = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
            bend(isa, &mut others, 30.0);
            assert_eq!(others[..2], [f32::INFINITY, f32::NEG_INFINITY]);
            assert!(others[2].is_nan());
        }
    }

    #[test]
    fn a_score_falls_by_its_slope_for_each_position_between_key_and_query() {
        for isa in Isa::available() {
            let mut scores = vec![1.0; 32];
            let positions: Vec<f32> = (0..32u16).map(|lane| f32::from(1_000 + 3 * lane)).collect();
            bias_by_distance(isa, &mut scores, &positions, 1_093.0, (0.25, 2.0));
            let exact = |lane: usize| 1.0 - 0.5 * (93.0 - 3.0 * lane as f32);
            assert!(scores.iter().enumerate().all(|(lane, score)| *score == exact(lane)), "{isa:?}");
            let mut scores = vec![1.0; 32];
            bias_by_rounded_distance(isa, &mut scores, &positions, 1_093.0, (0.25, 2.0));
            let rounded = |lane: usize| 2.0 * 0.25 * bf16::from_f32(positions[lane]).to_f32();
            let exact = |lane: usize| 1.0 + rounded(lane) - 0.5 * 1_093.0;
            assert!(scores.iter().enumerate().all(|(lane, score)| *score == exact(lane)), "{isa:?}");
            assert_eq!(scores[2], scores[3], "1006 and 1009 are both 1008 in bf16");
        }
    }

    #[test]
    fn every_instruction_set_softens_and_rounds_alike() {
        let scores: Vec<f32> =
            (0..64).map(|i| if i % 7 == 3 { f32::NEG_INFINITY } else { (i as f32).sin() * 9.0 }).collect();
        let (mut expected, mut rounded) = (vec![0.0; 64], vec![bf16::ZERO; 64]);
        let (max, sum) = soften(Isa::Portable, &scores, 1.0, &mut expected);
        assert_eq!(max, 9.0);
        let exact: f64 = scores.iter().map(|s| f64::from(*s - max).exp2()).sum();
        assert!((f64::from(sum) - exact).abs() < 1e-5);
        for isa in Isa::available() {
            let mut found = vec![0.0; 64];
            let (isa_max, isa_sum) = soften(isa, &scores, 1.0, &mut found);
            assert_eq!(max, isa_max);
            assert!((sum - isa_sum).abs() < 1e-5);
            assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6));
            let (_, rounded_sum) = soften_rounded(isa, &scores, 1.0, &mut rounded);
            assert!(rounded.iter().zip(&found).all(|(a, b)| *a == bf16::from_f32(*b)), "{isa:?}");
            let exact: f32 = rounded.iter().map(|weight| weight.to_f32()).sum();
            assert!((rounded_sum - exact).abs() < 1e-4, "the sum is that of the rounded weights");
        }
        let mut none = [1.0; 16];
        let hidden = soften(Isa::detect(), &[f32::NEG_INFINITY; 16], f32::NEG_INFINITY, &mut none);
        assert_eq!((hidden, none), ((f32::NEG_INFINITY, 0.0), [0.0; 16]));
        let mut weights = [0.0; 16];
        for bad in [f32::NAN, f32::INFINITY, 3e6] {
            assert!(soften(Isa::detect(), &[bad; 16], 0.0, &mut weights).1.is_nan(), "{bad}");
        }
    }

    #[test]
    fn rounding_to_bf16_is_to_nearest_even_and_keeps_what_is_not_a_number() {
        let values: Vec<f32> = (0..70_000u32)
            .map(|i| f32::from_bits(i.wrapping_mul(61_357)))
            .chain([f32::NAN, -f32::NAN, f32::INFINITY, f32::MAX, 0.0, -0.0])
            .collect();
        let expected: Vec<bf16> = values.iter().map(|x| bf16::from_f32(*x)).collect();
        for isa in Isa::available() {
            let mut found = vec![bf16::ZERO; values.len()];
            round_all(isa, &values, &mut found);
            let same = |(a, b): (&bf16, &bf16)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
            assert!(found.iter().zip(&expected).all(same), "{isa:?}");
        }
    }
}
