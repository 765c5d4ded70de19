//! A Hugging Face checkpoint as a GGUF file, the way llama.cpp's converter writes it: an aid of tests,
//! benches and examples, like [`crate::checkpoint::Synthetic`].

use serde_json::Value;

use super::names::TensorNames;
use super::write::GgufWriter;
use crate::checkpoint::config::{Family, ModelConfig, Norm, Position, RopeScaling};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::fused::stacked;
use crate::checkpoint::ggml::BlockFormat;
use crate::checkpoint::weights::WeightSource;

/// What goes into a file.
#[derive(Clone, Copy)]
pub struct Conversion<'a> {
    /// The model's shape, of a family that GGUF has.
    pub config: &'a ModelConfig,
    pub weights: &'a dyn WeightSource,
    /// How matrices are stored; vectors are single precision.
    pub format: BlockFormat,
    /// tokenizer.json of a byte-level BPE.
    pub tokenizer: &'a str,
    /// What llama.cpp calls the way it cuts words.
    pub pre: &'a str,
    /// The token that ends answers.
    pub end: u32,
    /// The chat template.
    pub template: Option<&'a str>,
}

impl Conversion<'_> {
    /// A file under construction, with all of it.
    pub fn writer(&self) -> Result<GgufWriter, CheckpointError> {
        let mut writer = GgufWriter::default();
        self.shape(&mut writer);
        self.text(&mut writer)?;
        let (stored, names) = (stacked(self.weights, self.config)?, TensorNames::of(self.config));
        for name in stored.names() {
            let tensor = stored.tensor(&name)?;
            let (mut values, shape) = (tensor.to_f32(), tensor.shape);
            let is_rotated = name.contains(".q_proj.") || name.contains(".k_proj.");
            if self.config.norm_above_one && name.ends_with("norm.weight") {
                values.iter_mut().for_each(|value| *value += 1.0);
            }
            if is_rotated && self.architecture() == "llama" {
                values = interleaved(&values, shape[0], self.config.head_dim);
            }
            let format = if shape.len() < 2 { BlockFormat::F32 } else { self.format };
            let theirs = names.to_gguf(&name).ok_or(CheckpointError::MissingTensor { name })?;
            writer.tensor(&theirs, &shape, format, &values);
        }
        Ok(writer)
    }

    fn architecture(&self) -> &'static str {
        match self.config.family {
            Family::Qwen2 => "qwen2",
            Family::Qwen3 => "qwen3",
            Family::Gemma2 => "gemma2",
            Family::Gemma3 => "gemma3",
            Family::Falcon => "falcon",
            Family::Mpt => "mpt",
            Family::Llama | Family::Mistral | Family::Opt => "llama",
        }
    }

    fn shape(&self, writer: &mut GgufWriter) {
        let config = self.config;
        let key = |part: &str| format!("{}.{part}", self.architecture());
        writer.text("general.architecture", self.architecture());
        for (part, extent) in [
            ("embedding_length", config.hidden),
            ("block_count", config.layers),
            ("attention.head_count", config.heads),
            ("attention.head_count_kv", config.kv_heads),
            ("attention.key_length", config.head_dim),
            ("attention.value_length", config.head_dim),
            ("rope.dimension_count", config.head_dim),
            ("feed_forward_length", config.intermediate),
            ("attention.sliding_window", config.sliding_window.unwrap_or(0)),
        ] {
            writer.unsigned(&key(part), extent as u32);
        }
        let (part, epsilon) = match config.norm {
            Norm::Rms { epsilon } => ("attention.layer_norm_rms_epsilon", epsilon),
            Norm::Layer { epsilon } => ("attention.layer_norm_epsilon", epsilon),
        };
        writer.float(&key(part), epsilon);
        for (part, number) in [
            ("attn_logit_softcapping", config.score_cap),
            ("final_logit_softcapping", config.logit_cap),
            ("attention.clamp_kqv", config.qkv_clip),
        ] {
            if let Some(number) = number {
                writer.float(&key(part), number);
            }
        }
        let mut context = config.context_max;
        if let Position::Alibi(alibi) = &config.position {
            // The last head's slope, where heads are a power of two.
            writer.float(
                &key("attention.max_alibi_bias"),
                -alibi.slopes.last().map_or(1.0, |last| last.log2()),
            );
        }
        if let Position::Rotary { theta, scaling } = config.position {
            writer.float(&key("rope.freq_base"), theta);
            if let RopeScaling::Linear { factor } = scaling {
                writer.text(&key("rope.scaling.type"), "linear");
                writer.float(&key("rope.scaling.factor"), factor);
                if config.family != Family::Gemma3 {
                    context = (context as f32 / factor) as usize;
                }
            }
            if let Some(local) = config.local_layers.as_ref().filter(|_| config.family == Family::Gemma3) {
                writer.float(&key("rope.freq_base_swa"), local.theta);
            }
        }
        writer.unsigned(&key("context_length"), context as u32);
    }

    fn text(&self, writer: &mut GgufWriter) -> Result<(), CheckpointError> {
        let bad = |reason: &str| CheckpointError::malformed("tokenizer.json", reason);
        let json: Value = serde_json::from_str(self.tokenizer).map_err(|error| bad(&error.to_string()))?;
        let vocab = json["model"]["vocab"].as_object().ok_or_else(|| bad("it has no vocabulary"))?;
        let mut tokens: Vec<String> = (0..self.config.vocab).map(|id| format!("[PAD{id}]")).collect();
        let mut roles = vec![5; tokens.len()];
        let added = json["added_tokens"].as_array().into_iter().flatten();
        let added = added.map(|token| {
            (&token["id"], token["content"].as_str(), if token["special"] == true { 3 } else { 4 })
        });
        let entries = vocab.iter().map(|(text, id)| (id, Some(text.as_str()), 1)).chain(added);
        for (id, text, role) in entries {
            let id = id.as_u64().and_then(|id| usize::try_from(id).ok()).filter(|id| *id < tokens.len());
            let (id, text) = id.zip(text).ok_or_else(|| bad("a token has no id or no embedding"))?;
            (tokens[id], roles[id]) = (text.to_owned(), role);
        }
        let merge = |merge: &Value| match merge {
            Value::String(text) => Some(text.clone()),
            pair => Some(format!("{} {}", pair[0].as_str()?, pair[1].as_str()?)),
        };
        let merges: Option<Vec<String>> =
            json["model"]["merges"].as_array().into_iter().flatten().map(merge).collect();
        writer.text("tokenizer.ggml.model", "gpt2");
        writer.text("tokenizer.ggml.pre", self.pre);
        writer.texts("tokenizer.ggml.tokens", &tokens);
        writer.integers("tokenizer.ggml.token_type", &roles);
        writer.texts("tokenizer.ggml.merges", &merges.ok_or_else(|| bad("a merge has no two parts"))?);
        writer.unsigned("tokenizer.ggml.eos_token_id", self.end);
        writer.flag("tokenizer.ggml.add_bos_token", false);
        if let Some(template) = self.template {
            writer.text("tokenizer.chat_template", template);
        }
        Ok(())
    }
}

/// Rows of heads from halves to interleaved pairs.
fn interleaved(values: &[f32], rows: usize, head_dim: usize) -> Vec<f32> {
    let width = values.len() / rows;
    let source = |row: usize| {
        let (head, within) = (row / head_dim, row % head_dim);
        head * head_dim + (within % 2) * (head_dim / 2) + within / 2
    };
    (0..rows).flat_map(|row| values[source(row) * width..][..width].iter().copied()).collect()
}
