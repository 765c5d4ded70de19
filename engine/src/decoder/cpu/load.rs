//! Weights of a checkpoint into a decoder, every shape checked against the configuration.

use std::sync::Arc;

use super::Decoder;
use crate::checkpoint::config::{Mlp, Norm as NormKind, Position};
use crate::checkpoint::ggml::BlockFormat;
use crate::checkpoint::names::{LayerNames, bias, model_names, weight};
use crate::checkpoint::{BlockMatrix, CheckpointError, Dtype, ModelConfig, RawTensor, WeightSource};
use crate::decoder::layer::LayerWeights;
use crate::decoder::tensors::{checked, checked_exact, embedding_scale, layers, norm_weights, rotary};
use crate::device::cpu::Norm;
use crate::device::{Activation, Cpu, Format, Matrix};
use crate::parallel::{Alone, Collective};
use crate::settings::{Keep, Quantize};

/// How to load.
pub struct LoadOptions {
    /// The device that is to run the model.
    pub cpu: Arc<Cpu>,
    /// What weights, keys and values are kept as.
    pub keep: Keep,
}

struct Loader<'a> {
    config: &'a ModelConfig,
    source: &'a dyn WeightSource,
    options: LoadOptions,
}

impl Decoder {
    /// Reads and packs all weights that `config` asks for.
    pub fn load(
        config: &ModelConfig,
        source: &dyn WeightSource,
        options: LoadOptions,
    ) -> Result<Self, CheckpointError> {
        Self::load_rank(config, source, options, Box::new(Alone))
    }

    /// The same for one rank of a model: `config` and `source` are the rank's own.
    pub(crate) fn load_rank(
        config: &ModelConfig,
        source: &dyn WeightSource,
        options: LoadOptions,
        collective: Box<dyn Collective>,
    ) -> Result<Self, CheckpointError> {
        let loader = Loader { config, source, options };
        let names = model_names(config.family);
        let (vocab, width, hidden) = (config.vocab, config.embedding, config.hidden);
        let has_projections = width != hidden;
        let project = |name: &str, shape: [usize; 2]| {
            has_projections.then(|| loader.matrix(&[(name, shape)], false)).transpose()
        };
        let head = if config.tied_head { &names.embedding } else { &names.head };
        let stored = loader.source.layout(&weight(&names.embedding))?.0;
        let positions = match config.position {
            Position::Rotary { .. } | Position::Alibi(_) => None,
            Position::Learned { offset } => {
                let shape = [config.context_max + offset as usize, hidden];
                Some(loader.tensor(&weight(&names.positions), &shape)?.to_f32())
            }
        };
        Ok(Self {
            dtype: loader.options.keep.dtype.unwrap_or(stored),
            kv: loader.options.keep.kv_beside(stored),
            ropes: rotary(config, source)?,
            positions,
            embedding_scale: embedding_scale(config, stored),
            embedding: (!config.tied_head)
                .then(|| {
                    loader.stacked(&[(&names.embedding, [vocab, width])], (false, Activation::None), None)
                })
                .transpose()?,
            project_in: project(&names.project_in, [hidden, width])?,
            project_out: project(&names.project_out, [width, hidden])?,
            layers: layers(config, source, head, |names| loader.layer(names))?,
            final_norm: config
                .final_norm
                .then(|| loader.norm(&names.final_norm, config.norm, hidden))
                .transpose()?,
            head: loader.head(head, [vocab, width])?,
            cpu: Arc::clone(&loader.options.cpu),
            collective,
            config: config.clone(),
        })
    }
}

