//! Numbers in bf16, two inputs next to each other: what processors have instructions for.
//!
//! A panel of weights is `[pairs, width]`, so that a vector holds one pair for each of its outputs; rows of
//! activations lie in blocks of [`DEPTH_BLOCK`] pairs, `[blocks, rows, DEPTH_BLOCK]`, so that a kernel
//! addresses rows by a constant. Odd inputs and the last pairs of a panel are filled with zeros.

use half::bf16;
use rayon::prelude::*;

use super::packed::Packed;

/// Two inputs next to each other.
pub(crate) type Pair = [bf16; 2];

/// Zero, twice.
pub(crate) const ZERO: Pair = [bf16::ZERO; 2];

/// Pairs of a row that lie together: with the panel's piece that they meet, what the first-level cache holds.
pub(crate) const DEPTH_BLOCK: usize = 128;

/// Sums are padded to a multiple of so many pairs, the depth of a matrix unit's tile.
const PAIRS_MULTIPLE: usize = 16;

/// Pairs of a sum over `inputs`, padding included.
pub(crate) fn pair_count(inputs: usize) -> usize {
    inputs.div_ceil(2).next_multiple_of(PAIRS_MULTIPLE)
}

/// Rows `0..rows` of weights, which `read` puts into its buffer, as panels of `width`.
pub(crate) fn pack_panels(
    rows: usize,
    inputs: usize,
    width: usize,
    read: impl Fn(usize, &mut [f32]) + Sync,
) -> Packed<Pair> {
    pack_panels_at(rows, inputs, width, |pair, lane| pair * width + lane, read)
}

/// The same in panels that keep a pair of a lane at `place`.
pub(crate) fn pack_panels_at(
    rows: usize,
    inputs: usize,
    width: usize,
    place: impl Fn(usize, usize) -> usize + Sync,
    read: impl Fn(usize, &mut [f32]) + Sync,
) -> Packed<Pair> {
    let pairs = pair_count(inputs);
    let mut values = Packed::zeros(rows.div_ceil(width) * width * pairs);
    values.par_chunks_mut(width * pairs).enumerate().for_each(|(number, panel)| {
        let mut weights = vec![0.0; 2 * pairs]; // beyond the inputs it stays zero
        for (lane, row) in (number * width..rows.min((number + 1) * width)).enumerate() {
            read(row, &mut weights[..inputs]);
            for (number, pair) in weights.as_chunks::<2>().0.iter().enumerate() {
                panel[place(number, lane)] = pair.map(bf16::from_f32);
            }
        }
    });
    values
}

/// Operands of one tile: a few rows by one panel, over a block of pairs.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "no kernel of others multiplies pairs"))]
pub(crate) struct PairTile<'a> {
    /// Length of the sums.
    pub(crate) depth: usize,
    /// `[rows, DEPTH_BLOCK]`
    pub(crate) a: &'a [Pair],
    /// `[depth, width]`
    pub(crate) b: &'a [Pair],
    /// Result: `[rows, width]`
    pub(crate) c: &'a mut [f32],
    /// Whether to add to it or to overwrite it.
    pub(crate) accumulate: bool,
    /// What a kernel may bring near meanwhile.
    pub(crate) next: &'a [u8],
}

#[cfg(target_arch = "x86_64")]
impl PairTile<'_> {
    /// That kernels stay inside the operands.
    pub(crate) fn check(&self, rows: usize, width: usize) {
        assert!(self.depth <= DEPTH_BLOCK && self.a.len() == rows * DEPTH_BLOCK);
        assert!(self.b.len() == self.depth * width && self.c.len() == rows * width);
    }
}
