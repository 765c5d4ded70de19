//! What a file of Gemma, Falcon or MPT says beyond what all do: the keys that llama.cpp reads of each.

use super::file::Gguf;
use super::keys::key;
use super::names::TWO_NORMS;
use crate::checkpoint::alibi;
use crate::checkpoint::config::{Family, LocalLayers, Mlp, ModelConfig, Norm, Position, Residual};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::read_gemma;

/// Layers of Gemma's 27B models, the second's and the third's, which alone divide their scores by the root of
/// what their width is of a head.
const GEMMA_27B_LAYERS: [usize; 2] = [46, 62];

/// Keys that change the arithmetic, and that a family's files have.
pub(super) fn own_keys(family: Family) -> &'static [&'static str] {
    match family {
        Family::Gemma2 => &["attn_logit_softcapping", "final_logit_softcapping"],
        Family::Mpt => &["attention.clamp_kqv", "attention.max_alibi_bias"],
        _ => &[],
    }
}

/// A model of `family`, from what it would be if it were Llama.
pub(super) fn of_family(gguf: &Gguf, llama: ModelConfig) -> Result<ModelConfig, CheckpointError> {
    match llama.family {
        Family::Gemma2 | Family::Gemma3 => gemma(gguf, llama),
        Family::Falcon => falcon(gguf, llama),
        Family::Mpt => mpt(gguf, llama),
        Family::Qwen3 => Ok(ModelConfig { qk_norm: true, ..llama }),
        Family::Llama | Family::Mistral | Family::Qwen2 | Family::Opt => Ok(llama),
    }
}

/// Gemma 2 and 3. Whoever writes the file has added 1 to the weights of its normalisations; no key says which
/// layers have a window, nor what base those of Gemma 3 have unless it is not everybody's.
fn gemma(gguf: &Gguf, llama: ModelConfig) -> Result<ModelConfig, CheckpointError> {
    let is_third = llama.family == Family::Gemma3;
    let width = match GEMMA_27B_LAYERS.contains(&llama.layers) {
        true => llama.hidden / llama.heads,
        false => llama.head_dim,
    };
    let theta = match (&llama.position, is_third) {
        (Position::Rotary { theta, .. }, false) => *theta,
        _ => gguf.positive(&key(gguf, "rope.freq_base_swa")?)?.unwrap_or(read_gemma::LOCAL_THETA),
    };
    let cap = |part: &str, default: f32| -> Result<Option<f32>, CheckpointError> {
        Ok(if is_third { None } else { Some(gguf.positive(&key(gguf, part)?)?.unwrap_or(default)) })
    };
    let pattern = if is_third { read_gemma::PATTERN } else { read_gemma::GEMMA2_PATTERN };
    let window = llama.sliding_window.or((!is_third).then_some(read_gemma::WINDOW));
    Ok(ModelConfig {
        post_norms: true,
        mlp: Mlp::GatedGelu,
        qk_norm: is_third,
        score_scale: Some(1.0 / (width as f32).sqrt()),
        score_cap: cap("attn_logit_softcapping", read_gemma::SCORE_CAP)?,
        scales_embedding: true,
        logit_cap: cap("final_logit_softcapping", read_gemma::LOGIT_CAP)?,
        sliding_window: window.filter(|window| *window < llama.context_max),
        local_layers: Some(LocalLayers { is_local: read_gemma::every(llama.layers, pattern), theta }),
        ..llama
    })
}

/// Mean and variance.
pub(super) fn layer_norm(gguf: &Gguf) -> Result<Norm, CheckpointError> {
    Ok(Norm::Layer { epsilon: gguf.need(&key(gguf, "attention.layer_norm_epsilon")?, Gguf::positive)? })
}

/// Falcon with rotary positions: there is no file of one with ALiBi.
fn falcon(gguf: &Gguf, llama: ModelConfig) -> Result<ModelConfig, CheckpointError> {
    Ok(ModelConfig {
        norm_bias: true,
        residual: Residual::Parallel { shares_norm: gguf.shape(TWO_NORMS).is_none() },
        mlp: Mlp::PlainGelu,
        qkv_bias: gguf.shape("blk.0.attn_qkv.bias").is_some(),
        ..llama
    })
}

/// MPT, of which there are files with learned positions too.
fn mpt(gguf: &Gguf, llama: ModelConfig) -> Result<ModelConfig, CheckpointError> {
    let field = key(gguf, "attention.max_alibi_bias")?;
    let reason = "is missing or 0: MPT without ALiBi is not supported";
    let number = |part: &str| -> Result<Option<f32>, CheckpointError> {
        let field = key(gguf, part)?;
        if gguf.is_zero(&field) { Ok(None) } else { gguf.positive(&field) }
    };
    let bias_max = number("attention.max_alibi_bias")?.ok_or_else(|| gguf.error(&field, reason))?;
    Ok(ModelConfig {
        norm_bias: gguf.shape("blk.0.attn_norm.bias").is_some(),
        position: Position::Alibi(alibi::exact(llama.heads, f64::from(bias_max))),
        mlp: Mlp::PlainGelu,
        qkv_bias: gguf.shape("blk.0.attn_qkv.bias").is_some(),
        qkv_clip: number("attention.clamp_kqv")?,
        ..llama
    })
}
