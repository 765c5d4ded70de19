//! Products of bf16 with bf16, summed in single precision: what processors have instructions for.
//!
//! Both operands lie as pairs along the inputs ([`super::layout::pairs`]).
//!
//! Products of two bf16 are exact in single precision; the sums round, and subnormals count as zero.

use half::bf16;

use super::isa::Isa;
use super::kernels::avx512_bf16;
use super::layout::blocks::{BlockLayout, RowBlock};
use super::layout::packed::bytes_of;
use super::layout::pairs::{DEPTH_BLOCK, Pair, PairTile, ZERO};
use super::product::{Kernel, Next, PanelPiece, Steps};

/// Rounds rows of `inputs` and lays them out as kernels read them.
pub(super) fn round_rows<'a>(isa: Isa, x: &[f32], inputs: usize, packed: &'a mut Vec<Pair>) -> &'a [Pair] {
    let blocks = BlockLayout { inputs, block_inputs: 2 * DEPTH_BLOCK, elements: DEPTH_BLOCK, empty: ZERO };
    blocks.lay_out(x, packed, |from, block| {
        let (to, padding) = block.as_flattened_mut().split_at_mut(from.len());
        if isa.rounds_activations() {
            // SAFETY: a `Cpu` holds available kernels only, and these have the instructions.
            unsafe { avx512_bf16::round(from, to) };
        } else {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = bf16::from_f32(*from));
        }
        padding.fill(bf16::ZERO);
    })
}

/// A product of rounded rows with packed weights.
pub(super) struct Pairs<'a> {
    /// How many rows there are.
    pub(super) rows: usize,
    /// Length of the sums: [`super::layout::pairs::pair_count`].
    pub(super) pairs: usize,
    /// Of a panel.
    pub(super) width: usize,
    /// From [`round_rows`].
    pub(super) activations: &'a [Pair],
    /// From [`super::layout::pairs::pack_panels`].
    pub(super) panels: &'a [Pair],
}

impl Kernel for Pairs<'_> {
    fn depth(&self) -> usize {
        self.pairs
    }

    fn depth_step(&self, _blocks: usize) -> usize {
        DEPTH_BLOCK
    }

    unsafe fn add(&self, block: RowBlock, piece: PanelPiece<'_>, sums: &mut [f32], next: Option<Next>) {
        let PanelPiece { panel, steps, .. } = piece;
        let row = steps.first / DEPTH_BLOCK * self.rows + block.first;
        let next = next.map_or(&[][..], |next| next.part_of(bytes_of(self.piece(next.panel, next.steps))));
        let tile = PairTile {
            depth: steps.count,
            a: &self.activations[row * DEPTH_BLOCK..][..block.rows * DEPTH_BLOCK],
            b: self.piece(panel, steps),
            c: sums,
            accumulate: steps.first > 0,
            next,
        };
        // SAFETY: the instructions are this function's own contract.
        unsafe { avx512_bf16::add(block.rows, tile) };
    }
}

impl Pairs<'_> {
    /// Some steps of a panel.
    fn piece(&self, panel: usize, steps: Steps) -> &[Pair] {
        &self.panels[(panel * self.pairs + steps.first) * self.width..][..steps.count * self.width]
    }
}
