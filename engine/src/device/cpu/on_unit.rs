//! The products of attention on a matrix unit: 16 rows of queries with blocks of keys, or of weights with
//! blocks of values, as both lie in the KV pool.
//!
//! A block's keys are `[pairs of the head, tokens]` and its values `[pairs of tokens, head]`, which are the
//! right operand's tiles as they are: 16 pairs of a head by 16 tokens, and the 8 pairs of 16 tokens by 16 of
//! the head. Sums of a row run in the order of the blocks, whatever rows stand beside it.

use std::marker::PhantomData;

use super::isa::Isa;
use super::kernels::matrix_unit::{ROW_BYTES, Shapes, Unit};
use super::layout::aligned::Aligned;
use super::layout::blocks::LANES;
use super::layout::packed::Bits;
use super::layout::pairs::Pair;
use super::layout::strip::Strip;
use super::layout::tiles::TILE;
use super::stored::Stored;
use super::strip::{KeyBlocks, Product, Rounded, Strided, StridedMut, ValueBlocks};

/// Pairs of bf16 on unit `U`.
pub(crate) struct OnUnit<U>(PhantomData<fn() -> U>);

/// Tiles of sums that are under way at once.
const SUMS: usize = 4;

/// Pairs of tokens of a tile of values: those of 16 tokens.
const VALUE_PAIRS: usize = TILE / 2;

/// Whether heads of `dim` numbers in blocks of so many tokens are whole tiles.
pub(crate) fn fits(dim: usize, block_tokens: usize) -> bool {
    dim.is_multiple_of(2 * TILE) && block_tokens.is_multiple_of(TILE)
}

impl<U: Unit + 'static> Product for OnUnit<U> {
    type Left = Pair;
    type Right = Pair;

    fn narrow(isa: Isa, row: &[f32], to: &mut [Pair]) {
        Rounded::narrow(isa, row, to);
    }

    fn soften(isa: Isa, scores: &[f32], max_before: f32, weights: &mut [Pair]) -> (f32, f32) {
        Rounded::soften(isa, scores, max_before, weights)
    }

    unsafe fn strip(isa: Isa, rows: usize, columns: usize, strip: &Strip<'_, Pair, Pair>) {
        // SAFETY: passed on from this function's own contract.
        unsafe { Rounded::strip(isa, rows, columns, strip) };
    }

    fn rows_max(_isa: Isa) -> usize {
        TILE
    }

    fn on_thread(work: &mut dyn FnMut()) {
        // SAFETY: a device has only kernels that its processor has.
        unsafe { U::configured(Shapes::Attention, work) };
    }

    fn scores(
        _isa: Isa,
        rows: usize,
        Strided { elements: queries, stride: depth }: Strided<'_, Pair>,
        KeyBlocks { blocks, lanes }: KeyBlocks<'_, Pair>,
        StridedMut { elements: scores, stride: scores_row }: StridedMut<'_, f32>,
    ) {
        let columns = blocks.len() * lanes / LANES;
        assert!(rows <= TILE && depth.is_multiple_of(TILE) && lanes.is_multiple_of(TILE));
        assert!(queries.len() >= TILE * depth && blocks.iter().all(|block| block.len() == depth * lanes));
        assert!(scores_row >= columns * LANES && scores.len() >= TILE * scores_row);
        let mut unit = U::default();
        for first in (0..columns).step_by(SUMS) {
            let count = SUMS.min(columns - first);
            let keys = |column: usize| {
                let lane = (first + column) * LANES;
                blocks[lane / lanes][lane % lanes..].as_ptr()
            };
            // SAFETY: the asserts bound all tiles of the operands; `on_thread` has configured the unit.
            unsafe {
                clear(&mut unit, count);
                for pair in (0..depth).step_by(TILE) {
                    unit.load::<4>(queries.as_ptr().add(pair).cast(), depth * size_of::<Pair>());
                    let row_bytes = lanes * size_of::<Pair>();
                    for column in 0..count {
                        unit.load::<6>(keys(column).add(pair * lanes).cast(), row_bytes);
                        match column {
                            0 => unit.multiply::<0, 4, 6>(),
                            1 => unit.multiply::<1, 4, 6>(),
                            2 => unit.multiply::<2, 4, 6>(),
                            _ => unit.multiply::<3, 4, 6>(),
                        }
                    }
                }
                let to = scores.as_mut_ptr().add(first * LANES);
                store(&mut unit, count, to, scores_row);
            }
        }
    }

    fn add_values(
        _isa: Isa,
        rows: usize,
        Strided { elements: weights, stride: weights_row }: Strided<'_, Pair>,
        values: ValueBlocks<'_, Pair>,
        ends: &mut Aligned<Pair>,
        StridedMut { elements: out, stride: out_row }: StridedMut<'_, f32>,
    ) {
        let ValueBlocks { blocks, width, seen, .. } = values;
        let pairs = blocks.first().map_or(0, |block| block.len() / width);
        assert!(rows <= TILE && width.is_multiple_of(LANES) && pairs.is_multiple_of(VALUE_PAIRS));
        assert!(blocks.iter().all(|block| block.len() == pairs * width) && seen.len() == blocks.len());
        assert!(weights_row >= blocks.len() * pairs && weights.len() >= TILE * weights_row);
        assert!(out_row >= width && out.len() >= (rows - 1) * out_row + width);
        let cleaned = clean(&values, ends);
        let (sums, cleaned) = ends.split_at_mut(cleaned);
        // Sums are read and written by whole tiles: where rows are missing, in memory that has them.
        let sums = as_singles(sums);
        let is_in_place = rows == TILE && out.len() >= TILE * out_row;
        let (from, row) = if is_in_place {
            (out.as_mut_ptr(), out_row)
        } else {
            for (sums, out) in sums.chunks_exact_mut(width).zip(out.chunks(out_row)) {
                sums.copy_from_slice(&out[..width]);
            }
            (sums.as_mut_ptr(), width)
        };
        let mut unit = U::default();
        for first in (0..width).step_by(SUMS * LANES) {
            let count = SUMS.min((width - first) / LANES);
            // SAFETY: the asserts bound all tiles of the operands; `on_thread` has configured the unit.
            unsafe {
                load(&mut unit, count, from.add(first), row);
                let mut spare = 0;
                for (number, (block, seen)) in blocks.iter().zip(seen).enumerate() {
                    if seen.0 == seen.1 {
                        continue;
                    }
                    let is_whole = *seen == (0, 2 * pairs);
                    let block = if is_whole { block } else { &cleaned[spare * pairs * width..] };
                    spare += usize::from(!is_whole);
                    for pair in (0..pairs).step_by(VALUE_PAIRS) {
                        let weights = weights.as_ptr().add(number * pairs + pair);
                        unit.load_narrow::<5>(weights.cast(), weights_row * size_of::<Pair>());
                        for column in 0..count {
                            let values = block.as_ptr().add(pair * width + first + column * LANES);
                            unit.load_short::<7>(values.cast(), width * size_of::<Pair>());
                            match column {
                                0 => unit.multiply::<0, 5, 7>(),
                                1 => unit.multiply::<1, 5, 7>(),
                                2 => unit.multiply::<2, 5, 7>(),
                                _ => unit.multiply::<3, 5, 7>(),
                            }
                        }
                    }
                }
                store(&mut unit, count, from.add(first), row);
            }
        }
        if !is_in_place {
            for (sums, out) in sums.chunks_exact(width).zip(out.chunks_mut(out_row)) {
                out[..width].copy_from_slice(&sums[..width]);
            }
        }
    }
}

