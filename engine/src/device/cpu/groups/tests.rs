//! Integer products against sums in double precision over the very integers that were packed.

use half::f16;

use super::super::finish::Finish;
use super::super::layout::blocks::row_blocks;
use super::super::layout::groups::{
    DEPTH_BLOCK, GROUP_MAX, GROUPS, LARGEST, PIECE, UNIT_STEP, WIDE_GROUP_MAX, copy_panels, group_of,
    nearest, pack_panels, unpack, wide_group_of,
};
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

/// Sizes of groups: those that there are, and of the wide ones the smallest and the largest, of which one fills a block,
/// and one that leaves a part of it empty.
const SIZES: [GroupSizes; 6] = [
    GroupSizes::fine(PIECE),
    GroupSizes::fine(2 * PIECE),
    GroupSizes::fine(GROUP_MAX),
    GroupSizes::equal(UNIT_STEP),
    GroupSizes::equal(WIDE_GROUP_MAX - UNIT_STEP),
    GroupSizes::equal(WIDE_GROUP_MAX),
];

/// A block with something else in it.
const DIRTY: Block = Block { values: [77; DEPTH_BLOCK], scales: [1e9; GROUPS], unbias: [123_456; GROUPS] };

/// Rows and weights as kernels read them, and the numbers that they mean.
struct GroupsCase {
    shape: (usize, usize, usize),
    sizes: GroupSizes,
    activations: Vec<Block>,
    panels: Packed<u8>,
    width: usize,
}

impl GroupsCase {
    fn new(
        isa: Isa,
        shape: (usize, usize, usize),
        sizes: GroupSizes,
        value: impl Fn(usize) -> f32 + Sync,
    ) -> Self {
        let (rows, inputs, outputs) = shape;
        let x: Vec<f32> = (0..rows * inputs).map(|i| value(i + 77)).collect();
        let read = |row: usize, weights: &mut [f32]| {
            weights.iter_mut().enumerate().for_each(|(k, weight)| *weight = value(row * inputs + k));
        };
        let width = panel(isa);
        let panels = pack_panels(outputs, inputs, (sizes.weights, width), read);
        let mut activations = vec![DIRTY; 3]; // what another product has left
        quantise_rows(isa, &x, (inputs, sizes), &mut activations);
        Self { shape, sizes, activations, panels, width }
    }

    fn product(&self, cpu: &Cpu) -> Vec<f32> {
        let (rows, inputs, outputs) = self.shape;
        let (isa, sizes, width) = (cpu.isa(), self.sizes, self.width);
        let kernel =
            Groups { isa, rows, inputs, sizes, width, activations: &self.activations, panels: &self.panels };
        let blocks: Vec<RowBlock> = row_blocks(rows, ROWS_MAX).collect();
        let mut y = vec![f32::NAN; rows * outputs];
        let outputs = ProductOutputs { count: outputs, width, finish: Finish::Write, bias: None };
        cpu.run(|| multiply(isa, &kernel, &blocks, outputs, ProductResult::Singles(&mut y)));
        y
    }

    /// Row `t` of the activations, as rounded.
    fn activations_of(&self, t: usize) -> Vec<f64> {
        let (rows, inputs, _) = self.shape;
        let at = |k: usize| {
            let depth = depth_block(self.sizes.weights);
            let (block, within) = (&self.activations[k / depth * rows + t], k % depth);
            f64::from(block.values[within]) * f64::from(block.scales[within / self.sizes.activations])
        };
        (0..inputs).map(at).collect()
    }

    /// Weights of output `o`, as rounded.
    fn weights_of(&self, o: usize) -> Vec<f32> {
        let group = self.sizes.weights;
        let bytes = panel_bytes(self.shape.1, group, self.width);
        let mut row = vec![0.0; self.shape.1];
        let panel = &self.panels[o / self.width * bytes..][..bytes];
        unpack(panel, group, (o % self.width, self.width), &mut row);
        row
    }
}

/// Compares a product with the sums over its rounded operands: all that is left is single-precision rounding.
fn check(cpu: &Cpu, shape: (usize, usize, usize), sizes: GroupSizes, value: impl Fn(usize) -> f32 + Sync) {
    let case = GroupsCase::new(cpu.isa(), shape, sizes, value);
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
                "{:?} {shape:?} in {sizes:?}, row {t} output {o}: {found} for {exact}",
                cpu.isa()
            );
        }
    }
}

