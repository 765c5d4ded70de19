//! Products against exact sums.

use std::borrow::Cow;

use super::super::kernels::emulated::{self, Emulated};
use super::super::layout::pairs::DEPTH_BLOCK as PAIRS_BLOCK;
use super::super::layout::wide::DEPTH_BLOCK;
use super::super::product::ROW_BLOCKS_PER_TASK;
use super::*;
use crate::checkpoint::RawTensor;

/// Formats of which each has kernels, or a layout, of its own.
const FORMATS: [Format; 6] = [
    Format::Plain(Dtype::F32),
    Format::Plain(Dtype::F16),
    Format::Plain(Dtype::Bf16),
    Format::Q8,
    Format::Q8Wide,
    Format::Q4,
];

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

/// A layer of noise and its product with rows of noise.
struct LayerCase {
    inputs: usize,
    weights: Vec<f32>,
    bias: Vec<f32>,
    x: Vec<f32>,
    y: Vec<f32>,
}

impl LayerCase {
    fn run(cpu: &Cpu, dtype: Dtype, (rows, inputs, outputs): (usize, usize, usize), has_bias: bool) -> Self {
        let data = bytes(dtype, &(0..inputs * outputs).map(noise).collect::<Vec<_>>());
        let tensor = RawTensor { dtype, shape: vec![outputs, inputs], data: data.as_slice().into() };
        let weights = tensor.to_f32();
        let x: Vec<f32> = (0..rows * inputs).map(|i| noise(i + 77)).collect();
        let bias: Vec<f32> = (0..outputs).map(|i| if has_bias { noise(i + 7) } else { 0.0 }).collect();
        let matrix = cpu.pack(&[tensor], has_bias.then(|| bias.clone()), None);
        let mut y = vec![f32::NAN; rows * outputs];
        cpu.run(|| cpu.linear(&x, &matrix, &mut y, &mut Scratch::default()));
        let mut row = vec![0.0; inputs];
        for output in [0, outputs / 2, outputs - 1] {
            matrix.row(output, &mut row);
            assert_eq!(row, weights[output * inputs..][..inputs]);
        }
        Self { inputs, weights, bias, x, y }
    }

    /// The largest difference of an output from its sum over rows `x` in double precision, in units of the
    /// sum of its products' magnitudes.
    fn error(&self, x: &[f32]) -> f64 {
        let mut worst = 0.0f64;
        let outputs = self.bias.len();
        for (row, y) in x.chunks_exact(self.inputs).zip(self.y.chunks_exact(outputs)) {
            for ((weights, bias), y) in self.weights.chunks_exact(self.inputs).zip(&self.bias).zip(y) {
                let products = || row.iter().zip(weights).map(|(x, w)| f64::from(*x) * f64::from(*w));
                let exact = products().sum::<f64>() + f64::from(*bias);
                let size = products().map(f64::abs).sum::<f64>() + f64::from(bias.abs());
                let error = (f64::from(*y) - exact).abs() / size;
                worst = if error <= worst { worst } else { error }; // what is not a number is worst
            }
        }
        worst
    }
}

/// Compares a product with exact sums over the same rounded weights, and the same rounded activations where
/// the kernel rounds them; then those over the activations as they are.
fn check(cpu: &Cpu, dtype: Dtype, shape: (usize, usize, usize), has_bias: bool) {
    /// Rounding to nearest moves a number by at most half a unit in the last of bf16's eight places.
    const ROUNDED: f64 = 1.0 / 256.0;
    // Each step of a sum in single precision rounds by up to 2^-24, up or down.
    let sums = (2.0 + 2.0 * (shape.1 as f64).sqrt()) / f64::from(1 << 24);
    let isa = cpu.isa();
    let case = LayerCase::run(cpu, dtype, shape, has_bias);
    let is_rounded = dtype == Dtype::Bf16 && isa.rounds_activations();
    let is_half = dtype != Dtype::F32 && isa.multiplies_halves();
    if is_rounded {
        let rounded: Vec<f32> = case.x.iter().map(|x| half::bf16::from_f32(*x).to_f32()).collect();
        let error = case.error(&rounded);
        assert!(error <= sums, "{isa:?} {dtype:?} {shape:?}: {error}");
    }
    let error = case.error(&case.x);
    let is_rough = is_rounded || is_half;
    assert!(error <= if is_rough { sums + ROUNDED } else { sums }, "{isa:?} {dtype:?} {shape:?}: {error}");
}

