//! The tile over groups of four-bit weights in 512-bit vectors: at most 6 rows of two vectors, or 2 of four.
//!
//! As [`super::avx512_vnni`], with three instructions for two vectors of numbers, for a byte has two weights; and
//! without a bias, for they are unsigned.

#[cfg(target_arch = "x86_64")]
mod kernels {
    use std::arch::x86_64::*;

    use super::super::ahead::Ahead;
    use super::super::avx512_vnni::kernels::{ROW, VECTORS, WHOLE, WIDTH};
    use super::super::by_rows::by_rows;
    use crate::device::cpu::layout::groups::{BIAS, Block, GROUPS, PIECE, QUAD};
    use crate::device::cpu::layout::nibbles::{NibbleTile, group_bytes};

    /// The bias is 2 to the power of this.
    const BIAS_BITS: u32 = BIAS.trailing_zeros();

    const _: () = assert!(BIAS.is_power_of_two() && GROUPS == WIDTH);

    /// Adds a tile's products to its result.
    ///
    /// # Safety
    /// The processor has AVX-512 VNNI.
    pub(crate) unsafe fn add(tile: NibbleTile<'_>) {
        assert!(tile.width == ROW);
        by_rows!(tile.a.len(), [1 2] x 4, [3 4 5 6] x 2, add_rows, tile);
    }

    /// What the minima of each group are multiplied with: the sum of its activations.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn worth_of_minima(block: &Block) -> [f32; GROUPS] {
        let mut of_minima = [0.0; GROUPS];
        // SAFETY: all have as many numbers as a vector.
        unsafe {
            let unbias = _mm512_loadu_si512(block.unbias.as_ptr().cast());
            let sums = _mm512_srai_epi32::<BIAS_BITS>(_mm512_sub_epi32(_mm512_setzero_si512(), unbias));
            let scales = _mm512_loadu_ps(block.scales.as_ptr());
            _mm512_storeu_ps(of_minima.as_mut_ptr(), _mm512_mul_ps(_mm512_cvtepi32_ps(sums), scales));
        }
        of_minima
    }

    #[expect(clippy::needless_range_loop, reason = "counted loops unroll and leave the sums in registers")]
    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn add_rows<const M: usize, const V: usize>(tile: NibbleTile<'_>) {
        let lower = _mm512_set1_epi32(0x0f0f_0f0f);
        let groups = tile.groups();
        let mut ahead = Ahead::new(tile.next, groups * (VECTORS / V));
        assert!(tile.a.len() == M);
        let (a, c) = (tile.a.as_ptr(), tile.c.as_mut_ptr());
        let mut of_minima = [[0.0; GROUPS]; M];
        for m in 0..M {
            of_minima[m] = worth_of_minima(&tile.a[m]);
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
                    ahead.step();
                    let of_group = tile.b.as_ptr().add(group * group_bytes(ROW));
                    let mut b = of_group.add(first * WIDTH * QUAD);
                    let mut integers = [[_mm512_set1_epi32(WHOLE.to_bits().cast_signed()); V]; M];
                    for _ in 0..PIECE / (2 * QUAD) {
                        let mut lanes = [_mm512_setzero_si512(); V];
                        for v in 0..V {
                            lanes[v] = _mm512_loadu_si512(b.add(v * WIDTH * QUAD).cast());
                        }
                        for half in 0..2 {
                            let mut numbers = [_mm512_setzero_si512(); V];
                            for v in 0..V {
                                let bits =
                                    if half == 0 { lanes[v] } else { _mm512_srli_epi32::<4>(lanes[v]) };
                                numbers[v] = _mm512_and_si512(bits, lower);
                            }
                            for m in 0..M {
                                let four = values.add(m * size_of::<Block>() + half * QUAD).cast::<i32>();
                                let four = _mm512_set1_epi32(four.read_unaligned());
                                for v in 0..V {
                                    integers[m][v] = _mm512_dpbusd_epi32(integers[m][v], numbers[v], four);
                                }
                            }
                        }
                        values = values.add(2 * QUAD);
                        b = b.add(QUAD * ROW);
                    }
                    let ends = of_group.add(PIECE / 2 * ROW).cast::<__m256i>().add(first); // scales, then minima
                    for v in 0..V {
                        let scales = _mm512_cvtph_ps(_mm256_loadu_si256(ends.add(v)));
                        let minima = _mm512_cvtph_ps(_mm256_loadu_si256(ends.add(VECTORS + v)));
                        let wholes = _mm512_mul_ps(scales, _mm512_set1_ps(-WHOLE));
                        for m in 0..M {
                            let scale = _mm512_set1_ps((*a.add(m)).scales[group]);
                            let sum = _mm512_fmadd_ps(_mm512_castsi512_ps(integers[m][v]), scales, wholes);
                            let of_minimum = _mm512_set1_ps(of_minima[m][group]);
                            let with_minima = _mm512_fmadd_ps(minima, of_minimum, sums[m][v]);
                            sums[m][v] = _mm512_fmadd_ps(sum, scale, with_minima);
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
}

#[cfg(not(target_arch = "x86_64"))]
mod kernels {
    pub(crate) use super::super::portable::add_nibbles as add;
}

pub(crate) use kernels::add;
