//! The products of attention: a few rows of queries with keys, or of weights with values, straight from
//! blocks of the KV pool.
//!
//! `c[m, n] (+)= sum over k of left[m, k] * right[k, n]` over a strip of at most [`ROWS_MAX`] rows and a few
//! columns of [`LANES`] lanes: the loop is [`super::kernels::strip_loop`]'s.

use super::isa::Isa;
use super::kernels::{avx2, avx512, avx512_bf16, neon, portable};
use super::layout::aligned::Aligned;
use super::layout::blocks::LANES;
use super::layout::packed::Bits;
use super::layout::pairs::Pair;
use super::layout::strip::{COLUMNS_MAX, PIECES_MAX, ROWS_MAX, Segment, Strip};
use super::stored::Stored;
use super::{bytes, softmax};

/// A row of scores, and the scales of the values that they weigh.
#[derive(Clone, Copy)]
pub(crate) struct ScaledScores<'a> {
    pub(crate) scores: &'a [f32],
    pub(crate) scales: &'a [f32],
}

/// A way to multiply with what is stored.
pub(crate) trait Product: Sized + Send + Sync + 'static {
    /// What meets it: as many numbers as a stored element has.
    type Left: Bits;
    /// How it is stored.
    type Right: Stored;
    /// Zeros on the left.
    /// `row` as what meets keys; numbers that are missing in the last element are zero.
    fn narrow(isa: Isa, row: &[f32], to: &mut [Self::Left]);
    /// [`softmax::soften`] into what meets values.
    fn soften(isa: Isa, scores: &[f32], max_before: f32, weights: &mut [Self::Left]) -> (f32, f32);
    /// The same for values of integers: weights times their scales. `plain` is memory for as many weights.
    fn soften_scaled(
        isa: Isa,
        of_values: ScaledScores<'_>,
        max_before: f32,
        plain: &mut [f32],
        weights: &mut [Self::Left],
    ) -> (f32, f32) {
        let found = softmax::soften(isa, of_values.scores, max_before, plain);
        bytes::scale_seen(isa, plain, of_values.scales);
        Self::narrow(isa, plain, weights);
        found
    }
    /// The kernel of strips.
    ///
    /// # Safety
    /// As [`Strip`] says, and `isa` is available.
    unsafe fn strip(isa: Isa, rows: usize, columns: usize, strip: &Strip<'_, Self::Left, Self::Right>);
    /// Most rows that it takes at once.
    fn rows_max(isa: Isa) -> usize {
        rows_max(isa)
    }
    /// Runs `work`, all of whose products are of this kind, on this thread, made ready for it.
    fn on_thread(work: &mut dyn FnMut()) {
        work();
    }
    /// `scores[m, block * lanes + lane] = queries[m] · keys[lane]` over some blocks of keys. Behind the queries
    /// and scores of `rows` there is memory for [`STRIP_ROWS`] of them, of any values.
    fn scores(
        isa: Isa,
        rows: usize,
        queries: Strided<'_, Self::Left>,
        keys: KeyBlocks<'_, Self::Right>,
        scores: StridedMut<'_, f32>,
    ) {
        strip_scores::<Self>(isa, rows, queries, keys, scores);
    }
    /// `out[m, ..] += sum of weights[m, lane] * values[lane, ..]` over the lanes that the part has, and no
    /// others: these may hold anything. Behind the weights of `rows` there is memory for [`STRIP_ROWS`] of them.
    /// `ends` is memory for blocks of which the part has only some lanes.
    fn add_values(
        isa: Isa,
        rows: usize,
        weights: Strided<'_, Self::Left>,
        values: ValueBlocks<'_, Self::Right>,
        ends: &mut Aligned<Self::Right>,
        out: StridedMut<'_, f32>,
    ) {
        strip_blocks::<Self>(isa, rows, weights, values, ends, out);
    }
}

