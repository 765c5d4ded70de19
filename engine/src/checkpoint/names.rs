//! What each family calls its tensors. The only place that knows these names.
//!
//! A name here is a module's: the tensors are `{name}.weight` and, where the configuration says so,
//! `{name}.bias` ([`weight`], [`bias`]).

use crate::checkpoint::config::Family;

/// The weight tensor of a module.
pub fn weight(module: &str) -> String {
    format!("{module}.weight")
}

/// The bias tensor of a module.
pub fn bias(module: &str) -> String {
    format!("{module}.bias")
}

/// Modules of one decoder layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerNames {
    /// Normalisation of the attention block.
    pub attn_norm: String,
    /// Query projection.
    pub q: String,
    /// Key projection.
    pub k: String,
    /// Value projection.
    pub v: String,
    /// The attention's output projection.
    pub o: String,
    /// Per-head normalisation of queries, used where `qk_norm`.
    pub q_norm: String,
    /// Per-head normalisation of keys, used where `qk_norm`.
    pub k_norm: String,
    /// Normalisation of the feed-forward block.
    pub mlp_norm: String,
    /// The gate of a gated feed-forward block; `None` for a plain one.
    pub gate: Option<String>,
    /// The widening projection (OPT: `fc1`).
    pub up: String,
    /// The narrowing projection (OPT: `fc2`).
    pub down: String,
}

/// Modules outside the layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelNames {
    /// Token embedding.
    pub embedding: String,
    /// Learned positions, where there are any.
    pub positions: String,
    /// Divisors of the rotary frequencies, where they are stored.
    pub rope_factors: String,
    /// Last normalisation, where there is one.
    pub final_norm: String,
    /// The head; where it is tied, the embedding's tensor is used instead.
    pub head: String,
    /// From embedding width to hidden width, where they differ (OPT-350m); no bias.
    pub project_in: String,
    /// From hidden width to embedding width, where they differ; no bias.
    pub project_out: String,
}

/// Names in layer `layer`, from 0.
pub fn layer_names(family: Family, layer: usize) -> LayerNames {
    match family {
        Family::Llama | Family::Mistral | Family::Qwen2 | Family::Qwen3 => {
            let at = |part: &str| format!("model.layers.{layer}.{part}");
            LayerNames {
                attn_norm: at("input_layernorm"),
                q: at("self_attn.q_proj"),
                k: at("self_attn.k_proj"),
                v: at("self_attn.v_proj"),
                o: at("self_attn.o_proj"),
                q_norm: at("self_attn.q_norm"),
                k_norm: at("self_attn.k_norm"),
                mlp_norm: at("post_attention_layernorm"),
                gate: Some(at("mlp.gate_proj")),
                up: at("mlp.up_proj"),
                down: at("mlp.down_proj"),
            }
        }
        Family::Opt => {
            let at = |part: &str| format!("model.decoder.layers.{layer}.{part}");
            LayerNames {
                attn_norm: at("self_attn_layer_norm"),
                q: at("self_attn.q_proj"),
                k: at("self_attn.k_proj"),
                v: at("self_attn.v_proj"),
                o: at("self_attn.out_proj"),
                q_norm: at("self_attn.q_norm"),
                k_norm: at("self_attn.k_norm"),
                mlp_norm: at("final_layer_norm"),
                gate: None,
                up: at("fc1"),
                down: at("fc2"),
            }
        }
    }
}

/// Names outside the layers.
pub fn model_names(family: Family) -> ModelNames {
    let (prefix, final_norm) = match family {
        Family::Llama | Family::Mistral | Family::Qwen2 | Family::Qwen3 => ("model", "norm"),
        Family::Opt => ("model.decoder", "final_layer_norm"),
    };
    let at = |part: &str| format!("{prefix}.{part}");
    ModelNames {
        embedding: at("embed_tokens"),
        positions: at("embed_positions"),
        rope_factors: at("rope_freqs"),
        final_norm: at(final_norm),
        head: "lm_head".to_owned(),
        project_in: at("project_in"),
        project_out: at("project_out"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_published_checkpoints() {
        let llama = layer_names(Family::Llama, 3);
        assert_eq!(weight(&llama.q), "model.layers.3.self_attn.q_proj.weight");
        assert_eq!(llama.gate.as_deref(), Some("model.layers.3.mlp.gate_proj"));
        let opt = layer_names(Family::Opt, 0);
        assert_eq!(bias(&opt.o), "model.decoder.layers.0.self_attn.out_proj.bias");
        assert_eq!((opt.gate, opt.up.as_str()), (None, "model.decoder.layers.0.fc1"));
        assert_eq!(weight(&model_names(Family::Opt).final_norm), "model.decoder.final_layer_norm.weight");
        assert_eq!(weight(&model_names(Family::Qwen3).final_norm), "model.norm.weight");
    }
}
