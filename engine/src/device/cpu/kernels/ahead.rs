//! The next piece of a panel, brought near while a kernel is at the one before it.
//!
//! The first block of rows reads a piece from memory, those behind it from cache: so memory would rest while they
//! multiply. Each block asks for its part of the next piece, little by little: asked for all at once, it would be in
//! the way of the kernel's own reads.

use super::matrix_unit::prefetch;

/// Bytes of a cache line.
const LINE: usize = 64;

/// What comes next, cut into as many parts of whole lines as a kernel has steps, or fewer.
pub(super) struct Ahead<'a> {
    rest: &'a [u8],
    /// Bytes of a part.
    of_step: usize,
}

impl<'a> Ahead<'a> {
    /// `next` for a kernel of so many steps.
    #[inline(always)]
    pub(super) fn new(next: &'a [u8], steps: usize) -> Self {
        Self { rest: next, of_step: next.len().div_ceil(steps.max(1)).next_multiple_of(LINE) }
    }

    /// Asks for the part of one step in the second-level cache.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        prefetch(self.take());
    }

    #[inline(always)]
    fn take(&mut self) -> &'a [u8] {
        let (part, rest) = self.rest.split_at(self.of_step.min(self.rest.len()));
        self.rest = rest;
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_comes_next_is_asked_for_in_as_many_steps_as_there_are() {
        for len in [0, 1, 63, 64, 65, 1000, 33_792] {
            let next: Vec<u8> = (0..len).map(|i| i as u8).collect();
            for steps in [0, 1, 2, 7, 16, 32, 1000] {
                let mut ahead = Ahead::new(&next, steps);
                let parts: Vec<&[u8]> = (0..steps.max(1)).map(|_| ahead.take()).collect();
                assert!(parts.concat() == next, "{len} bytes, {steps} steps");
                let at = |part: &[u8]| part.as_ptr().addr() - next.as_ptr().addr();
                let begins_a_line = |part: &&[u8]| at(part).is_multiple_of(LINE);
                assert!(
                    parts.iter().filter(|part| !part.is_empty()).all(begins_a_line),
                    "{len} bytes, {steps} steps"
                );
            }
        }
    }
}
