//! The tile over groups of four-bit weights in 256-bit vectors: at most 6 rows of one vector at a time.
//!
//! Weights are unsigned as they are, so nothing moves their sign. Two products are at most 2 * 15 * 127, and the
//! eight such that a group adds to a lane fit in 16 bits: they are widened once a group.

#[cfg(target_arch = "x86_64")]
mod kernels {
    use std::arch::x86_64::*;

    use super::super::by_rows::by_rows;
    use crate::device::cpu::layout::groups::{BIAS, Block, PIECE, QUAD};
    use crate::device::cpu::layout::nibbles::{NibbleTile, group_bytes};

    /// Outputs in a vector.
    const WIDTH: usize = 8;

    const _: () = assert!(PIECE / QUAD * 2 * 15 * 127 <= i16::MAX as usize);

    /// Adds a tile's products to its result.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    pub(crate) unsafe fn add(tile: NibbleTile<'_>) {
        assert!(tile.width.is_multiple_of(WIDTH));
        by_rows!(tile.a.len(), [1 2 3 4 5 6], add_rows, tile);
    }

    #[expect(clippy::needless_range_loop, reason = "counted loops unroll and leave the sums in registers")]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn add_rows<const M: usize>(tile: NibbleTile<'_>) {
        let (lower, ones) = (_mm256_set1_epi8(15), _mm256_set1_epi16(1));
        let (groups, width, a) = (tile.groups(), tile.width, tile.a.as_ptr());
        assert!(tile.a.len() == M);
        for group in 0..groups {
            // What one activation is worth, and what the minimum is multiplied with.
            let mut worth = [(0.0, 0.0); M];
            for m in 0..M {
                let (scale, unbias) = (tile.a[m].scales[group], tile.a[m].unbias[group]);
                worth[m] = (scale, scale * (unbias / -i32::from(BIAS)) as f32);
            }
            for first in (0..width).step_by(WIDTH) {
                // SAFETY: `groups` checked that the tile's operands have so many groups and rows.
                unsafe {
                    let b = tile.b.as_ptr().add(group * group_bytes(width));
                    let values = a.cast::<i8>().add(group * PIECE);
                    let mut shorts = [_mm256_setzero_si256(); M];
                    for eight in (0..PIECE).step_by(2 * QUAD) {
                        let bytes = _mm256_loadu_si256(b.add(eight / 2 * width + first * QUAD).cast());
                        let low = _mm256_and_si256(bytes, lower);
                        let high = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), lower);
                        for m in 0..M {
                            let fours = values.add(m * size_of::<Block>() + eight).cast::<i32>();
                            let twos = _mm256_maddubs_epi16(low, _mm256_set1_epi32(fours.read_unaligned()));
                            shorts[m] = _mm256_add_epi16(shorts[m], twos);
                            let fours = fours.add(1).read_unaligned();
                            let twos = _mm256_maddubs_epi16(high, _mm256_set1_epi32(fours));
                            shorts[m] = _mm256_add_epi16(shorts[m], twos);
                        }
                    }
                    let scales = b.add(PIECE / 2 * width + 2 * first);
                    let minima = _mm256_cvtph_ps(_mm_loadu_si128(scales.add(2 * width).cast()));
                    let scales = _mm256_cvtph_ps(_mm_loadu_si128(scales.cast()));
                    for m in 0..M {
                        let (scale, of_minimum) = worth[m];
                        let sum = _mm256_cvtepi32_ps(_mm256_madd_epi16(shorts[m], ones));
                        let sum = _mm256_mul_ps(sum, scales);
                        let c = tile.c.as_mut_ptr().add(m * width + first);
                        let is_first = group == 0 && !tile.accumulate;
                        let before = if is_first { _mm256_setzero_ps() } else { _mm256_loadu_ps(c) };
                        let with_minima = _mm256_fmadd_ps(minima, _mm256_set1_ps(of_minimum), before);
                        _mm256_storeu_ps(c, _mm256_fmadd_ps(sum, _mm256_set1_ps(scale), with_minima));
                    }
                }
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod kernels {
    pub(crate) use super::super::portable::add_nibbles as add;
}

pub(crate) use kernels::add;