/// Rows that memory of queries, scores and weights is for, whatever kernel takes them.
pub(crate) const STRIP_ROWS: usize = 16;

/// Single precision on both sides.
pub(crate) struct Singles;

/// Pairs of bf16, widened to meet single precision.
pub(crate) struct Widened;

/// Pairs of bf16 that meet numbers rounded to such, on processors that multiply them.
pub(crate) struct Rounded;

impl Product for Singles {
    type Left = f32;
    type Right = f32;

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
                Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm => neon::strip_singles(rows, columns, strip),
                Isa::Avx2 => avx2::strip_singles(rows, columns, strip),
                Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Fp16 | Isa::Avx512Bf16 | Isa::Amx => {
                    avx512::strip_singles(rows, columns, strip)
                }
            }
        }
    }
}

impl Product for Widened {
    type Left = [f32; 2];
    type Right = Pair;

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
                Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm => neon::strip_widened(rows, columns, strip),
                Isa::Avx2 => avx2::strip_widened(rows, columns, strip),
                Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Fp16 | Isa::Avx512Bf16 | Isa::Amx => {
                    avx512::strip_widened(rows, columns, strip)
                }
            }
        }
    }
}

impl Product for Rounded {
    type Left = Pair;
    type Right = Pair;

    fn narrow(isa: Isa, row: &[f32], to: &mut [Pair]) {
        Pair::narrow(isa, row, to);
    }

    fn soften(isa: Isa, scores: &[f32], max_before: f32, weights: &mut [Pair]) -> (f32, f32) {
        softmax::soften_rounded(isa, scores, max_before, weights.as_flattened_mut())
    }

    unsafe fn strip(_isa: Isa, rows: usize, columns: usize, strip: &Strip<'_, Pair, Pair>) {
        // SAFETY: passed on from this function's own contract.
        unsafe { avx512_bf16::strip(rows, columns, strip) }
    }
}

/// Most columns that a kernel of `isa` takes at once.
fn columns_max(isa: Isa) -> usize {
    match isa {
        Isa::Portable | Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm | Isa::Avx2 => 1,
        Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Fp16 | Isa::Avx512Bf16 | Isa::Amx => COLUMNS_MAX,
    }
}

/// Most rows that a kernel of `isa` takes at once.
fn rows_max(isa: Isa) -> usize {
    match isa {
        Isa::Portable | Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm | Isa::Avx2 => 4,
        Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Fp16 | Isa::Avx512Bf16 | Isa::Amx => ROWS_MAX,
    }
}

/// Rows that begin `stride` elements apart.
#[derive(Clone, Copy)]
pub(crate) struct Strided<'a, T> {
    pub(crate) elements: &'a [T],
    pub(crate) stride: usize,
}

/// The same, to be written.
pub(crate) struct StridedMut<'a, T> {
    pub(crate) elements: &'a mut [T],
    pub(crate) stride: usize,
}

/// Blocks of keys, `[depth, lanes]` each.
#[derive(Clone, Copy)]
pub(crate) struct KeyBlocks<'a, R> {
    pub(crate) blocks: &'a [&'a [R]],
    pub(crate) lanes: usize,
}

/// [`Product::scores`] in strips.
fn strip_scores<P: Product>(
    isa: Isa,
    rows: usize,
    Strided { elements: queries, stride: depth }: Strided<'_, P::Left>,
    KeyBlocks { blocks, lanes }: KeyBlocks<'_, P::Right>,
    StridedMut { elements: scores, stride: scores_row }: StridedMut<'_, f32>,
) {
    let columns = blocks.len() * lanes / LANES;
    assert!(rows <= rows_max(isa) && queries.len() >= rows * depth && lanes.is_multiple_of(LANES));
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

/// Blocks of values, `[block_tokens / numbers, width]` each.
#[derive(Clone, Copy)]
pub(crate) struct ValueBlocks<'a, R> {
    pub(crate) blocks: &'a [&'a [R]],
    /// Elements of a row of values.
    pub(crate) width: usize,
    /// Lanes of a block's weights.
    pub(crate) lanes: usize,
    /// Tokens of a block.
    pub(crate) block_tokens: usize,
    /// Of each block the lanes that the part has: the first, and the first behind them.
    pub(crate) seen: &'a [(usize, usize)],
}

