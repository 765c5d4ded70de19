//! The products of attention: a few rows of queries with keys, or of weights with values, straight from blocks of the
//! KV pool.
//!
//! `c[m, n] (+)= sum over k of left[m, k] * right[k, n]` over a strip of at most [`ROWS_MAX`] rows and a few columns of
//! [`LANES`] lanes. What lies in lanes comes from pieces anywhere in memory, and a number on the left is
//! broadcast. Sums over `k` run in order, lane by lane, so a row's result is the same bits whatever rows stand
//! beside it.

use half::bf16;

use super::bytes::BytePair;
use super::packed::Bits;
pub(crate) use super::pairs::Pair;
use super::tile::LANES;
use super::{Isa, avx2, avx512, avx512bf16, bytes, portable, softmax};

/// Most rows of a strip.
pub(crate) const ROWS_MAX: usize = 6;

/// Most columns of a strip.
pub(super) const COLUMNS_MAX: usize = 4;

/// Most scores of a row at a time: with their keys and values, what the first-level cache holds.
pub(crate) const SCORES_MAX: usize = 128;

/// Most pieces that a row of weights meets: a block per column of scores, and the two ends.
pub(crate) const PIECES_MAX: usize = SCORES_MAX / LANES + 2;

/// What keys and values are stored as: one or more numbers that follow each other in a sum.
pub(crate) trait Stored: Bits {
    /// Numbers in an element.
    const NUMBERS: usize;
    /// Whether a row of them has a scale.
    const IS_SCALED: bool = false;
    /// None of them.
    const ZERO: Self;
    /// Rounds `row` to elements; numbers that are missing in the last are zero. Gives back the row's scale, where it
    /// has one.
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
        Some(bytes::keep_scale(bytes::quantise(isa, row, numbers)))
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

/// A way to multiply with what is stored.
pub(crate) trait Product: Send + Sync + 'static {
    /// What meets it: as many numbers as a stored element has.
    type Left: Bits;
    /// How it is stored.
    type Right: Stored;
    /// Zeros on the left.
    const LEFT_ZERO: Self::Left;
    /// `row` as what meets keys; numbers that are missing in the last element are zero.
    fn narrow(isa: Isa, row: &[f32], to: &mut [Self::Left]);
    /// [`softmax::soften`] into what meets values.
    fn soften(isa: Isa, scores: &[f32], max_before: f32, weights: &mut [Self::Left]) -> (f32, f32);
    /// The same for values of integers: weights times `scales`. `plain` is memory for as many weights.
    fn soften_scaled(
        isa: Isa,
        (scores, scales): (&[f32], &[f32]),
        max_before: f32,
        plain: &mut [f32],
        weights: &mut [Self::Left],
    ) -> (f32, f32) {
        let found = softmax::soften(isa, scores, max_before, plain);
        bytes::scale_seen(isa, plain, scales);
        Self::narrow(isa, plain, weights);
        found
    }
    /// The kernel.
    ///
    /// # Safety
    /// As [`Strip`] says, and `isa` is available.
    unsafe fn strip(isa: Isa, rows: usize, columns: usize, strip: &Strip<'_, Self::Left, Self::Right>);
}

/// Single precision on both sides.
pub(crate) struct Singles;

/// Pairs of bf16, widened to meet single precision.
pub(crate) struct Widened;

/// Pairs of bf16 that meet numbers rounded to such, on processors that multiply them.
pub(crate) struct Rounded;

impl Product for Singles {
    type Left = f32;
    type Right = f32;
    const LEFT_ZERO: Self::Left = 0.0;

    fn narrow(_isa: Isa, row: &[f32], to: &mut [f32]) {
        to.copy_from_slice(row);
    }

    fn soften(isa: Isa, scores: &[f32], max_before: f32, weights: &mut [f32]) -> (f32, f32) {
        softmax::soften(isa, scores, max_before, weights)
    }

