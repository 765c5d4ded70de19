//! A checkpoint opened: everything its files say, before any weight is packed for a device.

use std::borrow::Cow;
use std::hash::Hasher as _;
use std::path::Path;

use serde_json::Value;
use siphasher::sip128::{Hasher128 as _, SipHasher13};

use crate::checkpoint::generation::{GenerationDefaults, SpecialIds, read_generation};
use crate::checkpoint::gguf::{self, Gguf, GgufWeights};
use crate::checkpoint::safetensors::{SINGLE_FILE, read_optional_text, read_text};
use crate::checkpoint::shapes::check_tensors;
use crate::checkpoint::{
    CheckpointError, Dtype, ModelConfig, Q8Blocks, RawTensor, Safetensors, WeightSource, read_config,
};
use crate::text::{ModelText, TextFiles};

/// Up to this size a file of weights is hashed whole.
const HASHED_WHOLE_MAX: usize = 64 << 20;
/// Of a larger one, this much...
const SAMPLE_BYTES: usize = 4 << 10;
/// ...of every so much.
const SAMPLE_STRIDE: usize = 1 << 20;

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
    Safetensors(Safetensors),
    /// Those of a GGUF file.
    Gguf(Box<GgufWeights>),
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

    fn layout(&self, name: &str) -> Result<(Dtype, Vec<usize>), CheckpointError> {
        self.source().layout(name)
    }

    fn q8_blocks(&self, name: &str) -> Result<Option<Q8Blocks<'_>>, CheckpointError> {
        self.source().q8_blocks(name)
    }

    fn names(&self) -> Vec<String> {
        self.source().names()
    }
}

/// A checkpoint whose files agree with each other.
#[derive(Debug)]
pub struct Opened {
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

impl Opened {
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
        let weights = GgufWeights::new(gguf, &config);
        check_tensors(&config, &weights)?;
        let defaults = gguf::read_defaults(weights.gguf())?;
        let texts = gguf::texts(weights.gguf(), config.vocab)?;
        let files = TextFiles {
            tokenizer: &texts.tokenizer,
            tokenizer_config: Some(&texts.tokenizer_config),
            chat_template: None,
        };
        let text = model_text(files, &config, &texts.ids, now)?;
        let (bytes, header) = weights.gguf().bytes();
        let mut hash = SipHasher13::new();
        add_file(&mut hash, bytes, header); // metadata and texts stand in its header
        let revision = hash.finish128().as_u128();
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
        check_tensors(&config, &weights)?;
        let (defaults, ids) = read_generation(files.config, files.generation_config)?;
        let text = model_text(texts_of(files), &config, &ids, now)?;
        let revision = revision(files, &weights);
        let weights = Weights::Safetensors(weights);
        Ok(Self { name: files.name.to_owned(), config, weights, text, defaults, revision })
    }
}