/// Values that follow each other.
#[derive(Clone, Copy)]
struct ValuePiece<'a, R> {
    /// The first element of weights that they meet.
    skip: usize,
    /// `[depth, width]`
    values: &'a [R],
}

/// Pieces of values.
#[derive(Clone, Copy)]
struct ValuePieces<'a, R> {
    pieces: &'a [ValuePiece<'a, R>],
    /// Elements of a row of values.
    width: usize,
}

/// [`Product::add_values`] in strips.
fn strip_blocks<P: Product>(
    isa: Isa,
    rows: usize,
    weights: Strided<'_, P::Left>,
    ValueBlocks { blocks, width, lanes, block_tokens, seen }: ValueBlocks<'_, P::Right>,
    ends: &mut Aligned<P::Right>,
    out: StridedMut<'_, f32>,
) {
    let numbers = P::Right::NUMBERS;
    let lanes = lanes / numbers;
    ends.resize(2 * width);
    let (start, end) = ends.split_at_mut(width);
    let mut end_pieces = [None; 2];
    let mut pieces = [ValuePiece { skip: 0, values: &[][..] }; PIECES_MAX];
    let blocks_seen = blocks.iter().zip(seen);
    for (number, (piece, (values, (first, last)))) in pieces.iter_mut().zip(blocks_seen).enumerate() {
        let mut only = |lane: usize, place: usize, to: &mut [P::Right]| {
            let element = lane / numbers;
            for (to, value) in to.iter_mut().zip(&values[element * width..][..width]) {
                *to = value.only(place);
            }
            end_pieces[usize::from(place == 0)] = Some(number * lanes + element);
        };
        if first < last && !first.is_multiple_of(numbers) {
            only(*first, 1, start);
        }
        // Padding is zero.
        let last = if *last == block_tokens { last.next_multiple_of(numbers) } else { *last };
        if *first < last && !last.is_multiple_of(numbers) {
            only(last, 0, end);
        }
        let (first, last) = (first.div_ceil(numbers), last / numbers);
        if first < last {
            *piece =
                ValuePiece { skip: number * lanes + first, values: &values[first * width..last * width] };
        }
    }
    let mut count = blocks.len();
    for (skip, values) in end_pieces.into_iter().zip([start, end]) {
        if let Some(skip) = skip {
            pieces[count] = ValuePiece { skip, values };
            count += 1;
        }
    }
    strip_values::<P>(isa, rows, weights, ValuePieces { pieces: &pieces[..count], width }, out);
}

/// `out[m, ..] += sum of weights[m, skip + k] * values[k, ..]` over some pieces.
fn strip_values<P: Product>(
    isa: Isa,
    rows: usize,
    Strided { elements: weights, stride: weights_row }: Strided<'_, P::Left>,
    ValuePieces { pieces, width }: ValuePieces<'_, P::Right>,
    StridedMut { elements: out, stride: out_row }: StridedMut<'_, f32>,
) {
    assert!(rows <= rows_max(isa) && width.is_multiple_of(LANES) && pieces.len() <= PIECES_MAX);
    assert!(weights.len() >= rows * weights_row && out.len() >= (rows - 1) * out_row + width);
    assert!(pieces.iter().all(|piece| piece.skip + piece.values.len() / width <= weights_row));
    let columns = width / LANES;
    for first in (0..columns).step_by(columns_max(isa)) {
        let count = columns_max(isa).min(columns - first);
        let mut segments = [Segment::NONE; PIECES_MAX];
        for (segment, ValuePiece { skip, values }) in segments.iter_mut().zip(pieces) {
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
