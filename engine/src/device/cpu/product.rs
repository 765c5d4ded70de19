//! The loop of every product: which task computes which rows and outputs, biases and the last columns.
//!
//! A kernel adds a row block's products with a piece of a panel; how its operands are packed, and what it
//! rounds, is the kernel's own. Pieces follow each other in order and rows do not see each other, so an
//! output's bits do not depend on what else is in the batch.

use rayon::prelude::*;

/// Row blocks that one task takes over a panel: their packed activations stay in cache.
pub(super) const ROW_BLOCKS_PER_TASK: usize = 16;

/// Columns of the widest panel.
const WIDTH_MAX: usize = 32;

/// Rows of the tallest row block.
const ROWS_MAX: usize = 32;

/// Consecutive rows: the first, and how many.
pub(super) type RowBlock = (usize, usize);

/// One way to multiply, with both operands packed for it.
pub(super) trait Kernel: Sync {
    /// Length of the sums, in the kernel's own steps.
    fn depth(&self) -> usize;

    /// Most steps taken at once where a panel meets `blocks` row blocks one after another.
    fn depth_step(&self, blocks: usize) -> usize;

    /// Adds to `c`, `[rows, width]` at `c_row` apart, the products of a row block with steps
    /// `depth.0 .. depth.0 + depth.1` of `panel`; `depth.0` is a multiple of [`Self::depth_step`].
    ///
    /// # Safety
    /// `c` holds that many rows and columns, and the processor has the kernel's instructions.
    unsafe fn add(&self, block: RowBlock, panel: usize, depth: (usize, usize), c: *mut f32, c_row: usize);
}

/// What a product's outputs look like.
#[derive(Clone, Copy)]
pub(super) struct Outputs<'a> {
    /// How many.
    pub(super) count: usize,
    /// Of a panel.
    pub(super) width: usize,
    /// What each starts with.
    pub(super) bias: Option<&'a [f32]>,
}

/// The result of a product while several threads fill different columns of it.
#[derive(Clone, Copy)]
struct Target(*mut f32);
// SAFETY: tasks write disjoint columns or rows (see `multiply`).
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

/// `y[t, o]` = bias plus the kernel's sums, for the rows of all `blocks`, which are those of `y`.
pub(super) fn multiply<K: Kernel>(kernel: &K, blocks: &[RowBlock], outputs: Outputs<'_>, y: &mut [f32]) {
    let rows: usize = blocks.iter().map(|(_, rows)| rows).sum();
    assert!(y.len() == rows * outputs.count && outputs.width <= WIDTH_MAX);
    assert!(blocks.iter().all(|(first, count)| *count <= ROWS_MAX && first + count <= rows));
    let panels = outputs.count.div_ceil(outputs.width);
    let panels_per_task = panels.div_ceil(4 * rayon::current_num_threads()).max(1);
    let chunks = panels.div_ceil(panels_per_task);
    let groups: Vec<&[RowBlock]> = blocks.chunks(ROW_BLOCKS_PER_TASK).collect();
    let target = Target(y.as_mut_ptr());
    (0..chunks * groups.len()).into_par_iter().for_each(|task| {
        let (group, chunk) = (groups[task / chunks], task % chunks);
        for panel in chunk * panels_per_task..panels.min((chunk + 1) * panels_per_task) {
            // SAFETY: each task owns its panels' columns in its groups' rows of `y`, all inside `y`.
            unsafe { panel_product(kernel, group, panel, outputs, target) };
        }
    });
}

/// The product of some row blocks with one panel, bias included.
///
/// # Safety
/// `target` holds all rows and `outputs.count` columns, and no other thread touches this panel's columns of them.
unsafe fn panel_product<K: Kernel>(
    kernel: &K,
    blocks: &[RowBlock],
    panel: usize,
    outputs: Outputs<'_>,
    target: Target,
) {
    let Outputs { count, width, bias } = outputs;
    let columns = width.min(count - panel * width);
    let mut start = [0.0f32; WIDTH_MAX];
    if let Some(bias) = bias {
        start[..columns].copy_from_slice(&bias[panel * width..panel * width + columns]);
    }
    let step = kernel.depth_step(blocks.len()).max(1);
    for depth_first in (0..kernel.depth()).step_by(step) {
        let depth = (depth_first, step.min(kernel.depth() - depth_first));
        for (first, rows) in blocks {
            // SAFETY: rows `first..first + rows` and these columns are inside `target` and this task's own; a
            // panel with fewer columns than the kernel writes goes through a block of its own.
            unsafe {
                let c = target.0.add(first * count + panel * width);
                if depth_first == 0 {
                    for m in 0..*rows {
                        std::ptr::copy_nonoverlapping(start.as_ptr(), c.add(m * count), columns);
                    }
                }
                if columns == width {
                    kernel.add((*first, *rows), panel, depth, c, count);
                } else {
                    let mut edge = [0.0f32; ROWS_MAX * WIDTH_MAX];
                    copy_rows(c, count, edge.as_mut_ptr(), width, (*rows, columns));
                    kernel.add((*first, *rows), panel, depth, edge.as_mut_ptr(), width);
                    copy_rows(edge.as_ptr(), width, c, count, (*rows, columns));
                }
            }
        }
    }
}

/// Copies `rows` of `columns`, each so many elements apart.
///
/// # Safety
/// Both hold them, and do not overlap.
unsafe fn copy_rows(
    from: *const f32,
    from_row: usize,
    to: *mut f32,
    to_row: usize,
    (rows, columns): (usize, usize),
) {
    for m in 0..rows {
        // SAFETY: passed on from this function's own contract.
        unsafe { std::ptr::copy_nonoverlapping(from.add(m * from_row), to.add(m * to_row), columns) };
    }
}
