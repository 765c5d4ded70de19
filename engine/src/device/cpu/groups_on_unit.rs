//! Products of eight-bit integers in groups on a matrix unit: those of many rows, with the weights that few rows
//! meet in vectors.
//!
//! The unit reads panels and rows as they lie for vectors, sums of a group are exact on both, and both scale them with
//! the same operations in the same order. So a row has the same bits from either, in whatever batch it is, and weights
//! are in memory once; which of both multiplies is a matter of time alone, and both are timed where there is a choice.

use std::hint::black_box;
use std::marker::PhantomData;
use std::sync::OnceLock;

use super::groups::{self, Groups};
use super::isa::Isa;
use super::kernels::amx::{self, Amx};
use super::kernels::matrix_unit::Unit;
use super::kernels::matrix_unit_bytes::{AddScaled, UnitTile, add, has_tiles_of, shapes};
use super::kernels::{avx512_vnni, portable};
use super::layout::aligned::Aligned;
use super::layout::blocks::{RowBlock, row_blocks};
use super::layout::groups::{
    BIAS, Block, DEPTH_BLOCK, EMPTY, GROUPS, GroupSizes, UNIT_STEP, WIDE_GROUP_MAX, depth_block, panel_bytes,
};
use super::layout::tiles::{ROWS_MAX as UNIT_ROWS_MAX, TILE, full_blocks, tile_count};
use super::product::{Kernel, Next, Order, PanelPiece, Steps};
use super::registers::best_of;

/// Sums of more inputs than these take a piece of several panels after the other: the activations of a task's 512 rows
/// are then more than a megabyte and a half.
const PANEL_INPUTS_MAX: usize = 2560;

/// Whether so many rows, rounded in groups of `group` inputs, are multiplied on the unit.
pub(super) fn is_taken(isa: Isa, group: usize, rows: usize) -> bool {
    takes((isa, group), rows, amx::multiplies_bytes, || trial_times(group))
}

/// Times the ways to multiply rows in groups of `group` inputs, where there are several and none has been timed: products
/// that follow know the faster.
pub(super) fn choose(isa: Isa, group: usize) {
    if has_choice((isa, group), amx::multiplies_bytes) {
        trial_times(group);
    }
}

/// [`is_taken`] where the unit multiplies bytes or not, and both ways take so long. Fewer rows than a tile has, as of
/// most decode steps, stay with vectors: reading weights is what takes long there.
fn takes(
    kind: (Isa, usize),
    rows: usize,
    multiplies_bytes: impl FnOnce() -> bool,
    times: impl FnOnce() -> TrialTimes,
) -> bool {
    rows >= TILE && has_choice(kind, multiplies_bytes) && times().favour_unit(rows)
}

/// Whether such groups can be multiplied on the unit too.
fn has_choice((isa, group): (Isa, usize), multiplies_bytes: impl FnOnce() -> bool) -> bool {
    isa == Isa::Amx && has_tiles_of(group) && multiplies_bytes()
}

/// Seconds that both ways take with the same piece of a panel.
#[derive(Clone, Copy, Debug)]
struct TrialTimes {
    /// The unit takes as long for one row as for all 16 of a tile.
    unit_per_tile: f64,
    vectors_per_row: f64,
}

impl TrialTimes {
    /// Whether the unit is done with so many rows sooner.
    fn favour_unit(self, rows: usize) -> bool {
        tile_count(rows) as f64 * self.unit_per_tile < rows as f64 * self.vectors_per_row
    }
}

/// How long this machine takes for rows in groups of `group` inputs, measured once for each size: what their weights'
/// scales take more or less is next to nothing.
fn trial_times(group: usize) -> TrialTimes {
    /// The first is half a step.
    const SIZES: usize = 1 + WIDE_GROUP_MAX / UNIT_STEP;
    static TIMES: [OnceLock<TrialTimes>; SIZES] = [const { OnceLock::new() }; SIZES];
    *TIMES[group / UNIT_STEP].get_or_init(|| {
        let sizes = GroupSizes::equal(group);
        let times = Trial::new(Isa::Amx, sizes, groups::panel(Isa::Amx)).times::<Amx>();
        let TrialTimes { unit_per_tile, vectors_per_row } = times;
        let (unit_us, vectors_us) = (1e6 * unit_per_tile, 1e6 * vectors_per_row * TILE as f64);
        let on_unit = times.favour_unit(TILE);
        tracing::info!(group, unit_us, vectors_us, on_unit, "eight-bit products of 16 rows were timed");
        times
    })
}

/// What both ways are timed on: a block of rows that fills two tiles, and a piece of a panel, all in cache.
struct Trial {
    isa: Isa,
    sizes: GroupSizes,
    width: usize,
    activations: Vec<Block>,
    panels: Aligned<u8>,
}

impl Trial {
    const ROWS: usize = UNIT_ROWS_MAX;

