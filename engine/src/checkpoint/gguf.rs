//! Reads a GGUF file: metadata, the table of tensors, and their numbers.
//!
//! The layout is that of ggml's `gguf.md`, versions 2 and 3, little endian. A file is mapped; nothing is
//! allocated by a count before the bytes that it promises are known to be there. This must not know which
//! metadata or tensors a model needs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use crate::checkpoint::CheckpointError;
use crate::checkpoint::ggml::BlockFormat;
use crate::checkpoint::safetensors::{Storage, map};

/// Where data starts and tensors are placed, in bytes, unless `general.alignment` says otherwise.
const ALIGNMENT: u64 = 32;
/// Largest alignment that is believed, in bytes: a page of any common machine.
const ALIGNMENT_MAX: u64 = 65_536;
/// Most dimensions of a tensor, as in ggml.
const DIMENSIONS_MAX: u32 = 4;

/// Most values of a list, many times the largest vocabulary: a byte of a file becomes a whole [`MetaValue`].
const LIST_MAX: u64 = 1 << 24;

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
    List(Vec<MetaValue>),
}

/// Where a tensor lies and how.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    format: BlockFormat,
    shape: Vec<usize>,
    bytes: Range<usize>,
}

/// An open file.
#[derive(Debug)]
pub struct Gguf {
    file: String,
    storage: Storage,
    metadata: BTreeMap<String, MetaValue>,
    entries: BTreeMap<String, Entry>,
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
        let (metadata, entries) = Reader { file, bytes: storage.bytes(), at: 0 }.contents()?;
        Ok(Self { file: file.to_owned(), storage, metadata, entries })
    }

    /// A value of the metadata.
    pub fn metadata(&self, key: &str) -> Option<&MetaValue> {
        self.metadata.get(key)
    }

    /// All tensors' names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// A tensor's shape, outermost extent first, its format, and its bytes.
    pub fn tensor(&self, name: &str) -> Result<(&[usize], BlockFormat, &[u8]), CheckpointError> {
        let entry =
            self.entries.get(name).ok_or_else(|| CheckpointError::MissingTensor { name: name.to_owned() })?;
        Ok((&entry.shape, entry.format, &self.storage.bytes()[entry.bytes.clone()]))
    }

    /// What the file is called in errors.
    pub fn file(&self) -> &str {
        &self.file
    }
}

/// A place in a file.
struct Reader<'a> {
    file: &'a str,
    bytes: &'a [u8],
    at: usize,
}

type Contents = (BTreeMap<String, MetaValue>, BTreeMap<String, Entry>);

impl<'a> Reader<'a> {
    fn bad(&self, field: &str, reason: impl std::fmt::Display) -> CheckpointError {
        CheckpointError::field(self.file, field, reason)
    }

    fn contents(mut self) -> Result<Contents, CheckpointError> {
        if self.take(4, "magic")? != b"GGUF" {
            return Err(self.bad("magic", "is not `GGUF`: no GGUF file"));
        }
        match self.u32("version")? {
            2 | 3 => {}
            other => return Err(self.bad("version", format!("is {other}, only 2 and 3 are known"))),
        }
        let tensors = self.u64("tensor_count")?;
        let pairs = self.u64("metadata_kv_count")?;
        let mut metadata = BTreeMap::new();
        for _ in 0..pairs {
            let key = self.text("a metadata key")?;
            let kind = self.u32(&key)?;
            let value = self.value(kind, &key)?;
            if metadata.insert(key.clone(), value).is_some() {
                return Err(self.bad(&key, "stands there twice"));
            }
        }
        let mut table = Vec::new();
        for _ in 0..tensors {
            table.push(self.tensor_row()?);
        }
        let alignment = match metadata.get("general.alignment") {
            None => ALIGNMENT,
            Some(MetaValue::Unsigned(value)) if (1..=ALIGNMENT_MAX).contains(value) => *value,
            Some(_) => {
                let reason = format!("must be a whole number from 1 to {ALIGNMENT_MAX}");
                return Err(self.bad("general.alignment", reason));
            }
        };
        let data = (self.at as u64).next_multiple_of(alignment);
        let mut entries = BTreeMap::new();
        for (name, format, shape, offset) in table {
            let entry = self.place(&name, format, shape, data.checked_add(offset))?;
            if entries.insert(name.clone(), entry).is_some() {
                return Err(self.bad(&name, "is the name of two tensors"));
            }
        }
        Ok((metadata, entries))
    }

