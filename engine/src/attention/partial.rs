//! Attention of a stack of queries over one part: the online softmax, a few blocks at a time.
//!
//! FlashAttention (arXiv 2205.14135), Algorithm 1, with the strip kernel for both products. Scores are in
//! powers of two and held against whole numbers, so every rescaling is exact: how a run is cut into parts and
//! blocks changes the order of sums and nothing else, whatever weights are rounded to.

use super::layer::{Falloff, Layer, TILE_ROWS, Task, two_to};
use crate::device::cpu::{
    Aligned, KeyBlocks, LANES, Product, SCORES_MAX, STRIP_ROWS, ScaledScores, Stored, Strided, StridedMut,
    ValueBlocks, bend, bias_by_distance, bias_by_rounded_distance, row_blocks, scale,
};
use crate::pool::{Kept, KvElement, LayerHead, ReadMemory};

/// Most blocks of a chunk.
const BLOCKS_MAX: usize = SCORES_MAX / LANES;

/// Memory that a thread reuses from task to task.
pub(super) struct TaskScratch<P: Product> {
    /// Of the task's rows.
    queries: Vec<Query>,
    /// A query, rotated and scaled.
    rotated: Vec<f32>,
    /// The rows' queries as they meet keys.
    packed: Aligned<P::Left>,
    /// Keys and values of a chunk, where they have to be widened.
    widened: ReadMemory,
    /// Positions of a chunk's keys, lane by lane, where scores fall with distance.
    positions: Vec<f32>,
    strip: StripScratch<P>,
}

/// What a strip of rows reuses.
struct StripScratch<P: Product> {
    scores: Aligned<f32>,
    /// A row of weights that are yet to meet the scales of their values.
    plain: Vec<f32>,
    /// What weighs its values.
    weights: Aligned<P::Left>,
    /// Values of blocks that the part has a share of.
    ends: Aligned<P::Right>,
}

