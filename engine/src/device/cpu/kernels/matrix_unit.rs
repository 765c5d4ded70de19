//! Products of bf16 pairs on a matrix unit: tiles of 16 rows by 16 outputs, 16 pairs deep.
//!
//! The unit's eight tiles are four sums (32 rows by 32 outputs), two of activations and two of weights;
//! operands are those of [`crate::device::cpu::layout::tiles`]. The loop is written against [`Unit`], whose
//! software twin the tests run everywhere. Products of bytes are [`super::matrix_unit_bytes`]'s.

use half::bf16;

use crate::device::cpu::layout::pairs::Pair;
use crate::device::cpu::layout::tiles::{Line, PANEL, TILE, TILE_BYTES};

/// Bytes of a tile's row: 16 pairs, or 16 singles.
pub(crate) const ROW_BYTES: usize = 64;

/// What tiles are configured for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shapes {
    /// Eight tiles of 16 rows of 64 bytes.
    Products,
    /// The same, but for tile 5, whose rows have 32 bytes ([`Unit::load_narrow`]), and tile 7, which has 8 rows
    /// ([`Unit::load_short`]).
    Attention,
    /// The same as for products, but for tiles 4 and 5, whose rows have 32 bytes ([`Unit::load_narrow`]), and tiles 6 and
    /// 7, which have 8 rows ([`Unit::load_short`]): these products are half as deep.
    HalfDepth,
}

/// Eight tiles of at most 16 rows of 64 bytes.
///
/// A value of it is the tiles of the thread that has it, inside [`Unit::configured`].
pub(crate) trait Unit: Default {
    /// Runs `work` while this thread's tiles have these shapes.
    ///
    /// # Safety
    /// The processor has the unit, and this process may use it.
    unsafe fn configured(shapes: Shapes, work: &mut dyn FnMut());

    /// Empties tile `T`.
    ///
    /// # Safety
    /// The tiles are configured.
    unsafe fn clear<const T: usize>(&mut self);

    /// Reads tile `T`, its rows `row_bytes` apart.
    ///
    /// # Safety
    /// The tiles are configured; `from` holds the tile's rows, of 64 bytes each.
    unsafe fn load<const T: usize>(&mut self, from: *const u8, row_bytes: usize);

    /// The same of what is not read again soon: it need not stay in the first-level cache.
    ///
    /// # Safety
    /// As [`Self::load`].
    unsafe fn load_passing<const T: usize>(&mut self, from: *const u8, row_bytes: usize);

    /// Reads tile `T`, of 16 rows of 32 bytes, its rows `row_bytes` apart.
    ///
    /// # Safety
    /// The tile is configured so; `from` holds its rows.
    unsafe fn load_narrow<const T: usize>(&mut self, from: *const u8, row_bytes: usize);

    /// Reads tile `T`, of 8 rows of 64 bytes, its rows `row_bytes` apart.
    ///
    /// # Safety
    /// The tile is configured so; `from` holds its rows.
    unsafe fn load_short<const T: usize>(&mut self, from: *const u8, row_bytes: usize);

    /// Adds to tile `SUMS` the products of the pairs of `A`'s rows with `B`'s columns, in single precision.
    ///
    /// # Safety
    /// The tiles are configured.
    unsafe fn multiply<const SUMS: usize, const A: usize, const B: usize>(&mut self);

    /// Adds to tile `SUMS`, of integers of 32 bits, the products of four signed bytes next to each other in `A`'s rows
    /// with four unsigned ones in `B`'s columns.
    ///
    /// # Safety
    /// The tiles are configured, and the processor has the unit for bytes.
    unsafe fn multiply_bytes<const SUMS: usize, const A: usize, const B: usize>(&mut self);

    /// Writes tile `T`, its rows `row_bytes` apart.
    ///
    /// # Safety
    /// The tiles are configured; `to` holds the tile's rows, of 64 bytes each.
    unsafe fn store<const T: usize>(&mut self, to: *mut u8, row_bytes: usize);
}

/// A row block's share of some steps, and what it meets there.
pub(crate) struct TileOperands<'a> {
    /// Depth of the sums.
    pub(crate) steps: usize,
    /// `[steps, tiles, TILE]`, one tile or two.
    pub(crate) a: &'a [Line],
    /// `[steps, 2, TILE, TILE]`
    pub(crate) b: &'a [Pair],
    /// Result: `[tiles * TILE, PANEL]`
    pub(crate) c: &'a mut [f32],
    /// Whether to add to it or to overwrite it.
    pub(crate) accumulate: bool,
    /// What is brought into the second-level cache meanwhile.
    pub(crate) next: &'a [Pair],
}

/// Adds the products of at most 32 rows with a panel of 32 outputs to their result.
///
/// # Safety
/// The unit's tiles are configured.
pub(crate) unsafe fn add<U: Unit>(unit: &mut U, operands: TileOperands<'_>) {
    let TileOperands { steps, a, b, ref c, .. } = operands;
    let tiles = a.len() / (steps * TILE).max(1);
    assert!(a.len() == steps * tiles * TILE && b.len() == steps * PANEL * TILE);
    assert!(c.len() == tiles * TILE * PANEL);
    // SAFETY: passed on from this function's own contract.
    unsafe {
        match tiles {
            1 => add_tiles::<U, 1>(unit, operands),
            2 => add_tiles::<U, 2>(unit, operands),
            _ => unreachable!("a block has one or two tiles of rows"),
        }
    }
}

/// Bytes from one row of sums to the next.
const C_ROW: usize = PANEL * size_of::<f32>();

