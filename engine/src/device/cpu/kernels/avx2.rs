//! The tile in 256-bit vectors: at most 6 rows of two vectors, 12 of the 16 registers as sums.

#[cfg(target_arch = "x86_64")]
mod kernels {
    use std::arch::x86_64::*;

    use super::super::strip_loop::{strip_kernel, widening_strips};
    use super::super::tile_loop::tile_kernels;
    use crate::device::cpu::layout::pairs::Pair;

    /// Singles in a vector.
    const WIDTH: usize = 8;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn zero() -> __m256 {
        _mm256_setzero_ps()
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn splat(value: f32) -> __m256 {
        _mm256_set1_ps(value)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn fma(a: __m256, b: __m256, sum: __m256) -> __m256 {
        _mm256_fmadd_ps(a, b, sum)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load_f32(from: *const f32) -> __m256 {
        // SAFETY: the caller vouches for `WIDTH` elements.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load_f16(from: *const half::f16) -> __m256 {
        // SAFETY: the caller vouches for `WIDTH` elements.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn store(to: *mut f32, value: __m256) {
        // SAFETY: the caller vouches for `WIDTH` elements.
        unsafe { _mm256_storeu_ps(to, value) }
    }

    /// The first and the second numbers of `WIDTH` pairs.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load_pairs(from: *const Pair) -> [__m256; 2] {
        // SAFETY: the caller vouches for `WIDTH` pairs. A bf16 is the upper half of a single.
        unsafe {
            let pairs = _mm256_loadu_si256(from.cast());
            let second = _mm256_and_si256(pairs, _mm256_set1_epi32(0xFFFF_0000_u32.cast_signed()));
            [_mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs)), _mm256_castsi256_ps(second)]
        }
    }

    tile_kernels!("avx2,fma,f16c", __m256, [1 2 3 4 5 6]);
    widening_strips!("avx2,fma,f16c", __m256);
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
