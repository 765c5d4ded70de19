//! How rows of activations lie for kernels that take them in blocks of inputs.
//!
//! Block after block of inputs, and in each the rows one after another: a kernel addresses a row by a constant, and
//! what a row block meets a piece of a panel with lies together. What a block holds is the format's own.

use rayon::prelude::*;

/// Blocks that a task fills at least: less is not worth waking a thread for.
const BLOCKS_PER_TASK: usize = 64;

/// Lays rows of `inputs` out in `packed`, which grows where it must: `[blocks, rows, elements]`, so many elements to a
/// block of `block_inputs`. `fill` gets a row's piece, shorter in the last block, and where it belongs.
pub(super) fn lay_out<'a, T: Copy + Send>(
    x: &[f32],
    inputs: usize,
    block_inputs: usize,
    (empty, elements): (T, usize),
    packed: &'a mut Vec<T>,
    fill: impl Fn(&[f32], &mut [T]) + Sync,
) -> &'a [T] {
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
