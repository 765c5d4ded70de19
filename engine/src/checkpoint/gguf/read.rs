//! The bytes of a GGUF file to metadata and the table of tensors; damage is refused by field or tensor.

use std::collections::BTreeMap;

use super::values::{Entry, List, MetaValue};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::ggml::BlockFormat;

/// Where data starts and tensors are placed, in bytes, unless `general.alignment` says otherwise.
pub(super) const ALIGNMENT: usize = 32;
/// Largest alignment that is believed, in bytes: a page of any common machine.
const ALIGNMENT_MAX: u64 = 65_536;
/// Most dimensions of a tensor, as in ggml.
const DIMENSIONS_MAX: u32 = 4;
/// Most values of a list, many times the largest vocabulary.
const LIST_MAX: u64 = 1 << 22;
/// Most pairs of metadata and most tensors, many times what the largest models have.
const ENTRIES_MAX: u64 = 1 << 17;

/// What a file says before its numbers.
pub(super) struct Contents {
    pub(super) metadata: BTreeMap<String, MetaValue>,
    pub(super) entries: BTreeMap<String, Entry>,
    /// Bytes before the tensors.
    pub(super) header: usize,
}

/// A place in a file.
pub(super) struct Reader<'a> {
    file: &'a str,
    bytes: &'a [u8],
    at: usize,
}

/// One row of the table: a name, extents (outermost first), a format's number, an offset in the data.
type TensorRow = (String, Vec<usize>, u32, u64);

impl<'a> Reader<'a> {
    /// At the start of `bytes`, which errors call `file`.
    pub(super) fn new(file: &'a str, bytes: &'a [u8]) -> Self {
        Self { file, bytes, at: 0 }
    }

    fn bad(&self, field: &str, reason: impl std::fmt::Display) -> CheckpointError {
        CheckpointError::field(self.file, field, reason)
    }

    /// Reads all but the tensors' numbers.
    pub(super) fn contents(mut self) -> Result<Contents, CheckpointError> {
        if self.take(4, "magic")? != b"GGUF" {
            return Err(self.bad("magic", "is not `GGUF`: no GGUF file"));
        }
        match self.u32("version")? {
            2 | 3 => {}
            other => return Err(self.bad("version", format!("is {other}, only 2 and 3 are known"))),
        }
        let tensors = self.count("tensor_count")?;
        let pairs = self.count("metadata_kv_count")?;
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
            table.push(self.row()?);
        }
        let entries = self.place_all(table, self.alignment(&metadata)?)?;
        Ok(Contents { metadata, entries, header: self.at })
    }

    /// Where data starts and tensors are placed.
    fn alignment(&self, metadata: &BTreeMap<String, MetaValue>) -> Result<u64, CheckpointError> {
        match metadata.get("general.alignment") {
            None => Ok(ALIGNMENT as u64),
            Some(MetaValue::Unsigned(value)) if value.is_power_of_two() && *value <= ALIGNMENT_MAX => {
                Ok(*value)
            }
            Some(_) => {
                let reason = format!("must be a power of two of at most {ALIGNMENT_MAX}");
                Err(self.bad("general.alignment", reason))
            }
        }
    }

    /// One row of the table.
    fn row(&mut self) -> Result<TensorRow, CheckpointError> {
        let name = self.text("a tensor's name")?;
        let dimensions = self.u32(&name)?;
        if dimensions > DIMENSIONS_MAX {
            let reason = format!("has {dimensions} dimensions, at most {DIMENSIONS_MAX} can be");
            return Err(self.bad(&name, reason));
        }
        let mut shape = Vec::new();
        for _ in 0..dimensions {
            let extent = self.u64(&name)?;
            let extent = usize::try_from(extent).map_err(|_| self.bad(&name, format!("extent {extent}")))?;
            shape.insert(0, extent);
        }
        let kind = self.u32(&name)?;
        let offset = self.u64(&name)?;
        Ok((name, shape, kind, offset))
    }

    /// Finds all tensors behind the table; no two may share a byte.
    fn place_all(
        &self,
        table: Vec<TensorRow>,
        alignment: u64,
    ) -> Result<BTreeMap<String, Entry>, CheckpointError> {
        let data = (self.at as u64).next_multiple_of(alignment);
        let mut entries = BTreeMap::new();
        for (name, shape, kind, offset) in table {
            if !offset.is_multiple_of(alignment) {
                let reason = format!("its offset {offset} is no multiple of the alignment, {alignment}");
                return Err(self.bad(&name, reason));
            }
            let entry = self.place(&name, shape, kind, data.checked_add(offset))?;
            if entries.insert(name.clone(), entry).is_some() {
                return Err(self.bad(&name, "is the name of two tensors"));
            }
        }
        let placed = entries.iter().filter_map(|(name, entry)| Some((entry.bytes.clone()?, name)));
        let mut placed: Vec<_> = placed.filter(|(bytes, _)| !bytes.is_empty()).collect();
        placed.sort_by_key(|(bytes, _)| bytes.start);
        if let Some([(_, first), (_, second)]) =
            placed.array_windows().find(|[first, second]| first.0.end > second.0.start)
        {
            return Err(self.bad(second, format!("overlaps the tensor `{first}`")));
        }
        Ok(entries)
    }

    /// The bytes of a tensor, checked against its shape and the file's length.
    fn place(
        &self,
        name: &str,
        shape: Vec<usize>,
        kind: u32,
        start: Option<u64>,
    ) -> Result<Entry, CheckpointError> {
        let Some(format) = BlockFormat::of_id(kind) else {
            return Ok(Entry { kind, shape, bytes: None }); // refused where it is used
        };
        if !shape.last().copied().unwrap_or(1).is_multiple_of(format.elements()) {
            let reason = format!("rows of {shape:?} are not whole blocks of {}", format.elements());
            return Err(self.bad(name, reason));
        }
        let elements = shape.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent));
        let length = elements.and_then(|count| (count / format.elements()).checked_mul(format.bytes()));
        let start = start.and_then(|start| usize::try_from(start).ok());
        let end = start.zip(length).and_then(|(start, length)| start.checked_add(length));
        match start.zip(end) {
            Some((start, end)) if end <= self.bytes.len() => {
                Ok(Entry { kind, shape, bytes: Some(start..end) })
            }
            _ => {
                let length = self.bytes.len();
                let reason = format!("{shape:?} does not fit the {length} bytes of the file: truncated");
                Err(self.bad(name, reason))
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

    /// How many entries follow.
    fn count(&mut self, field: &str) -> Result<u64, CheckpointError> {
        match self.u64(field)? {
            count if count <= ENTRIES_MAX => Ok(count),
            count => Err(self.bad(field, format!("is {count}, at most {ENTRIES_MAX} can be"))),
        }
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
        let start = self.at;
        if kind == 8 {
            for _ in 0..count {
                let length = self.u64(field)?;
                self.take(length, field)?;
            }
        } else {
            let size = size(kind).ok_or_else(|| self.bad(field, format!("lists the type {kind}")))?;
            self.take(size * count, field)?; // at most 8 times `LIST_MAX`
        }
        Ok(MetaValue::List(List { kind, count: count as usize, bytes: start..self.at }))
    }

    /// One value, no list.
    pub(super) fn scalar(&mut self, kind: u32, field: &str) -> Result<MetaValue, CheckpointError> {
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

/// Bytes of a number of type `kind`.
fn size(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}
