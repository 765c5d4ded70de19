//! The tile in plain Rust: for machines without vectors, and the reference of the other kernels.

use half::f16;

use crate::device::cpu::layout::blocks::LANES;
use crate::device::cpu::layout::groups::{BIAS, GroupSums, GroupTile, PIECE, QUAD, group_bytes};
use crate::device::cpu::layout::halves::{HalfBlock, HalfTile, PANEL, RUN};
use crate::device::cpu::layout::nibbles::{self, NibbleTile};
use crate::device::cpu::layout::packed::Bits;
use crate::device::cpu::layout::pairs::Pair;
use crate::device::cpu::layout::strip::Strip;
use crate::device::cpu::layout::wide::{DEPTH_BLOCK, Tile};

/// An element of an operand, as the numbers it holds.
pub(crate) trait Numbers: Bits {
    /// How many.
    const COUNT: usize;
    /// Those numbers, widened.
    fn numbers(&self) -> impl Iterator<Item = f32>;
}

impl Numbers for f32 {
    const COUNT: usize = 1;

    fn numbers(&self) -> impl Iterator<Item = f32> {
        std::iter::once(*self)
    }
}

impl Numbers for f16 {
    const COUNT: usize = 1;

    fn numbers(&self) -> impl Iterator<Item = f32> {
        std::iter::once(self.to_f32())
    }
}

impl Numbers for [f32; 2] {
    const COUNT: usize = 2;

    fn numbers(&self) -> impl Iterator<Item = f32> {
        self.iter().copied()
    }
}

impl Numbers for Pair {
    const COUNT: usize = 2;

    fn numbers(&self) -> impl Iterator<Item = f32> {
        self.iter().map(|number| number.to_f32())
    }
}

/// The tile: `c[m, n] (+)= sum over k of a[m, k] * b[k, n]`.
///
/// # Safety
/// Any operands will do: other processors' kernels of this name have more to ask.
pub(crate) unsafe fn packed<E: Numbers>(rows: usize, columns: usize, tile: Tile<'_, E>) {
    tile.check(rows, columns, E::COUNT);
    for (m, c) in tile.c.chunks_exact_mut(columns).enumerate() {
        for (first, c) in (0..columns).step_by(LANES).zip(c.chunks_exact_mut(LANES)) {
            let mut sums = [0.0f32; LANES];
            if tile.accumulate {
                sums.copy_from_slice(c);
            }
            for k in 0..tile.depth {
                let at = k * E::COUNT;
                let a = at / DEPTH_BLOCK * tile.a_block + m * DEPTH_BLOCK + at % DEPTH_BLOCK;
                let a = &tile.a[a..a + E::COUNT];
                for (sum, b) in sums.iter_mut().zip(&tile.b[k * columns + first..][..LANES]) {
                    a.iter().zip(b.numbers()).for_each(|(a, b)| *sum += a * b);
                }
            }
            c.copy_from_slice(&sums);
        }
    }
}

/// `to`, `[inputs, width]`, = the numbers of a piece of a panel, `[elements, width]`.
///
/// # Safety
/// As above.
pub(crate) unsafe fn unpack<E: Numbers>(width: usize, from: &[E], to: &mut [f32]) {
    assert!(to.len() == from.len() * E::COUNT);
    for (from, to) in from.chunks_exact(width).zip(to.chunks_exact_mut(width * E::COUNT)) {
        for (lane, element) in from.iter().enumerate() {
            to[lane..].iter_mut().step_by(width).zip(element.numbers()).for_each(|(to, number)| *to = number);
        }
    }
}

