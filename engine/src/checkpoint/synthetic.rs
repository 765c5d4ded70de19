//! Random checkpoints of any family, shape and type: an aid of tests and benches, which need real
//! files but no trained weights.
//!
//! The same [`Synthetic`] gives the same bytes on every machine.

use std::path::Path;

use serde_json::{Value, json};

use crate::checkpoint::alibi;
use crate::checkpoint::config::{
    Family, LocalLayers, Mlp, ModelConfig, Norm, Position, Residual, RopeScaling,
};
use crate::checkpoint::dtype::Dtype;
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::fused::fused;
use crate::checkpoint::ggml::BlockFormat;
use crate::checkpoint::gguf::convert::Conversion;
use crate::checkpoint::gguf::write::GgufWriter;
use crate::checkpoint::names::{model_names, weight};
use crate::checkpoint::safetensors::{INDEX_FILE, SINGLE_FILE};
use crate::checkpoint::shapes::expected_tensors;
use crate::checkpoint::synthetic_text;
use crate::checkpoint::weights::{MapWeights, WeightSource};

/// A checkpoint to be made.
#[derive(Clone, Debug)]
pub struct Synthetic {
    /// Its shape; change fields freely, as long as they agree.
    pub config: ModelConfig,
    /// Type of the stored weights.
    pub dtype: Dtype,
    /// Type of the stored embedding, where that is another.
    pub embedding_dtype: Option<Dtype>,
    /// Number of weight files; with more than one there is an index.
    pub shards: usize,
    /// Which weights.
    pub seed: u64,
}

impl Synthetic {
    /// A model of `family` with two layers, a few thousand weights and the tokenizer of [`synthetic_text`].
    pub fn tiny(family: Family, seed: u64) -> Self {
        let is_gemma = matches!(family, Family::Gemma2 | Family::Gemma3);
        let has_layer_norms = matches!(family, Family::Opt | Family::Mpt | Family::Falcon);
        let (heads, head_dim) = (4, if family == Family::Qwen3 { 16 } else { 8 });
        let layers = if is_gemma { 3 } else { 2 };
        let config = ModelConfig {
            family,
            vocab: synthetic_text::VOCAB.next_multiple_of(64),
            hidden: 32,
            embedding: 32,
            layers,
            heads,
            kv_heads: match family {
                Family::Opt | Family::Mpt => heads,
                Family::Falcon => 1,
                _ => 2,
            },
            head_dim,
            intermediate: if family == Family::Mpt { 128 } else { 48 },
            norm: if has_layer_norms { Norm::Layer { epsilon: 1e-5 } } else { Norm::Rms { epsilon: 1e-6 } },
            norm_first: true,
            post_norms: is_gemma,
            norm_bias: matches!(family, Family::Opt | Family::Falcon),
            norm_above_one: is_gemma,
            final_norm: true,
            residual: match family {
                Family::Falcon => Residual::Parallel { shares_norm: true },
                _ => Residual::Sequential,
            },
            position: match family {
                Family::Opt => Position::Learned { offset: 2 },
                Family::Mpt => Position::Alibi(alibi::exact(heads, 8.0)),
                _ => Position::Rotary { theta: 10_000.0, scaling: RopeScaling::None },
            },
            mlp: match family {
                Family::Opt => Mlp::PlainRelu,
                Family::Mpt | Family::Falcon => Mlp::PlainGelu,
                Family::Gemma2 | Family::Gemma3 => Mlp::GatedGelu,
                _ => Mlp::GatedSilu,
            },
            qkv_bias: matches!(family, Family::Opt | Family::Qwen2),
            out_bias: family == Family::Opt,
            mlp_bias: family == Family::Opt,
            qkv_clip: None,
            qk_norm: matches!(family, Family::Qwen3 | Family::Gemma3),
            score_scale: is_gemma.then(|| 1.0 / 24f32.sqrt()),
            score_cap: (family == Family::Gemma2).then_some(2.0),
            scales_embedding: is_gemma,
            tied_head: has_layer_norms || is_gemma,
            logit_cap: (family == Family::Gemma2).then_some(6.0),
            context_max: 256,
            sliding_window: is_gemma.then_some(12),
            local_layers: is_gemma.then(|| LocalLayers {
                is_local: (0..layers).map(|layer| layer % 2 == 0).collect(),
                theta: if family == Family::Gemma3 { 500.0 } else { 10_000.0 },
            }),
        };
        Self { config, dtype: Dtype::F32, embedding_dtype: None, shards: 1, seed }
    }

