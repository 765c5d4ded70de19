//! Products of bf16 with bf16 on a matrix unit, summed in single precision.
//!
//! Operands lie in tiles ([`super::layout::tiles`]), and sums are whole tiles too, of which the rows that a
//! block lacks are left unread.
//!
//! What a thread's caches hold decides how long a stretch of a sum is taken at once. A panel's piece stays in
//! the first-level cache while all row blocks pass by it. Where the sums are long, the activations of all rows
//! do not stay in the second-level cache from panel to panel: then a piece of the activations meets the pieces
//! of several of the task's panels before the next one does, and the sums of these wait meanwhile.

use std::marker::PhantomData;

use super::isa::Isa;
use super::kernels::avx512_bf16;
use super::kernels::matrix_unit::{Shapes, TileOperands, Unit, add};
use super::layout::blocks::RowBlock;
use super::layout::pairs::Pair;
use super::layout::tiles::{self, Line, PANEL, ROWS_MAX, TILE, lay_out, tile_count};
use super::product::{Kernel, Next, Order, PanelPiece, Steps};

/// Steps of a piece: 28 KiB of a panel, which leave room in the first-level cache (48 KiB) for what passes.
const PIECE_STEPS: usize = 14;

/// Sums of more steps than these take a piece of several panels after the other: the activations of a task's 512
/// rows are then more than a megabyte.
const PANEL_STEPS_MAX: usize = 40;

/// Rounds rows of `inputs` and lays them out in tiles.
pub(super) fn round_rows<'a>(isa: Isa, x: &[f32], inputs: usize, packed: &'a mut Vec<Line>) -> &'a [Line] {
    lay_out(x, inputs, packed, |from, to, of_step| round_row(isa, from, to, of_step))
}

/// Rounds what a row has in some steps into every `of_step`th line.
pub(super) fn round_row(isa: Isa, from: &[f32], to: &mut [Line], of_step: usize) {
    if isa.rounds_activations() {
        // SAFETY: a `Cpu` holds available kernels only, and these have the instructions.
        unsafe { avx512_bf16::round_lines(from, to, of_step) };
    } else {
        tiles::round_portable(from, to, of_step);
    }
}

/// A product of rounded rows with packed weights, on unit `U`.
pub(super) struct Tiles<'a, U> {
    /// Length of the sums: [`super::layout::tiles::step_count`].
    pub(super) steps: usize,
    /// From [`round_rows`].
    pub(super) activations: &'a [Line],
    /// From [`super::layout::tiles::pack_panels`].
    pub(super) panels: &'a [Pair],
    pub(super) unit: PhantomData<fn() -> U>,
}

impl<U: Unit> Kernel for Tiles<'_, U> {
    fn depth(&self) -> usize {
        self.steps
    }

    fn depth_step(&self, blocks: usize) -> usize {
        // One block meets each panel once: nothing would be read again.
        if blocks > 1 { PIECE_STEPS } else { self.steps }
    }

    fn order(&self, blocks: usize) -> Order {
        if blocks > 1 && self.steps > PANEL_STEPS_MAX {
            Order::DepthOutermost
        } else {
            Order::PanelsOutermost
        }
    }

    fn sums_rows(&self, rows: usize) -> usize {
        tile_count(rows) * TILE
    }

    fn on_thread(&self, work: &mut dyn FnMut()) {
        // SAFETY: a `Cpu` holds available kernels only.
        unsafe { U::configured(Shapes::Products, work) };
    }

    unsafe fn add(&self, block: RowBlock, piece: PanelPiece<'_>, sums: &mut [f32], next: Option<Next>) {
        let PanelPiece { panel, steps, .. } = piece;
        let of_step = tile_count(block.rows) * TILE;
        // Blocks before this one are whole.
        assert!(block.first.is_multiple_of(ROWS_MAX));
        let of_block = &self.activations[block.first * self.steps..][..of_step * self.steps];
        let operands = TileOperands {
            steps: steps.count,
            a: &of_block[steps.first * of_step..][..steps.count * of_step],
            b: self.piece(panel, steps),
            c: sums,
            accumulate: steps.first > 0,
            next: next.map_or(&[], |next| next.part_of(self.piece(next.panel, next.steps))),
        };
        // SAFETY: `on_thread` has configured the unit.
        unsafe { add(&mut U::default(), operands) };
    }
}

impl<U> Tiles<'_, U> {
    /// Some steps of a panel.
    fn piece(&self, panel: usize, steps: Steps) -> &[Pair] {
        let of_step = PANEL * TILE;
        &self.panels[(panel * self.steps + steps.first) * of_step..][..steps.count * of_step]
    }
}

#[cfg(test)]
mod tests;
