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
    let rows = x.len() / inputs;
    let len = rows * inputs.div_ceil(block_inputs) * elements;
    packed.resize(len.max(packed.len()), empty);
    let packed = &mut packed[..len];
    let blocks = packed.par_chunks_exact_mut(elements).enumerate().with_min_len(BLOCKS_PER_TASK);
    blocks.for_each(|(number, block)| {
        let (first, row) = (number / rows * block_inputs, number % rows);
        let from = &x[row * inputs..(row + 1) * inputs][first..];
        fill(&from[..from.len().min(block_inputs)], block);
    });
    packed
}
