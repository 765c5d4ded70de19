//! Linear layers: a weight matrix packed once for the kernels of its device, and the product with it.

use super::finish::Finish;
use super::groups::{self, Groups};
use super::packed::Packed;
use super::pairs::{self, Pair, Pairs};
use super::product::{Outputs, RowBlock, multiply};
use super::tile::{Element, row_blocks};
use super::wide::{self, Wide};
use super::{Cpu, Isa};
use crate::checkpoint::{Dtype, RawTensor};

/// What weights are kept as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Numbers of their own.
    Plain(Dtype),
    /// Eight-bit integers in groups under one scale; activations are rounded to such to meet them.
    Q8,
}

/// What a layer does with its sums, biases added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    None,
    /// What is below 0 becomes 0.
    Relu,
    /// silu(gate) * up: of the layer's parts the first are gates and the others, as many, what they gate.
    GatedSilu,
}

/// Packed weights in the element type they are kept in.
enum Values {
    F32(Packed<f32>),
    F16(Packed<half::f16>),
    Bf16(Packed<half::bf16>),
    /// bf16 for kernels that multiply them as they are.
    Bf16Pairs(Packed<Pair>),
    /// Panels of groups of eight-bit integers, and the inputs of a group.
    Q8(Packed<u8>, usize),
}

/// A linear layer: weights, packed, with its bias, where it has one, and its activation.
pub struct Matrix {
    outputs: usize,
    inputs: usize,
    activation: Activation,
    /// Whose kernels it was packed for.
    isa: Isa,
    /// Lanes of a panel.
    width: usize,
    values: Values,
    /// One number per lane of the panels.
    bias: Option<Vec<f32>>,
}

/// Memory that products reuse from call to call.
#[derive(Default)]
pub struct Scratch {
    packed: Vec<f32>,
    rounded: Vec<Pair>,
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
        let gates = if self.activation == Activation::GatedSilu { self.outputs } else { 0 };
        (self.outputs + gates) * self.inputs
    }

    /// Bytes that a product reads.
    pub fn bytes(&self) -> usize {
        match &self.values {
            Values::F32(values) => size_of_val(&values[..]),
            Values::F16(values) => size_of_val(&values[..]),
            Values::Bf16(values) => size_of_val(&values[..]),
            Values::Bf16Pairs(values) => size_of_val(&values[..]),
            Values::Q8(values, _) => values.len(),
        }
    }

    /// Weights of output `index`, widened: how a tied embedding is looked up.
    pub fn row(&self, index: usize, row: &mut [f32]) {
        assert!(index < self.outputs && row.len() == self.inputs);
        assert!(self.activation != Activation::GatedSilu, "gates and what they gate lie between each other");
        let width = self.width;
        let (panel, lane) = (index / width, index % width);
        match &self.values {
            Values::F32(values) => gather(&values[panel * self.inputs * width + lane..], width, row),
            Values::F16(values) => gather(&values[panel * self.inputs * width + lane..], width, row),
            Values::Bf16(values) => gather(&values[panel * self.inputs * width + lane..], width, row),
            Values::Bf16Pairs(values) => {
                let column = &values[panel * pairs::pair_count(self.inputs) * width + lane..];
                for (two, pair) in row.chunks_mut(2).zip(column.iter().step_by(width)) {
                    two.iter_mut().zip(pair).for_each(|(value, weight)| *value = weight.to_f32());
                }
            }
            Values::Q8(values, group) => {
                let bytes = groups::panel_bytes(self.inputs, *group, width);
                groups::unpack(&values[panel * bytes..][..bytes], *group, (lane, width), row);
            }
        }
    }

    /// The layer's own end of its product.
    fn finish(&self) -> Finish {
        match self.activation {
            Activation::None => Finish::Write,
            Activation::Relu => Finish::Relu,
            Activation::GatedSilu => Finish::GatedSilu,
        }
    }
}

/// Which row of a layer's stacked parts stands in which lane of its panels.
#[derive(Clone, Copy)]
struct Lanes {
    /// Outputs of the layer.
    outputs: usize,
    /// Of a panel.
    width: usize,
    /// Whether half of each panel are gates.
    is_gated: bool,
}

