//! Linear layers: a weight matrix packed once for the kernels of its device, and the product with it.

use super::groups::{self, Group, Groups};
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

/// Packed weights in the element type they are kept in.
enum Values {
    F32(Packed<f32>),
    F16(Packed<half::f16>),
    Bf16(Packed<half::bf16>),
    /// bf16 for kernels that multiply them as they are.
    Bf16Pairs(Packed<Pair>),
    /// Panels of groups of eight-bit integers.
    Q8(Packed<u8>),
}

/// The weights of a linear layer, `[outputs, inputs]`, packed; with its bias, where it has one.
pub struct Matrix {
    outputs: usize,
    inputs: usize,
    /// Whose kernels it was packed for.
    isa: Isa,
    values: Values,
    bias: Option<Vec<f32>>,
}

/// Memory that products reuse from call to call.
#[derive(Default)]
pub struct Scratch {
    packed: Vec<f32>,
    rounded: Vec<Pair>,
    quantised: Vec<Group>,
}

impl Matrix {
    /// Inputs of the layer.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Outputs of the layer.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Bytes that a product reads.
    pub fn bytes(&self) -> usize {
        match &self.values {
            Values::F32(values) => size_of_val(&values[..]),
            Values::F16(values) => size_of_val(&values[..]),
            Values::Bf16(values) => size_of_val(&values[..]),
            Values::Bf16Pairs(values) => size_of_val(&values[..]),
            Values::Q8(values) => values.len(),
        }
    }

    /// Weights of output `index`, widened: how a tied embedding is looked up.
    pub fn row(&self, index: usize, row: &mut [f32]) {
        assert!(index < self.outputs && row.len() == self.inputs);
        let width = self.isa.panel();
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
            Values::Q8(values) => {
                let bytes = groups::group_count(self.inputs) * groups::group_bytes(width);
                groups::unpack(&values[panel * bytes..][..bytes], (lane, width), row);
            }
        }
    }

    fn outputs_of(&self) -> Outputs<'_> {
        Outputs { count: self.outputs, width: self.isa.panel(), bias: self.bias.as_deref() }
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
        let inputs = parts[0].shape[1];
        assert!(
            parts.iter().all(|part| part.shape[1] == inputs && part.elements() == part.shape[0] * inputs)
        );
        let stored = parts[0].dtype;
        let kept = if parts.iter().all(|part| part.dtype == stored) { stored } else { Dtype::F32 };
        let rows: Vec<(&RawTensor<'_>, usize)> =
            parts.iter().flat_map(|part| (0..part.shape[0]).map(move |row| (part, row))).collect();
        assert!(bias.as_ref().is_none_or(|bias| bias.len() == rows.len()));
        let read = |row: usize, weights: &mut [f32]| read_row(rows[row].0, rows[row].1, weights);
        let (outputs, isa) = (rows.len(), self.isa);
        let width = isa.panel();
        let values = self.run(|| match format.unwrap_or(Format::Plain(kept)) {
            Format::Plain(Dtype::F32) => Values::F32(wide::pack_panels(outputs, inputs, width, read)),
            Format::Plain(Dtype::F16) => Values::F16(wide::pack_panels(outputs, inputs, width, read)),
            Format::Plain(Dtype::Bf16) if isa.rounds_activations() => {
                Values::Bf16Pairs(pairs::pack_panels(outputs, inputs, width, read))
            }
            Format::Plain(Dtype::Bf16) => Values::Bf16(wide::pack_panels(outputs, inputs, width, read)),
            Format::Q8 => Values::Q8(groups::pack_panels(outputs, inputs, width, read)),
        });
        Matrix { outputs, inputs, isa, values, bias }
    }

    /// `y[t, o] = sum over i of x[t, i] * weights[o, i] (+ bias[o])`, for as many rows `t` as `x` has.
    ///
    /// Where [`Isa::rounds_activations`], rows are rounded to bf16 for weights that are kept as bf16; for weights kept
    /// as eight-bit integers they are rounded to such everywhere.
    pub fn linear(&self, x: &[f32], weights: &Matrix, y: &mut [f32], scratch: &mut Scratch) {
        let rows = x.len() / weights.inputs;
        assert!(x.len() == rows * weights.inputs && y.len() == rows * weights.outputs);
        assert!(weights.isa == self.isa, "the matrix was packed by this device");
        if rows == 0 {
            return;
        }
        let rows_max = match &weights.values {
            Values::Bf16Pairs(_) => pairs::rows_max(self.isa),
            Values::Q8(_) => groups::rows_max(self.isa),
            _ => self.isa.rows_max(),
        };
        let blocks: Vec<RowBlock> = row_blocks(rows, rows_max).collect();
        match &weights.values {
            Values::F32(values) => wide_product(x, weights, values, &blocks, y, scratch),
            Values::F16(values) => wide_product(x, weights, values, &blocks, y, scratch),
            Values::Bf16(values) => wide_product(x, weights, values, &blocks, y, scratch),
            Values::Bf16Pairs(panels) => {
                let activations = pairs::round_rows(self.isa, x, weights.inputs, &mut scratch.rounded);
                let (pairs, width) = (pairs::pair_count(weights.inputs), self.isa.panel());
                let kernel = Pairs { isa: self.isa, rows, pairs, width, activations, panels };
                multiply(&kernel, &blocks, weights.outputs_of(), y);
            }
            Values::Q8(panels) => {
                let activations = groups::quantise_rows(self.isa, x, weights.inputs, &mut scratch.quantised);
                let (groups, width) = (groups::group_count(weights.inputs), self.isa.panel());
                let kernel = Groups { isa: self.isa, rows, groups, width, activations, panels };
                multiply(&kernel, &blocks, weights.outputs_of(), y);
            }
        }
    }
}

/// The product with weights that are widened.
fn wide_product<E: Element>(
    x: &[f32],
    weights: &Matrix,
    panels: &[E],
    blocks: &[RowBlock],
    y: &mut [f32],
    scratch: &mut Scratch,
) {
    let (isa, inputs) = (weights.isa, weights.inputs);
    let rows = wide::pack_blocks(x, inputs, blocks, &mut scratch.packed);
    let kernel = Wide { isa, inputs, width: isa.panel(), rows, panels };
    multiply(&kernel, blocks, weights.outputs_of(), y);
}

#[cfg(test)]
mod tests;
