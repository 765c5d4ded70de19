//! Products that widen weights: activations stay in single precision, weights in any type.
//!
//! A panel and rows lie as [`super::layout::wide`] says. What a thread's caches hold decides in which pieces: one of a panel
//! stays in the first-level cache, widened, while all row blocks pass by it. Where their activations do not stay in the
//! second-level cache from panel to panel, a piece of these meets the pieces of several panels before the next one does.

use super::isa::Isa;
use super::kernels::portable::Numbers;
use super::kernels::{avx2, avx512, neon, portable};
use super::layout::aligned::Aligned;
use super::layout::blocks::RowBlock;
use super::layout::packed::bytes_of;
use super::layout::pairs::Pair;
use super::layout::wide::{DEPTH_BLOCK, Tile};
use super::product::{Kernel, Next, Order, PanelPiece, Steps};

/// Bytes of a task's activations that stay in the second-level cache (2 MiB, or 1) beside what else passes through it.
pub(super) const ACTIVATIONS_MAX: usize = 1 << 20;

/// An element that every instruction set has kernels for.
pub(super) trait TileElement: Numbers {
    /// The tile kernel of `isa`.
    ///
    /// # Safety
    /// `isa` is available.
    unsafe fn tile(isa: Isa, rows: usize, columns: usize, tile: Tile<'_, Self>);

    /// The numbers of a piece of a panel, `[inputs, width]`, in `memory` where they do not lie so.
    ///
    /// # Safety
    /// `isa` is available.
    unsafe fn unpack<'a>(
        isa: Isa,
        width: usize,
        piece: &'a [Self],
        memory: &'a mut Aligned<f32>,
    ) -> &'a [f32];
}

/// Calls a kernel of an instruction set, which has the name of the portable one or its own.
macro_rules! kernel_of {
    ($isa:expr, $portable:ident, $kernel:ident, $($operand:expr),*) => {
        match $isa {
            Isa::Portable => portable::$portable($($operand),*),
            Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm => neon::$kernel($($operand),*),
            Isa::Avx2 => avx2::$kernel($($operand),*),
            Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Fp16 | Isa::Avx512Bf16 | Isa::Amx => avx512::$kernel($($operand),*),
        }
    };
}

impl TileElement for f32 {
    unsafe fn tile(isa: Isa, rows: usize, columns: usize, tile: Tile<'_, Self>) {
        // SAFETY: passed on from this function's own contract.
        unsafe { kernel_of!(isa, packed, packed_f32, rows, columns, tile) };
    }

    unsafe fn unpack<'a>(
        _isa: Isa,
        _width: usize,
        piece: &'a [Self],
        _memory: &'a mut Aligned<f32>,
    ) -> &'a [f32] {
        piece
    }
}

/// Elements that are not single precision.
macro_rules! widened_element {
    ($type:ty, $kernel:ident, $unpack:ident) => {
        impl TileElement for $type {
            unsafe fn tile(isa: Isa, rows: usize, columns: usize, tile: Tile<'_, Self>) {
                // SAFETY: passed on from this function's own contract.
                unsafe { kernel_of!(isa, packed, $kernel, rows, columns, tile) };
            }

            unsafe fn unpack<'a>(
                isa: Isa,
                width: usize,
                piece: &'a [Self],
                memory: &'a mut Aligned<f32>,
            ) -> &'a [f32] {
                memory.resize(piece.len() * Self::COUNT);
                // SAFETY: passed on from this function's own contract.
                unsafe { kernel_of!(isa, unpack, $unpack, width, piece, memory) };
                memory
            }
        }
    };
}
widened_element!(half::f16, packed_f16, unpack_f16);
widened_element!(Pair, packed_bf16, unpack_bf16);

/// A product of rows with packed weights.
pub(super) struct Wide<'a, E> {
    /// Its instructions.
    pub(super) isa: Isa,
    /// How many rows there are.
    pub(super) rows: usize,
    /// Length of the sums, in elements of a panel.
    pub(super) depth: usize,
    /// Of a panel.
    pub(super) width: usize,
    /// From [`super::layout::wide::lay_out`].
    pub(super) activations: &'a [f32],
    /// From [`super::layout::wide::pack_panels`], or [`super::layout::pairs::pack_panels`].
    pub(super) panels: &'a [E],
}

impl<E: TileElement> Kernel for Wide<'_, E> {
    fn depth(&self) -> usize {
        self.depth
    }

    fn depth_step(&self, blocks: usize) -> usize {
        // One block meets each panel once: nothing would be read again.
        if blocks > 1 { DEPTH_BLOCK / E::COUNT } else { self.depth }
    }

    fn order(&self, blocks: usize) -> Order {
        let of_task = blocks * self.isa.rows_max() * self.depth * E::COUNT * size_of::<f32>();
        if blocks > 1 && of_task > ACTIVATIONS_MAX { Order::DepthOutermost } else { Order::PanelsOutermost }
    }

    unsafe fn unpack<'a>(
        &'a self,
        panel: usize,
        steps: Steps,
        memory: &'a mut Aligned<f32>,
    ) -> Option<&'a [f32]> {
        // SAFETY: the instructions are this function's own contract.
        Some(unsafe { E::unpack(self.isa, self.width, self.piece(panel, steps), memory) })
    }

    unsafe fn add(&self, block: RowBlock, piece: PanelPiece<'_>, sums: &mut [f32], next: Option<Next>) {
        let PanelPiece { panel, steps, unpacked } = piece;
        let (inputs, a_block) = (steps.first * E::COUNT, self.rows * DEPTH_BLOCK);
        let a = &self.activations[inputs * self.rows + block.first * DEPTH_BLOCK..];
        let accumulate = steps.first > 0;
        let next = next.map_or(&[][..], |next| next.part_of(bytes_of(self.piece(next.panel, next.steps))));
        let (isa, width) = (self.isa, self.width);
        // SAFETY: the instructions are this function's own contract.
        unsafe {
            if let Some(b) = unpacked {
                let depth = steps.count * E::COUNT;
                f32::tile(isa, block.rows, width, Tile { depth, a, a_block, b, c: sums, accumulate, next });
            } else {
                let (depth, b) = (steps.count, self.piece(panel, steps));
                E::tile(isa, block.rows, width, Tile { depth, a, a_block, b, c: sums, accumulate, next });
            }
        }
    }
}

impl<E> Wide<'_, E> {
    /// Some steps of a panel.
    fn piece(&self, panel: usize, steps: Steps) -> &[E] {
        &self.panels[(panel * self.depth + steps.first) * self.width..][..steps.count * self.width]
    }
}
