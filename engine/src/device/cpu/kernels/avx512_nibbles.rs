//! The tile over groups of four-bit weights in 512-bit vectors: at most 6 rows of four vectors.
//!
//! As [`super::avx512_vnni`], with two instructions a load, for a byte has two weights; and without a bias, for
//! they are unsigned.

#[cfg(target_arch = "x86_64")]
mod kernels {
    use std::arch::x86_64::*;

    use super::super::by_rows::by_rows;
    use crate::device::cpu::layout::groups::{BIAS, Block, PIECE, QUAD};
    use crate::device::cpu::layout::nibbles::{NibbleTile, group_bytes};

    /// Outputs in a vector.
    const WIDTH: usize = 16;

    /// Vectors of a panel.
    const VECTORS: usize = 4;

    /// Adds a tile's products to its result.
    ///
    /// # Safety
    /// The processor has AVX-512 VNNI.
    pub(crate) unsafe fn add(tile: NibbleTile<'_>) {
        assert!(tile.width == VECTORS * WIDTH);
        by_rows!(tile.a.len(), [1 2 3 4 5 6], add_rows, tile);
    }

    #[expect(clippy::needless_range_loop, reason = "counted loops unroll and leave the sums in registers")]
    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn add_rows<const M: usize>(tile: NibbleTile<'_>) {
        const ROW: usize = VECTORS * WIDTH;
        let lower = _mm512_set1_epi32(0x0f0f_0f0f);
        let groups = tile.groups();
        assert!(tile.a.len() == M);
        let (a, c) = (tile.a.as_ptr(), tile.c.as_mut_ptr());
        for group in 0..groups {
            // SAFETY: `groups` checked that the tile's operands have so many groups and rows.
            unsafe {
                let b = tile.b.as_ptr().add(group * group_bytes(ROW));
                let values = a.cast::<i8>().add(group * PIECE);
                let mut integers = [[_mm512_setzero_si512(); VECTORS]; M];
                for eight in (0..PIECE).step_by(2 * QUAD) {
                    let mut lanes = [_mm512_setzero_si512(); VECTORS];
                    for v in 0..VECTORS {
                        lanes[v] = _mm512_loadu_si512(b.add(eight / 2 * ROW + v * WIDTH * QUAD).cast());
                    }
                    for half in 0..2 {
                        let mut numbers = [_mm512_setzero_si512(); VECTORS];
                        for v in 0..VECTORS {
                            let bits = if half == 0 { lanes[v] } else { _mm512_srli_epi32::<4>(lanes[v]) };
                            numbers[v] = _mm512_and_si512(bits, lower);
                        }
                        for m in 0..M {
                            let four = values.add(m * size_of::<Block>() + eight + half * QUAD).cast::<i32>();
                            let four = _mm512_set1_epi32(four.read_unaligned());
                            for v in 0..VECTORS {
                                integers[m][v] = _mm512_dpbusd_epi32(integers[m][v], numbers[v], four);
                            }
                        }
                    }
                }
                let ends = b.add(PIECE / 2 * ROW).cast::<__m256i>(); // a vector of halves each: scales, minima
                for v in 0..VECTORS {
                    let scales = _mm512_cvtph_ps(_mm256_loadu_si256(ends.add(v)));
                    let minima = _mm512_cvtph_ps(_mm256_loadu_si256(ends.add(VECTORS + v)));
                    for m in 0..M {
                        let (scale, unbias) = ((*a.add(m)).scales[group], (*a.add(m)).unbias[group]);
                        let of_minimum = scale * (unbias / -i32::from(BIAS)) as f32;
                        let sum = _mm512_mul_ps(_mm512_cvtepi32_ps(integers[m][v]), _mm512_set1_ps(scale));
                        let c = c.add((m * VECTORS + v) * WIDTH);
                        let is_first = group == 0 && !tile.accumulate;
                        let before = if is_first { _mm512_setzero_ps() } else { _mm512_loadu_ps(c) };
                        let with_minima = _mm512_fmadd_ps(minima, _mm512_set1_ps(of_minimum), before);
                        _mm512_storeu_ps(c, _mm512_fmadd_ps(sum, scales, with_minima));
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
