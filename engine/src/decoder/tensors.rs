//! What loaders of all devices read of a checkpoint in the same way.

use crate::checkpoint::config::{Position, RopeScaling};
use crate::checkpoint::names::{model_names, weight};
use crate::checkpoint::{CheckpointError, ModelConfig, RawTensor, WeightSource};
use crate::rope::Rope;

/// The tensor called `name`, which must have this shape.
pub(super) fn checked<'a>(
    source: &'a dyn WeightSource,
    name: &str,
    shape: &[usize],
) -> Result<RawTensor<'a>, CheckpointError> {
    let tensor = source.tensor(name)?;
    if tensor.shape != shape {
        return Err(CheckpointError::WrongShape {
            name: name.to_owned(),
            found: tensor.shape,
            expected: shape.to_vec(),
        });
    }
    Ok(tensor)
}

/// The model's rotary frequencies, where it has any.
pub(super) fn rotary(
    config: &ModelConfig,
    source: &dyn WeightSource,
) -> Result<Option<Rope>, CheckpointError> {
    let Position::Rotary { theta, scaling } = config.position else { return Ok(None) };
    let mut rope = Rope::new(config.head_dim, theta, scaling);
    if scaling == RopeScaling::Stored {
        let name = weight(&model_names(config.family).rope_factors);
        rope.divide(&checked(source, &name, &[config.head_dim / 2])?.to_f32());
    }
    Ok(Some(rope))
}
