//! Eight-bit integers in groups of inputs under one scale each.
//!
//! A scale is read with its group, so weights that are rounded here have groups of up to [`GROUP_MAX`] inputs; those
//! that ggml has rounded (Q8_0) keep its groups of [`PIECE`], and lose nothing. Activations that meet them have groups
//! of [`PIECE`]: a token has a few large numbers, and those beside them lose their digits. Wide groups, of up to
//! [`WIDE_GROUP_MAX`] inputs of weights and activations, are for a matrix unit, to which scaling sums costs more.
//!
//! A panel of weights is `[groups]` of `[group / 4, width, 4]` bytes and, behind them, `[width]` scales: a
//! vector holds four inputs of each of its outputs, and a product streams the panel once. The bytes are the
//! integers plus [`BIAS`], which the processors' instructions want unsigned on one side.

use half::f16;
use rayon::prelude::*;

use super::packed::Packed;

/// Inputs of the smallest group, of which every group is a multiple.
pub(crate) const PIECE: usize = 32;

/// Bytes of a block as ggml stores it: its scale, its integers.
const Q8_BLOCK: usize = size_of::<f16>() + PIECE;

/// Inputs of the largest group of weights: its scale is a sixty-fourth of what is read.
pub(crate) const GROUP_MAX: usize = 128;

/// Inputs of the largest wide group: a block of a row.
pub(crate) const WIDE_GROUP_MAX: usize = DEPTH_BLOCK;

/// Inputs of a tile of a matrix unit, of which every wide group is a multiple; groups of [`PIECE`] fill half of one.
pub(crate) const UNIT_STEP: usize = 64;

/// Inputs that an instruction sums up.
pub(crate) const QUAD: usize = 4;

/// The largest integer; its negative is the smallest.
pub(crate) const LARGEST: f32 = 127.0;

/// What is added to a weight to make it unsigned.
pub(crate) const BIAS: u8 = 128;

/// Most inputs of a row that lie together ([`depth_block`]): with the panel's piece that they meet, what the
/// first-level cache holds.
pub(crate) const DEPTH_BLOCK: usize = 512;

/// Most groups of a block.
pub(crate) const GROUPS: usize = DEPTH_BLOCK / PIECE;

/// A block of a row's activations: in each group, `scales * values`.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// The integers; zero from the row's end on.
    pub(crate) values: [i8; DEPTH_BLOCK],
    /// What one of a group's integers is worth.
    pub(crate) scales: [f32; GROUPS],
    /// What [`BIAS`] adds to a group's sum of products with these, negated.
    pub(crate) unbias: [i32; GROUPS],
}

/// Inputs that have one scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupSizes {
    /// Of weights.
    pub(crate) weights: usize,
    /// Of activations, which divide those of weights.
    pub(crate) activations: usize,
}

impl GroupSizes {
    /// Of weights in groups of so many inputs, that meet activations in the smallest groups.
    pub(crate) const fn fine(weights: usize) -> Self {
        Self { weights, activations: PIECE }
    }

    /// Of weights and activations in groups of so many inputs.
    pub(crate) const fn equal(inputs: usize) -> Self {
        Self { weights: inputs, activations: inputs }
    }

    /// Groups of activations that a group of weights meets.
    pub(crate) const fn pieces(self) -> usize {
        self.weights / self.activations
    }
}

/// A block of zeros.
pub(crate) const EMPTY: Block =
    Block { values: [0; DEPTH_BLOCK], scales: [0.0; GROUPS], unbias: [0; GROUPS] };

/// The largest groups of weights that sums over `inputs` fill.
pub(crate) fn group_of(inputs: usize) -> usize {
    let mut group = GROUP_MAX;
    while group > PIECE && !inputs.is_multiple_of(group) {
        group /= 2;
    }
    group
}

