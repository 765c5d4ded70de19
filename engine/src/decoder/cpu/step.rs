//! A step on the processor: the layers' operations on buffers of the host.

use base::Slot;
use rayon::prelude::*;

use super::{Decoder, Workspace, sized};
use crate::attention::plan::{AttentionPlan, Cut};
use crate::attention::{Falloff, Heads, Layer as Attention, PARTIAL_BYTES_MAX, Scores};
use crate::checkpoint::config::Position;
use crate::decoder::layer::{LayerOps, LayerWeights};
use crate::device::cpu::Norm;
use crate::device::{LeftOperand, Matrix};
use crate::parallel::Broken;
use crate::pool::{Cell, KvPool};

/// What a step computes, flattened.
struct StepLayout {
    /// Per token: where its keys and values go, and its position.
    cells: Vec<Cell>,
    positions: Vec<usize>,
    /// Tokens whose last hidden state is wanted, in slot order: those before a prompt's targets, then those that
    /// are sampled.
    sampled: Vec<usize>,
    plan: AttentionPlan,
}

/// A step, and all memory that it reads and writes.
pub(super) struct CpuStep<'a> {
    decoder: &'a Decoder,
    pool: &'a mut KvPool,
    work: &'a mut Workspace,
    slots: &'a [Slot],
    layout: StepLayout,
    /// Rows of the stream: all tokens, in the end those that sample.
    rows: usize,
    /// Whether blocks read the normalised stream instead of the stream itself.
    reads_normed: bool,
}

impl<'a> CpuStep<'a> {
    /// A step of checked slots.
    pub(super) fn new(
        decoder: &'a Decoder,
        pool: &'a mut KvPool,
        work: &'a mut Workspace,
        slots: &'a [Slot],
    ) -> Self {
        let block_tokens = pool.shape().block_tokens;
        let (mut cells, mut positions, mut sampled) = (Vec::new(), Vec::new(), Vec::new());
        for slot in slots {
            let first = cells.len();
            for i in 0..slot.input.len() {
                let at = slot.write_offset as usize + i;
                let block = slot.write_blocks[at / block_tokens].0 as usize;
                cells.push(Cell { block, lane: at % block_tokens });
                positions.push(slot.start as usize + i);
            }
            for (rope, angles) in decoder.ropes.iter().zip(&mut work.angles) {
                if let Some(rope) = rope {
                    angles.reach(rope, slot.start as usize + slot.input.len());
                }
            }
            if let Some(targets) = &slot.prompt_targets {
                sampled.extend(first..first + targets.tokens.len());
            }
            if slot.sample.is_some() {
                // At the last token that is known, and at each guess behind it.
                sampled.extend(cells.len() - 1 - slot.guesses as usize..cells.len());
            }
        }
        let plan = AttentionPlan::new(slots, block_tokens, true, |_| Cut::ON_PROCESSOR);
        let rows = cells.len();
        if let Position::Alibi(_) = decoder.config.position {
            pool.place(&cells, &positions);
        }
        let layout = StepLayout { cells, positions, sampled, plan };
        Self { decoder, pool, work, slots, layout, rows, reads_normed: false }
    }

    /// Whether any token's hidden state is wanted.
    pub(super) fn samples(&self) -> bool {
        !self.layout.sampled.is_empty()
    }

    fn attention_width(&self) -> usize {
        self.decoder.config.heads * self.decoder.config.head_dim
    }
}

