//! Attention of a stack of queries over one part: the online softmax, a few blocks at a time.
//!
//! FlashAttention (arXiv 2205.14135), Algorithm 1, with the tile kernel for both products.

use super::{Layer, TILE_ROWS, Task};
use crate::device::cpu::{SCORE_STRIDE, row_blocks, soften, tile_packed, tile_scores};

/// Memory that a thread reuses from task to task.
pub(super) struct Scratch {
    /// The queries, packed.
    packed: Vec<f32>,
    /// Scores of a chunk, then weights.
    scores: Vec<f32>,
}

impl Scratch {
    pub(super) fn new(head_dim: usize) -> Self {
        Self { packed: vec![0.0; TILE_ROWS * head_dim], scores: vec![0.0; TILE_ROWS * SCORE_STRIDE] }
    }
}

/// Where a query row comes from.
#[derive(Clone, Copy, Default)]
struct Query {
    token: usize,
    head: usize,
    angle: usize,
    position: usize,
}

/// Blocks taken together, and where they lie in the part.
struct Chunk<'a> {
    blocks: &'a [usize],
    /// Position, as read, of lane 0 of the first block (it may lie before the part's first token).
    origin: isize,
    /// The part's positions.
    low: isize,
    /// Their end.
    high: isize,
}

impl Chunk<'_> {
    /// Lanes `first..last` of block `number` whose positions are in `low..high`.
    fn lanes(&self, number: usize, block_tokens: usize, (low, high): (isize, isize)) -> (usize, usize) {
        let origin = self.origin + (number * block_tokens) as isize;
        let first = (low - origin).clamp(0, block_tokens as isize);
        (first as usize, (high - origin).clamp(first, block_tokens as isize) as usize)
    }
}

/// Fills the task's partial result.
pub(super) fn compute(layer: &Layer<'_>, task: Task<'_>, scratch: &mut Scratch) {
    let (stride, part) = (layer.stride(), task.part);
    let rows = task.partial.len() / stride;
    let mut queries = [Query::default(); TILE_ROWS];
    let queries = &mut queries[..rows];
    find_queries(layer, &task, queries);
    let dim = layer.heads.dim;
    let Scratch { packed, scores } = scratch;
    pack_queries(layer, queries, &mut packed[..rows * dim]);
    task.partial.fill(0.0);
    task.partial.chunks_exact_mut(stride).for_each(|row| row[stride - 2] = f32::NEG_INFINITY);

    let shape = layer.pool.shape();
    let per_chunk = SCORE_STRIDE / shape.lanes();
    let (low, high) = (part.position as isize, (part.position + part.tokens) as isize);
    for (number, blocks) in part.blocks.chunks(per_chunk).enumerate() {
        let before = (number * per_chunk * shape.block_tokens) as isize - part.first_lane as isize;
        let chunk = Chunk { blocks, origin: low + before, low, high };
        if is_hidden(layer, &task, queries, &chunk) {
            continue;
        }
        score(layer, task.kv_head, rows, &packed[..rows * dim], &chunk, scores);
        for (row, query) in queries.iter().enumerate() {
            let width = chunk.blocks.len() * shape.lanes();
            let scores = &mut scores[row * SCORE_STRIDE..][..width];
            mask(layer, part.is_causal, *query, &chunk, scores);
            rescale(layer, scores, &mut task.partial[row * stride..][..stride]);
        }
        add_values(layer, &chunk, (task.kv_head, rows), scores, task.partial);
    }
}

/// The rows of the task: members' tokens in order, each with the heads of the group.
fn find_queries(layer: &Layer<'_>, task: &Task<'_>, queries: &mut [Query]) {
    let group = layer.heads.group();
    let mut members = task.part.members.iter();
    let mut member = members.next();
    for (offset, query) in queries.iter_mut().enumerate() {
        let (row, head) = ((task.first_row + offset) / group, (task.first_row + offset) % group);
        while member.is_some_and(|member| row >= member.row + member.tokens) {
            member = members.next();
        }
        if let Some(member) = member {
            let i = row - member.row;
            *query = Query {
                token: member.token + i,
                head: task.kv_head * group + head,
                angle: member.angle + i,
                position: member.position + i,
            };
        }
    }
}