#[test]
fn integer_products_of_every_kernel_equal_the_exact_sums_on_shape_edges() {
    for (isa, sizes) in Isa::available().flat_map(|isa| SIZES.map(|sizes| (isa, sizes))) {
        let cpu = &Cpu::with_isa(Some(2), isa).expect("threads start");
        for rows in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 25] {
            for (inputs, outputs) in
                [(1, 1), (3, 33), (4, 15), (31, 16), (32, 32), (33, 31), (64, 48), (96, 70), (257, 34)]
            {
                check(cpu, (rows, inputs, outputs), sizes, noise);
            }
        }
        let (group, block) = (sizes.weights, depth_block(sizes.weights));
        for inputs in [2 * block - group - 5, block, block + 1, 2 * block + group] {
            check(cpu, (14, inputs, 65), sizes, noise);
        }
    }
}

#[test]
fn the_largest_magnitudes_of_either_sign_do_not_overflow() {
    for (isa, sizes) in Isa::available().flat_map(|isa| SIZES.map(|sizes| (isa, sizes))) {
        let cpu = &Cpu::with_isa(Some(1), isa).expect("threads start");
        let signs: [fn(usize) -> f32; 3] =
            [|_| 1.0, |_| -1.0, |i| if i.is_multiple_of(3) { -1.0 } else { 1.0 }];
        for value in signs {
            check(cpu, (7, 5 * sizes.weights, 35), sizes, value);
        }
    }
}

