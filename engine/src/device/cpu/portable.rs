//! The tile in plain Rust: for machines without vectors, and the reference of the other kernels.

use half::f16;

use super::groups::{BIAS, GroupTile, QUAD, group_bytes};
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
pub(super) fn groups(tile: GroupTile<'_>) {
    let (group, width, count) = (tile.group, tile.width, tile.groups());
    for (a, c) in tile.a.iter().zip(tile.c.chunks_exact_mut(width)) {
        if !tile.accumulate {
            c.fill(0.0);
        }
        let activations = a.values.chunks_exact(group).zip(&a.scales).take(count);
        for ((values, scale), b) in activations.zip(tile.b.chunks_exact(group_bytes(group, width))) {
            let (integers, scales) = b.split_at(group * width);
            for ((lane, c), half) in c.iter_mut().enumerate().zip(scales.as_chunks::<2>().0) {
                let mut sum = 0;
                for (four, row) in
                    values.as_chunks::<QUAD>().0.iter().zip(integers.chunks_exact(QUAD * width))
                {
                    for (value, byte) in four.iter().zip(&row[QUAD * lane..]) {
                        sum += i32::from(*value) * i32::from((byte ^ BIAS).cast_signed());
                    }
                }
                *c += sum as f32 * scale * f16::from_le_bytes(*half).to_f32();
            }
        }
    }
}

/// Rounds a piece of a row.
///
/// # Safety
/// Any operands will do: other processors' kernels of this name have more to ask.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn quantise(from: &[f32], group: usize, to: &mut super::groups::Block) {
    super::groups::quantise(from, group, to);
}

/// The tile over groups.
///
/// # Safety
/// As above.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn add(tile: GroupTile<'_>) {
    groups(tile);
}
