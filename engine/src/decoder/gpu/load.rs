//! Weights of a checkpoint to a GPU, every shape checked against the configuration.

use std::borrow::Cow;
use std::sync::Arc;

use super::fit::kv_format;
use super::{GpuDecoder, GpuMatrix, GpuNorm, epsilon};
use crate::checkpoint::config::{Mlp, Norm as NormKind, Position};
use crate::checkpoint::names::{LayerNames, bias, layer_names, model_names, weight};
use crate::checkpoint::{CheckpointError, Dtype, ModelConfig, RawTensor, WeightSource};
use crate::decoder::layer::LayerWeights;
use crate::decoder::tensors::{checked, norm_weights, rotary};
use crate::device::cuda::{Args, Buffer, Element, Gpu, GpuError, Grid};
use crate::parallel::Collective;
use crate::settings::{Keep, Quantize};

/// A model that a GPU cannot take.
#[derive(Debug, thiserror::Error)]
pub enum GpuLoadError {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// Why weights cannot be kept as eight-bit floats.
    #[error("{0}")]
    Fp8(String),
    /// Why keys and values cannot be kept as they should be.
    #[error("{0}")]
    Kv(String),
    /// What the model takes, and what there is.
    #[error("{0}")]
    TooLarge(String),
    /// What the model has and the kernels of GPUs have not.
    #[error("the model has {0}, which runs on the processor only")]
    Unsupported(&'static str),
}

/// What a model of this configuration has that no kernel of a GPU computes.
pub fn refusal(config: &ModelConfig) -> Option<&'static str> {
    [
        (matches!(config.position, Position::Alibi(_)), "scores that fall with distance (ALiBi)"),
        (config.qkv_clip.is_some(), "clipped queries, keys and values"),
        (config.local_layers.is_some(), "local and global layers"),
        (config.post_norms, "normalisations behind its blocks"),
        (config.scales_embedding, "scaled embeddings"),
        (config.score_cap.is_some() || config.logit_cap.is_some(), "capped scores or logits"),
        (config.score_scale.is_some(), "a scale of scores of its own"),
        (matches!(config.norm, NormKind::Layer { .. }) && !config.norm_bias, "layer norms without biases"),
    ]
    .into_iter()
    .find(|(is_there, _)| *is_there)
    .map(|(_, what)| what)
}

/// Where weights go and what they become.
struct Loader<'a> {
    config: &'a ModelConfig,
    source: &'a dyn WeightSource,
    gpu: &'a Arc<dyn Gpu>,
    element: Element,
    /// Whether those of layers become eight-bit floats.
    in_fp8: bool,
}

impl GpuDecoder {
    /// Reads all weights that `config` asks for and copies them to `gpu`, which has been asked whether it can
    /// keep them ([`super::check_fit`]).
    ///
    /// For one rank of several, `config` and `source` are the rank's own.
    pub fn load(
        config: &ModelConfig,
        source: &dyn WeightSource,
        (gpu, collective): (Arc<dyn Gpu>, Box<dyn Collective>),
        keep: Keep,
    ) -> Result<Self, GpuLoadError> {
        let names = model_names(config.family);
        let stored = source.layout(&weight(&names.embedding))?.0;
        let element = Element::of(keep.dtype.unwrap_or(stored));
        let in_fp8 = keep.quantize == Some(Quantize::Fp8);
        let loader = Loader { config, source, gpu: &gpu, element, in_fp8 };
        let (vocab, width, hidden) = (config.vocab, config.embedding, config.hidden);
        let project = |name: &str, shape: [usize; 2]| {
            (width != hidden).then(|| loader.weights(&[(name, shape)], None)).transpose()
        };
        let head = if config.tied_head { &names.embedding } else { &names.head };
        let embedding = || loader.weights(&[(&names.embedding, [vocab, width])], None);
        let decoder = Self {
            rope: rotary(config, source)?[0].take(),
            positions: loader.positions(&names.positions)?,
            embedding: (!config.tied_head).then(embedding).transpose()?.map(|weights| weights.matrix),
            project_in: project(&names.project_in, [hidden, width])?,
            project_out: project(&names.project_out, [width, hidden])?,
            layers: (0..config.layers)
                .map(|layer| loader.layer(&layer_names(config, layer)))
                .collect::<Result<_, _>>()?,
            final_norm: (config.final_norm)
                .then(|| loader.norm(&names.final_norm, config.norm, hidden))
                .transpose()?,
            head: loader.weights(&[(head, [vocab, width])], None)?,
            element,
            kv: kv_format(element, keep.kv)?,
            config: config.clone(),
            collective,
            gpu: Arc::clone(&gpu),
        };
        Ok(decoder)
    }
}

