//! Half floats, for processors that multiply them: 11 binary places, three more than bf16 has, and five bits of exponent.
//!
//! So few exponents are enough where the numbers that meet are brought to them by powers of two, which change no digit:
//! one for each output's weights, and one for each block of a row's activations. Both then have their largest number in
//! `[16, 32)`, and no sum of [`RUN`] products leaves the type. What is 2^19 times smaller than the largest loses digits.
//!
//! A panel of weights is `[inputs, PANEL]`. Rows lie in blocks, `[blocks, rows]`, so that a kernel addresses rows by a
//! constant. Each number of a row stands there twice: 32 bits are broadcast as they are loaded, and 16 are not.

use half::f16;
use half::slice::HalfFloatSliceExt as _;
use rayon::prelude::*;

use super::packed::Packed;

/// Outputs of a panel: two vectors.
pub(crate) const PANEL: usize = 64;

/// Inputs of a row that lie together. The piece of a panel that meets them, 16 KiB, stays in the first-level cache.
pub(crate) const DEPTH_BLOCK: usize = 128;

/// Products that are summed up as half floats before their sum is added to one in single precision. Each addition rounds
/// to 11 binary places, so twice as many round by 1.4 times as much.
pub(crate) const RUN: usize = 32;

/// The largest number's exponent under its power of two.
const LARGEST_EXPONENT: i32 = 4;

const _: () = assert!(DEPTH_BLOCK.is_multiple_of(RUN));
const _: () = assert!((RUN as u32) << (2 * LARGEST_EXPONENT + 2) <= 1 << 15); // the type ends below 2^16

/// A block of a row's activations: `scale * numbers`.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct HalfBlock {
    /// Each twice; zero from the row's end on.
    pub(crate) numbers: [[f16; 2]; DEPTH_BLOCK],
    /// What they are to be multiplied by: a power of two.
    pub(crate) scale: f32,
}

/// A block of zeros.
pub(crate) const EMPTY: HalfBlock = HalfBlock { numbers: [[f16::ZERO; 2]; DEPTH_BLOCK], scale: 1.0 };

impl HalfBlock {
    /// A piece of a row, rounded to nearest even.
    pub(crate) fn round(&mut self, from: &[f32]) {
        let inverse;
        (self.scale, inverse) = scale_of(largest(from));
        let (to, padding) = self.numbers.split_at_mut(from.len());
        to.iter_mut().zip(from).for_each(|(to, from)| *to = [f16::from_f32(from * inverse); 2]);
        padding.fill([f16::ZERO; 2]);
    }
}

/// The largest magnitude; what is not a number is larger than any.
fn largest(numbers: &[f32]) -> f32 {
    // Magnitudes order as their bits do.
    f32::from_bits(numbers.iter().fold(0, |largest, number| largest.max(number.abs().to_bits())))
}

/// The power of two that numbers of this largest magnitude are kept under, and what they are multiplied by to be brought
/// to it. One and one where they are all zero, or not all finite: these become what they are.
pub(crate) fn scale_of(largest: f32) -> (f32, f32) {
    /// Bits of a single behind its exponent.
    const PLACES: u32 = f32::MANTISSA_DIGITS - 1;
    let power = |exponent: i32| f32::from_bits(((127 + exponent) as u32) << PLACES);
    if largest == 0.0 || !largest.is_finite() {
        return (1.0, 1.0);
    }
    // Both powers are normal numbers; what is smaller stays small.
    let exponent = ((largest.to_bits() >> PLACES) as i32 - 127).max(-100) - LARGEST_EXPONENT;
    (power(exponent), power(-exponent))
}

/// Rows `0..rows` of weights, which `read` puts into its buffer, as panels, with what each output's numbers are to be
/// multiplied by; what is missing in the last panel is zero.
pub(crate) fn pack_panels(
    rows: usize,
    inputs: usize,
    read: impl Fn(usize, &mut [f32]) + Sync,
) -> (Packed<f16>, Vec<f32>) {
    let lanes = rows.next_multiple_of(PANEL);
    let (mut values, mut scales) = (Packed::zeros(lanes * inputs), vec![1.0; lanes]);
    let panels = values.par_chunks_mut(PANEL * inputs).zip(scales.par_chunks_mut(PANEL));
    panels.enumerate().for_each(|(number, (panel, scales))| {
        let (mut weights, mut halves) = (vec![0.0; inputs], vec![f16::ZERO; inputs]);
        for (lane, row) in (number * PANEL..rows.min((number + 1) * PANEL)).enumerate() {
            read(row, &mut weights);
            let inverse;
            (scales[lane], inverse) = scale_of(largest(&weights));
            weights.iter_mut().for_each(|weight| *weight *= inverse);
            halves.convert_from_f32_slice(&weights);
            for (to, half) in panel.chunks_exact_mut(PANEL).zip(&halves) {
                to[lane] = *half;
            }
        }
    });
    (values, scales)
}

