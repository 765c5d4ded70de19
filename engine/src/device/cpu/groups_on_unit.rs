//! Products of eight-bit integers in groups on a matrix unit: those of many rows, with the weights that few rows
//! meet in vectors.
//!
//! The unit reads panels and rows as they lie for vectors, sums of a group are exact on both, and both scale them with
//! the same operations in the same order. So a row has the same bits from either, in whatever batch it is, and weights
//! are in memory once; which of both multiplies is a matter of time alone, and is timed where there is a choice.

use std::hint::black_box;
use std::marker::PhantomData;
use std::sync::OnceLock;

use super::groups::{self, Groups};
use super::isa::Isa;
use super::kernels::amx::{self, Amx};
use super::kernels::matrix_unit::{Shapes, Unit};
use super::kernels::matrix_unit_bytes::{AddScaled, UnitTile, add};
use super::kernels::{avx512_vnni, portable};
use super::layout::aligned::Aligned;
use super::layout::blocks::{RowBlock, row_blocks};
use super::layout::groups::{
    Block, DEPTH_BLOCK, EMPTY, GROUPS, ROWS_MAX, UNIT_STEP, WIDE_GROUP_MAX, depth_block, panel_bytes,
};
use super::layout::tiles::{ROWS_MAX as UNIT_ROWS_MAX, TILE, full_blocks, tile_count};
use super::limits::best;
use super::product::{Kernel, Next, Order, Steps};

/// Sums of more inputs than these take a piece of all panels after the other: the activations of a task's 512 rows are
/// then more than a megabyte and a half.
const PANEL_INPUTS_MAX: usize = 2560;

/// Whether so many rows meet weights in groups of `group` inputs on the unit.
pub(super) fn is_taken(isa: Isa, group: usize, rows: usize) -> bool {
    rows >= TILE && has_choice(isa, group) && is_faster(group)
}

/// Times the ways to multiply groups of `group` inputs, where there are several and none has been timed: products that
/// follow know the faster.
pub(super) fn choose(isa: Isa, group: usize) {
    if has_choice(isa, group) {
        is_faster(group);
    }
}

/// Whether the unit can multiply such groups too.
fn has_choice(isa: Isa, group: usize) -> bool {
    isa == Isa::Amx && group.is_multiple_of(UNIT_STEP) && amx::multiplies_bytes()
}

/// Whether the unit is faster than vectors, timed once for each size of groups.
fn is_faster(group: usize) -> bool {
    const SIZES: usize = WIDE_GROUP_MAX / UNIT_STEP;
    static FASTER: [OnceLock<bool>; SIZES] = [const { OnceLock::new() }; SIZES];
    *FASTER[group / UNIT_STEP - 1].get_or_init(|| {
        let shape = (group, groups::panel(Isa::Amx));
        let [unit_us, vectors_us] = times::<Amx>(Isa::Amx, shape).map(|seconds| seconds * 1e6);
        let on_unit = unit_us < vectors_us;
        tracing::info!(group, unit_us, vectors_us, on_unit, "eight-bit products were timed");
        on_unit
    })
}

/// Seconds that a block of 32 rows takes with a piece of a panel of `width`, all in cache: on the unit, and by vectors.
fn times<U: Unit>(isa: Isa, (group, width): (usize, usize)) -> [f64; 2] {
    let (rows, inputs) = (UNIT_ROWS_MAX, depth_block(group));
    // No zeros, on which the unit is faster. As a half, too, the byte twice is an ordinary number.
    let number = 0x3Cu8;
    let mut panels = Aligned::<u8>::zeros(panel_bytes(inputs, group, width));
    panels.fill(number);
    let block = Block { values: [number.cast_signed(); DEPTH_BLOCK], scales: [1.0; GROUPS], ..EMPTY };
    let activations = vec![block; rows];
    let operands = || Groups { isa, rows, inputs, group, width, activations: &activations, panels: &panels };
    let on_unit = GroupsOnUnit { operands: operands(), unit: PhantomData::<fn() -> U> };
    let blocks: [Vec<RowBlock>; 2] = [full_blocks(rows).collect(), row_blocks(rows, ROWS_MAX).collect()];
    [time(&on_unit, &blocks[0], width), time(&operands(), &blocks[1], width)]
}

