//! The one transformer: every family is this decoder with other values of [`ModelConfig`].
//!
//! It computes flat batches, `[tokens, hidden]`, of slots whose blocks are given; it must not know requests,
//! text or where blocks come from. It is a whole model or one rank of it ([`crate::parallel`]): a rank's
//! configuration has the rank's share of heads, inner width and vocabulary, and its [`Collective`] adds up
//! what the ranks' shares give.

mod gpu;
mod load;

use std::sync::Arc;

use base::Slot;
use rayon::prelude::*;

use crate::attention::plan::{AttentionPlan, Cut};
use crate::attention::{Heads, Layer as Attention, PARTIAL_BYTES_MAX};
use crate::checkpoint::ModelConfig;
use crate::checkpoint::config::Position;
use crate::device::cpu::{Highest, Norm};
use crate::device::{Cpu, Matrix, Scratch};
use crate::parallel::{Broken, Collective};
use crate::pool::{Cell, KvPool};
use crate::rope::{Angles, Rope};
use crate::settings::KvFormat;

pub use gpu::{GpuDecoder, GpuLoadError, GpuMemory, Pick, Survey, Wish};
pub use load::LoadOptions;

/// A model, or a rank of one, with its weights, ready to run.
pub struct Decoder {
    config: ModelConfig,
    cpu: Arc<Cpu>,
    collective: Box<dyn Collective>,
    kv: KvFormat,
    rope: Option<Rope>,
    /// `[vocab, embedding]`; `None` where the head is used instead.
    embedding: Option<Matrix>,
    /// Learned positions `[positions, hidden]`.
    positions: Option<Vec<f32>>,
    project_in: Option<Matrix>,
    project_out: Option<Matrix>,
    layers: Vec<DecoderLayer>,
    final_norm: Option<Norm>,
    /// `[vocab, embedding]`
    head: Matrix,
}

/// One layer's weights.
struct DecoderLayer {
    attn_norm: Norm,
    /// Queries, keys and values in one product: `[(heads + 2 kv_heads) head_dim, hidden]`.
    qkv: Matrix,
    q_norm: Option<Norm>,
    k_norm: Option<Norm>,
    /// `[hidden, heads head_dim]`
    out: Matrix,
    mlp_norm: Norm,
    /// Up, activated, to `[intermediate]`: with its gate in one product where the block is gated.
    up: Matrix,
    /// `[hidden, intermediate]`
    down: Matrix,
}

/// Memory of a step, reused by the next.
#[derive(Default)]
pub struct Workspace {
    x: Vec<f32>,
    normed: Vec<f32>,
    qkv: Vec<f32>,
    attended: Vec<f32>,
    wide: Vec<f32>,
    inner: Vec<f32>,
    partials: Vec<f32>,
    logits: Vec<f32>,
    scratch: Scratch,
    angles: Angles,
}

impl Workspace {
    /// Takes back what [`Decoder::logits`] gave: fresh memory for a whole vocabulary costs a step as much as sampling.
    pub fn keep_logits(&mut self, logits: Vec<f32>) {
        self.logits = logits;
    }
}

/// The first `len` elements of a buffer that grows where it must; their values are whatever was there.
fn sized(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    &mut buffer[..len]
}

/// What a step computes, flattened.
struct Step {
    /// Per token: where its keys and values go, and its position.
    cells: Vec<Cell>,
    positions: Vec<usize>,
    /// Tokens whose last hidden state is wanted, in slot order.
    sampled: Vec<usize>,
    plan: AttentionPlan,
}

impl Decoder {
    /// Its configuration; a rank's own where it is one.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The device it runs on.
    pub fn cpu(&self) -> &Arc<Cpu> {
        &self.cpu
    }

    /// What it reads keys and values as: the format of its pool.
    pub fn kv(&self) -> KvFormat {
        self.kv
    }

    /// Its end of the group of ranks.
    pub fn collective(&self) -> &dyn Collective {
        &*self.collective
    }

    /// Bytes of weights that one step reads, whatever its batch.
    pub fn step_bytes(&self) -> usize {
        self.layer_matrices().map(Matrix::bytes).sum::<usize>() + self.head.bytes()
    }

    /// Operations of a step's products with weights, a multiplication and an addition counted as two:
    /// `tokens` tokens through all layers, and logits for `sampled` of them. The last layer's products for
    /// tokens that do not sample are counted, though the decoder leaves some of them out.
    pub fn step_operations(&self, tokens: usize, sampled: usize) -> f64 {
        let layers: usize = self.layer_matrices().map(Matrix::weights).sum();
        2.0 * (layers as f64 * tokens as f64 + self.head.weights() as f64 * sampled as f64)
    }