    /// A Llama of 134 million parameters, the usual shape of a "125M" model: what steps of a small model
    /// cost, without one. The vocabulary is larger than the tokenizer's; ids beyond it are never sampled.
    pub fn llama_125m(dtype: Dtype, seed: u64) -> Self {
        let mut model = Self { dtype, ..Self::tiny(Family::Llama, seed) };
        let config = &mut model.config;
        (config.vocab, config.hidden, config.embedding, config.intermediate) = (32_000, 768, 768, 2_048);
        (config.layers, config.heads, config.kv_heads, config.head_dim) = (12, 12, 12, 64);
        config.context_max = 4_096;
        model
    }

    /// A Llama of 58 million parameters: small enough that a server on two cores of a processor gets through the
    /// paper's relQueries of a hundred rows in a minute.
    pub fn llama_60m(dtype: Dtype, seed: u64) -> Self {
        let mut model = Self::llama_125m(dtype, seed);
        let config = &mut model.config;
        (config.hidden, config.embedding, config.intermediate) = (512, 512, 1_376);
        (config.layers, config.heads, config.kv_heads) = (8, 8, 8);
        model
    }

    /// The shape of Qwen2.5-0.5B: 494 million parameters, 136 of them in a vocabulary that is tied.
    pub fn qwen2_5_05b(dtype: Dtype, seed: u64) -> Self {
        let mut model = Self { dtype, ..Self::tiny(Family::Qwen2, seed) };
        let config = &mut model.config;
        (config.vocab, config.hidden, config.embedding, config.intermediate) = (151_936, 896, 896, 4_864);
        (config.layers, config.heads, config.kv_heads, config.head_dim) = (24, 14, 2, 64);
        config.position = Position::Rotary { theta: 1e6, scaling: RopeScaling::None };
        (config.context_max, config.tied_head) = (32_768, true);
        model
    }

    /// The shape of Qwen2.5-7B: 7.6 billion parameters.
    pub fn qwen2_5_7b(dtype: Dtype, seed: u64) -> Self {
        let mut model = Self { dtype, ..Self::tiny(Family::Qwen2, seed) };
        let config = &mut model.config;
        (config.vocab, config.hidden, config.embedding, config.intermediate) =
            (152_064, 3_584, 3_584, 18_944);
        (config.layers, config.heads, config.kv_heads, config.head_dim) = (28, 28, 4, 128);
        config.norm = Norm::Rms { epsilon: 1e-6 };
        config.position = Position::Rotary { theta: 1e6, scaling: RopeScaling::None };
        config.context_max = 32_768;
        model
    }

    /// The shape of Llama 3 8B.
    pub fn llama_3_8b(dtype: Dtype, seed: u64) -> Self {
        let mut model = Self { dtype, ..Self::tiny(Family::Llama, seed) };
        let config = &mut model.config;
        (config.vocab, config.hidden, config.embedding, config.intermediate) =
            (128_256, 4_096, 4_096, 14_336);
        (config.layers, config.heads, config.kv_heads, config.head_dim) = (32, 32, 8, 128);
        config.position = Position::Rotary { theta: 5e5, scaling: RopeScaling::None };
        config.context_max = 8_192;
        model
    }