/// The strip.
///
/// # Safety
/// As [`Strip`] says.
pub(crate) unsafe fn strip<L: Numbers, R: Numbers>(rows: usize, columns: usize, strip: &Strip<'_, L, R>) {
    for (m, column) in (0..rows).flat_map(|m| (0..columns).map(move |column| (m, column))) {
        // SAFETY: the strip's extent was checked by the caller.
        unsafe {
            let c = std::slice::from_raw_parts_mut(strip.c.add(m * strip.c_row + column * LANES), LANES);
            if !strip.accumulate {
                c.fill(0.0);
            }
            for segment in strip.segments {
                for k in 0..segment.depth {
                    let left = &*strip.left.add(m * strip.left_row + segment.skip + k);
                    let right = segment.columns[column].add(k * strip.right_step);
                    for (sum, lane) in c.iter_mut().zip(std::slice::from_raw_parts(right, LANES)) {
                        for (left, right) in left.numbers().zip(lane.numbers()) {
                            *sum += left * right;
                        }
                    }
                }
            }
        }
    }
}

/// The tile over half floats. Each step of a sum rounds once, as a fused multiply-add of half floats does.
///
/// # Safety
/// Any operands will do: other processors' kernels of this name have more to ask.
pub(crate) unsafe fn halves(tile: HalfTile<'_>) {
    let rows = tile.a.len();
    tile.check(rows);
    for (block, c) in tile.a.iter().zip(tile.c.chunks_exact_mut(PANEL)) {
        if !tile.accumulate {
            c.fill(0.0);
        }
        for (numbers, b) in block.numbers.chunks(RUN).zip(tile.b.chunks(RUN * PANEL)) {
            let mut sums = [f16::ZERO; PANEL];
            for ([number, _], b) in numbers.iter().zip(b.chunks_exact(PANEL)) {
                for (sum, b) in sums.iter_mut().zip(b) {
                    // The product is exact in double precision, and its sum has far more places than are kept.
                    *sum = half_of(number.to_f64() * b.to_f64() + sum.to_f64());
                }
            }
            c.iter_mut().zip(sums).for_each(|(c, sum)| *c = sum.to_f32().mul_add(block.scale, *c));
        }
        if let Some(scales) = tile.scales {
            c.iter_mut().zip(scales).for_each(|(c, scale)| *c *= scale);
        }
    }
}

/// `sum`, rounded to nearest even once: by way of a single whose last bit tells whether digits were left off. (What the
/// crate of half floats does looks at the upper half of `sum`.)
fn half_of(sum: f64) -> f16 {
    let single = sum as f32;
    if f64::from(single) == sum || !single.is_finite() {
        return f16::from_f32(single);
    }
    let is_larger = f64::from(single).abs() > sum.abs();
    f16::from_f32(f32::from_bits((single.to_bits() - u32::from(is_larger)) | 1))
}

/// [`HalfBlock::round`].
///
/// # Safety
/// As above.
pub(crate) unsafe fn round_halves(from: &[f32], to: &mut HalfBlock) {
    to.round(from);
}

/// The tile over groups of eight-bit integers.
pub(crate) fn groups(tile: GroupTile<'_>) {
    let (sizes, width, count) = (tile.sizes, tile.width, tile.groups());
    let pieces = (0..count * sizes.pieces()).map(|number| {
        let (group, within) = (number / sizes.pieces(), number % sizes.pieces());
        let (integers, scales) =
            tile.b[group * group_bytes(sizes.weights, width)..].split_at(sizes.weights * width);
        (&integers[within * sizes.activations * width..], &scales.as_chunks::<2>().0[..width])
    });
    for (a, c) in tile.a.iter().zip(tile.c.chunks_exact_mut(width)) {
        if !tile.accumulate {
            c.fill(0.0);
        }
        let activations = a.values.chunks_exact(sizes.activations).zip(&a.scales);
        for ((values, scale), (integers, halves)) in activations.zip(pieces.clone()) {
            for ((lane, c), half) in c.iter_mut().enumerate().zip(halves) {
                let mut sum = 0;
                for (four, row) in
                    values.as_chunks::<QUAD>().0.iter().zip(integers.chunks_exact(QUAD * width))
                {
                    for (value, byte) in four.iter().zip(&row[QUAD * lane..]) {
                        sum += i32::from(*value) * i32::from((byte ^ BIAS).cast_signed());
                    }
                }
                *c += sum as f32 * f16::from_le_bytes(*half).to_f32() * scale;
            }
        }
    }
}

