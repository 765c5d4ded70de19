//! Rows of activations in blocks: of rows, for a kernel takes a few at once, and of inputs, for a cache holds
//! so many.

use rayon::prelude::*;

/// Multiple of which every `n` is: one 512-bit or two 256-bit vectors of singles.
pub(crate) const LANES: usize = 16;

/// Consecutive rows that a kernel takes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowBlock {
    pub(crate) first: usize,
    pub(crate) rows: usize,
}

/// Cuts `rows` into blocks of nearly equal size, none above `rows_max`.
pub(crate) fn row_blocks(rows: usize, rows_max: usize) -> impl Iterator<Item = RowBlock> + Clone {
    let blocks = rows.div_ceil(rows_max);
    (0..blocks).map(move |block| {
        let first = block * rows / blocks;
        RowBlock { first, rows: (block + 1) * rows / blocks - first }
    })
}

/// Blocks that a task fills at least: less is not worth waking a thread for.
const BLOCKS_PER_TASK: usize = 64;

/// How rows of activations are cut into blocks of inputs, and what a block of one row becomes.
pub(crate) struct BlockLayout<T> {
    /// Numbers of a row.
    pub(crate) inputs: usize,
    /// Numbers of a block, but for a row's last, which may be shorter.
    pub(crate) block_inputs: usize,
    /// Elements that a block of a row becomes.
    pub(crate) elements: usize,
    /// What memory is filled with as it grows.
    pub(crate) empty: T,
}

impl<T: Copy + Send> BlockLayout<T> {
    /// Lays rows out in `packed`, which grows where it must: `[blocks, rows, elements]`. Block after block of
    /// inputs, and in each the rows one after another: a kernel addresses a row by a constant, and what a row
    /// block meets a piece of a panel with lies together. `fill` gets a row's block and where it belongs.
    pub(crate) fn lay_out<'a>(
        self,
        x: &[f32],
        packed: &'a mut Vec<T>,
        fill: impl Fn(&[f32], &mut [T]) + Sync,
    ) -> &'a [T] {
        let Self { inputs, block_inputs, elements, empty } = self;
        let (rows, blocks) = (x.len() / inputs, inputs.div_ceil(block_inputs));
        let len = rows * blocks * elements;
        packed.resize(len.max(packed.len()), empty);
        let packed = &mut packed[..len];
        // A task takes whole rows, for these are read in order.
        let rows_per_task = BLOCKS_PER_TASK.div_ceil(blocks);
        let mut tasks: Vec<(&[f32], Vec<&mut [T]>)> =
            x.chunks(rows_per_task * inputs).map(|rows| (rows, Vec::with_capacity(blocks))).collect();
        for block in packed.chunks_exact_mut(rows * elements) {
            for ((_, parts), part) in tasks.iter_mut().zip(block.chunks_mut(rows_per_task * elements)) {
                parts.push(part);
            }
        }
        tasks.into_par_iter().for_each(|(rows, mut parts)| {
            for (number, row) in rows.chunks_exact(inputs).enumerate() {
                for (piece, part) in row.chunks(block_inputs).zip(&mut parts) {
                    fill(piece, &mut part[number * elements..][..elements]);
                }
            }
        });
        packed
    }
}
