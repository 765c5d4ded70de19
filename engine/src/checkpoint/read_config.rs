//! config.json to [`ModelConfig`], for the families this engine runs.
//!
//! Whatever changes the arithmetic and is not supported is an error that names the field: a model
//! that loads gives the answers its makers meant.

use serde_json::Value;

use crate::checkpoint::config::{Family, Mlp, ModelConfig, Norm, Position, Residual};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::fields::{CONFIG_FILE, Fields, divided, parse_object};
use crate::checkpoint::packed::PackedForm;
use crate::checkpoint::read_falcon::falcon;
use crate::checkpoint::read_gemma::gemma;
use crate::checkpoint::read_mpt::mpt;
use crate::checkpoint::read_rope::{THETA, rotary};

/// `architectures` entry, `model_type` and family.
const ARCHITECTURES: [(&str, &str, Family); 11] = [
    ("LlamaForCausalLM", "llama", Family::Llama),
    ("MistralForCausalLM", "mistral", Family::Mistral),
    ("Qwen2ForCausalLM", "qwen2", Family::Qwen2),
    ("Qwen3ForCausalLM", "qwen3", Family::Qwen3),
    ("OPTForCausalLM", "opt", Family::Opt),
    ("MptForCausalLM", "mpt", Family::Mpt),
    ("MPTForCausalLM", "mpt", Family::Mpt), // as MosaicML's own files have it
    ("FalconForCausalLM", "falcon", Family::Falcon),
    ("Gemma2ForCausalLM", "gemma2", Family::Gemma2),
    ("Gemma3ForCausalLM", "gemma3_text", Family::Gemma3),
    ("Gemma3ForConditionalGeneration", "gemma3", Family::Gemma3), // its text model
];

/// Fields that change the arithmetic in ways this engine does not know.
const UNSUPPORTED: [&str; 3] = ["num_experts", "num_local_experts", "n_routed_experts"];

/// Reads the text of a config.json.
pub fn read_config(text: &str) -> Result<ModelConfig, CheckpointError> {
    let value = parse_object(CONFIG_FILE, text)?;
    let outer = Fields::of(CONFIG_FILE, "", &value).expect("parse_object gives an object");
    let family = family(&outer)?;
    let unsupported = |fields: &Fields<'_>, field| fields.error(field, "is not supported by this engine");
    // Where a model sees images too, its text model has an object of its own.
    let fields = match (family, outer.get("text_config")) {
        (_, None) => outer,
        (Family::Gemma3, Some(inner)) => Fields::of(CONFIG_FILE, "text_config.", inner)
            .ok_or_else(|| outer.error("text_config", "must be an object"))?,
        (_, Some(_)) => return Err(unsupported(&outer, "text_config")),
    };
    PackedForm::of(&outer)?;
    if outer.get("text_config").is_some() && fields.get("quantization_config").is_some() {
        return Err(unsupported(&fields, "quantization_config"));
    }
    for field in UNSUPPORTED {
        if let Some(fields) = [&outer, &fields].into_iter().find(|fields| fields.get(field).is_some()) {
            return Err(unsupported(fields, field));
        }
    }
    let config = match family {
        Family::Opt => opt(&fields)?,
        Family::Mpt => mpt(&fields)?,
        Family::Falcon => falcon(&fields)?,
        Family::Gemma2 | Family::Gemma3 => gemma(family, &fields)?,
        Family::Llama | Family::Mistral | Family::Qwen2 | Family::Qwen3 => rotary_family(family, &fields)?,
    };
    if config.heads % config.kv_heads != 0 {
        return Err(fields
            .error("num_key_value_heads", format!("must divide num_attention_heads ({})", config.heads)));
    }
    Ok(config)
}

/// Which family the file says it is.
fn family(fields: &Fields<'_>) -> Result<Family, CheckpointError> {
    let known = || ARCHITECTURES.map(|(architecture, ..)| architecture).join(", ");
    if let Some(value) = fields.get("architectures") {
        let named: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let found = ARCHITECTURES.iter().find(|(architecture, ..)| named.contains(architecture));
        return match found {
            Some((.., family)) => Ok(*family),
            None => {
                Err(fields.error("architectures", format!("{value} is not supported; known are {}", known())))
            }
        };
    }
    let model_type = fields.text("model_type")?;
    match ARCHITECTURES.iter().find(|(_, name, _)| Some(*name) == model_type) {
        Some((.., family)) => Ok(*family),
        None => Err(fields.error("architectures", format!("is missing; known are {}", known()))),
    }
}

