//! Attention of a stack of queries over one part: the online softmax, a few blocks at a time.
//!
//! FlashAttention (arXiv 2205.14135), Algorithm 1, with the strip kernel for both products. Scores are in powers of two
//! and held against whole numbers, so every rescaling is exact: how a run is cut into parts and blocks changes
//! the order of sums and nothing else, whatever weights are rounded to.

use std::ops::Range;

use super::{Layer, TILE_ROWS, Task, two_to};
use crate::device::cpu::{
    PIECES_MAX, Product, ROWS_MAX, SCORES_MAX, Stored, row_blocks, rows_max, strip_scores, strip_values,
};
use crate::pool::KvElement;

/// Memory that a thread reuses from task to task.
pub(super) struct Scratch<P: Product> {
    /// Of the task's rows.
    queries: Vec<Query>,
    /// A query, rotated and scaled.
    rotated: Vec<f32>,
    /// The rows' queries as they meet keys.
    packed: Vec<P::Left>,
    /// Scores of a strip.
    scores: Vec<f32>,
    /// What weighs its values.
    weights: Vec<P::Left>,
    /// Values at both ends of a chunk that the part has a share of.
    ends: Vec<P::Right>,
}

impl<P: Product> Scratch<P> {
    pub(super) fn new(layer: &Layer<'_>) -> Self {
        let (numbers, none) = (P::Right::NUMBERS, P::LEFT_ZERO);
        let dim = layer.heads.dim;
        Self {
            queries: Vec::with_capacity(TILE_ROWS),
            rotated: vec![0.0; dim],
            packed: vec![none; TILE_ROWS * dim.div_ceil(numbers)],
            scores: vec![0.0; ROWS_MAX * SCORES_MAX],
            weights: vec![none; ROWS_MAX * SCORES_MAX / numbers],
            ends: vec![P::Right::ZERO; 2 * layer.pool.shape().head_lanes()],
        }
    }
}

/// Where a query row comes from.
#[derive(Clone, Copy)]
struct Query {
    token: usize,
    head: usize,
    angle: usize,
    position: usize,
}

/// Blocks taken together, and where they lie in the part.
#[derive(Clone, Copy)]
struct Chunk<'a> {
    blocks: &'a [usize],
    block_tokens: usize,
    /// Position, as read, of lane 0 of the first block (it may lie before the part's first token).
    origin: isize,
    /// The part's positions.
    low: isize,
    /// Their end.
    high: isize,
}

impl Chunk<'_> {
    /// Lanes `first..last` of block `number` whose positions are in `low..high`.
    fn lanes(&self, number: usize, (low, high): (isize, isize)) -> (usize, usize) {
        let block_tokens = self.block_tokens as isize;
        let origin = self.origin + number as isize * block_tokens;
        let first = (low - origin).clamp(0, block_tokens);
        (first as usize, (high - origin).clamp(first, block_tokens) as usize)
    }

    /// Its blocks that hold any of the positions `low..high`.
    fn within(&self, (low, high): (isize, isize)) -> Self {
        let block = |position: isize| (position - self.origin).max(0) as usize / self.block_tokens;
        let last = block(high + self.block_tokens as isize - 1).min(self.blocks.len());
        let first = block(low).min(last);
        let origin = self.origin + (first * self.block_tokens) as isize;
        Self { blocks: &self.blocks[first..last], origin, ..*self }
    }
}

/// Fills the task's partial result.
pub(super) fn compute<P: Product<Right: KvElement>>(
    layer: &Layer<'_>,
    task: Task<'_>,
    scratch: &mut Scratch<P>,
) {
    let (stride, part) = (layer.stride(), task.part);
    let rows = task.partial.len() / stride;
    find_queries(layer, &task, rows, &mut scratch.queries);
    pack_queries(layer, scratch);
    task.partial.fill(0.0);
    task.partial.chunks_exact_mut(stride).for_each(|row| row[stride - 2] = f32::NEG_INFINITY);

    let shape = layer.pool.shape();
    let per_chunk = SCORES_MAX / shape.lanes();
    let (low, high) = (part.position as isize, (part.position + part.tokens) as isize);
    for (number, blocks) in part.blocks.chunks(per_chunk).enumerate() {
        let before = (number * per_chunk * shape.block_tokens) as isize - part.first_lane as isize;
        let chunk = Chunk { blocks, block_tokens: shape.block_tokens, origin: low + before, low, high };
        for (first, count) in row_blocks(rows, rows_max(layer.cpu.isa())) {
            let partial = &mut task.partial[first * stride..(first + count) * stride];
            add_chunk(layer, (part.is_causal, task.kv_head), &chunk, first..first + count, scratch, partial);
        }
    }
}