    unsafe fn strip(isa: Isa, rows: usize, columns: usize, strip: &Strip<'_, f32, f32>) {
        // SAFETY: passed on from this function's own contract.
        unsafe {
            match isa {
                Isa::Portable => portable::strip(rows, columns, strip),
                Isa::Avx2 => avx2::strip_singles(rows, columns, strip),
                Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => {
                    avx512::strip_singles(rows, columns, strip)
                }
            }
        }
    }
}

impl Product for Widened {
    type Left = [f32; 2];
    type Right = Pair;
    const LEFT_ZERO: Self::Left = [0.0; 2];

    fn narrow(_isa: Isa, row: &[f32], to: &mut [[f32; 2]]) {
        let (numbers, padding) = to.as_flattened_mut().split_at_mut(row.len());
        numbers.copy_from_slice(row);
        padding.fill(0.0);
    }

    fn soften(isa: Isa, scores: &[f32], max_before: f32, weights: &mut [[f32; 2]]) -> (f32, f32) {
        softmax::soften(isa, scores, max_before, weights.as_flattened_mut())
    }

    unsafe fn strip(isa: Isa, rows: usize, columns: usize, strip: &Strip<'_, [f32; 2], Pair>) {
        // SAFETY: passed on from this function's own contract.
        unsafe {
            match isa {
                Isa::Portable => portable::strip(rows, columns, strip),
                Isa::Avx2 => avx2::strip_widened(rows, columns, strip),
                Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => {
                    avx512::strip_widened(rows, columns, strip)
                }
            }
        }
    }
}

impl Product for Rounded {
    type Left = Pair;
    type Right = Pair;
    const LEFT_ZERO: Self::Left = Pair::ZERO;

    fn narrow(isa: Isa, row: &[f32], to: &mut [Pair]) {
        Pair::narrow(isa, row, to);
    }

    fn soften(isa: Isa, scores: &[f32], max_before: f32, weights: &mut [Pair]) -> (f32, f32) {
        softmax::soften_rounded(isa, scores, max_before, weights.as_flattened_mut())
    }

    unsafe fn strip(_isa: Isa, rows: usize, columns: usize, strip: &Strip<'_, Pair, Pair>) {
        // SAFETY: passed on from this function's own contract.
        unsafe { avx512bf16::strip(rows, columns, strip) }
    }
}

/// Operands of a strip. The caller vouches that every element the kernel touches is inside its buffer.
pub(crate) struct Strip<'a, L, R> {
    /// Row `m` at `left + m * left_row`.
    pub(super) left: *const L,
    /// Elements from one row of the left to the next.
    pub(super) left_row: usize,
    /// What the rows meet, one piece of the sums after another.
    pub(super) segments: &'a [Segment<R>],
    /// Elements from one step of a sum to the next, on the right.
    pub(super) right_step: usize,
    /// Result: row `m` at `c + m * c_row`, column after column.
    pub(super) c: *mut f32,
    /// Elements from one row of `c` to the next.
    pub(super) c_row: usize,
    /// Whether to add to `c` or to overwrite it.
    pub(super) accumulate: bool,
}

/// A piece of the sums.
#[derive(Clone, Copy)]
pub(super) struct Segment<R> {
    /// Where it begins on the left, in elements of a row.
    pub(super) skip: usize,
    /// Its length.
    pub(super) depth: usize,
    /// Where each column begins on the right.
    pub(super) columns: [*const R; COLUMNS_MAX],
}

impl<R> Segment<R> {
    const NONE: Self = Self { skip: 0, depth: 0, columns: [std::ptr::null(); COLUMNS_MAX] };
}

/// Most columns that a kernel of `isa` takes at once.
fn columns_max(isa: Isa) -> usize {
    match isa {
        Isa::Portable | Isa::Avx2 => 1,
        Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => COLUMNS_MAX,
    }
}

/// Most rows that a kernel of `isa` takes at once.
pub(crate) fn rows_max(isa: Isa) -> usize {
    match isa {
        Isa::Portable | Isa::Avx2 => 4,
        Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => ROWS_MAX,
    }
}