/// Seconds of one kernel's pass over some row blocks.
fn time(kernel: &dyn Kernel, blocks: &[RowBlock], width: usize) -> f64 {
    /// Passes of a run: some hundred microseconds.
    const PASSES: usize = 64;
    let mut sums = Aligned::<f32>::zeros(UNIT_ROWS_MAX * width);
    let steps = Steps { first: 0, count: kernel.depth() };
    let seconds = best(|| {
        kernel.on_thread(&mut || {
            for block in (0..PASSES).flat_map(|_| blocks) {
                let sums = &mut sums[block.first * width..][..block.rows * width];
                // SAFETY: the caller's kernels are those of this machine.
                unsafe { kernel.add(*block, 0, steps, sums, None) };
            }
        });
        black_box(&sums[..]);
    });
    seconds / PASSES as f64
}

/// Rounds rows of `inputs` as [`groups::quantise_rows`] does; behind them is as much as the unit reads there.
pub(super) fn quantise_rows<'a>(
    isa: Isa,
    x: &[f32],
    (inputs, group): (usize, usize),
    packed: &'a mut Vec<Block>,
) -> &'a [Block] {
    let len = groups::quantise_rows(isa, x, (inputs, group), packed).len() + TILE - 1;
    packed.resize(len.max(packed.len()), EMPTY);
    &packed[..len]
}

/// A product of rounded rows with packed weights, on unit `U`.
pub(super) struct GroupsOnUnit<'a, U> {
    /// Activations are from [`quantise_rows`].
    pub(super) operands: Groups<'a>,
    pub(super) unit: PhantomData<fn() -> U>,
}

impl<U: Unit> Kernel for GroupsOnUnit<'_, U> {
    fn depth(&self) -> usize {
        self.operands.depth()
    }

    fn depth_step(&self, blocks: usize) -> usize {
        self.operands.depth_step(blocks)
    }

    fn order(&self, blocks: usize) -> Order {
        if blocks > 1 && self.operands.inputs > PANEL_INPUTS_MAX {
            Order::DepthOutermost
        } else {
            Order::PanelsOutermost
        }
    }

    fn on_thread(&self, work: &mut dyn FnMut()) {
        // SAFETY: a `Cpu` holds available kernels only.
        unsafe { U::configured(Shapes::Products, work) };
    }

    unsafe fn add(&self, block: RowBlock, panel: usize, steps: Steps, sums: &mut [f32], next: Option<Next>) {
        let operands = &self.operands;
        let tile = UnitTile {
            group: operands.group,
            width: operands.width,
            rows: block.rows,
            a: &operands.activations[operands.row(block, steps)..][..tile_count(block.rows) * TILE],
            b: operands.piece(panel, steps),
            c: sums,
            accumulate: steps.first > 0,
            next: next.map_or(&[], |next| {
                let piece = operands.piece(next.panel, next.steps);
                &piece[next.part * piece.len() / next.parts..(next.part + 1) * piece.len() / next.parts]
            }),
        };
        // SAFETY: `on_thread` has configured the unit, and the instructions are this function's own contract.
        unsafe { add(&mut U::default(), tile, add_scaled(operands.isa)) };
    }
}

/// What scales sums to the bits that the same instruction set's vectors give.
fn add_scaled(isa: Isa) -> AddScaled {
    match isa {
        Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => avx512_vnni::add_scaled,
        Isa::Portable | Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm | Isa::Avx2 | Isa::Avx512 => {
            portable::add_scaled
        }
    }
}

#[cfg(test)]
mod tests;
