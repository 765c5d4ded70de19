//! One way to have a product with weights made and to compare it with what it is defined to give.

use std::sync::Arc;

use engine::device::cuda::{Buffer, Element, Factors, Gate, Gpu, Linear, Scales};

use crate::kernels::{floats, read_floats, rounded};
use crate::q4::{kept, read, tiles};

/// A product, with scales where its factors are eight-bit floats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProductCase {
    pub(crate) factors: Factors,
    pub(crate) out: Element,
    pub(crate) rows: usize,
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
    pub(crate) has_bias: bool,
    pub(crate) adds: bool,
    /// `Activation` of the kernels, where half of the outputs are gates: 1 or 3.
    pub(crate) activation: Option<usize>,
}

/// Numbers that are neither all alike nor all their own.
fn wave(size: f32, pace: f32, count: usize) -> Vec<f32> {
    (0..count).map(|at| size * ((at % 9_973) as f32 * pace).sin()).collect()
}

/// A gate as the kernels' `Activation` of this number makes it.
fn activated(activation: usize, x: f64) -> f64 {
    match activation {
        1 => x / (1.0 + (-x).exp()),
        _ => x / (1.0 + (-1.595_769_1 * (x + 0.044_715 * x.powi(3))).exp()),
    }
}

/// Has a case run and compares it.
pub(crate) fn check(gpu: &Arc<dyn Gpu>, case: ProductCase, run: impl Fn(&Linear)) {
    let ProductCase { factors, out, rows, outputs, inputs, has_bias, adds, activation } = case;
    let buffer = |bytes: &[u8]| Buffer::of(gpu, bytes).expect("it fits");
    let (of_x, of_w) = (wave(0.5, 0.71, rows * inputs), wave(0.3, 0.37, outputs * inputs));
    let ((x_bytes, x), (w_bytes, w)) = match factors {
        Factors::Of(element) => (kept(element, &of_x), kept(element, &of_w)),
        Factors::E4m3 => (rounded("e4m3", &of_x), rounded("e4m3", &of_w)),
        Factors::Q4(element) => {
            let (packed, w) = tiles(outputs, inputs);
            // The numbers that such a matrix is unpacked to.
            (kept(element, &of_x), (packed, kept(element, &w).1))
        }
    };
    let is_fp8 = factors == Factors::E4m3;
    let width = if activation.is_some() { outputs / 2 } else { outputs };
    let (bias_bytes, bias) = kept(if is_fp8 { Element::F32 } else { out }, &wave(0.5, 2.3, outputs));
    let (mut before_bytes, before) = kept(out, &wave(1.3, 1.1, rows * width));
    before_bytes.extend([0x55; 16]); // which are not the product's
    let [x_buffer, w_buffer, bias_buffer, y] =
        [&x_bytes, &w_bytes, &bias_bytes, &before_bytes].map(|bytes| buffer(bytes));
    let (of_rows, of_outputs) = match is_fp8 {
        true => (wave(1.5, 3.1, rows + 1)[1..].to_vec(), wave(1.2, 1.9, outputs)),
        false => (vec![1.0; rows], vec![1.0; outputs]),
    };
    let [row_scales, scales] = [&of_rows, &of_outputs].map(|scales| floats(gpu, scales));
    let most = floats(gpu, &vec![0.0; rows]);
    let wide = Buffer::new(gpu, 4 * rows * outputs).expect("it fits");
    let product = Linear {
        rows,
        outputs,
        inputs,
        factors,
        x: x_buffer.address(),
        w: w_buffer.address(),
        bias: has_bias.then(|| bias_buffer.address()),
        y: y.address(),
        out,
        adds,
        scales: is_fp8.then(|| Scales {
            rows: row_scales.address(),
            outputs: scales.address(),
            sums: wide.address(),
        }),
        gate: activation.map(|activation| Gate {
            activation,
            wide: wide.address(),
            most: is_fp8.then(|| most.address()),
        }),
    };
    run(&product);
    // A sum, and that of what it is made of.
    let sum = |row: usize, output: usize| {
        let pairs = x[row * inputs..][..inputs].iter().zip(&w[output * inputs..][..inputs]);
        let pairs = pairs.map(|(x, w)| f64::from(*x) * f64::from(*w));
        let scale = f64::from(of_rows[row]) * f64::from(of_outputs[output]);
        let size: f64 = pairs.clone().map(f64::abs).sum();
        let bias = if has_bias { f64::from(bias[output]) } else { 0.0 };
        (pairs.sum::<f64>() * scale + bias, size * scale.abs())
    };
    let found = read(gpu, &y, out, rows * width + 16 / out.bytes());
    for (at, number) in found[..rows * width].iter().enumerate() {
        let (row, column) = (at / width, at % width);
        let (first, size) = sum(row, column);
        let other = activation.map_or(0.0, |_| sum(row, width + column).0);
        let mut expected = match activation {
            Some(activation) => activated(activation, first) * other,
            None => first,
        };
        expected += if adds { f64::from(before[at]) } else { 0.0 };
        let bound = match out {
            Element::F32 => 0.0,
            Element::Bf16 => 1.0 / 250.0,
            Element::F16 => 1.0 / 1_000.0,
        };
        let apart = (f64::from(*number) - expected).abs();
        // What the sums' own rounding comes to, of two that are multiplied too.
        let of_sums = 4e-6 * size * (1.0 + activation.map_or(0.0, |_| first.abs() + other.abs()));
        let bound = 1e-4 + of_sums + bound * expected.abs();
        assert!(apart < bound, "{case:?}, {row}, {column}: {number} for {expected}");
    }
    let mut bytes = vec![0; before_bytes.len()];
    gpu.read(y.address(), &mut bytes).expect("it is there");
    assert!(bytes.ends_with(&[0x55; 16]), "{case:?} writes behind its end");
    if is_fp8 && activation.is_some() {
        let largest = |row: &[f32]| row.iter().fold(0.0_f32, |most, number| most.max(number.abs()));
        let expected: Vec<f32> = found[..rows * width].chunks_exact(width).map(largest).collect();
        assert_eq!(read_floats(gpu, &most), expected, "{case:?}: each row's largest");
    }
}
