//! The tiles over groups of integers in 128-bit vectors, on processors with an instruction that multiplies two
//! outputs' eight bytes with two rows' (USMMLA); its intrinsic is not stable yet.
//!
//! Twice the products of SDOT in an instruction, where there are two rows: one alone is left to that. Of an odd
//! number the last one meets the weights twice.

#[cfg(target_arch = "aarch64")]
mod kernels {
    use std::arch::aarch64::*;
    use std::arch::asm;

    use super::super::by_rows::by_rows;
    use super::super::neon::kernels::load_halves;
    use super::super::neon_dotprod;
    use super::super::neon_loop::{
        BYTES, GroupWorth, ROW, VECTORS, WIDTH, add_above_minima, add_scaled, for_constants,
    };
    use crate::device::cpu::layout::groups::{Block, GroupTile, PIECE, QUAD};
    use crate::device::cpu::layout::nibbles::NibbleTile;

    /// Inputs that an instruction sums up.
    const EIGHT: usize = 2 * QUAD;

    /// Most pairs of rows.
    const PAIRS: usize = 3;

    /// Sums of a pair of rows: of two outputs in each vector the first one's in both rows, then the other's.
    type PairSums = [[int32x4_t; 2]; VECTORS];

    /// Adds products of eight bytes each: two outputs' unsigned ones with two rows'.
    #[inline]
    #[target_feature(enable = "neon,i8mm")]
    pub(crate) fn multiply(mut sums: int32x4_t, weights: uint8x16_t, left: int8x16_t) -> int32x4_t {
        // SAFETY: it touches no memory.
        unsafe {
            asm!(
                "usmmla {sums:v}.4s, {weights:v}.16b, {left:v}.16b",
                sums = inout(vreg) sums,
                weights = in(vreg) weights,
                left = in(vreg) left,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        sums
    }

    /// Eight bytes of each of four outputs, two outputs in a vector, from the first and the last four of all.
    #[inline]
    #[target_feature(enable = "neon")]
    fn zip(first: uint8x16_t, last: uint8x16_t) -> [uint8x16_t; 2] {
        let (first, last) = (vreinterpretq_u32_u8(first), vreinterpretq_u32_u8(last));
        [vzip1q_u32(first, last), vzip2q_u32(first, last)].map(|bytes| vreinterpretq_u8_u32(bytes))
    }

    /// Eight bytes of each of a pair of rows.
    ///
    /// # Safety
    /// Both rows have them at `values`.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn load_rows<const M: usize>(values: *const i8, pair: usize) -> int8x16_t {
        // SAFETY: passed on from this function's own contract.
        let row = |m: usize| unsafe { vld1_s8(values.add(m.min(M - 1) * size_of::<Block>())) };
        vcombine_s8(row(2 * pair), row(2 * pair + 1))
    }

    /// The sums of a row and four outputs.
    #[inline]
    #[target_feature(enable = "neon")]
    fn sums_of_row(sums: [int32x4_t; 2], is_second: bool) -> int32x4_t {
        if is_second { vuzp2q_s32(sums[0], sums[1]) } else { vuzp1q_s32(sums[0], sums[1]) }
    }

    /// Adds a tile's products to its result.
    ///
    /// # Safety
    /// The processor has this module's instructions, and those of [`neon_dotprod`].
    pub(crate) unsafe fn add(tile: GroupTile<'_>) {
        assert!(tile.width == ROW);
        if tile.a.len() == 1 {
            // SAFETY: passed on from this function's own contract.
            return unsafe { neon_dotprod::add(tile) };
        }
        by_rows!(tile.a.len(), [2 3 4 5 6], add_rows, tile);
    }

    /// The same for groups of four-bit weights.
    ///
    /// # Safety
    /// As above.
    pub(crate) unsafe fn add_nibbles(tile: NibbleTile<'_>) {
        assert!(tile.width == ROW);
        if tile.a.len() == 1 {
            // SAFETY: passed on from this function's own contract.
            return unsafe { neon_dotprod::add_nibbles(tile) };
        }
        by_rows!(tile.a.len(), [2 3 4 5 6], add_nibble_rows, tile);
    }

    #[expect(clippy::needless_range_loop, reason = "counted loops unroll and leave the sums in registers")]
    #[target_feature(enable = "neon,i8mm")]
    unsafe fn add_rows<const M: usize>(tile: GroupTile<'_>) {
        let groups = tile.groups();
        assert!(tile.a.len() == M);
        if !tile.accumulate {
            tile.c.fill(0.0);
        }
        let (a, mut b, c) = (tile.a.as_ptr(), tile.b.as_ptr(), tile.c.as_mut_ptr());
        let mut values = a.cast::<i8>();
        let (inputs, pieces) = (tile.sizes.activations, tile.sizes.pieces());
        for group in 0..groups {
            // SAFETY: `groups` checked that the tile's operands have so many groups and rows.
            unsafe {
                let halves = b.add(tile.sizes.weights * ROW).cast::<u16>();
                for piece in group * pieces..(group + 1) * pieces {
                    let mut integers: [PairSums; PAIRS] = [[[vdupq_n_s32(0); 2]; VECTORS]; PAIRS];
                    for pair in 0..M.div_ceil(2) {
                        // The weights' bias is taken off beforehand.
                        let unbias = [2 * pair, 2 * pair + 1].map(|m| (*a.add(m.min(M - 1))).unbias[piece]);
                        let both = vld1_s32(unbias.as_ptr());
                        integers[pair] = [[vcombine_s32(both, both); 2]; VECTORS];
                    }
                    for _ in 0..inputs / EIGHT {
                        let mut left = [vdupq_n_s8(0); PAIRS];
                        for pair in 0..M.div_ceil(2) {
                            left[pair] = load_rows::<M>(values, pair);
                        }
                        for v in 0..VECTORS {
                            let first = vld1q_u8(b.add(v * BYTES));
                            let weights = zip(first, vld1q_u8(b.add((VECTORS + v) * BYTES)));
                            for pair in 0..M.div_ceil(2) {
                                for two in 0..2 {
                                    let sums = &mut integers[pair][v][two];
                                    *sums = multiply(*sums, weights[two], left[pair]);
                                }
                            }
                        }
                        values = values.add(EIGHT);
                        b = b.add(EIGHT * ROW);
                    }
                    for_constants!(V, [0 1 2 3], {
                        let v = V as usize;
                        let scales = load_halves(halves.add(v * WIDTH));
                        for m in 0..M {
                            let c = c.add((m * VECTORS + v) * WIDTH);
                            let sums = sums_of_row(integers[m / 2][v], m % 2 == 1);
                            add_scaled(c, sums, (*a.add(m)).scales[piece], scales);
                        }
                    });
                }
                b = b.add(2 * ROW);
            }
        }
    }

    #[expect(clippy::needless_range_loop, reason = "counted loops unroll and leave the sums in registers")]
    #[target_feature(enable = "neon,i8mm")]
    unsafe fn add_nibble_rows<const M: usize>(tile: NibbleTile<'_>) {
        let lower = vdupq_n_u8(15);
        let groups = tile.groups();
        assert!(tile.a.len() == M);
        if !tile.accumulate {
            tile.c.fill(0.0);
        }
        let (a, mut b, c) = (tile.a.as_ptr(), tile.b.as_ptr(), tile.c.as_mut_ptr());
        let mut values = a.cast::<i8>();
        for group in 0..groups {
            // SAFETY: `groups` checked that the tile's operands have so many groups and rows.
            unsafe {
                let mut integers: [PairSums; PAIRS] = [[[vdupq_n_s32(0); 2]; VECTORS]; PAIRS];
                for _ in 0..PIECE / EIGHT {
                    let mut left = [vdupq_n_s8(0); PAIRS];
                    for pair in 0..M.div_ceil(2) {
                        left[pair] = load_rows::<M>(values, pair);
                    }
                    for v in 0..VECTORS {
                        let bytes = vld1q_u8(b.add(v * BYTES));
                        let weights = zip(vandq_u8(bytes, lower), vshrq_n_u8::<4>(bytes));
                        for pair in 0..M.div_ceil(2) {
                            for two in 0..2 {
                                let sums = &mut integers[pair][v][two];
                                *sums = multiply(*sums, weights[two], left[pair]);
                            }
                        }
                    }
                    values = values.add(EIGHT);
                    b = b.add(QUAD * ROW);
                }
                let mut worth = [GroupWorth::NONE; M];
                for m in 0..M {
                    worth[m] = GroupWorth::of(&*a.add(m), group);
                }
                for_constants!(V, [0 1 2 3], {
                    let v = V as usize;
                    let ends = b.cast::<u16>().add(v * WIDTH);
                    let ends = (load_halves(ends), load_halves(ends.add(ROW)));
                    for m in 0..M {
                        let c = c.add((m * VECTORS + v) * WIDTH);
                        let sums = sums_of_row(integers[m / 2][v], m % 2 == 1);
                        add_above_minima(c, sums, worth[m], ends);
                    }
                });
                b = b.add(4 * ROW);
            }
        }
    }
}

#[cfg(not(target_arch = "aarch64"))]
mod kernels {
    pub(crate) use super::super::portable::{add, add_nibbles};
}

#[cfg(target_arch = "aarch64")]
pub(crate) use kernels::multiply;
pub(crate) use kernels::{add, add_nibbles};
