//! Exponentials: the softmax of attention and of sampling.
//!
//! Written so that the compiler turns them into vectors; compiled once per instruction set.

use super::Isa;
use super::tile::LANES;

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

/// One row of scores becomes unnormalised probabilities.
#[inline(always)]
fn soften_body(scores: &mut [f32], max_before: f32) -> (f32, f32) {
    let mut maxima = [max_before; LANES];
    for lanes in scores.chunks_exact(LANES) {
        for (max, score) in maxima.iter_mut().zip(lanes) {
            *max = if *score > *max { *score } else { *max };
        }
    }
    let max = maxima.into_iter().fold(max_before, f32::max);
    let base = if max == f32::NEG_INFINITY { 0.0 } else { max };
    let mut sums = [0.0; LANES];
    for lanes in scores.chunks_exact_mut(LANES) {
        for (sum, score) in sums.iter_mut().zip(lanes) {
            *score = exp(*score - base);
            *sum += *score;
        }
    }
    (max, sums.into_iter().sum())
}

#[inline(always)]
fn exp_sum_body(logits: &mut [f32], base: f32, scale: f32) {
    for logit in logits {
        *logit = exp((*logit - base) * scale);
    }
}

/// Compiles a body once per instruction set and picks among them.
macro_rules! per_isa {
    ($(#[$doc:meta])* $visible:vis $name:ident, $body:ident, ($($arg:ident: $type:ty),*) $(-> $result:ty)?) => {
        $(#[$doc])*
        $visible fn $name(isa: Isa, $($arg: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $type),*) $(-> $result)? {
                $body($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f")]
            fn avx512($($arg: $type),*) $(-> $result)? {
                $body($($arg),*)
            }
            match isa {
                // SAFETY: a `Cpu` holds available kernels only.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => unsafe { avx512($($arg),*) },
                _ => $body($($arg),*),
            }
        }
    };
}

pub(super) use per_isa;

per_isa!(
    /// Turns one row of scores into `e^(score - max)`, `max` the larger of `max_before` and the row's own.
    ///
    /// Gives back `max` and the sum. The row's length is a multiple of [`LANES`].
    pub(crate) soften, soften_body, (scores: &mut [f32], max_before: f32) -> (f32, f32)
);
per_isa!(
    /// Each logit becomes `e^((logit - base) * scale)`.
    pub(crate) exp_all, exp_sum_body, (logits: &mut [f32], base: f32, scale: f32)
);

#[cfg(test)]
mod tests {
    use super::*;

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
    fn every_instruction_set_softens_alike() {
        let scores: Vec<f32> =
            (0..64).map(|i| if i % 7 == 3 { f32::NEG_INFINITY } else { (i as f32).sin() * 9.0 }).collect();
        let mut expected = scores.clone();
        let (max, sum) = soften(Isa::Portable, &mut expected, 1.5);
        let exact: f64 = scores.iter().map(|s| f64::from(*s - max).exp()).sum();
        assert!((f64::from(sum) - exact).abs() < 1e-5);
        for isa in Isa::available() {
            let mut found = scores.clone();
            let (isa_max, isa_sum) = soften(isa, &mut found, 1.5);
            assert_eq!(max, isa_max);
            assert!((sum - isa_sum).abs() < 1e-5);
            assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6));
        }
        assert_eq!(
            soften(Isa::detect(), &mut [f32::NEG_INFINITY; 16], f32::NEG_INFINITY),
            (f32::NEG_INFINITY, 0.0)
        );
    }
}
