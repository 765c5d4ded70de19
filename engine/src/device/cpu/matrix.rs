//! Linear layers: a weight matrix packed for the tile kernel, and the product with it.
//!
//! Panel `p` holds outputs `p * width ..`, stored `[inputs, width]`: a product streams each panel once, in
//! order, whatever its element type, and widens it in registers.

use rayon::prelude::*;

use super::tile::{Element, Tile, pack_rows, row_blocks};
use super::{Cpu, Isa};
use crate::checkpoint::{Dtype, RawTensor};

/// Sums longer than this are cut when there are many rows, so that a panel's piece stays in cache.
const DEPTH_BLOCK: usize = 1024;

/// Row blocks that one task takes over a panel: their packed activations stay in cache.
const ROW_BLOCKS_PER_TASK: usize = 16;

/// Packed weights in the element type they are kept in.
enum Values {
    F32(Vec<f32>),
    F16(Vec<half::f16>),
    Bf16(Vec<half::bf16>),
}

/// The weights of a linear layer, `[outputs, inputs]`, packed; with its bias, where it has one.
pub struct Matrix {
    outputs: usize,
    inputs: usize,
    width: usize,
    values: Values,
    bias: Option<Vec<f32>>,
}

/// Memory that products reuse from call to call.
#[derive(Default)]
pub struct Scratch {
    packed: Vec<f32>,
}

/// The result of a product while several threads fill different columns of it.
#[derive(Clone, Copy)]
struct Output(*mut f32);
// SAFETY: tasks write disjoint columns or rows (see `Cpu::multiply`).
unsafe impl Send for Output {}
// SAFETY: as above.
unsafe impl Sync for Output {}

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
            Values::F32(values) => values.len() * 4,
            Values::F16(values) => values.len() * 2,
            Values::Bf16(values) => values.len() * 2,
        }
    }

    /// Weights of output `index`, widened: how a tied embedding is looked up.
    pub fn row(&self, index: usize, row: &mut [f32]) {
        assert!(index < self.outputs && row.len() == self.inputs);
        let first = index / self.width * self.inputs * self.width + index % self.width;
        match &self.values {
            Values::F32(values) => gather(&values[first..], self.width, row),
            Values::F16(values) => gather(&values[first..], self.width, row),
            Values::Bf16(values) => gather(&values[first..], self.width, row),
        }
    }
}

/// `row[k] = column[k * width]`.
fn gather<E: Element>(column: &[E], width: usize, row: &mut [f32]) {
    for (value, element) in row.iter_mut().zip(column.iter().step_by(width)) {
        *value = element.widen();
    }
}

/// Element `index` of a stored tensor.
fn element<E: Element>(tensor: &RawTensor<'_>, index: usize) -> E {
    let at = index * tensor.dtype.bytes();
    let byte = |offset: usize| tensor.data[at + offset];
    E::narrow(match tensor.dtype {
        Dtype::F32 => f32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)]),
        Dtype::F16 => half::f16::from_le_bytes([byte(0), byte(1)]).to_f32(),
        Dtype::Bf16 => half::bf16::from_le_bytes([byte(0), byte(1)]).to_f32(),
    })
}

