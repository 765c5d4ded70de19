//! The tile in 128-bit vectors, two of them at a time: at most 6 rows of four vectors, 24 of the 32 registers as
//! sums.

#[cfg(target_arch = "aarch64")]
pub(super) mod kernels {
    use std::arch::aarch64::*;

    use super::super::strip_loop::{strip_kernel, widening_strips};
    use super::super::tile_loop::tile_kernels;
    use crate::device::cpu::layout::pairs::Pair;

    /// Two registers.
    type Vector = [float32x4_t; 2];

    /// Singles in a vector.
    const WIDTH: usize = 8;

    #[inline]
    #[target_feature(enable = "neon")]
    fn zero() -> Vector {
        splat(0.0)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn splat(value: f32) -> Vector {
        [vdupq_n_f32(value); 2]
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn fma(a: Vector, b: Vector, sum: Vector) -> Vector {
        [vfmaq_f32(sum[0], a[0], b[0]), vfmaq_f32(sum[1], a[1], b[1])]
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn load_f32(from: *const f32) -> Vector {
        // SAFETY: the caller vouches for `WIDTH` elements.
        unsafe { [vld1q_f32(from), vld1q_f32(from.add(WIDTH / 2))] }
    }

    /// Four halves, widened.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(crate) unsafe fn load_halves(from: *const u16) -> float32x4_t {
        // SAFETY: the caller vouches for them.
        vcvt_f32_f16(vreinterpret_f16_u16(unsafe { vld1_u16(from) }))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn load_f16(from: *const half::f16) -> Vector {
        let from = from.cast::<u16>();
        // SAFETY: the caller vouches for `WIDTH` elements.
        unsafe { [load_halves(from), load_halves(from.add(WIDTH / 2))] }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn store(to: *mut f32, value: Vector) {
        // SAFETY: the caller vouches for `WIDTH` elements.
        unsafe {
            vst1q_f32(to, value[0]);
            vst1q_f32(to.add(WIDTH / 2), value[1]);
        }
    }

    /// The first and the second numbers of `WIDTH` pairs.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn load_pairs(from: *const Pair) -> [Vector; 2] {
        let from = from.cast::<u32>();
        // SAFETY: the caller vouches for `WIDTH` pairs. A bf16 is the upper half of a single.
        let pairs = unsafe { [vld1q_u32(from), vld1q_u32(from.add(WIDTH / 2))] };
        let upper = vdupq_n_u32(0xFFFF_0000);
        [
            [vshlq_n_u32::<16>(pairs[0]), vshlq_n_u32::<16>(pairs[1])],
            [vandq_u32(pairs[0], upper), vandq_u32(pairs[1], upper)],
        ]
        .map(|[low, high]| [vreinterpretq_f32_u32(low), vreinterpretq_f32_u32(high)])
    }

    tile_kernels!("neon", Vector, [1 2 3 4 5 6]);
    widening_strips!("neon", Vector);
}

#[cfg(not(target_arch = "aarch64"))]
pub(crate) use super::portable::{
    packed as packed_f32, packed as packed_f16, packed as packed_bf16, strip as strip_singles,
    strip as strip_widened, unpack as unpack_f16, unpack as unpack_bf16,
};
#[cfg(target_arch = "aarch64")]
pub(crate) use kernels::{
    packed_bf16, packed_f16, packed_f32, strip_singles, strip_widened, unpack_bf16, unpack_f16,
};
