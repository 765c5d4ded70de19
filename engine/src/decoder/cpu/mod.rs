//! The transformer on the processor.

mod load;
mod step;

use std::sync::Arc;

use base::Slot;

use super::layer::{self, LayerWeights};
use crate::checkpoint::{Dtype, ModelConfig};
use crate::device::cpu::{Norm, TopK};
use crate::device::{Cpu, LeftOperand, Matrix, Operand, Scratch};
use crate::parallel::{Broken, Collective};
use crate::pool::KvPool;
use crate::rope::{Angles, Rope};
use crate::settings::KvFormat;
pub use load::LoadOptions;
use step::CpuStep;

/// A model, or a rank of one, with its weights, ready to run.
pub struct Decoder {
    config: ModelConfig,
    cpu: Arc<Cpu>,
    collective: Box<dyn Collective>,
    dtype: Dtype,
    kv: KvFormat,
    /// Of most layers, then of local ones.
    ropes: [Option<Rope>; 2],
    /// `[vocab, embedding]`; `None` where the head is used instead.
    embedding: Option<Matrix>,
    /// What embeddings are multiplied by.
    embedding_scale: Option<f32>,
    /// Learned positions `[positions, hidden]`.
    positions: Option<Vec<f32>>,
    project_in: Option<Matrix>,
    project_out: Option<Matrix>,
    layers: Vec<LayerWeights<Matrix, Norm>>,
    final_norm: Option<Norm>,
    /// `[vocab, embedding]`
    head: Matrix,
}

/// Memory of a step, reused by the next.
#[derive(Default)]
pub struct Workspace {
    x: Vec<f32>,
    /// What a block reads.
    input: Operand,
    normed: Vec<f32>,
    qkv: Vec<f32>,
    attended: Vec<f32>,
    wide: Vec<f32>,
    inner: Operand,
    partials: Vec<f32>,
    logits: Vec<f32>,
    scratch: Scratch,
    /// Of most layers, then of local ones.
    angles: [Angles; 2],
}

impl Workspace {
    /// Takes back what [`Decoder::logits`] gave: fresh memory for a whole vocabulary costs a step as much as
    /// sampling.
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

impl Decoder {
    /// Its configuration; a rank's own where it is one.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The device it runs on.
    pub fn cpu(&self) -> &Arc<Cpu> {
        &self.cpu
    }

    /// What weights are kept as that are not in fewer bits.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Whether a product of it rounds activations to bf16.
    pub fn rounds_activations(&self) -> bool {
        self.matrices().any(Matrix::rounds_activations)
    }

    /// Whether a matrix of it is kept as half floats.
    pub fn multiplies_halves(&self) -> bool {
        self.matrices().any(Matrix::multiplies_halves)
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

    /// All of its matrices.
    fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        let others = [self.embedding.as_ref(), self.project_in.as_ref(), self.project_out.as_ref()];
        self.layer_matrices().chain([&self.head]).chain(others.into_iter().flatten())
    }

    fn layer_matrices(&self) -> impl Iterator<Item = &Matrix> {
        self.layers.iter().flat_map(LayerWeights::matrices)
    }

    /// Computes `slots`, writing their keys and values to `pool`, and gives back the hidden states from which
    /// the logits of each slot's targets, then of its sampling, follow: `[targets, sampling slots and their
    /// guesses; embedding]`, for [`Self::logits`].
    ///
    /// The slots must have been checked against pool, vocabulary and context (the executor does). Fails where
    /// another rank does.
    pub fn forward(
        &self,
        pool: &mut KvPool,
        slots: &[Slot],
        work: &mut Workspace,
    ) -> Result<Vec<f32>, Broken> {
        self.cpu.run(|| {
            let mut step = CpuStep::new(self, pool, work, slots);
            let samples = step.samples();
            let hidden = layer::compute(&mut step, &self.layers, &self.config, samples)?;
            Ok(hidden.unwrap_or_default())
        })
    }

