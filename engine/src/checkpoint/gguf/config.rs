//! A file's metadata to [`ModelConfig`].
//!
//! Whatever changes the arithmetic and is not supported is an error that names the key or the tensor, as in
//! config.json: a model that loads gives the answers its makers meant.

use super::families::{layer_norm, of_family, own_keys};
use super::file::Gguf;
use super::keys::key;
use super::names::{TWO_NORMS, TensorNames};
use super::values::MetaValue;
use crate::checkpoint::config::{Family, Mlp, ModelConfig, Norm, Position, Residual, RopeScaling};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::generation::GenerationDefaults;
use crate::checkpoint::read_gemma;

/// `general.architecture` and family. Mistral models call themselves llama.
const ARCHITECTURES: [(&str, Family); 7] = [
    ("llama", Family::Llama),
    ("qwen2", Family::Qwen2),
    ("qwen3", Family::Qwen3),
    ("gemma2", Family::Gemma2),
    ("gemma3", Family::Gemma3),
    ("falcon", Family::Falcon),
    ("mpt", Family::Mpt),
];

/// Keys behind the architecture's name that change the arithmetic in ways this engine does not know, but for
/// those that are a family's own. Zero and false say the same as absence.
const UNSUPPORTED: [&str; 10] = [
    "expert_count",
    "logit_scale",
    "embedding_scale",
    "residual_scale",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "attention.scale",
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "use_parallel_residual",
];

/// Base of the frequencies where no key gives it.
const THETA: f32 = 10_000.0;

/// Reads the shape of the model.
pub fn read_config(gguf: &Gguf) -> Result<ModelConfig, CheckpointError> {
    let family = family(gguf)?;
    refuse_unknown(gguf, family)?;
    let key = |part: &str| key(gguf, part);
    let hidden = gguf.need(&key("embedding_length")?, Gguf::extent)?;
    let heads = gguf.need(&key("attention.head_count")?, Gguf::extent)?;
    let kv_heads = gguf.extent(&key("attention.head_count_kv")?)?.unwrap_or(heads);
    if heads % kv_heads != 0 {
        let reason = format!("must divide attention.head_count ({heads}), found {kv_heads}");
        return Err(gguf.error(&key("attention.head_count_kv")?, reason));
    }
    let embedding = "token_embd.weight";
    let vocab = match gguf.shape(embedding) {
        Some([vocab @ 1..=0xff_ffff, _]) => *vocab,
        Some(shape) => return Err(gguf.error(embedding, format!("has shape {shape:?}, must be a matrix"))),
        None => return Err(CheckpointError::MissingTensor { name: embedding.to_owned() }),
    };
    let (position, context_max) = rotary(gguf, family)?;
    let window = match gguf.metadata(&key("attention.sliding_window")?) {
        Some(MetaValue::Unsigned(0)) => None,
        _ => gguf.extent(&key("attention.sliding_window")?)?,
    };
    let has = |name: &str| gguf.shape(name).is_some();
    let norm = match family {
        Family::Falcon | Family::Mpt => layer_norm(gguf)?,
        _ => Norm::Rms { epsilon: gguf.need(&key("attention.layer_norm_rms_epsilon")?, Gguf::positive)? },
    };
    let llama = ModelConfig {
        family,
        vocab,
        hidden,
        embedding: hidden,
        layers: gguf.need(&key("block_count")?, Gguf::extent)?,
        heads,
        kv_heads,
        head_dim: head_dim(gguf, hidden, heads)?,
        intermediate: gguf.need(&key("feed_forward_length")?, Gguf::extent)?,
        norm,
        norm_first: true,
        post_norms: false,
        norm_bias: false,
        norm_above_one: false, // the converter has added the 1
        final_norm: true,
        residual: Residual::Sequential,
        position,
        mlp: Mlp::GatedSilu,
        qkv_bias: has("blk.0.attn_q.bias"),
        out_bias: has("blk.0.attn_output.bias"),
        mlp_bias: has("blk.0.ffn_up.bias"),
        qkv_clip: None,
        qk_norm: false,
        score_scale: None,
        score_cap: None,
        scales_embedding: false,
        tied_head: !has("output.weight"),
        logit_cap: None,
        context_max,
        sliding_window: window.filter(|window| *window < context_max),
        local_layers: None,
    };
    of_family(gguf, llama)
}