/// The rows of `parts`, one after another, as panels of `width`; rows that are missing in the last are zero.
fn pack<E: Element>(parts: &[RawTensor<'_>], inputs: usize, width: usize) -> Vec<E> {
    let rows: Vec<(&RawTensor<'_>, usize)> =
        parts.iter().flat_map(|part| (0..part.shape[0]).map(move |row| (part, row))).collect();
    let mut values = vec![E::ZERO; rows.len().div_ceil(width) * width * inputs];
    values.par_chunks_mut(width * inputs).zip(rows.par_chunks(width)).for_each(|(panel, rows)| {
        for (lane, (part, row)) in rows.iter().enumerate() {
            for k in 0..inputs {
                panel[k * width + lane] = element(part, row * inputs + k);
            }
        }
    });
    values
}

impl Cpu {
    /// Packs the matrices `parts`, stacked by outputs: each `[outputs, inputs]`, with equal inputs.
    ///
    /// They are kept as `dtype`; `None` keeps the type they all have, or else single precision.
    pub fn pack(&self, parts: &[RawTensor<'_>], bias: Option<Vec<f32>>, dtype: Option<Dtype>) -> Matrix {
        let inputs = parts[0].shape[1];
        let outputs = parts.iter().map(|part| part.shape[0]).sum();
        assert!(
            parts.iter().all(|part| part.shape[1] == inputs && part.elements() == part.shape[0] * inputs)
        );
        assert!(bias.as_ref().is_none_or(|bias| bias.len() == outputs));
        let stored = parts[0].dtype;
        let kept = if parts.iter().all(|part| part.dtype == stored) { stored } else { Dtype::F32 };
        let width = self.isa.panel();
        let values = self.run(|| match dtype.unwrap_or(kept) {
            Dtype::F32 => Values::F32(pack(parts, inputs, width)),
            Dtype::F16 => Values::F16(pack(parts, inputs, width)),
            Dtype::Bf16 => Values::Bf16(pack(parts, inputs, width)),
        });
        Matrix { outputs, inputs, width, values, bias }
    }

    /// `y[t, o] = sum over i of x[t, i] * weights[o, i] (+ bias[o])`, for as many rows `t` as `x` has.
    pub fn linear(&self, x: &[f32], weights: &Matrix, y: &mut [f32], scratch: &mut Scratch) {
        let rows = x.len() / weights.inputs;
        assert!(x.len() == rows * weights.inputs && y.len() == rows * weights.outputs);
        assert!(weights.width == self.isa.panel(), "the matrix was packed by this device");
        if rows == 0 {
            return;
        }
        match &weights.values {
            Values::F32(values) => self.multiply(x, rows, weights, values, y, scratch),
            Values::F16(values) => self.multiply(x, rows, weights, values, y, scratch),
            Values::Bf16(values) => self.multiply(x, rows, weights, values, y, scratch),
        }
    }

    fn multiply<E: Element>(
        &self,
        x: &[f32],
        rows: usize,
        weights: &Matrix,
        values: &[E],
        y: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let blocks: Vec<(usize, usize)> = row_blocks(rows, self.isa.rows_max()).collect();
        let packed = pack_blocks(x, weights.inputs, &blocks, scratch);
        let panels = weights.outputs.div_ceil(weights.width);
        let panels_per_task = panels.div_ceil(4 * rayon::current_num_threads()).max(1);
        let chunks = panels.div_ceil(panels_per_task);
        let groups: Vec<&[(usize, usize)]> = blocks.chunks(ROW_BLOCKS_PER_TASK).collect();
        let output = Output(y.as_mut_ptr());
        (0..chunks * groups.len()).into_par_iter().for_each(|task| {
            let (group, chunk) = (groups[task / chunks], task % chunks);
            for panel in chunk * panels_per_task..panels.min((chunk + 1) * panels_per_task) {
                let size = weights.inputs * weights.width;
                let b = &values[panel * size..(panel + 1) * size];
                // SAFETY: each task owns its panels' columns in its groups' rows of `y`, all inside `y`.
                unsafe { panel_product(self.isa, packed, group, (weights, panel), b, output) };
            }
        });
    }
}

/// Packs `x` block by block of rows; one row is packed as it is.
fn pack_blocks<'a>(
    x: &'a [f32],
    inputs: usize,
    blocks: &[(usize, usize)],
    scratch: &'a mut Scratch,
) -> &'a [f32] {
    if blocks.iter().all(|(_, rows)| *rows == 1) {
        return x;
    }
    scratch.packed.resize(x.len().max(scratch.packed.len()), 0.0);
    let mut rest = &mut scratch.packed[..x.len()];
    let mut pieces = Vec::with_capacity(blocks.len());
    for (first, rows) in blocks {
        let (piece, after) = rest.split_at_mut(rows * inputs);
        pieces.push((&x[first * inputs..(first + rows) * inputs], piece));
        rest = after;
    }
    pieces.into_par_iter().with_min_len(4).for_each(|(from, to)| pack_rows(from, inputs, to));
    &scratch.packed[..x.len()]
}

/// The product of some row blocks with one panel, bias included.
///
/// # Safety
/// `output` holds all rows and `weights.outputs` columns, and no other thread touches this panel's columns of them.
unsafe fn panel_product<E: Element>(
    isa: Isa,
    packed: &[f32],
    blocks: &[(usize, usize)],
    (weights, panel): (&Matrix, usize),
    b: &[E],
    output: Output,
) {
    let (width, inputs, outputs) = (weights.width, weights.inputs, weights.outputs);
    let columns = width.min(outputs - panel * width);
    let mut start = [0.0f32; 32];
    if let Some(bias) = &weights.bias {
        start[..columns].copy_from_slice(&bias[panel * width..panel * width + columns]);
    }
    let step = if blocks.len() > 1 { DEPTH_BLOCK } else { inputs };
    for depth_first in (0..inputs).step_by(step.max(1)) {
        let depth = step.min(inputs - depth_first);
        for (first, rows) in blocks {
            let a = &packed[first * inputs + depth_first * rows..][..depth * rows];
            // SAFETY: rows `first..first + rows` and these columns of `output` are inside it and this task's own.
            unsafe {
                let c = output.0.add(first * outputs + panel * width);
                let mut edge = [0.0f32; 12 * 32];
                let (to, row) = if columns == width { (c, outputs) } else { (edge.as_mut_ptr(), width) };
                for m in 0..*rows {
                    let from =
                        if depth_first == 0 { start.as_ptr() } else { c.add(m * outputs).cast_const() };
                    if depth_first == 0 || columns < width {
                        std::ptr::copy(from, to.add(m * row), columns);
                    }
                }
                let tile = Tile {
                    depth,
                    a: a.as_ptr(),
                    b: b.as_ptr().add(depth_first * width),
                    b_step: width,
                    c: to,
                    c_row: row,
                    accumulate: true,
                };
                E::tile(isa, *rows, width, &tile);
                if columns < width {
                    for m in 0..*rows {
                        std::ptr::copy_nonoverlapping(to.add(m * row), c.add(m * outputs), columns);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number in -1..1 that depends on `index` alone.
    fn noise(index: usize) -> f32 {
        let bits = (index as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((bits >> 40) as f32) / 8_388_608.0 - 1.0
    }

    fn bytes(dtype: Dtype, values: &[f32]) -> Vec<u8> {
        match dtype {
            Dtype::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Dtype::F16 => values.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect(),
            Dtype::Bf16 => values.iter().flat_map(|v| half::bf16::from_f32(*v).to_le_bytes()).collect(),
        }
    }

    /// Compares a product with sums in double precision over the same rounded weights.
    fn check(isa: Isa, dtype: Dtype, (rows, inputs, outputs): (usize, usize, usize), has_bias: bool) {
        let cpu = Cpu::with_isa(Some(2), isa).expect("threads start");
        let weights: Vec<f32> = (0..inputs * outputs).map(noise).collect();
        let data = bytes(dtype, &weights);
        let tensor = RawTensor { dtype, shape: vec![outputs, inputs], data: &data };
        let rounded = tensor.to_f32();
        let x: Vec<f32> = (0..rows * inputs).map(|i| noise(i + 77)).collect();
        let bias: Vec<f32> = (0..outputs).map(|i| noise(i + 7)).collect();
        let matrix = cpu.pack(&[tensor], has_bias.then(|| bias.clone()), None);
        let mut y = vec![f32::NAN; rows * outputs];
        cpu.run(|| cpu.linear(&x, &matrix, &mut y, &mut Scratch::default()));
        for t in 0..rows {
            for o in 0..outputs {
                let product = |i: usize| f64::from(x[t * inputs + i]) * f64::from(rounded[o * inputs + i]);
                let start = if has_bias { f64::from(bias[o]) } else { 0.0 };
                let exact = (0..inputs).map(product).sum::<f64>() + start;
                let size = (0..inputs).map(|i| product(i).abs()).sum::<f64>() + start.abs();
                let error = (f64::from(y[t * outputs + o]) - exact).abs();
                assert!(error <= 3e-6 * size, "{isa:?} {dtype:?} {rows}x{inputs}x{outputs}: {error}");
            }
        }
        let mut row = vec![0.0; inputs];
        matrix.row(outputs - 1, &mut row);
        assert_eq!(row, rounded[(outputs - 1) * inputs..]);
    }

    #[test]
    fn products_of_every_kernel_equal_the_exact_sums_on_shape_edges() {
        for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|isa| isa.is_available()) {
            for rows in [1, 2, 4, 5, 6, 7, 12, 13, 25] {
                for (inputs, outputs) in [(1, 1), (7, 15), (16, 16), (33, 31), (64, 32), (96, 70)] {
                    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
                        check(isa, dtype, (rows, inputs, outputs), rows % 2 == 1);
                    }
                }
            }
            check(isa, Dtype::Bf16, (30, 2 * DEPTH_BLOCK + 5, 45), true);
            check(isa, Dtype::F32, (12 * ROW_BLOCKS_PER_TASK + 3, 24, 40), true);
        }
    }

    #[test]
    fn a_row_has_the_same_bits_alone_and_in_a_batch() {
        let cpu = Cpu::new(Some(2)).expect("threads start");
        let (rows, inputs, outputs) = (29, 1500, 50);
        let data = bytes(Dtype::Bf16, &(0..inputs * outputs).map(noise).collect::<Vec<_>>());
        let matrix = cpu.pack(
            &[RawTensor { dtype: Dtype::Bf16, shape: vec![outputs, inputs], data: &data }],
            None,
            None,
        );
        let x: Vec<f32> = (0..rows * inputs).map(|i| noise(i + 3)).collect();
        let (mut together, mut alone) = (vec![0.0; rows * outputs], vec![0.0; outputs]);
        cpu.linear(&x, &matrix, &mut together, &mut Scratch::default());
        for (t, row) in x.chunks_exact(inputs).enumerate() {
            cpu.linear(row, &matrix, &mut alone, &mut Scratch::default());
            assert_eq!(alone, together[t * outputs..(t + 1) * outputs]);
        }
    }

    #[test]
    fn stacked_parts_are_one_matrix() {
        let cpu = Cpu::new(Some(1)).expect("threads start");
        let (a, b) = (bytes(Dtype::F32, &[1.0, 2.0]), bytes(Dtype::F16, &[3.0, 4.0, 5.0, 6.0]));
        let parts = [
            RawTensor { dtype: Dtype::F32, shape: vec![1, 2], data: &a },
            RawTensor { dtype: Dtype::F16, shape: vec![2, 2], data: &b },
        ];
        let matrix = cpu.pack(&parts, None, None);
        let mut y = [0.0; 3];
        cpu.linear(&[1.0, 10.0], &matrix, &mut y, &mut Scratch::default());
        assert_eq!(y, [21.0, 43.0, 65.0]);
    }
}