    /// Computes `slots` as far as the keys of layer `number`, writing to `pool` what it has of keys and values,
    /// and gives back those keys, not rotated: `[tokens, key-value heads x head_dim]`.
    pub fn keys(
        &self,
        pool: &mut KvPool,
        slots: &[Slot],
        number: usize,
        work: &mut Workspace,
    ) -> Result<Vec<f32>, Broken> {
        let (width, dim) = (self.layers[number].qkv.outputs(), self.config.head_dim);
        let keys = self.config.heads * dim..(self.config.heads + self.config.kv_heads) * dim;
        self.cpu.run(|| {
            let mut step = CpuStep::new(self, pool, work, slots);
            layer::compute(&mut step, &self.layers[..=number], &self.config, false)?;
            let tokens = slots.iter().map(|slot| slot.input.len()).sum::<usize>();
            let rows = work.qkv[..tokens * width].chunks_exact(width);
            Ok(rows.flat_map(|row| &row[keys.clone()]).copied().collect())
        })
    }

    /// Logits `[rows, vocab]`, of the whole vocabulary, of hidden states `[rows, embedding]`.
    pub fn logits(&self, hidden: &[f32], work: &mut Workspace) -> Result<Vec<f32>, Broken> {
        let (rows, vocab) = (hidden.len() / self.config.embedding, self.config.vocab);
        self.cpu.run(|| {
            let mut logits = std::mem::take(&mut work.logits);
            logits.resize(rows * vocab, 0.0);
            self.cpu.linear(hidden, &self.head, &mut logits, &mut work.scratch);
            if let Some(cap) = self.config.logit_cap {
                self.cpu.bend(&mut logits, cap);
            }
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

    /// The highest of the logits of each row of hidden states, as many as `wanted` says; tokens from
    /// `ids_end` on are not kept. No logits are written.
    pub fn top_k(
        &self,
        hidden: &[f32],
        wanted: &[usize],
        ids_end: usize,
        work: &mut Workspace,
    ) -> Result<Vec<TopK>, Broken> {
        let (rank, ranks, vocab) = (self.collective.rank(), self.collective.ranks(), self.config.vocab);
        self.cpu.run(|| {
            let end = ids_end.saturating_sub(rank * vocab);
            let mut own = self.cpu.top_k(hidden, &self.head, (wanted, end), &mut work.scratch);
            if let Some(cap) = self.config.logit_cap {
                own.iter_mut().for_each(|row| row.change(|values| self.cpu.bend(values, cap)));
            }
            if ranks == 1 {
                return Ok(own);
            }
            let part: Vec<f32> = own.iter().flat_map(TopK::written).collect();
            let mut parts = vec![0.0; ranks * part.len()];
            self.collective.all_gather(&part, &mut parts)?;
            let mut found: Vec<TopK> = wanted.iter().map(|wanted| TopK::new(*wanted)).collect();
            for (rank, mut part) in parts.chunks_exact(part.len()).enumerate() {
                found.iter_mut().for_each(|row| part = row.append_written(part, rank * vocab));
            }
            Ok(found)
        })
    }

    /// `x +=` the product of all ranks' `input` with their `weights`; one rank alone brings `x` itself into
    /// the sum. Where there is a norm, it is of the product.
    fn add_product(
        &self,
        input: LeftOperand<'_>,
        (weights, norm): (&Matrix, Option<&Norm>),
        (x, product): (&mut [f32], &mut Vec<f32>),
        scratch: &mut Scratch,
    ) -> Result<(), Broken> {
        if let Some(norm) = norm {
            let product = sized(product, x.len());
            self.cpu.linear(input, weights, product, scratch);
            self.collective.all_reduce(product)?;
            self.cpu.add_norm(x, norm, product);
            return Ok(());
        }
        match self.collective.rank() {
            0 => self.cpu.linear_add(input, weights, x, scratch),
            _ => self.cpu.linear(input, weights, x, scratch),
        }
        self.collective.all_reduce(x)
    }
}
