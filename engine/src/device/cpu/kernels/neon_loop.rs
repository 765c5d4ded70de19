//! The loops of products of integers in 128-bit vectors, written once for all ways to sum up products of bytes:
//! at most 6 rows of four vectors, 24 of the 32 registers as sums.

use std::arch::aarch64::*;

use crate::device::cpu::layout::groups::{BIAS, Block};

/// Outputs in a vector.
pub(super) const WIDTH: usize = 4;

/// Vectors of a panel.
pub(super) const VECTORS: usize = 4;

/// Outputs of a panel.
pub(super) const ROW: usize = VECTORS * WIDTH;

/// Bytes in a vector.
pub(super) const BYTES: usize = 16;

/// Runs a body for each number of a list, a constant in it: an instruction's index must be one, and that of sums,
/// or they do not stay in registers.
macro_rules! for_constants {
    ($name:ident, [$($number:literal)*], $body:block) => {
        $({
            const $name: i32 = $number;
            $body
        })*
    };
}
pub(super) use for_constants;

/// Defines the tiles over groups of eight-bit integers and of four-bit weights from `$dot`: `dot::<LANE>(sums,
/// weights, activations)` adds to each sum the products of its four bytes of weights with four of the activations,
/// those in lane `LANE`.
macro_rules! integer_tiles {
    ($features:literal, $dot:ident) => {
        /// Adds a tile's products to its result.
        ///
        /// # Safety
        /// The processor has this module's instructions.
        pub(crate) unsafe fn add(tile: GroupTile<'_>) {
            assert!(tile.width == ROW);
            by_rows!(tile.a.len(), [1 2 3 4 5 6], add_rows, tile);
        }

        /// The same for groups of four-bit weights.
        ///
        /// # Safety
        /// As above.
        pub(crate) unsafe fn add_nibbles(tile: NibbleTile<'_>) {
            assert!(tile.width == ROW);
            by_rows!(tile.a.len(), [1 2 3 4 5 6], add_nibble_rows, tile);
        }

        #[target_feature(enable = $features)]
        unsafe fn add_rows<const M: usize>(tile: GroupTile<'_>) {
            let bias = vdupq_n_u8(BIAS);
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
                        let mut integers = [[vdupq_n_s32(0); VECTORS]; M];
                        for _ in 0..inputs / BYTES {
                            let mut left = [vdupq_n_s8(0); M];
                            for m in 0..M {
                                left[m] = vld1q_s8(values.add(m * size_of::<Block>()));
                            }
                            for_constants!(FOUR, [0 1 2 3], {
                                for v in 0..VECTORS {
                                    let bytes = vld1q_u8(b.add((FOUR as usize * VECTORS + v) * BYTES));
                                    let weights = vreinterpretq_s8_u8(veorq_u8(bytes, bias));
                                    for m in 0..M {
                                        integers[m][v] = $dot::<FOUR>(integers[m][v], weights, left[m]);
                                    }
                                }
                            });
                            values = values.add(BYTES);
                            b = b.add(BYTES * ROW);
                        }
                        for_constants!(V, [0 1 2 3], {
                            let v = V as usize;
                            let scales = load_halves(halves.add(v * WIDTH));
                            for m in 0..M {
                                let c = c.add((m * VECTORS + v) * WIDTH);
                                add_scaled(c, integers[m][v], (*a.add(m)).scales[piece], scales);
                            }
                        });
                    }
                    b = b.add(2 * ROW);
                }
            }
        }

        #[target_feature(enable = $features)]
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
                    let mut integers = [[vdupq_n_s32(0); VECTORS]; M];
                    for _ in 0..PIECE / BYTES {
                        let mut left = [vdupq_n_s8(0); M];
                        for m in 0..M {
                            left[m] = vld1q_s8(values.add(m * size_of::<Block>()));
                        }
                        for_constants!(EIGHT, [0 1], {
                            for v in 0..VECTORS {
                                let bytes = vld1q_u8(b.add((EIGHT as usize * VECTORS + v) * BYTES));
                                let low = vreinterpretq_s8_u8(vandq_u8(bytes, lower));
                                let high = vreinterpretq_s8_u8(vshrq_n_u8::<4>(bytes));
                                for m in 0..M {
                                    let sum = $dot::<{ 2 * EIGHT }>(integers[m][v], low, left[m]);
                                    integers[m][v] = $dot::<{ 2 * EIGHT + 1 }>(sum, high, left[m]);
                                }
                            }
                        });
                        values = values.add(BYTES);
                        b = b.add(BYTES / 2 * ROW);
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
                            add_above_minima(c, integers[m][v], worth[m], ends);
                        }
                    });
                    b = b.add(4 * ROW);
                }
            }
        }
    };
}
pub(super) use integer_tiles;

/// Four outputs of a row: `c += sums * scales * scale`.
///
/// # Safety
/// They are at `c`.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn add_scaled(c: *mut f32, sums: int32x4_t, scale: f32, scales: float32x4_t) {
    let sums = vmulq_f32(vcvtq_f32_s32(sums), scales);
    // SAFETY: passed on from this function's own contract.
    unsafe { vst1q_f32(c, vfmaq_n_f32(vld1q_f32(c), sums, scale)) };
}

/// What multiplies a row's sums of products in a group, and what the minima: the sum of its activations.
#[derive(Clone, Copy)]
pub(super) struct GroupWorth {
    pub(super) scale: f32,
    of_minima: f32,
}

impl GroupWorth {
    pub(super) const NONE: Self = Self { scale: 0.0, of_minima: 0.0 };

    #[inline]
    pub(super) fn of(block: &Block, group: usize) -> Self {
        let (scale, unbias) = (block.scales[group], block.unbias[group]);
        Self { scale, of_minima: scale * (unbias / -i32::from(BIAS)) as f32 }
    }
}

/// The same: `c += minima * of_minima + sums * scales * scale`.
///
/// # Safety
/// As above.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn add_above_minima(
    c: *mut f32,
    sums: int32x4_t,
    worth: GroupWorth,
    (scales, minima): (float32x4_t, float32x4_t),
) {
    let sums = vmulq_f32(vcvtq_f32_s32(sums), scales);
    // SAFETY: passed on from this function's own contract.
    unsafe {
        let with_minima = vfmaq_n_f32(vld1q_f32(c), minima, worth.of_minima);
        vst1q_f32(c, vfmaq_n_f32(with_minima, sums, worth.scale));
    }
}
