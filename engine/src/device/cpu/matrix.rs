//! Linear layers: weights packed for the kernels of their device ([`super::pack`]), and the product with
//! them.

use std::marker::PhantomData;

use rayon::prelude::*;

use super::finish::Finish;
use super::groups::{Groups, ROWS_MAX, quantise_rows};
use super::groups_on_unit::{self, GroupsOnUnit};
use super::halves::{self, Halves};
use super::highest::TopK;
use super::isa::Isa;
use super::kernels::amx::Amx;
use super::kernels::matrix_unit::Unit;
use super::layout::blocks::{RowBlock, row_blocks};
use super::layout::groups::{self, GroupSizes};
use super::layout::halves::HalfBlock;
use super::layout::nibbles as nibbles_layout;
use super::layout::packed::Packed;
use super::layout::pairs::{Pair, pair_count};
use super::layout::tiles::{Line, PANEL, TILE, full_blocks, step_count, tile_count, unpack as unpack_tiles};
use super::layout::wide::{WeightElement, lay_out};
use super::nibbles::Nibbles;
use super::operand::{LeftOperand, Operand, ProductResult, TiledRows};
use super::pairs::{self, Pairs};
use super::processor::Cpu;
use super::product::{Kernel, Panels, ProductOutputs, Wanted, multiply, top_k};
use super::rows::Norm;
use super::tiles::{self, Tiles};
use super::wide::Wide;
use crate::checkpoint::Dtype;

/// What weights are kept as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Numbers of their own.
    Plain(Dtype),
    /// Eight-bit integers in groups under one scale; activations are rounded to such, in groups of 32, to meet them.
    Q8,
    /// The same in larger groups, of activations too, for a matrix unit.
    Q8Wide,
    /// Four-bit numbers in groups of 32 under one scale above one minimum; activations are rounded to eight-bit
    /// integers to meet them.
    Q4,
}

/// What a layer does with its sums, biases added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    None,
    /// What is below 0 becomes 0.
    Relu,
    /// GELU.
    Gelu,
    /// silu(gate) * up: of the layer's parts the first are gates and the others, as many, what they gate.
    GatedSilu,
    /// gelu(gate) * up, with GELU's approximation by tanh.
    GatedGelu,
}

impl Activation {
    /// Whether half of its sums are gates.
    pub(super) fn is_gated(self) -> bool {
        matches!(self, Self::GatedSilu | Self::GatedGelu)
    }
}

/// Packed weights in the element type they are kept in.
pub(super) enum Values {
    F32(Packed<f32>),
    F16(Packed<half::f16>),
    /// Pairs of bf16, for kernels that multiply them as they are, and for those that widen them.
    Bf16Pairs(Packed<Pair>),
    /// The same in the tiles of a matrix unit.
    Bf16Tiles(Packed<Pair>),
    /// bf16 or f16 as half floats, and what each output's are to be multiplied by.
    Halves(Packed<half::f16>, Vec<f32>),
    /// Panels of groups of eight-bit integers, and the inputs of groups.
    Q8(Packed<u8>, GroupSizes),
    /// Panels of groups of four-bit numbers.
    Q4(Packed<u8>),
}

/// A linear layer: weights, packed, with its bias, where it has one, and its activation.
pub struct Matrix {
    /// Behind the activation.
    pub(super) outputs: usize,
    pub(super) inputs: usize,
    pub(super) activation: Activation,
    /// Whose kernels it was packed for.
    pub(super) isa: Isa,
    /// Lanes of a panel.
    pub(super) width: usize,
    pub(super) values: Values,
    /// One number per lane of the panels.
    pub(super) bias: Option<Vec<f32>>,
}

/// Memory that products reuse from call to call.
#[derive(Default)]
pub struct Scratch {
    packed: Vec<f32>,
    rounded: Vec<Pair>,
    tiles: Vec<Line>,
    halves: Vec<HalfBlock>,
    quantised: Vec<groups::Block>,
}

impl Matrix {
    /// Inputs of the layer.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Outputs of the layer, behind its activation.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// How many weights each row of a product meets.
    pub fn weights(&self) -> usize {
        let gates = if self.activation.is_gated() { self.outputs } else { 0 };
        (self.outputs + gates) * self.inputs
    }

