//! Four-bit products against sums in double precision over the very numbers that were packed.

use half::f16;

use super::super::finish::Finish;
use super::super::groups::{ROWS_MAX, panel};
use super::super::layout::blocks::row_blocks;
use super::super::layout::nibbles::{NibbleGroup, pack_panels, unpack};
use super::super::layout::packed::Packed;
use super::super::operand::ProductResult;
use super::super::processor::Cpu;
use super::super::product::{ProductOutputs, multiply};
use super::*;
use crate::checkpoint::ggml::BlockFormat;

/// A number in -1..1 that depends on `index` alone.
fn noise(index: usize) -> f32 {
    let bits = (index as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((bits >> 40) as f32) / 8_388_608.0 - 1.0
}

/// Row `t` of rounded activations.
fn activations_of(blocks: &[Block], (rows, inputs): (usize, usize), t: usize) -> Vec<f64> {
    let at = |k: usize| {
        let (block, within) = (&blocks[k / DEPTH_BLOCK * rows + t], k % DEPTH_BLOCK);
        f64::from(block.values[within]) * f64::from(block.scales[within / PIECE])
    };
    (0..inputs).map(at).collect()
}

/// Panels of rounded weights for a device.
fn panels_for(
    cpu: &Cpu,
    (inputs, outputs): (usize, usize),
    value: impl Fn(usize) -> f32 + Sync,
) -> Packed<u8> {
    pack_panels(outputs, inputs, panel(cpu.isa()), |row, put| {
        let weights: Vec<f32> = (0..inputs).map(|k| value(row * inputs + k)).collect();
        weights.chunks(PIECE).for_each(|group| put(NibbleGroup::rounded(group)));
    })
}

/// All of a kernel's product.
fn product(cpu: &Cpu, kernel: &Nibbles<'_>, outputs: usize) -> Vec<f32> {
    let blocks: Vec<RowBlock> = row_blocks(kernel.rows, ROWS_MAX).collect();
    let mut y = vec![f32::NAN; kernel.rows * outputs];
    let to = ProductOutputs { count: outputs, width: kernel.width, finish: Finish::Write, bias: None };
    cpu.run(|| multiply(kernel.isa, kernel, &blocks, to, ProductResult::Singles(&mut y)));
    y
}

/// Compares a product with the sums over its rounded operands: all that is left is single-precision rounding.
fn check(cpu: &Cpu, shape: (usize, usize, usize), value: impl Fn(usize) -> f32 + Sync) {
    let ((rows, inputs, outputs), isa, width) = (shape, cpu.isa(), panel(cpu.isa()));
    let x: Vec<f32> = (0..rows * inputs).map(|i| value(i + 77)).collect();
    let panels = panels_for(cpu, (inputs, outputs), &value);
    let mut packed = Vec::new();
    let kernel = Nibbles::new(isa, &x, inputs, (&panels, width), &mut packed);
    let y = product(cpu, &kernel, outputs);
    let mut weights = vec![0.0; inputs];
    for o in 0..outputs {
        let bytes = panel_bytes(inputs, width);
        unpack(&panels[o / width * bytes..][..bytes], (o % width, width), &mut weights);
        for t in 0..rows {
            let activations = activations_of(kernel.activations, (rows, inputs), t);
            let terms = || activations.iter().zip(&weights).map(|(a, w)| a * f64::from(*w));
            let exact = terms().sum::<f64>();
            // Scaled sums and minima may be far larger than the weights they make.
            let size = terms().map(f64::abs).sum::<f64>() + activations.iter().map(|a| a.abs()).sum::<f64>();
            let error = (f64::from(y[t * outputs + o]) - exact).abs();
            assert!(error <= 3e-6 * size, "{isa:?} {shape:?}, row {t} output {o}: {error} of {exact}");
        }
    }
}

#[test]
fn four_bit_products_of_every_kernel_equal_the_exact_sums_on_shape_edges() {
    for isa in Isa::available() {
        let cpu = &Cpu::with_isa(Some(2), isa).expect("threads start");
        for rows in [1, 2, 3, 4, 5, 6, 7, 13, 25] {
            for (inputs, outputs) in
                [(1, 1), (3, 33), (4, 15), (31, 16), (32, 32), (33, 31), (64, 48), (96, 70), (257, 34)]
            {
                check(cpu, (rows, inputs, outputs), noise);
            }
        }
        for inputs in [DEPTH_BLOCK - 37, DEPTH_BLOCK, DEPTH_BLOCK + 1, 2 * DEPTH_BLOCK + PIECE] {
            check(cpu, (14, inputs, 65), noise);
        }
    }
}

#[test]
fn the_largest_numbers_and_activations_do_not_overflow() {
    for isa in Isa::available() {
        let cpu = &Cpu::with_isa(Some(1), isa).expect("threads start");
        // Weights between 0 and 1 at their greatest, activations all the largest of either sign.
        let signs: [fn(usize) -> f32; 3] =
            [|_| 1.0, |_| -1.0, |i| if i.is_multiple_of(PIECE) { 0.0 } else { 1.0 }];
        for value in signs {
            check(cpu, (7, 5 * PIECE, 35), value);
        }
    }
}

#[test]
fn vectors_of_every_width_give_four_bit_products_the_same_bits() {
    let values: [fn(usize) -> f32; 3] = [noise, |_| 1.0, |i| if i.is_multiple_of(3) { -1.0 } else { 1.0 }];
    let (inputs, outputs) = (2 * DEPTH_BLOCK + PIECE + 5, 70);
    for (value, rows) in values.into_iter().flat_map(|value| [1, 4, 15, 20].map(|rows| (value, rows))) {
        let x: Vec<f32> = (0..rows * inputs).map(|i| value(i + 77)).collect();
        let bits = |isa: Isa| {
            let cpu = &Cpu::with_isa(Some(1), isa).expect("threads start");
            let (panels, mut packed) = (panels_for(cpu, (inputs, outputs), value), Vec::new());
            let kernel = Nibbles::new(isa, &x, inputs, (&panels, panel(isa)), &mut packed);
            product(cpu, &kernel, outputs).into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        let all: Vec<(Isa, Vec<u32>)> =
            Isa::available().filter(|isa| *isa >= Isa::Avx2).map(|isa| (isa, bits(isa))).collect();
        for two in all.windows(2) {
            assert!(two[0].1 == two[1].1, "{:?} and {:?}, {rows} rows", two[0].0, two[1].0);
        }
    }
}

#[test]
fn rounding_moves_a_weight_by_at_most_half_a_step_of_its_group() {
    for seed in 0..40 {
        // Groups far from zero too, and one that is shorter.
        let offset = noise(seed) * 3.0;
        let len = if seed % 4 == 0 { 7 } else { PIECE };
        let weights: Vec<f32> = (0..len).map(|k| offset + noise(100 * seed + k) / 7.0).collect();
        let group = NibbleGroup::rounded(&weights);
        let least = weights.iter().copied().fold(f32::INFINITY, f32::min);
        let most = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let room = (most - least) / 15.0 * 0.51 + 2.0 * least.abs().max(most.abs()) / 1024.0;
        for (weight, number) in weights.iter().zip(group.numbers) {
            let found = f32::from(number) * group.scale.to_f32() + group.minimum.to_f32();
            assert!((found - weight).abs() <= room, "{weight} became {found}");
        }
    }
    for equal in [0.0, 0.25, -3.0] {
        let group = NibbleGroup::rounded(&[equal; PIECE]);
        assert_eq!((group.scale, group.minimum.to_f32()), (f16::ZERO, equal));
    }
    for bad in [f32::NAN, f32::INFINITY] {
        assert!(NibbleGroup::rounded(&[1.0, bad, 2.0]).scale.is_nan(), "no product with it is a number");
    }
}

#[test]
fn stored_blocks_of_four_bits_mean_the_same_numbers_in_their_lanes() {
    let (inputs, width) = (512, 16);
    let byte = |i: usize| (noise(i).to_bits() >> 3) as u8;
    for format in [BlockFormat::Q4_0, BlockFormat::Q4_1, BlockFormat::Q4K] {
        let halves = if format == BlockFormat::Q4_0 { 1 } else { 2 };
        let block = |number: usize| {
            let ends =
                (0..halves).flat_map(move |end| f16::from_f32(noise(number + end) / 100.0).to_le_bytes());
            let rest = (2 * halves..format.bytes()).map(move |at| byte(number * 1000 + at));
            ends.chain(rest)
        };
        let of_row = inputs / format.elements();
        let rows: Vec<Vec<u8>> =
            (0..20).map(|row| (of_row * row..of_row * (row + 1)).flat_map(block).collect()).collect();
        let panels = pack_panels(32, inputs, width, |lane, put| {
            let Some(row) = lane.checked_sub(5).and_then(|row| rows.get(row)) else { return };
            format.four_bit_groups(row, &mut |numbers, scale, minimum| {
                put(NibbleGroup { numbers, scale, minimum });
            });
        });
        let bytes = panel_bytes(inputs, width);
        let mut found = vec![f32::NAN; inputs];
        for lane in 0..32 {
            unpack(&panels[lane / width * bytes..][..bytes], (lane % width, width), &mut found);
            let Some(row) = lane.checked_sub(5).and_then(|row| rows.get(row)) else {
                assert!(found.iter().all(|value| *value == 0.0), "{lane}");
                continue;
            };
            for (found, stored) in found.iter().zip(format.to_f32(row)) {
                // Two products of Q4_K are rounded to halves; of the others nothing is.
                let room = if format == BlockFormat::Q4K { 16.0 * 0.01 * 63.0 / 2048.0 } else { 0.0 };
                assert!((found - stored).abs() <= room, "{format:?} {lane}: {found} for {stored}");
            }
        }
    }
}