#[test]
fn products_of_every_kernel_equal_the_exact_sums_on_shape_edges() {
    for isa in Isa::available() {
        let cpu = &Cpu::with_isa(Some(2), isa).expect("threads start");
        for rows in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 25] {
            for (inputs, outputs) in
                [(1, 1), (2, 33), (7, 15), (16, 16), (31, 32), (33, 31), (64, 32), (96, 70)]
            {
                for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
                    check(cpu, dtype, (rows, inputs, outputs), rows % 2 == 1);
                }
            }
        }
        for rows in [3, 30] {
            check(cpu, Dtype::Bf16, (rows, 2 * DEPTH_BLOCK + 5, 45), true);
        }
        // More activations than a cache holds: several panels are under way at once.
        check(cpu, Dtype::F16, (70, 4201, 130), false);
        check(cpu, Dtype::F32, (12 * ROW_BLOCKS_PER_TASK + 3, 24, 40), true);
        check(cpu, Dtype::Bf16, (32 * ROW_BLOCKS_PER_TASK + 3, 24, 40), true);
        for inputs in [2 * PAIRS_BLOCK - 1, 2 * PAIRS_BLOCK, 2 * PAIRS_BLOCK + 1, 4 * PAIRS_BLOCK + 31] {
            check(cpu, Dtype::Bf16, (14, inputs, 65), false);
        }
    }
}

#[test]
fn a_row_has_the_same_bits_alone_and_in_a_batch() {
    let (rows, inputs, outputs) = (71, 1501, 50);
    let x: Vec<f32> = (0..rows * inputs).map(|i| noise(i + 3)).collect();
    for (isa, format) in Isa::available().flat_map(|isa| FORMATS.map(|format| (isa, format))) {
        let cpu = Cpu::with_isa(Some(2), isa).expect("threads start");
        let data = bytes(Dtype::F32, &(0..inputs * outputs).map(noise).collect::<Vec<_>>());
        let tensor =
            RawTensor { dtype: Dtype::F32, shape: vec![outputs, inputs], data: data.as_slice().into() };
        let matrix = cpu.pack(&[tensor], None, Some(format));
        let mut scratch = Scratch::default();
        let (mut together, mut alone) = (vec![0.0; rows * outputs], vec![0.0; outputs]);
        cpu.linear(&x, &matrix, &mut together, &mut scratch);
        for (row, expected) in x.chunks_exact(inputs).zip(together.chunks_exact(outputs)) {
            cpu.linear(row, &matrix, &mut alone, &mut scratch);
            assert_eq!(alone, expected, "{isa:?} {format:?}");
        }
    }
}

#[test]
fn integer_products_have_the_same_bits_on_all_vectors_and_on_the_unit() {
    let (rows, outputs) = (29, 50);
    let formats = [Format::Q8, Format::Q8Wide, Format::Q4];
    for (format, inputs) in formats.into_iter().flat_map(|f| [(f, 1501), (f, 1536)]) {
        let data = bytes(Dtype::F32, &(0..inputs * outputs).map(noise).collect::<Vec<_>>());
        let x: Vec<f32> = (0..rows * inputs).map(|i| noise(i + 3)).collect();
        let product = |isa| {
            let cpu = Cpu::with_isa(Some(2), isa).expect("threads start");
            let tensor =
                RawTensor { dtype: Dtype::F32, shape: vec![outputs, inputs], data: data.as_slice().into() };
            let matrix = cpu.pack(&[tensor], None, Some(format));
            let mut y = vec![0.0; rows * outputs];
            cpu.linear(&x, &matrix, &mut y, &mut Scratch::default());
            y
        };
        // Plain Rust rounds once more where the others have an addition fused with its multiplication.
        let mut others = Isa::available().filter(|isa| *isa != Isa::Portable);
        if let Some(first) = others.next() {
            let expected = product(first);
            others
                .for_each(|isa| assert_eq!(product(isa), expected, "{isa:?} {first:?} {format:?} {inputs}"));
        }
    }
}

