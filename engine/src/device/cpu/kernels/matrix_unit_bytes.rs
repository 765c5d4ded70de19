//! Products of eight-bit integers on a matrix unit: tiles of 16 rows by 16 outputs, 64 inputs deep, or 32.
//!
//! Operands are the groups of [`crate::device::cpu::layout::groups`] as they lie: 64 inputs of 16 rows are a left
//! tile, and a panel's bytes of 64 inputs and 16 outputs a right one, its rows a panel's width apart. Activations in
//! groups of 32 take tiles half as deep. Sums of a group of activations are written out as integers and scaled by
//! vectors, as the kernel of vectors does it: a row has the same bits from either.

use super::ahead::Ahead;
use super::matrix_unit::{ROW_BYTES, Shapes, Unit};
use crate::device::cpu::layout::groups::{
    Block, DEPTH_BLOCK, GroupSizes, GroupSums, PIECE, QUAD, UNIT_STEP, group_bytes,
};
use crate::device::cpu::layout::tiles::{PANEL, ROWS_MAX, TILE, TILE_BYTES, tile_count};

/// A few rows by one panel, over a block of inputs.
pub(crate) struct UnitTile<'a> {
    /// Inputs of groups; those of activations have one of the depths of tiles, or a multiple of the larger.
    pub(crate) sizes: GroupSizes,
    /// Of the panel.
    pub(crate) width: usize,
    /// How many rows there are.
    pub(crate) rows: usize,
    /// A block for each row of as many tiles as the rows take; those behind the rows hold anything.
    pub(crate) a: &'a [Block],
    /// Groups of the panel.
    pub(crate) b: &'a [u8],
    /// Result: `[rows, width]`
    pub(crate) c: &'a mut [f32],
    /// Whether to add to it or to overwrite it.
    pub(crate) accumulate: bool,
    /// What is brought into the second-level cache meanwhile.
    pub(crate) next: &'a [u8],
}

