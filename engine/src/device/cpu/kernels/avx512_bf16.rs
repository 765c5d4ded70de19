//! The tile over pairs of bf16 in 512-bit vectors: at most 12 rows of two vectors, 24 of the 32 registers as
//! sums.
//!
//! One instruction multiplies 16 outputs' pairs with a pair of activations and adds both products to the
//! sums, twice the work of a fused multiply-add in single precision.

#[cfg(target_arch = "x86_64")]
mod kernels {
    use std::arch::x86_64::*;
    use std::mem::transmute;

    use half::bf16;

    use super::super::ahead::Ahead;
    use super::super::avx512::kernels::{WIDTH, load_f32, store, zero};
    use super::super::by_rows::by_rows;
    use super::super::strip_loop::strip_kernel;
    use super::super::tile_loop::RUN;
    use crate::device::cpu::layout::pairs::{DEPTH_BLOCK, Pair, PairTile};
    use crate::device::cpu::layout::tiles::{Line, TILE, round_portable};

    /// Vectors of a panel.
    const VECTORS: usize = 2;

    /// `to` = `from`, rounded to nearest even.
    ///
    /// # Safety
    /// The processor has AVX-512 BF16.
    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(crate) unsafe fn round(from: &[f32], to: &mut [bf16]) {
        assert_eq!(from.len(), to.len());
        let (vectors, rest) = from.as_chunks::<WIDTH>();
        let (rounded, rest_rounded) = to.as_chunks_mut::<WIDTH>();
        for (from, to) in vectors.iter().zip(rounded) {
            // SAFETY: both have `WIDTH` elements; vectors of 16 bf16 are 16 times 16 bits.
            unsafe {
                let narrow = _mm512_cvtneps_pbh(_mm512_loadu_ps(from.as_ptr()));
                _mm256_storeu_si256(to.as_mut_ptr().cast(), transmute::<__m256bh, __m256i>(narrow));
            }
        }
        for (from, to) in rest.iter().zip(rest_rounded) {
            *to = bf16::from_f32(*from);
        }
    }

    /// `from`, rounded to nearest even, in lines of which every `of_step`th is written; zeros behind it.
    ///
    /// # Safety
    /// The processor has AVX-512 BF16.
    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(crate) unsafe fn round_lines(from: &[f32], to: &mut [Line], of_step: usize) {
        let (whole, rest) = from.as_chunks::<{ 2 * TILE }>();
        let mut lines = to.iter_mut().step_by(of_step);
        for (from, to) in whole.iter().zip(&mut lines) {
            // SAFETY: there are twice 16 numbers, and a line has as many places; vectors of 32 bf16 are 32 times
            // 16 bits.
            unsafe {
                let [low, high] = [0, TILE].map(|at| _mm512_loadu_ps(from.as_ptr().add(at)));
                let both = _mm512_cvtne2ps_pbh(high, low);
                _mm512_store_si512(to.0.as_mut_ptr().cast(), transmute::<__m512bh, __m512i>(both));
            }
        }
        if let (false, Some(line)) = (rest.is_empty(), lines.next()) {
            round_portable(rest, std::slice::from_mut(line), 1);
        }
    }

