//! Products of eight-bit integers: weights and activations in groups of [`GROUP`] inputs under one scale each.
//!
//! Weights are rounded once, when they are packed; activations on the fly, each row by itself. A sum over a group is
//! exact in 32 bits; then it is scaled and added to the output in single precision, group after group. So a
//! row's bits do not depend on its batch, and kernels differ by the rounding of those additions alone.
//!
//! A panel of weights is `[groups]` of `[GROUP / 4, width, 4]` bytes and, behind them, `[width]` scales: a vector holds
//! four inputs of each of its outputs, and a product streams the panel once. The bytes are the integers plus
//! [`BIAS`], which the processors' instructions want unsigned on one side. Group size and the scales' type are those of
//! ggml's Q8_0, so that packing such weights loses nothing.

use half::f16;
use rayon::prelude::*;

use super::packed::Packed;
use super::product::{Kernel, RowBlock};
use super::{Isa, avx2bytes, avx512vnni, portable};

/// Inputs under one scale.
pub(super) const GROUP: usize = 32;

/// Inputs that an instruction sums up.
pub(super) const QUAD: usize = 4;

/// The largest integer; its negative is the smallest.
const LARGEST: f32 = 127.0;

/// What is added to a weight to make it unsigned.
pub(super) const BIAS: u8 = 128;

/// Groups of a row that lie together: with the panel's piece that they meet, what the first-level cache holds.
pub(super) const DEPTH_BLOCK: usize = 16;

/// Blocks of groups that a task rounds at least: less is not worth waking a thread for.
const BLOCKS_PER_TASK: usize = 64;

/// Most rows of a tile in 256-bit vectors: their sums stay in the 16 registers.
const ROWS_MAX_256: usize = 6;

/// Most rows of a tile in 512-bit vectors: a batch of few rows streams a panel once, without a second pass that leaves
/// memory idle.
const ROWS_MAX_512: usize = 12;

/// A group of a row's activations: `scale * values`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Group {
    /// The integers.
    pub(super) values: [i8; GROUP],
    /// What one of them is worth.
    pub(super) scale: f32,
    /// What [`BIAS`] adds to a sum of products with these, negated.
    pub(super) unbias: i32,
}

/// A group of zeros.
const EMPTY: Group = Group { values: [0; GROUP], scale: 0.0, unbias: 0 };

/// Most rows of a block.
pub(super) fn rows_max(isa: Isa) -> usize {
    match isa {
        Isa::Portable => isa.rows_max(),
        Isa::Avx2 | Isa::Avx512 => ROWS_MAX_256,
        Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => ROWS_MAX_512,
    }
}

/// Groups of a sum over `inputs`, the last of which may be padded with zeros.
pub(super) fn group_count(inputs: usize) -> usize {
    inputs.div_ceil(GROUP)
}

/// Bytes of a panel's group: integers, then scales.
pub(super) const fn group_bytes(width: usize) -> usize {
    (GROUP + size_of::<f16>()) * width
}

/// Rows `0..rows` of weights, which `read` puts into its buffer, as panels of `width`.
pub(super) fn pack_panels(
    rows: usize,
    inputs: usize,
    width: usize,
    read: impl Fn(usize, &mut [f32]) + Sync,
) -> Packed<u8> {
    let groups = group_count(inputs);
    let mut panels = Packed::zeros(rows.div_ceil(width) * groups * group_bytes(width));
    panels.par_chunks_mut(groups * group_bytes(width)).enumerate().for_each(|(number, panel)| {
        let mut weights = vec![0.0; groups * GROUP]; // beyond the inputs it stays zero
        for (lane, row) in (number * width..rows.min((number + 1) * width)).enumerate() {
            read(row, &mut weights[..inputs]);
            for (to, from) in panel.chunks_exact_mut(group_bytes(width)).zip(weights.as_chunks::<GROUP>().0) {
                pack_group(from, to, (lane, width));
            }
        }
    });
    panels
}

/// Rounds a group of one output's weights into its lane of a panel's group.
fn pack_group(weights: &[f32; GROUP], to: &mut [u8], (lane, width): (usize, usize)) {
    let largest = largest(weights);
    // What is not a number makes the whole group such, as it makes every product with it.
    let scale = f16::from_f32((largest / LARGEST).clamp(0.0, f16::MAX.to_f32()));
    let inverse = if scale > f16::ZERO { 1.0 / scale.to_f32() } else { 0.0 };
    let (integers, scales) = to.split_at_mut(GROUP * width);
    for (k, weight) in weights.iter().enumerate() {
        let integer = (weight * inverse).round().clamp(-LARGEST, LARGEST) as i8;
        integers[(k / QUAD * width + lane) * QUAD + k % QUAD] = integer.cast_unsigned() ^ BIAS;
    }
    scales[2 * lane..2 * lane + 2].copy_from_slice(&scale.to_le_bytes());
}

/// Weights of one output: the numbers that the integers of its lane mean.
pub(super) fn unpack(panel: &[u8], (lane, width): (usize, usize), row: &mut [f32]) {
    for (to, group) in row.chunks_mut(GROUP).zip(panel.chunks_exact(group_bytes(width))) {
        let (integers, scales) = group.split_at(GROUP * width);
        let scale = f16::from_le_bytes([scales[2 * lane], scales[2 * lane + 1]]).to_f32();
        for (k, value) in to.iter_mut().enumerate() {
            let byte = integers[(k / QUAD * width + lane) * QUAD + k % QUAD];
            *value = f32::from((byte ^ BIAS).cast_signed()) * scale;
        }
    }
}

