//! Typed access to a file's metadata, with errors that name the key.

use super::file::Gguf;
use super::read::Reader;
use super::values::MetaValue;
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::fields::EXTENT_MAX;

/// A key behind the architecture's name.
pub(super) fn key(gguf: &Gguf, part: &str) -> Result<String, CheckpointError> {
    Ok(format!("{}.{part}", gguf.need("general.architecture", Gguf::text)?))
}

impl Gguf {
    /// An error about `key`.
    pub(super) fn error(&self, key: &str, reason: impl std::fmt::Display) -> CheckpointError {
        CheckpointError::field(&self.file, key, reason)
    }

    /// A key that has to be there.
    pub(super) fn need<'a, T>(
        &'a self,
        key: &str,
        read: impl FnOnce(&'a Self, &str) -> Result<Option<T>, CheckpointError>,
    ) -> Result<T, CheckpointError> {
        read(self, key)?.ok_or_else(|| self.error(key, "is missing"))
    }

    /// A string.
    pub(super) fn text(&self, key: &str) -> Result<Option<&str>, CheckpointError> {
        match self.metadata(key) {
            None => Ok(None),
            Some(MetaValue::Text(text)) => Ok(Some(text)),
            Some(_) => Err(self.error(key, "must be a string")),
        }
    }

    /// True or false.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, CheckpointError> {
        match self.metadata(key) {
            None => Ok(None),
            Some(MetaValue::Flag(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.error(key, "must be true or false")),
        }
    }

    /// A whole number of any width, not below zero.
    fn whole(&self, key: &str) -> Result<Option<u64>, CheckpointError> {
        let number = match self.metadata(key) {
            None => return Ok(None),
            Some(MetaValue::Unsigned(number)) => Some(*number),
            Some(MetaValue::Signed(number)) => u64::try_from(*number).ok(),
            Some(MetaValue::List(_)) => {
                return Err(self.error(key, "is a list: layers that differ are not supported"));
            }
            Some(_) => None,
        };
        number.map(Some).ok_or_else(|| self.error(key, "must be a whole number, not below zero"))
    }

    /// A token id.
    pub(super) fn id(&self, key: &str) -> Result<Option<u32>, CheckpointError> {
        // Some files write -1, as a signed or an unsigned number, where there is no such token.
        if let Some(MetaValue::Signed(-1) | MetaValue::Unsigned(0xffff_ffff)) = self.metadata(key) {
            return Ok(None);
        }
        let Some(number) = self.whole(key)? else { return Ok(None) };
        u32::try_from(number).map(Some).map_err(|_| self.error(key, format!("{number} is no token id")))
    }

    /// A positive whole number.
    pub(super) fn extent(&self, key: &str) -> Result<Option<usize>, CheckpointError> {
        match self.whole(key)? {
            None => Ok(None),
            Some(number @ 1..=EXTENT_MAX) => Ok(Some(number as usize)),
            Some(number) => Err(self.error(key, format!("must be from 1 to {EXTENT_MAX}, found {number}"))),
        }
    }

    /// A positive finite number.
    pub(super) fn positive(&self, key: &str) -> Result<Option<f32>, CheckpointError> {
        match self.metadata(key) {
            None => Ok(None),
            Some(MetaValue::Float(number)) if (*number as f32) > 0.0 && (*number as f32).is_finite() => {
                Ok(Some(*number as f32))
            }
            Some(_) => Err(self.error(key, "must be a positive number")),
        }
    }

    /// Whether a key is missing, or says what absence says: zero or false.
    pub(super) fn is_zero(&self, key: &str) -> bool {
        match self.metadata(key) {
            None | Some(MetaValue::Unsigned(0) | MetaValue::Signed(0) | MetaValue::Flag(false)) => true,
            Some(MetaValue::Float(value)) => *value == 0.0,
            Some(_) => false,
        }
    }

    /// A list of strings.
    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<&str>>, CheckpointError> {
        let Some(value) = self.metadata(key) else { return Ok(None) };
        let MetaValue::List(list) = value else { return Err(self.error(key, "must be a list of strings")) };
        if list.kind != 8 {
            return Err(self.error(key, "must be a list of strings"));
        }
        let mut rest = &self.storage.bytes()[list.bytes.clone()];
        let mut texts = Vec::with_capacity(list.count); // eight bytes of the file at least stand for each
        while let Some((length, after)) = rest.split_first_chunk::<8>() {
            let (text, after) = after.split_at(u64::from_le_bytes(*length) as usize); // checked when read
            texts.push(std::str::from_utf8(text).map_err(|error| self.error(key, error))?);
            rest = after;
        }
        Ok(Some(texts))
    }

    /// A list of numbers of any type.
    pub(super) fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, CheckpointError> {
        let Some(value) = self.metadata(key) else { return Ok(None) };
        let bad = || self.error(key, "must be a list of numbers");
        let MetaValue::List(list) = value else { return Err(bad()) };
        let mut reader = Reader::new(&self.file, &self.storage.bytes()[list.bytes.clone()]);
        let number = |_| match reader.scalar(list.kind, key)? {
            MetaValue::Unsigned(number) => Ok(number as f64),
            MetaValue::Signed(number) => Ok(number as f64),
            MetaValue::Float(number) => Ok(number),
            _ => Err(bad()),
        };
        (0..list.count).map(number).collect::<Result<_, _>>().map(Some)
    }
}
