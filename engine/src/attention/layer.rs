//! What attention of one layer reads, and how its work is cut into tasks.

use super::plan::{AttentionPlan, Part};
use crate::device::Cpu;
use crate::pool::KvPool;
use crate::rope::Angles;

/// Heads of a layer and what a query may see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    pub(crate) queries: usize,
    /// Key-value heads; divides `queries`.
    pub(crate) kv: usize,
    /// Width of a head.
    pub(crate) dim: usize,
    /// Most positions back that a query sees, itself included.
    pub(crate) window: Option<usize>,
}

impl Heads {
    /// Query heads that share a key-value head.
    pub(crate) fn group(&self) -> usize {
        self.queries / self.kv
    }
}

/// What becomes of the products of queries and keys, all in powers of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scores<'a> {
    /// What they are multiplied by: `log2(e) / sqrt(dim)` in most models.
    pub(crate) scale: f32,
    /// What they are bent to stay below, where they are.
    pub(crate) cap: Option<f32>,
    /// What they lose with distance, where they do.
    pub(crate) falloff: Option<Falloff<'a>>,
}

/// Scores lose `scale * slope` per position between query and key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Falloff<'a> {
    /// One per query head.
    pub(crate) slopes: &'a [f32],
    pub(crate) scale: f32,
    /// The key's position, and its product with a slope, are rounded to bf16.
    pub(crate) is_rounded: bool,
}

/// Query rows (token and head) of one task; a multiple of every kernel's rows. Each chunk of keys and values
/// that the second-level cache holds meets all of them.
pub(super) const TILE_ROWS: usize = 48;

/// Memory for partial results: a step of more is computed in tiles of its tokens, each of which reads its
/// runs again. One token's (heads x parts x stride) may take more. At 32 heads of 128 a tile has about 4,000
/// rows of a token and a part, enough work for all threads at each reading.
pub(crate) const PARTIAL_BYTES_MAX: usize = 64 << 20;

/// One task: some query rows of one key-value head over one part.
pub(super) struct Task<'a> {
    pub(super) part: &'a Part,
    pub(super) kv_head: usize,
    pub(super) first_row: usize,
    /// `[rows, stride]`: unnormalised output, then maximum and sum of its exponentials.
    pub(super) partial: &'a mut [f32],
}

/// What attention of one layer reads.
pub(crate) struct Layer<'a> {
    /// The device.
    pub(crate) cpu: &'a Cpu,
    /// Extents of the heads.
    pub(crate) heads: Heads,
    /// What becomes of scores.
    pub(crate) scores: Scores<'a>,
    /// Keys and values, those of this step included.
    pub(crate) pool: &'a KvPool,
    /// The layer's number.
    pub(crate) layer: usize,
    /// What the step's slots attend to.
    pub(crate) plan: &'a AttentionPlan,
    /// Angles of the positions of the plan's rows.
    pub(crate) angles: &'a Angles,
    /// Queries before rotation: token `t`, head `h` at `t * query_stride + h * dim`.
    pub(crate) queries: &'a [f32],
    /// Elements from one token's queries to the next.
    pub(crate) query_stride: usize,
    /// [`PARTIAL_BYTES_MAX`]; tests have less.
    pub(crate) partial_bytes_max: usize,
}

impl Layer<'_> {
    /// Elements of a partial result's row: a head in whole vectors, a maximum and a sum.
    pub(super) fn stride(&self) -> usize {
        self.pool.shape().head_lanes() + 2
    }
}

/// `2^n` for a whole `n` of at most 0; 0 below the least normal number, as the weights are.
pub(super) fn two_to(n: f32) -> f32 {
    let exponent = (n + 127.0).max(0.0) as u32;
    f32::from_bits(exponent << 23)
}
