//! Products of half floats with half floats, summed as such for a few inputs and then in single precision.
//!
//! Both operands lie as [`super::layout::halves`] says. The sums of a run round to 11 binary places; where its products
//! begin and end depends on their inputs' numbers alone.

use half::f16;

use super::isa::Isa;
use super::kernels::{avx512_fp16, portable};
use super::layout::blocks::{BlockLayout, RowBlock};
use super::layout::halves::{DEPTH_BLOCK, EMPTY, HalfBlock, HalfTile, PANEL};
use super::layout::packed::bytes_of;
use super::product::{Kernel, Next, Order, PanelPiece, Steps};
use super::wide::ACTIVATIONS_MAX;

/// Rounds rows of `inputs` and lays them out as kernels read them.
pub(super) fn round_rows<'a>(
    isa: Isa,
    x: &[f32],
    inputs: usize,
    packed: &'a mut Vec<HalfBlock>,
) -> &'a [HalfBlock] {
    let blocks = BlockLayout { inputs, block_inputs: DEPTH_BLOCK, elements: 1, empty: EMPTY };
    blocks.lay_out(x, packed, |from, block| {
        // SAFETY: a `Cpu` holds available kernels only, and these have the instructions.
        unsafe {
            match isa {
                Isa::Avx512Fp16 => avx512_fp16::round(from, &mut block[0]),
                _ => portable::round_halves(from, &mut block[0]),
            }
        }
    })
}

/// A product of rounded rows with packed weights.
pub(super) struct Halves<'a> {
    /// Its instructions.
    pub(super) isa: Isa,
    /// How many rows there are.
    pub(super) rows: usize,
    pub(super) inputs: usize,
    /// From [`round_rows`].
    pub(super) activations: &'a [HalfBlock],
    /// From [`super::layout::halves::pack_panels`].
    pub(super) panels: &'a [f16],
    /// Likewise.
    pub(super) scales: &'a [f32],
}

impl Kernel for Halves<'_> {
    fn depth(&self) -> usize {
        self.inputs
    }

    fn depth_step(&self, _blocks: usize) -> usize {
        DEPTH_BLOCK
    }

    fn order(&self, blocks: usize) -> Order {
        let of_row = self.inputs.div_ceil(DEPTH_BLOCK) * size_of::<HalfBlock>();
        let of_task = blocks * self.isa.rows_max() * of_row;
        if blocks > 1 && of_task > ACTIVATIONS_MAX { Order::DepthOutermost } else { Order::PanelsOutermost }
    }

    unsafe fn add(&self, block: RowBlock, piece: PanelPiece<'_>, sums: &mut [f32], next: Option<Next>) {
        let PanelPiece { panel, steps, .. } = piece;
        let is_last = steps.first + steps.count == self.inputs;
        let tile = HalfTile {
            a: &self.activations[steps.first / DEPTH_BLOCK * self.rows + block.first..][..block.rows],
            b: self.piece(panel, steps),
            c: sums,
            accumulate: steps.first > 0,
            scales: is_last.then(|| &self.scales[panel * PANEL..][..PANEL]),
            next: next.map_or(&[][..], |next| next.part_of(bytes_of(self.piece(next.panel, next.steps)))),
        };
        // SAFETY: the instructions are this function's own contract.
        unsafe {
            match self.isa {
                Isa::Avx512Fp16 => avx512_fp16::add(tile),
                _ => portable::halves(tile),
            }
        }
    }
}

impl Halves<'_> {
    /// Some steps of a panel.
    fn piece(&self, panel: usize, steps: Steps) -> &[f16] {
        &self.panels[(panel * self.inputs + steps.first) * PANEL..][..steps.count * PANEL]
    }
}

#[cfg(test)]
mod tests;
