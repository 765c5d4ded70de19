//! Integer products against sums in double precision over the very integers that were packed.

use super::super::Cpu;
use super::super::product::{Outputs, multiply};
use super::super::tile::row_blocks;
use super::*;

/// A number in -1..1 that depends on `index` alone.
fn noise(index: usize) -> f32 {
    let bits = (index as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((bits >> 40) as f32) / 8_388_608.0 - 1.0
}

/// Rows and weights as kernels read them, and the numbers that they mean.
struct Case {
    shape: (usize, usize, usize),
    activations: Vec<Group>,
    panels: Packed<u8>,
    width: usize,
}

impl Case {
    fn new(isa: Isa, shape: (usize, usize, usize), value: impl Fn(usize) -> f32 + Sync) -> Self {
        let (rows, inputs, outputs) = shape;
        let x: Vec<f32> = (0..rows * inputs).map(|i| value(i + 77)).collect();
        let read = |row: usize, weights: &mut [f32]| {
            weights.iter_mut().enumerate().for_each(|(k, weight)| *weight = value(row * inputs + k));
        };
        let width = isa.panel();
        let panels = pack_panels(outputs, inputs, width, read);
        let mut packed = Vec::new();
        quantise_rows(isa, &x, inputs, &mut packed);
        Self { shape, activations: packed, panels, width }
    }

    fn product(&self, cpu: &Cpu) -> Vec<f32> {
        let (rows, inputs, outputs) = self.shape;
        let kernel = Groups {
            isa: cpu.isa(),
            rows,
            groups: group_count(inputs),
            width: self.width,
            activations: &self.activations,
            panels: &self.panels,
        };
        let blocks: Vec<RowBlock> = row_blocks(rows, rows_max(cpu.isa())).collect();
        let mut y = vec![f32::NAN; rows * outputs];
        cpu.run(|| {
            multiply(&kernel, &blocks, Outputs { count: outputs, width: self.width, bias: None }, &mut y)
        });
        y
    }

    /// Row `t` of the activations, as rounded.
    fn activations_of(&self, t: usize) -> Vec<f64> {
        let (rows, inputs, _) = self.shape;
        let at = |k: usize| {
            let group = k / GROUP;
            let group =
                &self.activations[(group / DEPTH_BLOCK * rows + t) * DEPTH_BLOCK + group % DEPTH_BLOCK];
            f64::from(group.values[k % GROUP]) * f64::from(group.scale)
        };
        (0..inputs).map(at).collect()
    }

    /// Weights of output `o`, as rounded.
    fn weights_of(&self, o: usize) -> Vec<f32> {
        let bytes = group_count(self.shape.1) * group_bytes(self.width);
        let mut row = vec![0.0; self.shape.1];
        unpack(&self.panels[o / self.width * bytes..][..bytes], (o % self.width, self.width), &mut row);
        row
    }
}

/// Compares a product with the sums over its rounded operands: all that is left is single-precision rounding.
fn check(cpu: &Cpu, shape: (usize, usize, usize), value: impl Fn(usize) -> f32 + Sync) {
    let case = Case::new(cpu.isa(), shape, value);
    let y = case.product(cpu);
    let (rows, _, outputs) = shape;
    let weights: Vec<Vec<f32>> = (0..outputs).map(|o| case.weights_of(o)).collect();
    for t in 0..rows {
        let activations = case.activations_of(t);
        for (o, weights) in weights.iter().enumerate() {
            let terms = || activations.iter().zip(weights).map(|(a, w)| a * f64::from(*w));
            let (exact, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
            let found = f64::from(y[t * outputs + o]);
            let error = (found - exact).abs();
            assert!(
                error <= 3e-6 * size,
                "{:?} {shape:?} row {t} output {o}: {found} for {exact}",
                cpu.isa()
            );
        }
    }
}

#[test]
fn integer_products_of_every_kernel_equal_the_exact_sums_on_shape_edges() {
    for isa in Isa::available() {
        let cpu = &Cpu::with_isa(Some(2), isa).expect("threads start");
        for rows in [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 25] {
            for (inputs, outputs) in
                [(1, 1), (3, 33), (4, 15), (31, 16), (32, 32), (33, 31), (64, 48), (96, 70)]
            {
                check(cpu, (rows, inputs, outputs), noise);
            }
        }
        for groups in [DEPTH_BLOCK - 1, DEPTH_BLOCK, DEPTH_BLOCK + 1, 2 * DEPTH_BLOCK + 3] {
            check(cpu, (14, groups * GROUP - 5, 65), noise);
        }
    }
}

#[test]
fn the_largest_magnitudes_of_either_sign_do_not_overflow() {
    for isa in Isa::available() {
        let cpu = &Cpu::with_isa(Some(1), isa).expect("threads start");
        let signs: [fn(usize) -> f32; 3] =
            [|_| 1.0, |_| -1.0, |i| if i.is_multiple_of(3) { -1.0 } else { 1.0 }];
        for value in signs {
            check(cpu, (7, 5 * GROUP, 35), value);
        }
    }
}

#[test]
fn rounding_moves_a_number_by_at_most_half_a_step_of_its_group() {
    for isa in Isa::available() {
        let inputs = 3 * GROUP + 7;
        // Groups of very different sizes: each has a step of its own.
        let value = |i: usize| noise(i) * 10f32.powi((i % inputs / GROUP) as i32 * 2 - 3);
        let case = Case::new(isa, (2, inputs, 40), value);
        let step = |values: &[f32]| values.iter().fold(0.0f32, |max, x| max.max(x.abs())) / LARGEST;
        for o in 0..40 {
            let exact: Vec<f32> = (0..inputs).map(|k| value(o * inputs + k)).collect();
            for (exact, found) in exact.chunks(GROUP).zip(case.weights_of(o).chunks(GROUP)) {
                let apart = exact.iter().zip(found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(apart <= 0.56 * step(exact), "{isa:?} {o}: {apart}"); // the scale is rounded too
            }
        }
        for t in 0..2 {
            let exact: Vec<f32> = (0..inputs).map(|k| value(t * inputs + k + 77)).collect();
            for (exact, found) in exact.chunks(GROUP).zip(case.activations_of(t).chunks(GROUP)) {
                let apart =
                    exact.iter().zip(found).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
                assert!(apart <= 0.501 * f64::from(step(exact)), "{isa:?} {t}: {apart}");
            }
        }
    }
}

#[test]
fn packing_what_was_packed_before_changes_nothing() {
    let (inputs, outputs, width) = (70, 33, 16);
    let noisy = |row: usize, weights: &mut [f32]| {
        weights.iter_mut().enumerate().for_each(|(k, weight)| *weight = noise(row * inputs + k) / 50.0);
    };
    let once = pack_panels(outputs, inputs, width, noisy);
    let bytes = group_count(inputs) * group_bytes(width);
    let again = pack_panels(outputs, inputs, width, |row, weights| {
        unpack(&once[row / width * bytes..][..bytes], (row % width, width), weights);
    });
    assert_eq!(once[..], again[..]);
}
