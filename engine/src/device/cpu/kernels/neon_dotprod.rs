//! The tiles over groups of integers in 128-bit vectors, on processors with an instruction that adds four products
//! of bytes for each of four outputs to its sum (SDOT); its intrinsic is not stable yet.

#[cfg(target_arch = "aarch64")]
mod kernels {
    use std::arch::aarch64::*;
    use std::arch::asm;

    use super::super::by_rows::by_rows;
    use super::super::neon::kernels::load_halves;
    use super::super::neon_loop::{
        BYTES, GroupWorth, ROW, VECTORS, WIDTH, add_above_minima, add_scaled, for_constants, integer_tiles,
    };
    use crate::device::cpu::layout::groups::{BIAS, Block, GroupTile, PIECE};
    use crate::device::cpu::layout::nibbles::NibbleTile;

    /// Adds products of four bytes each, of the activations those in a lane.
    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    pub(crate) fn dot<const LANE: i32>(
        mut sums: int32x4_t,
        weights: int8x16_t,
        left: int8x16_t,
    ) -> int32x4_t {
        // SAFETY: it touches no memory.
        unsafe {
            asm!(
                "sdot {sums:v}.4s, {weights:v}.16b, {left:v}.4b[{lane}]",
                sums = inout(vreg) sums,
                weights = in(vreg) weights,
                left = in(vreg) left,
                lane = const LANE,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        sums
    }

    integer_tiles!("neon,dotprod", dot);
}

#[cfg(not(target_arch = "aarch64"))]
mod kernels {
    pub(crate) use super::super::portable::{add, add_nibbles};
}

#[cfg(target_arch = "aarch64")]
pub(crate) use kernels::dot;
pub(crate) use kernels::{add, add_nibbles};
