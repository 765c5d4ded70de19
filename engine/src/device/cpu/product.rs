//! The loop of every product: which task computes which rows and outputs, and what becomes of the sums.
//!
//! A kernel adds a row block's products with a piece of a panel; how its operands are packed, and what it
//! rounds, is the kernel's own. Sums of a panel lie close together in a thread's own memory until they are
//! whole; then they are finished (bias, activation, residual) into the result while the cache still has them.
//! Pieces follow each other in order and rows do not see each other, so an output's bits do not depend on
//! what else is in the batch.

use std::cell::RefCell;
use std::ops::Range;

use half::bf16;
use rayon::prelude::*;

use super::finish::{Finish, FinishPlace, FinishTarget, finish};
use super::highest::{SumsPlace, TopK, look};
use super::isa::Isa;
use super::layout::aligned::Aligned;
use super::layout::blocks::RowBlock;
use super::layout::tiles::{full_blocks, place_in_tiles, step_count};
use super::operand::ProductResult;

/// Row blocks that one task takes over a panel: their packed activations stay in cache.
pub(super) const ROW_BLOCKS_PER_TASK: usize = 16;

/// Tasks that a thread finds at least, where there are as many panels: those that end early take from others.
const TASKS_PER_THREAD: usize = 4;

/// The same where a task reads all activations for its panels.
const DEEP_TASKS_PER_THREAD: usize = 1;

/// Rows that a task takes at least where there are so many: each reads its panels, and fewer rows are not worth that.
const ROWS_PER_TASK_MIN: usize = 64;

/// Most sums of several panels that a task has under way: a megabyte, half of a second-level cache.
const SUMS_MAX: usize = 1 << 18;

/// A piece of the sums, in a kernel's own steps.
#[derive(Clone, Copy)]
pub(super) struct Steps {
    pub(super) first: usize,
    pub(super) count: usize,
}

/// The piece of a panel that a kernel is at.
#[derive(Clone, Copy)]
pub(super) struct PanelPiece<'a> {
    pub(super) panel: usize,
    pub(super) steps: Steps,
    /// What [`Kernel::unpack`] made of it.
    pub(super) unpacked: Option<&'a [f32]>,
}

/// A part of a panel's piece that a kernel will meet soon: one of so many, each row block's while the piece
/// before it is at work.
#[derive(Clone, Copy)]
pub(super) struct Next {
    pub(super) panel: usize,
    pub(super) steps: Steps,
    pub(super) part: usize,
    pub(super) parts: usize,
}

impl Next {
    /// Its part of the piece that it names.
    pub(super) fn part_of<T>(self, piece: &[T]) -> &[T] {
        &piece[self.part * piece.len() / self.parts..(self.part + 1) * piece.len() / self.parts]
    }
}

/// In which order pieces of a task's sums are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// All of a panel's, then the next panel's: the sums of one panel are under way.
    PanelsOutermost,
    /// The first of each of some panels, then the second of each of these: those of as many panels are as
    /// [`SUMS_MAX`] allows.
    DepthOutermost,
}

/// One way to multiply, with both operands packed for it.
pub(super) trait Kernel: Sync {
    /// Length of the sums, in the kernel's own steps.
    fn depth(&self) -> usize;

    /// Most steps taken at once where a panel meets `blocks` row blocks one after another.
    fn depth_step(&self, blocks: usize) -> usize;

    /// How it goes through the pieces of so many row blocks.
    fn order(&self, _blocks: usize) -> Order {
        Order::PanelsOutermost
    }

    /// Rows of sums that it needs for a block of `rows`; those beyond them are its own.
    fn sums_rows(&self, rows: usize) -> usize {
        rows
    }

    /// Runs `work`, all of whose [`Self::add`] are this kernel's, on this thread, made ready for it.
    fn on_thread(&self, work: &mut dyn FnMut()) {
        work();
    }

