//! The tile over groups of eight-bit integers in 512-bit vectors: at most 6 rows of four vectors.
//!
//! One instruction adds four products for each of 16 outputs to its sum: four times the work of a fused
//! multiply-add in single precision. The sums of integers take up to 24 of the 32 registers; those in single
//! precision, which a group of activations touches once, stay in the first-level cache. Four vectors and not two, because
//! then 24 such instructions need 10 loads and not 14, and a batch that takes several tiles reads a panel
//! ahead in the first of them.

#[cfg(target_arch = "x86_64")]
mod kernels {
    use std::arch::x86_64::*;

    use super::super::by_rows::by_rows;
    use super::super::quantise;
    use crate::device::cpu::layout::groups::{Block, GroupSums, GroupTile, PIECE, QUAD};

    /// Outputs in a vector.
    const WIDTH: usize = 16;

    /// Vectors of a panel.
    const VECTORS: usize = 4;

    /// Rounds a piece of a row.
    ///
    /// # Safety
    /// The processor has AVX-512.
    #[target_feature(enable = "avx512f")]
    pub(crate) unsafe fn quantise(from: &[f32], group: usize, to: &mut Block) {
        quantise::quantise_by(from, group, to, |from, to| {
            let mut largest = _mm512_setzero_si512();
            for from in from {
                // SAFETY: it has as many numbers as a vector.
                let bits = unsafe { _mm512_loadu_si512(from.as_ptr().cast()) };
                // Magnitudes order as their bits do.
                let magnitudes = _mm512_and_si512(bits, _mm512_set1_epi32(i32::MAX));
                largest = _mm512_max_epu32(largest, magnitudes);
            }
            let (scale, inverse) = quantise::scale_of(f32::from_bits(_mm512_reduce_max_epu32(largest)));
            let mut sums = _mm512_setzero_si512();
            for (from, to) in from.iter().zip(to) {
                // SAFETY: as above, and as many bytes.
                unsafe {
                    let scaled = _mm512_mul_ps(_mm512_loadu_ps(from.as_ptr()), _mm512_set1_ps(inverse));
                    let integers = _mm512_cvtps_epi32(scaled); // to nearest even
                    sums = _mm512_add_epi32(sums, integers);
                    _mm_storeu_si128(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(integers));
                }
            }
            (scale, _mm512_reduce_add_epi32(sums))
        });
    }

    /// Adds a tile's products to its result.
    ///
    /// # Safety
    /// The processor has AVX-512 VNNI.
    pub(crate) unsafe fn add(tile: GroupTile<'_>) {
        assert!(tile.width == VECTORS * WIDTH);
        by_rows!(tile.a.len(), [1 2 3 4 5 6], add_rows, tile);
    }

    #[expect(clippy::needless_range_loop, reason = "counted loops unroll and leave the sums in registers")]
    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn add_rows<const M: usize>(tile: GroupTile<'_>) {
        const ROW: usize = VECTORS * WIDTH;
        let groups = tile.groups();
        let (inputs, pieces) = (tile.sizes.activations, tile.sizes.pieces());
        assert!(tile.a.len() == M);
        let (a, mut b, c) = (tile.a.as_ptr(), tile.b.as_ptr(), tile.c.as_mut_ptr());
        let mut values = a.cast::<i8>();
        for group in 0..groups {
            // SAFETY: `groups` checked that the tile's operands have so many groups and rows.
            unsafe {
                let halves = b.add(tile.sizes.weights * ROW).cast::<__m256i>();
                for piece in group * pieces..(group + 1) * pieces {
                    let mut integers = [[_mm512_setzero_si512(); VECTORS]; M];
                    for m in 0..M {
                        integers[m] = [_mm512_set1_epi32((*a.add(m)).unbias[piece]); VECTORS];
                    }
                    for _ in 0..inputs / PIECE {
                        for quad in (0..PIECE).step_by(QUAD) {
                            let mut lanes = [_mm512_setzero_si512(); VECTORS];
                            for v in 0..VECTORS {
                                lanes[v] = _mm512_loadu_si512(b.add(quad * ROW + v * WIDTH * QUAD).cast());
                            }
                            for m in 0..M {
                                let four = values.add(m * size_of::<Block>() + quad).cast::<i32>();
                                let four = _mm512_set1_epi32(four.read_unaligned());
                                for v in 0..VECTORS {
                                    integers[m][v] = _mm512_dpbusd_epi32(integers[m][v], lanes[v], four);
                                }
                            }
                        }
                        values = values.add(PIECE);
                        b = b.add(PIECE * ROW);
                    }
                    let mut scales = [_mm512_setzero_ps(); VECTORS];
                    for v in 0..VECTORS {
                        scales[v] = _mm512_cvtph_ps(_mm256_loadu_si256(halves.add(v)));
                    }
                    for m in 0..M {
                        let scale = _mm512_set1_ps((*a.add(m)).scales[piece]);
                        for v in 0..VECTORS {
                            let sum = _mm512_mul_ps(_mm512_cvtepi32_ps(integers[m][v]), scale);
                            let c = c.add((m * VECTORS + v) * WIDTH);
                            let is_first = piece == 0 && !tile.accumulate;
                            let before = if is_first { _mm512_setzero_ps() } else { _mm512_loadu_ps(c) };
                            _mm512_storeu_ps(c, _mm512_fmadd_ps(sum, scales[v], before));
                        }
                    }
                }
                b = b.add(2 * ROW);
            }
        }
    }

    /// Scales sums of integers over a group of activations, to the very bits that [`add`] gives them.
    ///
    /// # Safety
    /// The processor has AVX-512.
    #[target_feature(enable = "avx512f")]
    pub(crate) unsafe fn add_scaled(sums: GroupSums<'_>) {
        let columns = sums.columns();
        assert!(columns.is_multiple_of(WIDTH));
        let (integers, halves, c) = (sums.integers.as_ptr(), sums.scales.as_ptr(), sums.c.as_mut_ptr());
        for (m, a) in sums.a.iter().enumerate() {
            let scale = _mm512_set1_ps(a.scales[sums.group]);
            let unbias = _mm512_set1_epi32(a.unbias[sums.group]);
            for first in (0..columns).step_by(WIDTH) {
                // SAFETY: `columns` checked that the operands have so many rows and columns.
                unsafe {
                    let integers = _mm512_loadu_si512(integers.add(m * columns + first).cast());
                    let scales = _mm512_cvtph_ps(_mm256_loadu_si256(halves.add(2 * first).cast()));
                    let sum = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(integers, unbias)), scale);
                    let c = c.add(m * sums.width + first);
                    let before = if sums.accumulate { _mm512_loadu_ps(c) } else { _mm512_setzero_ps() };
                    _mm512_storeu_ps(c, _mm512_fmadd_ps(sum, scales, before));
                }
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod kernels {
    pub(crate) use super::super::portable::{add, add_scaled, quantise};
}

pub(crate) use kernels::{add, add_scaled, quantise};