impl Loader<'_> {
    fn layer(&self, names: &LayerNames) -> Result<LayerWeights<GpuMatrix, GpuNorm>, GpuLoadError> {
        let config = self.config;
        let (hidden, middle, dim) = (config.hidden, config.intermediate, config.head_dim);
        let (queries, keys) = (config.heads * dim, config.kv_heads * dim);
        let head_norm = |name: &str| {
            let kind = NormKind::Rms { epsilon: epsilon(config.norm) };
            config.qk_norm.then(|| self.norm(name, kind, dim)).transpose()
        };
        let qkv = [(&*names.q, [queries, hidden]), (&names.k, [keys, hidden]), (&names.v, [keys, hidden])];
        let up = (&*names.up, [middle, hidden]);
        let up = match (config.mlp, &names.gate) {
            (Mlp::GatedSilu | Mlp::GatedGelu, Some(gate)) => vec![(&**gate, [middle, hidden]), up],
            _ => vec![up],
        };
        // Of the type that they are added to.
        let own = if self.in_fp8 { Element::F32 } else { self.element };
        let (own, single) = (Some(own), Some(Element::F32));
        let with = |has_bias: bool, element: Option<Element>| element.filter(|_| has_bias);
        Ok(LayerWeights {
            attn_norm: self.norm(&names.attn_norm, config.norm, hidden)?,
            attn_post_norm: None, // refused above
            mlp_post_norm: None,
            qkv: self.products(&qkv, with(config.qkv_bias, own))?,
            q_norm: head_norm(&names.q_norm)?,
            k_norm: head_norm(&names.k_norm)?,
            out: self.products(&[(&names.o, [hidden, queries])], with(config.out_bias, single))?,
            mlp_norm: self.norm(&names.mlp_norm, config.norm, hidden)?,
            up: self.products(&up, with(config.mlp_bias, own))?,
            down: self.products(&[(&names.down, [hidden, middle])], with(config.mlp_bias, single))?,
        })
    }

    /// Linear layers stacked by outputs, each `[outputs, inputs]`; with biases of a type, that of what they
    /// are added to.
    fn weights(
        &self,
        modules: &[(&str, [usize; 2])],
        biases: Option<Element>,
    ) -> Result<GpuMatrix, GpuLoadError> {
        let outputs = modules.iter().map(|(_, shape)| shape[0]).sum();
        let inputs = modules[0].1[1];
        let matrix = Buffer::new(self.gpu, outputs * inputs * self.element.bytes())?;
        let (mut end, mut behind) = (0, Vec::new());
        for (module, shape) in modules {
            // Straight to the GPU: a matrix that is kept as it is stored is never copied here.
            let tensor = checked(self.source, &weight(module), shape)?;
            let bytes = numbers(&tensor, self.element);
            self.gpu.write(matrix.address().at(end), &bytes)?;
            end += bytes.len();
            if let Some(element) = biases {
                let tensor = checked(self.source, &bias(module), &shape[..1])?;
                behind.extend_from_slice(&numbers(&tensor, element));
            }
        }
        Ok(GpuMatrix {
            matrix,
            scales: None,
            bias: biases.map(|_| Buffer::of(self.gpu, &behind)).transpose()?,
            outputs,
            inputs,
        })
    }

    /// The same, for the products of a layer: in eight bits where such are wanted, every output under its
    /// scale.
    fn products(
        &self,
        modules: &[(&str, [usize; 2])],
        biases: Option<Element>,
    ) -> Result<GpuMatrix, GpuLoadError> {
        let plain = self.weights(modules, biases)?;
        if !self.in_fp8 {
            return Ok(plain);
        }
        let GpuMatrix { matrix, bias, outputs, inputs, .. } = plain;
        if !outputs.is_multiple_of(16) || !inputs.is_multiple_of(16) {
            let module = modules[0].0;
            let reason = format!("is fp8, but `{module}` is {outputs} x {inputs}, not multiples of 16");
            return Err(GpuLoadError::Fp8(reason));
        }
        let fp8 = Buffer::new(self.gpu, outputs * inputs)?;
        let scales = Buffer::new(self.gpu, outputs * size_of::<f32>())?;
        let [from, to, of_rows] = [&matrix, &fp8, &scales].map(|buffer| Some(buffer.address()));
        let kernel = format!("quantize_{}", self.element.suffix());
        let args = Args::new([from, to, of_rows, None]).numbers(&[inputs]).bytes();
        self.gpu.launch(&kernel, Grid::rows(outputs, 256), &args)?;
        Ok(GpuMatrix { matrix: fp8, scales: Some(scales), bias, outputs, inputs })
    }

    fn norm(&self, module: &str, kind: NormKind, width: usize) -> Result<GpuNorm, GpuLoadError> {
        let single = |numbers: Vec<f32>| -> Result<Buffer, GpuLoadError> {
            let bytes: Vec<u8> = numbers.into_iter().flat_map(f32::to_le_bytes).collect();
            Ok(Buffer::of(self.gpu, &bytes)?)
        };
        let bias = || single(checked(self.source, &bias(module), &[width])?.to_f32());
        let has_bias = matches!(kind, NormKind::Layer { .. });
        Ok(GpuNorm {
            weight: single(norm_weights(self.config, self.source, (module, width))?)?,
            bias: has_bias.then(bias).transpose()?,
            epsilon: epsilon(kind),
        })
    }

    /// Learned positions, single precision.
    fn positions(&self, module: &str) -> Result<Option<Buffer>, GpuLoadError> {
        let Position::Learned { offset } = self.config.position else { return Ok(None) };
        let shape = [self.config.context_max + offset as usize, self.config.hidden];
        let table = checked(self.source, &weight(module), &shape)?;
        Ok(Some(Buffer::of(self.gpu, &numbers(&table, Element::F32))?))
    }
}

/// A tensor's numbers as another type.
fn numbers<'a>(tensor: &'a RawTensor<'_>, element: Element) -> Cow<'a, [u8]> {
    match (element, tensor.dtype) {
        (Element::F32, Dtype::F32) | (Element::Bf16, Dtype::Bf16) | (Element::F16, Dtype::F16) => {
            Cow::Borrowed(&tensor.data)
        }
        (Element::F32, _) => Cow::Owned(tensor.to_f32().into_iter().flat_map(f32::to_le_bytes).collect()),
        (Element::Bf16, _) => {
            let round = |number: f32| half::bf16::from_f32(number).to_le_bytes();
            Cow::Owned(tensor.to_f32().into_iter().flat_map(round).collect())
        }
        (Element::F16, _) => {
            let round = |number: f32| half::f16::from_f32(number).to_le_bytes();
            Cow::Owned(tensor.to_f32().into_iter().flat_map(round).collect())
        }
    }
}
