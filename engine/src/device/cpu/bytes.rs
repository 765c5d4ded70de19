//! Rows of numbers as eight-bit integers under one scale each: keys and values in half the memory of bf16.
//!
//! bf16 holds such integers exactly, and they are widened to it where they are read: every product with bf16
//! serves them. A row's scale is common to all its numbers, so a score or a weight is multiplied with it, not
//! each number.
//!
//! Written so that the compiler turns it into vectors; compiled once per instruction set.

use half::bf16;

use super::isa::Isa;
use super::kernels::avx512_bf16;
use super::layout::bytes::{BytePair, kept_scale};
use super::layout::pairs::Pair;
use super::per_isa::per_isa;

/// The largest integer; its negative is the smallest.
const LARGEST: f32 = 127.0;

#[inline(always)]
fn kept_scales_body(from: &[BytePair], to: &mut [f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = kept_scale(*from));
}

#[inline(always)]
fn quantise_body(row: &[f32], to: &mut [i8]) -> bf16 {
    /// Adding it rounds to nearest even and leaves the integer in the lowest bits.
    const ROUNDING: f32 = 12_582_912.0;
    // Magnitudes order as their bits do, above all numbers the infinite and above that what is none.
    let largest = row.iter().map(|value| value.to_bits() & (u32::MAX >> 1)).fold(0, u32::max);
    // A scale that was rounded down leaves the largest a quarter above the largest integer, and it is rounded
    // to that.
    let scale = bf16::from_f32(f32::from_bits(largest) / LARGEST);
    let inverse = if scale.to_f32() >= f32::MIN_POSITIVE { 1.0 / scale.to_f32() } else { 0.0 };
    for (to, value) in to.iter_mut().zip(row) {
        *to = (value * inverse + ROUNDING).to_bits() as i8;
    }
    scale
}

#[inline(always)]
fn widen_body(from: &[BytePair], to: &mut [Pair]) {
    for (to, from) in to.as_flattened_mut().iter_mut().zip(from.as_flattened()) {
        *to = bf16::from_bits((f32::from(*from).to_bits() >> 16) as u16); // the lower half is zero
    }
}

#[inline(always)]
fn scale_body(scores: &mut [f32], scales: &[f32]) {
    scores.iter_mut().zip(scales).for_each(|(score, scale)| *score *= scale);
}

#[inline(always)]
fn scale_seen_body(weights: &mut [f32], scales: &[f32]) {
    for (weight, scale) in weights.iter_mut().zip(scales) {
        *weight = if *weight == 0.0 { 0.0 } else { *weight * scale };
    }
}

per_isa!(
    /// Rounds a row to integers and gives back what one of them is worth. Of a row that holds what is not a
    /// number that is not one either, or is infinite.
    pub(super) quantise, quantise_body, (row: &[f32], to: &mut [i8]) -> bf16
);
per_isa!(
    /// `to` = the integers of `from`.
    widen_plain, widen_body, (from: &[BytePair], to: &mut [Pair])
);
per_isa!(
    /// `to` = scales that were kept.
    pub(crate) kept_scales, kept_scales_body, (from: &[BytePair], to: &mut [f32])
);
per_isa!(
    /// Scores of integers become scores of what they are worth.
    pub(crate) scale, scale_body, (scores: &mut [f32], scales: &[f32])
);
per_isa!(
    /// The same for weights; those that are zero stay so, whatever their scales are.
    pub(super) scale_seen, scale_seen_body, (weights: &mut [f32], scales: &[f32])
);