#[test]
fn integers_meet_the_unit_where_it_is_taken_and_vectors_elsewhere_with_the_same_bits() {
    let (inputs, outputs, width) = (320, 70, 64);
    let read = |row: usize, weights: &mut [f32]| {
        weights.iter_mut().enumerate().for_each(|(k, weight)| *weight = noise(row * inputs + k));
    };
    // The vectors whose bits the unit gives.
    let sets = Isa::available().filter(|isa| *isa == Isa::Portable || *isa >= Isa::Avx512Vnni);
    let sizes = [GroupSizes::fine(32), GroupSizes::fine(64), GroupSizes::equal(64), GroupSizes::equal(320)];
    for (isa, sizes) in sets.flat_map(|isa| sizes.map(|sizes| (isa, sizes))) {
        let cpu = Cpu::with_isa(Some(2), isa).expect("threads start");
        let panels = groups::pack_panels(outputs, inputs, (sizes.weights, width), read);
        let values = Values::Q8(panels, sizes);
        let activation = Activation::None;
        let matrix = Matrix { outputs, inputs, activation, isa, width, values, bias: None };
        for rows in [TILE - 1, TILE, 33, 70] {
            let x: Vec<f32> = (0..rows * inputs).map(|i| noise(i + 77)).collect();
            let product = |is_taken: bool| {
                let (mut y, mut scratch) = (vec![f32::NAN; rows * outputs], Scratch::default());
                let asked = |of: Isa, of_group: usize, count: usize| {
                    assert_eq!((of, of_group, count), (isa, sizes.activations, rows));
                    is_taken
                };
                let to = ProductOutputs { count: outputs, width, finish: Finish::Write, bias: None };
                let x = LeftOperand::Singles(&x);
                let mut is_on_unit = false;
                cpu.with_kernel_on::<Emulated, ()>(x, &matrix, &mut scratch, asked, |kernel, blocks| {
                    assert_eq!(blocks == full_blocks(rows).collect::<Vec<_>>(), is_taken);
                    kernel.on_thread(&mut || is_on_unit = emulated::is_configured());
                    multiply(isa, kernel, blocks, to, ProductResult::Singles(&mut y));
                });
                assert_eq!(is_on_unit, is_taken, "{isa:?}, {rows} rows in {sizes:?}");
                y
            };
            let by_vectors = product(false);
            assert!(product(true) == by_vectors, "{isa:?}, {rows} rows in {sizes:?}");
            let (mut y, mut scratch) = (vec![f32::NAN; rows * outputs], Scratch::default());
            cpu.linear(&x, &matrix, &mut y, &mut scratch);
            assert!(y == by_vectors, "{isa:?}, {rows} rows in {sizes:?}");
            // The products of others ask what this machine's unit is good for.
            let x = LeftOperand::Singles(&x);
            let has_tiles = |_: &dyn Kernel, blocks: &[RowBlock]| blocks.iter().any(|it| it.rows > ROWS_MAX);
            let is_on_unit = cpu.with_kernel(x, &matrix, &mut scratch, has_tiles);
            let is_taken = groups_on_unit::is_taken(isa, sizes.activations, rows);
            assert_eq!(is_on_unit, is_taken, "{isa:?} {rows} rows");
        }
    }
}

#[test]
fn each_format_of_eight_bits_has_its_own_groups() {
    let cpu = Cpu::new(Some(1)).expect("threads start");
    for (inputs, narrow, wide) in [(1024, 128, 512), (96, 32, 128), (192, 64, 192), (40, 32, 64)] {
        let data = bytes(Dtype::F32, &(0..3 * inputs).map(noise).collect::<Vec<_>>());
        for (format, expected) in
            [(Format::Q8, GroupSizes::fine(narrow)), (Format::Q8Wide, GroupSizes::equal(wide))]
        {
            let tensor =
                RawTensor { dtype: Dtype::F32, shape: vec![3, inputs], data: data.as_slice().into() };
            let matrix = cpu.pack(&[tensor], None, Some(format));
            let is_expected = matches!(matrix.values, Values::Q8(_, sizes) if sizes == expected);
            assert!(is_expected, "{inputs} inputs in {format:?}");
        }
    }
}

