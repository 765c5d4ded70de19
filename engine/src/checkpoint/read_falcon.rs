//! config.json of Falcon: one key-value head for all queries (7B), for some (40B, 180B, 11B) or for each (RW).

use serde_json::json;

use crate::checkpoint::alibi;
use crate::checkpoint::config::{Alibi, Family, Mlp, ModelConfig, Norm, Position, Residual};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::fields::{Fields, divided};
use crate::checkpoint::read_rope::{THETA, rotary};

/// The shape of the model.
pub(crate) fn falcon(fields: &Fields<'_>) -> Result<ModelConfig, CheckpointError> {
    fields.only("activation", &json!("gelu"))?;
    fields.only("apply_residual_connection_post_layernorm", &json!(false))?;
    let hidden = fields.need_extent("hidden_size")?;
    let layers = either(fields, ["num_hidden_layers", "n_layer"])?;
    let heads = either(fields, ["num_attention_heads", "n_head"])?;
    let head_dim = divided(fields, hidden, heads)?;
    let kv_heads = kv_heads(fields, heads)?;
    let bias = fields.flag("bias")?.unwrap_or(false);
    let trained_context = fields.extent("max_position_embeddings")?.unwrap_or(2_048);
    let (position, context_max) = match fields.flag("alibi")? {
        Some(true) => (Position::Alibi(alibi(heads, head_dim)), trained_context),
        _ if head_dim % 2 != 0 => {
            let reason = format!("heads of {head_dim} cannot be rotated: it must be even");
            return Err(fields.error("hidden_size", reason));
        }
        _ => rotary(fields, trained_context, THETA)?,
    };
    Ok(ModelConfig {
        family: Family::Falcon,
        vocab: fields.need_extent("vocab_size")?,
        hidden,
        embedding: hidden,
        layers,
        heads,
        kv_heads,
        head_dim,
        intermediate: fields.extent("ffn_hidden_size")?.unwrap_or(4 * hidden),
        norm: Norm::Layer { epsilon: fields.positive("layer_norm_epsilon")?.unwrap_or(1e-5) },
        norm_first: true,
        post_norms: false,
        norm_bias: true,
        norm_above_one: false,
        final_norm: true,
        residual: residual(fields)?,
        position,
        mlp: Mlp::PlainGelu,
        qkv_bias: bias,
        out_bias: bias,
        mlp_bias: bias,
        qkv_clip: None,
        qk_norm: false,
        score_scale: None,
        score_cap: None,
        scales_embedding: false,
        tied_head: fields.flag("tie_word_embeddings")?.unwrap_or(true),
        logit_cap: None,
        context_max,
        sliding_window: None,
        local_layers: None,
    })
}

/// A number that has gone by two names.
fn either(fields: &Fields<'_>, [name, old]: [&str; 2]) -> Result<usize, CheckpointError> {
    match fields.extent(name)?.or(fields.extent(old)?) {
        Some(number) => Ok(number),
        None => fields.need_extent(name),
    }
}

/// Whether layers are of the kind that 40B brought.
fn is_new(fields: &Fields<'_>) -> Result<bool, CheckpointError> {
    Ok(fields.flag("new_decoder_architecture")?.unwrap_or(false))
}

fn kv_heads(fields: &Fields<'_>, heads: usize) -> Result<usize, CheckpointError> {
    let stated = fields.extent("num_kv_heads")?;
    match (is_new(fields)?, fields.flag("multi_query")?.unwrap_or(true)) {
        (true, _) => match stated.unwrap_or(heads) {
            kv_heads if heads.is_multiple_of(kv_heads) => Ok(kv_heads),
            other => {
                let reason = format!("must divide num_attention_heads ({heads}), found {other}");
                Err(fields.error("num_kv_heads", reason))
            }
        },
        (false, true) => Ok(1),
        (false, false) => match stated {
            Some(other) if other != heads => {
                let reason = format!("is {other}; only {heads}, one for each query, is supported here");
                Err(fields.error("num_kv_heads", reason))
            }
            _ => Ok(heads),
        },
    }
}

/// How the two blocks of a layer stand to each other.
fn residual(fields: &Fields<'_>) -> Result<Residual, CheckpointError> {
    let is_parallel = fields.flag("parallel_attn")?.unwrap_or(true);
    match (is_new(fields)?, is_parallel) {
        (false, false) => Ok(Residual::Sequential),
        (false, true) => Ok(Residual::Parallel { shares_norm: true }),
        (true, false) => {
            let reason = "false is not supported beside `new_decoder_architecture`";
            Err(fields.error("parallel_attn", reason))
        }
        (true, true) => match fields.extent("num_ln_in_parallel_attn")?.unwrap_or(2) {
            norms @ 1..=2 => Ok(Residual::Parallel { shares_norm: norms == 1 }),
            other => Err(fields.error("num_ln_in_parallel_attn", format!("must be 1 or 2, found {other}"))),
        },
    }
}

/// Falcon divides its scores by the root of `head_dim` after it has added the bias to them. Slopes, positions
/// and what they give are bf16 in its own code, whatever its weights are: beyond 256 positions neighbours share
/// a bias.
fn alibi(heads: usize, head_dim: usize) -> Alibi {
    let slopes = alibi::slopes(heads, 8.0).into_iter();
    let slopes = slopes.map(|slope| half::bf16::from_f32(slope as f32).to_f32()).collect();
    Alibi { slopes, scale: 1.0 / (head_dim as f32).sqrt(), is_rounded: true }
}