/// The rows of the task: members' tokens in order, each with the heads of the group.
fn find_queries(layer: &Layer<'_>, task: &Task<'_>, rows: usize, queries: &mut Vec<Query>) {
    let group = layer.heads.group();
    queries.clear();
    let mut members = task.part.members.iter();
    let mut member = members.next();
    for row in task.first_row..task.first_row + rows {
        let (row, head) = (row / group, row % group);
        while member.is_some_and(|member| row >= member.row + member.tokens) {
            member = members.next();
        }
        let member = member.expect("a part has as many rows as its members have tokens");
        let i = row - member.row;
        queries.push(Query {
            token: member.token + i,
            head: task.kv_head * group + head,
            angle: member.angle + i,
            position: member.position + i,
        });
    }
}

/// Rotates and scales the queries, so that scores come out in powers of two.
fn pack_queries<P: Product>(layer: &Layer<'_>, scratch: &mut Scratch<P>) {
    let Scratch { queries, rotated, packed, .. } = scratch;
    let dim = layer.heads.dim;
    let scale = std::f32::consts::LOG2_E / (dim as f32).sqrt();
    for (query, packed) in queries.iter().zip(packed.chunks_exact_mut(dim.div_ceil(P::Right::NUMBERS))) {
        let head = &layer.queries[query.token * layer.query_stride + query.head * dim..][..dim];
        layer.angles.rotate(query.angle, head, rotated);
        rotated.iter_mut().for_each(|x| *x *= scale);
        P::narrow(layer.cpu.isa(), rotated, packed);
    }
}

/// Adds a chunk to the partial results of a strip of rows.
fn add_chunk<P: Product<Right: KvElement>>(
    layer: &Layer<'_>,
    (is_causal, kv_head): (bool, usize),
    chunk: &Chunk<'_>,
    rows: Range<usize>,
    scratch: &mut Scratch<P>,
    partial: &mut [f32],
) {
    let Scratch { queries, packed, scores, weights, ends, .. } = scratch;
    let (isa, shape, stride) = (layer.cpu.isa(), layer.pool.shape(), layer.stride());
    let depth = layer.heads.dim.div_ceil(P::Right::NUMBERS);
    let (queries, packed) = (&queries[rows.clone()], &packed[rows.start * depth..rows.end * depth]);
    let chunk = chunk.within(seen_by_any(layer, is_causal, queries, chunk));
    if chunk.blocks.is_empty() {
        return;
    }
    let mut keys = [&[][..]; PIECES_MAX];
    for (keys, block) in keys.iter_mut().zip(chunk.blocks) {
        *keys = layer.pool.block::<P::Right>(layer.layer, kv_head, *block).0;
    }
    let (keys, width) = (&keys[..chunk.blocks.len()], chunk.blocks.len() * shape.lanes());
    strip_scores::<P>(isa, queries.len(), packed, (keys, shape.lanes()), (scores, SCORES_MAX));
    let weights_row = SCORES_MAX / P::Right::NUMBERS;
    for (row, query) in queries.iter().enumerate() {
        let scores = &mut scores[row * SCORES_MAX..][..width];
        mask(seen(layer, is_causal, *query, &chunk), &chunk, shape.lanes(), scores);
        let weights = &mut weights[row * weights_row..][..width / P::Right::NUMBERS];
        let partial = &mut partial[row * stride..][..stride];
        let (max, sum) = P::soften(isa, scores, partial[stride - 2], weights);
        add_sum(partial, max, sum);
    }
    add_values::<P>(layer, &chunk, (kv_head, queries.len()), weights, ends, partial);
}