    /// One row of the table: name, extents (innermost first), format, offset in the data.
    fn tensor_row(&mut self) -> Result<(String, BlockFormat, Vec<usize>, u64), CheckpointError> {
        let name = self.text("a tensor's name")?;
        let dimensions = self.u32(&name)?;
        if dimensions > DIMENSIONS_MAX {
            return Err(
                self.bad(&name, format!("has {dimensions} dimensions, at most {DIMENSIONS_MAX} can be"))
            );
        }
        let mut shape = Vec::new();
        for _ in 0..dimensions {
            let extent = self.u64(&name)?;
            let extent = usize::try_from(extent).map_err(|_| self.bad(&name, format!("extent {extent}")))?;
            shape.insert(0, extent);
        }
        let id = self.u32(&name)?;
        let format = BlockFormat::of_id(id).ok_or_else(|| {
            let known = "F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K";
            self.bad(&name, format!("has the type {id}, which is not supported, only {known}"))
        })?;
        Ok((name.clone(), format, shape, self.u64(&name)?))
    }

    /// The bytes of a tensor, checked against its shape and the file's length.
    fn place(
        &self,
        name: &str,
        format: BlockFormat,
        shape: Vec<usize>,
        start: Option<u64>,
    ) -> Result<Entry, CheckpointError> {
        if !shape.last().copied().unwrap_or(1).is_multiple_of(format.elements()) {
            let reason = format!("rows of {shape:?} are not whole blocks of {}", format.elements());
            return Err(self.bad(name, reason));
        }
        let elements = shape.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent));
        let length = elements.and_then(|count| (count / format.elements()).checked_mul(format.bytes()));
        let start = start.and_then(|start| usize::try_from(start).ok());
        let end = start.zip(length).and_then(|(start, length)| start.checked_add(length));
        match start.zip(end) {
            Some((start, end)) if end <= self.bytes.len() => Ok(Entry { format, shape, bytes: start..end }),
            _ => {
                let length = self.bytes.len();
                Err(self
                    .bad(name, format!("{shape:?} does not fit the {length} bytes of the file: truncated")))
            }
        }
    }

    fn take(&mut self, count: u64, field: &str) -> Result<&'a [u8], CheckpointError> {
        let left = &self.bytes[self.at..];
        match usize::try_from(count).ok().and_then(|count| left.get(..count)) {
            Some(taken) => {
                self.at += taken.len();
                Ok(taken)
            }
            None => Err(self.bad(field, format!("needs {count} bytes, {} are left: truncated", left.len()))),
        }
    }

    fn number<const N: usize>(&mut self, field: &str) -> Result<[u8; N], CheckpointError> {
        let taken = self.take(N as u64, field)?;
        Ok(taken.try_into().expect("`take` gives as many bytes as it is asked for"))
    }

    fn u32(&mut self, field: &str) -> Result<u32, CheckpointError> {
        self.number(field).map(u32::from_le_bytes)
    }

    fn u64(&mut self, field: &str) -> Result<u64, CheckpointError> {
        self.number(field).map(u64::from_le_bytes)
    }

    fn text(&mut self, field: &str) -> Result<String, CheckpointError> {
        let length = self.u64(field)?;
        let bytes = self.take(length, field)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|error| self.bad(field, error))
    }

    /// A value of type `kind`, which may be a list.
    fn value(&mut self, kind: u32, field: &str) -> Result<MetaValue, CheckpointError> {
        if kind != 9 {
            return self.scalar(kind, field);
        }
        let kind = self.u32(field)?;
        let count = self.u64(field)?;
        if count > LIST_MAX {
            return Err(self.bad(field, format!("has {count} values, at most {LIST_MAX} can be")));
        }
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(self.scalar(kind, field)?);
        }
        Ok(MetaValue::List(values))
    }

    fn scalar(&mut self, kind: u32, field: &str) -> Result<MetaValue, CheckpointError> {
        Ok(match kind {
            0 => MetaValue::Unsigned(u8::from_le_bytes(self.number(field)?).into()),
            1 => MetaValue::Signed(i8::from_le_bytes(self.number(field)?).into()),
            2 => MetaValue::Unsigned(u16::from_le_bytes(self.number(field)?).into()),
            3 => MetaValue::Signed(i16::from_le_bytes(self.number(field)?).into()),
            4 => MetaValue::Unsigned(self.u32(field)?.into()),
            5 => MetaValue::Signed(i32::from_le_bytes(self.number(field)?).into()),
            6 => MetaValue::Float(f32::from_le_bytes(self.number(field)?).into()),
            7 => match self.number(field)? {
                [0] => MetaValue::Flag(false),
                [1] => MetaValue::Flag(true),
                [other] => return Err(self.bad(field, format!("is {other}, a flag is 0 or 1"))),
            },
            8 => MetaValue::Text(self.text(field)?),
            10 => MetaValue::Unsigned(self.u64(field)?),
            11 => MetaValue::Signed(i64::from_le_bytes(self.number(field)?)),
            12 => MetaValue::Float(f64::from_le_bytes(self.number(field)?)),
            other => return Err(self.bad(field, format!("has the type {other}, which is no scalar"))),
        })
    }
}

#[cfg(test)]
mod tests;