    /// The text of config.json.
    pub fn config_json(&self) -> String {
        let mut json = match self.config.family {
            Family::Opt => opt_json(&self.config),
            Family::Mpt => mpt_json(&self.config),
            Family::Falcon => falcon_json(&self.config),
            Family::Gemma2 | Family::Gemma3 => gemma_json(&self.config),
            Family::Llama | Family::Mistral | Family::Qwen2 | Family::Qwen3 => rotary_json(&self.config),
        };
        json["torch_dtype"] = json!(match self.dtype {
            Dtype::F32 => "float32",
            Dtype::F16 => "float16",
            Dtype::Bf16 => "bfloat16",
        });
        json["eos_token_id"] = json!(synthetic_text::END_OF_TEXT);
        json.to_string()
    }

    /// The text of generation_config.json.
    pub fn generation_json(&self) -> String {
        json!({ "eos_token_id": [synthetic_text::IM_END, synthetic_text::END_OF_TEXT] }).to_string()
    }

    /// The weights: matrices with rows of about unit gain, norms about 1, small biases.
    pub fn weights(&self) -> MapWeights {
        let mut random = SplitMix64(self.seed);
        let mut weights = MapWeights::default();
        let embedding = weight(&model_names(self.config.family).embedding);
        for (name, shape) in expected_tensors(&self.config) {
            let count: usize = shape.iter().product();
            let (middle, spread) = match (shape.as_slice(), name.ends_with(".bias")) {
                (_, true) => (0.0, 0.1),
                ([_], false) if name.contains("rope_freqs") => (4.0, 3.0),
                ([_], false) => (if self.config.norm_above_one { 0.0 } else { 1.0 }, 0.2),
                ([.., inputs], false) if is_product(&name) => (0.0, (3.0 / *inputs as f32).sqrt()),
                _ => (0.0, 1.0),
            };
            let values: Vec<f32> = (0..count).map(|_| middle + spread * random.signed_unit()).collect();
            let dtype = self.embedding_dtype.filter(|_| name == embedding).unwrap_or(self.dtype);
            weights.insert(&name, dtype, &shape, &values);
        }
        weights
    }

    /// The weights as one safetensors file in memory.
    pub fn weight_bytes(&self) -> Result<Vec<u8>, CheckpointError> {
        let weights = fused(&self.weights(), &self.config)?;
        serialise(&weights, &weights.names())
    }

    /// Writes the whole folder, which must exist.
    pub fn write(&self, folder: &Path) -> Result<(), CheckpointError> {
        let put = |name: &str, bytes: &[u8]| {
            let file = folder.join(name);
            std::fs::write(&file, bytes).map_err(|source| CheckpointError::Io { file, source })
        };
        put("config.json", self.config_json().as_bytes())?;
        put("generation_config.json", self.generation_json().as_bytes())?;
        put("tokenizer.json", synthetic_text::tokenizer_json().as_bytes())?;
        put("tokenizer_config.json", synthetic_text::tokenizer_config_json().as_bytes())?;
        if self.shards <= 1 {
            return put(SINGLE_FILE, &self.weight_bytes()?);
        }
        let weights = fused(&self.weights(), &self.config)?;
        let names = weights.names();
        let mut map = serde_json::Map::new();
        for (i, part) in names.chunks(names.len().div_ceil(self.shards)).enumerate() {
            let file = format!("model-{:05}-of-{:05}.safetensors", i + 1, self.shards);
            put(&file, &serialise(&weights, part)?)?;
            map.extend(part.iter().map(|name| (name.clone(), json!(file))));
        }
        put(INDEX_FILE, json!({ "metadata": {}, "weight_map": map }).to_string().as_bytes())
    }

    /// The whole checkpoint as a GGUF file under construction, its matrices in `format`.
    pub fn gguf(&self, format: BlockFormat) -> Result<GgufWriter, CheckpointError> {
        let conversion = Conversion {
            config: &self.config,
            weights: &self.weights(),
            format,
            tokenizer: &synthetic_text::tokenizer_json(),
            pre: "gpt-2",
            end: synthetic_text::IM_END,
            template: Some(synthetic_text::CHAT_TEMPLATE),
        };
        conversion.writer()
    }
}

