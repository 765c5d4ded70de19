//! The tile in plain Rust: for machines without vectors, and the reference of the other kernels.

use half::f16;

use super::groups::{BIAS, DEPTH_BLOCK, GROUP, GroupTile, QUAD, group_bytes};
use super::tile::{Element, LANES, SCORE_STRIDE, Tile};

/// The tile with the left operand packed.
///
/// # Safety
/// As [`Tile`] says.
pub(super) unsafe fn packed<E: Element>(rows: usize, columns: usize, tile: &Tile<E>) {
    // SAFETY: passed on.
    unsafe { product(rows, columns, tile, 1, rows) }
}

/// The tile with the left operand in rows of scores.
///
/// # Safety
/// As [`Tile`] says.
pub(super) unsafe fn scores(rows: usize, columns: usize, tile: &Tile<f32>) {
    // SAFETY: passed on.
    unsafe { product(rows, columns, tile, SCORE_STRIDE, 1) }
}

/// `c[m, n] (+)= sum over k of a[m * a_row + k * a_step] * b[k, n]`.
unsafe fn product<E: Element>(rows: usize, columns: usize, tile: &Tile<E>, a_row: usize, a_step: usize) {
    for m in 0..rows {
        for first in (0..columns).step_by(LANES) {
            // SAFETY: the tile's extent was checked by the caller.
            unsafe {
                let c = std::slice::from_raw_parts_mut(tile.c.add(m * tile.c_row + first), LANES);
                let mut sums = [0.0f32; LANES];
                if tile.accumulate {
                    sums.copy_from_slice(c);
                }
                for k in 0..tile.depth {
                    let value = *tile.a.add(m * a_row + k * a_step);
                    let b = std::slice::from_raw_parts(tile.b.add(k * tile.b_step + first), LANES);
                    for (sum, b) in sums.iter_mut().zip(b) {
                        *sum += value * b.widen();
                    }
                }
                c.copy_from_slice(&sums);
            }
        }
    }
}

/// The tile over groups of eight-bit integers.
///
/// # Safety
/// `tile.c` holds `rows` rows of the panel's width, `tile.c_row` apart.
pub(super) unsafe fn groups(rows: usize, tile: &GroupTile<'_>) {
    tile.check(rows);
    let width = tile.width;
    for m in 0..rows {
        // SAFETY: this function's own contract.
        let c = unsafe { std::slice::from_raw_parts_mut(tile.c.add(m * tile.c_row), width) };
        let activations = &tile.a[m * DEPTH_BLOCK..][..tile.depth];
        for (a, b) in activations.iter().zip(tile.b.chunks_exact(group_bytes(width))) {
            let (integers, scales) = b.split_at(GROUP * width);
            for ((lane, c), half) in c.iter_mut().enumerate().zip(scales.as_chunks::<2>().0) {
                let mut sum = 0;
                for (four, row) in
                    a.values.as_chunks::<QUAD>().0.iter().zip(integers.chunks_exact(QUAD * width))
                {
                    for (value, byte) in four.iter().zip(&row[QUAD * lane..]) {
                        sum += i32::from(*value) * i32::from((byte ^ BIAS).cast_signed());
                    }
                }
                *c += sum as f32 * a.scale * f16::from_le_bytes(*half).to_f32();
            }
        }
    }
}

/// Rounds a piece of a row.
///
/// # Safety
/// Any slices will do: other processors' kernels of this name have more to ask.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn quantise(from: &[f32], to: &mut [super::groups::Group]) {
    super::groups::quantise(from, to);
}