#[test]
fn vectors_of_every_width_give_integer_products_the_same_bits() {
    let values: [fn(usize) -> f32; 3] = [noise, |_| 1.0, |i| if i.is_multiple_of(3) { -1.0 } else { 1.0 }];
    for (sizes, value) in SIZES.into_iter().flat_map(|sizes| values.map(|value| (sizes, value))) {
        for rows in [1, 4, 15, 20] {
            let bits = |isa: Isa| {
                let cpu = Cpu::with_isa(Some(1), isa).expect("threads start");
                let y = GroupsCase::new(isa, (rows, 2 * sizes.weights + 5, 70), sizes, value).product(&cpu);
                y.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            let all: Vec<(Isa, Vec<u32>)> =
                Isa::available().filter(|isa| *isa >= Isa::Avx2).map(|isa| (isa, bits(isa))).collect();
            for two in all.windows(2) {
                assert!(two[0].1 == two[1].1, "{:?} and {:?}, {rows} rows in {sizes:?}", two[0].0, two[1].0);
            }
        }
    }
}

#[test]
fn rounding_moves_a_number_by_at_most_half_a_step_of_its_group() {
    for (isa, sizes) in Isa::available().flat_map(|isa| SIZES.map(|sizes| (isa, sizes))) {
        let inputs = 3 * sizes.weights + 7;
        // Groups of very different sizes: each has a step of its own.
        let value = |i: usize| noise(i) * 10f32.powi((i % inputs / sizes.weights) as i32 * 2 - 3);
        let case = GroupsCase::new(isa, (2, inputs, 40), sizes, value);
        let step = |values: &[f32]| values.iter().fold(0.0f32, |max, x| max.max(x.abs())) / LARGEST;
        for o in 0..40 {
            let exact: Vec<f32> = (0..inputs).map(|k| value(o * inputs + k)).collect();
            let group = sizes.weights;
            for (exact, found) in exact.chunks(group).zip(case.weights_of(o).chunks(group)) {
                let apart = exact.iter().zip(found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(apart <= 0.56 * step(exact), "{isa:?} {o}: {apart}"); // the scale is rounded too
            }
        }
        for t in 0..2 {
            let exact: Vec<f32> = (0..inputs).map(|k| value(t * inputs + k + 77)).collect();
            let group = sizes.activations;
            for (exact, found) in exact.chunks(group).zip(case.activations_of(t).chunks(group)) {
                let apart =
                    exact.iter().zip(found).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
                assert!(apart <= 0.501 * f64::from(step(exact)), "{isa:?} {t}: {apart}");
            }
        }
    }
}

#[test]
fn the_nearest_integer_is_the_rounded_number() {
    let halves = (-520..=520).map(|quarter| quarter as f32 / 4.0);
    let beside = halves.flat_map(|value| [value.next_down(), value, value.next_up()]);
    for value in beside.chain([f32::NAN, 0.0, -0.0, f32::MIN_POSITIVE]) {
        assert_eq!(nearest(value), value.round() as i32, "{value}");
    }
}

#[test]
fn packing_what_was_packed_before_changes_nothing() {
    let (inputs, outputs, width) = (70, 33, 16);
    let noisy = |row: usize, weights: &mut [f32]| {
        weights.iter_mut().enumerate().for_each(|(k, weight)| *weight = noise(row * inputs + k) / 50.0);
    };
    for group in SIZES.map(|sizes| sizes.weights) {
        let once = pack_panels(outputs, inputs, (group, width), noisy);
        let bytes = panel_bytes(inputs, group, width);
        let again = pack_panels(outputs, inputs, (group, width), |row, weights| {
            unpack(&once[row / width * bytes..][..bytes], group, (row % width, width), weights);
        });
        assert_eq!(once[..], again[..], "{group}");
    }
}

#[test]
fn stored_blocks_mean_the_same_numbers_in_their_lanes() {
    let (inputs, width) = (3 * PIECE, 16);
    // Any integer, of which -128 is one, under any scale.
    let byte = |i: usize| (noise(i).to_bits() >> 3) as u8;
    let block = |number: usize| {
        let scale = f16::from_f32(noise(number) / 100.0).to_le_bytes();
        scale.into_iter().chain((0..PIECE).map(move |k| byte(number * PIECE + k)))
    };
    let rows: Vec<Vec<u8>> = (0..20).map(|row| (3 * row..3 * row + 3).flat_map(block).collect()).collect();
    assert!(rows.concat().contains(&128));
    let panels = copy_panels(32, inputs, width, |lane| rows.get(lane.checked_sub(5)?).map(Vec::as_slice));
    let bytes = panel_bytes(inputs, PIECE, width);
    let mut found = vec![f32::NAN; inputs];
    for lane in 0..32 {
        unpack(&panels[lane / width * bytes..][..bytes], PIECE, (lane % width, width), &mut found);
        match lane.checked_sub(5).and_then(|row| rows.get(row)) {
            Some(row) => assert_eq!(found, BlockFormat::Q8_0.to_f32(row), "{lane}"),
            None => assert!(found.iter().all(|value| *value == 0.0), "{lane}"),
        }
    }
}

#[test]
fn groups_are_the_largest_that_sums_fill() {
    for (inputs, group) in [(896, 128), (4864, 128), (576, 64), (448, 64), (96, 32), (70, 32), (1, 32)] {
        assert_eq!(group_of(inputs), group, "{inputs}");
    }
    let wide = [(896, 448), (4864, 256), (4096, 512), (576, 192), (960, 320), (704, 64), (70, 128), (1, 64)];
    for (inputs, group) in wide {
        assert_eq!(wide_group_of(inputs), group, "{inputs}");
    }
}

#[test]
fn products_in_groups_of_every_size_are_as_far_from_exact_ones_as_rounding_to_their_steps_is() {
    let (rows, inputs, outputs) = (5, 2 * WIDE_GROUP_MAX, 33);
    let exact = |t: usize, o: usize| {
        let term = |k: usize| f64::from(noise(t * inputs + k + 77)) * f64::from(noise(o * inputs + k));
        (0..inputs).map(term).sum::<f64>()
    };
    // All numbers are below 1, so no step is above 1/127, and numbers of both sides, of a mean square of 1/3, move by up
    // to half of it, either way: a walk, of which six times the deviation is never seen.
    let deviation = (inputs as f64 * 2.0 / 3.0 / 12.0).sqrt() / f64::from(LARGEST);
    for isa in Isa::available() {
        let cpu = &Cpu::with_isa(Some(1), isa).expect("threads start");
        for sizes in SIZES {
            let y = GroupsCase::new(isa, (rows, inputs, outputs), sizes, noise).product(cpu);
            for (i, found) in y.iter().enumerate() {
                let error = (f64::from(*found) - exact(i / outputs, i % outputs)).abs();
                assert!(error <= 6.0 * deviation, "{isa:?} in {sizes:?}, {i}: {error}, of {deviation}");
            }
        }
    }
}