/// Rotates and scales the queries and packs them for the tile kernel, block by block of rows.
fn pack_queries(layer: &Layer<'_>, queries: &[Query], packed: &mut [f32]) {
    let dim = layer.heads.dim;
    let scale = 1.0 / (dim as f32).sqrt();
    for (first, rows) in row_blocks(queries.len(), layer.cpu.isa().rows_max()) {
        let block = &mut packed[first * dim..(first + rows) * dim];
        for (m, query) in queries[first..first + rows].iter().enumerate() {
            let head = &layer.queries[query.token * layer.query_stride + query.head * dim..][..dim];
            layer.angles.rotate(query.angle, head, |d, x| block[d * rows + m] = x * scale);
        }
    }
}

/// Whether no query of the task sees anything of the chunk.
fn is_hidden(layer: &Layer<'_>, task: &Task<'_>, queries: &[Query], chunk: &Chunk<'_>) -> bool {
    let after = chunk.origin + (chunk.blocks.len() * layer.pool.shape().block_tokens) as isize;
    let is_future =
        task.part.is_causal && queries.iter().all(|query| (query.position as isize) < chunk.origin);
    let is_past = layer.heads.window.is_some_and(|window| {
        queries.iter().all(|query| after <= query.position as isize - window as isize + 1)
    });
    is_future || is_past
}

/// `scores[m, lane] = q[m] · k[lane]`, block by block.
fn score(
    layer: &Layer<'_>,
    kv_head: usize,
    rows: usize,
    packed: &[f32],
    chunk: &Chunk<'_>,
    scores: &mut [f32],
) {
    let (isa, dim, lanes) = (layer.cpu.isa(), layer.heads.dim, layer.pool.shape().lanes());
    for (number, block) in chunk.blocks.iter().enumerate() {
        let (keys, _) = layer.pool.block(layer.layer, kv_head, *block);
        for (first, count) in row_blocks(rows, isa.rows_max()) {
            let a = &packed[first * dim..(first + count) * dim];
            let c = &mut scores[first * SCORE_STRIDE + number * lanes..];
            tile_packed(isa, count, lanes, a, (keys, lanes), (c, SCORE_STRIDE), false);
        }
    }
}

/// Sets to minus infinity what `query` does not see: lanes outside the part, its future, what the window left behind.
fn mask(layer: &Layer<'_>, is_causal: bool, query: Query, chunk: &Chunk<'_>, scores: &mut [f32]) {
    let shape = layer.pool.shape();
    let (mut low, mut high) = (chunk.low, chunk.high);
    if is_causal {
        high = high.min(query.position as isize + 1);
    }
    if let Some(window) = layer.heads.window {
        low = low.max(query.position as isize + 1 - window as isize);
    }
    for (number, scores) in scores.chunks_exact_mut(shape.lanes()).enumerate() {
        let (first, last) = chunk.lanes(number, shape.block_tokens, (low, high));
        scores[..first].fill(f32::NEG_INFINITY);
        scores[last..].fill(f32::NEG_INFINITY);
    }
}

/// Turns a row's scores into weights and brings what it has summed so far to the new maximum.
fn rescale(layer: &Layer<'_>, scores: &mut [f32], partial: &mut [f32]) {
    let tail = partial.len() - 2;
    let before = partial[tail];
    let (max, sum) = soften(layer.cpu.isa(), scores, before);
    if max > before && before > f32::NEG_INFINITY {
        let factor = (before - max).exp();
        partial[..tail].iter_mut().for_each(|x| *x *= factor);
        partial[tail + 1] *= factor;
    }
    partial[tail] = max;
    partial[tail + 1] += sum;
}

/// `partial[m, ..] += weights[m, lane] * v[lane, ..]`, over the lanes that belong to the part only: others may
/// hold anything.
fn add_values(
    layer: &Layer<'_>,
    chunk: &Chunk<'_>,
    (kv_head, rows): (usize, usize),
    scores: &[f32],
    partial: &mut [f32],
) {
    let (isa, shape, stride) = (layer.cpu.isa(), layer.pool.shape(), layer.stride());
    for (number, block) in chunk.blocks.iter().enumerate() {
        let (first, last) = chunk.lanes(number, shape.block_tokens, (chunk.low, chunk.high));
        let (_, values) = layer.pool.block(layer.layer, kv_head, *block);
        for (row, count) in row_blocks(rows, isa.rows_max()) {
            let a = &scores[row * SCORE_STRIDE + number * shape.lanes() + first..];
            let b = &values[first * shape.head_lanes()..];
            let extent = (count, shape.head_lanes(), last - first);
            tile_scores(isa, extent, a, (b, shape.head_lanes()), (&mut partial[row * stride..], stride));
        }
    }
}
