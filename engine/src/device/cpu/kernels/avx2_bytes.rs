//! The tile over groups of eight-bit integers in 256-bit vectors: at most 6 rows of one vector at a time.
//!
//! There is no instruction that sums up signed bytes. So weights give their sign to the activations: then one
//! side is unsigned, and as no magnitude is above 128 there and 127 here, two products fit in the 16 bits of
//! their sum.

#[cfg(target_arch = "x86_64")]
mod kernels {
    use std::arch::x86_64::*;

    use super::super::by_rows::by_rows;
    use super::super::quantise;
    use crate::device::cpu::layout::groups::{BIAS, Block, GroupTile, QUAD, group_bytes};

    /// Outputs in a vector.
    const WIDTH: usize = 8;

    /// Rounds a piece of a row.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[target_feature(enable = "avx2")]
    pub(crate) unsafe fn quantise(from: &[f32], group: usize, to: &mut Block) {
        quantise::quantise(from, group, to);
    }

    /// Adds a tile's products to its result.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    pub(crate) unsafe fn add(tile: GroupTile<'_>) {
        assert!(tile.width.is_multiple_of(WIDTH));
        by_rows!(tile.a.len(), [1 2 3 4 5 6], add_rows, tile);
    }

    #[expect(clippy::needless_range_loop, reason = "counted loops unroll and leave the sums in registers")]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn add_rows<const M: usize>(tile: GroupTile<'_>) {
        let (bias, ones) = (_mm256_set1_epi8(BIAS.cast_signed()), _mm256_set1_epi16(1));
        let (groups, width, a) = (tile.groups(), tile.width, tile.a.as_ptr());
        let (inputs, pieces) = (tile.sizes.activations, tile.sizes.pieces());
        assert!(tile.a.len() == M);
        let columns = width / WIDTH;
        for number in 0..groups * columns {
            let (group, first) = (number / columns, number % columns * WIDTH);
            // SAFETY: `groups` checked that the tile's operands have so many groups and rows.
            unsafe {
                let mut b = tile.b.as_ptr().add(group * group_bytes(tile.sizes.weights, width));
                let halves = b.add(tile.sizes.weights * width + 2 * first);
                let scales = _mm256_cvtph_ps(_mm_loadu_si128(halves.cast()));
                for piece in group * pieces..(group + 1) * pieces {
                    let values = a.cast::<i8>().add(piece * inputs);
                    let mut integers = [_mm256_setzero_si256(); M];
                    for quad in (0..inputs).step_by(QUAD) {
                        let bytes = _mm256_loadu_si256(b.add(quad * width + first * QUAD).cast());
                        let weights = _mm256_xor_si256(bytes, bias);
                        let magnitudes = _mm256_abs_epi8(weights);
                        for m in 0..M {
                            let four = values.add(m * size_of::<Block>() + quad).cast::<i32>();
                            let four = _mm256_set1_epi32(four.read_unaligned());
                            let twos = _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(four, weights));
                            integers[m] = _mm256_add_epi32(integers[m], _mm256_madd_epi16(twos, ones));
                        }
                    }
                    b = b.add(inputs * width);
                    for m in 0..M {
                        let scale = _mm256_set1_ps((*a.add(m)).scales[piece]);
                        let sum = _mm256_mul_ps(_mm256_cvtepi32_ps(integers[m]), scales);
                        let c = tile.c.as_mut_ptr().add(m * width + first);
                        let is_first = piece == 0 && !tile.accumulate;
                        let before = if is_first { _mm256_setzero_ps() } else { _mm256_loadu_ps(c) };
                        _mm256_storeu_ps(c, _mm256_fmadd_ps(sum, scale, before));
                    }
                }
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod kernels {
    pub(crate) use super::super::portable::{add, quantise};
}

pub(crate) use kernels::{add, quantise};
