//! Weights of a checkpoint to a GPU, every shape checked against the configuration.

use std::borrow::Cow;
use std::sync::Arc;

use super::{GpuDecoder, GpuMatrix, GpuNorm, epsilon};
use crate::checkpoint::config::{Mlp, Norm as NormKind, Position};
use crate::checkpoint::names::{LayerNames, bias, model_names, weight};
use crate::checkpoint::{BlockMatrix, CheckpointError, Dtype, ModelConfig, RawTensor, WeightSource};
use crate::decoder::layer::LayerWeights;
use crate::decoder::tensors::{checked, checked_exact, layers, norm_weights, rotary};
use crate::device::cpu::NibbleGroup;
use crate::device::cuda::{Args, Buffer, Element, Gpu, GpuError, Grid, LANE_INPUTS, pack_q4};
use crate::parallel::Collective;
use crate::settings::{Keep, KvFormat, Quantize};

/// A model that a GPU cannot take.
#[derive(Debug, thiserror::Error)]
pub enum GpuLoadError {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// Why weights cannot be kept in fewer bits.
    #[error("{0}")]
    Quantize(String),
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

/// Why weights are not kept in eight-bit integers.
fn no_kernel(quantize: Quantize) -> GpuLoadError {
    GpuLoadError::Quantize(format!("is {}, which no kernel of a GPU multiplies", quantize.name()))
}

/// Where weights go and what they become.
struct Loader<'a> {
    config: &'a ModelConfig,
    source: &'a dyn WeightSource,
    gpu: &'a Arc<dyn Gpu>,
    element: Element,
    /// What those of layers become.
    quantize: Option<Quantize>,
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
        let loader = Loader { config, source, gpu: &gpu, element, quantize: keep.quantize };
        let (vocab, width, hidden) = (config.vocab, config.embedding, config.hidden);
        let project = |name: &str, shape: [usize; 2]| {
            (width != hidden).then(|| loader.weights(&[(name, shape)], None)).transpose()
        };
        let head = if config.tied_head { &names.embedding } else { &names.head };
        let embedding = || loader.weights(&[(&names.embedding, [vocab, width])], None);
        let layers = layers(config, source, head, |names| loader.layer(names))?;
        let decoder = Self {
            rope: rotary(config, source)?[0].take(),
            positions: loader.positions(&names.positions)?,
            embedding: (!config.tied_head).then(embedding).transpose()?.map(|weights| weights.matrix),
            project_in: project(&names.project_in, [hidden, width])?,
            project_out: project(&names.project_out, [width, hidden])?,
            unpacked: loader.room_to_unpack(&layers)?,
            layers,
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
        let (hidden, dim) = (config.hidden, config.head_dim);
        let head_norm = |name: &str| {
            let kind = NormKind::Rms { epsilon: epsilon(config.norm) };
            config.qk_norm.then(|| self.norm(name, kind, dim)).transpose()
        };
        let [qkv, out, up, down] = stacks(config, names);
        // Of the type that they are added to.
        let in_fp8 = self.quantize == Some(Quantize::Fp8);
        let own = if in_fp8 { Element::F32 } else { self.element };
        let (own, single) = (Some(own), Some(Element::F32));
        let with = |has_bias: bool, element: Option<Element>| element.filter(|_| has_bias);
        Ok(LayerWeights {
            attn_norm: self.norm(&names.attn_norm, config.norm, hidden)?,
            attn_post_norm: None, // refused above
            mlp_post_norm: None,
            qkv: self.products(&qkv, with(config.qkv_bias, own))?,
            q_norm: head_norm(&names.q_norm)?,
            k_norm: head_norm(&names.k_norm)?,
            out: self.products(&out, with(config.out_bias, single))?,
            mlp_norm: self.norm(&names.mlp_norm, config.norm, hidden)?,
            up: self.products(&up, with(config.mlp_bias, own))?,
            down: self.products(&down, with(config.mlp_bias, single))?,
        })
    }