/// What scales sums of integers.
pub(crate) type AddScaled = unsafe fn(GroupSums<'_>);

/// Sums of integers of at most two tiles of rows by two of outputs.
#[repr(C, align(64))]
struct IntegerSums([i32; ROWS_MAX * PANEL]);

/// Bytes from one row of them to the next.
const INTEGERS_ROW: usize = PANEL * size_of::<i32>();

/// Whether tiles can be as deep as activations in groups of so many inputs.
pub(crate) fn has_tiles_of(activations: usize) -> bool {
    activations == PIECE || activations.is_multiple_of(UNIT_STEP)
}

/// What tiles are configured for where activations are in groups of so many inputs.
pub(crate) fn shapes(activations: usize) -> Shapes {
    if activations == PIECE { Shapes::HalfDepth } else { Shapes::Products }
}

/// Adds the products of at most 32 rows with a panel to their result; `add_scaled` scales them.
///
/// # Safety
/// The unit's tiles are configured as [`shapes`] says, it multiplies bytes, and the processor has the instructions of
/// `add_scaled`.
pub(crate) unsafe fn add<U: Unit>(unit: &mut U, tile: UnitTile<'_>, add_scaled: AddScaled) {
    let GroupSizes { weights, activations } = tile.sizes;
    let bytes = group_bytes(weights, tile.width);
    assert!(has_tiles_of(activations) && weights.is_multiple_of(activations));
    assert!(tile.width.is_multiple_of(PANEL));
    assert!(tile.b.len().is_multiple_of(bytes) && tile.b.len() / bytes * weights <= DEPTH_BLOCK);
    assert!(tile.a.len() == tile_count(tile.rows) * TILE && tile.c.len() == tile.rows * tile.width);
    // SAFETY: passed on from this function's own contract.
    unsafe {
        match (tile_count(tile.rows), shapes(activations) == Shapes::HalfDepth) {
            (1, false) => add_tiles::<U, 1, false>(unit, tile, add_scaled),
            (2, false) => add_tiles::<U, 2, false>(unit, tile, add_scaled),
            (1, true) => add_tiles::<U, 1, true>(unit, tile, add_scaled),
            (2, true) => add_tiles::<U, 2, true>(unit, tile, add_scaled),
            _ => unreachable!("a block has one or two tiles of rows"),
        }
    }
}

/// Reads a tile of rows' activations, half as deep or not.
///
/// # Safety
/// The tile is configured so; `from` holds its rows.
unsafe fn load_left<U: Unit, const T: usize, const IS_HALF: bool>(unit: &mut U, from: *const u8) {
    // SAFETY: passed on from this function's own contract.
    unsafe {
        if IS_HALF {
            unit.load_narrow::<T>(from, size_of::<Block>());
        } else {
            unit.load_passing::<T>(from, size_of::<Block>());
        }
    }
}

/// Reads a tile of outputs' weights, likewise, its rows `row_bytes` apart.
///
/// # Safety
/// As above.
unsafe fn load_right<U: Unit, const T: usize, const IS_HALF: bool>(
    unit: &mut U,
    from: *const u8,
    row_bytes: usize,
) {
    // SAFETY: passed on from this function's own contract.
    unsafe {
        if IS_HALF {
            unit.load_short::<T>(from, row_bytes);
        } else {
            unit.load::<T>(from, row_bytes);
        }
    }
}

/// [`add`] for a number of tiles, half as deep or not; the operands were checked.
unsafe fn add_tiles<U: Unit, const TILES: usize, const IS_HALF: bool>(
    unit: &mut U,
    tile: UnitTile<'_>,
    add_scaled: AddScaled,
) {
    let UnitTile { sizes, width, rows, a, b, c, accumulate, next } = tile;
    let inputs = sizes.activations;
    let depth = if IS_HALF { PIECE } else { UNIT_STEP };
    let bytes = group_bytes(sizes.weights, width);
    let steps = b.len() / bytes * (width / PANEL) * (sizes.weights / depth);
    let mut next = Ahead::new(next, steps);
    let b_row = width * QUAD;
    let mut integers = IntegerSums([0; ROWS_MAX * PANEL]);
    for (group, of_group) in b.chunks_exact(bytes).enumerate() {
        let (weights, scales) = of_group.split_at(sizes.weights * width);
        for column in (0..width).step_by(PANEL) {
            for (within, weights) in weights.chunks_exact(inputs * width).enumerate() {
                let piece = group * sizes.pieces() + within;
                let sums = integers.0.as_mut_ptr().cast::<u8>();
                let below = sums.wrapping_add(TILE * INTEGERS_ROW);
                // SAFETY: the caller checked that `a` and `b` have so many tiles, and `integers` has four; the lower
                // ones are used where there are two.
                unsafe {
                    unit.clear::<0>();
                    unit.clear::<1>();
                    if TILES == 2 {
                        unit.clear::<2>();
                        unit.clear::<3>();
                    }
                    for first in (0..inputs).step_by(depth) {
                        let a = a.as_ptr().cast::<u8>().add(piece * inputs + first);
                        let b = weights.as_ptr().add(first * width + column * QUAD);
                        // Each product follows the load that it waited for, so that the next load runs beside it.
                        load_right::<U, 6, IS_HALF>(unit, b, b_row);
                        load_left::<U, 4, IS_HALF>(unit, a);
                        unit.multiply_bytes::<0, 4, 6>();
                        load_right::<U, 7, IS_HALF>(unit, b.add(ROW_BYTES), b_row);
                        unit.multiply_bytes::<1, 4, 7>();
                        if TILES == 2 {
                            load_left::<U, 5, IS_HALF>(unit, a.add(TILE * size_of::<Block>()));
                            unit.multiply_bytes::<2, 5, 6>();
                            unit.multiply_bytes::<3, 5, 7>();
                        }
                        next.step();
                    }
                    unit.store::<0>(sums, INTEGERS_ROW);
                    unit.store::<1>(sums.add(ROW_BYTES), INTEGERS_ROW);
                    if TILES == 2 {
                        unit.store::<2>(below, INTEGERS_ROW);
                        unit.store::<3>(below.add(ROW_BYTES), INTEGERS_ROW);
                    }
                }
                let sums = GroupSums {
                    group: piece,
                    a: &a[..rows],
                    integers: &integers.0,
                    scales: &scales[2 * column..2 * (column + PANEL)],
                    c: &mut c[column..],
                    width,
                    accumulate: accumulate || piece > 0,
                };
                // SAFETY: the instructions are this function's own contract.
                unsafe { add_scaled(sums) };
            }
        }
    }
}

/// Bytes of both signs, none of which is zero: the unit is faster on zeros.
fn bytes(count: usize, seed: usize) -> Vec<u8> {
    (0..count).map(|i| ((i + seed) * 7919 % 255 + 1) as u8).collect()
}

/// `times` times four products, the most that the unit does without reading memory.
///
/// # Safety
/// The unit may be used, and multiplies bytes.
pub(crate) unsafe fn multiply_in_place<U: Unit>(times: usize) {
    let operands = bytes(4 * TILE_BYTES, 1);
    let mut sums = [0i32; TILE * TILE];
    let tile = |number: usize| operands[number * TILE_BYTES..].as_ptr();
    // SAFETY: the unit is the caller's to vouch for; operands and sums are whole tiles.
    unsafe {
        U::configured(Shapes::Products, &mut || {
            let mut unit = U::default();
            unit.clear::<0>();
            unit.clear::<1>();
            unit.clear::<2>();
            unit.clear::<3>();
            unit.load::<4>(tile(0), ROW_BYTES);
            unit.load::<5>(tile(1), ROW_BYTES);
            unit.load::<6>(tile(2), ROW_BYTES);
            unit.load::<7>(tile(3), ROW_BYTES);
            for _ in 0..times {
                unit.multiply_bytes::<0, 4, 6>();
                unit.multiply_bytes::<1, 4, 7>();
                unit.multiply_bytes::<2, 5, 6>();
                unit.multiply_bytes::<3, 5, 7>();
            }
            unit.store::<0>(sums.as_mut_ptr().cast(), ROW_BYTES);
        });
    }
    std::hint::black_box(sums);
}

/// Operations of [`multiply_in_place`], a multiplication and an addition counted as two.
pub(crate) const fn operations_in_place(times: usize) -> usize {
    times * 4 * 2 * TILE * TILE * UNIT_STEP
}

/// Whether two units give products, of one tile of rows and of two and several groups, tiles being half as deep or not,
/// the same bits.
///
/// # Safety
/// Both may be used, and multiply bytes.
#[cfg(any(test, all(target_arch = "x86_64", target_os = "linux")))]
pub(crate) unsafe fn agree<U: Unit, V: Unit>() -> bool {
    // SAFETY: the units are the caller's to vouch for.
    let agree = |rows, sizes| unsafe { sample::<U>(rows, sizes) == sample::<V>(rows, sizes) };
    let sizes = [GroupSizes::equal(2 * UNIT_STEP), GroupSizes::fine(2 * UNIT_STEP)];
    sizes.into_iter().all(|sizes| agree(TILE - 3, sizes) && agree(ROWS_MAX, sizes))
}

/// Bits of a product that is first written, then added to.
#[cfg(any(test, all(target_arch = "x86_64", target_os = "linux")))]
unsafe fn sample<U: Unit>(rows: usize, sizes: GroupSizes) -> Vec<u32> {
    use super::portable::add_scaled;
    use crate::device::cpu::layout::groups::EMPTY;

    let mut a = vec![EMPTY; tile_count(rows) * TILE];
    for (number, block) in a.iter_mut().enumerate() {
        let numbers = bytes(DEPTH_BLOCK, 100 * number);
        block.values.iter_mut().zip(numbers).for_each(|(to, from)| *to = from.cast_signed());
        block.scales.fill(1.0 / 128.0);
        block.unbias.fill(-1000);
    }
    // Two groups, their scales too, which are finite: the upper byte of a half says how large it is.
    let of_group = group_bytes(sizes.weights, PANEL);
    let mut b = bytes(2 * of_group, 7);
    for group in b.chunks_exact_mut(of_group) {
        group[sizes.weights * PANEL..].fill(0x2C);
    }
    let mut c = vec![7.5; rows * PANEL];
    // SAFETY: the unit is the caller's to vouch for, and configured meanwhile.
    unsafe {
        U::configured(shapes(sizes.activations), &mut || {
            for accumulate in [false, true] {
                let (width, c) = (PANEL, &mut c[..]);
                let tile = UnitTile { sizes, width, rows, a: &a, b: &b, c, accumulate, next: &[] };
                add(&mut U::default(), tile, add_scaled);
            }
        });
    }
    c.into_iter().map(f32::to_bits).collect()
}