/// How the makers of the model mean it to be sampled, where they say so.
pub fn read_defaults(gguf: &Gguf) -> Result<GenerationDefaults, CheckpointError> {
    let number = |name: &str| -> Result<Option<f32>, CheckpointError> {
        let key = format!("general.sampling.{name}");
        match gguf.metadata(&key) {
            Some(MetaValue::Float(0.0) | MetaValue::Signed(0) | MetaValue::Unsigned(0)) => Ok(Some(0.0)),
            Some(MetaValue::Signed(_) | MetaValue::Unsigned(_)) => {
                Ok(gguf.extent(&key)?.map(|number| number as f32))
            }
            _ => gguf.positive(&key),
        }
    };
    Ok(GenerationDefaults {
        temperature: number("temp")?,
        top_p: number("top_p")?.filter(|top_p| *top_p > 0.0 && *top_p < 1.0),
        top_k: number("top_k")?.filter(|top_k| *top_k >= 1.0).map(|top_k| top_k as u32), // 0 means all tokens
    })
}

/// Which family the file says it is.
fn family(gguf: &Gguf) -> Result<Family, CheckpointError> {
    let field = "general.architecture";
    let found = gguf.need(field, Gguf::text)?;
    match ARCHITECTURES.iter().find(|(name, _)| *name == found) {
        Some((_, family)) => Ok(*family),
        None => {
            let known = ARCHITECTURES.map(|(name, _)| name).join(", ");
            Err(gguf.error(field, format!("`{found}` is not supported; known are {known}")))
        }
    }
}

/// Refuses what would change the answers without being noticed.
fn refuse_unknown(gguf: &Gguf, family: Family) -> Result<(), CheckpointError> {
    for part in UNSUPPORTED.iter().filter(|part| !own_keys(family).contains(part)) {
        let key = key(gguf, part)?;
        if !gguf.is_zero(&key) {
            return Err(gguf.error(&key, "is not supported by this engine"));
        }
    }
    if gguf.extent("split.count")?.is_some_and(|count| count > 1) {
        let reason = "the model is split over several files, which is not supported: merge them";
        return Err(gguf.error("split.count", reason));
    }
    let names = TensorNames::of_family(family, gguf.shape(TWO_NORMS).is_some());
    match gguf.names().find(|name| name.starts_with("blk.") && names.hub_name(name).is_none()) {
        Some(name) => Err(gguf.error(name, "is a tensor that this engine does not know")),
        None => Ok(()),
    }
}

/// The width of a head: queries, keys and values alike, and all of it rotated.
fn head_dim(gguf: &Gguf, hidden: usize, heads: usize) -> Result<usize, CheckpointError> {
    let field = key(gguf, "attention.key_length")?;
    let head_dim = match gguf.extent(&field)? {
        Some(length) => length,
        None if hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            let reason = format!("must divide embedding_length ({hidden}), found {heads}");
            return Err(gguf.error(&key(gguf, "attention.head_count")?, reason));
        }
    };
    if head_dim % 2 != 0 {
        return Err(gguf.error(&field, format!("must be even to be rotated, found {head_dim}")));
    }
    for part in ["attention.value_length", "rope.dimension_count"] {
        let field = key(gguf, part)?;
        if let Some(other) = gguf.extent(&field)?.filter(|other| *other != head_dim) {
            let reason = format!("is {other}; only the width of a head, {head_dim}, is supported");
            return Err(gguf.error(&field, reason));
        }
    }
    Ok(head_dim)
}

/// Positions and the longest context they serve.
fn rotary(gguf: &Gguf, family: Family) -> Result<(Position, usize), CheckpointError> {
    let trained_context = gguf.need(&key(gguf, "context_length")?, Gguf::extent)?;
    let theta = gguf.positive(&key(gguf, "rope.freq_base")?)?.unwrap_or(match family {
        Family::Gemma3 => read_gemma::GLOBAL_THETA,
        _ => THETA,
    });
    let kind_key = key(gguf, "rope.scaling.type")?;
    let kind = gguf.text(&kind_key)?.unwrap_or("none");
    let is_stored = gguf.shape("rope_freqs.weight").is_some();
    let (scaling, context_max) = match kind {
        "none" if is_stored => (RopeScaling::Stored, trained_context),
        "none" => (RopeScaling::None, trained_context),
        "linear" if is_stored => {
            return Err(gguf.error(&kind_key, "`linear` beside `rope_freqs.weight` is not supported"));
        }
        // As in config.json: the context that is stated is the trained one, before positions are squeezed.
        "linear" => {
            let factor = gguf.need(&key(gguf, "rope.scaling.factor")?, Gguf::positive)?;
            // But for Gemma 3, whose own config.json states the whole.
            let squeezed = if family == Family::Gemma3 { 1.0 } else { factor };
            (RopeScaling::Linear { factor }, (trained_context as f32 * squeezed) as usize)
        }
        other => return Err(gguf.error(&kind_key, format!("`{other}` is not supported"))),
    };
    Ok((Position::Rotary { theta, scaling }, context_max.max(1)))
}