    /// Whether its products round activations to bf16, for its weights are kept as such.
    pub fn rounds_activations(&self) -> bool {
        match self.values {
            Values::Bf16Tiles(_) => true,
            Values::Bf16Pairs(_) => self.isa.rounds_activations(),
            Values::F32(_) | Values::F16(_) | Values::Halves(..) | Values::Q8(..) | Values::Q4(_) => false,
        }
    }

    /// Whether its weights are kept as half floats, and products round activations to such.
    pub fn multiplies_halves(&self) -> bool {
        matches!(self.values, Values::Halves(..))
    }

    /// Bytes that a product reads.
    pub fn bytes(&self) -> usize {
        match &self.values {
            Values::F32(values) => size_of_val(&values[..]),
            Values::F16(values) => size_of_val(&values[..]),
            Values::Halves(values, scales) => size_of_val(&values[..]) + size_of_val(&scales[..]),
            Values::Bf16Pairs(values) | Values::Bf16Tiles(values) => size_of_val(&values[..]),
            Values::Q8(values, _) | Values::Q4(values) => values.len(),
        }
    }

    /// Weights of output `index`, widened: how a tied embedding is looked up.
    pub fn row(&self, index: usize, row: &mut [f32]) {
        assert!(index < self.outputs && row.len() == self.inputs);
        assert!(!self.activation.is_gated(), "gates and what they gate lie between each other");
        let width = self.width;
        let (panel, lane) = (index / width, index % width);
        match &self.values {
            Values::F32(values) => gather(&values[panel * self.inputs * width + lane..], width, row),
            Values::F16(values) => gather(&values[panel * self.inputs * width + lane..], width, row),
            Values::Halves(values, scales) => {
                gather(&values[panel * self.inputs * width + lane..], width, row);
                row.iter_mut().for_each(|value| *value *= scales[index]);
            }
            Values::Bf16Pairs(values) => {
                let column = &values[panel * pair_count(self.inputs) * width + lane..];
                for (two, pair) in row.chunks_mut(2).zip(column.iter().step_by(width)) {
                    two.iter_mut().zip(pair).for_each(|(value, weight)| *value = weight.to_f32());
                }
            }
            Values::Bf16Tiles(values) => {
                let len = step_count(self.inputs) * TILE * PANEL;
                unpack_tiles(&values[panel * len..][..len], lane, row);
            }
            Values::Q8(values, GroupSizes { weights: group, .. }) => {
                let bytes = groups::panel_bytes(self.inputs, *group, width);
                groups::unpack(&values[panel * bytes..][..bytes], *group, (lane, width), row);
            }
            Values::Q4(values) => {
                let bytes = nibbles_layout::panel_bytes(self.inputs, width);
                nibbles_layout::unpack(&values[panel * bytes..][..bytes], (lane, width), row);
            }
        }
    }

    /// Its product with `x`, laid out in `packed`, where it is kept as `E`, as many as `depth` of an output.
    fn widened<'a, E>(
        &self,
        (panels, depth): (&'a [E], usize),
        x: &[f32],
        packed: &'a mut Vec<f32>,
    ) -> Wide<'a, E> {
        let (isa, width, rows) = (self.isa, self.width, x.len() / self.inputs);
        Wide { isa, rows, depth, width, activations: lay_out(x, self.inputs, packed), panels }
    }

    /// Whether it meets rows in the tiles of a matrix unit.
    fn is_in_tiles(&self) -> bool {
        matches!(self.values, Values::Bf16Tiles(_))
    }

    /// The layer's own end of its product.
    fn finish(&self) -> Finish {
        match self.activation {
            Activation::None => Finish::Write,
            Activation::Relu => Finish::Relu,
            Activation::Gelu => Finish::Gelu,
            Activation::GatedSilu => Finish::GatedSilu,
            Activation::GatedGelu => Finish::GatedGelu,
        }
    }
}

/// `row[k] = column[k * width]`.
fn gather<E: WeightElement>(column: &[E], width: usize, row: &mut [f32]) {
    for (value, element) in row.iter_mut().zip(column.iter().step_by(width)) {
        *value = element.widen();
    }
}

