//! Products of eight-bit integers on the unit, in software everywhere and in hardware where there is one, against the
//! kernels of vectors, to the bit.

use super::super::finish::Finish;
use super::super::kernels::emulated::Emulated;
use super::super::kernels::matrix_unit_bytes::agree;
use super::super::layout::groups::{GroupSums, PIECE, QUAD, group_bytes, pack_panels, wide_group_of};
use super::super::layout::packed::Packed;
use super::super::operand::ProductResult;
use super::super::processor::Cpu;
use super::super::product::{ProductOutputs, multiply};
use super::*;

/// Outputs of a panel on every machine with a unit.
const WIDTH: usize = 64;

/// Sizes of groups: of activations of half a step, of one, of some, and of as many as fill a block or nearly so.
const SIZES: [GroupSizes; 6] = [
    GroupSizes::fine(32),
    GroupSizes::fine(128),
    GroupSizes::equal(64),
    GroupSizes::equal(192),
    GroupSizes::equal(448),
    GroupSizes::equal(512),
];

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
struct UnitCase {
    isa: Isa,
    shape: (usize, usize, usize),
    sizes: GroupSizes,
    x: Vec<f32>,
    panels: Packed<u8>,
}

impl UnitCase {
    fn new(isa: Isa, shape: (usize, usize, usize), sizes: GroupSizes, value: fn(usize) -> f32) -> Self {
        let (rows, inputs, outputs) = shape;
        let read = |row: usize, weights: &mut [f32]| {
            weights.iter_mut().enumerate().for_each(|(k, weight)| *weight = value(row * inputs + k));
        };
        let x = (0..rows * inputs).map(|i| value(i + 77)).collect();
        let panels = pack_panels(outputs, inputs, (sizes.weights, WIDTH), read);
        Self { isa, shape, sizes, x, panels }
    }

    /// What a kernel of either way takes, the rows rounded to `activations`.
    fn operands<'a>(&'a self, activations: &'a [Block]) -> Groups<'a> {
        let (rows, inputs, _) = self.shape;
        let (isa, sizes, width) = (self.isa, self.sizes, WIDTH);
        Groups { isa, rows, inputs, sizes, width, activations, panels: &self.panels }
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
        let activations = groups::quantise_rows(self.isa, &self.x, (self.shape.1, self.sizes), &mut packed);
        let blocks: Vec<RowBlock> = row_blocks(self.shape.0, groups::ROWS_MAX).collect();
        self.multiply(&self.operands(activations), &blocks)
    }

    /// Bits of the product on unit `U`.
    fn on_unit<U: Unit>(&self) -> Vec<u32> {
        // What another product has left.
        let dirty = Block { values: [77; DEPTH_BLOCK], scales: [1e9; GROUPS], unbias: [123_456; GROUPS] };
        let mut packed = vec![dirty; 3 * TILE];
        let activations = quantise_rows(self.isa, &self.x, (self.shape.1, self.sizes), &mut packed);
        let operands = self.operands(activations);
        let blocks: Vec<RowBlock> = full_blocks(self.shape.0).collect();
        self.multiply(&GroupsOnUnit { operands, unit: PhantomData::<fn() -> U> }, &blocks)
    }

    fn check(&self) {
        let (expected, case) = (self.by_vectors(), (self.isa, self.shape, self.sizes));
        assert!(self.on_unit::<Emulated>() == expected, "in software: {case:?}");
        if self.isa == Isa::Amx && amx::multiplies_bytes() {
            assert!(self.on_unit::<Amx>() == expected, "in hardware: {case:?}");
        }
    }
}

#[test]
fn products_on_the_unit_have_the_bits_of_those_by_vectors_on_shape_edges() {
    for (isa, sizes) in scaling_sets().flat_map(|isa| SIZES.map(|sizes| (isa, sizes))) {
        for rows in [1, 2, 15, 16, 17, 31, 32, 33, 40] {
            let beyond = 2 * sizes.weights + 5;
            for (inputs, outputs) in [(1, 1), (63, 15), (64, 64), (65, 17), (300, 33), (beyond, 70)] {
                UnitCase::new(isa, (rows, inputs, outputs), sizes, noise).check();
            }
        }
    }
    for (isa, rows) in scaling_sets().flat_map(|isa| (1..=40).map(move |rows| (isa, rows))) {
        for sizes in [GroupSizes::equal(256), GroupSizes::fine(64)] {
            UnitCase::new(isa, (rows, 257, 20), sizes, noise).check();
        }
    }
}

