//! Products of four-bit weights with activations rounded to eight-bit integers.
//!
//! With weights `s q + m` and activations `t a` a group's part of a sum is `t (s sum(q a) + m sum(a))`: both sums
//! are exact in integers, the second is the same for all outputs. Scaled, they are added in single precision,
//! group after group, so a row's bits do not depend on its batch, and kernels differ by the rounding of those
//! additions alone.

use super::groups::quantise_rows;
use super::isa::Isa;
use super::kernels::{avx2_nibbles, avx512_nibbles, neon_bytes, neon_dotprod, neon_i8mm, portable};
use super::layout::blocks::RowBlock;
use super::layout::groups::{Block, DEPTH_BLOCK, GroupSizes, PIECE};
use super::layout::nibbles::{NibbleTile, group_bytes, panel_bytes};
use super::product::{Kernel, Next, PanelPiece, Steps};

/// A product of rounded rows with packed weights.
pub(super) struct Nibbles<'a> {
    /// Its instructions.
    isa: Isa,
    /// How many rows there are.
    rows: usize,
    /// Length of the sums.
    inputs: usize,
    /// Of a panel.
    width: usize,
    activations: &'a [Block],
    /// From [`super::layout::nibbles::pack_panels`].
    panels: &'a [u8],
}

impl<'a> Nibbles<'a> {
    /// The product of `x`, `[rows, inputs]`, whose rounded rows go to `packed`, with `panels` of so many lanes.
    pub(super) fn new(
        isa: Isa,
        x: &[f32],
        inputs: usize,
        (panels, width): (&'a [u8], usize),
        packed: &'a mut Vec<Block>,
    ) -> Self {
        let activations = quantise_rows(isa, x, (inputs, GroupSizes::equal(PIECE)), packed);
        Self { isa, rows: x.len() / inputs, inputs, width, activations, panels }
    }
}

impl Kernel for Nibbles<'_> {
    fn depth(&self) -> usize {
        self.inputs.next_multiple_of(PIECE)
    }

    fn depth_step(&self, _blocks: usize) -> usize {
        DEPTH_BLOCK
    }

    unsafe fn add(&self, block: RowBlock, piece: PanelPiece<'_>, sums: &mut [f32], next: Option<Next>) {
        let PanelPiece { panel, steps, .. } = piece;
        let tile = NibbleTile {
            width: self.width,
            a: &self.activations[steps.first / DEPTH_BLOCK * self.rows + block.first..][..block.rows],
            b: self.piece(panel, steps),
            c: sums,
            accumulate: steps.first > 0,
            next: next.map_or(&[], |next| next.part_of(self.piece(next.panel, next.steps))),
        };
        match self.isa {
            Isa::Portable => portable::nibbles(tile),
            // SAFETY: the instructions are this function's own contract.
            Isa::Neon => unsafe { neon_bytes::add_nibbles(tile) },
            // SAFETY: as above.
            Isa::NeonDotprod => unsafe { neon_dotprod::add_nibbles(tile) },
            // SAFETY: as above.
            Isa::NeonI8mm => unsafe { neon_i8mm::add_nibbles(tile) },
            // SAFETY: as above.
            Isa::Avx2 | Isa::Avx512 => unsafe { avx2_nibbles::add(tile) },
            // SAFETY: as above.
            Isa::Avx512Vnni | Isa::Avx512Fp16 | Isa::Avx512Bf16 | Isa::Amx => unsafe {
                avx512_nibbles::add(tile)
            },
        }
    }
}

impl Nibbles<'_> {
    /// Some steps of a panel.
    fn piece(&self, panel: usize, steps: Steps) -> &[u8] {
        let bytes = group_bytes(self.width);
        let of_panel = &self.panels[panel * panel_bytes(self.inputs, self.width)..];
        &of_panel[steps.first / PIECE * bytes..][..steps.count / PIECE * bytes]
    }
}

#[cfg(test)]
mod tests;