/// Whether a matrix is one of a layer's products.
fn is_product(name: &str) -> bool {
    ["proj", ".fc", "dense"].iter().any(|part| name.contains(part))
}

/// The named tensors as a safetensors file.
fn serialise(weights: &MapWeights, names: &[String]) -> Result<Vec<u8>, CheckpointError> {
    let bad = |error: safetensors::SafeTensorError| CheckpointError::malformed(SINGLE_FILE, error);
    let tensors = names.iter().map(|name| Ok((name, weights.tensor(name)?)));
    let tensors = tensors.collect::<Result<Vec<_>, CheckpointError>>()?;
    let mut views = Vec::new();
    for (name, tensor) in &tensors {
        let dtype = match tensor.dtype {
            Dtype::F32 => safetensors::Dtype::F32,
            Dtype::F16 => safetensors::Dtype::F16,
            Dtype::Bf16 => safetensors::Dtype::BF16,
        };
        let view = safetensors::tensor::TensorView::new(dtype, tensor.shape.clone(), &tensor.data);
        views.push((name, view.map_err(bad)?));
    }
    safetensors::serialize(views, None).map_err(bad)
}

/// config.json of the families with rotary positions.
fn rotary_json(config: &ModelConfig) -> Value {
    let (&Position::Rotary { theta, scaling }, Norm::Rms { epsilon }) = (&config.position, config.norm)
    else {
        unreachable!("a rotary family is made with rotary positions and RMS norms");
    };
    let (scaling, trained_context) = match scaling {
        RopeScaling::None => (Value::Null, config.context_max),
        RopeScaling::Linear { factor } => {
            (json!({ "type": "linear", "factor": factor }), (config.context_max as f32 / factor) as usize)
        }
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => (
            json!({
                "rope_type": "llama3", "factor": factor, "low_freq_factor": low_freq_factor,
                "high_freq_factor": high_freq_factor, "original_max_position_embeddings": original_context,
            }),
            config.context_max,
        ),
        RopeScaling::Stored => unreachable!("config.json cannot say that weights bring the factors"),
    };
    let (architecture, model_type) = match config.family {
        Family::Mistral => ("MistralForCausalLM", "mistral"),
        Family::Qwen2 => ("Qwen2ForCausalLM", "qwen2"),
        Family::Qwen3 => ("Qwen3ForCausalLM", "qwen3"),
        _ => ("LlamaForCausalLM", "llama"),
    };
    json!({
        "architectures": [architecture], "model_type": model_type, "hidden_act": "silu",
        "vocab_size": config.vocab, "hidden_size": config.hidden, "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads, "num_key_value_heads": config.kv_heads, "head_dim": config.head_dim,
        "intermediate_size": config.intermediate, "rms_norm_eps": epsilon, "rope_theta": theta,
        "rope_scaling": scaling, "max_position_embeddings": trained_context, "attention_bias": config.out_bias,
        "mlp_bias": config.mlp_bias, "tie_word_embeddings": config.tied_head,
        "sliding_window": config.sliding_window, "use_sliding_window": config.sliding_window.is_some(),
        "max_window_layers": 0,
    })
}

/// config.json of OPT.
fn opt_json(config: &ModelConfig) -> Value {
    json!({
        "architectures": ["OPTForCausalLM"], "model_type": "opt", "activation_function": "relu",
        "vocab_size": config.vocab, "hidden_size": config.hidden, "word_embed_proj_dim": config.embedding,
        "num_hidden_layers": config.layers, "num_attention_heads": config.heads, "ffn_dim": config.intermediate,
        "max_position_embeddings": config.context_max, "do_layer_norm_before": config.norm_first,
        "_remove_final_layer_norm": config.norm_first && !config.final_norm, "enable_bias": config.qkv_bias,
        "tie_word_embeddings": config.tied_head,
    })
}