#[test]
fn a_large_number_takes_the_digits_of_the_31_beside_it_and_of_no_others() {
    let (rows, inputs, outputs) = (20, 128, 70);
    // The large number meets zeros, so that all that is left of it is its scale.
    let large = |row: usize| 5 * row % 32;
    for row in 0..rows {
        let weights: Vec<f32> =
            (0..inputs * outputs).map(|i| if i % inputs == large(row) { 0.0 } else { 1.0 }).collect();
        let data = bytes(Dtype::F32, &weights);
        let x: Vec<f32> = (0..inputs).map(|k| if k == large(row) { 1000.0 } else { 1.0 }).collect();
        let x = x.repeat(row + 1);
        for isa in Isa::available() {
            let cpu = Cpu::with_isa(Some(1), isa).expect("threads start");
            let tensor =
                RawTensor { dtype: Dtype::F32, shape: vec![outputs, inputs], data: data.as_slice().into() };
            let matrix = cpu.pack(&[tensor], None, Some(Format::Q8));
            let mut y = vec![f32::NAN; (row + 1) * outputs];
            cpu.linear(&x, &matrix, &mut y, &mut Scratch::default());
            // 96 ones of either side, under scales that are rounded: a half to 2^-11.
            assert!(y.iter().all(|y| (y - 96.0).abs() < 0.1), "{isa:?}: {y:?}");
        }
    }
}

#[test]
fn what_is_not_a_number_stays_in_its_row() {
    let (inputs, outputs) = (37, 40);
    let formats = [None, Some(Format::Q8), Some(Format::Q8Wide), Some(Format::Q4)];
    for (isa, format) in Isa::available().flat_map(|isa| formats.map(|format| (isa, format))) {
        let cpu = Cpu::with_isa(Some(1), isa).expect("threads start");
        let data = bytes(Dtype::Bf16, &(0..inputs * outputs).map(noise).collect::<Vec<_>>());
        let tensor =
            RawTensor { dtype: Dtype::Bf16, shape: vec![outputs, inputs], data: data.as_slice().into() };
        let matrix = cpu.pack(&[tensor], None, format);
        for (bad, at) in [(f32::NAN, 36), (f32::INFINITY, 5)] {
            let mut x: Vec<f32> = (0..3 * inputs).map(noise).collect();
            x[inputs + at] = bad;
            let mut y = vec![0.0; 3 * outputs];
            cpu.linear(&x, &matrix, &mut y, &mut Scratch::default());
            let is_finite: Vec<bool> = y.iter().map(|y| y.is_finite()).collect();
            let expected: Vec<bool> = (0..3 * outputs).map(|i| i / outputs != 1).collect();
            assert_eq!(is_finite, expected, "{isa:?} {format:?}");
        }
    }
}

#[test]
fn weights_kept_as_integers_are_looked_up_and_multiplied_to_an_eight_bit_rounding() {
    /// Half a step of 127 on either side, and the product of both.
    const ROUNDED: f64 = 1.02 / 127.0;
    let (rows, inputs, outputs) = (5, 100, 45);
    let data = bytes(Dtype::F32, &(0..inputs * outputs).map(noise).collect::<Vec<_>>());
    let x: Vec<f32> = (0..rows * inputs).map(|i| noise(i + 77)).collect();
    let bias: Vec<f32> = (0..outputs).map(|i| noise(i + 7)).collect();
    let formats = [Format::Q8, Format::Q8Wide];
    for (isa, format) in Isa::available().flat_map(|isa| formats.map(|format| (isa, format))) {
        let cpu = Cpu::with_isa(Some(2), isa).expect("threads start");
        let tensor =
            RawTensor { dtype: Dtype::F32, shape: vec![outputs, inputs], data: data.as_slice().into() };
        let weights = tensor.to_f32();
        let matrix = cpu.pack(&[tensor], Some(bias.clone()), Some(format));
        let mut row = vec![0.0; inputs];
        for output in 0..outputs {
            matrix.row(output, &mut row);
            let apart = row.iter().zip(&weights[output * inputs..]).map(|(a, b)| (a - b).abs());
            assert!(apart.fold(0.0, f32::max) <= 0.6 / 127.0, "{isa:?} {format:?} {output}");
        }
        let mut y = vec![f32::NAN; rows * outputs];
        cpu.linear(&x, &matrix, &mut y, &mut Scratch::default());
        for (i, found) in y.iter().enumerate() {
            let (x, w) = (&x[i / outputs * inputs..][..inputs], &weights[i % outputs * inputs..][..inputs]);
            let exact: f64 = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
            // Every number is below 1: each product moves by at most the roundings of its two sides.
            let room =
                x.iter().zip(w).map(|(x, w)| f64::from(x.abs() + w.abs())).sum::<f64>() * ROUNDED / 2.0;
            let error = (f64::from(*found) - exact - f64::from(bias[i % outputs])).abs();
            assert!(error <= room + inputs as f64 * ROUNDED * ROUNDED, "{isa:?} {format:?} {i}: {error}");
        }
    }
}

