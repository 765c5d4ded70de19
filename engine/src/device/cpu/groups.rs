//! Products of eight-bit integers: weights and activations in groups of inputs under one scale each.
//!
//! Weights are rounded once, when they are packed; activations on the fly, each row by itself. A sum over a
//! group of activations, which is one of weights or a part of it, is exact in 32 bits; then it is scaled and added to
//! the output in single precision, group after group. So a row's bits do not depend on its batch, and kernels differ by
//! the rounding of those additions alone.
//!
//! Both operands lie in groups ([`super::layout::groups`]). A matrix unit reads them as they lie
//! ([`super::groups_on_unit`]).

use super::isa::Isa;
use super::kernels::{avx2_bytes, avx512_vnni, neon_bytes, neon_dotprod, neon_i8mm, portable, quantise};
use super::layout::blocks::{BlockLayout, RowBlock};
use super::layout::groups::{Block, EMPTY, GroupSizes, GroupTile, depth_block, group_bytes, panel_bytes};
use super::product::{Kernel, Next, PanelPiece, Steps};

/// Outputs of a panel.
pub(super) fn panel(isa: Isa) -> usize {
    match isa {
        Isa::Portable | Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm | Isa::Avx2 | Isa::Avx512 => isa.panel(),
        Isa::Avx512Vnni | Isa::Avx512Fp16 | Isa::Avx512Bf16 | Isa::Amx => 64,
    }
}

/// Most rows that a kernel takes at once: their sums stay in registers.
pub(super) const ROWS_MAX: usize = 6;

/// Rounds rows of `inputs` and lays them out as kernels read them: `[blocks, rows]`.
pub(super) fn quantise_rows<'a>(
    isa: Isa,
    x: &[f32],
    (inputs, sizes): (usize, GroupSizes),
    packed: &'a mut Vec<Block>,
) -> &'a [Block] {
    let block_inputs = depth_block(sizes.weights);
    let blocks = BlockLayout { inputs, block_inputs, elements: 1, empty: EMPTY };
    blocks.lay_out(x, packed, |from, block| {
        let (group, block) = (sizes.activations, &mut block[0]);
        match isa {
            Isa::Portable | Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm => {
                quantise::quantise(from, group, block)
            }
            // SAFETY: a `Cpu` holds available kernels only, and these have the instructions.
            Isa::Avx2 => unsafe { avx2_bytes::quantise(from, group, block) },
            // SAFETY: as above.
            _ => unsafe { avx512_vnni::quantise(from, group, block) },
        }
    })
}

/// A product of rounded rows with packed weights.
pub(super) struct Groups<'a> {
    /// Its instructions.
    pub(super) isa: Isa,
    /// How many rows there are.
    pub(super) rows: usize,
    /// Length of the sums.
    pub(super) inputs: usize,
    /// Inputs of groups.
    pub(super) sizes: GroupSizes,
    /// Of a panel.
    pub(super) width: usize,
    /// From [`quantise_rows`].
    pub(super) activations: &'a [Block],
    /// From [`super::layout::groups::pack_panels`].
    pub(super) panels: &'a [u8],
}

impl Kernel for Groups<'_> {
    fn depth(&self) -> usize {
        self.inputs.next_multiple_of(self.sizes.weights)
    }

    fn depth_step(&self, _blocks: usize) -> usize {
        depth_block(self.sizes.weights)
    }

    unsafe fn add(&self, block: RowBlock, piece: PanelPiece<'_>, sums: &mut [f32], next: Option<Next>) {
        let PanelPiece { panel, steps, .. } = piece;
        let tile = GroupTile {
            sizes: self.sizes,
            width: self.width,
            a: &self.activations[self.row(block, steps)..][..block.rows],
            b: self.piece(panel, steps),
            c: sums,
            accumulate: steps.first > 0,
            next: next.map_or(&[], |next| next.part_of(self.piece(next.panel, next.steps))),
        };
        match self.isa {
            Isa::Portable => portable::groups(tile),
            // SAFETY: the instructions are this function's own contract.
            Isa::Neon => unsafe { neon_bytes::add(tile) },
            // SAFETY: as above.
            Isa::NeonDotprod => unsafe { neon_dotprod::add(tile) },
            // SAFETY: as above.
            Isa::NeonI8mm => unsafe { neon_i8mm::add(tile) },
            // SAFETY: as above.
            Isa::Avx2 | Isa::Avx512 => unsafe { avx2_bytes::add(tile) },
            // SAFETY: as above.
            Isa::Avx512Vnni | Isa::Avx512Fp16 | Isa::Avx512Bf16 | Isa::Amx => unsafe {
                avx512_vnni::add(tile)
            },
        }
    }
}

impl Groups<'_> {
    /// Where the activations of a block's first row are that meet the steps.
    pub(super) fn row(&self, block: RowBlock, steps: Steps) -> usize {
        steps.first / depth_block(self.sizes.weights) * self.rows + block.first
    }

    /// Some steps of a panel.
    pub(super) fn piece(&self, panel: usize, steps: Steps) -> &[u8] {
        let group = self.sizes.weights;
        let bytes = group_bytes(group, self.width);
        let of_panel = &self.panels[panel * panel_bytes(self.inputs, group, self.width)..];
        &of_panel[steps.first / group * bytes..][..steps.count / group * bytes]
    }
}

#[cfg(test)]
mod tests;
