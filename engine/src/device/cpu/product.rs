//! The loop of every product: which task computes which rows and outputs, and what becomes of the sums.
//!
//! A kernel adds a row block's products with a piece of a panel; how its operands are packed, and what it
//! rounds, is the kernel's own. Sums of a panel lie close together in a task's own memory until they are
//! whole; then they are finished (bias, activation, residual) into the result while the cache still has them.
//! Pieces follow each other in order and rows do not see each other, so an output's bits do not depend on
//! what else is in the batch.

use std::ops::Range;

use rayon::prelude::*;

use super::finish::{Finish, FinishTarget, finish};
use super::highest::{SumsPlace, TopK, look};
use super::isa::Isa;
use super::layout::blocks::RowBlock;

/// Row blocks that one task takes over a panel: their packed activations stay in cache.
pub(super) const ROW_BLOCKS_PER_TASK: usize = 16;

/// Tasks that a thread finds at least, where there are as many panels: those that end early take from others.
const TASKS_PER_THREAD: usize = 4;

/// A piece of the sums, in a kernel's own steps.
#[derive(Clone, Copy)]
pub(super) struct Steps {
    pub(super) first: usize,
    pub(super) count: usize,
}

/// One way to multiply, with both operands packed for it.
pub(super) trait Kernel: Sync {
    /// Length of the sums, in the kernel's own steps.
    fn depth(&self) -> usize;

    /// Most steps taken at once where a panel meets `blocks` row blocks one after another.
    fn depth_step(&self, blocks: usize) -> usize;

    /// Adds to `sums`, `[rows, width]`, the products of a row block with some steps of `panel`, of which the
    /// first is a multiple of [`Self::depth_step`]; overwrites them where that is 0.
    ///
    /// # Safety
    /// The processor has the kernel's instructions.
    unsafe fn add(&self, block: RowBlock, panel: usize, steps: Steps, sums: &mut [f32]);
}

/// What a product's outputs look like.
#[derive(Clone, Copy)]
pub(super) struct ProductOutputs<'a> {
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
struct SharedResult(*mut f32);
// SAFETY: tasks write disjoint columns or rows (see `multiply`).
unsafe impl Send for SharedResult {}
// SAFETY: as above.
unsafe impl Sync for SharedResult {}

impl SharedResult {
    /// Its element `index`.
    ///
    /// # Safety
    /// There is one.
    unsafe fn at(self, index: usize) -> *mut f32 {
        // SAFETY: passed on from this function's own contract.
        unsafe { self.0.add(index) }
    }
}

/// How a product is cut into tasks: each takes some panels over some row blocks.
struct Tasks<'a> {
    groups: Vec<&'a [RowBlock]>,
    panels: usize,
    /// Of the panels.
    chunks: usize,
}

impl<'a> Tasks<'a> {
    fn new(blocks: &'a [RowBlock], panels: usize) -> Self {
        let chunks = panels.min(TASKS_PER_THREAD * rayon::current_num_threads());
        Self { groups: blocks.chunks(ROW_BLOCKS_PER_TASK).collect(), panels, chunks }
    }

    /// How many there are: those of the same row blocks follow each other, in the order of their panels.
    fn count(&self) -> usize {
        self.chunks * self.groups.len()
    }

    fn get(&self, task: usize) -> (&'a [RowBlock], Range<usize>) {
        let (group, chunk) = (self.groups[task / self.chunks], task % self.chunks);
        (group, chunk * self.panels / self.chunks..(chunk + 1) * self.panels / self.chunks)
    }
}

/// Rows of consecutive blocks.
fn rows_of(blocks: &[RowBlock]) -> usize {
    blocks.iter().map(|block| block.rows).sum()
}

/// Panels of outputs that no activation stands behind.
#[derive(Clone, Copy)]
pub(super) struct Panels {
    /// Outputs.
    pub(super) count: usize,
    /// Outputs of a panel.
    pub(super) width: usize,
}

/// What is looked for among the outputs.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// How many of each row.
    pub(super) counts: &'a [usize],
    /// Outputs from this number on are computed and not kept.
    pub(super) end: usize,
}