/// Operands of one tile: a few rows by one panel, over a block of inputs.
pub(crate) struct HalfTile<'a> {
    /// The block of each row.
    pub(crate) a: &'a [HalfBlock],
    /// `[depth, PANEL]`
    pub(crate) b: &'a [f16],
    /// Result: `[rows, PANEL]`
    pub(crate) c: &'a mut [f32],
    /// Whether to add to it or to overwrite it.
    pub(crate) accumulate: bool,
    /// What the outputs are to be multiplied by in the end, where this is the last of their blocks.
    pub(crate) scales: Option<&'a [f32]>,
    /// What a kernel may bring near meanwhile.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only x86's kernels do"))]
    pub(crate) next: &'a [u8],
}

impl HalfTile<'_> {
    /// Length of the sums.
    pub(crate) fn depth(&self) -> usize {
        self.b.len() / PANEL
    }

    /// That kernels stay inside the operands.
    pub(crate) fn check(&self, rows: usize) {
        assert!(self.b.len().is_multiple_of(PANEL) && self.depth() <= DEPTH_BLOCK);
        assert!(self.a.len() == rows && self.c.len() == rows * PANEL);
        assert!(self.scales.is_none_or(|scales| scales.len() == PANEL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_number_has_the_same_exponent_whatever_it_was() {
        for largest in [1e-45, 1e-38, 3e-20, 0.4, 1.0, 15.9, 16.0, 31.9, 32.0, 7e8, f32::MAX] {
            let (scale, inverse) = scale_of(largest);
            assert_eq!(scale * inverse, 1.0, "{largest}");
            let is_tiny = largest < 1e-30;
            assert!((16.0..32.0).contains(&(largest * inverse)) || is_tiny, "{largest}");
            assert!(largest * inverse < 32.0, "{largest}");
        }
        for whole in [0.0, f32::INFINITY, f32::NAN] {
            assert_eq!(scale_of(whole), (1.0, 1.0));
        }
    }

    #[test]
    fn a_block_of_a_row_keeps_eleven_places_of_each_number_and_ends_with_zeros() {
        let row: Vec<f32> = (0..77).map(|i| (i as f32 - 30.3) * 1e-7).collect();
        let mut block = HalfBlock { numbers: [[f16::ONE; 2]; DEPTH_BLOCK], scale: f32::NAN };
        block.round(&row);
        for (number, [first, second]) in row.iter().zip(block.numbers) {
            assert_eq!(first, second);
            let kept = first.to_f32() * block.scale;
            assert!((kept - number).abs() <= number.abs() / 2048.0, "{kept} of {number}");
        }
        assert!(block.numbers[row.len()..].iter().all(|number| *number == [f16::ZERO; 2]));
        block.round(&[1.0, f32::NAN, f32::INFINITY]);
        let [one, nan, infinity] = [0, 1, 2].map(|at| block.numbers[at][0]);
        assert!(one == f16::ONE && nan.is_nan() && infinity == f16::INFINITY);
    }

    #[test]
    fn weights_of_bf16_lose_nothing_and_what_is_missing_is_zero() {
        let (rows, inputs) = (PANEL + 3, 5);
        let weight = |row: usize, input: usize| {
            half::bf16::from_f32(((row * inputs + input) as f32 - 100.5) * 0.37e-6).to_f32()
        };
        let read = |row: usize, to: &mut [f32]| {
            to.iter_mut().enumerate().for_each(|(input, to)| *to = weight(row, input));
        };
        let (values, scales) = pack_panels(rows, inputs, read);
        assert_eq!((values.len(), scales.len()), (2 * PANEL * inputs, 2 * PANEL));
        for (row, scale) in scales.iter().enumerate() {
            for input in 0..inputs {
                let kept = values[(row / PANEL * inputs + input) * PANEL + row % PANEL].to_f32() * scale;
                assert_eq!(kept, if row < rows { weight(row, input) } else { 0.0 }, "{row}, {input}");
            }
        }
    }
}
