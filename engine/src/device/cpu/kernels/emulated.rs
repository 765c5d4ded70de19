//! A matrix unit in software, after TDPBF16PS and TDPBSUD in Intel's Software Developer's Manual.
//!
//! Of bf16, sums over a tile's even and its odd inputs run apart, each step fused; then both are added to the result.
//! Sums of bytes are exact.

use std::cell::Cell;

use half::bf16;

use super::matrix_unit::{ROW_BYTES, Shapes, Unit};
use crate::device::cpu::layout::tiles::TILE;

thread_local! {
    /// What this thread's tiles are configured for.
    static CONFIGURED: Cell<Option<Shapes>> = const { Cell::new(None) };
}

/// Whether this thread's tiles are configured: whether its work is this unit's.
#[cfg(test)]
pub(crate) fn is_configured() -> bool {
    CONFIGURED.get().is_some()
}

/// Rows of a tile, and bytes of each, as this thread's are configured.
fn shape(tile: usize) -> (usize, usize) {
    match (CONFIGURED.get().expect("the unit is used inside `configured`"), tile) {
        (Shapes::Attention, 5) | (Shapes::HalfDepth, 4 | 5) => (TILE, ROW_BYTES / 2),
        (Shapes::Attention, 7) | (Shapes::HalfDepth, 6 | 7) => (TILE / 2, ROW_BYTES),
        _ => (TILE, ROW_BYTES),
    }
}

/// Eight tiles in memory; a use of the unit that it would refuse, or that reads another shape than is meant,
/// panics.
pub(crate) struct Emulated {
    tiles: [[[u8; ROW_BYTES]; TILE]; 8],
}

impl Default for Emulated {
    fn default() -> Self {
        // Not empty: who reads what nobody wrote sees it.
        Self { tiles: [[[0xFF; ROW_BYTES]; TILE]; 8] }
    }
}

/// Subnormals count as zero.
fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0.0 } else { x }
}

/// The pair at `index` of a tile's row.
fn pair(row: &[u8; ROW_BYTES], index: usize) -> [f32; 2] {
    let at = |byte: usize| flush(bf16::from_le_bytes([row[byte], row[byte + 1]]).to_f32());
    [at(4 * index), at(4 * index + 2)]
}

impl Emulated {
    /// Reads a tile of so many rows and bytes of each; the rest of it is zero, as the unit leaves it.
    ///
    /// # Safety
    /// `from` holds the rows.
    unsafe fn load_shape<const T: usize>(
        &mut self,
        (rows, bytes): (usize, usize),
        from: *const u8,
        row_bytes: usize,
    ) {
        assert_eq!((rows, bytes), shape(T), "tile {T}");
        self.tiles[T] = [[0; ROW_BYTES]; TILE];
        for (number, row) in self.tiles[T][..rows].iter_mut().enumerate() {
            // SAFETY: passed on from this function's own contract.
            unsafe { std::ptr::copy_nonoverlapping(from.add(number * row_bytes), row.as_mut_ptr(), bytes) };
        }
    }
}

impl Unit for Emulated {
    unsafe fn configured(shapes: Shapes, work: &mut dyn FnMut()) {
        let before = CONFIGURED.replace(Some(shapes));
        assert!(before.is_none(), "tiles are configured once for all products of a task");
        work();
        CONFIGURED.set(None);
    }

    unsafe fn clear<const T: usize>(&mut self) {
        self.tiles[T] = [[0; ROW_BYTES]; TILE];
    }

    unsafe fn load<const T: usize>(&mut self, from: *const u8, row_bytes: usize) {
        // SAFETY: passed on from this function's own contract.
        unsafe { self.load_shape::<T>((TILE, ROW_BYTES), from, row_bytes) };
    }

    unsafe fn load_passing<const T: usize>(&mut self, from: *const u8, row_bytes: usize) {
        // SAFETY: as above.
        unsafe { self.load::<T>(from, row_bytes) };
    }

    unsafe fn load_narrow<const T: usize>(&mut self, from: *const u8, row_bytes: usize) {
        // SAFETY: as above.
        unsafe { self.load_shape::<T>((TILE, ROW_BYTES / 2), from, row_bytes) };
    }

    unsafe fn load_short<const T: usize>(&mut self, from: *const u8, row_bytes: usize) {
        // SAFETY: as above.
        unsafe { self.load_shape::<T>((TILE / 2, ROW_BYTES), from, row_bytes) };
    }

    unsafe fn multiply<const SUMS: usize, const A: usize, const B: usize>(&mut self) {
        // As deep as the one's rows are wide, the other has rows.
        assert!(shape(SUMS) == (TILE, ROW_BYTES) && shape(A).1 / 4 == shape(B).0, "tiles {A} and {B}");
        for m in 0..TILE {
            let mut sums = [[0.0f32; 2]; TILE];
            for k in 0..TILE {
                let a = pair(&self.tiles[A][m], k);
                for (n, sums) in sums.iter_mut().enumerate() {
                    let b = pair(&self.tiles[B][k], n);
                    *sums = [flush(a[0].mul_add(b[0], sums[0])), flush(a[1].mul_add(b[1], sums[1]))];
                }
            }
            for (n, [even, odd]) in sums.into_iter().enumerate() {
                let bytes = &mut self.tiles[SUMS][m][4 * n..4 * n + 4];
                let before = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                bytes.copy_from_slice(&flush(flush(before) + flush(even + odd)).to_le_bytes());
            }
        }
    }

    unsafe fn multiply_bytes<const SUMS: usize, const A: usize, const B: usize>(&mut self) {
        assert!(shape(SUMS) == (TILE, ROW_BYTES) && shape(A).1 / 4 == shape(B).0, "tiles {A} and {B}");
        for m in 0..TILE {
            for n in 0..TILE {
                let mut sum = 0i32;
                for (left, row) in self.tiles[A][m].as_chunks::<4>().0.iter().zip(&self.tiles[B]) {
                    for (left, right) in left.iter().zip(&row[4 * n..4 * n + 4]) {
                        sum += i32::from(left.cast_signed()) * i32::from(*right);
                    }
                }
                let bytes = &mut self.tiles[SUMS][m][4 * n..4 * n + 4];
                let before = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                bytes.copy_from_slice(&before.wrapping_add(sum).to_le_bytes());
            }
        }
    }

    unsafe fn store<const T: usize>(&mut self, to: *mut u8, row_bytes: usize) {
        for (number, row) in self.tiles[T].iter().enumerate() {
            // SAFETY: passed on from this function's own contract.
            unsafe {
                std::ptr::copy_nonoverlapping(row.as_ptr(), to.add(number * row_bytes), ROW_BYTES);
            }
        }
    }
}
