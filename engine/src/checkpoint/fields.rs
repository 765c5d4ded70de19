//! Typed access to the fields of a JSON file, with errors that name the file and the field.

use serde_json::{Map, Value};

use crate::checkpoint::error::CheckpointError;

/// The file of a model's shape, for errors.
pub(crate) const CONFIG_FILE: &str = "config.json";

/// Larger extents are a damaged file, and products of a few such numbers still fit 64 bits.
pub(crate) const EXTENT_MAX: u64 = 1 << 24;

/// An object of a JSON file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    file: &'a str,
    /// Dotted path of this object in the file, with a trailing dot, or empty.
    path: &'a str,
    object: &'a Map<String, Value>,
}

/// Parses a JSON file that must hold an object.
pub(crate) fn parse_object(file: &str, text: &str) -> Result<Value, CheckpointError> {
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(CheckpointError::malformed(file, "must hold a JSON object")),
        Err(error) => Err(CheckpointError::malformed(file, error)),
    }
}

impl<'a> Fields<'a> {
    /// The fields of `value`, which `path` leads to; `None` where it is no object.
    pub(crate) fn of(file: &'a str, path: &'a str, value: &'a Value) -> Option<Self> {
        value.as_object().map(|object| Self { file, path, object })
    }

    /// An error about `field`.
    pub(crate) fn error(&self, field: &str, reason: impl std::fmt::Display) -> CheckpointError {
        CheckpointError::field(self.file, format!("{}{field}", self.path), reason)
    }

    /// A field that is present and not null.
    pub(crate) fn get(&self, field: &str) -> Option<&'a Value> {
        self.object.get(field).filter(|value| !value.is_null())
    }

    /// Whether a field is present, null or not.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.object.contains_key(field)
    }

    /// A positive whole number.
    pub(crate) fn extent(&self, field: &str) -> Result<Option<usize>, CheckpointError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        match value.as_u64() {
            Some(number @ 1..=EXTENT_MAX) => Ok(Some(number as usize)),
            _ => {
                Err(self
                    .error(field, format!("must be a whole number from 1 to {EXTENT_MAX}, found {value}")))
            }
        }
    }

    /// A positive whole number that must be there.
    pub(crate) fn need_extent(&self, field: &str) -> Result<usize, CheckpointError> {
        self.extent(field)?.ok_or_else(|| self.error(field, "is missing"))
    }

    /// A positive finite number.
    pub(crate) fn positive(&self, field: &str) -> Result<Option<f32>, CheckpointError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        match value.as_f64().map(|number| number as f32) {
            Some(number) if number > 0.0 && number.is_finite() => Ok(Some(number)),
            _ => Err(self.error(field, format!("must be a positive number, found {value}"))),
        }
    }

    /// A positive finite number that must be there.
    pub(crate) fn need_positive(&self, field: &str) -> Result<f32, CheckpointError> {
        self.positive(field)?.ok_or_else(|| self.error(field, "is missing"))
    }

    /// True or false.
    pub(crate) fn flag(&self, field: &str) -> Result<Option<bool>, CheckpointError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        value
            .as_bool()
            .map(Some)
            .ok_or_else(|| self.error(field, format!("must be true or false, found {value}")))
    }

    /// Refuses a field that is neither missing nor `supported`.
    pub(crate) fn only(&self, field: &str, supported: &Value) -> Result<(), CheckpointError> {
        match self.get(field) {
            Some(value) if value != supported => {
                Err(self.error(field, format!("{value} is not supported, only {supported}")))
            }
            _ => Ok(()),
        }
    }

    /// A string.
    pub(crate) fn text(&self, field: &str) -> Result<Option<&'a str>, CheckpointError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.error(field, format!("must be a string, found {value}")))
    }

    /// One token id or a list of them.
    pub(crate) fn token_ids(&self, field: &str) -> Result<Vec<u32>, CheckpointError> {
        let id = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        let Some(value) = self.get(field) else { return Ok(Vec::new()) };
        let ids: Option<Vec<u32>> = match value {
            Value::Array(values) => values.iter().map(id).collect(),
            single => id(single).map(|id| vec![id]),
        };
        ids.ok_or_else(|| self.error(field, format!("must be a token id or a list of them, found {value}")))
    }
}

/// The width of a head where no field gives it.
pub(crate) fn divided(fields: &Fields<'_>, hidden: usize, heads: usize) -> Result<usize, CheckpointError> {
    if !hidden.is_multiple_of(heads) {
        return Err(
            fields.error("num_attention_heads", format!("must divide hidden_size ({hidden}), found {heads}"))
        );
    }
    Ok(hidden / heads)
}
