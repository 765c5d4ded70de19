//! What becomes of a product's sums: bias, activation and residual, applied while the cache has them.
//!
//! Written so that the compiler turns it into vectors; compiled once per instruction set.

use half::bf16;

use super::isa::Isa;
use super::per_isa::per_isa;
use super::softmax::{exp, round_body};

/// What a product does with its sums, their biases added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    Write,
    /// Adds them to what is there.
    Add,
    /// Writes them where they are above 0, and 0 where not; what is not a number stays so.
    Relu,
    /// Writes gelu of them.
    Gelu,
    /// Writes silu(gate) * up. The first half of a panel's lanes are gates, the other half what they gate.
    GatedSilu,
    /// Writes gelu(gate) * up, with GELU's approximation by tanh; lanes as above.
    GatedGelu,
}

impl Finish {
    /// Outputs that a panel of `width` sums becomes.
    pub(super) fn columns(self, width: usize) -> usize {
        match self {
            Self::Write | Self::Add | Self::Relu | Self::Gelu => width,
            Self::GatedSilu | Self::GatedGelu => width / 2,
        }
    }
}

/// Most sums of a panel's row.
const WIDTH_MAX: usize = 64;

/// Where a tile's first finished sum goes.
#[derive(Clone, Copy)]
pub(super) enum FinishPlace {
    /// As it is.
    Single(*mut f32),
    /// Rounded to bf16.
    Rounded(*mut bf16),
}

/// Where the finished sums of a tile go.
pub(super) struct FinishTarget {
    /// The first row's first column.
    pub(super) y: FinishPlace,
    /// How many rows.
    pub(super) rows: usize,
    /// Elements from one row to the next.
    pub(super) row: usize,
    /// How many columns: no more than [`Finish::columns`].
    pub(super) columns: usize,
}

impl FinishTarget {
    /// Each row of the target, which begins at `y`, with the sums that belong to it.
    ///
    /// # Safety
    /// The rows lie apart from each other, and nobody else reads or writes them meanwhile.
    #[inline(always)]
    unsafe fn rows<'a, T: 'a>(
        &'a self,
        y: *mut T,
        sums: &'a [f32],
    ) -> impl Iterator<Item = (&'a mut [T], &'a [f32])> + 'a {
        let width = sums.len() / self.rows;
        sums.chunks_exact(width).enumerate().map(move |(m, sums)| {
            // SAFETY: passed on from this function's own contract.
            (unsafe { std::slice::from_raw_parts_mut(y.add(m * self.row), self.columns) }, sums)
        })
    }
}

/// Finishes a tile: `sums` are `target.rows` rows of a panel's width, `bias` one number per lane. Nothing is
/// added to what is rounded.
///
/// # Safety
/// The target's rows lie apart from each other, and nobody else reads or writes them meanwhile.
pub(super) unsafe fn finish(
    isa: Isa,
    how: Finish,
    sums: &[f32],
    bias: Option<&[f32]>,
    target: &FinishTarget,
) {
    let width = sums.len() / target.rows;
    assert!(sums.len() == target.rows * width && target.columns <= how.columns(width));
    assert!(width <= WIDTH_MAX && (how != Finish::Add || matches!(target.y, FinishPlace::Single(_))));
    assert!(bias.is_none_or(|bias| bias.len() == width));
    match bias {
        Some(bias) => finish_tile(isa, how, sums, bias, target),
        None => finish_tile(isa, how, sums, &[], target),
    }
}

/// A tile's sums, `bias` empty where there is none.
#[inline(always)]
fn finish_tile_body(how: Finish, sums: &[f32], bias: &[f32], target: &FinishTarget) {
    // Loops, not iterators' folds: those are functions of their own, compiled for any processor.
    match target.y {
        FinishPlace::Single(y) => {
            // SAFETY: `finish` is the only caller, and its contract says so.
            for (y, sums) in unsafe { target.rows(y, sums) } {
                finish_row(how, sums, bias, y);
            }
        }
        FinishPlace::Rounded(y) => {
            // SAFETY: as above.
            for (y, sums) in unsafe { target.rows(y, sums) } {
                let mut row = [0.0; WIDTH_MAX];
                let row = &mut row[..target.columns];
                finish_row(how, sums, bias, row);
                round_body(row, y);
            }
        }
    }
}

