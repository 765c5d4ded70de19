//! Reads the folder of an embedding model: what its files say, checked before any weight is touched.
//!
//! The files are those of Sentence Transformers: `config.json`, `tokenizer.json`, `model.safetensors`, and
//! where they are there `modules.json`, `1_Pooling/config.json` and `sentence_bert_config.json`. A module
//! that is not read here is refused, because vectors without it would be others than the model's.

use std::path::{Path, PathBuf};

use candle_transformers::models::bert::{Config, HiddenAct, PositionEmbeddingType};
use serde_json::{Map, Value};

use crate::error::Error;

/// Largest value that a shape in config.json may have: a damaged file must not ask for terabytes.
const SHAPE_MAX: usize = 1 << 24;
/// Most layers and heads.
const LAYERS_MAX: usize = 1 << 10;
/// Largest file of text.
const TEXT_BYTES_MAX: u64 = 256 << 20;

/// How the vectors of a text's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pooling {
    Mean,
    /// That of the first, which is the tokenizer's mark of a beginning.
    First,
}

/// What the folder says of the model.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    /// The shape.
    pub(crate) config: Config,
    /// How tokens' vectors become one.
    pub(crate) pooling: Pooling,
    /// Most tokens of a text, special ones included.
    pub(crate) tokens_max: usize,
    pub(crate) tokenizer: Vec<u8>,
    /// All texts that decide a vector, for the model's identity.
    pub(crate) texts: Vec<Vec<u8>>,
}

/// A JSON file whose value is an object.
struct Object {
    path: PathBuf,
    bytes: Vec<u8>,
    map: Map<String, Value>,
}

/// The bytes of a file of text.
fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let bytes = std::fs::metadata(path).map_err(|error| Error::file(path, error))?.len();
    if bytes > TEXT_BYTES_MAX {
        return Err(Error::file(path, format!("has {bytes} bytes, more than {TEXT_BYTES_MAX}")));
    }
    std::fs::read(path).map_err(|error| Error::file(path, error))
}

impl Object {
    fn read(path: PathBuf) -> Result<Self, Error> {
        let bytes = read(&path)?;
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(map)) => Ok(Self { path, bytes, map }),
            Ok(_) => Err(Error::file(&path, "is not a JSON object")),
            Err(error) => Err(Error::file(&path, error)),
        }
    }

    /// The file where there is one.
    fn read_if_there(path: PathBuf) -> Result<Option<Self>, Error> {
        if path.exists() { Self::read(path).map(Some) } else { Ok(None) }
    }

    fn bad<T>(&self, field: &str, reason: impl Into<String>) -> Result<T, Error> {
        Err(Error::field(&self.path, field, reason))
    }

    /// A whole number of `1..=max`.
    fn count(&self, field: &str, max: usize) -> Result<usize, Error> {
        let value = self.map.get(field).and_then(Value::as_u64);
        match value.and_then(|value| usize::try_from(value).ok()).filter(|value| (1..=max).contains(value)) {
            Some(value) => Ok(value),
            None => self.bad(field, format!("must be a whole number from 1 to {max}")),
        }
    }

    fn text(&self, field: &str) -> Result<&str, Error> {
        match self.map.get(field).and_then(Value::as_str) {
            Some(text) => Ok(text),
            None => self.bad(field, "must be a string"),
        }
    }

    fn flag(&self, field: &str) -> bool {
        self.map.get(field).and_then(Value::as_bool).unwrap_or(false)
    }
}

/// Reads and checks all files but the weights.
pub(crate) fn describe(folder: &Path) -> Result<Described, Error> {
    let config_file = Object::read(folder.join("config.json"))?;
    let config = config(&config_file)?;
    let mut texts = vec![config_file.bytes.clone()];
    check_modules(folder, &mut texts)?;
    let pooling = pooling(folder, config.hidden_size, &mut texts)?;
    let mut tokens_max = config.max_position_embeddings;
    if let Some(file) = Object::read_if_there(folder.join("sentence_bert_config.json"))? {
        if file.map.get("max_seq_length").is_some_and(|value| !value.is_null()) {
            tokens_max = tokens_max.min(file.count("max_seq_length", SHAPE_MAX)?);
        }
        texts.push(file.bytes);
    }
    let tokenizer = read(&folder.join("tokenizer.json"))?;
    Ok(Described { config, pooling, tokens_max, tokenizer, texts })
}

