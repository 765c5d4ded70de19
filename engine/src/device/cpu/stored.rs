//! What keys and values are stored as, and how a row of numbers becomes that.

use half::bf16;

use super::isa::Isa;
use super::layout::bytes::{BytePair, keep_scale};
use super::layout::packed::Bits;
use super::layout::pairs::Pair;
use super::{bytes, softmax};

/// What keys and values are stored as: one or more numbers that follow each other in a sum.
pub(crate) trait Stored: Bits {
    /// Numbers in an element.
    const NUMBERS: usize;
    /// Whether a row of them has a scale.
    const IS_SCALED: bool = false;
    /// None of them.
    const ZERO: Self;
    /// Rounds `row` to elements; numbers that are missing in the last are zero. Gives back the row's scale,
    /// where it has one.
    fn narrow(isa: Isa, row: &[f32], to: &mut [Self]) -> Option<Self>;
    /// The element with all its numbers zero but the one at `place`.
    fn only(self, place: usize) -> Self;
    /// Sets number `place` of each element of `to` to the numbers of `from`, in order.
    fn scatter(from: &[Self], place: usize, to: &mut [Self]);
}

impl Stored for f32 {
    const NUMBERS: usize = 1;
    const ZERO: Self = 0.0;

    fn narrow(_isa: Isa, row: &[f32], to: &mut [Self]) -> Option<Self> {
        to.copy_from_slice(row);
        None
    }

    fn only(self, _place: usize) -> Self {
        self
    }

    fn scatter(from: &[Self], _place: usize, to: &mut [Self]) {
        to.copy_from_slice(from);
    }
}

impl Stored for Pair {
    const NUMBERS: usize = 2;
    const ZERO: Self = [bf16::ZERO; 2];

    fn narrow(isa: Isa, row: &[f32], to: &mut [Self]) -> Option<Self> {
        let to = to.as_flattened_mut();
        softmax::round_all(isa, row, &mut to[..row.len()]);
        to[row.len()..].fill(bf16::ZERO);
        None
    }

    fn only(self, place: usize) -> Self {
        only(Self::ZERO, self, place)
    }

    fn scatter(from: &[Self], place: usize, to: &mut [Self]) {
        scatter(from, place, to);
    }
}

/// Pairs of integers lie as pairs of bf16 do, which they are widened to.
impl Stored for BytePair {
    const NUMBERS: usize = Pair::NUMBERS;
    const IS_SCALED: bool = true;
    const ZERO: Self = [0; 2];

    fn narrow(isa: Isa, row: &[f32], to: &mut [Self]) -> Option<Self> {
        let (numbers, padding) = to.as_flattened_mut().split_at_mut(row.len());
        padding.fill(0);
        Some(keep_scale(bytes::quantise(isa, row, numbers)))
    }

    fn only(self, place: usize) -> Self {
        only(Self::ZERO, self, place)
    }

    fn scatter(from: &[Self], place: usize, to: &mut [Self]) {
        scatter(from, place, to);
    }
}

/// [`Stored::only`] of a pair.
fn only<T: Copy>(zero: [T; 2], pair: [T; 2], place: usize) -> [T; 2] {
    let mut kept = zero;
    kept[place] = pair[place];
    kept
}

/// [`Stored::scatter`] of pairs.
fn scatter<T: Copy>(from: &[[T; 2]], place: usize, to: &mut [[T; 2]]) {
    to.iter_mut().zip(from.as_flattened()).for_each(|(to, number)| to[place] = *number);
}