/// A row of it.
#[inline(always)]
fn finish_row(how: Finish, sums: &[f32], bias: &[f32], y: &mut [f32]) {
    match how {
        Finish::Write => each(y, sums, bias, |_, sum| sum),
        Finish::Add => each(y, sums, bias, |before, sum| before + sum),
        Finish::Relu => each(y, sums, bias, |_, sum| if sum < 0.0 { 0.0 } else { sum }),
        Finish::Gelu => each(y, sums, bias, |_, sum| gelu(sum)),
        Finish::GatedSilu => gated(y, sums, bias, |gate| gate / (1.0 + exp(-gate))),
        Finish::GatedGelu => gated(y, sums, bias, gelu_by_tanh),
    }
}

/// `y[i]` = what `activation` makes of its gate, times what that gates. In one pass: what was just written to memory that is
/// in no cache could be read again only once it is in one.
#[inline(always)]
fn gated(y: &mut [f32], sums: &[f32], bias: &[f32], activation: impl Fn(f32) -> f32) {
    let (gates, ups) = sums.split_at(sums.len() / 2);
    let pairs = y.iter_mut().zip(gates).zip(ups);
    if bias.is_empty() {
        pairs.for_each(|((y, gate), up)| *y = activation(*gate) * up);
    } else {
        let (gate_bias, up_bias) = bias.split_at(bias.len() / 2);
        let biased = pairs.zip(gate_bias).zip(up_bias);
        biased.for_each(|((((y, gate), up), gate_bias), up_bias)| {
            *y = activation(gate + gate_bias) * (up + up_bias);
        });
    }
}

/// GELU (Hendrycks and Gimpel 2016, arXiv 1606.08415): `x` times the normal distribution's share below `x`.
#[inline(always)]
fn gelu(x: f32) -> f32 {
    let z = x * std::f32::consts::FRAC_1_SQRT_2;
    // Less than a hundred-millionth is left below, which the sum could not tell from its rounding.
    let share = if z < -4.0 { 0.0 } else { 0.5 * (1.0 + erf(z)) };
    x * share
}

/// GELU's approximation by tanh, section 2 of the same. `(1 + tanh u) / 2` is the logistic function of `2u`.
#[inline(always)]
fn gelu_by_tanh(x: f32) -> f32 {
    /// The root of `2 / pi`, twice.
    const SLOPE: f32 = 1.595_769;
    x / (1.0 + exp(-SLOPE * (x + 0.044_715 * x * x * x)))
}

/// The error function to 4e-7: the quotient of polynomials that Eigen and XLA have for single precision.
#[inline(always)]
fn erf(x: f32) -> f32 {
    let held = if x > 4.0 { 4.0 } else { x };
    let held = if held < -4.0 { -4.0 } else { held };
    let square = held * held;
    let mut above = -2.726_142_3e-10;
    above = above * square + 2.770_681_4e-8;
    above = above * square - 2.101_024e-6;
    above = above * square - 5.692_506_5e-5;
    above = above * square - 7.349_906e-4;
    above = above * square - 2.954_6e-3;
    above = above * square - 1.609_603_3e-2;
    let mut below = -1.456_607_2e-5;
    below = below * square - 2.133_740_6e-4;
    below = below * square - 1.682_827e-3;
    below = below * square - 7.373_329e-3;
    below = below * square - 1.426_473_9e-2;
    held * above / below
}

/// `y[i] = value(y[i], sums[i] + bias[i])`
#[inline(always)]
fn each(y: &mut [f32], sums: &[f32], bias: &[f32], value: impl Fn(f32, f32) -> f32) {
    if bias.is_empty() {
        y.iter_mut().zip(sums).for_each(|(y, sum)| *y = value(*y, *sum));
    } else {
        y.iter_mut().zip(sums).zip(bias).for_each(|((y, sum), bias)| *y = value(*y, sum + bias));
    }
}