    /// Linear layers stacked by outputs, each `[outputs, inputs]`; with biases of a type, that of what they
    /// are added to.
    fn weights(
        &self,
        modules: &[LinearShape<'_>],
        biases: Option<Element>,
    ) -> Result<GpuMatrix, GpuLoadError> {
        let [outputs, inputs] = extents(modules);
        let matrix = Buffer::new(self.gpu, outputs * inputs * self.element.bytes())?;
        let mut end = 0;
        for (module, shape) in modules {
            // Straight to the GPU: a matrix that is kept as it is stored is never copied here.
            let tensor = match self.element {
                Element::F32 => checked_exact(self.source, &weight(module), shape)?,
                Element::F16 | Element::Bf16 => checked(self.source, &weight(module), shape)?,
            };
            let bytes = numbers(&tensor, self.element);
            self.gpu.write(matrix.address().at(end), &bytes)?;
            end += bytes.len();
        }
        let bias = self.biases(modules, biases)?;
        Ok(GpuMatrix { matrix, scales: None, in_q4: false, bias, outputs, inputs })
    }

    /// The biases of such layers, where they have any.
    fn biases(
        &self,
        modules: &[LinearShape<'_>],
        biases: Option<Element>,
    ) -> Result<Option<Buffer>, GpuLoadError> {
        let Some(element) = biases else { return Ok(None) };
        let mut all = Vec::new();
        for (module, shape) in modules {
            let tensor = checked(self.source, &bias(module), &shape[..1])?;
            all.extend_from_slice(&numbers(&tensor, element));
        }
        Ok(Some(Buffer::of(self.gpu, &all)?))
    }

    /// Such layers, for the products of a layer: in fewer bits where they are wanted so.
    fn products(
        &self,
        modules: &[LinearShape<'_>],
        biases: Option<Element>,
    ) -> Result<GpuMatrix, GpuLoadError> {
        match self.quantize {
            Some(Quantize::Fp8) => self.in_fp8(modules, biases),
            Some(Quantize::Q4) => self.in_q4(modules, biases),
            Some(quantize @ (Quantize::Q8 | Quantize::Q8Wide)) => Err(no_kernel(quantize)),
            None => self.weights(modules, biases),
        }
    }

    /// In four bits: those that are stored so as they are, others rounded. Of a stack of which any are stored in blocks of
    /// more bits, whoever stored them knew why: it is kept as it is without.
    fn in_q4(&self, modules: &[LinearShape<'_>], biases: Option<Element>) -> Result<GpuMatrix, GpuLoadError> {
        let stored = modules.iter().map(|(module, _)| self.source.blocks(&weight(module)));
        let stored = stored.collect::<Result<Vec<_>, _>>()?;
        if stored.iter().flatten().any(|part| !part.has_four_bits()) {
            return self.weights(modules, biases);
        }
        check_extents(modules, Quantize::Q4)?;
        let [outputs, inputs] = extents(modules);
        let mut parts = Vec::new();
        for ((module, shape), stored) in modules.iter().zip(stored) {
            let fits = |part: &BlockMatrix<'_>| [part.rows().count(), part.inputs] == *shape;
            parts.push(match stored.filter(fits) {
                Some(blocks) => FourBitRows::Stored(blocks),
                None => FourBitRows::Plain(checked(self.source, &weight(module), shape)?),
            });
        }
        let rows: Vec<(&FourBitRows<'_>, usize)> = parts
            .iter()
            .zip(modules)
            .flat_map(|(part, (_, shape))| (0..shape[0]).map(move |row| (part, row)))
            .collect();
        let packed = pack_q4(outputs, inputs, |output, put| {
            let (part, row) = rows[output];
            part.groups(row, inputs, put);
        });
        let matrix = Buffer::of(self.gpu, &packed)?;
        let bias = self.biases(modules, biases)?;
        Ok(GpuMatrix { matrix, scales: None, in_q4: true, bias, outputs, inputs })
    }

    /// Room for the largest matrix of four bits, unpacked.
    fn room_to_unpack(
        &self,
        layers: &[LayerWeights<GpuMatrix, GpuNorm>],
    ) -> Result<Option<Buffer>, GpuLoadError> {
        let matrices = layers.iter().flat_map(LayerWeights::matrices).filter(|weights| weights.in_q4);
        let largest = matrices.map(|weights| weights.outputs * weights.inputs).max();
        Ok(largest.map(|count| Buffer::new(self.gpu, count * self.element.bytes())).transpose()?)
    }

    /// In eight bits, every output under its scale.
    fn in_fp8(
        &self,
        modules: &[LinearShape<'_>],
        biases: Option<Element>,
    ) -> Result<GpuMatrix, GpuLoadError> {
        check_extents(modules, Quantize::Fp8)?;
        let GpuMatrix { matrix, bias, outputs, inputs, .. } = self.weights(modules, biases)?;
        let fp8 = Buffer::new(self.gpu, outputs * inputs)?;
        let scales = Buffer::new(self.gpu, outputs * size_of::<f32>())?;
        let [from, to, of_rows] = [&matrix, &fp8, &scales].map(|buffer| Some(buffer.address()));
        let kernel = format!("quantize_{}", self.element.suffix());
        let args = Args::new([from, to, of_rows, None]).numbers(&[inputs]).bytes();
        self.gpu.launch(&kernel, Grid::rows(outputs, 256), &args)?;
        Ok(GpuMatrix { matrix: fp8, scales: Some(scales), in_q4: false, bias, outputs, inputs })
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

/// What keys and values are kept as beside weights that are kept as `element`.
pub(super) fn kv_format(element: Element, wanted: Option<KvFormat>) -> Result<KvFormat, GpuLoadError> {
    let own = match element {
        Element::F32 => KvFormat::F32,
        Element::Bf16 | Element::F16 => KvFormat::Bf16,
    };
    match wanted.unwrap_or(own) {
        format if format == own || matches!(format, KvFormat::Q8 | KvFormat::Fp8) => Ok(format),
        format => {
            let [format, own] = [format, own].map(KvFormat::name);
            Err(GpuLoadError::Kv(format!("is {format}; beside these weights a GPU keeps {own}, q8 or fp8")))
        }
    }
}

/// A linear layer's module, and its outputs and inputs.
pub(super) type LinearShape<'a> = (&'a str, [usize; 2]);

/// The linear layers of a layer of the model as they are multiplied, of each product those that are stacked: queries,
/// keys and values; attention's output; gate and widening; narrowing.
pub(super) fn stacks<'a>(config: &ModelConfig, names: &'a LayerNames) -> [Vec<LinearShape<'a>>; 4] {
    let (hidden, middle, dim) = (config.hidden, config.intermediate, config.head_dim);
    let (queries, keys) = (config.heads * dim, config.kv_heads * dim);
    let qkv = vec![(&*names.q, [queries, hidden]), (&*names.k, [keys, hidden]), (&*names.v, [keys, hidden])];
    let up = (&*names.up, [middle, hidden]);
    let up = match (config.mlp, &names.gate) {
        (Mlp::GatedSilu | Mlp::GatedGelu, Some(gate)) => vec![(&**gate, [middle, hidden]), up],
        _ => vec![up],
    };
    [qkv, vec![(&*names.o, [hidden, queries])], up, vec![(&*names.down, [hidden, middle])]]
}

/// Fails where no kernel multiplies such layers, stacked, in fewer bits.
pub(super) fn check_extents(modules: &[LinearShape<'_>], quantize: Quantize) -> Result<(), GpuLoadError> {
    let ([outputs, inputs], module) = (extents(modules), modules[0].0);
    let reason = match quantize {
        Quantize::Fp8 if !outputs.is_multiple_of(16) || !inputs.is_multiple_of(16) => {
            format!("is fp8, but `{module}` is {outputs} x {inputs}, not multiples of 16")
        }
        Quantize::Q4 if !inputs.is_multiple_of(LANE_INPUTS) => {
            format!("is q4, but `{module}` has {inputs} inputs, no multiple of {LANE_INPUTS}")
        }
        Quantize::Q8 | Quantize::Q8Wide => return Err(no_kernel(quantize)),
        Quantize::Fp8 | Quantize::Q4 => return Ok(()),
    };
    Err(GpuLoadError::Quantize(reason))
}

/// Outputs of all of some layers together, and their inputs.
fn extents(modules: &[LinearShape<'_>]) -> [usize; 2] {
    [modules.iter().map(|(_, shape)| shape[0]).sum(), modules[0].1[1]]
}

/// Rows of weights that are to be of four bits.
enum FourBitRows<'a> {
    /// Those that are.
    Stored(BlockMatrix<'a>),
    /// Those that are rounded.
    Plain(RawTensor<'a>),
}

impl FourBitRows<'_> {
    /// The groups of a row of `inputs` numbers, in order.
    fn groups(&self, row: usize, inputs: usize, put: &mut dyn FnMut(NibbleGroup)) {
        match self {
            Self::Stored(blocks) => {
                let row = blocks.rows().nth(row).expect("it has as many rows as its shape");
                blocks.format.four_bit_groups(row, &mut |numbers, scale, minimum| {
                    put(NibbleGroup { numbers, scale, minimum });
                });
            }
            Self::Plain(tensor) => {
                let mut weights = vec![0.0; inputs];
                tensor.read_row(row, &mut weights);
                NibbleGroup::of_row(&weights, put);
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_as_weights_are_or_of_eight_bits() {
        let format = |element, wanted| kv_format(element, wanted).map_err(|error| error.to_string());
        assert_eq!(format(Element::F32, None), Ok(KvFormat::F32));
        assert_eq!(format(Element::F16, None), Ok(KvFormat::Bf16));
        assert_eq!(format(Element::Bf16, Some(KvFormat::Bf16)), Ok(KvFormat::Bf16));
        for element in [Element::F32, Element::Bf16, Element::F16] {
            for kv in [KvFormat::Q8, KvFormat::Fp8] {
                assert_eq!(format(element, Some(kv)), Ok(kv));
            }
        }
        let refused = format(Element::Bf16, Some(KvFormat::F32)).expect_err("there are no kernels");
        assert_eq!(refused, "is f32; beside these weights a GPU keeps bf16, q8 or fp8");
    }
}
