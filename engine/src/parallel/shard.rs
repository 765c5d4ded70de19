//! What one rank holds of a model: a configuration of its own, and its part of every tensor.
//!
//! A decoder over these is an ordinary decoder with fewer heads, a narrower feed-forward block and a smaller
//! vocabulary; only sums and the vocabulary's offset tell it that it is not alone.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::checkpoint::config::{Alibi, Family, Position};
use crate::checkpoint::names::{bias, layer_names, model_names, weight};
use crate::checkpoint::{BlockMatrix, CheckpointError, ModelConfig, RawTensor, WeightSource};
use crate::decoder::GpuLoadError;
use crate::device::cuda::GpuError;

/// A model that cannot be loaded as ranks.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
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
    /// Why GPUs do not run the model.
    #[error("{0}")]
    Unsupported(String),
    /// An extent that ranks cannot share.
    #[error("`{field}` = {count} cannot be divided among {ranks} ranks")]
    Uneven {
        /// Its name in config.json.
        field: &'static str,
        /// The extent.
        count: usize,
        /// How many ranks there should be.
        ranks: usize,
    },
}

impl From<GpuLoadError> for ShardError {
    fn from(error: GpuLoadError) -> Self {
        match error {
            GpuLoadError::Checkpoint(error) => Self::Checkpoint(error),
            GpuLoadError::Gpu(error) => Self::Gpu(error),
            GpuLoadError::Quantize(reason) => Self::Quantize(reason),
            GpuLoadError::Kv(reason) => Self::Kv(reason),
            GpuLoadError::TooLarge(reason) => Self::Unsupported(reason),
            GpuLoadError::Unsupported(_) => Self::Unsupported(error.to_string()),
        }
    }
}

/// The `index`-th of `of` equal parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) index: usize,
    /// Of how many.
    pub(super) of: usize,
}

impl Share {
    /// Its part of `0..count`, as first and length.
    fn range(self, count: usize) -> (usize, usize) {
        let length = count / self.of;
        (self.index * length, length)
    }

    /// Its part of each of `outer` equal stretches of bytes.
    fn part(self, data: Cow<'_, [u8]>, outer: usize) -> Cow<'_, [u8]> {
        let bytes = data.len() / outer.max(1);
        let (first, length) = self.range(bytes);
        match data {
            Cow::Borrowed(data) if outer == 1 => Cow::Borrowed(&data[first..first + length]),
            data => {
                data.chunks_exact(bytes.max(1)).flat_map(|one| &one[first..first + length]).copied().collect()
            }
        }
    }

    /// Which key-value heads this rank has: its part, or, where ranks outnumber heads, the one that its
    /// queries read.
    fn of_kv_heads(self, kv_heads: usize) -> Self {
        if kv_heads < self.of { Self { index: self.index * kv_heads / self.of, of: kv_heads } } else { self }
    }

    /// The configuration of a rank of `whole`.
    pub(super) fn config(self, whole: &ModelConfig) -> Result<ModelConfig, ShardError> {
        let ranks = self.of;
        let divide = |field, count: usize| match count % ranks {
            0 => Ok(count / ranks),
            _ => Err(ShardError::Uneven { field, count, ranks }),
        };
        let inner = if whole.family == Family::Opt { "ffn_dim" } else { "intermediate_size" };
        let heads = divide("num_attention_heads", whole.heads)?;
        let position = match &whole.position {
            Position::Alibi(alibi) => {
                let slopes = alibi.slopes[self.index * heads..(self.index + 1) * heads].to_vec();
                Position::Alibi(Alibi { slopes, ..alibi.clone() })
            }
            position => position.clone(),
        };
        let kv_heads = match whole.kv_heads {
            few if few < ranks && ranks.is_multiple_of(few) => 1, // several ranks have the same one
            heads => divide("num_key_value_heads", heads)?,
        };
        Ok(ModelConfig {
            heads,
            position,
            kv_heads,
            intermediate: divide(inner, whole.intermediate)?,
            vocab: divide("vocab_size", whole.vocab)?,
            ..whole.clone()
        })
    }
}

/// How a tensor is cut.
#[derive(Clone, Copy)]
enum Cut {
    /// Along its first dimension: outputs.
    Outputs(Share),
    /// Along its second dimension: inputs.
    Inputs(Share),
    /// Not cut, and added by rank 0 alone: the bias of a layer whose results are summed over ranks.
    Once(Share),
}

/// A rank's view of a checkpoint.
pub(super) struct ShardSource<'a> {
    source: &'a dyn WeightSource,
    /// Tensors that are not here are on every rank whole.
    cuts: HashMap<String, Cut>,
}

