//! What each family calls its tensors. The only place that knows these names.
//!
//! A name here is a module's: the tensors are `{name}.weight` and, where the configuration says so,
//! `{name}.bias` ([`weight`], [`bias`]).

use crate::checkpoint::config::{Family, ModelConfig, Residual};

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
    /// The one module that a checkpoint has in place of the three, where it has one
    /// ([`super::fused`] takes it apart).
    pub qkv: Option<String>,
    /// The attention's output projection.
    pub o: String,
    /// Per-head normalisation of queries, used where `qk_norm`.
    pub q_norm: String,
    /// Per-head normalisation of keys, used where `qk_norm`.
    pub k_norm: String,
    /// Normalisation of what attention has computed, used where `post_norms`.
    pub attn_post_norm: String,
    /// Normalisation of the feed-forward block; that of attention where both share one.
    pub mlp_norm: String,
    /// Normalisation of what the feed-forward block has computed, used where `post_norms`.
    pub mlp_post_norm: String,
    /// The gate of a gated feed-forward block; `None` for a plain one.
    pub gate: Option<String>,
    /// The widening projection (OPT: `fc1`).
    pub up: String,
    /// The narrowing projection (OPT: `fc2`).
    pub down: String,
}

impl LayerNames {
    /// The modules that are matrices: nearly all of the layer's bytes.
    pub fn matrices(&self) -> impl Iterator<Item = &str> {
        let gate = self.gate.as_deref().into_iter();
        [&*self.q, &self.k, &self.v, &self.o].into_iter().chain(gate).chain([&*self.up, &self.down])
    }
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

/// TensorNames in layer `layer`, from 0.
pub fn layer_names(config: &ModelConfig, layer: usize) -> LayerNames {
    match config.family {
        Family::Llama | Family::Mistral | Family::Qwen2 | Family::Qwen3 => llama_names(layer),
        Family::Gemma2 | Family::Gemma3 => {
            let at = |part: &str| format!("model.layers.{layer}.{part}");
            LayerNames {
                attn_post_norm: at("post_attention_layernorm"),
                mlp_norm: at("pre_feedforward_layernorm"),
                mlp_post_norm: at("post_feedforward_layernorm"),
                ..llama_names(layer)
            }
        }
        Family::Opt => {
            let at = |part: &str| format!("model.decoder.layers.{layer}.{part}");
            LayerNames {
                attn_norm: at("self_attn_layer_norm"),
                o: at("self_attn.out_proj"),
                mlp_norm: at("final_layer_norm"),
                gate: None,
                up: at("fc1"),
                down: at("fc2"),
                ..parts_of(&at("self_attn"), None)
            }
        }
        Family::Mpt => {
            let at = |part: &str| format!("transformer.blocks.{layer}.{part}");
            LayerNames {
                attn_norm: at("norm_1"),
                o: at("attn.out_proj"),
                mlp_norm: at("norm_2"),
                gate: None,
                up: at("ffn.up_proj"),
                down: at("ffn.down_proj"),
                ..parts_of(&at("attn"), Some("Wqkv"))
            }
        }
        Family::Falcon => {
            let at = |part: &str| format!("transformer.h.{layer}.{part}");
            let (attn_norm, mlp_norm) = match config.residual {
                Residual::Sequential => ("input_layernorm", "post_attention_layernorm"),
                Residual::Parallel { shares_norm: true } => ("input_layernorm", "input_layernorm"),
                Residual::Parallel { shares_norm: false } => ("ln_attn", "ln_mlp"),
            };
            LayerNames {
                attn_norm: at(attn_norm),
                o: at("self_attention.dense"),
                mlp_norm: at(mlp_norm),
                gate: None,
                up: at("mlp.dense_h_to_4h"),
                down: at("mlp.dense_4h_to_h"),
                ..parts_of(&at("self_attention"), Some("query_key_value"))
            }
        }
    }
}

/// Llama's names, which most families have taken over.
fn llama_names(layer: usize) -> LayerNames {
    let at = |part: &str| format!("model.layers.{layer}.{part}");
    LayerNames {
        attn_norm: at("input_layernorm"),
        o: at("self_attn.o_proj"),
        mlp_norm: at("post_attention_layernorm"),
        gate: Some(at("mlp.gate_proj")),
        up: at("mlp.up_proj"),
        down: at("mlp.down_proj"),
        ..parts_of(&at("self_attn"), None)
    }
}

/// The modules of `attention` that read the stream; `fused`: the one in their place. All else is empty.
fn parts_of(attention: &str, fused: Option<&str>) -> LayerNames {
    let at = |part: &str| format!("{attention}.{part}");
    LayerNames {
        attn_norm: String::new(),
        q: at("q_proj"),
        k: at("k_proj"),
        v: at("v_proj"),
        qkv: fused.map(at),
        o: String::new(),
        q_norm: at("q_norm"),
        k_norm: at("k_norm"),
        attn_post_norm: String::new(),
        mlp_norm: String::new(),
        mlp_post_norm: String::new(),
        gate: None,
        up: String::new(),
        down: String::new(),
    }
}

/// TensorNames outside the layers.
pub fn model_names(family: Family) -> ModelNames {
    let (prefix, embedding, final_norm) = match family {
        Family::Llama | Family::Mistral | Family::Qwen2 | Family::Qwen3 | Family::Gemma2 | Family::Gemma3 => {
            ("model", "embed_tokens", "norm")
        }
        Family::Opt => ("model.decoder", "embed_tokens", "final_layer_norm"),
        Family::Mpt => ("transformer", "wte", "norm_f"),
        Family::Falcon => ("transformer", "word_embeddings", "ln_f"),
    };
    let at = |part: &str| format!("{prefix}.{part}");
    ModelNames {
        embedding: at(embedding),
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
    use crate::decoder::tests_config;

    fn names(family: Family, residual: Residual, layer: usize) -> LayerNames {
        layer_names(&ModelConfig { family, residual, ..tests_config() }, layer)
    }

    #[test]
    fn names_are_those_of_published_checkpoints() {
        let llama = names(Family::Llama, Residual::Sequential, 3);
        assert_eq!(weight(&llama.q), "model.layers.3.self_attn.q_proj.weight");
        assert_eq!(llama.gate.as_deref(), Some("model.layers.3.mlp.gate_proj"));
        let opt = names(Family::Opt, Residual::Sequential, 0);
        assert_eq!(bias(&opt.o), "model.decoder.layers.0.self_attn.out_proj.bias");
        assert_eq!((opt.gate, opt.up.as_str()), (None, "model.decoder.layers.0.fc1"));
        assert_eq!(weight(&model_names(Family::Opt).final_norm), "model.decoder.final_layer_norm.weight");
        assert_eq!(weight(&model_names(Family::Qwen3).final_norm), "model.norm.weight");
        let mpt = names(Family::Mpt, Residual::Sequential, 2);
        assert_eq!(mpt.qkv.as_deref(), Some("transformer.blocks.2.attn.Wqkv"));
        let gemma = names(Family::Gemma3, Residual::Sequential, 1);
        assert_eq!(gemma.attn_post_norm, "model.layers.1.post_attention_layernorm");
        assert_eq!(gemma.mlp_norm, "model.layers.1.pre_feedforward_layernorm");
    }

    #[test]
    fn falcons_norms_have_names_by_how_many_there_are() {
        for (residual, attn_norm, mlp_norm) in [
            (Residual::Sequential, "input_layernorm", "post_attention_layernorm"),
            (Residual::Parallel { shares_norm: true }, "input_layernorm", "input_layernorm"),
            (Residual::Parallel { shares_norm: false }, "ln_attn", "ln_mlp"),
        ] {
            let falcon = names(Family::Falcon, residual, 7);
            assert_eq!(falcon.qkv.as_deref(), Some("transformer.h.7.self_attention.query_key_value"));
            assert_eq!(falcon.attn_norm, format!("transformer.h.7.{attn_norm}"));
            assert_eq!(falcon.mlp_norm, format!("transformer.h.7.{mlp_norm}"));
        }
    }
}
