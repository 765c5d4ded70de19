//! The tile over groups of eight-bit integers in 512-bit vectors: at most 12 rows of two vectors.
//!
//! One instruction adds four products for each of 16 outputs to its sum: four times the work of a fused
//! multiply-add in single precision. The sums of integers take up to 24 of the 32 registers; those in single precision,
//! which a group touches once, wait in the stack's cache lines beyond 6 rows.

#[cfg(target_arch = "x86_64")]
mod kernels {
    use std::arch::x86_64::*;

    use super::super::groups::{self, DEPTH_BLOCK, GROUP, Group, GroupTile, QUAD, group_bytes};

    /// Outputs in a vector.
    const WIDTH: usize = 16;

    /// Vectors of a panel.
    const VECTORS: usize = 2;

    /// Rounds a piece of a row.
    ///
    /// # Safety
    /// The processor has AVX-512.
    #[target_feature(enable = "avx512f")]
    pub(in crate::device::cpu) unsafe fn quantise(from: &[f32], to: &mut [Group]) {
        groups::quantise(from, to);
    }

    /// Adds a tile's products to its result.
    ///
    /// # Safety
    /// `tile.c` holds the result, and the processor has AVX-512 VNNI.
    pub(in crate::device::cpu) unsafe fn add(rows: usize, tile: &GroupTile<'_>) {
        tile.check(rows);
        assert!(tile.width == VECTORS * WIDTH);
        macro_rules! pick {
            ($($rows:literal)*) => {
                match rows {
                    // SAFETY: passed on from this function's own contract.
                    $($rows => unsafe { add_rows::<$rows>(tile) },)*
                    _ => unreachable!("tiles have at most 12 rows"),
                }
            };
        }
        pick!(1 2 3 4 5 6 7 8 9 10 11 12);
    }

    #[expect(clippy::needless_range_loop, reason = "counted loops unroll and leave the sums in registers")]
    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn add_rows<const M: usize>(tile: &GroupTile<'_>) {
        const ROW: usize = VECTORS * WIDTH;
        // SAFETY: `a` and `b` were checked, and the caller vouches for `c`.
        unsafe {
            let mut sums = [[_mm512_setzero_ps(); VECTORS]; M];
            for m in 0..M {
                for v in 0..VECTORS {
                    sums[m][v] = _mm512_loadu_ps(tile.c.add(m * tile.c_row + v * WIDTH));
                }
            }
            let (mut a, mut b) = (tile.a.as_ptr(), tile.b.as_ptr());
            for _ in 0..tile.depth {
                let mut integers = [[_mm512_setzero_si512(); VECTORS]; M];
                for m in 0..M {
                    integers[m] = [_mm512_set1_epi32((*a.add(m * DEPTH_BLOCK)).unbias); VECTORS];
                }
                for quad in (0..GROUP).step_by(QUAD) {
                    let mut lanes = [_mm512_setzero_si512(); VECTORS];
                    for v in 0..VECTORS {
                        lanes[v] = _mm512_loadu_si512(b.add(quad * ROW + v * WIDTH * QUAD).cast());
                    }
                    for m in 0..M {
                        let four = (&raw const (*a.add(m * DEPTH_BLOCK)).values).cast::<i8>().add(quad);
                        let four = _mm512_set1_epi32(four.cast::<i32>().read_unaligned());
                        for v in 0..VECTORS {
                            integers[m][v] = _mm512_dpbusd_epi32(integers[m][v], lanes[v], four);
                        }
                    }
                }
                let mut scales = [_mm512_setzero_ps(); VECTORS];
                for v in 0..VECTORS {
                    let halves = _mm256_loadu_si256(b.add(GROUP * ROW + 2 * v * WIDTH).cast());
                    scales[v] = _mm512_cvtph_ps(halves);
                }
                for m in 0..M {
                    let scale = _mm512_set1_ps((*a.add(m * DEPTH_BLOCK)).scale);
                    for v in 0..VECTORS {
                        let sum = _mm512_mul_ps(_mm512_cvtepi32_ps(integers[m][v]), scale);
                        sums[m][v] = _mm512_fmadd_ps(sum, scales[v], sums[m][v]);
                    }
                }
                a = a.add(1);
                b = b.add(const { group_bytes(ROW) });
            }
            for m in 0..M {
                for v in 0..VECTORS {
                    _mm512_storeu_ps(tile.c.add(m * tile.c_row + v * WIDTH), sums[m][v]);
                }
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod kernels {
    pub(in crate::device::cpu) use super::super::portable::{groups as add, quantise};
}

pub(super) use kernels::{add, quantise};
