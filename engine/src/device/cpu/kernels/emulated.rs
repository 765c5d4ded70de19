//! A matrix unit in software, after TDPBF16PS in Intel's Software Developer's Manual.
//!
//! Sums over a tile's even and its odd inputs run apart, each step fused; then both are added to the result.

use half::bf16;

use super::matrix_unit::{ROW_BYTES, TILE, Unit};

/// Eight tiles in memory; a use of the unit that it would refuse panics.
pub(crate) struct Emulated {
    rows: [u8; 8],
    tiles: [[[u8; ROW_BYTES]; TILE]; 8],
}

impl Default for Emulated {
    fn default() -> Self {
        Self { rows: [0; 8], tiles: [[[0; ROW_BYTES]; TILE]; 8] }
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

impl Unit for Emulated {
    unsafe fn configure(&mut self, rows: [u8; 8]) {
        assert!(rows.iter().all(|rows| usize::from(*rows) <= TILE));
        *self = Self { rows, ..Self::default() };
    }

    unsafe fn load<const T: usize>(&mut self, from: *const u8, row_bytes: usize) {
        assert!(self.rows[T] > 0);
        for row in 0..usize::from(self.rows[T]) {
            // SAFETY: passed on from this function's own contract.
            unsafe {
                let to = self.tiles[T][row].as_mut_ptr();
                std::ptr::copy_nonoverlapping(from.add(row * row_bytes), to, ROW_BYTES);
            }
        }
    }

    unsafe fn multiply<const SUMS: usize, const A: usize, const B: usize>(&mut self) {
        assert!(self.rows[SUMS] > 0 && self.rows[SUMS] == self.rows[A] && self.rows[B] == TILE as u8);
        for m in 0..usize::from(self.rows[SUMS]) {
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

    unsafe fn store<const T: usize>(&mut self, to: *mut u8, row_bytes: usize) {
        assert!(self.rows[T] > 0);
        for row in 0..usize::from(self.rows[T]) {
            // SAFETY: passed on from this function's own contract.
            unsafe {
                let from = self.tiles[T][row].as_ptr();
                std::ptr::copy_nonoverlapping(from, to.add(row * row_bytes), ROW_BYTES);
            }
        }
    }
}
