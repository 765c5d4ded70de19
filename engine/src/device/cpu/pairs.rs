//! Products of bf16 with bf16, summed in single precision: what processors have instructions for.
//!
//! Both operands lie as pairs along the inputs. A panel of weights is `[pairs, width]`, so that a vector holds
//! one pair for each of its outputs; rows of activations are rounded to nearest even and lie in blocks of
//! [`DEPTH_BLOCK`] pairs, `[blocks, rows, DEPTH_BLOCK]`, so that a kernel addresses rows by a constant. Odd inputs
//! and the last pairs of a panel are filled with zeros.
//!
//! Products of two bf16 are exact in single precision; the sums round, and subnormals count as zero.

use half::bf16;
use rayon::prelude::*;

use super::amx::Amx;
use super::layout::lay_out;
use super::packed::Packed;
use super::product::{Kernel, RowBlock};
use super::{Isa, avx512bf16, matrix_unit};

/// Two inputs next to each other.
pub(crate) type Pair = [bf16; 2];

/// Zero, twice.
const ZERO: Pair = [bf16::ZERO; 2];

/// Pairs of a row that lie together: with the panel's piece that they meet, what the first-level cache holds.
pub(super) const DEPTH_BLOCK: usize = 128;

/// Sums are padded to a multiple of so many pairs, the depth of a matrix unit's tile.
const PAIRS_MULTIPLE: usize = 16;

/// Most rows of a block.
pub(super) fn rows_max(isa: Isa) -> usize {
    if isa == Isa::Amx { matrix_unit::ROWS_MAX } else { isa.rows_max() }
}

/// Pairs of a sum over `inputs`, padding included.
pub(super) fn pair_count(inputs: usize) -> usize {
    inputs.div_ceil(2).next_multiple_of(PAIRS_MULTIPLE)
}

/// Rows `0..rows` of weights, which `read` puts into its buffer, as panels of `width`.
pub(super) fn pack_panels(
    rows: usize,
    inputs: usize,
    width: usize,
    read: impl Fn(usize, &mut [f32]) + Sync,
) -> Packed<Pair> {
    let pairs = pair_count(inputs);
    let mut values = Packed::zeros(rows.div_ceil(width) * width * pairs);
    values.par_chunks_mut(width * pairs).enumerate().for_each(|(number, panel)| {
        let mut weights = vec![0.0; 2 * pairs]; // beyond the inputs it stays zero
        for (lane, row) in (number * width..rows.min((number + 1) * width)).enumerate() {
            read(row, &mut weights[..inputs]);
            for (to, pair) in panel.chunks_exact_mut(width).zip(weights.as_chunks::<2>().0) {
                to[lane] = pair.map(bf16::from_f32);
            }
        }
    });
    values
}

/// Rounds rows of `inputs` and lays them out as kernels read them.
pub(super) fn round_rows<'a>(isa: Isa, x: &[f32], inputs: usize, packed: &'a mut Vec<Pair>) -> &'a [Pair] {
    lay_out(x, inputs, 2 * DEPTH_BLOCK, (ZERO, DEPTH_BLOCK), packed, |from, block| {
        let (to, padding) = block.as_flattened_mut().split_at_mut(from.len());
        if isa.rounds_activations() {
            // SAFETY: a `Cpu` holds available kernels only, and these have the instructions.
            unsafe { avx512bf16::round(from, to) };
        } else {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = bf16::from_f32(*from));
        }
        padding.fill(bf16::ZERO);
    })
}

/// A product of rounded rows with packed weights.
pub(super) struct Pairs<'a> {
    /// Its instructions.
    pub(super) isa: Isa,
    /// How many rows there are.
    pub(super) rows: usize,
    /// Length of the sums: [`pair_count`].
    pub(super) pairs: usize,
    /// Of a panel.
    pub(super) width: usize,
    /// From [`round_rows`].
    pub(super) activations: &'a [Pair],
    /// From [`pack_panels`].
    pub(super) panels: &'a [Pair],
}

/// Operands of one tile: a few rows by one panel, over a block of pairs.
pub(super) struct PairTile<'a> {
    /// Length of the sums.
    pub(super) depth: usize,
    /// `[rows, DEPTH_BLOCK]`
    pub(super) a: &'a [Pair],
    /// `[depth, width]`
    pub(super) b: &'a [Pair],
    /// Result: `[rows, width]`
    pub(super) c: &'a mut [f32],
    /// Whether to add to it or to overwrite it.
    pub(super) accumulate: bool,
}

impl PairTile<'_> {
    /// That kernels stay inside the operands.
    pub(super) fn check(&self, rows: usize, width: usize) {
        assert!(self.depth <= DEPTH_BLOCK && self.a.len() == rows * DEPTH_BLOCK);
        assert!(self.b.len() == self.depth * width && self.c.len() == rows * width);
    }
}

impl Kernel for Pairs<'_> {
    fn depth(&self) -> usize {
        self.pairs
    }

    fn depth_step(&self, _blocks: usize) -> usize {
        DEPTH_BLOCK
    }

    unsafe fn add(&self, block: RowBlock, panel: usize, depth: (usize, usize), sums: &mut [f32]) {
        let tile = self.tile(block, panel, depth, sums);
        // SAFETY: the instructions are this function's own contract.
        unsafe {
            match self.isa {
                Isa::Amx => matrix_unit::add(&mut Amx::default(), block.1, tile),
                _ => avx512bf16::add(block.1, tile),
            }
        }
    }
}

impl Pairs<'_> {
    /// The operands of a row block and a piece of a panel.
    pub(super) fn tile<'a>(
        &'a self,
        (first, count): RowBlock,
        panel: usize,
        (depth_first, depth): (usize, usize),
        sums: &'a mut [f32],
    ) -> PairTile<'a> {
        let row = depth_first / DEPTH_BLOCK * self.rows + first;
        PairTile {
            depth,
            a: &self.activations[row * DEPTH_BLOCK..][..count * DEPTH_BLOCK],
            b: &self.panels[(panel * self.pairs + depth_first) * self.width..][..depth * self.width],
            c: sums,
            accumulate: depth_first > 0,
        }
    }
}