/// What a folder's texts say: all there is to know of a model that runs elsewhere.
#[derive(Debug)]
pub struct OpenedText {
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

impl OpenedText {
    /// Opens the texts of a Hugging Face folder; weights need not be there. `now`: see [`ModelText::new`].
    pub fn folder(folder: &Path, now: Option<u64>) -> Result<Self, CheckpointError> {
        let texts = FolderTexts::read(folder)?;
        let files = texts.files();
        let config = read_config(files.config)?;
        let (defaults, ids) = read_generation(files.config, files.generation_config)?;
        let text = model_text(texts_of(&files), &config, &ids, now)?;
        let mut hash = SipHasher13::new();
        add_texts(&mut hash, &files);
        let revision = hash.finish128().as_u128();
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

/// A hash of all that decides a model's answers: every text, and of the weights all headers and all
/// bytes of small files, or samples that no training step leaves as they were.
fn revision(files: &ModelFiles<'_>, weights: &Safetensors) -> u128 {
    let mut hash = SipHasher13::new();
    add_texts(&mut hash, files);
    for (_, bytes) in weights.files() {
        add_file(&mut hash, bytes, header_end(bytes));
    }
    hash.finish128().as_u128()
}

/// Hashes every text.
fn add_texts(hash: &mut SipHasher13, files: &ModelFiles<'_>) {
    let texts = [files.tokenizer_config, files.generation_config, files.chat_template];
    for text in [Some(files.config), Some(files.tokenizer)].into_iter().chain(texts) {
        add(hash, &[u8::from(text.is_some())]);
        add(hash, text.unwrap_or_default().as_bytes());
    }
}

/// Hashes bytes and their number.
fn add(hash: &mut SipHasher13, bytes: &[u8]) {
    hash.write_u64(bytes.len() as u64);
    hash.write(bytes);
}

/// Hashes a file of weights: all of a small one, of a large one its header and samples of the rest.
fn add_file(hash: &mut SipHasher13, bytes: &[u8], header: usize) {
    if bytes.len() <= HASHED_WHOLE_MAX {
        return add(hash, bytes);
    }
    add(hash, &(bytes.len() as u64).to_le_bytes());
    add(hash, bytes.get(..header).unwrap_or_default());
    for sample in bytes.chunks(SAMPLE_STRIDE) {
        add(hash, &sample[..sample.len().min(SAMPLE_BYTES)]);
    }
}

/// Where the header of a safetensors file ends.
fn header_end(bytes: &[u8]) -> usize {
    bytes.first_chunk::<8>().map_or(0, |length| u64::from_le_bytes(*length) as usize + 8)
}

#[cfg(test)]
mod tests {
    use base::{ChatTemplate as _, Piece, Role};

    use super::*;
    use crate::checkpoint::Synthetic;
    use crate::checkpoint::config::Family;

    fn written(synthetic: &Synthetic) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        synthetic.write(folder.path()).expect("it can be written");
        folder
    }

    #[test]
    fn a_folder_and_the_same_files_in_memory_are_the_same_model() {
        let synthetic = Synthetic::tiny(Family::Qwen2, 1);
        let folder = written(&synthetic);
        let opened = Opened::folder(folder.path(), None).expect("a valid folder");
        let read = |name| std::fs::read_to_string(folder.path().join(name)).expect("it was written");
        let (config, tokenizer) = (read("config.json"), read("tokenizer.json"));
        let (tokenizer_config, generation_config) =
            (read("tokenizer_config.json"), read("generation_config.json"));
        let files = ModelFiles {
            name: "mine",
            config: &config,
            tokenizer: &tokenizer,
            tokenizer_config: Some(&tokenizer_config),
            generation_config: Some(&generation_config),
            chat_template: None,
            weights: Cow::Owned(synthetic.weight_bytes().expect("bytes")),
        };
        let bytes = Opened::bytes(files.clone(), None).expect("valid files");
        assert_eq!((bytes.revision, &bytes.config), (opened.revision, &opened.config));
        assert_eq!(bytes.name, "mine");
        assert!(opened.text.has_chat_template());
        assert_eq!(opened.text.ends(), bytes.text.ends());
        let other = ModelFiles { chat_template: Some("{{ messages[0].content }}"), ..files };
        let other = Opened::bytes(other, None).expect("valid files");
        assert_ne!(other.revision, opened.revision);
        assert_eq!(other.text.frame(&[Role::User]).expect("a frame"), [Piece::Content(0)]);
    }

    #[test]
    fn the_texts_of_a_folder_need_no_weights() {
        let folder = written(&Synthetic::tiny(Family::Qwen2, 1));
        let whole = Opened::folder(folder.path(), None).expect("a valid folder");
        std::fs::remove_file(folder.path().join(SINGLE_FILE)).expect("it was written");
        let text = OpenedText::folder(folder.path(), None).expect("texts are enough");
        assert_eq!((&text.config, text.text.ends()), (&whole.config, whole.text.ends()));
        assert!(text.text.has_chat_template());
        std::fs::write(folder.path().join("generation_config.json"), "{}").expect("it can be written");
        let other = OpenedText::folder(folder.path(), None).expect("texts are enough");
        assert_ne!(other.revision, text.revision);
    }

    #[test]
    fn the_revision_follows_every_file() {
        let revision = |synthetic: &Synthetic, change: &dyn Fn(&Path)| {
            let folder = written(synthetic);
            change(folder.path());
            Opened::folder(folder.path(), None).expect("a valid folder").revision
        };
        let synthetic = Synthetic::tiny(Family::Llama, 1);
        let first = revision(&synthetic, &|_| {});
        assert_eq!(first, revision(&synthetic, &|_| {}), "the same files, elsewhere");
        assert_ne!(first, revision(&Synthetic::tiny(Family::Llama, 2), &|_| {}), "other weights");
        let put = |name: &'static str, text: &'static str| {
            move |folder: &Path| {
                std::fs::write(folder.join(name), text).expect("it can be written");
            }
        };
        assert_ne!(first, revision(&synthetic, &put("generation_config.json", "{}")));
        assert_ne!(first, revision(&synthetic, &put("chat_template.jinja", "{{ messages[0].content }}")));
        assert_ne!(first, revision(&synthetic, &put("chat_template.json", r#"{"chat_template": "x"}"#)));
    }

    #[test]
    fn a_large_file_is_told_from_another_by_samples() {
        let file = |last: u8| {
            let header = br#"{"a":{"dtype":"F32","shape":[17039360],"data_offsets":[0,68157440]}}"#;
            let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
            bytes.extend(header);
            bytes.resize(bytes.len() + 68_157_440, 0);
            bytes[33 << 20] = last;
            bytes
        };
        let synthetic = Synthetic::tiny(Family::Llama, 1);
        let config = synthetic.config_json();
        let revision_of = |bytes: Vec<u8>| {
            let files = ModelFiles {
                name: "",
                config: &config,
                tokenizer: "",
                tokenizer_config: None,
                generation_config: None,
                chat_template: None,
                weights: Cow::Borrowed(&[]),
            };
            revision(&files, &Safetensors::from_bytes("weights", Cow::Owned(bytes)).expect("a valid file"))
        };
        assert_eq!(revision_of(file(1)), revision_of(file(1)));
        assert_ne!(revision_of(file(1)), revision_of(file(2)));
    }

    #[test]
    fn a_folder_that_lacks_a_file_is_refused_by_its_name() {
        for name in ["config.json", "tokenizer.json", "model.safetensors"] {
            let folder = written(&Synthetic::tiny(Family::Opt, 1));
            std::fs::remove_file(folder.path().join(name)).expect("it was written");
            let error = Opened::folder(folder.path(), None).expect_err("refused").to_string();
            assert!(error.starts_with("cannot read ") && error.contains(name), "{error}");
        }
        let folder = written(&Synthetic::tiny(Family::Opt, 1));
        std::fs::write(folder.path().join("chat_template.json"), "{}").expect("it can be written");
        let error = Opened::folder(folder.path(), None).expect_err("refused").to_string();
        assert_eq!(error, "chat_template.json: field `chat_template`: must be a string");
    }
}