impl<'a> ShardSource<'a> {
    /// The part of rank `share` of the tensors of a model of configuration `whole`.
    pub(super) fn new(source: &'a dyn WeightSource, whole: &ModelConfig, share: Share) -> Self {
        let mut cuts = HashMap::new();
        let model = model_names(whole.family);
        for module in [&model.embedding, &model.head] {
            cuts.insert(weight(module), Cut::Outputs(share));
        }
        let kv = share.of_kv_heads(whole.kv_heads);
        for layer in 0..whole.layers {
            let names = layer_names(whole, layer);
            let columns = [(Some(names.q), share), (Some(names.k), kv), (Some(names.v), kv)];
            for (module, share) in columns.into_iter().chain([(names.gate, share), (Some(names.up), share)]) {
                for name in module.into_iter().flat_map(|module| [weight(&module), bias(&module)]) {
                    cuts.insert(name, Cut::Outputs(share));
                }
            }
            for module in [names.o, names.down] {
                cuts.insert(weight(&module), Cut::Inputs(share));
                cuts.insert(bias(&module), Cut::Once(share));
            }
        }
        Self { source, cuts }
    }

    /// The rank's part of a tensor.
    fn part<'t>(&self, name: &str, tensor: RawTensor<'t>) -> RawTensor<'t> {
        match self.cuts.get(name) {
            Some(cut) => cut.apply(tensor),
            None => tensor,
        }
    }
}

impl WeightSource for ShardSource<'_> {
    fn tensor(&self, name: &str) -> Result<RawTensor<'_>, CheckpointError> {
        Ok(self.part(name, self.source.tensor(name)?))
    }

    fn exact(&self, name: &str) -> Result<RawTensor<'_>, CheckpointError> {
        Ok(self.part(name, self.source.exact(name)?))
    }

    fn blocks(&self, name: &str) -> Result<Option<BlockMatrix<'_>>, CheckpointError> {
        let whole = self.source.blocks(name)?;
        Ok(match self.cuts.get(name) {
            Some(cut) => whole.and_then(|whole| cut.apply_to_blocks(whole)),
            None => whole,
        })
    }

    fn will_read(&self, name: &str) {
        self.source.will_read(name);
    }

    fn names(&self) -> Vec<String> {
        self.source.names()
    }
}

