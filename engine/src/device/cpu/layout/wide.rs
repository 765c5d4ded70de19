//! Weights in any element type, in panels, and rows of single precision that meet them.
//!
//! Panel `p` holds outputs `p * width ..`, stored `[inputs, width]`: a product streams each panel once, in
//! order, whatever its element type. Rows lie block by block, element `k` of all a block's rows together.

use rayon::prelude::*;

use super::blocks::RowBlock;
use super::packed::{Bits, Packed};

/// Sums longer than this are cut when there are many rows, so that a panel's piece stays in cache.
pub(crate) const DEPTH_BLOCK: usize = 1024;

/// Operands of one tile. The caller vouches that every element the kernel touches is inside its buffer.
#[derive(Clone, Copy)]
pub(crate) struct Tile<E> {
    /// Length of the sums.
    pub(crate) depth: usize,
    /// Left operand, `a[k * rows + m]`.
    pub(crate) a: *const f32,
    /// Right operand: row `k` at `b + k * b_step`.
    pub(crate) b: *const E,
    /// Elements from one row of `b` to the next.
    pub(crate) b_step: usize,
    /// Result: row `m` at `c + m * c_row`.
    pub(crate) c: *mut f32,
    /// Elements from one row of `c` to the next.
    pub(crate) c_row: usize,
    /// Whether to add to `c` or to overwrite it.
    pub(crate) accumulate: bool,
}

/// An element type that weights may be stored in.
pub(crate) trait WeightElement: Bits {
    /// The number, in single precision.
    fn widen(self) -> f32;
    /// The number rounded to this type.
    fn narrow(value: f32) -> Self;
}

macro_rules! element {
    ($type:ty, $widen:expr, $narrow:expr) => {
        impl WeightElement for $type {
            #[inline]
            fn widen(self) -> f32 {
                $widen(self)
            }
            #[inline]
            fn narrow(value: f32) -> Self {
                $narrow(value)
            }
        }
    };
}
element!(f32, |x| x, |x| x);
element!(half::f16, half::f16::to_f32, half::f16::from_f32);
element!(half::bf16, half::bf16::to_f32, half::bf16::from_f32);

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

/// Packs `x` block by block of rows; one row is packed as it is.
pub(crate) fn pack_blocks<'a>(
    x: &'a [f32],
    inputs: usize,
    blocks: &[RowBlock],
    packed: &'a mut Vec<f32>,
) -> &'a [f32] {
    if blocks.iter().all(|block| block.rows == 1) {
        return x;
    }
    packed.resize(x.len().max(packed.len()), 0.0);
    let mut rest = &mut packed[..x.len()];
    let mut pieces = Vec::with_capacity(blocks.len());
    for RowBlock { first, rows } in blocks {
        let (piece, after) = rest.split_at_mut(rows * inputs);
        pieces.push((&x[first * inputs..(first + rows) * inputs], piece));
        rest = after;
    }
    pieces.into_par_iter().with_min_len(4).for_each(|(from, to)| pack_rows(from, inputs, to));
    &packed[..x.len()]
}

/// Copies rows of `depth` so that the kernel reads them in order: `packed[k * rows + m] = x[m, k]`.
fn pack_rows(x: &[f32], depth: usize, packed: &mut [f32]) {
    let rows = x.len() / depth.max(1);
    assert!(packed.len() == x.len());
    for (row, values) in x.chunks_exact(depth).enumerate() {
        for (k, value) in values.iter().enumerate() {
            packed[k * rows + row] = *value;
        }
    }
}