/// [`add`] for a number of tiles; the operands were checked.
unsafe fn add_tiles<U: Unit, const TILES: usize>(unit: &mut U, operands: TileOperands<'_>) {
    let TileOperands { steps, a, b, c, accumulate, next } = operands;
    let mut next = next.chunks(next.len().div_ceil(steps.max(1)).next_multiple_of(TILE).max(TILE));
    let mut a = a.as_ptr().cast::<u8>();
    let mut b = b.as_ptr().cast::<u8>();
    let c = c.as_mut_ptr().cast::<u8>();
    let below = c.wrapping_add(TILE * C_ROW);
    // SAFETY: the caller checked that `a`, `b` and `c` have so many tiles; the lower ones are used where there
    // are two.
    unsafe {
        if accumulate {
            unit.load::<0>(c, C_ROW);
            unit.load::<1>(c.add(ROW_BYTES), C_ROW);
            if TILES == 2 {
                unit.load::<2>(below, C_ROW);
                unit.load::<3>(below.add(ROW_BYTES), C_ROW);
            }
        } else {
            unit.clear::<0>();
            unit.clear::<1>();
            if TILES == 2 {
                unit.clear::<2>();
                unit.clear::<3>();
            }
        }
        for _ in 0..steps {
            // Each product follows the load that it waited for, so that the next load runs beside it.
            unit.load::<6>(b, ROW_BYTES);
            unit.load_passing::<4>(a, ROW_BYTES);
            unit.multiply::<0, 4, 6>();
            unit.load::<7>(b.add(TILE_BYTES), ROW_BYTES);
            unit.multiply::<1, 4, 7>();
            if TILES == 2 {
                unit.load_passing::<5>(a.add(TILE_BYTES), ROW_BYTES);
                unit.multiply::<2, 5, 6>();
                unit.multiply::<3, 5, 7>();
            }
            if let Some(next) = next.next() {
                prefetch(next);
            }
            a = a.wrapping_add(TILES * TILE_BYTES);
            b = b.wrapping_add(2 * TILE_BYTES);
        }
        unit.store::<0>(c, C_ROW);
        unit.store::<1>(c.add(ROW_BYTES), C_ROW);
        if TILES == 2 {
            unit.store::<2>(below, C_ROW);
            unit.store::<3>(below.add(ROW_BYTES), C_ROW);
        }
    }
}

/// Asks for memory in the second-level cache.
#[inline(always)]
pub(super) fn prefetch<T>(piece: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of_val(piece)).step_by(ROW_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a hint about an address, whatever is there.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(piece.as_ptr().cast::<i8>().wrapping_add(line)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = piece;
}

/// Numbers of both signs, none of which is zero: the unit is faster on zeros.
fn numbers(count: usize, seed: usize) -> Vec<Pair> {
    let number = |index: usize| bf16::from_f32(((index * 7919 % 1000) as f32 - 499.5) / 331.0);
    (0..count).map(|i| [number(2 * i + seed), number(2 * i + seed + 1)]).collect()
}

/// `times` times four products, the most that the unit does without reading memory.
///
/// # Safety
/// The unit may be used.
pub(crate) unsafe fn multiply_in_place<U: Unit>(times: usize) {
    let operands = numbers(4 * TILE * TILE, 1);
    let mut sums = [0.0f32; TILE * TILE];
    let tile = |number: usize| operands[number * TILE * TILE..].as_ptr().cast::<u8>();
    // SAFETY: the unit is the caller's to vouch for; operands and sums are whole tiles.
    unsafe {
        U::configured(Shapes::Products, &mut || {
            let mut unit = U::default();
            unit.load::<4>(tile(0), ROW_BYTES);
            unit.load::<5>(tile(1), ROW_BYTES);
            unit.load::<6>(tile(2), ROW_BYTES);
            unit.load::<7>(tile(3), ROW_BYTES);
            for _ in 0..times {
                unit.multiply::<0, 4, 6>();
                unit.multiply::<1, 4, 7>();
                unit.multiply::<2, 5, 6>();
                unit.multiply::<3, 5, 7>();
            }
            unit.store::<0>(sums.as_mut_ptr().cast(), ROW_BYTES);
        });
    }
    std::hint::black_box(sums);
}

/// Operations of [`multiply_in_place`], a multiplication and an addition counted as two.
pub(crate) const fn operations_in_place(times: usize) -> usize {
    times * 4 * 2 * TILE * TILE * 2 * TILE
}

/// Whether two units give products, of one tile and of two and several steps, the same bits.
///
/// # Safety
/// Both may be used.
#[cfg(any(test, all(target_arch = "x86_64", target_os = "linux")))]
pub(crate) unsafe fn agree<U: Unit, V: Unit>() -> bool {
    // SAFETY: the units are the caller's to vouch for.
    unsafe { [1, 2].into_iter().all(|tiles| sample::<U>(tiles) == sample::<V>(tiles)) }
}

/// Bits of a product that is first written, then added to.
#[cfg(any(test, all(target_arch = "x86_64", target_os = "linux")))]
unsafe fn sample<U: Unit>(tiles: usize) -> Vec<u32> {
    const STEPS: usize = 3;
    let flat = numbers(STEPS * tiles * TILE * TILE, 1);
    let a: Vec<Line> = flat.as_chunks::<TILE>().0.iter().map(|line| Line(*line)).collect();
    let b = numbers(STEPS * PANEL * TILE, 500);
    let mut c = vec![7.5; tiles * TILE * PANEL];
    // SAFETY: the unit is the caller's to vouch for, and configured meanwhile.
    unsafe {
        U::configured(Shapes::Products, &mut || {
            for accumulate in [false, true] {
                let operands = TileOperands { steps: STEPS, a: &a, b: &b, c: &mut c, accumulate, next: &[] };
                add(&mut U::default(), operands);
            }
        });
    }
    c.into_iter().map(f32::to_bits).collect()
}
