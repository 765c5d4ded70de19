//! The tile over groups of eight-bit integers in 512-bit vectors: at most 6 rows of two vectors, or 3 of four.
//!
//! One instruction adds four products for each of 16 outputs to its sum: four times the work of a fused
//! multiply-add in single precision. A group of activations is eight of them deep, so what its sums take afterwards
//! matters:
//!
//! - Sums in single precision are in registers as long as a block of inputs goes. In the first-level cache, which
//!   leaves room for 24 sums of integers instead of 12, they would be read and written with each group.
//! - Sums of integers begin with the bits of [`WHOLE`], so that they are numbers in single precision as they are. One
//!   fused multiply-add takes it away again and scales them.
//!
//! Panels are read from memory under the first rows only: each tile asks for a part of what comes next
//! ([`super::ahead`]).

#[cfg(target_arch = "x86_64")]
pub(super) mod kernels {
    use std::arch::x86_64::*;

    use super::super::ahead::Ahead;
    use super::super::by_rows::by_rows;
    use super::super::quantise;
    use crate::device::cpu::layout::groups::{
        BIAS, Block, GROUPS, GroupSums, GroupTile, LARGEST, QUAD, group_bytes,
    };

    /// Outputs in a vector.
    pub(crate) const WIDTH: usize = 16;

    /// Vectors of a panel.
    pub(crate) const VECTORS: usize = 4;

    /// Outputs of a panel.
    pub(crate) const ROW: usize = VECTORS * WIDTH;

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

    /// 1.5 * 2^23: the last bit of such a number is worth 1. So its bits and an integer of no more than 2^22 are, added
    /// up, the bits of the two's sum.
    pub(crate) const WHOLE: f32 = 12_582_912.0;

    /// Inputs of the largest groups of activations whose sums are as small.
    const WHOLE_INPUTS: usize = 256;

    const _: () = assert!(WHOLE_INPUTS * BIAS as usize * LARGEST as usize <= 1 << 22);
    const _: () = assert!(GROUPS == WIDTH);

    /// Adds a tile's products to its result.
    ///
    /// # Safety
    /// The processor has AVX-512 VNNI.
    pub(crate) unsafe fn add(tile: GroupTile<'_>) {
        assert!(tile.width == ROW);
        by_rows!(tile.a.len(), [1 2 3] x 4, [4 5 6] x 2, add_rows, tile);
    }

    /// What a row's sums of integers begin with in each group.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn beginnings_of(block: &Block, is_whole: bool) -> [i32; GROUPS] {
        let whole = if is_whole { WHOLE.to_bits().cast_signed() } else { 0 };
        let mut beginnings = [0; GROUPS];
        // SAFETY: both have as many numbers as a vector.
        unsafe {
            let unbias = _mm512_loadu_si512(block.unbias.as_ptr().cast());
            let sums = _mm512_add_epi32(unbias, _mm512_set1_epi32(whole));
            _mm512_storeu_si512(beginnings.as_mut_ptr().cast(), sums);
        }
        beginnings
    }

    #[expect(clippy::needless_range_loop, reason = "counted loops unroll and leave the sums in registers")]
    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn add_rows<const M: usize, const V: usize>(tile: GroupTile<'_>) {
        let (groups, of_group) = (tile.groups(), group_bytes(tile.sizes.weights, ROW));
        let (inputs, pieces) = (tile.sizes.activations, tile.sizes.pieces());
        let is_whole = inputs <= WHOLE_INPUTS;
        let mut ahead = Ahead::new(tile.next, groups * pieces * (VECTORS / V));
        assert!(tile.a.len() == M);
        let (a, c) = (tile.a.as_ptr(), tile.c.as_mut_ptr());
        let mut beginnings = [[0; GROUPS]; M];
        for m in 0..M {
            beginnings[m] = beginnings_of(&tile.a[m], is_whole);
        }
        for first in (0..VECTORS).step_by(V) {
            // SAFETY: `groups` checked that the tile's operands have so many groups and rows.
            unsafe {
                let mut sums = [[_mm512_setzero_ps(); V]; M];
                if tile.accumulate {
                    for m in 0..M {
                        for v in 0..V {
                            sums[m][v] = _mm512_loadu_ps(c.add((m * VECTORS + first + v) * WIDTH));
                        }
                    }
                }
                let mut values = a.cast::<i8>();
                for group in 0..groups {
                    let b = tile.b.as_ptr().add(group * of_group);
                    let halves = b.add(tile.sizes.weights * ROW).cast::<__m256i>().add(first);
                    let mut b = b.add(first * WIDTH * QUAD);
                    let mut scales = [_mm512_setzero_ps(); V];
                    let mut wholes = [_mm512_setzero_ps(); V];
                    for v in 0..V {
                        scales[v] = _mm512_cvtph_ps(_mm256_loadu_si256(halves.add(v)));
                        wholes[v] = _mm512_mul_ps(scales[v], _mm512_set1_ps(-WHOLE));
                    }
                    for piece in group * pieces..(group + 1) * pieces {
                        ahead.step();
                        let mut integers = [[_mm512_setzero_si512(); V]; M];
                        for m in 0..M {
                            integers[m] = [_mm512_set1_epi32(beginnings[m][piece]); V];
                        }
                        for _ in 0..inputs / QUAD {
                            let mut lanes = [_mm512_setzero_si512(); V];
                            for v in 0..V {
                                lanes[v] = _mm512_loadu_si512(b.add(v * WIDTH * QUAD).cast());
                            }
                            for m in 0..M {
                                let four = values.add(m * size_of::<Block>()).cast::<i32>();
                                let four = _mm512_set1_epi32(four.read_unaligned());
                                for v in 0..V {
                                    integers[m][v] = _mm512_dpbusd_epi32(integers[m][v], lanes[v], four);
                                }
                            }
                            values = values.add(QUAD);
                            b = b.add(QUAD * ROW);
                        }
                        for m in 0..M {
                            let scale = _mm512_set1_ps((*a.add(m)).scales[piece]);
                            for v in 0..V {
                                let integers = integers[m][v];
                                let sum = if is_whole {
                                    _mm512_fmadd_ps(_mm512_castsi512_ps(integers), scales[v], wholes[v])
                                } else {
                                    _mm512_mul_ps(_mm512_cvtepi32_ps(integers), scales[v])
                                };
                                sums[m][v] = _mm512_fmadd_ps(sum, scale, sums[m][v]);
                            }
                        }
                    }
                }
                for m in 0..M {
                    for v in 0..V {
                        _mm512_storeu_ps(c.add((m * VECTORS + first + v) * WIDTH), sums[m][v]);
                    }
                }
            }
        }
    }

    /// Scales sums of integers over a group of activations, to the very bits that [`add`] gives them: an integer that is
    /// scaled in one step with the taking away of [`WHOLE`] is rounded once too.
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
                    let sum = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(integers, unbias)), scales);
                    let c = c.add(m * sums.width + first);
                    let before = if sums.accumulate { _mm512_loadu_ps(c) } else { _mm512_setzero_ps() };
                    _mm512_storeu_ps(c, _mm512_fmadd_ps(sum, scale, before));
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
