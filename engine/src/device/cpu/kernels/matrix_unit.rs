//! Products of bf16 pairs on a matrix unit: tiles of 16 rows by 16 outputs, 16 pairs deep.
//!
//! The unit's eight tiles are four sums (32 rows by 32 outputs), two of activations and two of weights;
//! operands are those of [`crate::device::cpu::layout::pairs`]. The loop is written against [`Unit`], whose
//! software twin the tests run everywhere.
//!
//! The hardware twin ([`super::amx`]) has never been run: no machine of this project's had the unit. What is
//! untested there is its instructions and whether they are allowed to run; loop, packing and rounding are
//! tested.

use crate::device::cpu::layout::pairs::{DEPTH_BLOCK, Pair, PairTile};

/// Most rows of a product at once: two tiles.
pub(crate) const ROWS_MAX: usize = 2 * TILE;

/// Rows, and pairs of depth, of a tile.
pub(crate) const TILE: usize = 16;

/// Bytes of a tile's row: 16 pairs, or 16 singles.
pub(crate) const ROW_BYTES: usize = 64;

/// Eight tiles of at most 16 rows of 64 bytes.
pub(crate) trait Unit {
    /// Empties all tiles and sets how many rows each has.
    ///
    /// # Safety
    /// The processor has the unit, and this process may use it.
    unsafe fn configure(&mut self, rows: [u8; 8]);

    /// Reads tile `T`, its rows `row_bytes` apart.
    ///
    /// # Safety
    /// `from` holds the tile's rows, of 64 bytes each.
    unsafe fn load<const T: usize>(&mut self, from: *const u8, row_bytes: usize);

    /// Adds to tile `SUMS` the products of the pairs of `A`'s rows with `B`'s columns, in single precision.
    ///
    /// # Safety
    /// The tiles are configured to agree.
    unsafe fn multiply<const SUMS: usize, const A: usize, const B: usize>(&mut self);

    /// Writes tile `T`, its rows `row_bytes` apart.
    ///
    /// # Safety
    /// `to` holds the tile's rows, of 64 bytes each.
    unsafe fn store<const T: usize>(&mut self, to: *mut u8, row_bytes: usize);
}

/// Adds the products of `rows` (at most 32) with a panel of 32 outputs to their result.
///
/// # Safety
/// The unit may be used.
pub(crate) unsafe fn add<U: Unit>(unit: &mut U, rows: usize, tile: PairTile<'_>) {
    const SIZE: usize = size_of::<Pair>();
    assert!(rows <= ROWS_MAX && tile.depth.is_multiple_of(TILE));
    tile.check(rows, 2 * TILE);
    let (top, bottom) = (rows.min(TILE), rows.saturating_sub(TILE));
    let (a_row, b_row, c_row) = (DEPTH_BLOCK * SIZE, 2 * ROW_BYTES, 2 * ROW_BYTES);
    let a = tile.a.as_ptr().cast::<u8>();
    let b = tile.b.as_ptr().cast::<u8>();
    let c = tile.c.as_mut_ptr().cast::<u8>();
    let (t, u) = (top as u8, bottom as u8);
    // SAFETY: the asserts bound `a`, `b` and `c`; the lower tiles are used where they have rows.
    unsafe {
        let c_below = c.wrapping_add(TILE * c_row);
        unit.configure([t, t, u, u, t, u, TILE as u8, TILE as u8]);
        if tile.accumulate {
            unit.load::<0>(c, c_row);
            unit.load::<1>(c.add(ROW_BYTES), c_row);
        }
        if tile.accumulate && bottom > 0 {
            unit.load::<2>(c_below, c_row);
            unit.load::<3>(c_below.add(ROW_BYTES), c_row);
        }
        for k in (0..tile.depth).step_by(TILE) {
            unit.load::<4>(a.add(k * SIZE), a_row);
            unit.load::<6>(b.add(k * b_row), b_row);
            unit.load::<7>(b.add(k * b_row + ROW_BYTES), b_row);
            unit.multiply::<0, 4, 6>();
            unit.multiply::<1, 4, 7>();
            if bottom > 0 {
                unit.load::<5>(a.add(TILE * a_row + k * SIZE), a_row);
                unit.multiply::<2, 5, 6>();
                unit.multiply::<3, 5, 7>();
            }
        }
        unit.store::<0>(c, c_row);
        unit.store::<1>(c.add(ROW_BYTES), c_row);
        if bottom > 0 {
            unit.store::<2>(c_below, c_row);
            unit.store::<3>(c_below.add(ROW_BYTES), c_row);
        }
    }
}

/// Whether two units give a product, of both upper and lower tiles and several steps, the same bits.
///
/// # Safety
/// Both may be used.
pub(crate) unsafe fn agrees_with(mut one: impl Unit, mut other: impl Unit) -> bool {
    const ROWS: usize = TILE + 3;
    const DEPTH: usize = 3 * TILE;
    let number = |index: usize| half::bf16::from_f32(((index * 7919 % 1000) as f32 - 500.0) / 331.0);
    let pairs = |count: usize, seed: usize| -> Vec<Pair> {
        (0..count).map(|i| [number(2 * i + seed), number(2 * i + seed + 1)]).collect()
    };
    let (a, b) = (pairs(ROWS * DEPTH_BLOCK, 1), pairs(DEPTH * 2 * TILE, 500));
    let start: Vec<f32> = (0..ROWS * 2 * TILE).map(|i| i as f32 / 77.0).collect();
    let (mut c, mut d) = (start.clone(), start);
    // First into what is overwritten, then on top of it.
    [false, true].into_iter().all(|accumulate| {
        // SAFETY: the units are the caller's to vouch for.
        unsafe {
            add(&mut one, ROWS, PairTile { depth: DEPTH, a: &a, b: &b, c: &mut c, accumulate });
            add(&mut other, ROWS, PairTile { depth: DEPTH, a: &a, b: &b, c: &mut d, accumulate });
        }
        c.iter().zip(&d).all(|(c, d)| c.to_bits() == d.to_bits())
    })
}