/// `scores[m, block * lanes + lane] = queries[m] · keys[lane]` over some blocks of keys, `[depth, lanes]` each; `queries`
/// are rows of `depth`.
pub(crate) fn strip_scores<P: Product>(
    isa: Isa,
    rows: usize,
    queries: &[P::Left],
    (blocks, lanes): (&[&[P::Right]], usize),
    (scores, scores_row): (&mut [f32], usize),
) {
    let (depth, columns) = (queries.len() / rows, blocks.len() * lanes / LANES);
    assert!(rows <= rows_max(isa) && queries.len() == rows * depth && lanes.is_multiple_of(LANES));
    assert!(blocks.iter().all(|block| block.len() == depth * lanes));
    assert!(scores.len() >= (rows - 1) * scores_row + columns * LANES);
    for first in (0..columns).step_by(columns_max(isa)) {
        let count = columns_max(isa).min(columns - first);
        let mut segment = Segment { depth, ..Segment::NONE };
        for (column, to) in segment.columns[..count].iter_mut().enumerate() {
            let lane = (first + column) * LANES;
            *to = blocks[lane / lanes][lane % lanes..].as_ptr();
        }
        let strip = Strip {
            left: queries.as_ptr(),
            left_row: depth,
            segments: &[segment],
            right_step: lanes,
            c: scores[first * LANES..].as_mut_ptr(),
            c_row: scores_row,
            accumulate: false,
        };
        // SAFETY: the asserts bound every element of the operands; a `Cpu` holds available kernels only.
        unsafe { P::strip(isa, rows, count, &strip) };
    }
}

/// Values that follow each other, `[depth, width]`, and the first element of weights that they meet.
pub(crate) type Piece<'a, R> = (usize, &'a [R]);