    /// Unpacks a piece of a panel, which several row blocks will meet, into a thread's own memory; `None` where
    /// [`Self::add`] wants it as it lies.
    ///
    /// # Safety
    /// As there.
    unsafe fn unpack<'a>(
        &'a self,
        _panel: usize,
        _steps: Steps,
        _memory: &'a mut Aligned<f32>,
    ) -> Option<&'a [f32]> {
        None
    }

    /// Adds to `sums`, `[rows, width]`, the products of a row block with a `piece`, of which the first step is a multiple of
    /// [`Self::depth_step`]; overwrites them where that is 0. What comes `next` it may bring near meanwhile.
    ///
    /// # Safety
    /// The processor has the kernel's instructions, and this is inside [`Self::on_thread`].
    unsafe fn add(&self, block: RowBlock, piece: PanelPiece<'_>, sums: &mut [f32], next: Option<Next>);
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
enum SharedResult {
    Singles(*mut f32),
    /// Rounded, in rows of so many steps.
    Tiles(*mut bf16, usize),
}
// SAFETY: tasks write disjoint columns or rows (see `multiply`).
unsafe impl Send for SharedResult {}
// SAFETY: as above.
unsafe impl Sync for SharedResult {}

impl SharedResult {
    fn new(y: ProductResult<'_>, rows: usize, outputs: usize) -> Self {
        match y {
            ProductResult::Singles(y) => {
                assert!(y.len() == rows * outputs);
                Self::Singles(y.as_mut_ptr())
            }
            ProductResult::Tiles(lines) => {
                assert!(lines.len() >= rows * step_count(outputs));
                Self::Tiles(lines.as_mut_ptr().cast(), step_count(outputs))
            }
        }
    }

    /// Where a block's sums from `column` on go, of so many `outputs`, and elements from row to row.
    ///
    /// # Safety
    /// It has them.
    unsafe fn at(self, block: RowBlock, column: usize, outputs: usize) -> (FinishPlace, usize) {
        // SAFETY: passed on from this function's own contract.
        unsafe {
            match self {
                Self::Singles(y) => (FinishPlace::Single(y.add(block.first * outputs + column)), outputs),
                Self::Tiles(y, steps) => {
                    let (first, row) = place_in_tiles(block, column, steps);
                    (FinishPlace::Rounded(y.add(first)), row)
                }
            }
        }
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
    fn new(kernel: &dyn Kernel, blocks: &'a [RowBlock], panels: usize) -> Self {
        let per_thread = match kernel.order(blocks.len().min(ROW_BLOCKS_PER_TASK)) {
            Order::PanelsOutermost => TASKS_PER_THREAD,
            Order::DepthOutermost => DEEP_TASKS_PER_THREAD,
        };
        Self::cut(blocks, panels, per_thread * rayon::current_num_threads())
    }

    /// As many as are `wanted`, where there are so many panels and rows. A task takes fewer row blocks only where
    /// panels are too few.
    fn cut(blocks: &'a [RowBlock], panels: usize, wanted: usize) -> Self {
        let chunks = panels.min(wanted);
        let groups = wanted.div_ceil(chunks.max(1));
        let fewest = ROWS_PER_TASK_MIN.div_ceil(blocks.first().map_or(1, |block| block.rows));
        let per_task = blocks.len().div_ceil(groups).max(fewest).min(ROW_BLOCKS_PER_TASK);
        Self { groups: blocks.chunks(per_task).collect(), panels, chunks }
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
    let tasks = Tasks::new(kernel, blocks, count.div_ceil(width));
    let none = |wanted: &[usize]| wanted.iter().map(|wanted| TopK::new(*wanted)).collect::<Vec<_>>();
    let parts = (0..tasks.count()).into_par_iter().map(|task| {
        let (group, panels) = tasks.get(task);
        let (first_row, rows) = (group[0].first, rows_of(group));
        let mut found = none(&wanted[first_row..first_row + rows]);
        sum_panels(kernel, group, (panels, width), |panel, block, sums| {
            let first = panel * width;
            let place = SumsPlace { width, columns: width.min(count - first), first, end };
            look(isa, sums, place, &mut found[block.first - first_row..][..block.rows]);
        });
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
/// order. Into tiles go blocks of a tile's rows.
pub(super) fn multiply(
    isa: Isa,
    kernel: &dyn Kernel,
    blocks: &[RowBlock],
    outputs: ProductOutputs<'_>,
    y: ProductResult<'_>,
) {
    let rows = rows_of(blocks);
    assert!(blocks.iter().all(|block| block.first + block.rows <= rows));
    let is_tiled = matches!(y, ProductResult::Tiles(_));
    assert!(
        !is_tiled || blocks.iter().copied().eq(full_blocks(rows)),
        "blocks of rows are those of the tiles"
    );
    let columns = outputs.finish.columns(outputs.width);
    let panels = outputs.count.div_ceil(columns);
    assert!(outputs.bias.is_none_or(|bias| bias.len() == panels * outputs.width));
    let (tasks, result) = (Tasks::new(kernel, blocks, panels), SharedResult::new(y, rows, outputs.count));
    (0..tasks.count()).into_par_iter().for_each(|task| {
        let (group, panels) = tasks.get(task);
        sum_panels(kernel, group, (panels, outputs.width), |panel, block, sums| {
            // SAFETY: the rows and the panel's first column are inside `y`.
            let (y, row) = unsafe { result.at(block, panel * columns, outputs.count) };
            let columns = columns.min(outputs.count - panel * columns);
            let target = FinishTarget { y, rows: block.rows, row, columns };
            let bias = outputs.bias.map(|bias| &bias[panel * outputs.width..][..outputs.width]);
            // SAFETY: each task owns its panels' columns in its groups' rows of `y`.
            unsafe { finish(isa, outputs.finish, sums, bias, &target) };
        });
    });
}

/// The order in which a task takes the pieces of its panels.
#[derive(Clone, Copy)]
struct PieceOrder {
    panels: usize,
    /// Of each panel.
    pieces: usize,
    /// Panels whose sums are under way at once; the next come when these are whole.
    under_way: usize,
}

impl PieceOrder {
    /// Of panels that have `sums` each.
    fn new(order: Order, (panels, pieces): (usize, usize), sums: usize) -> Self {
        let under_way = match order {
            Order::PanelsOutermost => 1,
            Order::DepthOutermost => (SUMS_MAX / sums.max(1)).min(panels).max(1),
        };
        Self { panels, pieces, under_way }
    }

    /// How many pieces there are.
    fn count(self) -> usize {
        self.panels * self.pieces
    }

    /// The panel of a piece, and its number in there.
    fn get(self, number: usize) -> (usize, usize) {
        let of_turn = self.under_way * self.pieces;
        let (first, within) = (number / of_turn * self.under_way, number % of_turn);
        let panels = self.under_way.min(self.panels - first);
        (first + within % panels, within / panels)
    }
}

thread_local! {
    /// Sums under way, as many as any product of this thread needed: fresh pages would cost it more.
    static SUMS: RefCell<Aligned<f32>> = const { RefCell::new(Aligned::EMPTY) };
    /// The piece of a panel at work, unpacked.
    static UNPACKED: RefCell<Aligned<f32>> = const { RefCell::new(Aligned::EMPTY) };
}

/// The products of some row blocks with some panels of `width`; `done` takes each panel's and block's sums
/// when they are whole.
fn sum_panels(
    kernel: &dyn Kernel,
    blocks: &[RowBlock],
    (panels, width): (Range<usize>, usize),
    mut done: impl FnMut(usize, RowBlock, &[f32]),
) {
    let (depth, step, order) =
        (kernel.depth(), kernel.depth_step(blocks.len()).max(1), kernel.order(blocks.len()));
    let of_panel = blocks.iter().map(|block| kernel.sums_rows(block.rows) * width).sum::<usize>();
    let order = PieceOrder::new(order, (panels.len(), depth.div_ceil(step)), of_panel);
    let piece = |number: usize| {
        let (panel, piece) = order.get(number);
        let first = piece * step;
        (panel, Steps { first, count: step.min(depth - first) })
    };
    let mut work = |all_sums: &mut [f32], memory: &mut Aligned<f32>| {
        for number in 0..order.count() {
            let (at, steps) = piece(number);
            let panel = panels.start + at;
            let mut rest = &mut all_sums[at % order.under_way * of_panel..][..of_panel];
            let next = (number + 1 < order.count()).then(|| piece(number + 1));
            // SAFETY: a `Cpu` holds available kernels only, and this is inside `on_thread`.
            let unpacked =
                if blocks.len() > 1 { unsafe { kernel.unpack(panel, steps, memory) } } else { None };
            for (part, block) in blocks.iter().enumerate() {
                let (sums, after) = rest.split_at_mut(kernel.sums_rows(block.rows) * width);
                let parts = blocks.len();
                let next =
                    next.map(|(panel, steps)| Next { panel: panels.start + panel, steps, part, parts });
                // SAFETY: as above.
                unsafe { kernel.add(*block, PanelPiece { panel, steps, unpacked }, sums, next) };
                if steps.first + steps.count == depth {
                    done(panel, *block, &sums[..block.rows * width]);
                }
                rest = after;
            }
        }
    };
    SUMS.with_borrow_mut(|sums| {
        sums.resize(of_panel * order.under_way);
        UNPACKED.with_borrow_mut(|memory| kernel.on_thread(&mut || work(sums, memory)));
    });
}

#[cfg(test)]
mod tests;
