//! Embedding models with random weights: an aid of tests and examples, which need a folder but no trained
//! one.
//!
//! The same [`Synthetic`] gives the same files on every machine. The weights of its layers are small beside
//! those of its words, so texts that share words have vectors that are near: enough to see a search work, and
//! no more.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use candle_core::{Device, Tensor};
use serde_json::{Value, json};

use crate::error::Error;

/// Special tokens, first in the vocabulary.
const SPECIALS: [&str; 4] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"];

/// A tensor by its shape and numbers.
pub type Numbers = (Vec<usize>, Vec<f32>);

/// A model to be made.
#[derive(Clone, Debug)]
pub struct Synthetic {
    /// Numbers of a vector.
    pub hidden: usize,
    pub layers: usize,
    /// Attention heads; they divide `hidden`.
    pub heads: usize,
    /// Width of a layer's middle.
    pub intermediate: usize,
    /// Most tokens of a text, special ones included.
    pub positions: usize,
    /// Words with a token of their own, in lower case; others are spelt.
    pub words: Vec<String>,
    /// Whether the first token's vector is the text's, instead of the mean of all.
    pub takes_first: bool,
    /// Which weights.
    pub seed: u64,
}

impl Synthetic {
    /// A model of a few thousand weights with these words.
    pub fn tiny(words: &[&str], seed: u64) -> Self {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let (hidden, layers, heads, intermediate, positions) = (32, 2, 4, 48, 64);
        Self { hidden, layers, heads, intermediate, positions, words, takes_first: false, seed }
    }

    /// The vocabulary in order: special tokens, words, characters, characters inside words.
    pub fn vocabulary(&self) -> Vec<String> {
        let letters: Vec<String> =
            (b'!'..=b'~').filter(|c| !c.is_ascii_uppercase()).map(char::from).map(String::from).collect();
        let inside = letters.iter().map(|letter| format!("##{letter}"));
        let words = self.words.iter().filter(|word| word.len() > 1).cloned();
        SPECIALS
            .map(str::to_owned)
            .into_iter()
            .chain(words)
            .chain(letters.iter().cloned())
            .chain(inside)
            .collect()
    }

    /// All tensors by name.
    pub fn tensors(&self) -> BTreeMap<String, Numbers> {
        let Self { hidden, intermediate, .. } = *self;
        let mut tensors = BTreeMap::new();
        let mut add = |name: String, shape: &[usize], scale: f32, offset: f32| {
            let seed = name.bytes().fold(self.seed, |seed, byte| mix(seed ^ u64::from(byte)));
            let count = shape.iter().product::<usize>() as u64;
            let numbers = (0..count).map(|i| offset + scale * uniform(seed, i)).collect();
            tensors.insert(name, (shape.to_vec(), numbers));
        };
        let vocabulary = self.vocabulary().len();
        add("embeddings.word_embeddings.weight".into(), &[vocabulary, hidden], 1.0, 0.0);
        add("embeddings.position_embeddings.weight".into(), &[self.positions, hidden], 0.05, 0.0);
        add("embeddings.token_type_embeddings.weight".into(), &[2, hidden], 0.05, 0.0);
        add("embeddings.LayerNorm.weight".into(), &[hidden], 0.1, 1.0);
        add("embeddings.LayerNorm.bias".into(), &[hidden], 0.02, 0.0);
        for layer in 0..self.layers {
            let name = |part: &str| format!("encoder.layer.{layer}.{part}");
            for part in ["query", "key", "value"] {
                add(name(&format!("attention.self.{part}.weight")), &[hidden, hidden], 0.2, 0.0);
                add(name(&format!("attention.self.{part}.bias")), &[hidden], 0.05, 0.0);
            }
            let dense = [
                ("attention.output", hidden, hidden),
                ("intermediate", intermediate, hidden),
                ("output", hidden, intermediate),
            ];
            for (part, rows, columns) in dense {
                add(name(&format!("{part}.dense.weight")), &[rows, columns], 0.1, 0.0);
                add(name(&format!("{part}.dense.bias")), &[rows], 0.05, 0.0);
            }
            for part in ["attention.output", "output"] {
                add(name(&format!("{part}.LayerNorm.weight")), &[hidden], 0.1, 1.0);
                add(name(&format!("{part}.LayerNorm.bias")), &[hidden], 0.02, 0.0);
            }
        }
        tensors
    }

    /// Writes the folder's files.
    pub fn write(&self, folder: &Path) -> Result<(), Error> {
        let put = |path: &Path, value: &Value| {
            std::fs::write(path, value.to_string()).map_err(|error| Error::file(path, error))
        };
        put(&folder.join("config.json"), &self.config())?;
        put(&folder.join("tokenizer.json"), &self.tokenizer())?;
        let pooling = folder.join("1_Pooling");
        std::fs::create_dir_all(&pooling).map_err(|error| Error::file(&pooling, error))?;
        put(
            &pooling.join("config.json"),
            &json!({
                "word_embedding_dimension": self.hidden,
                "pooling_mode_cls_token": self.takes_first,
                "pooling_mode_mean_tokens": !self.takes_first,
            }),
        )?;
        let mut tensors = HashMap::new();
        for (name, (shape, numbers)) in self.tensors() {
            tensors.insert(name, Tensor::from_vec(numbers, shape, &Device::Cpu)?);
        }
        let path = folder.join("model.safetensors");
        candle_core::safetensors::save(&tensors, &path).map_err(|error| Error::file(&path, error))
    }

    fn config(&self) -> Value {
        json!({
            "model_type": "bert",
            "vocab_size": self.vocabulary().len(),
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": self.intermediate,
            "hidden_act": "gelu",
            "max_position_embeddings": self.positions,
            "type_vocab_size": 2,
            "layer_norm_eps": 1e-12,
            "position_embedding_type": "absolute",
        })
    }

    fn tokenizer(&self) -> Value {
        let vocabulary: serde_json::Map<String, Value> =
            self.vocabulary().into_iter().zip(0_u64..).map(|(token, id)| (token, id.into())).collect();
        let added = |(id, token): (usize, &&str)| {
            json!({ "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true })
        };
        let special = |token: &str| json!({ "SpecialToken": { "id": token, "type_id": 0 } });
        let ids = |token: &str, id: u32| json!({ "id": token, "ids": [id], "tokens": [token] });
        json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": SPECIALS.iter().enumerate().map(added).collect::<Vec<_>>(),
            "normalizer": { "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                "strip_accents": null, "lowercase": true },
            "pre_tokenizer": { "type": "BertPreTokenizer" },
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [special("[CLS]"), { "Sequence": { "id": "A", "type_id": 0 } }, special("[SEP]")],
                "pair": [special("[CLS]"), { "Sequence": { "id": "A", "type_id": 0 } }, special("[SEP]"),
                    { "Sequence": { "id": "B", "type_id": 1 } }, special("[SEP]")],
                "special_tokens": { "[CLS]": ids("[CLS]", 2), "[SEP]": ids("[SEP]", 3) },
            },
            "decoder": { "type": "WordPiece", "prefix": "##", "cleanup": true },
            "model": { "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100, "vocab": vocabulary },
        })
    }
}

/// A step of splitmix64.
fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number from -1 to 1.
fn uniform(seed: u64, place: u64) -> f32 {
    ((mix(seed ^ mix(place)) >> 40) as f32 / (1_u64 << 23) as f32) - 1.0
}