/// The model's shape.
fn config(file: &Object) -> Result<Config, Error> {
    let family = file.text("model_type")?;
    if family != "bert" {
        return file
            .bad("model_type", format!("is `{family}`; embedding models of the family `bert` are run"));
    }
    if let Some(kind) = file.map.get("position_embedding_type").and_then(Value::as_str)
        && kind != "absolute"
    {
        return file.bad("position_embedding_type", format!("is `{kind}`; only `absolute` is run"));
    }
    let hidden_act = match file.text("hidden_act")? {
        "gelu" => HiddenAct::Gelu,
        "gelu_new" | "gelu_pytorch_tanh" => HiddenAct::GeluApproximate,
        "relu" => HiddenAct::Relu,
        other => return file.bad("hidden_act", format!("is `{other}`; gelu, gelu_new and relu are run")),
    };
    let epsilon = file.map.get("layer_norm_eps").and_then(Value::as_f64);
    let Some(layer_norm_eps) = epsilon.filter(|epsilon| *epsilon > 0.0 && *epsilon < 1.0) else {
        return file.bad("layer_norm_eps", "must be a number between 0 and 1");
    };
    let hidden_size = file.count("hidden_size", SHAPE_MAX)?;
    let num_attention_heads = file.count("num_attention_heads", LAYERS_MAX)?;
    if !hidden_size.is_multiple_of(num_attention_heads) {
        return file
            .bad("num_attention_heads", format!("does not divide `hidden_size`, which is {hidden_size}"));
    }
    Ok(Config {
        vocab_size: file.count("vocab_size", SHAPE_MAX)?,
        hidden_size,
        num_hidden_layers: file.count("num_hidden_layers", LAYERS_MAX)?,
        num_attention_heads,
        intermediate_size: file.count("intermediate_size", SHAPE_MAX)?,
        hidden_act,
        max_position_embeddings: file.count("max_position_embeddings", SHAPE_MAX)?,
        type_vocab_size: file.count("type_vocab_size", SHAPE_MAX)?,
        layer_norm_eps,
        position_embedding_type: PositionEmbeddingType::Absolute,
        model_type: Some(family.to_owned()),
        // What is left decides training, not a vector.
        ..Config::default()
    })
}

/// Refuses a folder whose vectors need a module that is not run here, such as a dense layer behind the
/// pooling.
fn check_modules(folder: &Path, texts: &mut Vec<Vec<u8>>) -> Result<(), Error> {
    let path = folder.join("modules.json");
    if !path.exists() {
        return Ok(());
    }
    let bytes = read(&path)?;
    let modules: Value = serde_json::from_slice(&bytes).map_err(|error| Error::file(&path, error))?;
    let Some(modules) = modules.as_array() else { return Err(Error::file(&path, "is not a JSON array")) };
    for (place, module) in modules.iter().enumerate() {
        let kind = module.get("type").and_then(Value::as_str).unwrap_or_default();
        let last = kind.rsplit('.').next().unwrap_or_default();
        if !["Transformer", "Pooling", "Normalize"].contains(&last) {
            let reason = format!("is `{kind}`; Transformer, Pooling and Normalize are run");
            return Err(Error::field(&path, format!("[{place}].type"), reason));
        }
    }
    texts.push(bytes);
    Ok(())
}

/// How tokens' vectors become one: their mean where the folder does not say.
fn pooling(folder: &Path, hidden: usize, texts: &mut Vec<Vec<u8>>) -> Result<Pooling, Error> {
    let Some(file) = Object::read_if_there(folder.join("1_Pooling").join("config.json"))? else {
        return Ok(Pooling::Mean);
    };
    if file.map.contains_key("word_embedding_dimension") {
        let dimension = file.count("word_embedding_dimension", SHAPE_MAX)?;
        if dimension != hidden {
            let reason = format!("is {dimension}, but config.json says `hidden_size` is {hidden}");
            return file.bad("word_embedding_dimension", reason);
        }
    }
    let modes = file.map.iter().filter(|(key, value)| key.starts_with("pooling_mode_") && **value == true);
    let other = modes
        .map(|(key, _)| key.as_str())
        .find(|key| *key != "pooling_mode_mean_tokens" && *key != "pooling_mode_cls_token");
    if let Some(other) = other {
        return file.bad(other, "is true; only the mean and the first token are run");
    }
    let pooling = match (file.flag("pooling_mode_mean_tokens"), file.flag("pooling_mode_cls_token")) {
        (true, false) => Pooling::Mean,
        (false, true) => Pooling::First,
        _ => {
            return file
                .bad("pooling_mode_mean_tokens", "or `pooling_mode_cls_token` must be true, not both");
        }
    };
    texts.push(file.bytes);
    Ok(pooling)
}