impl Lanes {
    /// How many there are.
    fn count(self) -> usize {
        let columns = if self.is_gated { self.width / 2 } else { self.width };
        self.outputs.div_ceil(columns) * self.width
    }

    /// The row in a lane; `None` where the last panel has more lanes than rows are left.
    fn row(self, lane: usize) -> Option<usize> {
        if !self.is_gated {
            return (lane < self.outputs).then_some(lane);
        }
        let half = self.width / 2;
        let (panel, within) = (lane / self.width, lane % self.width);
        let output = panel * half + within % half;
        (output < self.outputs).then_some(output + if within < half { 0 } else { self.outputs })
    }
}

/// `row[k] = column[k * width]`.
fn gather<E: Element>(column: &[E], width: usize, row: &mut [f32]) {
    for (value, element) in row.iter_mut().zip(column.iter().step_by(width)) {
        *value = element.widen();
    }
}

/// Row `index` of a stored matrix, in single precision.
fn read_row(tensor: &RawTensor<'_>, index: usize, row: &mut [f32]) {
    let size = row.len() * tensor.dtype.bytes();
    let data = &tensor.data[index * size..(index + 1) * size];
    let words = data.as_chunks::<2>().0;
    match tensor.dtype {
        Dtype::F32 => fill(row, data.as_chunks::<4>().0, |word| f32::from_le_bytes(*word)),
        Dtype::F16 => fill(row, words, |word| half::f16::from_le_bytes(*word).to_f32()),
        Dtype::Bf16 => fill(row, words, |word| half::bf16::from_le_bytes(*word).to_f32()),
    }
}

/// `row[k] = value(words[k])`.
fn fill<W>(row: &mut [f32], words: &[W], value: impl Fn(&W) -> f32) {
    row.iter_mut().zip(words).for_each(|(to, word)| *to = value(word));
}

