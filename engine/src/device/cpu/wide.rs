//! Products that widen weights in registers: activations stay in single precision, weights in any type.
//!
//! Panel `p` holds outputs `p * width ..`, stored `[inputs, width]`: a product streams each panel once, in
//! order, whatever its element type.

use rayon::prelude::*;

use super::Isa;
use super::packed::Packed;
use super::product::{Kernel, RowBlock};
use super::tile::{Element, Tile, pack_rows};

/// Sums longer than this are cut when there are many rows, so that a panel's piece stays in cache.
pub(super) const DEPTH_BLOCK: usize = 1024;

/// A product of packed rows with packed weights.
pub(super) struct Wide<'a, E> {
    /// Its instructions.
    pub(super) isa: Isa,
    /// Length of the sums.
    pub(super) inputs: usize,
    /// Of a panel.
    pub(super) width: usize,
    /// From [`pack_blocks`].
    pub(super) rows: &'a [f32],
    /// From [`pack_panels`].
    pub(super) panels: &'a [E],
}

impl<E: Element> Kernel for Wide<'_, E> {
    fn depth(&self) -> usize {
        self.inputs
    }

    fn depth_step(&self, blocks: usize) -> usize {
        if blocks > 1 { DEPTH_BLOCK } else { self.inputs }
    }

    unsafe fn add(
        &self,
        (first, count): RowBlock,
        panel: usize,
        (depth_first, depth): (usize, usize),
        sums: &mut [f32],
    ) {
        let a = &self.rows[first * self.inputs + depth_first * count..][..depth * count];
        let b = &self.panels[(panel * self.inputs + depth_first) * self.width..][..depth * self.width];
        assert!(sums.len() == count * self.width);
        let tile = Tile {
            depth,
            a: a.as_ptr(),
            b: b.as_ptr(),
            b_step: self.width,
            c: sums.as_mut_ptr(),
            c_row: self.width,
            accumulate: depth_first > 0,
        };
        // SAFETY: `a` and `b` were cut to the tile's extent, and `sums` has it; the instructions are this function's own
        // contract.
        unsafe { E::tile(self.isa, count, self.width, &tile) };
    }
}

/// Rows `0..rows` of weights, which `read` puts into its buffer, as panels of `width`; what is missing in the last
/// is zero.
pub(super) fn pack_panels<E: Element>(
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

/// Packs `x` block by block of rows; one row is packed as it is.
pub(super) fn pack_blocks<'a>(
    x: &'a [f32],
    inputs: usize,
    blocks: &[RowBlock],
    packed: &'a mut Vec<f32>,
) -> &'a [f32] {
    if blocks.iter().all(|(_, rows)| *rows == 1) {
        return x;
    }
    packed.resize(x.len().max(packed.len()), 0.0);
    let mut rest = &mut packed[..x.len()];
    let mut pieces = Vec::with_capacity(blocks.len());
    for (first, rows) in blocks {
        let (piece, after) = rest.split_at_mut(rows * inputs);
        pieces.push((&x[first * inputs..(first + rows) * inputs], piece));
        rest = after;
    }
    pieces.into_par_iter().with_min_len(4).for_each(|(from, to)| pack_rows(from, inputs, to));
    &packed[..x.len()]
}