#[test]
fn sums_are_added_activated_and_gated_as_the_layer_says() {
    for (isa, format) in Isa::available().flat_map(|isa| FORMATS.map(|format| (isa, format))) {
        let cpu = Cpu::with_isa(Some(2), isa).expect("threads start");
        for (rows, inputs, outputs) in [(1, 40, 1), (3, 33, 8), (14, 64, 17), (25, 70, 45)] {
            let data = bytes(Dtype::F32, &(0..2 * inputs * outputs).map(noise).collect::<Vec<_>>());
            let (gate, up) = data.split_at(data.len() / 2);
            let part = |data| RawTensor {
                dtype: Dtype::F32,
                shape: vec![outputs, inputs],
                data: Cow::Borrowed(data),
            };
            let bias: Vec<f32> = (0..2 * outputs).map(|i| noise(i + 7)).collect();
            let x: Vec<f32> = (0..rows * inputs).map(|i| noise(i + 77)).collect();
            let packed = |parts: &[RawTensor<'_>], bias: &[f32], activation| {
                let matrix = cpu.pack_active(parts, Some(bias.to_vec()), Some(format), activation);
                assert_eq!(matrix.weights(), parts.len() * inputs * outputs);
                matrix
            };
            let linear = |matrix: &Matrix| {
                let mut y = vec![f32::NAN; rows * outputs];
                cpu.linear(&x, matrix, &mut y, &mut Scratch::default());
                y
            };
            let plain_gate = packed(&[part(gate)], &bias[..outputs], Activation::None);
            let plain_up = packed(&[part(up)], &bias[outputs..], Activation::None);
            let (gates, ups) = (linear(&plain_gate), linear(&plain_up));
            let same = |found: &[f32], expected: &dyn Fn(usize) -> f32| {
                let error = |(i, y): (usize, &f32)| (y - expected(i)).abs();
                let error = found.iter().enumerate().map(error).fold(0.0, f32::max);
                assert!(error < 1e-4, "{isa:?} {format:?} {outputs}: {error}");
            };
            let mut sum = vec![0.5; rows * outputs];
            cpu.linear_add(&x, &plain_gate, &mut sum, &mut Scratch::default());
            same(&sum, &|i| gates[i] + 0.5);
            let active = packed(&[part(gate)], &bias[..outputs], Activation::Relu);
            same(&linear(&active), &|i| gates[i].max(0.0));
            let gated = packed(&[part(gate), part(up)], &bias, Activation::GatedSilu);
            same(&linear(&gated), &|i| gates[i] / (1.0 + (-gates[i]).exp()) * ups[i]);
            let gated = packed(&[part(gate), part(up)], &bias, Activation::GatedGelu);
            let share = |x: f32| 1.0 / (1.0 + (-1.595_769 * (x + 0.044_715 * x.powi(3))).exp());
            same(&linear(&gated), &|i| gates[i] * share(gates[i]) * ups[i]);
        }
    }
}

#[test]
fn stacked_parts_are_one_matrix() {
    let cpu = Cpu::new(Some(1)).expect("threads start");
    let (a, b) = (bytes(Dtype::F32, &[1.0, 2.0]), bytes(Dtype::F16, &[3.0, 4.0, 5.0, 6.0]));
    let parts = [
        RawTensor { dtype: Dtype::F32, shape: vec![1, 2], data: a.as_slice().into() },
        RawTensor { dtype: Dtype::F16, shape: vec![2, 2], data: b.as_slice().into() },
    ];
    let matrix = cpu.pack(&parts, None, None);
    let mut y = [0.0; 3];
    cpu.linear(&[1.0, 10.0][..], &matrix, &mut y, &mut Scratch::default());
    assert_eq!(y, [21.0, 43.0, 65.0]);
}

