//! Half floats against exact sums, and each kernel against the portable one.

use super::*;
use crate::device::cpu::layout::halves::pack_panels;

/// Numbers without a pattern, of magnitudes that differ as those of a model do.
fn noise(i: usize) -> f32 {
    let bits = (i as u32).wrapping_mul(2_654_435_761).rotate_left(13).wrapping_mul(0x9E37_79B9);
    let unit = f64::from(bits) / f64::from(u32::MAX) - 0.5;
    (unit * if i.is_multiple_of(29) { 90.0 } else { 1.5 }) as f32
}

/// A product of so many rows and outputs of noise, by the kernels of `isa`, in pieces as they come.
fn product(isa: Isa, shape: (usize, usize, usize)) -> Vec<f32> {
    let x: Vec<f32> = (0..shape.0 * shape.1).map(noise).collect();
    product_with(isa, shape, &x, |i| noise(i + 7) / 50.0)
}

/// The same of rows `x` with these weights, `[outputs, inputs]`.
fn product_with(
    isa: Isa,
    (rows, inputs, outputs): (usize, usize, usize),
    x: &[f32],
    weight: impl Fn(usize) -> f32 + Sync,
) -> Vec<f32> {
    let read = |row: usize, to: &mut [f32]| {
        to.iter_mut().enumerate().for_each(|(k, to)| *to = weight(row * inputs + k));
    };
    let (panels, scales) = pack_panels(outputs, inputs, read);
    let mut packed = Vec::new();
    let activations = round_rows(isa, x, inputs, &mut packed);
    let product = Halves { isa, rows, inputs, activations, panels: &panels, scales: &scales };
    let block = RowBlock { first: 0, rows };
    let mut y = Vec::new();
    for panel in 0..outputs.div_ceil(PANEL) {
        let mut sums = vec![f32::NAN; rows * PANEL];
        for first in (0..inputs).step_by(DEPTH_BLOCK) {
            let steps = Steps { first, count: DEPTH_BLOCK.min(inputs - first) };
            let piece = PanelPiece { panel, steps, unpacked: None };
            // SAFETY: only available kernels are asked for.
            unsafe { product.add(block, piece, &mut sums, None) };
        }
        y.extend(sums);
    }
    y
}

/// The error that rounding to 11 binary places leaves, in units of the sum of the products' magnitudes.
const ROUNDED: f64 = 1.0 / 512.0;

#[test]
fn the_portable_tile_is_near_the_exact_sums() {
    let (rows, inputs, outputs) = (3, 333, 70);
    let y = product(Isa::Portable, (rows, inputs, outputs));
    for (row, output) in (0..rows).flat_map(|row| (0..outputs).map(move |output| (row, output))) {
        let products = || {
            (0..inputs).map(move |k| {
                f64::from(noise(row * inputs + k)) * f64::from(noise(output * inputs + k + 7) / 50.0)
            })
        };
        let found = f64::from(y[(output / PANEL * rows + row) * PANEL + output % PANEL]);
        let error = (found - products().sum::<f64>()).abs() / products().map(f64::abs).sum::<f64>();
        assert!(error < ROUNDED, "row {row}, output {output}: {error}");
    }
}

#[test]
fn kernels_have_the_same_bits_as_the_portable_tile_for_every_number_of_rows_and_inputs() {
    if !Isa::Avx512Fp16.is_available() {
        return; // nothing to compare: other processors have no such kernel
    }
    for rows in 1..=Isa::Avx512Fp16.rows_max() {
        for inputs in [1, 2, 31, 32, 33, 64, 127, 128, 129, 300] {
            let shape = (rows, inputs, PANEL + 1);
            let [found, expected] = [Isa::Avx512Fp16, Isa::Portable].map(|isa| product(isa, shape));
            assert!(found == expected, "{shape:?}");
        }
    }
}

#[test]
fn kernels_have_the_same_bits_where_halves_are_subnormal_or_not_finite() {
    if !Isa::Avx512Fp16.is_available() {
        return; // as above
    }
    let (rows, inputs) = (Isa::Avx512Fp16.rows_max(), 2 * DEPTH_BLOCK);
    // From the largest down to what is nothing beside it.
    let falling = |i: usize| noise(i) * f32::powi(0.5, (i % 31) as i32);
    let mut x: Vec<f32> = (0..rows * inputs).map(falling).collect();
    for (row, bad) in [(1, f32::INFINITY), (2, f32::NAN), (3, f32::NEG_INFINITY)] {
        // Beside what is not finite, the second is more than a half can be.
        [x[row * inputs + 5], x[row * inputs + 6]] = [bad, 1e38];
    }
    let [found, expected] = [Isa::Avx512Fp16, Isa::Portable].map(|isa| {
        let y = product_with(isa, (rows, inputs, PANEL), &x, |i| falling(i + 7));
        y.into_iter().map(|y| (!y.is_nan()).then_some(y)).collect::<Vec<_>>()
    });
    assert!(found == expected);
    for (row, y) in expected.chunks_exact(PANEL).enumerate() {
        let is_finite = y.iter().all(|y| y.is_some_and(f32::is_finite));
        assert_eq!(is_finite, !(1..=3).contains(&row), "row {row}");
    }
}

#[test]
fn rows_of_large_and_small_magnitudes_stay_in_range() {
    let inputs = 64;
    for magnitude in [1e30_f32, 1e-30] {
        let x: Vec<f32> = (0..inputs).map(|i| magnitude * if i % 2 == 0 { 3.0 } else { -2.9 }).collect();
        for isa in [Isa::Portable, Isa::Avx512Fp16].into_iter().filter(|isa| isa.is_available()) {
            let sums = product_with(isa, (1, inputs, 1), &x, |_| 1e-4);
            let exact = 3.2 * magnitude * 1e-4;
            assert!((sums[0] / exact - 1.0).abs() < 0.05, "{isa:?}: {} of {exact}", sums[0]);
            assert!(sums[1..].iter().all(|sum| *sum == 0.0));
        }
    }
}