    fn layer_matrices(&self) -> impl Iterator<Item = &Matrix> {
        self.layers.iter().flat_map(|layer| [&layer.qkv, &layer.out, &layer.up, &layer.down])
    }

    /// Computes `slots`, writing their keys and values to `pool`, and gives back the hidden states from which the
    /// sampling slots' logits follow: `[sampling slots and their guesses, embedding]`, for [`Self::logits`].
    ///
    /// The slots must have been checked against pool, vocabulary and context (the executor does). Fails where another
    /// rank does.
    pub fn forward(
        &self,
        pool: &mut KvPool,
        slots: &[Slot],
        work: &mut Workspace,
    ) -> Result<Vec<f32>, Broken> {
        self.cpu.run(|| self.compute(pool, slots, work))
    }

    /// Logits `[rows, vocab]`, of the whole vocabulary, of hidden states `[rows, embedding]`.
    pub fn logits(&self, hidden: &[f32], work: &mut Workspace) -> Result<Vec<f32>, Broken> {
        let (rows, vocab) = (hidden.len() / self.config.embedding, self.config.vocab);
        self.cpu.run(|| {
            let mut logits = std::mem::take(&mut work.logits);
            logits.resize(rows * vocab, 0.0);
            self.cpu.linear(hidden, &self.head, &mut logits, &mut work.scratch);
            let ranks = self.collective.ranks();
            if ranks == 1 {
                return Ok(logits);
            }
            let mut parts = vec![0.0; ranks * logits.len()]; // [ranks, rows, vocab of a rank]
            self.collective.all_gather(&logits, &mut parts)?;
            work.logits = logits;
            let part = |row: usize, rank: usize| &parts[(rank * rows + row) * vocab..][..vocab];
            let parts = (0..rows).flat_map(|row| (0..ranks).map(move |rank| (row, rank)));
            Ok(parts.flat_map(|(row, rank)| part(row, rank)).copied().collect())
        })
    }

    /// The highest of the logits of each row of hidden states, as many as `wanted` says; tokens from `end` on are not
    /// kept. No logits are written.
    pub fn highest(
        &self,
        hidden: &[f32],
        (wanted, end): (&[usize], usize),
        work: &mut Workspace,
    ) -> Result<Vec<Highest>, Broken> {
        let (rank, ranks, vocab) = (self.collective.rank(), self.collective.ranks(), self.config.vocab);
        self.cpu.run(|| {
            let end = end.saturating_sub(rank * vocab);
            let own = self.cpu.highest(hidden, &self.head, (wanted, end), &mut work.scratch);
            if ranks == 1 {
                return Ok(own);
            }
            let part: Vec<f32> = own.iter().flat_map(Highest::written).collect();
            let mut parts = vec![0.0; ranks * part.len()];
            self.collective.all_gather(&part, &mut parts)?;
            let mut found: Vec<Highest> = wanted.iter().map(|wanted| Highest::new(*wanted)).collect();
            for (rank, mut part) in parts.chunks_exact(part.len()).enumerate() {
                found.iter_mut().for_each(|row| part = row.append_written(part, rank * vocab));
            }
            Ok(found)
        })
    }

    fn compute(&self, pool: &mut KvPool, slots: &[Slot], work: &mut Workspace) -> Result<Vec<f32>, Broken> {
        let step = self.flatten(pool.shape().block_tokens, slots, &mut work.angles);
        self.embed(slots, work)?;
        let mut tokens = step.cells.len();
        for (number, layer) in self.layers.iter().enumerate() {
            self.write_keys_and_values((number, layer), pool, &step, work);
            let is_last = number + 1 == self.layers.len();
            if !(is_last && step.sampled.is_empty()) {
                self.attend(number, pool, &step, work);
            }
            if is_last {
                // Nothing reads the other tokens beyond their keys and values.
                keep_rows(&mut work.x, self.config.hidden, &step.sampled);
                keep_rows(&mut work.attended, self.attention_width(), &step.sampled);
                tokens = step.sampled.len();
            }
            self.finish_layer(layer, tokens, work)?;
        }
        Ok(self.finish(tokens, work))
    }