/// The largest wide groups that sums over `inputs` fill, padded to whole steps of a matrix unit.
pub(crate) fn wide_group_of(inputs: usize) -> usize {
    let padded = inputs.next_multiple_of(UNIT_STEP);
    let mut sizes = (UNIT_STEP..=WIDE_GROUP_MAX).rev().step_by(UNIT_STEP);
    sizes.find(|group| padded.is_multiple_of(*group)).unwrap_or(UNIT_STEP)
}

/// Inputs of a row that lie together: as many whole groups of weights as a block holds.
pub(crate) fn depth_block(group: usize) -> usize {
    DEPTH_BLOCK / group * group
}

/// Bytes of a panel's group: integers, then scales.
pub(crate) const fn group_bytes(group: usize, width: usize) -> usize {
    (group + size_of::<f16>()) * width
}

/// Bytes of a panel of sums over `inputs`, the last group of which may be padded with zeros.
pub(crate) fn panel_bytes(inputs: usize, group: usize, width: usize) -> usize {
    inputs.div_ceil(group) * group_bytes(group, width)
}

/// Rows `0..rows` of weights, which `read` puts into its buffer, as panels of `width`.
pub(crate) fn pack_panels(
    rows: usize,
    inputs: usize,
    (group, width): (usize, usize),
    read: impl Fn(usize, &mut [f32]) + Sync,
) -> Packed<u8> {
    let (bytes, of_group) = (panel_bytes(inputs, group, width), group_bytes(group, width));
    let mut panels = Packed::zeros(rows.div_ceil(width) * bytes);
    panels.par_chunks_mut(bytes).enumerate().for_each(|(number, panel)| {
        let mut weights = vec![0.0; inputs.next_multiple_of(group)]; // beyond the inputs it stays zero
        for (lane, row) in (number * width..rows.min((number + 1) * width)).enumerate() {
            read(row, &mut weights[..inputs]);
            for (to, from) in panel.chunks_exact_mut(of_group).zip(weights.chunks_exact(group)) {
                pack_group(from, to, (lane, width));
            }
        }
    });
    panels
}

/// Panels of `width` of weights that are blocks of eight-bit integers already: row by row what `row` gives,
/// of which nothing is rounded; `None` leaves a lane zero.
pub(crate) fn copy_panels<'a>(
    rows: usize,
    inputs: usize,
    width: usize,
    row: impl Fn(usize) -> Option<&'a [u8]> + Sync,
) -> Packed<u8> {
    let bytes = panel_bytes(inputs, PIECE, width);
    let mut panels = Packed::zeros(rows.div_ceil(width) * bytes);
    panels.par_chunks_mut(bytes).enumerate().for_each(|(number, panel)| {
        for lane in 0..width {
            let Some(blocks) = row(number * width + lane) else { continue };
            let groups = panel.chunks_exact_mut(group_bytes(PIECE, width));
            for (to, block) in groups.zip(blocks.as_chunks::<Q8_BLOCK>().0) {
                let (scale, values) = block.split_at(size_of::<f16>());
                let (integers, scales) = to.split_at_mut(PIECE * width);
                for (k, value) in values.iter().enumerate() {
                    integers[(k / QUAD * width + lane) * QUAD + k % QUAD] = value ^ BIAS;
                }
                scales[2 * lane..2 * lane + 2].copy_from_slice(scale);
            }
        }
    });
    panels
}

/// Rounds a group of one output's weights into its lane of a panel's group.
fn pack_group(weights: &[f32], to: &mut [u8], (lane, width): (usize, usize)) {
    let largest = largest(weights);
    // What is not a number makes the whole group such, as it makes every product with it.
    let scale = f16::from_f32((largest / LARGEST).clamp(0.0, f16::MAX.to_f32()));
    let inverse = if scale > f16::ZERO { 1.0 / scale.to_f32() } else { 0.0 };
    let (integers, scales) = to.split_at_mut(weights.len() * width);
    for (k, weight) in weights.iter().enumerate() {
        let integer = nearest((weight * inverse).clamp(-LARGEST, LARGEST)) as i8;
        integers[(k / QUAD * width + lane) * QUAD + k % QUAD] = integer.cast_unsigned() ^ BIAS;
    }
    scales[2 * lane..2 * lane + 2].copy_from_slice(&scale.to_le_bytes());
}