impl Cut {
    /// The part of `tensor`. One that does not divide stays whole: it has not the shape its configuration
    /// asks for, and is refused for that.
    fn apply(self, tensor: RawTensor<'_>) -> RawTensor<'_> {
        let (dimension, share) = match self {
            Self::Outputs(share) => (0, share),
            Self::Inputs(share) => (1, share),
            Self::Once(share) if share.index > 0 => {
                return RawTensor { data: vec![0; tensor.data.len()].into(), ..tensor };
            }
            Self::Once(_) => return tensor,
        };
        let Some(extent) = tensor.shape.get(dimension).copied() else { return tensor };
        if extent == 0 || !extent.is_multiple_of(share.of) {
            return tensor;
        }
        let outer: usize = tensor.shape[..dimension].iter().product();
        let data = share.part(tensor.data, outer);
        let mut shape = tensor.shape;
        shape[dimension] = extent / share.of;
        RawTensor { shape, data, ..tensor }
    }

    /// The part of a matrix of blocks; `None` where it would cut one.
    fn apply_to_blocks(self, whole: BlockMatrix<'_>) -> Option<BlockMatrix<'_>> {
        let rows = whole.rows().count();
        match self {
            Self::Outputs(share) if rows.is_multiple_of(share.of) => {
                Some(BlockMatrix { data: share.part(whole.data, 1), ..whole })
            }
            Self::Inputs(share) => {
                let inputs = whole.inputs / share.of;
                let is_whole = whole.inputs.is_multiple_of(share.of * whole.format.elements());
                is_whole.then(|| BlockMatrix { inputs, data: share.part(whole.data, rows), ..whole })
            }
            Self::Outputs(_) | Self::Once(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Dtype;
    use crate::checkpoint::ggml::BlockFormat;
    use crate::checkpoint::weights::MapWeights;
    use crate::decoder::tests_config;

    #[test]
    fn tensors_are_cut_by_outputs_by_inputs_or_added_once() {
        let mut weights = MapWeights::default();
        let layer = "model.layers.0";
        let count = |n: usize| (0..n).map(|i| i as f32).collect::<Vec<_>>();
        for dtype in [Dtype::F32, Dtype::Bf16] {
            for (name, shape) in [
                ("self_attn.q_proj.weight", &[4, 3][..]),
                ("self_attn.k_proj.weight", &[2, 3]),
                ("self_attn.o_proj.weight", &[3, 4]),
                ("self_attn.o_proj.bias", &[3]),
                ("input_layernorm.weight", &[3]),
            ] {
                weights.insert(&format!("{layer}.{name}"), dtype, shape, &count(shape.iter().product()));
            }
            let found = |index: usize, name: &str| {
                let source = ShardSource::new(&weights, &tests_config(), Share { index, of: 4 });
                let tensor = source.tensor(&format!("{layer}.{name}")).expect("it is there");
                (tensor.shape.clone(), tensor.to_f32())
            };
            assert_eq!(found(2, "self_attn.q_proj.weight"), (vec![1, 3], vec![6.0, 7.0, 8.0]));
            assert_eq!(found(1, "self_attn.k_proj.weight"), (vec![1, 3], vec![0.0, 1.0, 2.0]));
            assert_eq!(found(2, "self_attn.k_proj.weight"), (vec![1, 3], vec![3.0, 4.0, 5.0]));
            assert_eq!(found(1, "self_attn.o_proj.weight"), (vec![3, 1], vec![1.0, 5.0, 9.0]));
            assert_eq!(found(0, "self_attn.o_proj.bias"), (vec![3], vec![0.0, 1.0, 2.0]));
            assert_eq!(found(3, "self_attn.o_proj.bias"), (vec![3], vec![0.0; 3]));
            assert_eq!(found(3, "input_layernorm.weight"), (vec![3], vec![0.0, 1.0, 2.0]));
        }
    }

    /// Every matrix: three rows of four blocks, each of bytes with its number.
    struct Numbered;

    impl WeightSource for Numbered {
        fn tensor(&self, name: &str) -> Result<RawTensor<'_>, CheckpointError> {
            Err(CheckpointError::MissingTensor { name: name.to_owned() })
        }

        fn exact(&self, _name: &str) -> Result<RawTensor<'_>, CheckpointError> {
            let data = (0..3 * 128).flat_map(|number| (number as f32).to_le_bytes()).collect();
            Ok(RawTensor { dtype: Dtype::F32, shape: vec![3, 128], data })
        }

        fn blocks(&self, _name: &str) -> Result<Option<BlockMatrix<'_>>, CheckpointError> {
            let data = (0..12).flat_map(|block| [block; 34]).collect();
            Ok(Some(BlockMatrix { format: BlockFormat::Q8_0, inputs: 128, data }))
        }

        fn names(&self) -> Vec<String> {
            Vec::new()
        }
    }

    #[test]
    fn blocks_are_cut_between_each_other_or_not_at_all() {
        let blocks = |share: Share, name: &str| {
            let source = ShardSource::new(&Numbered, &tests_config(), share);
            let part = source.blocks(name).expect("it is there")?;
            assert!(part.data.as_chunks::<34>().0.iter().all(|block| *block == [block[0]; 34]));
            Some((part.inputs, part.data.iter().step_by(34).copied().collect::<Vec<u8>>()))
        };
        let [q, o] = ["q", "o"].map(|name| format!("model.layers.0.self_attn.{name}_proj.weight"));
        let (three, four) = (Share { index: 1, of: 3 }, Share { index: 2, of: 4 });
        assert_eq!(blocks(three, &q), Some((128, vec![4, 5, 6, 7])));
        assert_eq!(blocks(four, &o), Some((32, vec![2, 6, 10])));
        assert_eq!((blocks(four, &q), blocks(three, &o)), (None, None));
        assert_eq!(blocks(four, "model.norm.weight"), Some((128, (0..12).collect())));
    }

    #[test]
    fn what_is_not_rounded_is_cut_as_what_is() {
        let exact = |share: Share, name: &str| {
            let source = ShardSource::new(&Numbered, &tests_config(), share);
            let part = source.exact(name).expect("it is there");
            (part.shape.clone(), part.to_f32().iter().map(|number| *number as usize).collect::<Vec<_>>())
        };
        let [q, o] = ["q", "o"].map(|name| format!("model.layers.0.self_attn.{name}_proj.weight"));
        assert_eq!(exact(Share { index: 1, of: 3 }, &q), (vec![1, 128], (128..256).collect()));
        let of_rows: Vec<usize> = (0..3).flat_map(|row| 128 * row + 64..128 * row + 96).collect();
        assert_eq!(exact(Share { index: 2, of: 4 }, &o), (vec![3, 32], of_rows));
    }

    #[test]
    fn every_part_together_is_the_model() {
        let whole = tests_config(); // 4 heads, 2 of keys and values
        for of in [1, 2, 4] {
            let config = Share { index: 0, of }.config(&ModelConfig { vocab: 64, ..whole.clone() });
            let config = config.expect("it divides");
            assert_eq!((config.heads * of, config.intermediate * of, config.vocab * of), (4, 48, 64));
            assert_eq!(config.kv_heads, (2 / of).max(1));
            let kv: Vec<Share> = (0..of).map(|index| Share { index, of }.of_kv_heads(2)).collect();
            let groups = kv.iter().map(|share| share.range(2)).collect::<Vec<_>>();
            let expected: &[(usize, usize)] = match of {
                1 => &[(0, 2)],
                2 => &[(0, 1), (1, 1)],
                _ => &[(0, 1), (0, 1), (1, 1), (1, 1)],
            };
            assert_eq!(groups, expected);
        }
    }
}