    /// Cells and the attention plan of a step, whose positions `angles` then reach.
    fn flatten(&self, block_tokens: usize, slots: &[Slot], angles: &mut Angles) -> Step {
        let (mut cells, mut positions, mut sampled) = (Vec::new(), Vec::new(), Vec::new());
        for slot in slots {
            for i in 0..slot.input.len() {
                let at = slot.write_offset as usize + i;
                let block = slot.write_blocks[at / block_tokens].0 as usize;
                cells.push(Cell { block, lane: at % block_tokens });
                positions.push(slot.start as usize + i);
            }
            if let Some(rope) = &self.rope {
                angles.reach(rope, slot.start as usize + slot.input.len());
            }
            if slot.sample.is_some() {
                // At the last token that is known, and at each guess behind it.
                sampled.extend(cells.len() - 1 - slot.guesses as usize..cells.len());
            }
        }
        Step {
            cells,
            positions,
            sampled,
            plan: AttentionPlan::new(slots, block_tokens, true, |_| Cut::ON_PROCESSOR),
        }
    }

    /// `work.x` = embeddings `[tokens, hidden]`, with learned positions.
    fn embed(&self, slots: &[Slot], work: &mut Workspace) -> Result<(), Broken> {
        let (hidden, width) = (self.config.hidden, self.config.embedding);
        let tokens: usize = slots.iter().map(|slot| slot.input.len()).sum();
        let table = self.embedding.as_ref().unwrap_or(&self.head);
        let embedded = sized(&mut work.wide, tokens * width);
        let inputs: Vec<usize> =
            slots.iter().flat_map(|slot| &slot.input).map(|token| token.0 as usize).collect();
        let rows = embedded.par_chunks_exact_mut(width).zip(inputs).with_min_len(16);
        let first = self.collective.rank() * self.config.vocab;
        rows.for_each(|(row, token)| match token.checked_sub(first) {
            Some(token) if token < self.config.vocab => table.row(token, row),
            _ => row.fill(0.0), // another rank has it
        });
        self.collective.all_reduce(embedded)?;
        let x = sized(&mut work.x, tokens * hidden);
        match &self.project_in {
            Some(project) => self.cpu.linear(embedded, project, x, &mut work.scratch),
            None => x.copy_from_slice(embedded),
        }
        if let (Some(table), Position::Learned { offset }) = (&self.positions, self.config.position) {
            let positions = slots.iter().flat_map(|slot| (slot.start as usize..).take(slot.input.len()));
            for (position, row) in positions.zip(x.chunks_exact_mut(hidden)) {
                self.cpu.add(row, &table[(position + offset as usize) * hidden..][..hidden]);
            }
        }
        Ok(())
    }

    /// Computes queries, keys and values of all tokens and writes the layer's keys and values: all of them,
    /// before any attention, since slots may read what others of the step write.
    fn write_keys_and_values(
        &self,
        (number, layer): (usize, &DecoderLayer),
        pool: &mut KvPool,
        step: &Step,
        work: &mut Workspace,
    ) {
        let Workspace { x, normed, qkv, scratch, angles, .. } = work;
        let (config, tokens) = (&self.config, step.cells.len());
        let x = &x[..tokens * config.hidden]; // [tokens, hidden]
        let input = self.block_input(&layer.attn_norm, x, normed);
        let width = layer.qkv.outputs();
        let qkv = sized(qkv, tokens * width); // [tokens, queries | keys | values]
        self.cpu.linear(input, &layer.qkv, qkv, scratch);
        let (dim, key_at) = (config.head_dim, config.heads * config.head_dim);
        let value_at = key_at + config.kv_heads * dim;
        if let (Some(q_norm), Some(k_norm)) = (&layer.q_norm, &layer.k_norm) {
            for row in qkv.chunks_exact_mut(width) {
                let (queries, keys) = row[..value_at].split_at_mut(key_at);
                queries.chunks_exact_mut(dim).for_each(|head| q_norm.apply(head));
                keys.chunks_exact_mut(dim).for_each(|head| k_norm.apply(head));
            }
        }
        pool.write(self.cpu.isa(), number, &step.cells, |head, token, key, value| {
            let row = &qkv[token * width..][..width];
            angles.rotate(step.positions[token], &row[key_at + head * dim..][..dim], key);
            value.copy_from_slice(&row[value_at + head * dim..][..dim]);
        });
    }

