//! The tile over half floats in 512-bit vectors: at most 12 rows of two vectors, 24 of the 32 registers as sums.
//!
//! One instruction multiplies and adds for 32 outputs, twice the work of one in single precision. Sums of a run of
//! products are half floats, in registers; then they are added to those in single precision, by way of memory: taken out
//! of registers, halves of vectors would pass the port that multiplies.

#[cfg(target_arch = "x86_64")]
mod kernels {
    use std::arch::x86_64::*;

    use half::f16;

    use super::super::ahead::Ahead;
    use super::super::by_rows::by_rows;
    use super::super::tile_loop;
    use crate::device::cpu::layout::halves::{DEPTH_BLOCK, HalfBlock, HalfTile, PANEL, RUN, scale_of};

    /// Half floats in a vector.
    const WIDTH: usize = 32;

    /// Vectors of a panel.
    const VECTORS: usize = PANEL / WIDTH;

    /// Singles in a vector.
    const SINGLES: usize = 16;

    /// Sums of a run.
    #[repr(C, align(64))]
    struct RunSums<const M: usize>([[f16; PANEL]; M]);

    /// [`HalfBlock::round`].
    ///
    /// # Safety
    /// The processor has AVX-512.
    #[target_feature(enable = "avx512f")]
    pub(crate) unsafe fn round(from: &[f32], to: &mut HalfBlock) {
        if from.len() < DEPTH_BLOCK {
            to.round(from);
            return;
        }
        let (from, _) = from.as_chunks::<SINGLES>();
        let (twice, _) = to.numbers.as_chunks_mut::<SINGLES>();
        let mut largest = _mm512_setzero_si512();
        for from in from {
            // SAFETY: it has as many numbers as a vector.
            let bits = unsafe { _mm512_loadu_si512(from.as_ptr().cast()) };
            // Magnitudes order as their bits do.
            largest = _mm512_max_epu32(largest, _mm512_and_si512(bits, _mm512_set1_epi32(i32::MAX)));
        }
        let inverse;
        (to.scale, inverse) = scale_of(f32::from_bits(_mm512_reduce_max_epu32(largest)));
        for (from, to) in from.iter().zip(twice) {
            // SAFETY: as above, and as many pairs of 16 bits.
            unsafe {
                let scaled = _mm512_mul_ps(_mm512_loadu_ps(from.as_ptr()), _mm512_set1_ps(inverse));
                let halves = _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(scaled);
                let first = _mm512_cvtepu16_epi32(halves);
                let both = _mm512_or_si512(first, _mm512_slli_epi32::<16>(first));
                _mm512_storeu_si512(to.as_mut_ptr().cast(), both);
            }
        }
    }

    /// Adds a tile's products to its result.
    ///
    /// # Safety
    /// The processor has AVX-512 FP16.
    pub(crate) unsafe fn add(tile: HalfTile<'_>) {
        let rows = tile.a.len();
        tile.check(rows);
        by_rows!(rows, [1 2 3 4 5 6 7 8 9 10 11 12], add_rows, tile);
    }

    #[expect(clippy::needless_range_loop, reason = "counted loops unroll and leave the sums in registers")]
    #[target_feature(enable = "avx512f,avx512fp16")]
    unsafe fn add_rows<const M: usize>(tile: HalfTile<'_>) {
        let depth = tile.depth();
        let mut ahead = Ahead::new(tile.next, depth.div_ceil(tile_loop::RUN));
        let mut run_sums = RunSums([[f16::ZERO; PANEL]; M]);
        let c = tile.c;
        let mut b = tile.b.as_ptr();
        for first in (0..depth).step_by(RUN) {
            // SAFETY: the tile's extent was checked.
            unsafe {
                let mut sums = [[_mm512_setzero_ph(); VECTORS]; M];
                let mut a = tile.a.as_ptr().cast::<i32>().add(first);
                for few in (first..depth.min(first + RUN)).step_by(tile_loop::RUN) {
                    ahead.step();
                    for _ in 0..tile_loop::RUN.min(depth - few) {
                        let mut lanes = [_mm512_setzero_ph(); VECTORS];
                        for v in 0..VECTORS {
                            lanes[v] = _mm512_castsi512_ph(_mm512_loadu_si512(b.add(v * WIDTH).cast()));
                        }
                        for m in 0..M {
                            let twice = *a.add(m * (size_of::<HalfBlock>() / size_of::<i32>()));
                            let number = _mm512_castsi512_ph(_mm512_set1_epi32(twice));
                            for v in 0..VECTORS {
                                sums[m][v] = _mm512_fmadd_ph(number, lanes[v], sums[m][v]);
                            }
                        }
                        a = a.add(1);
                        b = b.add(PANEL);
                    }
                }
                for m in 0..M {
                    for v in 0..VECTORS {
                        let to = run_sums.0[m].as_mut_ptr().add(v * WIDTH);
                        _mm512_store_si512(to.cast(), _mm512_castph_si512(sums[m][v]));
                    }
                }
                add_run(&run_sums.0, tile.a, tile.accumulate || first > 0, c);
            }
        }
        if let Some(scales) = tile.scales {
            for row in c.chunks_exact_mut(PANEL) {
                row.iter_mut().zip(scales).for_each(|(sum, scale)| *sum *= scale);
            }
        }
    }

    /// Adds sums of a run to those in single precision, or overwrites these with them. It is a function of its own,
    /// so that the compiler leaves the way by memory as it is.
    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512fp16")]
    fn add_run(run_sums: &[[f16; PANEL]], a: &[HalfBlock], accumulate: bool, c: &mut [f32]) {
        for ((sums, block), c) in run_sums.iter().zip(a).zip(c.chunks_exact_mut(PANEL)) {
            let scale = _mm512_set1_ps(block.scale);
            let (sums, _) = sums.as_chunks::<SINGLES>();
            let (c, _) = c.as_chunks_mut::<SINGLES>();
            for (sums, c) in sums.iter().zip(c) {
                // SAFETY: both have as many numbers as a vector of singles.
                unsafe {
                    let sums = _mm256_loadu_si256(sums.as_ptr().cast());
                    let wide = _mm512_cvtxph_ps(_mm256_castsi256_ph(sums));
                    let before = if accumulate { _mm512_loadu_ps(c.as_ptr()) } else { _mm512_setzero_ps() };
                    _mm512_storeu_ps(c.as_mut_ptr(), _mm512_fmadd_ps(wide, scale, before));
                }
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use super::portable::{halves as add, round_halves as round};
#[cfg(target_arch = "x86_64")]
pub(crate) use kernels::{add, round};
