//! An open GGUF file: its metadata and its tensors by name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use super::read::Reader;
use super::values::{Entry, MetaValue};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::ggml::BlockFormat;
use crate::checkpoint::safetensors::{Storage, map};

/// An open file.
#[derive(Debug)]
pub struct Gguf {
    pub(super) file: String,
    pub(super) storage: Storage,
    pub(super) metadata: BTreeMap<String, MetaValue>,
    pub(super) entries: BTreeMap<String, Entry>,
    /// Bytes before the tensors.
    pub(super) header: usize,
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

    /// A tensor's shape, its format, and its bytes: rows of whole blocks. Whoever can compute with a format
    /// as it is takes it from here.
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

    /// Has a tensor's bytes fetched, where the file is on a disk.
    pub fn will_read(&self, name: &str) {
        if let Some(bytes) = self.entries.get(name).and_then(|entry| entry.bytes.clone()) {
            self.storage.will_read(bytes);
        }
    }

    /// All bytes, for hashing.
    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// All bytes, and how many of them stand before the tensors.
    pub fn bytes(&self) -> (&[u8], usize) {
        (self.storage.bytes(), self.header)
    }
}
