//! The tiles over groups of integers in 128-bit vectors, on processors that multiply bytes but sum up no four of
//! their products at once.
//!
//! No magnitude is above 128 there and 127 here, so two products fit in the 16 bits of their sum.

#[cfg(target_arch = "aarch64")]
mod kernels {
    use std::arch::aarch64::*;

    use super::super::by_rows::by_rows;
    use super::super::neon::kernels::load_halves;
    use super::super::neon_loop::{
        BYTES, GroupWorth, ROW, VECTORS, WIDTH, add_above_minima, add_scaled, for_constants, integer_tiles,
    };
    use crate::device::cpu::layout::groups::{BIAS, Block, GroupTile, PIECE};
    use crate::device::cpu::layout::nibbles::NibbleTile;

    const _: () = assert!(2 * 128 * 127 <= i16::MAX as usize);

    /// Adds products of four bytes each, of the activations those in a lane.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(crate) fn dot<const LANE: i32>(sums: int32x4_t, weights: int8x16_t, left: int8x16_t) -> int32x4_t {
        let four = vreinterpretq_s8_s32(vdupq_laneq_s32::<LANE>(vreinterpretq_s32_s8(left)));
        let low = vmull_s8(vget_low_s8(weights), vget_low_s8(four));
        vpadalq_s16(sums, vpaddq_s16(low, vmull_high_s8(weights, four)))
    }

    integer_tiles!("neon", dot);
}

#[cfg(not(target_arch = "aarch64"))]
mod kernels {
    pub(crate) use super::super::portable::{add, add_nibbles};
}

#[cfg(target_arch = "aarch64")]
pub(crate) use kernels::dot;
pub(crate) use kernels::{add, add_nibbles};
