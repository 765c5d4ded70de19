//! Products that widen weights in registers: activations stay in single precision, weights in any type.
//!
//! A panel and the rows of a block lie as [`super::layout::wide`] says.

use super::isa::Isa;
use super::kernels::{avx2, avx512, neon, portable};
use super::layout::blocks::RowBlock;
use super::layout::wide::{DEPTH_BLOCK, Tile, WeightElement};
use super::product::{Kernel, Next, Steps};

/// An element that every instruction set has a tile kernel for.
pub(super) trait TileElement: WeightElement {
    /// The tile kernel of `isa`, left operand packed (`a[k * rows + m]`).
    ///
    /// # Safety
    /// As [`Tile`] says, and `isa` is available.
    unsafe fn tile(isa: Isa, rows: usize, columns: usize, tile: &Tile<Self>);
}

macro_rules! tile_element {
    ($type:ty, $kernel:ident) => {
        impl TileElement for $type {
            unsafe fn tile(isa: Isa, rows: usize, columns: usize, tile: &Tile<Self>) {
                // SAFETY: passed on from this function's own contract.
                unsafe {
                    match isa {
                        Isa::Portable => portable::packed(rows, columns, tile),
                        Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm => neon::$kernel(rows, columns, tile),
                        Isa::Avx2 => avx2::$kernel(rows, columns, tile),
                        Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => {
                            avx512::$kernel(rows, columns, tile)
                        }
                    }
                }
            }
        }
    };
}
tile_element!(f32, packed_f32);
tile_element!(half::f16, packed_f16);
tile_element!(half::bf16, packed_bf16);

/// A product of packed rows with packed weights.
pub(super) struct Wide<'a, E> {
    /// Its instructions.
    pub(super) isa: Isa,
    /// Length of the sums.
    pub(super) inputs: usize,
    /// Of a panel.
    pub(super) width: usize,
    /// From [`super::layout::wide::pack_blocks`].
    pub(super) rows: &'a [f32],
    /// From [`super::layout::wide::pack_panels`].
    pub(super) panels: &'a [E],
}

impl<E: TileElement> Kernel for Wide<'_, E> {
    fn depth(&self) -> usize {
        self.inputs
    }

    fn depth_step(&self, blocks: usize) -> usize {
        if blocks > 1 { DEPTH_BLOCK } else { self.inputs }
    }

    unsafe fn add(
        &self,
        RowBlock { first, rows }: RowBlock,
        panel: usize,
        steps: Steps,
        sums: &mut [f32],
        _next: Option<Next>,
    ) {
        let depth = steps.count;
        let a = &self.rows[first * self.inputs + steps.first * rows..][..depth * rows];
        let b = &self.panels[(panel * self.inputs + steps.first) * self.width..][..depth * self.width];
        assert!(sums.len() == rows * self.width);
        let tile = Tile {
            depth,
            a: a.as_ptr(),
            b: b.as_ptr(),
            b_step: self.width,
            c: sums.as_mut_ptr(),
            c_row: self.width,
            accumulate: steps.first > 0,
        };
        // SAFETY: `a` and `b` were cut to the tile's extent, and `sums` has it; the instructions are this
        // function's own contract.
        unsafe { E::tile(self.isa, rows, self.width, &tile) };
    }
}
