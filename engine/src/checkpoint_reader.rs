//! Reads a checkpoint: everything its files say, before any weight is packed for a device.

mod revision;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::path::Path;

use serde_json::Value;

use crate::checkpoint::generation::{GenerationDefaults, SpecialIds, read_generation};
use crate::checkpoint::gguf::{self, Gguf, GgufWeights};
use crate::checkpoint::safetensors::{SINGLE_FILE, read_optional_text, read_text};
use crate::checkpoint::shapes::check_tensors;
use crate::checkpoint::{
    BlockMatrix, CheckpointError, Dtype, ModelConfig, PackedForm, PackedWeights, RawTensor, Safetensors,
    Unfused, WeightSource, read_config,
};
use crate::text::{ModelText, TextFiles};

/// The files of a checkpoint in memory: for a model that is part of the program.
#[derive(Clone, Debug)]
pub struct ModelFiles<'a> {
    /// What the model is called.
    pub name: &'a str,
    /// config.json.
    pub config: &'a str,
    /// tokenizer.json.
    pub tokenizer: &'a str,
    /// tokenizer_config.json.
    pub tokenizer_config: Option<&'a str>,
    /// generation_config.json.
    pub generation_config: Option<&'a str>,
    /// chat_template.jinja.
    pub chat_template: Option<&'a str>,
    /// model.safetensors.
    pub weights: Cow<'static, [u8]>,
}

/// The weights of a checkpoint, in the form it came in.
#[derive(Debug)]
pub enum Weights {
    /// A Hugging Face folder's.
    Safetensors(Unfused<PackedWeights>),
    /// Those of a GGUF file.
    Gguf(Box<Unfused<GgufWeights>>),
}

impl Weights {
    fn source(&self) -> &dyn WeightSource {
        match self {
            Self::Safetensors(weights) => weights,
            Self::Gguf(weights) => &**weights,
        }
    }
}

impl WeightSource for Weights {
    fn tensor(&self, name: &str) -> Result<RawTensor<'_>, CheckpointError> {
        self.source().tensor(name)
    }

    fn exact(&self, name: &str) -> Result<RawTensor<'_>, CheckpointError> {
        self.source().exact(name)
    }

    fn layout(&self, name: &str) -> Result<(Dtype, Vec<usize>), CheckpointError> {
        self.source().layout(name)
    }

    fn blocks(&self, name: &str) -> Result<Option<BlockMatrix<'_>>, CheckpointError> {
        self.source().blocks(name)
    }

    fn will_read(&self, name: &str) {
        self.source().will_read(name);
    }

    fn names(&self) -> Vec<String> {
        self.source().names()
    }
}

/// A checkpoint whose files agree with each other.
#[derive(Debug)]
pub struct Checkpoint {
    /// What the model is called: its folder's or file's name.
    pub name: String,
    /// Its shape.
    pub config: ModelConfig,
    /// Its weights, all there and in their shapes.
    pub weights: Weights,
    /// Its tokenizer and chat template.
    pub text: ModelText,
    /// How its makers sample it.
    pub defaults: GenerationDefaults,
    /// Changes whenever any of the files does.
    pub revision: u128,
}

impl Checkpoint {
    /// Opens a Hugging Face folder, or a GGUF file. `now`: see [`ModelText::new`].
    pub fn path(path: &Path, now: Option<u64>) -> Result<Self, CheckpointError> {
        let is_gguf = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
        if !is_gguf && !path.is_file() {
            return Self::folder(path, now);
        }
        let name = path.file_stem().map_or("model".into(), |name| name.to_string_lossy());
        Self::gguf(&name, Gguf::open(path)?, now)
    }

    /// Opens a GGUF file. `now`: see [`ModelText::new`].
    pub fn gguf(name: &str, gguf: Gguf, now: Option<u64>) -> Result<Self, CheckpointError> {
        let config = gguf::read_config(&gguf)?;
        let weights = Unfused::stacked(GgufWeights::new(gguf, &config), &config);
        check_tensors(&config, &weights)?;
        let gguf = weights.stored().gguf();
        let defaults = gguf::read_defaults(gguf)?;
        let texts = gguf::texts(gguf, config.vocab)?;
        let files = TextFiles {
            tokenizer: &texts.tokenizer,
            tokenizer_config: Some(&texts.tokenizer_config),
            chat_template: None,
        };
        let text = model_text(files, &config, &texts.ids, now)?;
        let revision = revision::of_file(gguf.storage(), gguf.bytes().1); // metadata and texts stand in its header
        Ok(Self {
            name: name.to_owned(),
            config,
            weights: Weights::Gguf(weights.into()),
            text,
            defaults,
            revision,
        })
    }

    /// Opens a Hugging Face folder. `now`: see [`ModelText::new`].
    pub fn folder(folder: &Path, now: Option<u64>) -> Result<Self, CheckpointError> {
        let texts = FolderTexts::read(folder)?;
        Self::new(&texts.files(), Safetensors::open(folder)?, now)
    }