/// `out[m, ..] += sum of weights[m, skip + k] * values[k, ..]` over some pieces of values.
pub(crate) fn strip_values<P: Product>(
    isa: Isa,
    rows: usize,
    (weights, weights_row): (&[P::Left], usize),
    (pieces, width): (&[Piece<'_, P::Right>], usize),
    (out, out_row): (&mut [f32], usize),
) {
    assert!(rows <= rows_max(isa) && width.is_multiple_of(LANES) && pieces.len() <= PIECES_MAX);
    assert!(weights.len() >= rows * weights_row && out.len() >= (rows - 1) * out_row + width);
    assert!(pieces.iter().all(|(skip, values)| skip + values.len() / width <= weights_row));
    let columns = width / LANES;
    for first in (0..columns).step_by(columns_max(isa)) {
        let count = columns_max(isa).min(columns - first);
        let mut segments = [Segment::NONE; PIECES_MAX];
        for (segment, (skip, values)) in segments.iter_mut().zip(pieces) {
            (segment.skip, segment.depth) = (*skip, values.len() / width);
            for (column, to) in segment.columns[..count].iter_mut().enumerate() {
                *to = values.as_ptr().wrapping_add((first + column) * LANES); // inside, unless it is empty
            }
        }
        let strip = Strip {
            left: weights.as_ptr(),
            left_row: weights_row,
            segments: &segments[..pieces.len()],
            right_step: width,
            c: out[first * LANES..].as_mut_ptr(),
            c_row: out_row,
            accumulate: true,
        };
        // SAFETY: as in `strip_scores`.
        unsafe { P::strip(isa, rows, count, &strip) };
    }
}

/// Defines a kernel of one instruction set: how a vector of the right is loaded, and how its products with an element of
/// the left are added to a sum. `zero`, `load_f32`, `store` and `WIDTH` are the instruction set's own.
macro_rules! strip_kernel {
    ($features:literal, $name:ident, $by_rows:ident, $strip:ident, $left:ty, $right:ty, $load:ident, $add:ident) => {
        /// Picks the kernel for a number of rows and columns.
        ///
        /// # Safety
        /// As the strip says, and the processor has this module's instructions.
        pub(in crate::device::cpu) unsafe fn $name(
            rows: usize,
            columns: usize,
            strip: &$crate::device::cpu::strip::Strip<'_, $left, $right>,
        ) {
            // SAFETY: passed on from this function's own contract.
            unsafe {
                match columns {
                    1 => $by_rows::<1>(rows, strip),
                    2 => $by_rows::<2>(rows, strip),
                    3 => $by_rows::<3>(rows, strip),
                    4 => $by_rows::<4>(rows, strip),
                    _ => unreachable!("strips have one to four columns"),
                }
            }
        }

        unsafe fn $by_rows<const V: usize>(
            rows: usize,
            strip: &$crate::device::cpu::strip::Strip<'_, $left, $right>,
        ) {
            // SAFETY: as above.
            unsafe {
                match rows {
                    1 => $strip::<1, V>(strip),
                    2 => $strip::<2, V>(strip),
                    3 => $strip::<3, V>(strip),
                    4 => $strip::<4, V>(strip),
                    5 => $strip::<5, V>(strip),
                    6 => $strip::<6, V>(strip),
                    _ => unreachable!("strips have one to six rows"),
                }
            }
        }

        #[target_feature(enable = $features)]
        unsafe fn $strip<const M: usize, const V: usize>(
            strip: &$crate::device::cpu::strip::Strip<'_, $left, $right>,
        ) {
            const VECTORS: usize = $crate::device::cpu::LANES / WIDTH; // of a column
            // SAFETY: the strip's extent was checked by the caller.
            unsafe {
                let mut sums = [[[zero(); VECTORS]; V]; M];
                if strip.accumulate {
                    for m in 0..M {
                        for v in 0..V {
                            for i in 0..VECTORS {
                                let at = m * strip.c_row + (v * VECTORS + i) * WIDTH;
                                sums[m][v][i] = load_f32(strip.c.add(at));
                            }
                        }
                    }
                }
                for segment in strip.segments {
                    let mut left = strip.left.add(segment.skip);
                    let mut columns = segment.columns;
                    for _ in 0..segment.depth {
                        for v in 0..V {
                            for i in 0..VECTORS {
                                let lanes = $load(columns[v].add(i * WIDTH));
                                for m in 0..M {
                                    let sum = &mut sums[m][v][i];
                                    *sum = $add(*sum, left.add(m * strip.left_row), lanes);
                                }
                            }
                            columns[v] = columns[v].wrapping_add(strip.right_step);
                        }
                        left = left.wrapping_add(1);
                    }
                }
                for m in 0..M {
                    for v in 0..V {
                        for i in 0..VECTORS {
                            let at = m * strip.c_row + (v * VECTORS + i) * WIDTH;
                            store(strip.c.add(at), sums[m][v][i]);
                        }
                    }
                }
            }
        }
    };
}
pub(super) use strip_kernel;

/// Defines the kernels of one instruction set that multiply single precision: with single precision, and with pairs of
/// bf16. `splat`, `fma` and `load_pairs` are its own too.
macro_rules! widening_strips {
    ($features:literal, $vector:ty) => {
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn add_single(sum: $vector, left: *const f32, lanes: $vector) -> $vector {
            // SAFETY: the caller vouches for the element.
            fma(splat(unsafe { *left }), lanes, sum)
        }

        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn add_widened(sum: $vector, left: *const [f32; 2], lanes: [$vector; 2]) -> $vector {
            // SAFETY: the caller vouches for the element.
            let [first, second] = unsafe { *left };
            fma(splat(second), lanes[1], fma(splat(first), lanes[0], sum))
        }

        strip_kernel!($features, strip_singles, singles_by_rows, singles, f32, f32, load_f32, add_single);
        strip_kernel!(
            $features,
            strip_widened,
            widened_by_rows,
            widened,
            [f32; 2],
            Pair,
            load_pairs,
            add_widened
        );
    };
}
pub(super) use widening_strips;