#[test]
fn the_highest_of_a_product_are_those_of_its_outputs_in_every_format() {
    let integers = [Format::Q8, Format::Q8Wide, Format::Q4];
    let formats = [Dtype::F32, Dtype::F16, Dtype::Bf16].map(Format::Plain).into_iter().chain(integers);
    for (isa, format) in Isa::available().flat_map(|isa| formats.clone().map(move |format| (isa, format))) {
        let cpu = Cpu::with_isa(Some(2), isa).expect("threads start");
        for (rows, inputs, outputs) in
            [(0, 7, 15), (1, 7, 15), (3, 33, 31), (13, 64, 70), (14, 32, 600), (200, 32, 130)]
        {
            // Every third output is that of the one before it, so that there are equals.
            let weight = |i: usize| noise(i - if i / inputs % 3 == 1 { inputs } else { 0 });
            let data = bytes(Dtype::F32, &(0..inputs * outputs).map(weight).collect::<Vec<_>>());
            let tensor =
                RawTensor { dtype: Dtype::F32, shape: vec![outputs, inputs], data: data.as_slice().into() };
            let matrix = cpu.pack_active(&[tensor], None, Some(format), Activation::None);
            let x: Vec<f32> = (0..rows * inputs).map(|i| noise(i + 77)).collect();
            let (mut y, mut scratch) = (vec![0.0; rows * outputs], Scratch::default());
            let wanted: Vec<usize> = (0..rows).map(|row| [1, 3, 64][row % 3]).collect();
            for end in [outputs, outputs - outputs / 5, 0] {
                let found = cpu.run(|| {
                    cpu.linear(&x, &matrix, &mut y, &mut scratch);
                    cpu.top_k(&x, &matrix, (&wanted, end), &mut scratch)
                });
                for (row, (y, found)) in y.chunks_exact(outputs).zip(&found).enumerate() {
                    let mut sorted: Vec<(f32, u32)> = y[..end].iter().copied().zip(0..).collect();
                    sorted.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
                    sorted.truncate(wanted[row]);
                    assert_eq!(found.kept(), Some(&sorted[..]), "{isa:?} {format:?}, row {row} of {rows}");
                }
            }
        }
    }
}

#[test]
fn a_product_for_another_gives_what_it_gives_by_itself_whatever_both_are_kept_as() {
    let (rows, inputs, inner, outputs) = (45, 70, 50, 33);
    let x: Vec<f32> = (0..rows * inputs).map(noise).collect();
    for isa in Isa::available() {
        let cpu = Cpu::with_isa(Some(2), isa).expect("threads start");
        let pack = |outputs: usize, inputs: usize, format| {
            let data = bytes(Dtype::F32, &(0..outputs * inputs).map(noise).collect::<Vec<_>>());
            let tensor =
                RawTensor { dtype: Dtype::F32, shape: vec![outputs, inputs], data: data.as_slice().into() };
            cpu.pack(&[tensor], None, Some(format))
        };
        for (first, second) in FORMATS.iter().flat_map(|a| FORMATS.map(|b| (*a, b))) {
            let (up, down) = (pack(inner, inputs, first), pack(outputs, inner, second));
            let mut scratch = Scratch::default();
            let (mut between, mut expected) = (vec![0.0; rows * inner], vec![0.0; rows * outputs]);
            cpu.run(|| {
                cpu.linear(&x, &up, &mut between, &mut scratch);
                cpu.linear(&between, &down, &mut expected, &mut scratch);
            });
            let (mut operand, mut found) = (Operand::default(), vec![0.0; rows * outputs]);
            // Twice: what an earlier and larger use left there does not matter.
            for count in [rows, 7] {
                found.truncate(count * outputs);
                cpu.run(|| {
                    cpu.linear_for(&x[..count * inputs], &up, &down, &mut operand, &mut scratch);
                    cpu.linear(&operand, &down, &mut found, &mut scratch);
                });
                assert_eq!(found, expected[..count * outputs], "{isa:?} {first:?} {second:?} {count} rows");
            }
        }
    }
}