    /// Opens files in memory. `now`: see [`ModelText::new`].
    pub fn bytes(files: ModelFiles<'_>, now: Option<u64>) -> Result<Self, CheckpointError> {
        let weights = Safetensors::from_bytes(SINGLE_FILE, files.weights.clone())?;
        Self::new(&files, weights, now)
    }

    /// Reads all texts and checks that the weights fit them.
    fn new(files: &ModelFiles<'_>, weights: Safetensors, now: Option<u64>) -> Result<Self, CheckpointError> {
        let config = read_config(files.config)?;
        let packed = PackedWeights::new(weights, PackedForm::read(files.config)?)?;
        let weights = Unfused::new(packed, &config);
        check_tensors(&config, &weights)?;
        let (defaults, ids) = read_generation(files.config, files.generation_config)?;
        let text = model_text(texts_of(files), &config, &ids, now)?;
        let revision = revision::of_files(files, weights.stored().stored());
        let weights = Weights::Safetensors(weights);
        Ok(Self { name: files.name.to_owned(), config, weights, text, defaults, revision })
    }
}

/// What a folder's texts say: all there is to know of a model that runs elsewhere.
#[derive(Debug)]
pub struct CheckpointText {
    /// What the model is called: its folder's name.
    pub name: String,
    /// Its shape.
    pub config: ModelConfig,
    /// Its tokenizer and chat template.
    pub text: ModelText,
    /// How its makers sample it.
    pub defaults: GenerationDefaults,
    /// Changes whenever any of the texts does.
    pub revision: u128,
}

impl CheckpointText {
    /// Opens the texts of a Hugging Face folder; weights need not be there. `now`: see [`ModelText::new`].
    pub fn folder(folder: &Path, now: Option<u64>) -> Result<Self, CheckpointError> {
        let texts = FolderTexts::read(folder)?;
        let files = texts.files();
        let config = read_config(files.config)?;
        let (defaults, ids) = read_generation(files.config, files.generation_config)?;
        let text = model_text(texts_of(&files), &config, &ids, now)?;
        let revision = revision::of_texts(&files);
        Ok(Self { name: texts.name, config, text, defaults, revision })
    }
}

/// The texts of a folder.
struct FolderTexts {
    name: String,
    config: String,
    tokenizer: String,
    tokenizer_config: Option<String>,
    generation_config: Option<String>,
    chat_template: Option<String>,
}

impl FolderTexts {
    fn read(folder: &Path) -> Result<Self, CheckpointError> {
        let canonical = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        Ok(Self {
            name: canonical.file_name().map_or("model".into(), |name| name.to_string_lossy().into_owned()),
            config: read_text(folder, "config.json")?,
            tokenizer: read_text(folder, "tokenizer.json")?,
            tokenizer_config: read_optional_text(folder, "tokenizer_config.json")?,
            generation_config: read_optional_text(folder, "generation_config.json")?,
            chat_template: chat_template(folder)?,
        })
    }

    /// Without weights.
    fn files(&self) -> ModelFiles<'_> {
        ModelFiles {
            name: &self.name,
            config: &self.config,
            tokenizer: &self.tokenizer,
            tokenizer_config: self.tokenizer_config.as_deref(),
            generation_config: self.generation_config.as_deref(),
            chat_template: self.chat_template.as_deref(),
            weights: Cow::Borrowed(&[]),
        }
    }
}

/// The texts that a tokenizer and a chat template are made of.
fn texts_of<'a>(files: &ModelFiles<'a>) -> TextFiles<'a> {
    TextFiles {
        tokenizer: files.tokenizer,
        tokenizer_config: files.tokenizer_config,
        chat_template: files.chat_template,
    }
}

/// The texts of a model of this shape.
fn model_text(
    files: TextFiles<'_>,
    config: &ModelConfig,
    ids: &SpecialIds,
    now: Option<u64>,
) -> Result<ModelText, CheckpointError> {
    let vocab = u32::try_from(config.vocab).expect("read_config bounds every extent");
    ModelText::new(files, vocab, ids, now)
}

/// The chat template that stands in a file of its own.
fn chat_template(folder: &Path) -> Result<Option<String>, CheckpointError> {
    if let Some(template) = read_optional_text(folder, "chat_template.jinja")? {
        return Ok(Some(template));
    }
    let file = "chat_template.json";
    let Some(text) = read_optional_text(folder, file)? else { return Ok(None) };
    let value: Value =
        serde_json::from_str(&text).map_err(|error| CheckpointError::malformed(file, error))?;
    match value["chat_template"].as_str() {
        Some(template) => Ok(Some(template.to_owned())),
        None => Err(CheckpointError::field(file, "chat_template", "must be a string")),
    }
}