impl Loader<'_> {
    fn layer(&self, names: &LayerNames) -> Result<LayerWeights<Matrix, Norm>, CheckpointError> {
        let config = self.config;
        let (hidden, middle, dim) = (config.hidden, config.intermediate, config.head_dim);
        let (queries, keys) = (config.heads * dim, config.kv_heads * dim);
        let head_norm = |name: &str| {
            let kind = match config.norm {
                NormKind::Rms { epsilon } | NormKind::Layer { epsilon } => NormKind::Rms { epsilon },
            };
            config.qk_norm.then(|| self.norm(name, kind, dim)).transpose()
        };
        let qkv = [(&*names.q, [queries, hidden]), (&names.k, [keys, hidden]), (&names.v, [keys, hidden])];
        let up = (&*names.up, [middle, hidden]);
        let (up, activation) = match (config.mlp, &names.gate) {
            (Mlp::GatedSilu, Some(gate)) => (vec![(&**gate, [middle, hidden]), up], Activation::GatedSilu),
            (Mlp::GatedGelu, Some(gate)) => (vec![(&**gate, [middle, hidden]), up], Activation::GatedGelu),
            (Mlp::PlainGelu, _) => (vec![up], Activation::Gelu),
            _ => (vec![up], Activation::Relu),
        };
        let post_norm =
            |name: &str| config.post_norms.then(|| self.norm(name, config.norm, hidden)).transpose();
        Ok(LayerWeights {
            attn_norm: self.norm(&names.attn_norm, config.norm, hidden)?,
            qkv: self.matrix(&qkv, config.qkv_bias)?,
            q_norm: head_norm(&names.q_norm)?,
            k_norm: head_norm(&names.k_norm)?,
            out: self.matrix(&[(&names.o, [hidden, queries])], config.out_bias)?,
            attn_post_norm: post_norm(&names.attn_post_norm)?,
            mlp_norm: self.norm(&names.mlp_norm, config.norm, hidden)?,
            up: self.stacked(&up, (config.mlp_bias, activation), self.options.keep.quantize)?,
            down: self.matrix(&[(&names.down, [hidden, middle])], config.mlp_bias)?,
            mlp_post_norm: post_norm(&names.mlp_post_norm)?,
        })
    }

    /// The matrix that says tokens. Four bits change most where they round that, so eight are kept of one that is
    /// stored in more than four, as llama.cpp's quantiser does.
    fn head(&self, module: &str, shape: [usize; 2]) -> Result<Matrix, CheckpointError> {
        let quantize = match self.options.keep.quantize {
            Some(Quantize::Q4)
                if !self.source.blocks(&weight(module))?.is_some_and(|it| it.has_four_bits()) =>
            {
                Some(Quantize::Q8)
            }
            quantize => quantize,
        };
        self.stacked(&[(module, shape)], (false, Activation::None), quantize)
    }

    /// Linear layers stacked by outputs, each `[outputs, inputs]`.
    fn matrix(&self, modules: &[(&str, [usize; 2])], has_bias: bool) -> Result<Matrix, CheckpointError> {
        self.stacked(modules, (has_bias, Activation::None), self.options.keep.quantize)
    }

    /// The same, with an activation behind them, in fewer bits or not.
    fn stacked(
        &self,
        modules: &[(&str, [usize; 2])],
        (has_bias, activation): (bool, Activation),
        quantize: Option<Quantize>,
    ) -> Result<Matrix, CheckpointError> {
        let cpu = &self.options.cpu;
        let mut biases = Vec::new();
        for (module, shape) in modules.iter().filter(|_| has_bias) {
            biases.extend(self.tensor(&bias(module), &shape[..1])?.to_f32());
        }
        let biases = has_bias.then_some(biases);
        let are_of_eight_bits =
            |parts: &[BlockMatrix<'_>]| parts.iter().all(|part| part.format == BlockFormat::Q8_0);
        let format = match quantize {
            Some(Quantize::Q8) => match self.blocks(modules)? {
                Some(parts) if are_of_eight_bits(&parts) => {
                    return Ok(cpu.pack_blocks(&parts, biases, activation));
                }
                _ => Some(Format::Q8),
            },
            Some(Quantize::Q8Wide) => Some(Format::Q8Wide),
            Some(Quantize::Q4) => match self.blocks(modules)? {
                Some(parts) if are_of_eight_bits(&parts) || parts.iter().all(BlockMatrix::has_four_bits) => {
                    return Ok(cpu.pack_blocks(&parts, biases, activation));
                }
                // Whoever stored some in more bits knew why.
                Some(_) => Some(Format::Q8),
                None => Some(Format::Q4),
            },
            Some(Quantize::Fp8) => {
                let reason = "cannot be kept as fp8 on the processor";
                return Err(CheckpointError::malformed(modules[0].0, reason));
            }
            None => self.options.keep.dtype.map(Format::Plain),
        };
        // Numbers that are rounded to integers here, or kept in single precision, are not rounded on the way.
        let is_exact = quantize.is_some() || self.options.keep.dtype == Some(Dtype::F32);
        let parts = modules.iter().map(|(module, shape)| match is_exact {
            true => checked_exact(self.source, &weight(module), shape),
            false => self.tensor(&weight(module), shape),
        });
        Ok(cpu.pack_active(&parts.collect::<Result<Vec<_>, _>>()?, biases, format, activation))
    }

    /// The same layers as blocks of integers; `None` where one of them is stored as something else.
    fn blocks(
        &self,
        modules: &[(&str, [usize; 2])],
    ) -> Result<Option<Vec<BlockMatrix<'_>>>, CheckpointError> {
        let mut parts = Vec::with_capacity(modules.len());
        for (module, shape) in modules {
            let Some(part) = self.source.blocks(&weight(module))? else { return Ok(None) };
            if [part.rows().count(), part.inputs] != *shape {
                return Ok(None); // refused by the tensor's own shape
            }
            parts.push(part);
        }
        Ok(Some(parts))
    }

    fn norm(&self, module: &str, kind: NormKind, width: usize) -> Result<Norm, CheckpointError> {
        let weight = norm_weights(self.config, self.source, (module, width))?;
        let bias = match kind {
            NormKind::Layer { .. } if self.config.norm_bias => self.tensor(&bias(module), &[width])?.to_f32(),
            NormKind::Rms { .. } | NormKind::Layer { .. } => Vec::new(),
        };
        Ok(Norm { kind, weight, bias })
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<RawTensor<'_>, CheckpointError> {
        checked(self.source, name, shape)
    }
}
