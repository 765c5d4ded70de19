//! GGUF: one file with a model's shape, its tokenizer and its weights.
//!
//! The layout is that of ggml's `gguf.md`, versions 2 and 3, little endian. A file is mapped; nothing is
//! allocated by a count before the bytes that it promises are known to be there. [`Gguf`] must not know which
//! metadata or tensors a model needs: [`read_config`] and [`texts`] do, and [`GgufWeights`] knows what they are
//! called.

mod config;
pub mod convert;
mod keys;
mod pieces;
mod read;
mod text;
mod weights;
pub mod write;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use crate::checkpoint::CheckpointError;
use crate::checkpoint::ggml::BlockFormat;
use crate::checkpoint::safetensors::{Storage, map};
use read::Reader;

pub use config::{read_config, read_defaults};
pub use text::{GgufTexts, texts};
pub use weights::GgufWeights;

/// A value of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum MetaValue {
    /// Any unsigned number.
    Unsigned(u64),
    /// Any signed number.
    Signed(i64),
    /// A single or double.
    Float(f64),
    /// True or false.
    Flag(bool),
    /// UTF-8.
    Text(String),
    /// Values of one type, no lists among them.
    List(List),
}

/// A list that stays in its file until it is asked for: a byte there would become many here.
#[derive(Clone, Debug, PartialEq)]
pub struct List {
    /// The file's number of the values' type.
    kind: u32,
    count: usize,
    bytes: Range<usize>,
}

/// Where a tensor lies and how.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    /// The file's number of its format.
    kind: u32,
    shape: Vec<usize>,
    /// `None` where the format is not known: its length is not, either.
    bytes: Option<Range<usize>>,
}

/// An open file.
#[derive(Debug)]
pub struct Gguf {
    file: String,
    storage: Storage,
    metadata: BTreeMap<String, MetaValue>,
    entries: BTreeMap<String, Entry>,
    /// Bytes before the tensors.
    header: usize,
}

impl Gguf {
    /// Maps a file and reads all but its numbers.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("the GGUF file");
        Self::new(name, map(path)?)
    }

    /// Reads a file in memory; `name` is used in errors.
    pub fn from_bytes(name: &str, bytes: Cow<'static, [u8]>) -> Result<Self, CheckpointError> {
        Self::new(name, Storage::Memory(bytes))
    }

    fn new(file: &str, storage: Storage) -> Result<Self, CheckpointError> {
        let contents = Reader::new(file, storage.bytes()).contents()?;
        let (metadata, entries, header) = (contents.metadata, contents.entries, contents.header);
        Ok(Self { file: file.to_owned(), storage, metadata, entries, header })
    }

    /// A value of the metadata.
    pub fn metadata(&self, key: &str) -> Option<&MetaValue> {
        self.metadata.get(key)
    }

    /// All tensors' names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// A tensor's shape, outermost extent first; `None` where there is no such tensor.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.entries.get(name).map(|entry| &entry.shape[..])
    }

    /// A tensor's shape, its format, and its bytes: rows of whole blocks. Whoever can compute with a format as it
    /// is takes it from here.
    pub fn tensor(&self, name: &str) -> Result<(&[usize], BlockFormat, &[u8]), CheckpointError> {
        let entry =
            self.entries.get(name).ok_or_else(|| CheckpointError::MissingTensor { name: name.to_owned() })?;
        match (BlockFormat::of_id(entry.kind), &entry.bytes) {
            (Some(format), Some(bytes)) => Ok((&entry.shape, format, &self.storage.bytes()[bytes.clone()])),
            _ => {
                let (kind, known) = (entry.kind, BlockFormat::names());
                let reason = format!("has the type {kind}, which is not supported; known are {known}");
                Err(CheckpointError::field(&self.file, name, reason))
            }
        }
    }

    /// What the file is called in errors.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// All bytes, and how many of them stand before the tensors: for hashing.
    pub fn bytes(&self) -> (&[u8], usize) {
        (self.storage.bytes(), self.header)
    }
}

#[cfg(test)]
mod config_tests;
#[cfg(test)]
mod tests;
