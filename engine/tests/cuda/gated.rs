//! Products of gates and what they gate, which kernels of few rows activate as they write them.

use std::sync::Arc;

use engine::device::cuda::{Buffer, Element, Factors, Gate, Gpu, Linear, Scales};

use crate::emulated;
use crate::kernels::{floats, read_floats, rounded};
use crate::split::wave;

/// What such a product gives, by definition, of outputs that come under scales.
fn gated(
    (x, w): (&[f32], &[f32]),
    (of_rows, of_outputs): (&[f32], &[f32]),
    bias: Option<&[f32]>,
    activation: usize,
) -> Vec<f64> {
    let (inputs, width) = (w.len() / of_outputs.len(), of_outputs.len() / 2);
    let activated = |x: f64| match activation {
        1 => x / (1.0 + (-x).exp()),
        _ => x / (1.0 + (-1.595_769_1 * (x + 0.044_715 * x.powi(3))).exp()),
    };
    let sum = |row: usize, output: usize| {
        let pairs = x[row * inputs..][..inputs].iter().zip(&w[output * inputs..][..inputs]);
        let sum: f64 = pairs.map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
        let scaled = sum * f64::from(of_rows[row]) * f64::from(of_outputs[output]);
        scaled + bias.map_or(0.0, |bias| f64::from(bias[output]))
    };
    let of_row = |row: usize| -> Vec<f64> {
        (0..width).map(|column| activated(sum(row, column)) * sum(row, width + column)).collect()
    };
    (0..of_rows.len()).flat_map(of_row).collect()
}

#[test]
fn products_of_few_rows_activate_what_is_gated_as_they_write_it() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let gpu = Arc::clone(&gpus[0]) as Arc<dyn Gpu>;
    let buffer = |bytes: &[u8]| Buffer::of(&gpu, bytes).expect("it fits");
    let width = 80; // more pieces than blocks
    for (kind, out) in
        [("bf16", Element::Bf16), ("f16", Element::F16), ("e4m3", Element::Bf16), ("e4m3", Element::F16)]
    {
        for (rows, inputs, activation, has_bias) in
            [(1, 48, 1, false), (8, 2_208, 3, true), (11, 48, 1, true), (29, 48, 3, false)]
        {
            let is_fp8 = kind == "e4m3";
            let (x_bytes, x) = rounded(kind, &wave(0.5, 0.71, rows * inputs));
            let (w_bytes, w) = rounded(kind, &wave(0.1, 0.37, 2 * width * inputs));
            let of_bias = match (is_fp8, out) {
                (true, _) => "f32",
                (false, Element::F16) => "f16",
                (false, _) => "bf16",
            };
            let (bias_bytes, bias) = rounded(of_bias, &wave(0.5, 2.3, 2 * width));
            let [x_buffer, w_buffer, bias_buffer] =
                [&x_bytes, &w_bytes, &bias_bytes].map(|bytes| buffer(bytes));
            let new = |width: usize| Buffer::new(&gpu, 4 * rows * width).expect("it fits");
            let (y, wide, most) = (new(width), new(2 * width), new(1));
            let (of_rows, of_outputs) = match is_fp8 {
                true => (wave(1.5, 3.1, rows + 1)[1..].to_vec(), wave(1.2, 1.9, 2 * width)),
                false => (vec![1.0; rows], vec![1.0; 2 * width]),
            };
            let [row_scales, scales] = [&of_rows, &of_outputs].map(|scales| floats(&gpu, scales));
            let scales_at =
                Scales { rows: row_scales.address(), outputs: scales.address(), sums: wide.address() };
            let product = Linear {
                rows,
                outputs: 2 * width,
                inputs,
                factors: if is_fp8 { Factors::E4m3 } else { Factors::Of(out) },
                x: x_buffer.address(),
                w: w_buffer.address(),
                bias: has_bias.then(|| bias_buffer.address()),
                y: y.address(),
                out,
                adds: false,
                scales: is_fp8.then_some(scales_at),
                gate: Some(Gate { activation, wide: wide.address(), most: is_fp8.then(|| most.address()) }),
            };
            gpus[0].launched();
            gpu.linear(&product).expect("it runs");
            assert_eq!(gpus[0].launched().len(), 1, "nothing but the product");
            assert!(gpus[0].ran().iter().any(|name| name.starts_with(&format!("product_gated_{kind}"))));
            let mut bytes = vec![0; y.bytes()];
            gpu.read(y.address(), &mut bytes).expect("it is there");
            let bias = has_bias.then_some(&bias[..]);
            let expected = gated((&x, &w), (&of_rows, &of_outputs), bias, activation);
            let found: Vec<f32> = bytes.as_chunks::<2>().0[..rows * width]
                .iter()
                .map(|bits| match out {
                    Element::F16 => half::f16::from_le_bytes(*bits).to_f32(),
                    _ => half::bf16::from_le_bytes(*bits).to_f32(),
                })
                .collect();
            for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
                let bound = expected.abs() / if out == Element::F16 { 1_000.0 } else { 250.0 };
                let apart = (f64::from(*found) - expected).abs();
                assert!(apart < 1e-4 + bound, "{kind} {inputs} {rows}, {at}: {found} for {expected}");
            }
            let largest = |row: &[f32]| row.iter().fold(0.0_f32, |most, number| most.max(number.abs()));
            let expected: Vec<f32> =
                found.chunks_exact(width).map(|row| if is_fp8 { largest(row) } else { 0.0 }).collect();
            assert_eq!(read_floats(&gpu, &most), expected, "{kind} {rows}: each row's largest");
        }
    }
}
