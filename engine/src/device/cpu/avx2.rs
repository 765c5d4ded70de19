//! The tile in 256-bit vectors: at most 6 rows of two vectors, 12 of the 16 registers as sums.

#[cfg(target_arch = "x86_64")]
mod kernels {
    use std::arch::x86_64::*;

    use super::super::tile::tile_kernels;

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
    unsafe fn load_bf16(from: *const half::bf16) -> __m256 {
        // SAFETY: the caller vouches for `WIDTH` elements. A bf16 is the upper half of a single.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn store(to: *mut f32, value: __m256) {
        // SAFETY: the caller vouches for `WIDTH` elements.
        unsafe { _mm256_storeu_ps(to, value) }
    }

    tile_kernels!("avx2,fma,f16c", [1 2 3 4 5 6]);
}

#[cfg(not(target_arch = "x86_64"))]
use super::portable::{
    packed as packed_f32, packed as packed_f16, packed as packed_bf16, scores as scores_f32,
};
#[cfg(target_arch = "x86_64")]
pub(super) use kernels::{packed_bf16, packed_f16, packed_f32, scores_f32};