/// Copies blocks of which a part has only some lanes, all others zero, behind the room for a tile's rows of
/// sums; gives back how much of `ends` that room is.
fn clean(ValueBlocks { blocks, width, seen, .. }: &ValueBlocks<'_, Pair>, ends: &mut Aligned<Pair>) -> usize {
    let room = TILE * width;
    let len = blocks.first().map_or(0, |block| block.len());
    let is_cut = |seen: &(usize, usize)| seen.0 < seen.1 && *seen != (0, 2 * len / width);
    ends.resize(room + seen.iter().filter(|seen| is_cut(seen)).count() * len);
    let cut = blocks.iter().zip(*seen).filter(|(_, seen)| is_cut(seen));
    for (to, (block, (first, last))) in ends[room..].chunks_exact_mut(len.max(1)).zip(cut) {
        let rows = to.chunks_exact_mut(*width).zip(block.chunks_exact(*width));
        for (pair, (to, from)) in rows.enumerate() {
            match [2 * pair, 2 * pair + 1].map(|lane| (*first..*last).contains(&lane)) {
                [true, true] => to.copy_from_slice(from),
                [true, false] => to.iter_mut().zip(from).for_each(|(to, from)| *to = from.only(0)),
                [false, true] => to.iter_mut().zip(from).for_each(|(to, from)| *to = from.only(1)),
                [false, false] => to.fill(Pair::ZERO),
            }
        }
    }
    room
}

/// Pairs as the singles that fill as many bytes.
fn as_singles(pairs: &mut [Pair]) -> &mut [f32] {
    const fn is_bits<T: Bits>() {}
    const { is_bits::<f32>() };
    const { assert!(size_of::<Pair>() == size_of::<f32>()) };
    assert!(pairs.as_ptr().cast::<f32>().is_aligned());
    // SAFETY: they are as long, aligned, and of any bits.
    unsafe { std::slice::from_raw_parts_mut(pairs.as_mut_ptr().cast(), pairs.len()) }
}

/// Empties the first sums.
///
/// # Safety
/// The unit is configured.
unsafe fn clear<U: Unit>(unit: &mut U, count: usize) {
    // SAFETY: passed on from this function's own contract.
    unsafe {
        unit.clear::<0>();
        if count > 1 {
            unit.clear::<1>();
        }
        if count > 2 {
            unit.clear::<2>();
        }
        if count > 3 {
            unit.clear::<3>();
        }
    }
}

/// Reads the first sums, next to each other, from rows of `row` singles.
///
/// # Safety
/// As [`Unit::load`].
unsafe fn load<U: Unit>(unit: &mut U, count: usize, from: *const f32, row: usize) {
    let (from, row) = (from.cast::<u8>(), row * size_of::<f32>());
    // SAFETY: passed on from this function's own contract.
    unsafe {
        unit.load::<0>(from, row);
        if count > 1 {
            unit.load::<1>(from.add(ROW_BYTES), row);
        }
        if count > 2 {
            unit.load::<2>(from.add(2 * ROW_BYTES), row);
        }
        if count > 3 {
            unit.load::<3>(from.add(3 * ROW_BYTES), row);
        }
    }
}

/// Writes them.
///
/// # Safety
/// As [`Unit::store`].
unsafe fn store<U: Unit>(unit: &mut U, count: usize, to: *mut f32, row: usize) {
    let (to, row) = (to.cast::<u8>(), row * size_of::<f32>());
    // SAFETY: passed on from this function's own contract.
    unsafe {
        unit.store::<0>(to, row);
        if count > 1 {
            unit.store::<1>(to.add(ROW_BYTES), row);
        }
        if count > 2 {
            unit.store::<2>(to.add(2 * ROW_BYTES), row);
        }
        if count > 3 {
            unit.store::<3>(to.add(3 * ROW_BYTES), row);
        }
    }
}

#[cfg(test)]
mod tests;