    /// `work.attended` = attention of all tokens, `[tokens, heads head_dim]`.
    fn attend(&self, number: usize, pool: &KvPool, step: &Step, work: &mut Workspace) {
        let config = &self.config;
        let heads = Heads {
            queries: config.heads,
            kv: config.kv_heads,
            dim: config.head_dim,
            window: config.sliding_window,
        };
        let attention = Attention {
            cpu: &self.cpu,
            heads,
            pool,
            layer: number,
            plan: &step.plan,
            angles: &work.angles,
            queries: &work.qkv,
            query_stride: (config.heads + 2 * config.kv_heads) * config.head_dim,
            partial_bytes_max: PARTIAL_BYTES_MAX,
        };
        let attended = sized(&mut work.attended, step.cells.len() * self.attention_width());
        attention.run(attended, &mut work.partials);
    }

    /// The rest of a layer, over the first `tokens` rows of `work`: output projection, then the feed-forward block.
    fn finish_layer(&self, layer: &DecoderLayer, tokens: usize, work: &mut Workspace) -> Result<(), Broken> {
        let Workspace { x, normed, attended, inner, scratch, .. } = work;
        let x = &mut x[..tokens * self.config.hidden]; // [tokens, hidden]
        let attended = sized(attended, tokens * self.attention_width()); // [tokens, heads head_dim]
        self.add_product(attended, &layer.out, x, scratch)?;
        self.block_output(&layer.attn_norm, x, normed);

        let input = self.block_input(&layer.mlp_norm, x, normed);
        let active = sized(inner, tokens * layer.up.outputs()); // [tokens, intermediate]
        self.cpu.linear(input, &layer.up, active, scratch);
        self.add_product(active, &layer.down, x, scratch)?;
        self.block_output(&layer.mlp_norm, x, normed);
        Ok(())
    }

    /// `x +=` the product of all ranks' `input` with their `weights`; one rank alone brings `x` itself into the sum.
    fn add_product(
        &self,
        input: &[f32],
        weights: &Matrix,
        x: &mut [f32],
        scratch: &mut Scratch,
    ) -> Result<(), Broken> {
        match self.collective.rank() {
            0 => self.cpu.linear_add(input, weights, x, scratch),
            _ => self.cpu.linear(input, weights, x, scratch),
        }
        self.collective.all_reduce(x)
    }

    /// What a block reads: the normalised stream, or the stream itself where blocks normalise behind.
    fn block_input<'a>(&self, norm: &Norm, x: &'a [f32], normed: &'a mut Vec<f32>) -> &'a [f32] {
        if !self.config.norm_first {
            return x;
        }
        let normed = sized(normed, x.len());
        self.cpu.norm(x, norm, normed);
        normed
    }

    /// Normalises the stream behind a block, where the model does.
    fn block_output(&self, norm: &Norm, x: &mut [f32], normed: &mut Vec<f32>) {
        if !self.config.norm_first {
            let normed = sized(normed, x.len());
            self.cpu.norm(x, norm, normed);
            x.copy_from_slice(normed);
        }
    }

    /// Final normalisation and projection: `[tokens, embedding]`.
    fn finish(&self, tokens: usize, work: &mut Workspace) -> Vec<f32> {
        let x = &work.x[..tokens * self.config.hidden];
        let mut hidden = x.to_vec();
        if let Some(norm) = &self.final_norm {
            self.cpu.norm(x, norm, &mut hidden);
        }
        match &self.project_out {
            Some(project) => {
                let mut out = vec![0.0; tokens * self.config.embedding];
                self.cpu.linear(&hidden, project, &mut out, &mut work.scratch);
                out
            }
            None => hidden,
        }
    }

    fn attention_width(&self) -> usize {
        self.config.heads * self.config.head_dim
    }
}

/// Moves the rows numbered `kept` (ascending) to the front.
fn keep_rows(buffer: &mut [f32], width: usize, kept: &[usize]) {
    for (to, from) in kept.iter().enumerate() {
        buffer.copy_within(from * width..(from + 1) * width, to * width);
    }
}

/// A small configuration for this crate's unit tests.
#[cfg(test)]
pub(crate) fn tests_config() -> ModelConfig {
    use crate::checkpoint::config::{Family, Mlp, Norm, RopeScaling};
    ModelConfig {
        family: Family::Llama,
        vocab: 61,
        hidden: 32,
        embedding: 32,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 8,
        intermediate: 48,
        norm: Norm::Rms { epsilon: 1e-5 },
        norm_first: true,
        final_norm: true,
        position: Position::Rotary { theta: 10_000.0, scaling: RopeScaling::None },
        mlp: Mlp::GatedSilu,
        qkv_bias: false,
        out_bias: false,
        mlp_bias: false,
        qk_norm: false,
        tied_head: true,
        context_max: 256,
        sliding_window: None,
    }
}