impl LayerOps for CpuStep<'_> {
    type Matrix = Matrix;
    type Norm = Norm;
    type Hidden = Vec<f32>;
    type Error = Broken;

    fn embed(&mut self) -> Result<(), Broken> {
        let Self { decoder, work, slots, rows: tokens, .. } = self;
        let (hidden, width) = (decoder.config.hidden, decoder.config.embedding);
        let table = decoder.embedding.as_ref().unwrap_or(&decoder.head);
        let embedded = sized(&mut work.wide, *tokens * width);
        let inputs: Vec<usize> =
            slots.iter().flat_map(|slot| &slot.input).map(|token| token.0 as usize).collect();
        let rows = embedded.par_chunks_exact_mut(width).zip(inputs).with_min_len(16);
        let first = decoder.collective.rank() * decoder.config.vocab;
        rows.for_each(|(row, token)| match token.checked_sub(first) {
            Some(token) if token < decoder.config.vocab => table.row(token, row),
            _ => row.fill(0.0), // another rank has it
        });
        decoder.collective.all_reduce(embedded)?;
        if let Some(scale) = decoder.embedding_scale {
            embedded.iter_mut().for_each(|x| *x *= scale);
        }
        let x = sized(&mut work.x, *tokens * hidden);
        match &decoder.project_in {
            Some(project) => decoder.cpu.linear(&*embedded, project, x, &mut work.scratch),
            None => x.copy_from_slice(embedded),
        }
        if let (Some(table), Position::Learned { offset }) = (&decoder.positions, &decoder.config.position) {
            for (position, row) in self.layout.positions.iter().zip(x.chunks_exact_mut(hidden)) {
                decoder.cpu.add(row, &table[(position + *offset as usize) * hidden..][..hidden]);
            }
        }
        Ok(())
    }

    fn block_input(&mut self, norm: Option<&Norm>, weights: &Matrix) -> Result<(), Broken> {
        self.reads_normed = norm.is_some();
        if let Some(norm) = norm {
            let Workspace { x, input, .. } = &mut *self.work;
            self.decoder.cpu.norm_for(&x[..self.rows * self.decoder.config.hidden], norm, weights, input);
        }
        Ok(())
    }

    fn project_qkv(&mut self, qkv: &Matrix) -> Result<(), Broken> {
        let Workspace { x, input, qkv: out, scratch, .. } = &mut *self.work;
        let x = &x[..self.rows * self.decoder.config.hidden];
        let input = if self.reads_normed { LeftOperand::from(&*input) } else { LeftOperand::from(x) };
        let out = sized(out, self.rows * qkv.outputs());
        self.decoder.cpu.linear(input, qkv, out, scratch);
        if let Some(clip) = self.decoder.config.qkv_clip {
            out.iter_mut().for_each(|x| *x = x.clamp(-clip, clip));
        }
        Ok(())
    }

    fn write_keys_and_values(
        &mut self,
        number: usize,
        layer: &LayerWeights<Matrix, Norm>,
    ) -> Result<(), Broken> {
        let Self { decoder, pool, work, layout, rows, .. } = self;
        let (config, width) = (&decoder.config, layer.qkv.outputs());
        let Workspace { qkv, angles, .. } = &mut **work;
        let (qkv, angles) = (&mut qkv[..*rows * width], &angles[usize::from(config.is_local(number))]);
        let (dim, key_at) = (config.head_dim, config.heads * config.head_dim);
        let value_at = key_at + config.kv_heads * dim;
        if let (Some(q_norm), Some(k_norm)) = (&layer.q_norm, &layer.k_norm) {
            for row in qkv.chunks_exact_mut(width) {
                let (queries, keys) = row[..value_at].split_at_mut(key_at);
                queries.chunks_exact_mut(dim).for_each(|head| q_norm.apply(head));
                keys.chunks_exact_mut(dim).for_each(|head| k_norm.apply(head));
            }
        }
        pool.write(decoder.cpu.isa(), number, &layout.cells, |head, token, key, value| {
            let row = &qkv[token * width..][..width];
            angles.rotate(layout.positions[token], &row[key_at + head * dim..][..dim], key);
            value.copy_from_slice(&row[value_at + head * dim..][..dim]);
        });
        Ok(())
    }

    fn attend(&mut self, number: usize) -> Result<(), Broken> {
        let len = self.rows * self.attention_width();
        let (config, work) = (&self.decoder.config, &mut *self.work);
        let heads = Heads {
            queries: config.heads,
            kv: config.kv_heads,
            dim: config.head_dim,
            window: config.window_of(number),
        };
        let scores = Scores {
            scale: std::f32::consts::LOG2_E * config.scale_of_scores(),
            cap: config.score_cap.map(|cap| std::f32::consts::LOG2_E * cap),
            falloff: match &config.position {
                Position::Alibi(alibi) => Some(Falloff {
                    slopes: &alibi.slopes,
                    scale: std::f32::consts::LOG2_E * alibi.scale,
                    is_rounded: alibi.is_rounded,
                }),
                Position::Rotary { .. } | Position::Learned { .. } => None,
            },
        };
        let attention = Attention {
            cpu: &self.decoder.cpu,
            heads,
            scores,
            pool: self.pool,
            layer: number,
            plan: &self.layout.plan,
            angles: &work.angles[usize::from(config.is_local(number))],
            queries: &work.qkv,
            query_stride: (config.heads + 2 * config.kv_heads) * config.head_dim,
            partial_bytes_max: PARTIAL_BYTES_MAX,
        };
        attention.run(sized(&mut work.attended, len), &mut work.partials);
        Ok(())
    }

    fn keep_sampled(&mut self) -> Result<(), Broken> {
        let width = self.attention_width();
        let sampled = &self.layout.sampled;
        keep_rows(&mut self.work.x, self.decoder.config.hidden, sampled);
        keep_rows(&mut self.work.attended, width, sampled);
        self.rows = sampled.len();
        Ok(())
    }

    fn add_attended(&mut self, layer: &LayerWeights<Matrix, Norm>) -> Result<(), Broken> {
        let len = self.rows * self.attention_width();
        let Workspace { x, attended, normed, scratch, .. } = &mut *self.work;
        let x = &mut x[..self.rows * self.decoder.config.hidden];
        let weights = (&layer.out, layer.attn_post_norm.as_ref());
        self.decoder.add_product(LeftOperand::from(&attended[..len]), weights, (x, normed), scratch)
    }

    fn project_up(&mut self, layer: &LayerWeights<Matrix, Norm>) -> Result<(), Broken> {
        let Workspace { x, input, inner, scratch, .. } = &mut *self.work;
        let x = &x[..self.rows * self.decoder.config.hidden];
        let input = if self.reads_normed { LeftOperand::from(&*input) } else { LeftOperand::from(x) };
        self.decoder.cpu.linear_for(input, &layer.up, &layer.down, inner, scratch);
        Ok(())
    }

    fn add_inner(&mut self, layer: &LayerWeights<Matrix, Norm>) -> Result<(), Broken> {
        let Workspace { x, inner, normed, scratch, .. } = &mut *self.work;
        let x = &mut x[..self.rows * self.decoder.config.hidden];
        let weights = (&layer.down, layer.mlp_post_norm.as_ref());
        self.decoder.add_product(LeftOperand::from(&*inner), weights, (x, normed), scratch)
    }

    fn normalise_stream(&mut self, norm: &Norm) -> Result<(), Broken> {
        let Workspace { x, normed, .. } = &mut *self.work;
        let x = &mut x[..self.rows * self.decoder.config.hidden];
        let normed = sized(normed, x.len());
        self.decoder.cpu.norm(x, norm, normed);
        x.copy_from_slice(normed);
        Ok(())
    }

    fn finish(&mut self) -> Result<Vec<f32>, Broken> {
        let decoder = self.decoder;
        let x = &self.work.x[..self.rows * decoder.config.hidden];
        let mut hidden = x.to_vec();
        if let Some(norm) = &decoder.final_norm {
            decoder.cpu.norm(x, norm, &mut hidden);
        }
        let Some(project) = &decoder.project_out else { return Ok(hidden) };
        let mut out = vec![0.0; self.rows * decoder.config.embedding];
        decoder.cpu.linear(&hidden, project, &mut out, &mut self.work.scratch);
        Ok(out)
    }
}

/// Moves the rows numbered `kept` (ascending) to the front.
fn keep_rows(buffer: &mut [f32], width: usize, kept: &[usize]) {
    for (to, from) in kept.iter().enumerate() {
        buffer.copy_within(from * width..(from + 1) * width, to * width);
    }
}