impl Cpu {
    /// Packs the matrices `parts`, stacked by outputs: each `[outputs, inputs]`, with equal inputs.
    ///
    /// They are kept as `format`; `None` keeps the type they all have, or else single precision.
    pub fn pack(&self, parts: &[RawTensor<'_>], bias: Option<Vec<f32>>, format: Option<Format>) -> Matrix {
        self.pack_active(parts, bias, format, Activation::None)
    }

    /// The same, with an activation behind it.
    pub fn pack_active(
        &self,
        parts: &[RawTensor<'_>],
        bias: Option<Vec<f32>>,
        format: Option<Format>,
        activation: Activation,
    ) -> Matrix {
        let inputs = parts[0].shape[1];
        assert!(
            parts.iter().all(|part| part.shape[1] == inputs && part.elements() == part.shape[0] * inputs)
        );
        let stored = parts[0].dtype;
        let kept = if parts.iter().all(|part| part.dtype == stored) { stored } else { Dtype::F32 };
        let rows: Vec<(&RawTensor<'_>, usize)> =
            parts.iter().flat_map(|part| (0..part.shape[0]).map(move |row| (part, row))).collect();
        assert!(bias.as_ref().is_none_or(|bias| bias.len() == rows.len()));
        let is_gated = activation == Activation::GatedSilu;
        assert!(!is_gated || rows.len().is_multiple_of(2), "every gate has what it gates");
        let outputs = if is_gated { rows.len() / 2 } else { rows.len() };
        let (isa, format) = (self.isa, format.unwrap_or(Format::Plain(kept)));
        let width = if format == Format::Q8 { groups::panel(isa) } else { isa.panel() };
        let lanes = Lanes { outputs, width, is_gated };
        let read = |lane: usize, weights: &mut [f32]| match lanes.row(lane) {
            Some(row) => read_row(rows[row].0, rows[row].1, weights),
            None => weights.fill(0.0),
        };
        let count = lanes.count();
        let values = self.run(|| match format {
            Format::Plain(Dtype::F32) => Values::F32(wide::pack_panels(count, inputs, width, read)),
            Format::Plain(Dtype::F16) => Values::F16(wide::pack_panels(count, inputs, width, read)),
            Format::Plain(Dtype::Bf16) if isa.rounds_activations() => {
                Values::Bf16Pairs(pairs::pack_panels(count, inputs, width, read))
            }
            Format::Plain(Dtype::Bf16) => Values::Bf16(wide::pack_panels(count, inputs, width, read)),
            Format::Q8 => {
                let group = groups::group_of(inputs);
                Values::Q8(groups::pack_panels(count, inputs, (group, width), read), group)
            }
        });
        let in_lane = |bias: &[f32], lane| lanes.row(lane).map_or(0.0, |row| bias[row]);
        let bias = bias.map(|bias| (0..count).map(|lane| in_lane(&bias, lane)).collect());
        Matrix { outputs, inputs, activation, isa, width, values, bias }
    }

    /// `y[t, o] = sum over i of x[t, i] * weights[o, i] (+ bias[o])`, for as many rows `t` as `x` has, and the layer's
    /// activation of that.
    ///
    /// Where [`Isa::rounds_activations`], rows are rounded to bf16 for weights that are kept as bf16; for weights kept
    /// as eight-bit integers they are rounded to such everywhere.
    pub fn linear(&self, x: &[f32], weights: &Matrix, y: &mut [f32], scratch: &mut Scratch) {
        self.product(x, weights, weights.finish(), y, scratch);
    }

    /// `y +=` what [`Self::linear`] gives, for a layer without activation.
    pub fn linear_add(&self, x: &[f32], weights: &Matrix, y: &mut [f32], scratch: &mut Scratch) {
        assert!(weights.activation == Activation::None, "only sums are added");
        self.product(x, weights, Finish::Add, y, scratch);
    }

    fn product(&self, x: &[f32], weights: &Matrix, finish: Finish, y: &mut [f32], scratch: &mut Scratch) {
        let (inputs, isa, width) = (weights.inputs, self.isa, weights.width);
        let rows = x.len() / inputs;
        assert!(x.len() == rows * inputs && y.len() == rows * weights.outputs);
        assert!(weights.isa == isa, "the matrix was packed by this device");
        if rows == 0 {
            return;
        }
        let rows_max = match &weights.values {
            Values::Bf16Pairs(_) => pairs::rows_max(isa),
            Values::Q8(..) => groups::ROWS_MAX,
            _ => isa.rows_max(),
        };
        let blocks: Vec<RowBlock> = row_blocks(rows, rows_max).collect();
        let outputs = Outputs { count: weights.outputs, width, finish, bias: weights.bias.as_deref() };
        match &weights.values {
            Values::F32(panels) => wide_product(isa, (x, inputs), panels, &blocks, outputs, y, scratch),
            Values::F16(panels) => wide_product(isa, (x, inputs), panels, &blocks, outputs, y, scratch),
            Values::Bf16(panels) => wide_product(isa, (x, inputs), panels, &blocks, outputs, y, scratch),
            Values::Bf16Pairs(panels) => {
                let activations = pairs::round_rows(isa, x, inputs, &mut scratch.rounded);
                let pairs = pairs::pair_count(inputs);
                let kernel = Pairs { isa, rows, pairs, width, activations, panels };
                multiply(isa, &kernel, &blocks, outputs, y);
            }
            Values::Q8(panels, group) => {
                let group = *group;
                let activations = groups::quantise_rows(isa, x, (inputs, group), &mut scratch.quantised);
                let kernel = Groups { isa, rows, inputs, group, width, activations, panels };
                multiply(isa, &kernel, &blocks, outputs, y);
            }
        }
    }
}

/// The product with weights that are widened.
fn wide_product<E: Element>(
    isa: Isa,
    (x, inputs): (&[f32], usize),
    panels: &[E],
    blocks: &[RowBlock],
    outputs: Outputs<'_>,
    y: &mut [f32],
    scratch: &mut Scratch,
) {
    let rows = wide::pack_blocks(x, inputs, blocks, &mut scratch.packed);
    let kernel = Wide { isa, inputs, width: outputs.width, rows, panels };
    multiply(isa, &kernel, blocks, outputs, y);
}

#[cfg(test)]
mod tests;