/// `to` = the integers of `from`.
pub(crate) fn widen(isa: Isa, from: &[BytePair], to: &mut [Pair]) {
    if isa.rounds_activations() {
        // SAFETY: a `Cpu` holds available kernels only, and these have the instructions.
        unsafe { avx512_bf16::widen(from.as_flattened(), to.as_flattened_mut()) };
    } else {
        widen_plain(isa, from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cpu::layout::bytes::keep_scale;

    /// Lengths around those of vectors, and of heads.
    const LENGTHS: [usize; 15] = [1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 64, 80, 96, 127, 128];

    fn row(len: usize, seed: f32) -> Vec<f32> {
        (0..len).map(|i| ((i as f32 + seed) * 1.7).sin() * 10f32.powf((seed * 0.3).sin() * 6.0)).collect()
    }

    #[test]
    fn a_rounded_row_is_within_half_a_step_and_every_instruction_set_rounds_alike() {
        for (len, seed) in LENGTHS.into_iter().flat_map(|len| (1..20).map(move |seed| (len, seed as f32))) {
            let row = row(len, seed);
            let mut expected = vec![0; len];
            let scale = quantise(Isa::Portable, &row, &mut expected);
            let step = kept_scale(keep_scale(scale));
            let largest = row.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
            assert!((step * LARGEST / largest - 1.0).abs() <= 1.0 / 256.0, "as near as bf16 comes");
            for (value, integer) in row.iter().zip(&expected) {
                assert!(
                    (value - f32::from(*integer) * step).abs() <= 0.501 * step,
                    "{value}: {integer} * {step}"
                );
                assert!(*integer >= -127);
            }
            for isa in Isa::available() {
                let mut found = vec![0; len];
                assert_eq!((quantise(isa, &row, &mut found), &found), (scale, &expected), "{isa:?}");
            }
        }
    }

    #[test]
    fn rows_of_zeros_and_of_what_is_not_a_number_keep_what_they_are() {
        for isa in Isa::available() {
            let mut to = [1; 40];
            assert_eq!((quantise(isa, &[0.0; 40], &mut to), to), (bf16::ZERO, [0; 40]));
            let mut tiny = [0.0; 40];
            tiny[3] = f32::MIN_POSITIVE;
            let scale = quantise(isa, &tiny, &mut to).to_f32();
            assert!(to.iter().all(|integer| (f32::from(*integer) * scale).abs() <= f32::MIN_POSITIVE));
            for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut row = [1.0; 40];
                row[17] = bad;
                assert!(!kept_scale(keep_scale(quantise(isa, &row, &mut to))).is_finite(), "{isa:?} {bad}");
            }
        }
    }

    #[test]
    fn every_instruction_set_widens_each_integer_to_itself() {
        let all: Vec<BytePair> = (-128..=127).map(|i: i8| [i, i.wrapping_mul(7)]).collect();
        for (isa, len) in
            Isa::available().flat_map(|isa| LENGTHS.map(|len| (isa, len)).into_iter().chain([(isa, 256)]))
        {
            let mut to = vec![[bf16::ONE; 2]; len + 1];
            widen(isa, &all[256 - len..], &mut to[..len]);
            for (found, integers) in to.iter().zip(&all[256 - len..]) {
                assert_eq!(found.map(f32::from), integers.map(f32::from), "{isa:?}");
            }
            assert_eq!(to[len], [bf16::ONE; 2], "nothing behind is touched");
        }
    }

    #[test]
    fn scales_multiply_what_is_seen_and_nothing_else() {
        for (isa, len) in Isa::available().flat_map(|isa| LENGTHS.map(|len| (isa, len))) {
            let scales: Vec<f32> = (0..len).map(|i| if i % 3 == 1 { f32::NAN } else { i as f32 }).collect();
            let mut weights: Vec<f32> = (0..len).map(|i| if i % 3 == 1 { 0.0 } else { 0.5 }).collect();
            scale_seen(isa, &mut weights, &scales);
            for (i, weight) in weights.iter().enumerate() {
                assert_eq!(*weight, if i % 3 == 1 { 0.0 } else { 0.5 * i as f32 }, "{isa:?}");
            }
            let mut scores = vec![-2.0; len];
            scale(isa, &mut scores, &scales);
            let is_right =
                |(score, scale): (&f32, &f32)| *score == -2.0 * scale || scale.is_nan() && score.is_nan();
            assert!(scores.iter().zip(&scales).all(is_right), "{isa:?}");
        }
    }
}