#[test]
fn long_sums_of_many_rows_have_them_too_in_whatever_order_their_pieces_come() {
    let lengths = [PANEL_INPUTS_MAX, PANEL_INPUTS_MAX + 3];
    for (isa, inputs) in scaling_sets().flat_map(|isa| lengths.map(|inputs| (isa, inputs))) {
        let sizes = GroupSizes::equal(wide_group_of(inputs));
        let case = UnitCase::new(isa, (37, inputs, 3 * WIDTH + 2), sizes, noise);
        let kernel = GroupsOnUnit { operands: case.operands(&[]), unit: PhantomData::<fn() -> Emulated> };
        let order = if inputs > PANEL_INPUTS_MAX { Order::DepthOutermost } else { Order::PanelsOutermost };
        assert_eq!((kernel.order(1), kernel.order(2)), (Order::PanelsOutermost, order));
        case.check();
    }
}

#[test]
fn the_largest_magnitudes_of_either_sign_do_not_overflow_on_the_unit() {
    let signs: [fn(usize) -> f32; 3] = [|_| 1.0, |_| -1.0, |i| if i.is_multiple_of(3) { -1.0 } else { 1.0 }];
    for (isa, sizes) in scaling_sets().flat_map(|isa| SIZES.map(|sizes| (isa, sizes))) {
        for value in signs {
            let (rows, inputs, outputs) = (18, 3 * sizes.weights, 35);
            let case = UnitCase::new(isa, (rows, inputs, outputs), sizes, value);
            case.check();
            for (i, found) in case.on_unit::<Emulated>().into_iter().enumerate() {
                let (t, o) = (i / outputs, i % outputs);
                let term = |k: usize| value(t * inputs + k + 77) * value(o * inputs + k);
                let exact = (0..inputs).map(term).sum::<f32>();
                // The scales are rounded, a half to 2^-11.
                let error = (f32::from_bits(found) - exact).abs();
                assert!(error <= inputs as f32 / 1024.0, "{isa:?} in {sizes:?}: {error}");
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_alone_and_in_a_batch_on_the_unit() {
    for isa in scaling_sets() {
        let (rows, inputs, outputs) = (35, 460, 40);
        let mut case = UnitCase::new(isa, (rows, inputs, outputs), GroupSizes::equal(256), noise);
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
        let mut case = UnitCase::new(isa, (rows, inputs, outputs), GroupSizes::fine(64), noise);
        case.x[3 * inputs + 69] = bad;
        let y = case.on_unit::<Emulated>();
        let is_finite = |row: &[u32]| row.iter().all(|bits| f32::from_bits(*bits).is_finite());
        let finite: Vec<bool> = y.chunks_exact(outputs).map(is_finite).collect();
        assert_eq!(finite, (0..rows).map(|row| row != 3).collect::<Vec<_>>(), "{isa:?} {bad}");
    }
}

/// Puts sums of integers where scaled ones go.
fn unscaled(sums: GroupSums<'_>) {
    let columns = sums.columns();
    let GroupSums { a, integers, c, width, accumulate, .. } = sums;
    for (row, integers) in integers.chunks_exact(columns).take(a.len()).enumerate() {
        for (to, from) in c[row * width..].iter_mut().zip(integers) {
            *to = *from as f32 + if accumulate { *to } else { 0.0 };
        }
    }
}

/// Sums of integers of two groups that are added to twice, on unit `U`, beside those of a loop over the same bytes.
fn check_integers<U: Unit>(sizes: GroupSizes, rows: usize) {
    let group = sizes.weights;
    let byte = |index: usize| (127.5 * noise(index) + 127.5) as u8;
    let mut a = vec![EMPTY; tile_count(rows) * TILE];
    for (number, block) in a.iter_mut().enumerate() {
        let values = block.values.iter_mut().enumerate();
        values.for_each(|(k, value)| *value = byte(number * DEPTH_BLOCK + k).cast_signed());
    }
    let of_group = group_bytes(group, WIDTH);
    let b: Vec<u8> = (0..2 * of_group).map(|i| byte(i + 999_983)).collect();
    let mut c = vec![f32::NAN; rows * WIDTH];
    // SAFETY: the caller's unit is this machine's, or in software.
    unsafe {
        U::configured(shapes(sizes.activations), &mut || {
            for accumulate in [false, true] {
                let (a, b, c) = (&a[..], &b[..], &mut c[..]);
                let tile = UnitTile { sizes, width: WIDTH, rows, a, b, c, accumulate, next: &[] };
                add(&mut U::default(), tile, unscaled);
            }
        });
    }
    for (i, found) in c.into_iter().enumerate() {
        let (row, output) = (i / WIDTH, i % WIDTH);
        let weight = |k: usize| {
            let (number, k) = (k / group, k % group);
            b[number * of_group + (k / QUAD * WIDTH + output) * QUAD + k % QUAD]
        };
        let term = |k: usize| i32::from(a[row].values[k]) * i32::from(weight(k));
        // Of such noise far less than 2^24: a single has it exactly.
        let expected = 2 * (0..2 * group).map(term).sum::<i32>();
        assert_eq!(found, expected as f32, "{rows} rows, {sizes:?}, row {row}, output {output}");
    }
}

#[test]
fn sums_of_integers_on_the_unit_are_those_of_a_loop() {
    let is_here = amx::multiplies_bytes();
    println!("matrix unit for bytes: {}", if is_here { "hardware" } else { "none here" });
    let equal = [64, 128, 256].map(GroupSizes::equal).into_iter();
    for sizes in equal.chain([32, 64, 128].map(GroupSizes::fine)) {
        for rows in [1, 16, 19, 32] {
            check_integers::<Emulated>(sizes, rows);
            if is_here {
                check_integers::<Amx>(sizes, rows);
            }
        }
    }
    // SAFETY: the software twin may always be used, the unit where it is available.
    assert!(!is_here || unsafe { agree::<Amx, Emulated>() });
}

#[test]
fn the_unit_is_taken_where_there_is_one_for_many_rows_and_groups_that_are_its_tiles() {
    let fast = || TrialTimes { unit_per_tile: 1.0, vectors_per_row: 1.0 };
    let takes_on = |isa, group, rows| takes((isa, group), rows, || true, fast);
    for (group, rows) in [(PIECE, 512), (64, TILE), (128, 17), (448, 40), (512, 512)] {
        assert!(takes_on(Isa::Amx, group, rows), "{rows} rows in groups of {group}");
        assert!(!takes((Isa::Amx, group), rows, || false, fast), "a unit that multiplies no bytes");
        for isa in Isa::ALL.into_iter().filter(|isa| *isa != Isa::Amx) {
            assert!(!takes_on(isa, group, rows), "{isa:?}");
        }
    }
    assert!(!takes_on(Isa::Amx, 96, 512) && !takes_on(Isa::Amx, 128, TILE - 1));
    // Nothing is timed where there is no choice.
    let never = || -> TrialTimes { unreachable!("there is no choice") };
    assert!(!takes((Isa::Avx512Vnni, 128), 512, || true, never));
    assert!(!takes((Isa::Amx, 128), TILE - 1, || true, never));
}

#[test]
fn of_so_many_rows_the_faster_way_is_taken() {
    // Vectors take as long for 10 rows as the unit for a tile of 16.
    let times = || TrialTimes { unit_per_tile: 10.0, vectors_per_row: 1.0 };
    let taken = |rows: &usize| takes((Isa::Amx, 128), *rows, || true, times);
    let rows: Vec<usize> = (1..=52).filter(taken).collect();
    assert_eq!(rows, std::iter::once(16).chain(21..=52).collect::<Vec<_>>());
    // As fast is not faster.
    assert!(!takes((Isa::Amx, 128), 20, || true, times));
    let slow = || TrialTimes { unit_per_tile: 16.0, vectors_per_row: 1.0 };
    assert!((1..=600).all(|rows| !takes((Isa::Amx, 128), rows, || true, slow)));
}

#[test]
fn both_ways_are_timed_on_the_same_product() {
    for (isa, sizes) in scaling_sets().flat_map(|isa| SIZES.map(|sizes| (isa, sizes))) {
        let trial = Trial::new(isa, sizes, WIDTH);
        let sums_of = |kernel: &dyn Kernel, blocks: &[RowBlock]| {
            let mut sums = trial.sums();
            sums.fill(f32::NAN);
            trial.multiply(kernel, blocks, 2, &mut sums);
            sums.iter().map(|sum| sum.to_bits()).collect::<Vec<_>>()
        };
        let ((vectors, blocks), (unit, unit_blocks)) = (trial.by_vectors(), trial.on_unit::<Emulated>());
        let expected = sums_of(&vectors, &blocks);
        // As many inputs as a block holds, all the same.
        let (number, weight) = (f32::from(0x3Cu8), f32::from((0x3C ^ BIAS).cast_signed()));
        let scale = half::f16::from_bits(0x3C3C).to_f32();
        let exact = depth_block(sizes.weights) as f32 * number * weight * scale;
        let is_near = |sum: &u32| (f32::from_bits(*sum) / exact - 1.0).abs() < 1e-4;
        assert!(expected.iter().all(is_near), "{isa:?} in {sizes:?}");
        assert!(sums_of(&unit, &unit_blocks) == expected, "{isa:?} in {sizes:?}");
    }
    let times = Trial::new(Isa::Portable, GroupSizes::equal(128), WIDTH).times::<Emulated>();
    let TrialTimes { unit_per_tile, vectors_per_row } = times;
    assert!([unit_per_tile, vectors_per_row].iter().all(|time| time.is_finite() && *time > 0.0), "{times:?}");
}
