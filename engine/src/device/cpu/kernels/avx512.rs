//! The tile in 512-bit vectors: at most 12 rows of two vectors, 24 of the 32 registers as sums.

#[cfg(target_arch = "x86_64")]
pub(super) mod kernels {
    use std::arch::x86_64::*;

    use super::super::strip_loop::{strip_kernel, widening_strips};
    use super::super::tile_loop::tile_kernels;
    use crate::device::cpu::layout::pairs::Pair;

    /// Singles in a vector.
    pub(crate) const WIDTH: usize = 16;

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(crate) fn zero() -> __m512 {
        _mm512_setzero_ps()
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn splat(value: f32) -> __m512 {
        _mm512_set1_ps(value)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn fma(a: __m512, b: __m512, sum: __m512) -> __m512 {
        _mm512_fmadd_ps(a, b, sum)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(crate) unsafe fn load_f32(from: *const f32) -> __m512 {
        // SAFETY: the caller vouches for `WIDTH` elements.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load_f16(from: *const half::f16) -> __m512 {
        // SAFETY: the caller vouches for `WIDTH` elements.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(crate) unsafe fn store(to: *mut f32, value: __m512) {
        // SAFETY: the caller vouches for `WIDTH` elements.
        unsafe { _mm512_storeu_ps(to, value) }
    }

    /// The first and the second numbers of `WIDTH` pairs.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load_pairs(from: *const Pair) -> [__m512; 2] {
        // SAFETY: the caller vouches for `WIDTH` pairs. A bf16 is the upper half of a single.
        unsafe {
            let pairs = _mm512_loadu_si512(from.cast());
            let second = _mm512_and_si512(pairs, _mm512_set1_epi32(0xFFFF_0000_u32.cast_signed()));
            [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)), _mm512_castsi512_ps(second)]
        }
    }

    tile_kernels!("avx512f", __m512, [1 2 3 4 5 6 7 8 9 10 11 12]);
    widening_strips!("avx512f", __m512);
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use super::portable::{
    packed as packed_f32, packed as packed_f16, packed as packed_bf16, strip as strip_singles,
    strip as strip_widened, unpack as unpack_f16, unpack as unpack_bf16,
};
#[cfg(target_arch = "x86_64")]
pub(crate) use kernels::{
    packed_bf16, packed_f16, packed_f32, strip_singles, strip_widened, unpack_bf16, unpack_f16,
};
