//! The loop of every product: which task computes which rows and outputs, and what becomes of the sums.
//!
//! A kernel adds a row block's products with a piece of a panel; how its operands are packed, and what it
//! rounds, is the kernel's own. Sums of a panel lie close together in a task's own memory until they are whole; then
//! they are finished (bias, activation, residual) into the result while the cache still has them. Pieces follow each other
//! in order and rows do not see each other, so an output's bits do not depend on what else is in the batch.

use rayon::prelude::*;

use super::Isa;
use super::finish::{Finish, Target, finish};

/// Row blocks that one task takes over a panel: their packed activations stay in cache.
pub(super) const ROW_BLOCKS_PER_TASK: usize = 16;

/// Tasks that a thread finds at least, where there are as many panels: those that end early take from others.
const TASKS_PER_THREAD: usize = 4;

/// Consecutive rows: the first, and how many.
pub(super) type RowBlock = (usize, usize);

/// One way to multiply, with both operands packed for it.
pub(super) trait Kernel: Sync {
    /// Length of the sums, in the kernel's own steps.
    fn depth(&self) -> usize;

    /// Most steps taken at once where a panel meets `blocks` row blocks one after another.
    fn depth_step(&self, blocks: usize) -> usize;

    /// Adds to `sums`, `[rows, width]`, the products of a row block with steps `depth.0 .. depth.0 + depth.1` of
    /// `panel`; overwrites them where `depth.0` is 0. It is a multiple of [`Self::depth_step`].
    ///
    /// # Safety
    /// The processor has the kernel's instructions.
    unsafe fn add(&self, block: RowBlock, panel: usize, depth: (usize, usize), sums: &mut [f32]);
}

/// What a product's outputs look like.
#[derive(Clone, Copy)]
pub(super) struct Outputs<'a> {
    /// How many.
    pub(super) count: usize,
    /// Of a panel: its sums per row.
    pub(super) width: usize,
    /// What becomes of the sums.
    pub(super) finish: Finish,
    /// Added to the sums: one per lane of every panel.
    pub(super) bias: Option<&'a [f32]>,
}

/// The result of a product while several threads fill different columns of it.
#[derive(Clone, Copy)]
struct Shared(*mut f32);
// SAFETY: tasks write disjoint columns or rows (see `multiply`).
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Its element `index`.
    ///
    /// # Safety
    /// There is one.
    unsafe fn at(self, index: usize) -> *mut f32 {
        // SAFETY: passed on from this function's own contract.
        unsafe { self.0.add(index) }
    }
}

/// `y[t, o]` = the finished sums of the kernel, for the rows of all `blocks`, which are those of `y` in order.
pub(super) fn multiply<K: Kernel>(
    isa: Isa,
    kernel: &K,
    blocks: &[RowBlock],
    outputs: Outputs<'_>,
    y: &mut [f32],
) {
    let rows: usize = blocks.iter().map(|(_, rows)| rows).sum();
    assert!(y.len() == rows * outputs.count);
    assert!(blocks.iter().all(|(first, count)| first + count <= rows));
    let columns = outputs.finish.columns(outputs.width);
    let panels = outputs.count.div_ceil(columns);
    assert!(outputs.bias.is_none_or(|bias| bias.len() == panels * outputs.width));
    let chunks = panels.min(TASKS_PER_THREAD * rayon::current_num_threads());
    let groups: Vec<&[RowBlock]> = blocks.chunks(ROW_BLOCKS_PER_TASK).collect();
    let result = Shared(y.as_mut_ptr());
    (0..chunks * groups.len()).into_par_iter().for_each_init(Vec::new, |sums, task| {
        let (group, chunk) = (groups[task / chunks], task % chunks);
        let rows: usize = group.iter().map(|(_, rows)| rows).sum();
        sums.resize(rows * outputs.width, 0.0);
        for panel in chunk * panels / chunks..(chunk + 1) * panels / chunks {
            let of_panel = |(first, rows): RowBlock| Target {
                // SAFETY: the rows and the panel's first column are inside `y`.
                y: unsafe { result.at(first * outputs.count + panel * columns) },
                rows,
                row: outputs.count,
                columns: columns.min(outputs.count - panel * columns),
            };
            let bias = outputs.bias.map(|bias| &bias[panel * outputs.width..][..outputs.width]);
            // SAFETY: a `Cpu` holds available kernels only; each task owns its panels' columns in its groups' rows of
            // `y`.
            panel_sums(kernel, group, panel, sums, |block, sums| unsafe {
                finish(isa, outputs.finish, sums, bias, &of_panel(block));
            });
        }
    });
}

/// The products of some row blocks with one panel; `done` takes each block's sums when they are whole.
fn panel_sums<K: Kernel>(
    kernel: &K,
    blocks: &[RowBlock],
    panel: usize,
    sums: &mut [f32],
    done: impl Fn(RowBlock, &[f32]),
) {
    let rows: usize = blocks.iter().map(|(_, rows)| rows).sum();
    let width = sums.len() / rows;
    let step = kernel.depth_step(blocks.len()).max(1);
    for depth_first in (0..kernel.depth()).step_by(step) {
        let depth = (depth_first, step.min(kernel.depth() - depth_first));
        let mut rest = &mut *sums;
        for block in blocks {
            let (sums, after) = rest.split_at_mut(block.1 * width);
            // SAFETY: a `Cpu` holds available kernels only.
            unsafe { kernel.add(*block, panel, depth, sums) };
            if depth.0 + depth.1 == kernel.depth() {
                done(*block, sums);
            }
            rest = after;
        }
    }
}
