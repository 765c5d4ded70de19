//! Attention over runs (DESIGN 4): partial attention per run, merged by log-sum-exp.
//!
//! Keys lie rotated in their run's own numbering; a run read `shift` positions further on is read by
//! rotating the query by `position - shift`: (R(p-s)q)·(R(j)k) = (R(p)q)·(R(s+j)k). A run that several slots
//! of a step have is one [`plan::Part`]: their queries are stacked and it is read once, as a matrix product.

mod merge;
mod partial;
pub(crate) mod plan;
mod tiles;

use rayon::prelude::*;

use crate::device::Cpu;
use crate::device::cpu::{Product, Rounded, Singles, Widened};
use crate::pool::{KvElement, KvPool};
use crate::rope::Angles;
use crate::settings::KvFormat;
use plan::{AttentionPlan, Part};

/// Heads of a layer and what a query may see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    /// Query heads.
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

/// Query rows (token and head) of one task; a multiple of every kernel's rows. Each chunk of keys and values that the
/// second-level cache holds meets all of them.
const TILE_ROWS: usize = 48;

/// Memory for partial results: a step of more is computed in tiles of its tokens, each of which reads its runs
/// again. One token's (heads x parts x stride) may take more. At 32 heads of 128 a tile has about 4,000 rows of a
/// token and a part, enough work for all threads at each reading.
pub(crate) const PARTIAL_BYTES_MAX: usize = 64 << 20;

/// One task: some query rows of one key-value head over one part.
struct Task<'a> {
    part: &'a Part,
    kv_head: usize,
    first_row: usize,
    /// `[rows, stride]`: unnormalised output, then maximum and sum of its exponentials.
    partial: &'a mut [f32],
}

/// What attention of one layer reads.
pub(crate) struct Layer<'a> {
    /// The device.
    pub(crate) cpu: &'a Cpu,
    /// Extents of the heads.
    pub(crate) heads: Heads,
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
    fn stride(&self) -> usize {
        self.pool.shape().head_lanes() + 2
    }

    /// `out[t, h * dim ..] = softmax(q k / sqrt(dim)) v` over all that token `t` may see.
    pub(crate) fn run(&self, out: &mut [f32], partials: &mut Vec<f32>) {
        let width = self.heads.queries * self.heads.dim;
        let row_bytes = self.heads.queries * self.stride() * size_of::<f32>();
        for (tokens, plan) in self.plan.tiles(self.partial_bytes_max / row_bytes) {
            self.run_tile(&plan, &mut out[tokens.start * width..tokens.end * width], partials);
        }
    }

    /// Attention of a tile's tokens.
    fn run_tile(&self, plan: &AttentionPlan, out: &mut [f32], partials: &mut Vec<f32>) {
        let (stride, group) = (self.stride(), self.heads.group());
        let size = plan.rows() * self.heads.queries * stride;
        partials.resize(size.max(partials.len()), 0.0);
        let tasks = self.tasks(plan, &mut partials[..size]);
        match self.pool.shape().format {
            KvFormat::F32 => self.compute::<Singles>(tasks),
            KvFormat::Bf16 | KvFormat::Q8 if self.cpu.isa().rounds_activations() => {
                self.compute::<Rounded>(tasks);
            }
            KvFormat::Bf16 | KvFormat::Q8 => self.compute::<Widened>(tasks),
        }
        let partials = &partials[..size];
        let width = self.heads.queries * self.heads.dim;
        out.par_chunks_exact_mut(width).enumerate().with_min_len(4).for_each(|(token, out)| {
            for (head, out) in out.chunks_exact_mut(self.heads.dim).enumerate() {
                let rows = plan.rows_of(token).map(|(part, row)| {
                    let first = part.first_row * self.heads.queries;
                    let row = (head / group) * part.rows * group + row * group + head % group;
                    &partials[(first + row) * stride..][..stride]
                });
                merge::merge(rows, out);
            }
        });
    }

    /// Fills the tasks' partial results.
    fn compute<P: Product<Right: KvElement>>(&self, tasks: Vec<Task<'_>>) {
        tasks.into_par_iter().for_each_init(
            || partial::Scratch::<P>::new(self),
            |scratch, task| partial::compute(self, task, scratch),
        );
    }

    /// Cuts a tile's work into tasks, each with its own piece of `partials`: part, head, row.
    fn tasks<'a>(&self, plan: &'a AttentionPlan, mut partials: &'a mut [f32]) -> Vec<Task<'a>> {
        let mut tasks = Vec::new();
        for part in &plan.parts {
            let rows = part.rows * self.heads.group();
            for kv_head in 0..self.heads.kv {
                for first_row in (0..rows).step_by(TILE_ROWS) {
                    let count = TILE_ROWS.min(rows - first_row);
                    let (partial, rest) = partials.split_at_mut(count * self.stride());
                    partials = rest;
                    tasks.push(Task { part, kv_head, first_row, partial });
                }
            }
        }
        tasks
    }
}

/// `2^n` for a whole `n` of at most 0; 0 below the least normal number, as the weights are.
fn two_to(n: f32) -> f32 {
    let exponent = (n + 127.0).max(0.0) as u32;
    f32::from_bits(exponent << 23)
}

#[cfg(test)]
mod tests;
