//! Four-bit numbers in groups of inputs under one scale, above one minimum: `weight = scale * number + minimum`.
//!
//! ggml's blocks of four bits are such groups, those of Q4_0 with -8 scales for a minimum, and mean the same
//! here as in their file; but the scales and minima of Q4_K, products of two numbers there, are rounded to
//! halves, 2^-11 of themselves.
//!
//! A panel of weights is `[groups]` of `[group / 8, width, 4]` bytes and, behind them, `[width]` scales and
//! `[width]` minima. A byte has two numbers, four inputs apart: the lower halves of a vector are four inputs of
//! each of its outputs, and the upper ones the next four. The 5 bits of a weight are streamed once by a product.

use half::f16;
use rayon::prelude::*;

use super::groups::{Block, DEPTH_BLOCK, PIECE, QUAD, largest, nearest};
use super::packed::Packed;

/// The largest number.
const LARGEST: f32 = 15.0;

/// A group of one output's weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NibbleGroup {
    /// From 0 to 15.
    pub(crate) numbers: [u8; PIECE],
    /// What a number is worth.
    pub(crate) scale: f16,
    /// What 0 is worth.
    pub(crate) minimum: f16,
}

impl NibbleGroup {
    /// The groups of a row of weights, rounded, in order.
    pub(crate) fn of_row(weights: &[f32], put: &mut dyn FnMut(Self)) {
        weights.chunks(PIECE).for_each(|group| put(Self::rounded(group)));
    }

    /// At most a group's weights, rounded: from the least of them to the greatest in 15 steps.
    pub(crate) fn rounded(weights: &[f32]) -> Self {
        let least = weights.iter().copied().fold(f32::INFINITY, f32::min);
        let most = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let limit = f16::MAX.to_f32();
        // What is not a number makes the whole group such, as it makes every product with it.
        let step = if largest(weights).is_finite() { (most - least) / LARGEST } else { f32::NAN };
        let (scale, minimum) = (f16::from_f32(step.min(limit)), f16::from_f32(least.clamp(-limit, limit)));
        let inverse = if scale > f16::ZERO { 1.0 / scale.to_f32() } else { 0.0 };
        let mut numbers = [0; PIECE];
        for (number, weight) in numbers.iter_mut().zip(weights) {
            *number = nearest(((weight - minimum.to_f32()) * inverse).clamp(0.0, LARGEST)) as u8;
        }
        let scale = if step.is_nan() { f16::NAN } else { scale };
        Self { numbers, scale, minimum }
    }
}

/// Bytes of a panel's group: numbers, then scales, then minima.
pub(crate) const fn group_bytes(width: usize) -> usize {
    (PIECE / 2 + 2 * size_of::<f16>()) * width
}

/// Bytes of a panel of sums over `inputs`.
pub(crate) fn panel_bytes(inputs: usize, width: usize) -> usize {
    inputs.div_ceil(PIECE) * group_bytes(width)
}

/// Where input `k` of a lane's group is: its byte, and by how much it is shifted.
fn place(k: usize, (lane, width): (usize, usize)) -> (usize, u32) {
    let (eight, within) = (k / (2 * QUAD), k % (2 * QUAD));
    ((eight * width + lane) * QUAD + within % QUAD, if within < QUAD { 0 } else { 4 })
}

/// Rows `0..rows` of weights as panels of `width`: the groups that `read` gives of each, in order; a row of
/// which it gives none is zero.
pub(crate) fn pack_panels(
    rows: usize,
    inputs: usize,
    width: usize,
    read: impl Fn(usize, &mut dyn FnMut(NibbleGroup)) + Sync,
) -> Packed<u8> {
    let bytes = panel_bytes(inputs, width);
    let mut panels = Packed::zeros(rows.div_ceil(width) * bytes);
    panels.par_chunks_mut(bytes).enumerate().for_each(|(number, panel)| {
        for lane in 0..width.min(rows - number * width) {
            let mut groups = panel.chunks_exact_mut(group_bytes(width));
            read(number * width + lane, &mut |group| {
                let to = groups.next().expect("a row has as many groups as its panel");
                let (numbers, ends) = to.split_at_mut(PIECE / 2 * width);
                for (k, value) in group.numbers.into_iter().enumerate() {
                    let (byte, shift) = place(k, (lane, width));
                    numbers[byte] |= value << shift;
                }
                let (scales, minima) = ends.split_at_mut(size_of::<f16>() * width);
                scales.as_chunks_mut().0[lane] = group.scale.to_le_bytes();
                minima.as_chunks_mut().0[lane] = group.minimum.to_le_bytes();
            });
        }
    });
    panels
}

/// Weights of one output: what the numbers of its lane mean.
pub(crate) fn unpack(panel: &[u8], (lane, width): (usize, usize), row: &mut [f32]) {
    for (to, from) in row.chunks_mut(PIECE).zip(panel.chunks_exact(group_bytes(width))) {
        let (numbers, scales, minima) = split(from, width);
        let (scale, minimum) = (f16::from_le_bytes(scales[lane]), f16::from_le_bytes(minima[lane]));
        for (k, value) in to.iter_mut().enumerate() {
            let (byte, shift) = place(k, (lane, width));
            *value = f32::from(numbers[byte] >> shift & 15) * scale.to_f32() + minimum.to_f32();
        }
    }
}

/// A panel's group: numbers, scales, minima.
pub(crate) fn split(group: &[u8], width: usize) -> (&[u8], &[[u8; 2]], &[[u8; 2]]) {
    let (numbers, ends) = group.split_at(PIECE / 2 * width);
    let (scales, minima) = ends.as_chunks().0.split_at(width);
    (numbers, scales, minima)
}

/// Operands of one tile: a few rows by one panel, over a block of inputs.
pub(crate) struct NibbleTile<'a> {
    /// Of the panel.
    pub(crate) width: usize,
    /// One block per row, in groups as large as the panel's.
    pub(crate) a: &'a [Block],
    /// Groups of the panel.
    pub(crate) b: &'a [u8],
    /// Result: `[rows, width]`
    pub(crate) c: &'a mut [f32],
    /// Whether to add to it or to overwrite it.
    pub(crate) accumulate: bool,
    /// What a kernel may bring near meanwhile.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only x86's kernels do"))]
    pub(crate) next: &'a [u8],
}

impl NibbleTile<'_> {
    /// How many groups of the panel there are; that kernels stay inside the operands.
    pub(crate) fn groups(&self) -> usize {
        let bytes = group_bytes(self.width);
        assert!(self.b.len().is_multiple_of(bytes));
        let groups = self.b.len() / bytes;
        assert!(groups * PIECE <= DEPTH_BLOCK && self.c.len() == self.a.len() * self.width);
        groups
    }
}
