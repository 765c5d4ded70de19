//! Activations rounded to eight-bit integers in groups, in plain Rust that the compiler turns into vectors.

use crate::device::cpu::layout::blocks::LANES;
use crate::device::cpu::layout::groups::{BIAS, Block, LARGEST, WIDE_GROUP_MAX, largest};

/// Rounds a piece of a row; behind it the block is zero.
#[inline(always)]
pub(crate) fn quantise(from: &[f32], group: usize, to: &mut Block) {
    quantise_by(from, group, to, quantise_group);
}

/// The same with a kernel for the vectors of a group, which gives back what one of its integers is worth, and
/// their sum.
#[inline(always)]
pub(crate) fn quantise_by(
    from: &[f32],
    group: usize,
    to: &mut Block,
    round: impl Fn(&[[f32; LANES]], &mut [[i8; LANES]]) -> (f32, i32),
) {
    let groups = from.len().div_ceil(group);
    // Weights may have larger groups, of which the last one reads on.
    to.values[groups * group..].fill(0);
    to.scales[groups..].fill(0.0);
    to.unbias[groups..].fill(0);
    let scales = to.scales.iter_mut().zip(&mut to.unbias);
    for ((from, to), (scale, unbias)) in from.chunks(group).zip(to.values.chunks_exact_mut(group)).zip(scales)
    {
        let mut padded;
        let from = if from.len() == group {
            from
        } else {
            padded = [0.0; WIDE_GROUP_MAX];
            padded[..from.len()].copy_from_slice(from);
            &padded[..group]
        };
        let sum;
        (*scale, sum) = round(from.as_chunks().0, to.as_chunks_mut().0);
        // Of what is not a number any sum will do: its scale is not one either.
        *unbias = i32::from(BIAS).wrapping_mul(sum).wrapping_neg();
    }
}

#[inline(always)]
fn quantise_group(from: &[[f32; LANES]], to: &mut [[i8; LANES]]) -> (f32, i32) {
    /// Adding it rounds to nearest even and leaves the integer in the lowest bits.
    const ROUNDING: f32 = 12_582_912.0;
    let (scale, inverse) = scale_of(largest(from.as_flattened()));
    let mut sum = 0;
    for (to, value) in to.as_flattened_mut().iter_mut().zip(from.as_flattened()) {
        *to = (value * inverse + ROUNDING).to_bits() as i8;
        sum += i32::from(*to);
    }
    (scale, sum)
}

/// What an integer is worth in a group of activations with this largest magnitude, and what turns them into
/// integers.
#[inline(always)]
pub(crate) fn scale_of(largest: f32) -> (f32, f32) {
    (largest / LARGEST, if largest > f32::MIN_POSITIVE { LARGEST / largest } else { 0.0 })
}