/// Positions of the chunk's part that a query sees.
fn seen(layer: &Layer<'_>, is_causal: bool, query: Query, chunk: &Chunk<'_>) -> (isize, isize) {
    let after = query.position as isize + 1;
    let high = if is_causal { chunk.high.min(after) } else { chunk.high };
    let low = layer.heads.window.map_or(chunk.low, |window| chunk.low.max(after - window as isize));
    (low, high)
}

/// The least range that holds what each of the queries sees.
fn seen_by_any(layer: &Layer<'_>, is_causal: bool, queries: &[Query], chunk: &Chunk<'_>) -> (isize, isize) {
    let seen = queries.iter().map(|query| seen(layer, is_causal, *query, chunk));
    seen.fold((isize::MAX, isize::MIN), |(low, high), (from, to)| (low.min(from), high.max(to)))
}

/// Sets to minus infinity what a query does not see: lanes outside the part, its future, what the window left behind.
fn mask(seen: (isize, isize), chunk: &Chunk<'_>, lanes: usize, scores: &mut [f32]) {
    for (number, scores) in scores.chunks_exact_mut(lanes).enumerate() {
        let (first, last) = chunk.lanes(number, seen);
        scores[..first].fill(f32::NEG_INFINITY);
        scores[last..].fill(f32::NEG_INFINITY);
    }
}

/// Brings what a row has summed so far to the new maximum.
fn add_sum(partial: &mut [f32], max: f32, sum: f32) {
    let tail = partial.len() - 2;
    let before = partial[tail];
    if max > before && before > f32::NEG_INFINITY {
        let factor = two_to(before - max);
        partial[..tail].iter_mut().for_each(|x| *x *= factor);
        partial[tail + 1] *= factor;
    }
    partial[tail] = max;
    partial[tail + 1] += sum;
}

/// `partial[m, ..] += weights[m, lane] * v[lane, ..]`, over the lanes that belong to the part only: others may
/// hold anything.
fn add_values<P: Product<Right: KvElement>>(
    layer: &Layer<'_>,
    chunk: &Chunk<'_>,
    (kv_head, rows): (usize, usize),
    weights: &[P::Left],
    ends: &mut [P::Right],
    partial: &mut [f32],
) {
    let numbers = P::Right::NUMBERS;
    let (shape, stride) = (layer.pool.shape(), layer.stride());
    let (width, lanes) = (shape.head_lanes(), shape.lanes() / numbers);
    let (start, end) = ends.split_at_mut(width);
    let mut end_pieces = [None; 2];
    let mut pieces = [(0, &[][..]); PIECES_MAX];
    let whole = chunk.blocks.len();
    for (number, (piece, block)) in pieces.iter_mut().zip(chunk.blocks).enumerate() {
        let (first, last) = chunk.lanes(number, (chunk.low, chunk.high));
        let values = layer.pool.block::<P::Right>(layer.layer, kv_head, *block).1;
        let mut only = |lane: usize, place: usize, to: &mut [P::Right]| {
            let element = lane / numbers;
            for (to, value) in to.iter_mut().zip(&values[element * width..][..width]) {
                *to = value.only(place);
            }
            end_pieces[usize::from(place == 0)] = Some(number * lanes + element);
        };
        if first < last && !first.is_multiple_of(numbers) {
            only(first, 1, start);
        }
        let last = if last == shape.block_tokens { last.next_multiple_of(numbers) } else { last }; // padding is zero
        if first < last && !last.is_multiple_of(numbers) {
            only(last, 0, end);
        }
        let (first, last) = (first.div_ceil(numbers), last / numbers);
        if first < last {
            *piece = (number * lanes + first, &values[first * width..last * width]);
        }
    }
    let mut count = whole;
    for (skip, values) in end_pieces.into_iter().zip([start, end]) {
        if let Some(skip) = skip {
            pieces[count] = (skip, values);
            count += 1;
        }
    }
    let weights = (weights, SCORES_MAX / numbers);
    strip_values::<P>(layer.cpu.isa(), rows, weights, (&pieces[..count], width), (partial, stride));
}
