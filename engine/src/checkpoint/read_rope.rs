//! The rotary fields of config.json, in their old form (`rope_theta`, `rope_scaling`) and their new
//! one (`rope_parameters`).

use crate::checkpoint::config::{Position, RopeScaling};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::fields::{CONFIG_FILE, Fields};

/// Base of most families' frequencies where no field gives it.
pub(crate) const THETA: f32 = 10_000.0;

/// Positions and the longest context they serve.
pub(crate) fn rotary(
    fields: &Fields<'_>,
    trained_context: usize,
    default_theta: f32,
) -> Result<(Position, usize), CheckpointError> {
    let outer_theta = fields.positive("rope_theta")?;
    if fields.positive("partial_rotary_factor")?.is_some_and(|factor| factor != 1.0) {
        return Err(fields.error("partial_rotary_factor", "only 1 is supported"));
    }
    let (name, path) = match fields.get("rope_parameters") {
        Some(_) => ("rope_parameters", "rope_parameters."),
        None => ("rope_scaling", "rope_scaling."),
    };
    let Some(value) = fields.get(name) else {
        let position =
            Position::Rotary { theta: outer_theta.unwrap_or(default_theta), scaling: RopeScaling::None };
        return Ok((position, trained_context));
    };
    let inner =
        Fields::of(CONFIG_FILE, path, value).ok_or_else(|| fields.error(name, "must be an object"))?;
    let theta = inner.positive("rope_theta")?.or(outer_theta).unwrap_or(default_theta);
    let kind = inner.text("rope_type")?.or(inner.text("type")?);
    let kind = kind.ok_or_else(|| inner.error("rope_type", "is missing"))?;
    let (scaling, context_max) = match kind {
        "default" => (RopeScaling::None, trained_context),
        // Chen et al. 2023 (arXiv 2306.15595): positions squeezed by `factor` make the context that
        // much longer than the trained one, which max_position_embeddings still states.
        "linear" => {
            let factor = inner.need_positive("factor")?;
            (RopeScaling::Linear { factor }, (trained_context as f32 * factor) as usize)
        }
        "llama3" => (llama3(&inner)?, trained_context),
        other => return Err(inner.error("rope_type", format!("`{other}` is not supported"))),
    };
    Ok((Position::Rotary { theta, scaling }, context_max.max(1)))
}

/// Llama 3.1's scaling.
fn llama3(fields: &Fields<'_>) -> Result<RopeScaling, CheckpointError> {
    let low_freq_factor = fields.need_positive("low_freq_factor")?;
    let high_freq_factor = fields.need_positive("high_freq_factor")?;
    if high_freq_factor <= low_freq_factor {
        return Err(fields.error("high_freq_factor", "must be greater than low_freq_factor"));
    }
    Ok(RopeScaling::Llama3 {
        factor: fields.need_positive("factor")?,
        low_freq_factor,
        high_freq_factor,
        original_context: fields.need_extent("original_max_position_embeddings")? as u32,
    })
}
