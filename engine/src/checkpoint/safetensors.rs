//! Weights from safetensors files: one, several with an index, or bytes in memory.
//!
//! The format: eight bytes with the length of a JSON header (little endian), the header (name to type,
//! shape and byte range), then the data. Files are mapped, not read: a tensor costs memory when it is used.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::path::{Component, Path};

use serde::Deserialize;

use crate::checkpoint::dtype::Dtype;
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::weights::{RawTensor, WeightSource};

/// Name of a single file of weights.
pub const SINGLE_FILE: &str = "model.safetensors";
/// Name of the index of several.
pub const INDEX_FILE: &str = "model.safetensors.index.json";
/// Longest header that is read; the format's own limit.
const HEADER_BYTES_MAX: u64 = 100_000_000;

/// One entry of a header.
#[derive(Debug, Deserialize)]
struct HeaderEntry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

/// The part of an index that is used.
#[derive(Debug, Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Where a tensor lies.
#[derive(Debug)]
struct Entry {
    storage: usize,
    dtype: String,
    shape: Vec<usize>,
    bytes: Range<usize>,
}

/// A tensor of integers of four bytes.
pub(crate) struct IntegerTensor<'a> {
    /// Extent per dimension, outermost first.
    pub(crate) shape: &'a [usize],
    /// As many as fill it, little endian.
    pub(crate) words: &'a [[u8; 4]],
}

/// The bytes of a file.
#[derive(Debug)]
pub(crate) enum Storage {
    /// Pages of a file.
    Mapped(memmap2::Mmap),
    /// A buffer.
    Memory(Cow<'static, [u8]>),
}

impl Storage {
    /// All of them.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Memory(bytes) => bytes,
        }
    }

    /// Has the system fetch some of them while something else is done. Whoever comes to pages of a file that are
    /// not in memory waits for each few of them.
    pub(crate) fn will_read(&self, bytes: Range<usize>) {
        let Self::Mapped(map) = self else { return };
        #[cfg(unix)]
        let asked = map.advise_range(memmap2::Advice::WillNeed, bytes.start, bytes.len());
        #[cfg(not(unix))]
        let asked = std::io::Result::Ok(drop((map, bytes)));
        if let Err(error) = asked {
            tracing::debug!(%error, "weights are fetched as they are read");
        }
    }
}

/// Tensors of one or several safetensors files.
#[derive(Debug)]
pub struct Safetensors {
    files: Vec<(String, Storage)>,
    entries: BTreeMap<String, Entry>,
}

impl Safetensors {
    /// Opens the weights of a Hugging Face folder.
    pub fn open(folder: &Path) -> Result<Self, CheckpointError> {
        let mut source = Self { files: Vec::new(), entries: BTreeMap::new() };
        if !folder.join(INDEX_FILE).is_file() {
            source.add(SINGLE_FILE.to_owned(), map(&folder.join(SINGLE_FILE))?)?;
            return Ok(source);
        }
        let index = read_index(folder)?;
        for shard in shards(&index)? {
            source.add(shard.to_owned(), map(&folder.join(shard))?)?;
        }
        for (name, shard) in &index.weight_map {
            let entry = source.entries.get(name).filter(|entry| source.files[entry.storage].0 == *shard);
            if entry.is_none() {
                let reason = format!("has no tensor `{name}`, which {INDEX_FILE} places there");
                return Err(CheckpointError::malformed(shard, reason));
            }
        }
        Ok(source)
    }

    /// The files that the index in a folder names, sorted.
    pub fn shards(folder: &Path) -> Result<Vec<String>, CheckpointError> {
        let index = read_index(folder)?;
        Ok(shards(&index)?.into_iter().map(str::to_owned).collect())
    }

    /// Reads weights from memory; `name` is used in errors.
    pub fn from_bytes(name: &str, bytes: Cow<'static, [u8]>) -> Result<Self, CheckpointError> {
        let mut source = Self { files: Vec::new(), entries: BTreeMap::new() };
        source.add(name.to_owned(), Storage::Memory(bytes))?;
        Ok(source)
    }

    /// The files' bytes, for hashing.
    pub(crate) fn storages(&self) -> impl Iterator<Item = &Storage> {
        self.files.iter().map(|(_, storage)| storage)
    }

    /// Adds the tensors of one file.
    fn add(&mut self, file: String, storage: Storage) -> Result<(), CheckpointError> {
        let (header, data) = split(&file, storage.bytes())?;
        for (name, value) in header {
            if name == "__metadata__" {
                continue;
            }
            let bad =
                |reason: String| CheckpointError::malformed(&file, format!("tensor `{name}`: {reason}"));
            let entry: HeaderEntry = serde_json::from_value(value).map_err(|error| bad(error.to_string()))?;
            let (start, end) = entry.data_offsets;
            let length = (data.end - data.start) as u64;
            if start > end || end > length {
                return Err(bad(format!(
                    "bytes {start}..{end} of {length}: the file is truncated or damaged"
                )));
            }
            let bytes = data.start + start as usize..data.start + end as usize;
            let entry = Entry { storage: self.files.len(), dtype: entry.dtype, shape: entry.shape, bytes };
            if self.entries.insert(name.clone(), entry).is_some() {
                return Err(bad("stands in two files".to_owned()));
            }
        }
        self.files.push((file, storage));
        Ok(())
    }

