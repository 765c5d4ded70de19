//! Products of eight-bit integers on the unit, in software everywhere and in hardware where there is one, against the
//! kernels of vectors, to the bit.

use super::super::finish::Finish;
use super::super::kernels::emulated::Emulated;
use super::super::kernels::matrix_unit_bytes::agree;
use super::super::layout::groups::{PIECE, pack_panels, wide_group_of};
use super::super::layout::packed::Packed;
use super::super::operand::ProductResult;
use super::super::processor::Cpu;
use super::super::product::{ProductOutputs, multiply};
use super::*;

/// Outputs of a panel on every machine with a unit.
const WIDTH: usize = 64;

/// Sizes of groups: of one step, of some, and of as many as fill a block or nearly so.
const SIZES: [usize; 5] = [64, 128, 192, 448, 512];

/// A number in -1..1 that depends on `index` alone.
fn noise(index: usize) -> f32 {
    let bits = (index as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((bits >> 40) as f32) / 8_388_608.0 - 1.0
}

/// The instruction sets of this machine that scale sums: each with the vectors whose bits it has to give.
fn scaling_sets() -> impl Iterator<Item = Isa> {
    Isa::available().filter(|isa| *isa == Isa::Portable || *isa >= Isa::Avx512Vnni)
}

/// Rows and weights for both ways to multiply.
struct Case {
    isa: Isa,
    shape: (usize, usize, usize),
    group: usize,
    x: Vec<f32>,
    panels: Packed<u8>,
}

impl Case {
    fn new(isa: Isa, shape: (usize, usize, usize), group: usize, value: fn(usize) -> f32) -> Self {
        let (rows, inputs, outputs) = shape;
        let read = |row: usize, weights: &mut [f32]| {
            weights.iter_mut().enumerate().for_each(|(k, weight)| *weight = value(row * inputs + k));
        };
        let x = (0..rows * inputs).map(|i| value(i + 77)).collect();
        Self { isa, shape, group, x, panels: pack_panels(outputs, inputs, (group, WIDTH), read) }
    }

    /// What a kernel of either way takes, the rows rounded to `activations`.
    fn operands<'a>(&'a self, activations: &'a [Block]) -> Groups<'a> {
        let (rows, inputs, _) = self.shape;
        let (isa, group, width) = (self.isa, self.group, WIDTH);
        Groups { isa, rows, inputs, group, width, activations, panels: &self.panels }
    }

    fn multiply(&self, kernel: &dyn Kernel, blocks: &[RowBlock]) -> Vec<u32> {
        let (rows, _, count) = self.shape;
        let mut y = vec![f32::NAN; rows * count];
        let cpu = Cpu::with_isa(Some(2), self.isa).expect("threads start");
        let outputs = ProductOutputs { count, width: WIDTH, finish: Finish::Write, bias: None };
        cpu.run(|| multiply(self.isa, kernel, blocks, outputs, ProductResult::Singles(&mut y)));
        y.into_iter().map(f32::to_bits).collect()
    }

    /// Bits of the product by vectors.
    fn by_vectors(&self) -> Vec<u32> {
        let mut packed = Vec::new();
        let activations = groups::quantise_rows(self.isa, &self.x, (self.shape.1, self.group), &mut packed);
        let blocks: Vec<RowBlock> = row_blocks(self.shape.0, ROWS_MAX).collect();
        self.multiply(&self.operands(activations), &blocks)
    }

    /// Bits of the product on unit `U`.
    fn on_unit<U: Unit>(&self) -> Vec<u32> {
        // What another product has left.
        let dirty = Block { values: [77; DEPTH_BLOCK], scales: [1e9; GROUPS], unbias: [123_456; GROUPS] };
        let mut packed = vec![dirty; 3 * TILE];
        let activations = quantise_rows(self.isa, &self.x, (self.shape.1, self.group), &mut packed);
        let operands = self.operands(activations);
        let blocks: Vec<RowBlock> = full_blocks(self.shape.0).collect();
        self.multiply(&GroupsOnUnit { operands, unit: PhantomData::<fn() -> U> }, &blocks)
    }

    fn check(&self) {
        let (expected, case) = (self.by_vectors(), (self.isa, self.shape, self.group));
        assert!(self.on_unit::<Emulated>() == expected, "in software: {case:?}");
        if self.isa == Isa::Amx && amx::multiplies_bytes() {
            assert!(self.on_unit::<Amx>() == expected, "in hardware: {case:?}");
        }
    }
}

#[test]
fn products_on_the_unit_have_the_bits_of_those_by_vectors_on_shape_edges() {
    for (isa, group) in scaling_sets().flat_map(|isa| SIZES.map(|group| (isa, group))) {
        for rows in [1, 2, 15, 16, 17, 31, 32, 33, 40] {
            for (inputs, outputs) in [(1, 1), (63, 15), (64, 64), (65, 17), (300, 33), (2 * group + 5, 70)] {
                Case::new(isa, (rows, inputs, outputs), group, noise).check();
            }
        }
    }
    for (isa, rows) in scaling_sets().flat_map(|isa| (1..=40).map(move |rows| (isa, rows))) {
        Case::new(isa, (rows, 257, 20), 256, noise).check();
    }
}

#[test]
fn long_sums_of_many_rows_have_them_too_in_whatever_order_their_pieces_come() {
    let lengths = [PANEL_INPUTS_MAX, PANEL_INPUTS_MAX + 3];
    for (isa, inputs) in scaling_sets().flat_map(|isa| lengths.map(|inputs| (isa, inputs))) {
        let case = Case::new(isa, (37, inputs, 3 * WIDTH + 2), wide_group_of(inputs), noise);
        let kernel = GroupsOnUnit { operands: case.operands(&[]), unit: PhantomData::<fn() -> Emulated> };
        let order = if inputs > PANEL_INPUTS_MAX { Order::DepthOutermost } else { Order::PanelsOutermost };
        assert_eq!((kernel.order(1), kernel.order(2)), (Order::PanelsOutermost, order));
        case.check();
    }
}

#[test]
fn the_largest_magnitudes_of_either_sign_do_not_overflow_on_the_unit() {
    let signs: [fn(usize) -> f32; 3] = [|_| 1.0, |_| -1.0, |i| if i.is_multiple_of(3) { -1.0 } else { 1.0 }];
    for (isa, group) in scaling_sets().flat_map(|isa| SIZES.map(|group| (isa, group))) {
        for value in signs {
            let (rows, inputs, outputs) = (18, 3 * group, 35);
            let case = Case::new(isa, (rows, inputs, outputs), group, value);
            case.check();
            for (i, found) in case.on_unit::<Emulated>().into_iter().enumerate() {
                let (t, o) = (i / outputs, i % outputs);
                let term = |k: usize| value(t * inputs + k + 77) * value(o * inputs + k);
                let exact = (0..inputs).map(term).sum::<f32>();
                // The scales are rounded, a half to 2^-11.
                let error = (f32::from_bits(found) - exact).abs();
                assert!(error <= inputs as f32 / 1024.0, "{isa:?} in {group}s: {error}");
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_alone_and_in_a_batch_on_the_unit() {
    for isa in scaling_sets() {
        let (rows, inputs, outputs) = (35, 460, 40);
        let mut case = Case::new(isa, (rows, inputs, outputs), 256, noise);
        let together = case.on_unit::<Emulated>();
        let x = std::mem::take(&mut case.x);
        for (row, expected) in x.chunks_exact(inputs).zip(together.chunks_exact(outputs)) {
            (case.shape.0, case.x) = (1, row.to_vec());
            assert!(case.on_unit::<Emulated>() == expected, "{isa:?}");
        }
    }
}

#[test]
fn what_is_not_a_number_stays_in_its_row_on_the_unit() {
    for (isa, bad) in scaling_sets().flat_map(|isa| [f32::NAN, f32::INFINITY].map(|bad| (isa, bad))) {
        let (rows, inputs, outputs) = (20, 70, 35);
        let mut case = Case::new(isa, (rows, inputs, outputs), 64, noise);
        case.x[3 * inputs + 69] = bad;
        let y = case.on_unit::<Emulated>();
        let is_finite = |row: &[u32]| row.iter().all(|bits| f32::from_bits(*bits).is_finite());
        let finite: Vec<bool> = y.chunks_exact(outputs).map(is_finite).collect();
        assert_eq!(finite, (0..rows).map(|row| row != 3).collect::<Vec<_>>(), "{isa:?} {bad}");
    }
}

#[test]
fn the_unit_agrees_on_bytes_with_its_twin_in_software_where_there_is_one() {
    let is_here = amx::multiplies_bytes();
    println!("matrix unit for bytes: {}", if is_here { "hardware" } else { "none here" });
    // SAFETY: the software twin may always be used, the unit where it is available.
    unsafe {
        assert!(agree::<Emulated, Emulated>());
        assert!(!is_here || agree::<Amx, Emulated>());
    }
}

#[test]
fn the_unit_is_taken_where_there_is_one_for_many_rows_and_groups_that_are_its_tiles() {
    for isa in Isa::ALL.into_iter().filter(|isa| *isa != Isa::Amx) {
        assert!(!is_taken(isa, 128, 512), "{isa:?}");
    }
    assert!(!is_taken(Isa::Amx, PIECE, 512) && !is_taken(Isa::Amx, 128, TILE - 1));
    assert!(amx::multiplies_bytes() || !is_taken(Isa::Amx, 512, 512));
}

#[test]
fn both_ways_are_timed_on_the_same_product() {
    let times = times::<Emulated>(Isa::Portable, (128, WIDTH));
    assert!(times.iter().all(|seconds| seconds.is_finite() && *seconds > 0.0), "{times:?}");
}
