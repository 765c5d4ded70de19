//! Memory on cache lines of its own, kept from use to use.
//!
//! A vector or a tile's row that crosses from one line to the next is read twice; `Vec` promises no more than
//! its elements need.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::packed::Bits;

/// Bytes of a line.
const LINE: usize = 64;

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct CacheLine([u8; LINE]);

/// Numbers of which the first begins a cache line.
pub(crate) struct Aligned<T> {
    lines: Vec<CacheLine>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Bits> Aligned<T> {
    /// None.
    pub(crate) const EMPTY: Self = Self { lines: Vec::new(), len: 0, element: PhantomData };

    /// `len` zeros.
    pub(crate) fn zeros(len: usize) -> Self {
        let mut zeros = Self::EMPTY;
        zeros.resize(len);
        zeros
    }

    /// Makes it `len` numbers, of whatever values; its memory never shrinks.
    pub(crate) fn resize(&mut self, len: usize) {
        const { assert!(align_of::<T>() <= LINE) };
        let lines = (len * size_of::<T>()).div_ceil(LINE);
        if self.lines.len() < lines {
            self.lines.resize(lines, CacheLine([0; LINE]));
        }
        self.len = len;
    }
}

impl<T: Bits> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the lines are as long and aligned as `len` numbers, and every pattern is one.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl<T: Bits> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the lines are borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_a_line_and_keeps_what_is_written() {
        let mut numbers = Aligned::<f32>::zeros(3);
        assert!(numbers.iter().all(|x| *x == 0.0) && numbers.len() == 3);
        numbers[2] = 5.0;
        for len in [100, 3, 0, 17, 3] {
            numbers.resize(len);
            assert!(numbers.len() == len && numbers.as_ptr().addr().is_multiple_of(LINE));
        }
        assert_eq!(numbers[2], 5.0);
        assert!(Aligned::<u8>::EMPTY.is_empty());
    }
}