    /// The integers called `name`, four bytes each, with their shape; `None` where there are none.
    pub(crate) fn integers(&self, name: &str) -> Result<Option<IntegerTensor<'_>>, CheckpointError> {
        let Some(entry) = self.entry(name) else { return Ok(None) };
        if entry.dtype != "I32" {
            let reason = format!("tensor `{name}`: type {} is not I32", entry.dtype);
            return Err(CheckpointError::malformed(&self.files[entry.storage].0, reason));
        }
        let words = self.data((name, entry), size_of::<i32>())?.as_chunks().0;
        Ok(Some(IntegerTensor { shape: &entry.shape, words }))
    }

    /// The bytes of a tensor, which fill its shape with elements of so many.
    fn data(&self, (name, entry): (&str, &Entry), element: usize) -> Result<&[u8], CheckpointError> {
        let (file, storage) = &self.files[entry.storage];
        let bytes = entry.shape.iter().try_fold(element, |product, extent| product.checked_mul(*extent));
        if bytes != Some(entry.bytes.len()) {
            let reason = format!("{} bytes do not fill shape {:?}", entry.bytes.len(), entry.shape);
            return Err(CheckpointError::malformed(file, format!("tensor `{name}`: {reason}")));
        }
        Ok(&storage.bytes()[entry.bytes.clone()])
    }

    /// The entry of a tensor. Files that were saved from the inner model lack the outer `model.`.
    fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name).or_else(|| self.entries.get(name.strip_prefix("model.")?))
    }
}

impl WeightSource for Safetensors {
    fn tensor(&self, name: &str) -> Result<RawTensor<'_>, CheckpointError> {
        let Some(entry) = self.entry(name) else {
            return Err(CheckpointError::MissingTensor { name: name.to_owned() });
        };
        let dtype = match entry.dtype.as_str() {
            "F32" => Dtype::F32,
            "F16" => Dtype::F16,
            "BF16" => Dtype::Bf16,
            other => {
                let reason =
                    format!("tensor `{name}`: type {other} is not supported, only F32, F16 and BF16");
                return Err(CheckpointError::malformed(&self.files[entry.storage].0, reason));
            }
        };
        let data = self.data((name, entry), dtype.bytes())?;
        Ok(RawTensor { dtype, shape: entry.shape.clone(), data: data.into() })
    }

    fn will_read(&self, name: &str) {
        if let Some(entry) = self.entry(name) {
            self.files[entry.storage].1.will_read(entry.bytes.clone());
        }
    }

    fn names(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }
}

/// Reads the index of a folder.
fn read_index(folder: &Path) -> Result<Index, CheckpointError> {
    let text = read_text(folder, INDEX_FILE)?;
    serde_json::from_str(&text).map_err(|error| CheckpointError::malformed(INDEX_FILE, error))
}

/// The files an index names, each of which must lie beside it.
fn shards(index: &Index) -> Result<BTreeSet<&str>, CheckpointError> {
    let shards: BTreeSet<&str> = index.weight_map.values().map(String::as_str).collect();
    match shards.iter().find(|shard| !is_plain_name(shard)) {
        Some(shard) => {
            let reason = format!("`{shard}` must be the name of a file in the same folder");
            Err(CheckpointError::field(INDEX_FILE, "weight_map", reason))
        }
        None => Ok(shards),
    }
}

/// A file's header, and where its data lies.
fn split(
    file: &str,
    bytes: &[u8],
) -> Result<(serde_json::Map<String, serde_json::Value>, Range<usize>), CheckpointError> {
    let truncated =
        || CheckpointError::malformed(file, "ends inside its header: truncated, or no safetensors file");
    let length = bytes.first_chunk::<8>().map(|length| u64::from_le_bytes(*length)).ok_or_else(truncated)?;
    if length > HEADER_BYTES_MAX {
        return Err(CheckpointError::malformed(
            file,
            format!("a header of {length} bytes: no safetensors file"),
        ));
    }
    let start = 8 + length as usize;
    let header = bytes.get(8..start).ok_or_else(truncated)?;
    let header = serde_json::from_slice(header).map_err(|error| {
        CheckpointError::malformed(file, format!("its header is no JSON object: {error}"))
    })?;
    Ok((header, start..bytes.len()))
}

/// Whether `name` names a file of the same folder: no separators, no way up.
fn is_plain_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name)
}

/// Maps a file: the only way not to hold the weights twice.
pub(crate) fn map(path: &Path) -> Result<Storage, CheckpointError> {
    let io = |source| CheckpointError::Io { file: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.len() == 0 {
        return Ok(Storage::Memory(Cow::Borrowed(&[]))); // an empty range cannot be mapped
    }
    // SAFETY: the map is read-only and private. Whoever changes a checkpoint in place while it is
    // served breaks the one assumption; checkpoints are replaced by new files, never rewritten.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(io)?;
    Ok(Storage::Mapped(map))
}

/// Reads a text file of `folder`.
pub fn read_text(folder: &Path, name: &str) -> Result<String, CheckpointError> {
    let file = folder.join(name);
    std::fs::read_to_string(&file).map_err(|source| CheckpointError::Io { file, source })
}

/// Reads a text file of `folder` that may be absent.
pub fn read_optional_text(folder: &Path, name: &str) -> Result<Option<String>, CheckpointError> {
    if folder.join(name).exists() { read_text(folder, name).map(Some) } else { Ok(None) }
}