    fn new(isa: Isa, sizes: GroupSizes, width: usize) -> Self {
        // No zeros, on which the unit is faster. As a half, too, the byte twice is an ordinary number.
        const NUMBER: u8 = 0x3C;
        let GroupSizes { weights, activations } = sizes;
        let mut panels = Aligned::<u8>::zeros(panel_bytes(depth_block(weights), weights, width));
        panels.fill(NUMBER);
        let unbias = -i32::from(BIAS) * i32::from(NUMBER) * activations as i32;
        let values = [NUMBER.cast_signed(); DEPTH_BLOCK];
        let block = Block { values, scales: [1.0; GROUPS], unbias: [unbias; GROUPS] };
        Self { isa, sizes, width, activations: vec![block; Self::ROWS], panels }
    }

    /// The product by vectors, and the blocks in which these take rows.
    fn by_vectors(&self) -> (Groups<'_>, Vec<RowBlock>) {
        let Self { isa, sizes, width, .. } = *self;
        let (rows, inputs) = (Self::ROWS, depth_block(sizes.weights));
        let (activations, panels) = (&self.activations, &self.panels);
        let kernel = Groups { isa, rows, inputs, sizes, width, activations, panels };
        (kernel, row_blocks(rows, groups::ROWS_MAX).collect())
    }

    /// The same on unit `U`.
    fn on_unit<U: Unit>(&self) -> (GroupsOnUnit<'_, U>, Vec<RowBlock>) {
        let (operands, _) = self.by_vectors();
        (GroupsOnUnit { operands, unit: PhantomData::<fn() -> U> }, full_blocks(Self::ROWS).collect())
    }

    /// The sums of one panel, so many times over.
    fn multiply(&self, kernel: &dyn Kernel, blocks: &[RowBlock], passes: usize, sums: &mut [f32]) {
        let (steps, width) = (Steps { first: 0, count: kernel.depth() }, self.width);
        let piece = PanelPiece { panel: 0, steps, unpacked: None };
        kernel.on_thread(&mut || {
            for block in (0..passes).flat_map(|_| blocks) {
                let sums = &mut sums[block.first * width..][..block.rows * width];
                // SAFETY: the caller's kernels are those of this machine.
                unsafe { kernel.add(*block, piece, sums, None) };
            }
        });
        black_box(&sums[..]);
    }

    /// Times both; `U` is the unit of this machine.
    fn times<U: Unit>(&self) -> TrialTimes {
        /// Passes of a run: some hundred microseconds.
        const PASSES: usize = 64;
        let ((unit, unit_blocks), (vectors, vector_blocks)) = (self.on_unit::<U>(), self.by_vectors());
        let (mut unit_sums, mut vector_sums) = (self.sums(), self.sums());
        let [unit_seconds, vector_seconds] =
            best_of([&mut || self.multiply(&unit, &unit_blocks, PASSES, &mut unit_sums), &mut || {
                self.multiply(&vectors, &vector_blocks, PASSES, &mut vector_sums)
            }]);
        TrialTimes {
            unit_per_tile: unit_seconds / (PASSES * tile_count(Self::ROWS)) as f64,
            vectors_per_row: vector_seconds / (PASSES * Self::ROWS) as f64,
        }
    }

    /// Room for sums, on cache lines as a product's.
    fn sums(&self) -> Aligned<f32> {
        Aligned::zeros(Self::ROWS * self.width)
    }
}

/// Rounds rows of `inputs` as [`groups::quantise_rows`] does; behind them is as much as the unit reads there.
pub(super) fn quantise_rows<'a>(
    isa: Isa,
    x: &[f32],
    (inputs, sizes): (usize, GroupSizes),
    packed: &'a mut Vec<Block>,
) -> &'a [Block] {
    let len = groups::quantise_rows(isa, x, (inputs, sizes), packed).len() + TILE - 1;
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
        unsafe { U::configured(shapes(self.operands.sizes.activations), work) };
    }

    unsafe fn add(&self, block: RowBlock, piece: PanelPiece<'_>, sums: &mut [f32], next: Option<Next>) {
        let PanelPiece { panel, steps, .. } = piece;
        let operands = &self.operands;
        let tile = UnitTile {
            sizes: operands.sizes,
            width: operands.width,
            rows: block.rows,
            a: &operands.activations[operands.row(block, steps)..][..tile_count(block.rows) * TILE],
            b: operands.piece(panel, steps),
            c: sums,
            accumulate: steps.first > 0,
            next: next.map_or(&[], |next| next.part_of(operands.piece(next.panel, next.steps))),
        };
        // SAFETY: `on_thread` has configured the unit, and the instructions are this function's own contract.
        unsafe { add(&mut U::default(), tile, add_scaled(operands.isa)) };
    }
}

/// What scales sums to the bits that the same instruction set's vectors give.
fn add_scaled(isa: Isa) -> AddScaled {
    match isa {
        Isa::Avx512Vnni | Isa::Avx512Fp16 | Isa::Avx512Bf16 | Isa::Amx => avx512_vnni::add_scaled,
        Isa::Portable | Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm | Isa::Avx2 | Isa::Avx512 => {
            portable::add_scaled
        }
    }
}

#[cfg(test)]
mod tests;
