//! What modules are called in Hugging Face checkpoints ("here") and in GGUF files.

use crate::checkpoint::config::{Family, ModelConfig, Residual};

/// TensorNames here and in GGUF.
type Pairs = &'static [(&'static str, &'static str)];

/// Modules outside the layers.
const MODEL: Pairs = &[
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
    ("model.rope_freqs", "rope_freqs"),
];

/// Modules of a layer.
const LAYER: Pairs = &[
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// The same of Gemma, whose layers have two normalisations more, and whose feed-forward block's goes by another
/// name here.
const GEMMA_LAYER: Pairs = &[
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

const MPT: Pairs =
    &[("transformer.wte", "token_embd"), ("transformer.norm_f", "output_norm"), ("lm_head", "output")];

const MPT_LAYER: Pairs = &[
    ("norm_1", "attn_norm"),
    ("attn.Wqkv", "attn_qkv"),
    ("attn.out_proj", "attn_output"),
    ("norm_2", "ffn_norm"),
    ("ffn.up_proj", "ffn_up"),
    ("ffn.down_proj", "ffn_down"),
];

const FALCON: Pairs = &[
    ("transformer.word_embeddings", "token_embd"),
    ("transformer.ln_f", "output_norm"),
    ("lm_head", "output"),
];

const FALCON_LAYER: Pairs = &[
    ("input_layernorm", "attn_norm"),
    ("self_attention.query_key_value", "attn_qkv"),
    ("self_attention.dense", "attn_output"),
    ("mlp.dense_h_to_4h", "ffn_up"),
    ("mlp.dense_4h_to_h", "ffn_down"),
];

/// The same of Falcons whose two blocks have a normalisation each: in GGUF the feed-forward block's has the name
/// that is attention's elsewhere.
const FALCON_TWO_NORMS_LAYER: Pairs = &[
    ("ln_mlp", "attn_norm"),
    ("ln_attn", "attn_norm_2"),
    ("self_attention.query_key_value", "attn_qkv"),
    ("self_attention.dense", "attn_output"),
    ("mlp.dense_h_to_4h", "ffn_up"),
    ("mlp.dense_4h_to_h", "ffn_down"),
];

/// A tensor that Falcons have whose two blocks have a normalisation each.
pub(super) const TWO_NORMS: &str = "blk.0.attn_norm_2.weight";

/// The names of one model.
#[derive(Clone, Copy, Debug)]
pub(super) struct TensorNames {
    model: Pairs,
    /// What stands before a layer's number here.
    layers: &'static str,
    layer: Pairs,
}

impl TensorNames {
    /// Those of a family. `has_two_norms`: whether the blocks of Falcon's layers have a normalisation each.
    pub(super) fn of_family(family: Family, has_two_norms: bool) -> Self {
        let (model, layers, layer) = match family {
            Family::Gemma2 | Family::Gemma3 => (MODEL, "model.layers.", GEMMA_LAYER),
            Family::Mpt => (MPT, "transformer.blocks.", MPT_LAYER),
            Family::Falcon if has_two_norms => (FALCON, "transformer.h.", FALCON_TWO_NORMS_LAYER),
            Family::Falcon => (FALCON, "transformer.h.", FALCON_LAYER),
            Family::Llama | Family::Mistral | Family::Qwen2 | Family::Qwen3 | Family::Opt => {
                (MODEL, "model.layers.", LAYER)
            }
        };
        Self { model, layers, layer }
    }

    /// Those of a model.
    pub(super) fn of(config: &ModelConfig) -> Self {
        Self::of_family(config.family, config.residual == Residual::Parallel { shares_norm: false })
    }

    /// The GGUF name of a tensor, from its name here.
    pub(super) fn to_gguf(self, name: &str) -> Option<String> {
        let (module, kind) = name.rsplit_once('.')?;
        if let Some((_, theirs)) = self.model.iter().find(|(ours, _)| *ours == module) {
            return Some(format!("{theirs}.{kind}"));
        }
        let (layer, part) = module.strip_prefix(self.layers)?.split_once('.')?;
        let (_, theirs) = self.layer.iter().find(|(ours, _)| *ours == part)?;
        Some(format!("blk.{layer}.{theirs}.{kind}"))
    }

    /// A tensor's name here, from its GGUF name.
    pub(super) fn hub_name(self, name: &str) -> Option<String> {
        let (module, kind) = name.rsplit_once('.')?;
        if let Some((ours, _)) = self.model.iter().find(|(_, theirs)| *theirs == module) {
            return Some(format!("{ours}.{kind}"));
        }
        let (layer, part) = module.strip_prefix("blk.")?.split_once('.')?;
        let (ours, _) = self.layer.iter().find(|(_, theirs)| *theirs == part)?;
        Some(format!("{}{layer}.{ours}.{kind}", self.layers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_goes_to_gguf_and_back() {
        let of = |family| TensorNames::of_family(family, false);
        let (llama, gemma, mpt, falcon) =
            (of(Family::Llama), of(Family::Gemma3), of(Family::Mpt), of(Family::Falcon));
        let two_norms = TensorNames::of_family(Family::Falcon, true);
        for (names, ours, theirs) in [
            (llama, "model.embed_tokens.weight", "token_embd.weight"),
            (llama, "lm_head.weight", "output.weight"),
            (llama, "model.norm.weight", "output_norm.weight"),
            (llama, "model.layers.17.self_attn.k_proj.bias", "blk.17.attn_k.bias"),
            (llama, "model.layers.0.self_attn.q_norm.weight", "blk.0.attn_q_norm.weight"),
            (llama, "model.layers.3.mlp.down_proj.weight", "blk.3.ffn_down.weight"),
            (llama, "model.layers.3.post_attention_layernorm.weight", "blk.3.ffn_norm.weight"),
            (gemma, "model.layers.3.post_attention_layernorm.weight", "blk.3.post_attention_norm.weight"),
            (gemma, "model.layers.3.pre_feedforward_layernorm.weight", "blk.3.ffn_norm.weight"),
            (gemma, "model.layers.3.post_feedforward_layernorm.weight", "blk.3.post_ffw_norm.weight"),
            (gemma, "model.layers.0.input_layernorm.weight", "blk.0.attn_norm.weight"),
            (mpt, "transformer.wte.weight", "token_embd.weight"),
            (mpt, "transformer.blocks.2.attn.Wqkv.weight", "blk.2.attn_qkv.weight"),
            (falcon, "transformer.h.9.input_layernorm.bias", "blk.9.attn_norm.bias"),
            (two_norms, "transformer.h.9.ln_mlp.bias", "blk.9.attn_norm.bias"),
            (two_norms, "transformer.h.9.ln_attn.weight", "blk.9.attn_norm_2.weight"),
        ] {
            assert_eq!(names.to_gguf(ours).as_deref(), Some(theirs));
            assert_eq!(names.hub_name(theirs).as_deref(), Some(ours));
        }
        for name in ["", "weight", "blk.0.ffn_gate_exps.weight", "blk.attn_q.weight", "model.layers.0.weight"]
        {
            assert_eq!((llama.to_gguf(name), llama.hub_name(name)), (None, None), "{name}");
        }
        assert_eq!(llama.hub_name("blk.0.post_ffw_norm.weight"), None, "it would go unnoticed");
        assert_eq!(falcon.hub_name("blk.0.attn_norm_2.weight"), None, "it would go unnoticed");
    }
}
