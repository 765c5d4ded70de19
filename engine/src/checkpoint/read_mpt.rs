//! config.json of MPT: ALiBi, normalisations without biases, nothing else with one.

use serde_json::{Value, json};

use crate::checkpoint::alibi;
use crate::checkpoint::config::{Alibi, Family, Mlp, ModelConfig, Norm, Position, Residual};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::fields::{CONFIG_FILE, Fields};

/// The names of normalisations that differ in the precision they are computed in, and in no more.
const NORMS: [&str; 2] = ["low_precision_layernorm", "layernorm"];

/// The shape of the model.
pub(crate) fn mpt(fields: &Fields<'_>) -> Result<ModelConfig, CheckpointError> {
    fields.only("no_bias", &json!(true))?;
    if fields.get("logit_scale").is_some() {
        return Err(fields.error("logit_scale", "is not supported by this engine"));
    }
    if let Some(kind) = fields.get("ffn_config").and_then(|config| config.get("ffn_type")) {
        let kinds = Value::from("mptmlp");
        if *kind != kinds {
            return Err(fields.error("ffn_config.ffn_type", format!("{kind} is not supported, only {kinds}")));
        }
    }
    if let Some(norm) = fields.text("norm_type")?.filter(|norm| !NORMS.contains(norm)) {
        return Err(fields.error("norm_type", format!("`{norm}` is not supported, only `layernorm`")));
    }
    let hidden = fields.need_extent("d_model")?;
    let heads = fields.need_extent("n_heads")?;
    if !hidden.is_multiple_of(heads) {
        return Err(fields.error("n_heads", format!("must divide d_model ({hidden}), found {heads}")));
    }
    let expansion = fields.extent("expansion_ratio")?.unwrap_or(4);
    let attention = AttentionFields::read(fields, heads)?;
    Ok(ModelConfig {
        family: Family::Mpt,
        vocab: fields.need_extent("vocab_size")?,
        hidden,
        embedding: hidden,
        layers: fields.need_extent("n_layers")?,
        heads,
        kv_heads: heads,
        head_dim: hidden / heads,
        intermediate: hidden * expansion,
        norm: Norm::Layer { epsilon: fields.positive("layer_norm_epsilon")?.unwrap_or(1e-5) },
        norm_first: true,
        post_norms: false,
        norm_bias: false,
        norm_above_one: false,
        final_norm: true,
        residual: Residual::Sequential,
        position: Position::Alibi(attention.alibi),
        mlp: Mlp::PlainGelu,
        qkv_bias: false,
        out_bias: false,
        mlp_bias: false,
        qkv_clip: attention.clip,
        qk_norm: false,
        score_scale: attention.scale,
        score_cap: None,
        scales_embedding: false,
        tied_head: fields.flag("tie_word_embeddings")?.unwrap_or(true),
        logit_cap: None,
        context_max: fields.extent("max_seq_len")?.unwrap_or(2_048),
        sliding_window: None,
        local_layers: None,
    })
}

/// What `attn_config` says.
struct AttentionFields {
    alibi: Alibi,
    scale: Option<f32>,
    clip: Option<f32>,
}

impl AttentionFields {
    fn read(fields: &Fields<'_>, heads: usize) -> Result<Self, CheckpointError> {
        let value = fields.get("attn_config").cloned().unwrap_or_else(|| json!({}));
        let inner = Fields::of(CONFIG_FILE, "attn_config.", &value)
            .ok_or_else(|| fields.error("attn_config", "must be an object"))?;
        inner.only("attn_type", &json!("multihead_attention"))?;
        inner.only("alibi", &json!(true))?;
        for field in ["qk_ln", "qk_gn", "prefix_lm", "rope"] {
            inner.only(field, &json!(false))?;
        }
        if let Some(window) = inner.get("sliding_window_size").filter(|window| **window != json!(-1)) {
            return Err(inner.error("sliding_window_size", format!("{window} is not supported, only -1")));
        }
        let bias_max = inner.positive("alibi_bias_max")?.unwrap_or(8.0);
        Ok(Self {
            alibi: alibi::exact(heads, f64::from(bias_max)),
            scale: inner.positive("softmax_scale")?,
            clip: inner.positive("clip_qkv")?,
        })
    }
}