impl Cpu {
    /// `out` = `norm(x)`, row by row, as `weights` want rows.
    pub fn norm_for(&self, x: &[f32], norm: &Norm, weights: &Matrix, out: &mut Operand) {
        let width = weights.inputs();
        assert!(norm.weight.len() == width && x.len().is_multiple_of(width));
        match out.make_room(x.len() / width, width, weights.is_in_tiles()) {
            ProductResult::Singles(out) => self.norm(x, norm, out),
            ProductResult::Tiles(lines) => {
                let mut rest = lines;
                let mut blocks: Vec<(RowBlock, &mut [Line])> = Vec::new();
                for block in full_blocks(x.len() / width) {
                    let (lines, after) = rest.split_at_mut(tile_count(block.rows) * TILE * step_count(width));
                    blocks.push((block, lines));
                    rest = after;
                }
                blocks.into_par_iter().for_each_init(
                    || vec![0.0; width],
                    |normed, (block, lines)| {
                        let of_step = tile_count(block.rows) * TILE;
                        let rows = x[block.first * width..][..block.rows * width].chunks_exact(width);
                        for (number, row) in rows.enumerate() {
                            norm.apply_to(row, normed);
                            tiles::round_row(self.isa, normed, &mut lines[number..], of_step);
                        }
                    },
                );
            }
        }
    }