    /// `to` = the integers of `from`, which bf16 holds exactly.
    ///
    /// # Safety
    /// The processor has AVX-512 BF16.
    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(crate) unsafe fn widen(from: &[i8], to: &mut [bf16]) {
        assert_eq!(from.len(), to.len());
        let (vectors, rest) = from.as_chunks::<{ 2 * WIDTH }>();
        let (wide, rest_wide) = to.as_chunks_mut::<{ 2 * WIDTH }>();
        for (from, to) in vectors.iter().zip(wide) {
            // SAFETY: there are twice 16 integers, and as many places; vectors of 32 bf16 are 32 times 16
            // bits.
            unsafe {
                let from = from.as_ptr().cast::<__m128i>();
                let [low, high] = [from, from.add(1)]
                    .map(|from| _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from))));
                let both = _mm512_cvtne2ps_pbh(high, low);
                _mm512_storeu_si512(to.as_mut_ptr().cast(), transmute::<__m512bh, __m512i>(both));
            }
        }
        for (from, to) in rest.iter().zip(rest_wide) {
            *to = bf16::from_f32(f32::from(*from));
        }
    }

    /// Adds a tile's products to its result.
    ///
    /// # Safety
    /// The processor has AVX-512 BF16.
    pub(crate) unsafe fn add(rows: usize, tile: PairTile<'_>) {
        tile.check(rows, VECTORS * WIDTH);
        by_rows!(rows, [1 2 3 4 5 6 7 8 9 10 11 12], add_rows, tile);
    }

    /// The bits of 16 pairs as what the instruction takes.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn pairs(bits: __m512i) -> __m512bh {
        // SAFETY: both are 512 bits, and every pattern is a pair of bf16.
        unsafe { transmute::<__m512i, __m512bh>(bits) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load_pairs(from: *const Pair) -> __m512bh {
        // SAFETY: the caller vouches for `WIDTH` pairs.
        pairs(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    unsafe fn add_pair(sum: __m512, left: *const Pair, lanes: __m512bh) -> __m512 {
        // SAFETY: the caller vouches for the element.
        let pair = _mm512_set1_epi32(unsafe { left.cast::<i32>().read_unaligned() });
        _mm512_dpbf16_ps(sum, pairs(pair), lanes)
    }

    strip_kernel!("avx512f,avx512bf16", strip, pairs_by_rows, pair_strip, Pair, Pair, load_pairs, add_pair);

    #[expect(clippy::needless_range_loop, reason = "counted loops unroll and leave the sums in registers")]
    #[target_feature(enable = "avx512f,avx512bf16")]
    unsafe fn add_rows<const M: usize>(tile: PairTile<'_>) {
        let mut ahead = Ahead::new(tile.next, tile.depth.div_ceil(RUN));
        // SAFETY: the tile's extent was checked.
        unsafe {
            let mut sums = [[_mm512_setzero_ps(); VECTORS]; M];
            let c = tile.c.as_mut_ptr();
            if tile.accumulate {
                for m in 0..M {
                    for v in 0..VECTORS {
                        sums[m][v] = _mm512_loadu_ps(c.add((m * VECTORS + v) * WIDTH));
                    }
                }
            }
            let (mut a, mut b) = (tile.a.as_ptr(), tile.b.as_ptr());
            for first in (0..tile.depth).step_by(RUN) {
                ahead.step();
                for _ in 0..RUN.min(tile.depth - first) {
                    let mut lanes: [__m512bh; VECTORS] = [pairs(_mm512_setzero_si512()); VECTORS];
                    for v in 0..VECTORS {
                        lanes[v] = pairs(_mm512_loadu_si512(b.add(v * WIDTH).cast()));
                    }
                    for m in 0..M {
                        let pair = _mm512_set1_epi32(a.add(m * DEPTH_BLOCK).cast::<i32>().read_unaligned());
                        for v in 0..VECTORS {
                            sums[m][v] = _mm512_dpbf16_ps(sums[m][v], pairs(pair), lanes[v]);
                        }
                    }
                    a = a.add(1);
                    b = b.add(VECTORS * WIDTH);
                }
            }
            for m in 0..M {
                for v in 0..VECTORS {
                    _mm512_storeu_ps(c.add((m * VECTORS + v) * WIDTH), sums[m][v]);
                }
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod kernels {
    use crate::device::cpu::layout::pairs::{Pair, PairTile};
    use crate::device::cpu::layout::strip::Strip;
    use crate::device::cpu::layout::tiles::Line;

    /// Not on this processor.
    ///
    /// # Safety
    /// Never called.
    pub(crate) unsafe fn round(_from: &[f32], _to: &mut [half::bf16]) {
        unreachable!("no device of this processor multiplies pairs")
    }

    /// Not on this processor.
    ///
    /// # Safety
    /// Never called.
    pub(crate) unsafe fn round_lines(_from: &[f32], _to: &mut [Line], _of_step: usize) {
        unreachable!("no device of this processor multiplies pairs")
    }

    /// Not on this processor.
    ///
    /// # Safety
    /// Never called.
    pub(crate) unsafe fn widen(_from: &[i8], _to: &mut [half::bf16]) {
        unreachable!("no device of this processor multiplies pairs")
    }

    /// Not on this processor.
    ///
    /// # Safety
    /// Never called.
    pub(crate) unsafe fn add(_rows: usize, _tile: PairTile<'_>) {
        unreachable!("no device of this processor multiplies pairs")
    }

    /// Not on this processor.
    ///
    /// # Safety
    /// Never called.
    pub(crate) unsafe fn strip(_rows: usize, _columns: usize, _strip: &Strip<'_, Pair, Pair>) {
        unreachable!("no device of this processor multiplies pairs")
    }
}

pub(crate) use kernels::{add, round, round_lines, strip, widen};
