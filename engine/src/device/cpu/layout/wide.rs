//! Weights in any element type, in panels, and rows of single precision that meet them.
//!
//! Panel `p` holds outputs `p * width ..`, stored `[elements, width]`: a product streams each panel once, in
//! order, whatever its element type. An element is one input's weight, or, of bf16, two inputs' ([`super::pairs`]).
//!
//! Rows lie in blocks of [`DEPTH_BLOCK`] inputs, `[blocks, rows, DEPTH_BLOCK]`: a kernel addresses rows by a constant,
//! and what a piece of a panel meets lies together.

use rayon::prelude::*;

use super::blocks::BlockLayout;
use super::packed::{Bits, Packed};

/// Inputs of a row that lie together. Where there are several row blocks, sums are cut into as many: the piece of a panel
/// that meets them, in single precision up to 16 KiB, stays in the first-level cache, and half of it is left for rows and
/// sums.
pub(crate) const DEPTH_BLOCK: usize = 128;

/// Operands of one tile: a few rows by one panel.
pub(crate) struct Tile<'a, E> {
    /// Length of the sums, in elements of the right.
    pub(crate) depth: usize,
    /// `[blocks, .., DEPTH_BLOCK]`, from the first number of the tile's first row.
    pub(crate) a: &'a [f32],
    /// Numbers from one block of a row to its next.
    pub(crate) a_block: usize,
    /// `[depth, width]`
    pub(crate) b: &'a [E],
    /// Result: `[rows, width]`
    pub(crate) c: &'a mut [f32],
    /// Whether to add to it or to overwrite it.
    pub(crate) accumulate: bool,
    /// What a kernel may bring near meanwhile.
    pub(crate) next: &'a [u8],
}

impl<E> Tile<'_, E> {
    /// That kernels stay inside the operands, an element of whose right has so many `numbers`.
    pub(crate) fn check(&self, rows: usize, width: usize, numbers: usize) {
        let blocks = (self.depth * numbers).div_ceil(DEPTH_BLOCK);
        assert!(blocks > 0 && self.a.len() >= (blocks - 1) * self.a_block + rows * DEPTH_BLOCK);
        assert!(self.b.len() == self.depth * width && self.c.len() == rows * width);
    }
}

/// An element type that weights are stored in one by one.
pub(crate) trait WeightElement: Bits {
    /// The number, in single precision.
    fn widen(self) -> f32;
    /// The number rounded to this type.
    fn narrow(value: f32) -> Self;
}

impl WeightElement for f32 {
    #[inline]
    fn widen(self) -> f32 {
        self
    }

    #[inline]
    fn narrow(value: f32) -> Self {
        value
    }
}

impl WeightElement for half::f16 {
    #[inline]
    fn widen(self) -> f32 {
        self.to_f32()
    }

    #[inline]
    fn narrow(value: f32) -> Self {
        Self::from_f32(value)
    }
}

/// Rows `0..rows` of weights, which `read` puts into its buffer, as panels of `width`; what is missing in the
/// last is zero.
pub(crate) fn pack_panels<E: WeightElement>(
    rows: usize,
    inputs: usize,
    width: usize,
    read: impl Fn(usize, &mut [f32]) + Sync,
) -> Packed<E> {
    let mut values = Packed::zeros(rows.div_ceil(width) * width * inputs);
    values.par_chunks_mut(width * inputs).enumerate().for_each(|(number, panel)| {
        let mut weights = vec![0.0; inputs];
        for (lane, row) in (number * width..rows.min((number + 1) * width)).enumerate() {
            read(row, &mut weights);
            for (to, weight) in panel.chunks_exact_mut(width).zip(&weights) {
                to[lane] = E::narrow(*weight);
            }
        }
    });
    values
}

/// Lays rows of `inputs` out as kernels read them; zeros stand behind a row's last inputs.
pub(crate) fn lay_out<'a>(x: &[f32], inputs: usize, packed: &'a mut Vec<f32>) -> &'a [f32] {
    let blocks = BlockLayout { inputs, block_inputs: DEPTH_BLOCK, elements: DEPTH_BLOCK, empty: 0.0 };
    blocks.lay_out(x, packed, |from, block| {
        let (to, padding) = block.split_at_mut(from.len());
        to.copy_from_slice(from);
        padding.fill(0.0);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rows_blocks_lie_apart_with_zeros_behind_its_last_inputs() {
        let (rows, inputs) = (3, DEPTH_BLOCK + 2);
        let x: Vec<f32> = (0..rows * inputs).map(|i| i as f32 + 1.0).collect();
        let mut memory = vec![f32::NAN; 5 * rows * DEPTH_BLOCK];
        let packed = lay_out(&x, inputs, &mut memory);
        assert_eq!(packed.len(), 2 * rows * DEPTH_BLOCK);
        for (number, row) in x.chunks_exact(inputs).enumerate() {
            for k in 0..2 * DEPTH_BLOCK {
                let at = (k / DEPTH_BLOCK * rows + number) * DEPTH_BLOCK + k % DEPTH_BLOCK;
                assert_eq!(packed[at], row.get(k).copied().unwrap_or(0.0), "row {number}, input {k}");
            }
        }
    }
}