impl<P: Product> TaskScratch<P> {
    pub(super) fn new(layer: &Layer<'_>) -> Self {
        let (numbers, dim) = (P::Right::NUMBERS, layer.heads.dim);
        Self {
            queries: Vec::with_capacity(TILE_ROWS),
            rotated: vec![0.0; dim],
            packed: Aligned::zeros((TILE_ROWS + STRIP_ROWS) * dim.div_ceil(numbers)),
            widened: ReadMemory::default(),
            positions: Vec::new(),
            strip: StripScratch {
                scores: Aligned::zeros(STRIP_ROWS * SCORES_MAX),
                plain: vec![0.0; SCORES_MAX],
                weights: Aligned::zeros(STRIP_ROWS * SCORES_MAX / numbers),
                ends: Aligned::EMPTY,
            },
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
struct Chunk {
    /// Number of the first.
    first: usize,
    /// How many they are.
    blocks: usize,
    block_tokens: usize,
    /// Position, as read, of lane 0 of the first block (it may lie before the part's first token).
    origin: isize,
    /// The part's positions.
    low: isize,
    /// Their end.
    high: isize,
}

impl Chunk {
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
        let last = block(high + self.block_tokens as isize - 1).min(self.blocks);
        let first = block(low).min(last);
        let origin = self.origin + (first * self.block_tokens) as isize;
        Self { first: self.first + first, blocks: last - first, origin, ..*self }
    }
}

/// Fills the task's partial result.
pub(super) fn compute<P: Product<Right: KvElement>>(
    layer: &Layer<'_>,
    task: Task<'_>,
    scratch: &mut TaskScratch<P>,
) {
    let (stride, part) = (layer.stride(), task.part);
    let rows = task.partial.len() / stride;
    find_queries(layer, &task, rows, &mut scratch.queries);
    pack_queries(layer, scratch);
    task.partial.fill(0.0);
    task.partial.chunks_exact_mut(stride).for_each(|row| row[stride - 2] = f32::NEG_INFINITY);

    let shape = layer.pool.shape();
    let (isa, per_chunk) = (layer.cpu.isa(), SCORES_MAX / shape.lanes());
    let depth = layer.heads.dim.div_ceil(P::Right::NUMBERS);
    let (low, high) = (part.position as isize, (part.position + part.tokens) as isize);
    for first in (0..part.blocks.len()).step_by(per_chunk) {
        let chunk = Chunk {
            first,
            blocks: per_chunk.min(part.blocks.len() - first),
            block_tokens: shape.block_tokens,
            origin: low + (first * shape.block_tokens) as isize - part.first_lane as isize,
            low,
            high,
        };
        let chunk = chunk.within(seen_by_any(layer, part.is_causal, &scratch.queries, &chunk));
        if chunk.blocks == 0 {
            continue;
        }
        let blocks = &part.blocks[chunk.first..chunk.first + chunk.blocks];
        let head = LayerHead { layer: layer.layer, head: task.kv_head };
        let kept = layer.pool.read(isa, head, blocks, &mut scratch.widened);
        if layer.scores.falloff.is_some() {
            layer.pool.positions(blocks, &mut scratch.positions);
        }
        let (chunk, positions) = (Chunk { first: 0, ..chunk }, &scratch.positions[..]);
        let read = Read { chunk, kept: &kept, positions, is_causal: part.is_causal };
        for block in row_blocks(rows, P::rows_max(isa)) {
            let (first, end) = (block.first, block.first + block.rows);
            let rows = QueryRows {
                queries: &scratch.queries[first..end],
                packed: Strided { elements: &scratch.packed[first * depth..], stride: depth },
            };
            let partial = &mut task.partial[first * stride..end * stride];
            add_chunk(layer, &read, rows, &mut scratch.strip, partial);
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
fn pack_queries<P: Product>(layer: &Layer<'_>, scratch: &mut TaskScratch<P>) {
    let TaskScratch { queries, rotated, packed, .. } = scratch;
    let dim = layer.heads.dim;
    let scale = layer.scores.scale;
    for (query, packed) in queries.iter().zip(packed.chunks_exact_mut(dim.div_ceil(P::Right::NUMBERS))) {
        let head = &layer.queries[query.token * layer.query_stride + query.head * dim..][..dim];
        layer.angles.rotate(query.angle, head, rotated);
        rotated.iter_mut().for_each(|x| *x *= scale);
        P::narrow(layer.cpu.isa(), rotated, packed);
    }
}

/// A chunk that was read.
struct Read<'a, E> {
    /// Its blocks are numbered as they were read.
    chunk: Chunk,
    kept: &'a Kept<'a, E>,
    /// Of its keys, where scores fall with distance.
    positions: &'a [f32],
    is_causal: bool,
}

/// Some of the task's rows.
struct QueryRows<'a, L> {
    queries: &'a [Query],
    /// As they meet keys; behind them what belongs to others.
    packed: Strided<'a, L>,
}

/// Adds a chunk to the partial results of a strip of rows.
fn add_chunk<P: Product<Right: KvElement>>(
    layer: &Layer<'_>,
    read: &Read<'_, P::Right>,
    QueryRows { queries, packed }: QueryRows<'_, P::Left>,
    scratch: &mut StripScratch<P>,
    partial: &mut [f32],
) {
    let StripScratch { scores, plain, weights, ends } = scratch;
    let (isa, stride, lanes) = (layer.cpu.isa(), layer.stride(), layer.pool.shape().lanes());
    let chunk = read.chunk.within(seen_by_any(layer, read.is_causal, queries, &read.chunk));
    if chunk.blocks == 0 {
        return;
    }
    let keys = &read.kept.keys[chunk.first..chunk.first + chunk.blocks];
    let (from, width) = (chunk.first * lanes, chunk.blocks * lanes);
    let scales = read.kept.scales.map(|scales| scales.map(|of_lanes| &of_lanes[from..from + width]));
    let keys = KeyBlocks { blocks: keys, lanes };
    let to = StridedMut { elements: scores, stride: SCORES_MAX };
    P::scores(isa, queries.len(), packed, keys, to);
    let weights_row = SCORES_MAX / P::Right::NUMBERS;
    for (row, query) in queries.iter().enumerate() {
        let scores = &mut scores[row * SCORES_MAX..][..width];
        if let Some([of_keys, _]) = scales {
            scale(isa, scores, of_keys);
        }
        if let Some(cap) = layer.scores.cap {
            bend(isa, scores, cap);
        }
        if let Some(Falloff { slopes, scale, is_rounded }) = layer.scores.falloff {
            let (positions, angle) = (&read.positions[from..from + width], query.angle as f32);
            let bias = if is_rounded { bias_by_rounded_distance } else { bias_by_distance };
            bias(isa, scores, positions, angle, (slopes[query.head], scale));
        }
        mask(seen(layer, read.is_causal, *query, &chunk), &chunk, lanes, scores);
        let weights = &mut weights[row * weights_row..][..width / P::Right::NUMBERS];
        let partial = &mut partial[row * stride..][..stride];
        let before = partial[stride - 2];
        let (max, sum) = match scales {
            Some([_, of_values]) => P::soften_scaled(
                isa,
                ScaledScores { scores, scales: of_values },
                before,
                &mut plain[..width],
                weights,
            ),
            None => P::soften(isa, scores, before, weights),
        };
        add_sum(partial, max, sum);
    }
    let mut seen = [(0, 0); BLOCKS_MAX];
    for (number, seen) in seen[..chunk.blocks].iter_mut().enumerate() {
        *seen = chunk.lanes(number, (chunk.low, chunk.high));
    }
    let values = ValueBlocks {
        blocks: &read.kept.values[chunk.first..chunk.first + chunk.blocks],
        width: layer.pool.shape().head_lanes(),
        lanes,
        block_tokens: chunk.block_tokens,
        seen: &seen[..chunk.blocks],
    };
    let weights = Strided { elements: &weights[..], stride: weights_row };
    P::add_values(isa, queries.len(), weights, values, ends, StridedMut { elements: partial, stride });
}

/// Positions of the chunk's part that a query sees.
fn seen(layer: &Layer<'_>, is_causal: bool, query: Query, chunk: &Chunk) -> (isize, isize) {
    let after = query.position as isize + 1;
    let high = if is_causal { chunk.high.min(after) } else { chunk.high };
    let low = layer.heads.window.map_or(chunk.low, |window| chunk.low.max(after - window as isize));
    (low, high)
}

/// The least range that holds what each of the queries sees.
fn seen_by_any(layer: &Layer<'_>, is_causal: bool, queries: &[Query], chunk: &Chunk) -> (isize, isize) {
    let seen = queries.iter().map(|query| seen(layer, is_causal, *query, chunk));
    seen.fold((isize::MAX, isize::MIN), |(low, high), (from, to)| (low.min(from), high.max(to)))
}

/// Sets to minus infinity what a query does not see: lanes outside the part, its future, what the window left
/// behind.
fn mask(seen: (isize, isize), chunk: &Chunk, lanes: usize, scores: &mut [f32]) {
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
