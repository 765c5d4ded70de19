//! The tile in plain Rust: for machines without vectors, and the reference of the other kernels.

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
