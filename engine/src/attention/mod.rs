//! Attention over runs (DESIGN 4): partial attention per run, merged by log-sum-exp.
//!
//! Keys lie rotated in their run's own numbering; a run read `shift` positions further on is read by
//! rotating the query by `position - shift`: (R(p-s)q)·(R(j)k) = (R(p)q)·(R(s+j)k). A run that several slots
//! of a step have is one [`plan::Part`]: their queries are stacked and it is read once, as a matrix product.
//!
//! Where scores fall with distance instead (ALiBi), the pool knows the position that each key was computed
//! for, and a query of a shifted run stands at the same `position - shift`.

mod layer;
mod merge;
mod partial;
pub(crate) mod plan;
mod tiles;

use rayon::prelude::*;

use crate::device::Isa;
use crate::device::cpu::{Amx, OnUnit, Product, Rounded, Singles, Widened, fits};
use crate::pool::KvElement;
use crate::settings::KvFormat;
pub(crate) use layer::{Falloff, Heads, Layer, PARTIAL_BYTES_MAX, Scores};
use layer::{TILE_ROWS, Task};
use plan::AttentionPlan;

impl Layer<'_> {
    /// `out[t, h * dim ..] = softmax(q k / sqrt(dim)) v` (or what [`Scores`] says) over all that token `t` may see.
    pub(crate) fn run(&self, out: &mut [f32], partials: &mut Vec<f32>) {
        match self.pool.shape().format {
            KvFormat::F32 => self.run_as::<Singles>(out, partials),
            KvFormat::Bf16 | KvFormat::Q8 if self.is_on_unit() => self.run_as::<OnUnit<Amx>>(out, partials),
            KvFormat::Bf16 | KvFormat::Q8 if self.cpu.isa().rounds_activations() => {
                self.run_as::<Rounded>(out, partials);
            }
            KvFormat::Bf16 | KvFormat::Q8 => self.run_as::<Widened>(out, partials),
            KvFormat::Fp8 => unreachable!("there is no such pool"),
        }
    }

    /// The same by products of one kind.
    fn run_as<P: Product<Right: KvElement>>(&self, out: &mut [f32], partials: &mut Vec<f32>) {
        let width = self.heads.queries * self.heads.dim;
        let row_bytes = self.heads.queries * self.stride() * size_of::<f32>();
        for (tokens, plan) in self.plan.tiles(self.partial_bytes_max / row_bytes) {
            self.run_tile::<P>(&plan, &mut out[tokens.start * width..tokens.end * width], partials);
        }
    }

    /// Attention of a tile's tokens.
    fn run_tile<P: Product<Right: KvElement>>(
        &self,
        plan: &AttentionPlan,
        out: &mut [f32],
        partials: &mut Vec<f32>,
    ) {
        let (stride, group) = (self.stride(), self.heads.group());
        let size = plan.rows() * self.heads.queries * stride;
        partials.resize(size.max(partials.len()), 0.0);
        let tasks = self.tasks(plan, &mut partials[..size]);
        self.compute::<P>(tasks);
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
            || partial::TaskScratch::<P>::new(self),
            |scratch, task| {
                let mut task = Some(task);
                P::on_thread(&mut || {
                    if let Some(task) = task.take() {
                        partial::compute(self, task, scratch);
                    }
                });
            },
        );
    }

    /// Whether its products run on a matrix unit.
    fn is_on_unit(&self) -> bool {
        self.cpu.isa() == Isa::Amx && fits(self.heads.dim, self.pool.shape().block_tokens)
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

#[cfg(test)]
mod tests;
#[cfg(test)]
mod unit_tests;