per_isa!(
    /// A tile's sums to its target.
    finish_tile, finish_tile_body, (how: Finish, sums: &[f32], bias: &[f32], target: &FinishTarget)
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Finishes two rows of four sums into two columns less than there is room for.
    fn finished(isa: Isa, how: Finish, bias: Option<&[f32]>, before: f32) -> Vec<f32> {
        let sums = [-1.0, 2.0, -3.0, 4.0, 5.0, f32::NAN, 7.0, -8.0];
        let columns = how.columns(4) - 1;
        let mut y = vec![before; 2 * (columns + 2)];
        let place = FinishPlace::Single(y.as_mut_ptr());
        let target = FinishTarget { y: place, rows: 2, row: columns + 2, columns };
        // SAFETY: `y` has two rows of as many columns, and two more.
        unsafe { finish(isa, how, &sums, bias, &target) };
        if how != Finish::Add {
            let mut rounded = vec![bf16::from_f32(before); y.len()];
            let target = FinishTarget { y: FinishPlace::Rounded(rounded.as_mut_ptr()), ..target };
            // SAFETY: as above.
            unsafe { finish(isa, how, &sums, bias, &target) };
            let same = |(y, rounded): (&f32, &bf16)| {
                bf16::from_f32(*y).to_bits() == rounded.to_bits() || y.is_nan() && rounded.is_nan()
            };
            assert!(y.iter().zip(&rounded).all(same), "{isa:?} {how:?}: {rounded:?} for {y:?}");
        }
        assert!(y.chunks_exact(columns + 2).all(|row| row[columns..] == [before; 2]), "{how:?}");
        y.chunks_exact(columns + 2).flat_map(|row| row[..columns].to_vec()).collect()
    }

    #[test]
    fn every_end_of_a_product_equals_its_definition_and_stays_in_its_columns() {
        let bias = [0.5, -0.5, 0.25, 100.0];
        let same = |a: &[f32], b: &[f32]| {
            a.len() == b.len()
                && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5 || a.is_nan() && b.is_nan())
        };
        let silu = |x: f32| x / (1.0 + (-x).exp());
        let tanh = |x: f32| 0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x.powi(3))).tanh());
        for isa in Isa::available() {
            let check = |how, bias, expected: &[f32]| {
                let found = finished(isa, how, bias, 10.0);
                assert!(same(&found, expected), "{isa:?} {how:?}: {found:?} for {expected:?}");
            };
            check(Finish::Write, None, &[-1.0, 2.0, -3.0, 5.0, f32::NAN, 7.0]);
            check(Finish::Write, Some(&bias), &[-0.5, 1.5, -2.75, 5.5, f32::NAN, 7.25]);
            check(Finish::Add, None, &[9.0, 12.0, 7.0, 15.0, f32::NAN, 17.0]);
            check(Finish::Add, Some(&bias), &[9.5, 11.5, 7.25, 15.5, f32::NAN, 17.25]);
            check(Finish::Relu, Some(&bias), &[0.0, 1.5, 0.0, 5.5, f32::NAN, 7.25]);
            check(
                Finish::Gelu,
                None,
                &[-0.158_655_25, 1.954_499_7, -0.004_049_694, 4.999_998_6, f32::NAN, 7.0],
            );
            check(Finish::GatedGelu, None, &[tanh(-1.0) * -3.0, tanh(5.0) * 7.0]);
            check(Finish::GatedGelu, Some(&bias), &[tanh(-0.5) * -2.75, tanh(5.5) * 7.25]);
            check(Finish::GatedSilu, None, &[silu(-1.0) * -3.0, silu(5.0) * 7.0]);
            check(Finish::GatedSilu, Some(&bias), &[silu(-0.5) * -2.75, silu(5.5) * 7.25]);
        }
    }

    #[test]
    fn gelu_and_its_approximation_equal_their_definitions() {
        // The share of a normal distribution below x, by Simpson's rule from far below.
        let density = |t: f64| (-t * t / 2.0).exp() / std::f64::consts::TAU.sqrt();
        let (step, mut below) = (1.0 / 512.0, 0.0);
        for number in -12 * 512..12 * 512 {
            let x = f64::from(number) * step;
            let exact = x * below;
            assert!((f64::from(gelu(x as f32)) - exact).abs() < 2e-6, "{x}: {} for {exact}", gelu(x as f32));
            let approximate = 0.5 * x * (1.0 + (0.797_884_560_8 * (x + 0.044_715 * x.powi(3))).tanh());
            assert!((f64::from(gelu_by_tanh(x as f32)) - approximate).abs() < 2e-6, "{x}");
            below += step / 6.0 * (density(x) + 4.0 * density(x + step / 2.0) + density(x + step));
        }
        assert!(gelu(f32::NAN).is_nan() && gelu_by_tanh(f32::NAN).is_nan());
        assert!(gelu_by_tanh(-100.0).abs() < 1e-30, "{}", gelu_by_tanh(-100.0));
        assert_eq!((gelu_by_tanh(100.0), gelu(-100.0)), (100.0, 0.0));
    }
}