/// Llama, Mistral, Qwen2 and Qwen3: rotary positions, RMS norms, a gated feed-forward block.
fn rotary_family(family: Family, fields: &Fields<'_>) -> Result<ModelConfig, CheckpointError> {
    let activation = fields.text("hidden_act")?.unwrap_or("silu");
    if !matches!(activation, "silu" | "swish") {
        return Err(fields.error("hidden_act", format!("`{activation}` is not supported, only `silu`")));
    }
    let hidden = fields.need_extent("hidden_size")?;
    let heads = fields.need_extent("num_attention_heads")?;
    let head_dim = match (fields.extent("head_dim")?, family) {
        (Some(head_dim), _) => head_dim,
        (None, Family::Qwen3) => 128,
        (None, _) => divided(fields, hidden, heads)?,
    };
    if head_dim % 2 != 0 {
        return Err(fields.error("head_dim", format!("must be even to be rotated, found {head_dim}")));
    }
    let attention_bias = fields.flag("attention_bias")?.unwrap_or(false);
    let (qkv_bias, out_bias) = match family {
        Family::Llama | Family::Qwen3 => (attention_bias, attention_bias),
        Family::Qwen2 => (true, false),
        _ => (false, false),
    };
    let layers = fields.need_extent("num_hidden_layers")?;
    let trained_context = fields.extent("max_position_embeddings")?.unwrap_or(match family {
        Family::Qwen2 | Family::Qwen3 => 32_768,
        Family::Mistral => 131_072,
        _ => 2_048,
    });
    let (position, context_max) = rotary(fields, trained_context, THETA)?;
    Ok(ModelConfig {
        family,
        vocab: fields.need_extent("vocab_size")?,
        hidden,
        embedding: hidden,
        layers,
        heads,
        kv_heads: fields.extent("num_key_value_heads")?.unwrap_or(heads),
        head_dim,
        intermediate: fields.need_extent("intermediate_size")?,
        norm: Norm::Rms { epsilon: fields.positive("rms_norm_eps")?.unwrap_or(1e-6) },
        norm_first: true,
        post_norms: false,
        norm_bias: false,
        norm_above_one: false,
        final_norm: true,
        residual: Residual::Sequential,
        position,
        mlp: Mlp::GatedSilu,
        qkv_bias,
        out_bias,
        mlp_bias: family == Family::Llama && fields.flag("mlp_bias")?.unwrap_or(false),
        qkv_clip: None,
        qk_norm: family == Family::Qwen3,
        score_scale: None,
        score_cap: None,
        scales_embedding: false,
        tied_head: fields.flag("tie_word_embeddings")?.unwrap_or(false),
        logit_cap: None,
        context_max,
        sliding_window: sliding_window(family, fields, layers)?.filter(|window| *window < context_max),
        local_layers: None,
    })
}

/// The window that limits attention in every layer; windows in some layers only are an error.
fn sliding_window(
    family: Family,
    fields: &Fields<'_>,
    layers: usize,
) -> Result<Option<usize>, CheckpointError> {
    let window = fields.extent("sliding_window")?;
    if let Some(kinds) = fields.get("layer_types").and_then(Value::as_array) {
        let count = |kind: &str| kinds.iter().filter(|value| value.as_str() == Some(kind)).count();
        return match (count("full_attention"), count("sliding_attention")) {
            (full, 0) if full == kinds.len() => Ok(None),
            (0, sliding) if sliding == kinds.len() => Ok(window),
            _ => Err(fields.error("layer_types", "layers that differ in kind are not supported")),
        };
    }
    match family {
        Family::Mistral => Ok(window),
        Family::Qwen2 | Family::Qwen3 if !fields.flag("use_sliding_window")?.unwrap_or(false) => Ok(None),
        // The first `max_window_layers` layers see everything.
        Family::Qwen2 | Family::Qwen3 => match fields.get("max_window_layers").map(Value::as_u64) {
            Some(Some(0)) => Ok(window),
            Some(Some(full)) if full >= layers as u64 => Ok(None),
            _ => Err(fields.error("max_window_layers", "a window in some layers only is not supported")),
        },
        _ => Ok(None),
    }
}

/// OPT: learned positions, layer norms, a plain feed-forward block, biases.
fn opt(fields: &Fields<'_>) -> Result<ModelConfig, CheckpointError> {
    let activation = fields.text("activation_function")?.unwrap_or("relu");
    if activation != "relu" {
        return Err(
            fields.error("activation_function", format!("`{activation}` is not supported, only `relu`"))
        );
    }
    if fields.flag("layer_norm_elementwise_affine")? == Some(false) {
        return Err(fields.error("layer_norm_elementwise_affine", "false is not supported"));
    }
    let hidden = fields.need_extent("hidden_size")?;
    let heads = fields.need_extent("num_attention_heads")?;
    let bias = fields.flag("enable_bias")?.unwrap_or(true);
    let norm_first = fields.flag("do_layer_norm_before")?.unwrap_or(true);
    let final_norm_removed = fields.flag("_remove_final_layer_norm")?.unwrap_or(false);
    Ok(ModelConfig {
        family: Family::Opt,
        vocab: fields.need_extent("vocab_size")?,
        hidden,
        embedding: fields.extent("word_embed_proj_dim")?.unwrap_or(hidden),
        layers: fields.need_extent("num_hidden_layers")?,
        heads,
        kv_heads: heads,
        head_dim: divided(fields, hidden, heads)?,
        intermediate: fields.need_extent("ffn_dim")?,
        norm: Norm::Layer { epsilon: 1e-5 },
        norm_first,
        post_norms: false,
        norm_bias: true,
        norm_above_one: false,
        final_norm: norm_first && !final_norm_removed,
        residual: Residual::Sequential,
        position: Position::Learned { offset: 2 },
        mlp: Mlp::PlainRelu,
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
        context_max: fields.extent("max_position_embeddings")?.unwrap_or(2_048),
        sliding_window: None,
        local_layers: None,
    })
}