/// config.json of MPT, whose slopes are those of the paper.
fn mpt_json(config: &ModelConfig) -> Value {
    let attention = json!({
        "attn_type": "multihead_attention", "alibi": true, "alibi_bias_max": 8, "qk_ln": false,
        "prefix_lm": false, "clip_qkv": config.qkv_clip, "softmax_scale": config.score_scale,
    });
    json!({
        "architectures": ["MPTForCausalLM"], "model_type": "mpt", "vocab_size": config.vocab,
        "d_model": config.hidden, "n_heads": config.heads, "n_layers": config.layers,
        "expansion_ratio": config.intermediate / config.hidden, "max_seq_len": config.context_max,
        "no_bias": true, "norm_type": "low_precision_layernorm", "learned_pos_emb": true,
        "attn_config": attention, "tie_word_embeddings": config.tied_head,
    })
}

/// config.json of Falcon: rotary, or with slopes.
fn falcon_json(config: &ModelConfig) -> Value {
    let (is_alibi, theta) = match config.position {
        Position::Rotary { theta, .. } => (false, theta),
        _ => (true, 10_000.0),
    };
    let is_parallel = config.residual != Residual::Sequential;
    let is_new = is_parallel && config.kv_heads > 1;
    json!({
        "architectures": ["FalconForCausalLM"], "model_type": "falcon", "vocab_size": config.vocab,
        "hidden_size": config.hidden, "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads, "num_kv_heads": config.kv_heads.max(if is_new { 1 } else { config.heads }),
        "ffn_hidden_size": config.intermediate, "bias": config.qkv_bias, "alibi": is_alibi, "rope_theta": theta,
        "parallel_attn": is_parallel, "new_decoder_architecture": is_new, "multi_query": config.kv_heads == 1,
        "num_ln_in_parallel_attn": match config.residual {
            Residual::Parallel { shares_norm } if is_new => json!(if shares_norm { 1 } else { 2 }),
            _ => Value::Null,
        },
        "max_position_embeddings": config.context_max, "tie_word_embeddings": config.tied_head,
    })
}

/// config.json of Gemma 2 and 3.
fn gemma_json(config: &ModelConfig) -> Value {
    let (&Position::Rotary { theta, scaling }, Norm::Rms { epsilon }) = (&config.position, config.norm)
    else {
        unreachable!("Gemma is made with rotary positions and RMS norms");
    };
    let local = config.local_layers.as_ref().expect("Gemma is made with local layers");
    let kind = |is_local: &bool| if *is_local { "sliding_attention" } else { "full_attention" };
    let kinds: Vec<&str> = local.is_local.iter().map(kind).collect();
    let (architecture, model_type) = match config.family {
        Family::Gemma2 => ("Gemma2ForCausalLM", "gemma2"),
        _ => ("Gemma3ForCausalLM", "gemma3_text"),
    };
    let scaling = match scaling {
        RopeScaling::Linear { factor } => json!({ "rope_type": "linear", "factor": factor }),
        _ => Value::Null,
    };
    json!({
        "architectures": [architecture], "model_type": model_type, "hidden_activation": "gelu_pytorch_tanh",
        "vocab_size": config.vocab, "hidden_size": config.hidden, "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads, "num_key_value_heads": config.kv_heads, "head_dim": config.head_dim,
        "intermediate_size": config.intermediate, "rms_norm_eps": epsilon, "rope_theta": theta,
        "rope_scaling": scaling, "rope_local_base_freq": local.theta, "layer_types": kinds,
        "query_pre_attn_scalar": config.score_scale.map(|scale| (1.0 / (scale * scale)).round()),
        "attn_logit_softcapping": config.score_cap, "final_logit_softcapping": config.logit_cap,
        "sliding_window": config.sliding_window, "attention_bias": config.qkv_bias,
        "max_position_embeddings": config.context_max, "tie_word_embeddings": config.tied_head,
    })
}

/// A small generator with the same stream everywhere (Steele, Lea and Flood 2014, "Fast splittable
/// pseudorandom number generators", figure 17).
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in -1..1.
    fn signed_unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}
