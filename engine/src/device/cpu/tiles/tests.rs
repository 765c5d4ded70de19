//! The loop over a matrix unit's tiles, in software everywhere and on the unit where there is one.

use half::bf16;

use super::super::finish::Finish;
use super::super::kernels::amx::{self, Amx};
use super::super::kernels::emulated::Emulated;
use super::super::kernels::matrix_unit::agree;
use super::super::layout::tiles::{full_blocks, pack_panels, step_count};
use super::super::operand::ProductResult;
use super::super::processor::Cpu;
use super::super::product::{ProductOutputs, multiply};
use super::*;

/// A number in -1..1 that depends on `index` alone.
fn noise(index: usize) -> f32 {
    let bits = (index as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((bits >> 40) as f32) / 8_388_608.0 - 1.0
}

/// `x` times weights of noise, on unit `U`.
fn product<U: Unit>(x: &[f32], (rows, inputs, outputs): (usize, usize, usize)) -> Vec<f32> {
    let read = |row: usize, weights: &mut [f32]| {
        weights.iter_mut().enumerate().for_each(|(k, weight)| *weight = noise(row * inputs + k));
    };
    let panels = pack_panels(outputs, inputs, read);
    let mut rounded = Vec::new();
    let activations = round_rows(Isa::Portable, x, inputs, &mut rounded);
    let kernel =
        Tiles { steps: step_count(inputs), activations, panels: &panels, unit: PhantomData::<fn() -> U> };
    let blocks: Vec<RowBlock> = full_blocks(rows).collect();
    let mut y = vec![f32::NAN; rows * outputs];
    let cpu = Cpu::with_isa(Some(2), Isa::Portable).expect("threads start");
    let outputs = ProductOutputs { count: outputs, width: PANEL, finish: Finish::Write, bias: None };
    cpu.run(|| multiply(Isa::Portable, &kernel, &blocks, outputs, ProductResult::Singles(&mut y)));
    y
}

/// Inputs of sums of several pieces, panel by panel and depth outermost, and of what fills no tile.
const INPUTS: [usize; 6] =
    [1, 33, 64, 2 * TILE * PIECE_STEPS + 3, 2 * TILE * PANEL_STEPS_MAX, 2 * TILE * (PANEL_STEPS_MAX + 1) + 1];

#[test]
fn products_on_the_unit_in_software_equal_the_exact_sums_on_shape_edges() {
    let rounded = |x: f32| f64::from(bf16::from_f32(x).to_f32());
    for rows in [1, 2, 15, 16, 17, 31, 32, 33, 70] {
        for (inputs, outputs) in INPUTS.into_iter().zip([1, 40, 33, 70, 31, 66]) {
            let x: Vec<f32> = (0..rows * inputs).map(|i| noise(i + 77)).collect();
            let y = product::<Emulated>(&x, (rows, inputs, outputs));
            for (i, found) in y.iter().enumerate() {
                let (t, o) = (i / outputs, i % outputs);
                let term = |k: usize| rounded(x[t * inputs + k]) * rounded(noise(o * inputs + k));
                let (exact, size) =
                    (0..inputs).map(term).fold((0.0, 0.0), |(sum, size), x| (sum + x, size + f64::abs(x)));
                let error = (f64::from(*found) - exact).abs();
                assert!(error <= 3e-6 * size, "{rows}x{inputs}x{outputs}: {found} for {exact}");
            }
        }
    }
}

#[test]
fn a_row_on_the_unit_has_the_same_bits_alone_and_in_a_batch() {
    for inputs in [300, 2 * TILE * (PANEL_STEPS_MAX + 2)] {
        let (rows, outputs) = (37, 40);
        let x: Vec<f32> = (0..rows * inputs).map(noise).collect();
        let together = product::<Emulated>(&x, (rows, inputs, outputs));
        for (row, expected) in x.chunks_exact(inputs).zip(together.chunks_exact(outputs)) {
            assert_eq!(product::<Emulated>(row, (1, inputs, outputs)), expected);
        }
    }
}

#[test]
fn the_unit_agrees_with_its_twin_in_software_where_there_is_one() {
    let is_here = amx::is_available();
    println!("matrix unit: {}", if is_here { "hardware" } else { "none here" });
    // SAFETY: the software twin may always be used, the unit where it is available.
    unsafe {
        assert!(agree::<Emulated, Emulated>());
        assert!(!is_here || agree::<Amx, Emulated>());
    }
    for inputs in INPUTS.into_iter().filter(|_| is_here) {
        let (rows, outputs) = (70, 66);
        let x: Vec<f32> = (0..rows * inputs).map(noise).collect();
        let (on_unit, in_software) =
            (product::<Amx>(&x, (rows, inputs, outputs)), product::<Emulated>(&x, (rows, inputs, outputs)));
        let bits = |y: &[f32]| y.iter().map(|y| y.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&on_unit), bits(&in_software), "{inputs} inputs");
    }
}

#[test]
fn what_is_not_a_number_stays_in_its_row() {
    let (rows, inputs, outputs) = (20, 70, 35);
    let mut x: Vec<f32> = (0..rows * inputs).map(noise).collect();
    x[3 * inputs + 69] = f32::NAN;
    let y = product::<Emulated>(&x, (rows, inputs, outputs));
    let finite: Vec<bool> = y.chunks_exact(outputs).map(|row| row.iter().all(|y| y.is_finite())).collect();
    assert_eq!(finite, (0..rows).map(|row| row != 3).collect::<Vec<_>>());
}
