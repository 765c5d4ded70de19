//! What loaders of all devices read of a checkpoint in the same way.

use crate::checkpoint::config::{Position, RopeScaling};
use crate::checkpoint::names::{LayerNames, layer_names, model_names, weight};
use crate::checkpoint::{CheckpointError, Dtype, ModelConfig, RawTensor, WeightSource};
use crate::rope::Rope;

/// The tensor called `name`, which must have this shape.
pub(super) fn checked<'a>(
    source: &'a dyn WeightSource,
    name: &str,
    shape: &[usize],
) -> Result<RawTensor<'a>, CheckpointError> {
    of_shape(source.tensor(name)?, name, shape)
}

/// The same with nothing rounded.
pub(super) fn checked_exact<'a>(
    source: &'a dyn WeightSource,
    name: &str,
    shape: &[usize],
) -> Result<RawTensor<'a>, CheckpointError> {
    of_shape(source.exact(name)?, name, shape)
}

fn of_shape<'a>(
    tensor: RawTensor<'a>,
    name: &str,
    shape: &[usize],
) -> Result<RawTensor<'a>, CheckpointError> {
    if tensor.shape != shape {
        return Err(CheckpointError::WrongShape {
            name: name.to_owned(),
            found: tensor.shape,
            expected: shape.to_vec(),
        });
    }
    Ok(tensor)
}

/// All layers, each by `load`. While one is packed, the source fetches the matrices of the next, and beside the last the
/// one behind the layers, `head`: disk and processor work side by side.
pub(super) fn layers<L, E>(
    config: &ModelConfig,
    source: &dyn WeightSource,
    head: &str,
    load: impl Fn(&LayerNames) -> Result<L, E>,
) -> Result<Vec<L>, E> {
    let will_read = |names: &LayerNames| names.matrices().for_each(|name| source.will_read(&weight(name)));
    let one = |layer: usize| {
        let names = layer_names(config, layer);
        if layer == 0 {
            will_read(&names);
        }
        if layer + 1 < config.layers {
            will_read(&layer_names(config, layer + 1));
        } else {
            source.will_read(&weight(head));
        }
        load(&names)
    };
    (0..config.layers).map(one).collect()
}

/// The model's rotary frequencies, where it has any: of most layers, then of local ones.
pub(super) fn rotary(
    config: &ModelConfig,
    source: &dyn WeightSource,
) -> Result<[Option<Rope>; 2], CheckpointError> {
    let Position::Rotary { theta, scaling } = config.position else { return Ok([None, None]) };
    let mut rope = Rope::new(config.head_dim, theta, scaling);
    if scaling == RopeScaling::Stored {
        let name = weight(&model_names(config.family).rope_factors);
        rope.divide(&checked(source, &name, &[config.head_dim / 2])?.to_f32());
    }
    let local = config.local_layers.as_ref();
    let local = local.map(|layers| Rope::new(config.head_dim, layers.theta, RopeScaling::None));
    Ok([Some(rope), local])
}

/// The weights of a normalisation, as what normalised numbers are multiplied by.
pub(super) fn norm_weights(
    config: &ModelConfig,
    source: &dyn WeightSource,
    (module, width): (&str, usize),
) -> Result<Vec<f32>, CheckpointError> {
    let mut weights = checked(source, &weight(module), &[width])?.to_f32();
    if config.norm_above_one {
        weights.iter_mut().for_each(|weight| *weight += 1.0);
    }
    Ok(weights)
}

/// What embeddings that are stored as `stored` are multiplied by, where they are multiplied: their makers hold
/// the factor in the embedding's own type.
pub(super) fn embedding_scale(config: &ModelConfig, stored: Dtype) -> Option<f32> {
    let scale = (config.hidden as f32).sqrt();
    config.scales_embedding.then_some(match stored {
        Dtype::F32 => scale,
        Dtype::F16 => half::f16::from_f32(scale).to_f32(),
        Dtype::Bf16 => half::bf16::from_f32(scale).to_f32(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::checkpoint::config::Family;
    use crate::checkpoint::fused::fused;
    use crate::checkpoint::weights::MapWeights;
    use crate::checkpoint::{Synthetic, Unfused};
    use crate::decoder::tests_config;

    /// A source that notes which tensors it is to fetch, and which are read that it was not told of.
    struct Noting {
        weights: MapWeights,
        asked: Mutex<Vec<String>>,
        surprises: Mutex<Vec<String>>,
    }

    impl WeightSource for Noting {
        fn tensor(&self, name: &str) -> Result<RawTensor<'_>, CheckpointError> {
            if !self.asked.lock().unwrap().iter().any(|asked| asked == name) {
                self.surprises.lock().unwrap().push(name.to_owned());
            }
            self.weights.tensor(name)
        }

        fn layout(&self, name: &str) -> Result<(Dtype, Vec<usize>), CheckpointError> {
            self.weights.layout(name)
        }

        fn will_read(&self, name: &str) {
            self.asked.lock().unwrap().push(name.to_owned());
        }

        fn names(&self) -> Vec<String> {
            self.weights.names()
        }
    }

    #[test]
    fn a_layers_matrices_are_asked_for_while_the_one_before_is_loaded() {
        for family in Family::ALL {
            let Synthetic { config, .. } = &Synthetic::tiny(family, 1);
            let stored = fused(&Synthetic::tiny(family, 1).weights(), config).expect("complete");
            let (asked, surprises) = (Mutex::default(), Mutex::default());
            let source = Unfused::new(Noting { weights: stored, asked, surprises }, config);
            let noting = source.stored();
            let names = model_names(family);
            let head = if config.tied_head { &names.embedding } else { &names.head };
            let each = layer_names(config, 0).matrices().count();
            let done = layers(config, &source, head, |names| {
                names.matrices().try_for_each(|name| source.tensor(&weight(name)).map(drop))?;
                Ok::<usize, CheckpointError>(noting.asked.lock().unwrap().len())
            });
            let expected = (0..config.layers).map(|layer| match layer + 1 == config.layers {
                true => config.layers * each + 1,
                false => (layer + 2) * each,
            });
            assert_eq!(done.expect("all are there"), expected.collect::<Vec<_>>(), "{family:?}");
            assert!(noting.surprises.lock().unwrap().is_empty(), "{family:?}: {:?}", noting.surprises);
            let known = noting.names();
            assert!(noting.asked.lock().unwrap().iter().all(|name| known.contains(name)), "{family:?}");
        }
    }

    #[test]
    fn an_embeddings_factor_is_held_in_its_own_type() {
        let config = ModelConfig { hidden: 640, scales_embedding: true, ..tests_config() };
        let scale = |stored| embedding_scale(&config, stored).expect("it is scaled");
        assert_eq!((scale(Dtype::F32), scale(Dtype::Bf16)), (640f32.sqrt(), 25.25));
        assert_eq!(scale(Dtype::F16), 25.296_875);
        assert_eq!(embedding_scale(&tests_config(), Dtype::F32), None);
    }

    #[test]
    fn weights_that_are_stored_above_one_are_read_as_what_they_multiply() {
        let mut weights = MapWeights::default();
        weights.insert("n.weight", Dtype::Bf16, &[2], &[-0.25, 0.5]);
        for (norm_above_one, expected) in [(true, [0.75, 1.5]), (false, [-0.25, 0.5])] {
            let config = ModelConfig { norm_above_one, ..tests_config() };
            assert_eq!(norm_weights(&config, &weights, ("n", 2)).expect("it is there"), expected);
        }
    }
}
