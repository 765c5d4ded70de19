//! Weights as they are stored to weights as kernels read them: packed once, when a model is loaded.

use super::groups::panel;
use super::groups_on_unit::choose;
use super::isa::Isa;
use super::layout::groups::GroupSizes;
use super::layout::nibbles::NibbleGroup;
use super::layout::{groups, halves, nibbles, pairs, tiles, wide};
use super::matrix::{Activation, Format, Matrix, Values};
use super::processor::Cpu;
use crate::checkpoint::ggml::BlockFormat;
use crate::checkpoint::{BlockMatrix, Dtype, RawTensor};

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

/// The rows of a layer's parts, one part after another.
#[derive(Clone, Copy)]
struct Stack {
    rows: usize,
    inputs: usize,
    /// Lanes of the panels that they become.
    width: usize,
}

/// The inputs of stacked matrices of blocks, which are the same of all, and their rows.
fn stacked<'a>(parts: &'a [BlockMatrix<'_>]) -> (usize, Vec<(BlockFormat, &'a [u8])>) {
    let inputs = parts[0].inputs;
    assert!(parts.iter().all(|part| part.inputs == inputs));
    (inputs, parts.iter().flat_map(|part| part.rows().map(|row| (part.format, row))).collect())
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
        let (isa, format) = (self.isa, format.unwrap_or(Format::Plain(kept)));
        let width = match format {
            Format::Plain(Dtype::F16 | Dtype::Bf16) if isa.multiplies_halves() => halves::PANEL,
            Format::Plain(_) => isa.panel(),
            Format::Q8 | Format::Q8Wide | Format::Q4 => panel(isa),
        };
        let sizes = match format {
            Format::Q8Wide => GroupSizes::equal(groups::wide_group_of(inputs)),
            Format::Plain(_) | Format::Q8 | Format::Q4 => GroupSizes::fine(groups::group_of(inputs)),
        };
        if matches!(format, Format::Q8 | Format::Q8Wide) {
            choose(isa, sizes.activations);
        }
        self.packed(Stack { rows: rows.len(), inputs, width }, bias, activation, |lanes| {
            let count = lanes.count();
            let read = |lane: usize, weights: &mut [f32]| match lanes.row(lane) {
                Some(row) => rows[row].0.read_row(rows[row].1, weights),
                None => weights.fill(0.0),
            };
            match format {
                Format::Plain(Dtype::F16 | Dtype::Bf16) if isa.multiplies_halves() => {
                    let (values, scales) = halves::pack_panels(count, inputs, read);
                    Values::Halves(values, scales)
                }
                Format::Plain(Dtype::F32) => Values::F32(wide::pack_panels(count, inputs, width, read)),
                Format::Plain(Dtype::F16) => Values::F16(wide::pack_panels(count, inputs, width, read)),
                Format::Plain(Dtype::Bf16) if isa == Isa::Amx => {
                    Values::Bf16Tiles(tiles::pack_panels(count, inputs, read))
                }
                Format::Plain(Dtype::Bf16) => {
                    Values::Bf16Pairs(pairs::pack_panels(count, inputs, width, read))
                }
                Format::Q8 | Format::Q8Wide => {
                    Values::Q8(groups::pack_panels(count, inputs, (sizes.weights, width), read), sizes)
                }
                Format::Q4 => Values::Q4(nibbles::pack_panels(count, inputs, width, |lane, put| {
                    if lanes.row(lane).is_some() {
                        let mut weights = vec![0.0; inputs];
                        read(lane, &mut weights);
                        NibbleGroup::of_row(&weights, put);
                    }
                })),
            }
        })
    }

    /// Packs matrices of blocks, stacked by outputs, with equal inputs: the very integers that are stored, of eight
    /// bits all or of four all ([`BlockMatrix::has_four_bits`]).
    pub fn pack_blocks(
        &self,
        parts: &[BlockMatrix<'_>],
        bias: Option<Vec<f32>>,
        activation: Activation,
    ) -> Matrix {
        let (inputs, rows) = stacked(parts);
        let is_four_bit = parts.iter().all(BlockMatrix::has_four_bits);
        assert!(is_four_bit || parts.iter().all(|part| part.format == BlockFormat::Q8_0));
        let (width, sizes) = (panel(self.isa), GroupSizes::equal(groups::PIECE));
        if !is_four_bit {
            choose(self.isa, sizes.activations);
        }
        self.packed(Stack { rows: rows.len(), inputs, width }, bias, activation, |lanes| {
            let row = |lane: usize| lanes.row(lane).map(|row| rows[row]);
            if is_four_bit {
                return Values::Q4(nibbles::pack_panels(lanes.count(), inputs, width, |lane, put| {
                    let Some((format, blocks)) = row(lane) else { return };
                    format.four_bit_groups(blocks, &mut |numbers, scale, minimum| {
                        put(NibbleGroup { numbers, scale, minimum });
                    });
                }));
            }
            let row = |lane: usize| row(lane).map(|(_, blocks)| blocks);
            Values::Q8(groups::copy_panels(lanes.count(), inputs, width, row), sizes)
        })
    }

    /// A layer of stacked rows, whose values `pack` puts into lanes.
    fn packed(
        &self,
        Stack { rows, inputs, width }: Stack,
        bias: Option<Vec<f32>>,
        activation: Activation,
        pack: impl FnOnce(Lanes) -> Values + Send,
    ) -> Matrix {
        assert!(bias.as_ref().is_none_or(|bias| bias.len() == rows));
        let is_gated = activation.is_gated();
        assert!(!is_gated || rows.is_multiple_of(2), "every gate has what it gates");
        let outputs = if is_gated { rows / 2 } else { rows };
        let lanes = Lanes { outputs, width, is_gated };
        let values = self.run(|| pack(lanes));
        let in_lane = |bias: &[f32], lane| lanes.row(lane).map_or(0.0, |row| bias[row]);
        let bias = bias.map(|bias| (0..lanes.count()).map(|lane| in_lane(&bias, lane)).collect());
        Matrix { outputs, inputs, activation, isa: self.isa, width, values, bias }
    }
}