/// The highest of each row's sums.
pub(super) fn top_k(
    isa: Isa,
    kernel: &dyn Kernel,
    blocks: &[RowBlock],
    Panels { count, width }: Panels,
    Wanted { counts: wanted, end }: Wanted<'_>,
) -> Vec<TopK> {
    assert!(wanted.len() == rows_of(blocks));
    let tasks = Tasks::new(blocks, count.div_ceil(width));
    let none = |wanted: &[usize]| wanted.iter().map(|wanted| TopK::new(*wanted)).collect::<Vec<_>>();
    let parts = (0..tasks.count()).into_par_iter().map_init(Vec::new, |sums, task| {
        let (group, panels) = tasks.get(task);
        let (first_row, rows) = (group[0].first, rows_of(group));
        let mut found = none(&wanted[first_row..first_row + rows]);
        sums.resize(rows * width, 0.0);
        for panel in panels {
            let first = panel * width;
            let place = SumsPlace { width, columns: width.min(count - first), first, end };
            panel_sums(kernel, group, panel, sums, |block, sums| {
                look(isa, sums, place, &mut found[block.first - first_row..][..block.rows]);
            });
        }
        found
    });
    let mut all = none(wanted);
    for (task, part) in parts.collect::<Vec<_>>().iter().enumerate() {
        let first_row = tasks.get(task).0[0].first;
        all[first_row..].iter_mut().zip(part).for_each(|(row, part)| row.append(part));
    }
    all
}

/// `y[t, o]` = the finished sums of the kernel, for the rows of all `blocks`, which are those of `y` in
/// order.
pub(super) fn multiply(
    isa: Isa,
    kernel: &dyn Kernel,
    blocks: &[RowBlock],
    outputs: ProductOutputs<'_>,
    y: &mut [f32],
) {
    let rows = rows_of(blocks);
    assert!(y.len() == rows * outputs.count);
    assert!(blocks.iter().all(|block| block.first + block.rows <= rows));
    let columns = outputs.finish.columns(outputs.width);
    let panels = outputs.count.div_ceil(columns);
    assert!(outputs.bias.is_none_or(|bias| bias.len() == panels * outputs.width));
    let (tasks, result) = (Tasks::new(blocks, panels), SharedResult(y.as_mut_ptr()));
    (0..tasks.count()).into_par_iter().for_each_init(Vec::new, |sums, task| {
        let (group, panels) = tasks.get(task);
        sums.resize(rows_of(group) * outputs.width, 0.0);
        for panel in panels {
            let of_panel = |RowBlock { first, rows }: RowBlock| FinishTarget {
                // SAFETY: the rows and the panel's first column are inside `y`.
                y: unsafe { result.at(first * outputs.count + panel * columns) },
                rows,
                row: outputs.count,
                columns: columns.min(outputs.count - panel * columns),
            };
            let bias = outputs.bias.map(|bias| &bias[panel * outputs.width..][..outputs.width]);
            // SAFETY: a `Cpu` holds available kernels only; each task owns its panels' columns in its groups'
            // rows of `y`.
            panel_sums(kernel, group, panel, sums, |block, sums| unsafe {
                finish(isa, outputs.finish, sums, bias, &of_panel(block));
            });
        }
    });
}

/// The products of some row blocks with one panel; `done` takes each block's sums when they are whole.
fn panel_sums(
    kernel: &dyn Kernel,
    blocks: &[RowBlock],
    panel: usize,
    sums: &mut [f32],
    mut done: impl FnMut(RowBlock, &[f32]),
) {
    let width = sums.len() / rows_of(blocks);
    let step = kernel.depth_step(blocks.len()).max(1);
    for first in (0..kernel.depth()).step_by(step) {
        let steps = Steps { first, count: step.min(kernel.depth() - first) };
        let mut rest = &mut *sums;
        for block in blocks {
            let (sums, after) = rest.split_at_mut(block.rows * width);
            // SAFETY: a `Cpu` holds available kernels only.
            unsafe { kernel.add(*block, panel, steps, sums) };
            if steps.first + steps.count == kernel.depth() {
                done(*block, sums);
            }
            rest = after;
        }
    }
}
