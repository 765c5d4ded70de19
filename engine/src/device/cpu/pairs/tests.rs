//! The loop over a matrix unit's tiles, in software everywhere and on the unit where there is one.

use super::super::finish::Finish;
use super::super::kernels::amx;
use super::super::kernels::emulated::Emulated;
use super::super::kernels::matrix_unit::{ROWS_MAX, TILE, add, agrees_with};
use super::super::layout::blocks::row_blocks;
use super::super::layout::pairs::{pack_panels, pair_count};
use super::super::processor::Cpu;
use super::super::product::{ProductOutputs, multiply};
use super::*;

/// Products on the unit in software.
struct InSoftware<'a>(Pairs<'a>);

impl Kernel for InSoftware<'_> {
    fn depth(&self) -> usize {
        self.0.depth()
    }

    fn depth_step(&self, blocks: usize) -> usize {
        self.0.depth_step(blocks)
    }

    unsafe fn add(&self, block: RowBlock, panel: usize, steps: Steps, sums: &mut [f32]) {
        let tile = self.0.tile(block, panel, steps, sums);
        // SAFETY: a unit in software is on every machine.
        unsafe { add(&mut Emulated::default(), block.rows, tile) };
    }
}

/// A number in -1..1 that depends on `index` alone.
fn noise(index: usize) -> f32 {
    let bits = (index as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((bits >> 40) as f32) / 8_388_608.0 - 1.0
}

/// `x` times weights of noise, in software.
fn product(x: &[f32], (rows, inputs, outputs): (usize, usize, usize)) -> Vec<f32> {
    let read = |row: usize, weights: &mut [f32]| {
        weights.iter_mut().enumerate().for_each(|(k, weight)| *weight = noise(row * inputs + k));
    };
    let panels = pack_panels(outputs, inputs, 2 * TILE, read);
    let mut rounded = Vec::new();
    let activations = round_rows(Isa::Portable, x, inputs, &mut rounded);
    let (pairs, width) = (pair_count(inputs), 2 * TILE);
    let kernel = InSoftware(Pairs { isa: Isa::Amx, rows, pairs, width, activations, panels: &panels });
    let blocks: Vec<RowBlock> = row_blocks(rows, ROWS_MAX).collect();
    let mut y = vec![f32::NAN; rows * outputs];
    let cpu = Cpu::with_isa(Some(2), Isa::Portable).expect("threads start");
    let outputs = ProductOutputs { count: outputs, width, finish: Finish::Write, bias: None };
    cpu.run(|| multiply(Isa::Portable, &kernel, &blocks, outputs, &mut y));
    y
}

#[test]
fn products_on_the_unit_in_software_equal_the_exact_sums_on_shape_edges() {
    let rounded = |x: f32| f64::from(bf16::from_f32(x).to_f32());
    for rows in [1, 2, 15, 16, 17, 31, 32, 33, 70] {
        for (inputs, outputs) in [(1, 1), (31, 16), (33, 33), (64, 40), (2 * DEPTH_BLOCK + 3, 31)] {
            let x: Vec<f32> = (0..rows * inputs).map(|i| noise(i + 77)).collect();
            let y = product(&x, (rows, inputs, outputs));
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
    let (rows, inputs, outputs) = (37, 300, 40);
    let x: Vec<f32> = (0..rows * inputs).map(noise).collect();
    let together = product(&x, (rows, inputs, outputs));
    for (row, expected) in x.chunks_exact(inputs).zip(together.chunks_exact(outputs)) {
        assert_eq!(product(row, (1, inputs, outputs)), expected);
    }
}

#[test]
fn the_unit_agrees_with_its_twin_in_software_where_there_is_one() {
    let unit = if amx::is_available() { "hardware" } else { "none here" };
    println!("matrix unit: {unit}");
    // SAFETY: the software twin may always be used, the unit where it is available.
    unsafe {
        assert!(agrees_with(Emulated::default(), Emulated::default()));
        assert!(!amx::is_available() || agrees_with(Amx::default(), Emulated::default()));
    }
}
