//! Numbers in bf16 as a matrix unit reads them: tiles of [`TILE`] rows of [`TILE`] pairs, each 1 KiB in one
//! piece and on cache lines of its own.
//!
//! A step of a sum is [`TILE`] pairs deep. A panel of weights is `[steps, 2, TILE pairs, TILE outputs]`: what
//! a step reads lies together, and the next step behind it. Rows of activations lie in blocks of [`ROWS_MAX`],
//! each `[steps, tiles, TILE rows, TILE pairs]`; a block of at most [`TILE`] rows has one tile a step. Rows
//! that a block lacks hold anything: a row's sums do not depend on them, and nobody reads theirs.

use half::bf16;
use rayon::prelude::*;

use super::blocks::RowBlock;
use super::packed::Packed;
use super::pairs::{Pair, ZERO, pack_panels_at, pair_count};

/// Rows of a tile, and pairs, or sums, of each.
pub(crate) const TILE: usize = 16;

/// Outputs of a panel: two tiles.
pub(crate) const PANEL: usize = 2 * TILE;

/// Most rows of a block: two tiles.
pub(crate) const ROWS_MAX: usize = 2 * TILE;

/// Bytes of a tile.
pub(crate) const TILE_BYTES: usize = TILE * size_of::<Line>();

/// A row of a tile, on a cache line of its own.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct Line(pub(crate) [Pair; TILE]);

/// Numbers that a task rounds at least: less is not worth waking a thread for.
const NUMBERS_PER_TASK: usize = 16 << 10;

/// Steps of a sum over `inputs`.
pub(crate) fn step_count(inputs: usize) -> usize {
    pair_count(inputs) / TILE
}

/// Tiles of a block of `rows`.
pub(crate) fn tile_count(rows: usize) -> usize {
    rows.div_ceil(TILE)
}

/// Blocks of [`ROWS_MAX`] rows, and one of what is left.
pub(crate) fn full_blocks(rows: usize) -> impl Iterator<Item = RowBlock> {
    (0..rows).step_by(ROWS_MAX).map(move |first| RowBlock { first, rows: ROWS_MAX.min(rows - first) })
}

/// Where a panel keeps a pair of an output.
fn place(pair: usize, lane: usize) -> usize {
    ((pair / TILE * 2 + lane / TILE) * TILE + pair % TILE) * TILE + lane % TILE
}

/// The place of a block's `column` in rows for weights in tiles, of `steps`: its first row's, and
/// numbers from one row to the next.
pub(crate) fn place_in_tiles(block: RowBlock, column: usize, steps: usize) -> (usize, usize) {
    let step = column / (2 * TILE);
    let line = block.first * steps + step * tile_count(block.rows) * TILE;
    (line * 2 * TILE + column % (2 * TILE), 2 * TILE)
}

/// Rows `0..rows` of weights, which `read` puts into its buffer, as panels of [`PANEL`] outputs.
pub(crate) fn pack_panels(
    rows: usize,
    inputs: usize,
    read: impl Fn(usize, &mut [f32]) + Sync,
) -> Packed<Pair> {
    pack_panels_at(rows, inputs, PANEL, place, read)
}

/// An output's weights, widened, out of its lane of a panel.
pub(crate) fn unpack(panel: &[Pair], lane: usize, row: &mut [f32]) {
    for (number, two) in row.chunks_mut(2).enumerate() {
        let pair = panel[place(number, lane)];
        two.iter_mut().zip(pair).for_each(|(value, weight)| *value = weight.to_f32());
    }
}

/// Some steps of a block of rows that are yet to be rounded.
struct RoundingTask<'a> {
    block: RowBlock,
    first_step: usize,
    lines: &'a mut [Line],
}

/// Lays rows of `inputs` out in `packed`, which grows where it must: block after block of [`full_blocks`].
/// `round` gets what a row has in some steps, and the lines from the first of these on, of which every
/// so-manieth is the row's.
pub(crate) fn lay_out<'a>(
    x: &[f32],
    inputs: usize,
    packed: &'a mut Vec<Line>,
    round: impl Fn(&[f32], &mut [Line], usize) + Sync,
) -> &'a [Line] {
    let (rows, steps) = (x.len() / inputs, step_count(inputs));
    let len: usize = full_blocks(rows).map(|block| tile_count(block.rows) * TILE * steps).sum();
    packed.resize(len.max(packed.len()), Line([ZERO; TILE]));
    let mut rest = &mut packed[..len];
    let mut pieces = Vec::new();
    for block in full_blocks(rows) {
        let of_step = tile_count(block.rows) * TILE;
        let (lines, after) = rest.split_at_mut(of_step * steps);
        let per_task = NUMBERS_PER_TASK.div_ceil(2 * TILE * block.rows);
        pieces.extend(lines.chunks_mut(of_step * per_task).enumerate().map(|(number, lines)| RoundingTask {
            block,
            first_step: number * per_task,
            lines,
        }));
        rest = after;
    }
    pieces.into_par_iter().for_each(|RoundingTask { block, first_step, lines }| {
        let of_step = tile_count(block.rows) * TILE;
        let from = first_step * 2 * TILE;
        let to = (from + lines.len() / of_step * 2 * TILE).min(inputs);
        for row in 0..block.rows {
            let x = &x[(block.first + row) * inputs..][from..to];
            round(x, &mut lines[row..], of_step);
        }
    });
    &packed[..len]
}

/// [`lay_out`]'s `round` in plain Rust.
pub(crate) fn round_portable(from: &[f32], to: &mut [Line], of_step: usize) {
    for (numbers, line) in from.chunks(2 * TILE).zip(to.iter_mut().step_by(of_step)) {
        let (rounded, padding) = line.0.as_flattened_mut().split_at_mut(numbers.len());
        rounded.iter_mut().zip(numbers).for_each(|(to, from)| *to = bf16::from_f32(*from));
        padding.fill(bf16::ZERO);
    }
}