/// Weights of one output: the numbers that the integers of its lane mean.
pub(crate) fn unpack(panel: &[u8], group: usize, (lane, width): (usize, usize), row: &mut [f32]) {
    for (to, from) in row.chunks_mut(group).zip(panel.chunks_exact(group_bytes(group, width))) {
        let (integers, scales) = from.split_at(group * width);
        let scale = f16::from_le_bytes([scales[2 * lane], scales[2 * lane + 1]]).to_f32();
        for (k, value) in to.iter_mut().enumerate() {
            let byte = integers[(k / QUAD * width + lane) * QUAD + k % QUAD];
            *value = f32::from((byte ^ BIAS).cast_signed()) * scale;
        }
    }
}

/// The nearest integer of a number of few digits, of two the one farther from 0; 0 for what is not a number. That is
/// `value.round()`, which is a function's call for each number where processors without SSE4.1 may run the program.
#[inline(always)]
pub(crate) fn nearest(value: f32) -> i32 {
    let whole = value as i32;
    let rest = value - whole as f32;
    whole + i32::from(rest >= 0.5) - i32::from(rest <= -0.5)
}

/// The largest magnitude; infinite or not a number where any element is.
#[inline(always)]
pub(crate) fn largest(values: &[f32]) -> f32 {
    // Magnitudes order as their bits do, above all numbers the infinite and above that what is none.
    let magnitude = |value: &f32| value.to_bits() & (u32::MAX >> 1);
    f32::from_bits(values.iter().map(magnitude).fold(0, u32::max))
}

/// Operands of one tile: a few rows by one panel, over a block of inputs.
pub(crate) struct GroupTile<'a> {
    /// Inputs of groups.
    pub(crate) sizes: GroupSizes,
    /// Of the panel.
    pub(crate) width: usize,
    /// One block per row.
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

impl GroupTile<'_> {
    /// How many groups of weights the panel has; that kernels stay inside the operands.
    pub(crate) fn groups(&self) -> usize {
        let GroupSizes { weights, activations } = self.sizes;
        let bytes = group_bytes(weights, self.width);
        assert!(activations.is_multiple_of(PIECE) && weights.is_multiple_of(activations));
        assert!(self.b.len().is_multiple_of(bytes));
        let groups = self.b.len() / bytes;
        assert!(groups * weights <= DEPTH_BLOCK && self.c.len() == self.a.len() * self.width);
        groups
    }
}

/// Sums of integers over one group of activations, of a few rows and of outputs next to each other, and where they
/// belong, scaled.
pub(crate) struct GroupSums<'a> {
    /// Number of the group in its block.
    pub(crate) group: usize,
    /// One block per row.
    pub(crate) a: &'a [Block],
    /// `[rows, columns]`: products with the panel's bytes as they are, [`BIAS`] included.
    pub(crate) integers: &'a [i32],
    /// `[columns]` scales of weights.
    pub(crate) scales: &'a [u8],
    /// Result: rows of `width`, from the first of the columns on.
    pub(crate) c: &'a mut [f32],
    /// Of the panel.
    pub(crate) width: usize,
    /// Whether to add to the result or to overwrite it.
    pub(crate) accumulate: bool,
}

impl GroupSums<'_> {
    /// How many columns there are; that kernels stay inside the operands.
    pub(crate) fn columns(&self) -> usize {
        let (rows, columns) = (self.a.len(), self.scales.len() / size_of::<f16>());
        assert!(rows > 0 && self.group < GROUPS && columns <= self.width);
        assert!(self.integers.len() >= rows * columns && self.c.len() >= (rows - 1) * self.width + columns);
        columns
    }
}