/// Scales sums of integers over a group of activations, as [`groups`] does.
///
/// # Safety
/// Any operands will do: other processors' kernels of this name have more to ask.
pub(crate) unsafe fn add_scaled(sums: GroupSums<'_>) {
    let (group, columns) = (sums.group, sums.columns());
    let rows = sums.a.iter().zip(sums.integers.chunks_exact(columns)).zip(sums.c.chunks_mut(sums.width));
    for ((a, integers), c) in rows {
        let (scale, unbias) = (a.scales[group], a.unbias[group]);
        for ((c, integer), half) in c.iter_mut().zip(integers).zip(sums.scales.as_chunks::<2>().0) {
            let sum = integer.wrapping_add(unbias);
            let before = if sums.accumulate { *c } else { 0.0 };
            *c = before + sum as f32 * f16::from_le_bytes(*half).to_f32() * scale;
        }
    }
}

/// The tile over groups of four-bit weights.
pub(crate) fn nibbles(tile: NibbleTile<'_>) {
    let (width, count) = (tile.width, tile.groups());
    for (a, c) in tile.a.iter().zip(tile.c.chunks_exact_mut(width)) {
        if !tile.accumulate {
            c.fill(0.0);
        }
        let activations = a.values.as_chunks::<PIECE>().0.iter().zip(&a.scales).take(count);
        for ((values, scale), group) in activations.zip(tile.b.chunks_exact(nibbles::group_bytes(width))) {
            let (numbers, scales, minima) = nibbles::split(group, width);
            let eights =
                || values.as_chunks::<{ 2 * QUAD }>().0.iter().zip(numbers.chunks_exact(QUAD * width));
            let total: i32 = values.iter().map(|value| i32::from(*value)).sum();
            for ((lane, c), ends) in c.iter_mut().enumerate().zip(scales.iter().zip(minima)) {
                let mut sum = 0;
                for (eight, row) in eights() {
                    let (low, high) = eight.split_at(QUAD);
                    for ((low, high), byte) in low.iter().zip(high).zip(&row[QUAD * lane..]) {
                        sum +=
                            i32::from(*low) * i32::from(byte & 15) + i32::from(*high) * i32::from(byte >> 4);
                    }
                }
                let (of_scale, of_minimum) = (f16::from_le_bytes(*ends.0), f16::from_le_bytes(*ends.1));
                *c += scale * total as f32 * of_minimum.to_f32();
                *c += sum as f32 * of_scale.to_f32() * scale;
            }
        }
    }
}

/// Rounds a piece of a row.
///
/// # Safety
/// Any operands will do: other processors' kernels of this name have more to ask.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn quantise(
    from: &[f32],
    group: usize,
    to: &mut crate::device::cpu::layout::groups::Block,
) {
    super::quantise::quantise(from, group, to);
}

/// The tile over groups.
///
/// # Safety
/// As above.
pub(crate) unsafe fn add(tile: GroupTile<'_>) {
    groups(tile);
}

/// The tile over groups of four-bit weights.
///
/// # Safety
/// As above.
pub(crate) unsafe fn add_nibbles(tile: NibbleTile<'_>) {
    nibbles(tile);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_rounded_to_a_half_once() {
        let tie = 1.0 + f64::powi(2.0, -11);
        let tiny = f64::powi(2.0, -40);
        let above = f16::from_f32(1.0 + f32::powi(2.0, -10));
        for (sum, expected) in
            [(tie, f16::ONE), (tie - tiny, f16::ONE), (tie + tiny, above), (1e9, f16::INFINITY)]
        {
            assert_eq!((half_of(sum), half_of(-sum)), (expected, -expected), "{sum}");
        }
        assert!(half_of(f64::NAN).is_nan());
    }
}