    /// `y[t, o] = sum over i of x[t, i] * weights[o, i] (+ bias[o])`, for as many rows `t` as `x` has, and
    /// the layer's activation of that.
    ///
    /// Where [`Isa::rounds_activations`], rows are rounded to bf16 for weights that are kept as bf16, and where
    /// [`Isa::multiplies_halves`], to half floats for weights of 16 bits; for weights kept as integers they are
    /// rounded to eight-bit ones everywhere.
    pub fn linear<'a>(
        &self,
        x: impl Into<LeftOperand<'a>>,
        weights: &Matrix,
        y: &mut [f32],
        scratch: &mut Scratch,
    ) {
        self.product(x.into(), weights, weights.finish(), ProductResult::Singles(y), scratch);
    }

    /// The same into `y` as the weights of the `next` product want it.
    pub fn linear_for<'a>(
        &self,
        x: impl Into<LeftOperand<'a>>,
        weights: &Matrix,
        next: &Matrix,
        y: &mut Operand,
        scratch: &mut Scratch,
    ) {
        assert!(next.inputs == weights.outputs);
        let x = x.into();
        // Sums are finished block by block of rows, and only a product of tiles has the blocks of tiles.
        let is_tiled = weights.is_in_tiles() && next.is_in_tiles();
        let y = y.make_room(x.rows(weights.inputs), next.inputs, is_tiled);
        self.product(x, weights, weights.finish(), y, scratch);
    }

    /// `y +=` what [`Self::linear`] gives, for a layer without activation.
    pub fn linear_add<'a>(
        &self,
        x: impl Into<LeftOperand<'a>>,
        weights: &Matrix,
        y: &mut [f32],
        scratch: &mut Scratch,
    ) {
        assert!(weights.activation == Activation::None, "only sums are added");
        self.product(x.into(), weights, Finish::Add, ProductResult::Singles(y), scratch);
    }

    /// The highest of what [`Self::linear`] would give for each row of `x`, as many as `wanted` says: all
    /// outputs are computed, none is written, and those from `end` on are not kept. The layer is one without
    /// bias and activation.
    pub(crate) fn top_k(
        &self,
        x: &[f32],
        weights: &Matrix,
        (wanted, end): (&[usize], usize),
        scratch: &mut Scratch,
    ) -> Vec<TopK> {
        assert!(weights.activation == Activation::None && weights.bias.is_none(), "only sums are looked at");
        assert!(x.len() == wanted.len() * weights.inputs);
        if x.is_empty() {
            return Vec::new();
        }
        let panels = Panels { count: weights.outputs, width: weights.width };
        let wanted = Wanted { counts: wanted, end };
        self.with_kernel(LeftOperand::Singles(x), weights, scratch, |kernel, blocks| {
            top_k(self.isa, kernel, blocks, panels, wanted)
        })
    }

    fn product(
        &self,
        x: LeftOperand<'_>,
        weights: &Matrix,
        finish: Finish,
        y: ProductResult<'_>,
        scratch: &mut Scratch,
    ) {
        if x.rows(weights.inputs) == 0 {
            return;
        }
        let (count, width) = (weights.outputs, weights.width);
        let outputs = ProductOutputs { count, width, finish, bias: weights.bias.as_deref() };
        self.with_kernel(x, weights, scratch, |kernel, blocks| {
            multiply(self.isa, kernel, blocks, outputs, y)
        });
    }

    /// Packs the rows of `x` for the kernel of `weights`; `then` has both, and the blocks in which it takes
    /// rows.
    fn with_kernel<T>(
        &self,
        x: LeftOperand<'_>,
        weights: &Matrix,
        scratch: &mut Scratch,
        then: impl FnOnce(&dyn Kernel, &[RowBlock]) -> T,
    ) -> T {
        self.with_kernel_on::<Amx, T>(x, weights, scratch, groups_on_unit::is_taken, then)
    }

    /// The same with the matrix unit `U`, on which integers are multiplied where `is_taken` says so of their
    /// instructions, the inputs of a group of activations, and the rows.
    fn with_kernel_on<U: Unit, T>(
        &self,
        x: LeftOperand<'_>,
        weights: &Matrix,
        scratch: &mut Scratch,
        is_taken: impl Fn(Isa, usize, usize) -> bool,
        then: impl FnOnce(&dyn Kernel, &[RowBlock]) -> T,
    ) -> T {
        let (inputs, isa, width) = (weights.inputs, self.isa, weights.width);
        let rows = x.rows(inputs);
        assert!(weights.isa == isa, "the matrix was packed by this device");
        let is_on_unit = match &weights.values {
            Values::Bf16Tiles(_) => true,
            Values::Q8(_, sizes) => is_taken(isa, sizes.activations, rows),
            _ => false,
        };
        let blocks: Vec<RowBlock> = match &weights.values {
            _ if is_on_unit => full_blocks(rows).collect(),
            Values::Q8(..) | Values::Q4(_) => row_blocks(rows, ROWS_MAX).collect(),
            _ => row_blocks(rows, isa.rows_max()).collect(),
        };
        let packed = &mut scratch.packed;
        let x = match (&weights.values, x) {
            (Values::Bf16Tiles(panels), x) => {
                let activations = match x {
                    LeftOperand::Singles(x) => tiles::round_rows(isa, x, inputs, &mut scratch.tiles),
                    LeftOperand::Tiles { lines: TiledRows(lines), .. } => lines,
                };
                let steps = step_count(inputs);
                let kernel = Tiles { steps, activations, panels, unit: PhantomData::<fn() -> U> };
                return then(&kernel, &blocks);
            }
            (_, LeftOperand::Singles(x)) => x,
            (_, LeftOperand::Tiles { .. }) => unreachable!("rows lie as their weights want them"),
        };
        match &weights.values {
            Values::F32(panels) => then(&weights.widened((panels, inputs), x, packed), &blocks),
            Values::F16(panels) => then(&weights.widened((panels, inputs), x, packed), &blocks),
            Values::Halves(panels, scales) => {
                let activations = halves::round_rows(isa, x, inputs, &mut scratch.halves);
                then(&Halves { isa, rows, inputs, activations, panels, scales }, &blocks)
            }
            Values::Bf16Pairs(panels) if isa.rounds_activations() => {
                let activations = pairs::round_rows(isa, x, inputs, &mut scratch.rounded);
                let pairs = pair_count(inputs);
                then(&Pairs { rows, pairs, width, activations, panels }, &blocks)
            }
            Values::Bf16Pairs(panels) => {
                then(&weights.widened((panels, pair_count(inputs)), x, packed), &blocks)
            }
            Values::Bf16Tiles(_) => unreachable!("taken above"),
            Values::Q8(panels, sizes) => {
                let (sizes, packed) = (*sizes, &mut scratch.quantised);
                if is_on_unit {
                    let activations = groups_on_unit::quantise_rows(isa, x, (inputs, sizes), packed);
                    let operands = Groups { isa, rows, inputs, sizes, width, activations, panels };
                    return then(&GroupsOnUnit { operands, unit: PhantomData::<fn() -> U> }, &blocks);
                }
                let activations = quantise_rows(isa, x, (inputs, sizes), packed);
                then(&Groups { isa, rows, inputs, sizes, width, activations, panels }, &blocks)
            }
            Values::Q4(panels) => {
                let packed = &mut scratch.quantised;
                then(&Nibbles::new(isa, x, inputs, (panels, width), packed), &blocks)
            }
        }
    }
}

#[cfg(test)]
mod tests;