/// The largest magnitude; infinite or not a number where any element is.
#[inline(always)]
fn largest(values: &[f32; GROUP]) -> f32 {
    // Magnitudes order as their bits do, above all numbers the infinite and above that what is none.
    let magnitude = |value: &f32| value.to_bits() & (u32::MAX >> 1);
    f32::from_bits(values.iter().map(magnitude).fold(0, u32::max))
}

/// Rounds rows of `inputs` and lays them out as kernels read them: `[blocks, rows, DEPTH_BLOCK]`.
pub(super) fn quantise_rows<'a>(
    isa: Isa,
    x: &[f32],
    inputs: usize,
    packed: &'a mut Vec<Group>,
) -> &'a [Group] {
    let rows = x.len() / inputs;
    let blocks = rows * group_count(inputs).div_ceil(DEPTH_BLOCK);
    packed.resize((blocks * DEPTH_BLOCK).max(packed.len()), EMPTY);
    let packed = &mut packed[..blocks * DEPTH_BLOCK];
    packed.par_chunks_exact_mut(DEPTH_BLOCK).enumerate().with_min_len(BLOCKS_PER_TASK).for_each(
        |(number, block)| {
            let (first, row) = (number / rows * DEPTH_BLOCK * GROUP, number % rows);
            let from = &x[row * inputs..(row + 1) * inputs][first..];
            let from = &from[..from.len().min(DEPTH_BLOCK * GROUP)];
            match isa {
                Isa::Portable => quantise(from, block),
                // SAFETY: a `Cpu` holds available kernels only, and these have the instructions.
                Isa::Avx2 => unsafe { avx2bytes::quantise(from, block) },
                // SAFETY: as above.
                _ => unsafe { avx512vnni::quantise(from, block) },
            }
        },
    );
    packed
}

/// Rounds a piece of a row, its last group padded with zeros.
#[inline(always)]
pub(super) fn quantise(from: &[f32], to: &mut [Group]) {
    let (whole, rest) = from.as_chunks::<GROUP>();
    for (from, to) in whole.iter().zip(&mut *to) {
        quantise_group(from, to);
    }
    if !rest.is_empty() {
        let mut padded = [0.0; GROUP];
        padded[..rest.len()].copy_from_slice(rest);
        quantise_group(&padded, &mut to[whole.len()]);
    }
}

#[inline(always)]
fn quantise_group(from: &[f32; GROUP], to: &mut Group) {
    /// Adding it rounds to nearest even and leaves the integer in the lowest bits.
    const ROUNDING: f32 = 12_582_912.0;
    let largest = largest(from);
    let inverse = if largest > f32::MIN_POSITIVE { LARGEST / largest } else { 0.0 };
    for (to, value) in to.values.iter_mut().zip(from) {
        *to = (value * inverse + ROUNDING).to_bits() as i8;
    }
    to.scale = largest / LARGEST;
    to.unbias = -i32::from(BIAS) * to.values.iter().map(|value| i32::from(*value)).sum::<i32>();
}

/// A product of rounded rows with packed weights.
pub(super) struct Groups<'a> {
    /// Its instructions.
    pub(super) isa: Isa,
    /// How many rows there are.
    pub(super) rows: usize,
    /// Length of the sums: [`group_count`].
    pub(super) groups: usize,
    /// Of a panel.
    pub(super) width: usize,
    /// From [`quantise_rows`].
    pub(super) activations: &'a [Group],
    /// From [`pack_panels`].
    pub(super) panels: &'a [u8],
}

/// Operands of one tile: a few rows by one panel, over a block of groups.
pub(super) struct GroupTile<'a> {
    /// Length of the sums.
    pub(super) depth: usize,
    /// Of the panel.
    pub(super) width: usize,
    /// `[rows, DEPTH_BLOCK]`
    pub(super) a: &'a [Group],
    /// `[depth]` groups of the panel.
    pub(super) b: &'a [u8],
    /// Result: row `m` at `c + m * c_row`.
    pub(super) c: *mut f32,
    /// Elements from one row of `c` to the next.
    pub(super) c_row: usize,
}

impl GroupTile<'_> {
    /// That kernels stay inside `a` and `b`.
    pub(super) fn check(&self, rows: usize) {
        assert!(self.depth <= DEPTH_BLOCK && self.a.len() == rows * DEPTH_BLOCK);
        assert!(self.b.len() == self.depth * group_bytes(self.width));
    }
}

impl Kernel for Groups<'_> {
    fn depth(&self) -> usize {
        self.groups
    }

    fn depth_step(&self, _blocks: usize) -> usize {
        DEPTH_BLOCK
    }

    unsafe fn add(
        &self,
        (first, count): RowBlock,
        panel: usize,
        (depth_first, depth): (usize, usize),
        c: *mut f32,
        c_row: usize,
    ) {
        let (row, bytes) = (depth_first / DEPTH_BLOCK * self.rows + first, group_bytes(self.width));
        let tile = GroupTile {
            depth,
            width: self.width,
            a: &self.activations[row * DEPTH_BLOCK..][..count * DEPTH_BLOCK],
            b: &self.panels[(panel * self.groups + depth_first) * bytes..][..depth * bytes],
            c,
            c_row,
        };
        // SAFETY: `c` is this function's own contract; a `Cpu` holds available kernels only.
        unsafe {
            match self.isa {
                Isa::Portable => portable::groups(count, &tile),
                Isa::Avx2 | Isa::Avx512 => avx2bytes::add(count, &tile),
                Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => avx512vnni::add(count, &tile),
            }
        }
    }
}

#[cfg(test)]
mod tests;
