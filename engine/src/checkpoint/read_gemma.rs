//! config.json of Gemma 2 and 3: four normalisations a layer, most layers with a window.

use serde_json::{Value, json};

use crate::checkpoint::config::{
    Family, LocalLayers, Mlp, ModelConfig, Norm, Position, Residual, RopeScaling,
};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::fields::{CONFIG_FILE, Fields};
use crate::checkpoint::read_rope::rotary;

/// Base of Gemma 2's frequencies, and of the local layers' in Gemma 3, where no field gives it.
pub(crate) const LOCAL_THETA: f32 = 10_000.0;

/// Base of the global layers' frequencies in Gemma 3.
pub(crate) const GLOBAL_THETA: f32 = 1_000_000.0;

/// In Gemma 3, of so many layers the last is global.
pub(crate) const PATTERN: usize = 6;

/// The same in Gemma 2.
pub(crate) const GEMMA2_PATTERN: usize = 2;

/// Tokens that local layers see, where no field says how many.
pub(crate) const WINDOW: usize = 4_096;

/// Where Gemma 2 bends scores and logits, unless a field says otherwise.
pub(crate) const SCORE_CAP: f32 = 50.0;
pub(crate) const LOGIT_CAP: f32 = 30.0;

/// The shape of the model.
pub(crate) fn gemma(family: Family, fields: &Fields<'_>) -> Result<ModelConfig, CheckpointError> {
    let is_third = family == Family::Gemma3;
    for field in ["hidden_activation", "hidden_act"] {
        fields.only(field, &json!("gelu_pytorch_tanh"))?;
    }
    fields.only("use_bidirectional_attention", &json!(false))?;
    // What transformers has where a field is missing, which it leaves out of what it writes.
    let heads = fields.extent("num_attention_heads")?.unwrap_or(8);
    let vocab = match fields.extent("vocab_size")? {
        None if is_third => 262_208,
        Some(vocab) => vocab,
        None => fields.need_extent("vocab_size")?,
    };
    let head_dim = fields.extent("head_dim")?.unwrap_or(256);
    if head_dim % 2 != 0 {
        return Err(fields.error("head_dim", format!("must be even to be rotated, found {head_dim}")));
    }
    let layers = fields.need_extent("num_hidden_layers")?;
    let context_max =
        fields.extent("max_position_embeddings")?.unwrap_or(if is_third { 131_072 } else { 8_192 });
    let is_local = local_layers(family, fields, layers)?;
    let (position, local_theta) = rotations(family, fields)?;
    let attention_bias = fields.flag("attention_bias")?.unwrap_or(false);
    let window = fields.extent("sliding_window")?.unwrap_or(WINDOW);
    Ok(ModelConfig {
        family,
        vocab,
        hidden: fields.need_extent("hidden_size")?,
        embedding: fields.need_extent("hidden_size")?,
        layers,
        heads,
        kv_heads: fields.extent("num_key_value_heads")?.unwrap_or(4),
        head_dim,
        intermediate: fields.need_extent("intermediate_size")?,
        norm: Norm::Rms { epsilon: fields.positive("rms_norm_eps")?.unwrap_or(1e-6) },
        norm_first: true,
        post_norms: true,
        norm_bias: false,
        norm_above_one: true,
        final_norm: true,
        residual: Residual::Sequential,
        position,
        mlp: Mlp::GatedGelu,
        qkv_bias: attention_bias,
        out_bias: attention_bias,
        mlp_bias: false,
        qkv_clip: None,
        qk_norm: is_third,
        score_scale: Some(1.0 / fields.positive("query_pre_attn_scalar")?.unwrap_or(256.0).sqrt()),
        score_cap: cap(family, fields, "attn_logit_softcapping", SCORE_CAP)?,
        scales_embedding: true,
        tied_head: fields.flag("tie_word_embeddings")?.unwrap_or(true),
        logit_cap: cap(family, fields, "final_logit_softcapping", LOGIT_CAP)?,
        context_max,
        sliding_window: Some(window).filter(|window| *window < context_max),
        local_layers: Some(LocalLayers { is_local, theta: local_theta }),
    })
}

/// Where scores or logits are bent; null says nowhere, absence is Gemma 2's own number.
fn cap(
    family: Family,
    fields: &Fields<'_>,
    field: &str,
    default: f32,
) -> Result<Option<f32>, CheckpointError> {
    let is_absent = !fields.has(field);
    Ok(fields.positive(field)?.or((family == Family::Gemma2 && is_absent).then_some(default)))
}

/// Which layers have a window: as listed, or every layer but the last of each so many.
fn local_layers(family: Family, fields: &Fields<'_>, layers: usize) -> Result<Vec<bool>, CheckpointError> {
    let Some(kinds) = fields.get("layer_types") else {
        let default = if family == Family::Gemma3 { PATTERN } else { GEMMA2_PATTERN };
        let pattern = fields.extent("sliding_window_pattern")?.or(fields.extent("_sliding_window_pattern")?);
        return Ok(every(layers, pattern.unwrap_or(default)));
    };
    let kind = |kind: &Value| match kind.as_str() {
        Some("sliding_attention") => Ok(true),
        Some("full_attention") => Ok(false),
        _ => Err(fields.error("layer_types", format!("{kind} is not supported"))),
    };
    let kinds = kinds.as_array().map_or(&[][..], Vec::as_slice);
    if kinds.len() != layers {
        let reason = format!("must be a list of {layers} kinds, one for each layer");
        return Err(fields.error("layer_types", reason));
    }
    kinds.iter().map(kind).collect()
}

/// Local layers, but for the last of each `pattern`.
pub(crate) fn every(layers: usize, pattern: usize) -> Vec<bool> {
    (1..=layers).map(|number| !number.is_multiple_of(pattern)).collect()
}

/// Frequencies of the global layers, and the local layers' base. The context that is stated is the whole,
/// whatever the global layers' frequencies are divided by.
fn rotations(family: Family, fields: &Fields<'_>) -> Result<(Position, f32), CheckpointError> {
    let is_third = family == Family::Gemma3;
    let default_theta = if is_third { GLOBAL_THETA } else { LOCAL_THETA };
    // The newest form has an object for each kind of layer.
    let by_kind = fields.get("rope_parameters").filter(|value| value.get("full_attention").is_some());
    if let Some(value) = by_kind {
        let global = json!({ "rope_parameters": value["full_attention"] });
        let global = Fields::of(CONFIG_FILE, "rope_parameters.full_attention.", &global);
        let local =
            Fields::of(CONFIG_FILE, "rope_parameters.sliding_attention.", &value["sliding_attention"]);
        let (Some(global), Some(local)) = (global, local) else {
            return Err(fields.error("rope_parameters", "must have an object for each kind of layer"));
        };
        local.only("rope_type", &json!("default"))?;
        return Ok((rotary(&global, 1, default_theta)?.0, local.need_positive("rope_theta")?));
    }
    let position = rotary(fields, 1, default_theta)?.0;
    let local = match &position {
        Position::Rotary { theta, scaling: RopeScaling::None } if !is_third => *theta,
        _ if !is_third => return Err(fields.error("rope_scaling", "is not supported in Gemma 2")),
        _ => fields.positive("rope_local_base_freq")?.unwrap_or(LOCAL_THETA),
    };
    Ok((position, local))
}
