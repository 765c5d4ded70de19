//! The operands of a strip: at most [`ROWS_MAX`] rows of queries or weights, and what they meet, in pieces
//! anywhere in memory, [`COLUMNS_MAX`] columns of [`LANES`] lanes at once.

use super::blocks::LANES;

/// Most rows of a strip.
pub(crate) const ROWS_MAX: usize = 6;

/// Most columns of a strip.
pub(crate) const COLUMNS_MAX: usize = 4;

/// Most scores of a row at a time: with their keys and values, what the first-level cache holds.
pub(crate) const SCORES_MAX: usize = 128;

/// Most pieces that a row of weights meets: a block per column of scores, and the two ends.
pub(crate) const PIECES_MAX: usize = SCORES_MAX / LANES + 2;

/// Operands of a strip. The caller vouches that every element the kernel touches is inside its buffer.
pub(crate) struct Strip<'a, L, R> {
    /// Row `m` at `left + m * left_row`.
    pub(crate) left: *const L,
    /// Elements from one row of the left to the next.
    pub(crate) left_row: usize,
    /// What the rows meet, one piece of the sums after another.
    pub(crate) segments: &'a [Segment<R>],
    /// Elements from one step of a sum to the next, on the right.
    pub(crate) right_step: usize,
    /// Result: row `m` at `c + m * c_row`, column after column.
    pub(crate) c: *mut f32,
    /// Elements from one row of `c` to the next.
    pub(crate) c_row: usize,
    /// Whether to add to `c` or to overwrite it.
    pub(crate) accumulate: bool,
}

/// A piece of the sums.
#[derive(Clone, Copy)]
pub(crate) struct Segment<R> {
    /// Where it begins on the left, in elements of a row.
    pub(crate) skip: usize,
    /// Its length.
    pub(crate) depth: usize,
    /// Where each column begins on the right.
    pub(crate) columns: [*const R; COLUMNS_MAX],
}

impl<R> Segment<R> {
    /// No piece.
    pub(crate) const NONE: Self = Self { skip: 0, depth: 0, columns: [std::ptr::null(); COLUMNS_MAX] };
}
