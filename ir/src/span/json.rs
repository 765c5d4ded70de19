//! Strict JSON, and where in it something stands.

use std::cell::RefCell;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::SpanError;

/// Where something stands: `$.g.input.seq[2].user`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Path<'a> {
    /// The whole.
    Root,
    /// Under a key.
    Key(&'a Path<'a>, &'a str),
    /// In an array.
    Index(&'a Path<'a>, usize),
}

impl Path<'_> {
    /// The error of what stands here.
    pub(super) fn error(&self, reason: impl Into<String>) -> SpanError {
        SpanError::At { path: self.to_string(), reason: reason.into() }
    }

    /// The same, as a result.
    pub(super) fn bad<T>(&self, reason: impl Into<String>) -> Result<T, SpanError> {
        Err(self.error(reason))
    }
}

/// Longest part of a key that an error shows.
const KEY_SHOWN_MAX: usize = 64;

impl fmt::Display for Path<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => out.write_str("$"),
            Self::Key(parent, key) => write!(out, "{parent}.{}", shown(key)),
            Self::Index(parent, index) => write!(out, "{parent}[{index}]"),
        }
    }
}

/// What an error shows of a text that may be of any length.
pub(super) fn shown(text: &str) -> &str {
    &text[..text.floor_char_boundary(KEY_SHOWN_MAX)]
}

/// Parses JSON in which no object has a key twice.
pub(super) fn parse(text: &[u8]) -> Result<Value, SpanError> {
    let found = RefCell::new(None);
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let strict = Strict { path: Path::Root, found: &found };
    let value = strict.deserialize(&mut deserializer).and_then(|value| deserializer.end().map(|()| value));
    value.map_err(|error| {
        found.take().unwrap_or_else(|| Path::Root.error(format!("not well-formed JSON: {error}")))
    })
}

/// A value and where it stands; `found` takes the error that serde has no place for.
#[derive(Clone, Copy)]
struct Strict<'a> {
    path: Path<'a>,
    found: &'a RefCell<Option<SpanError>>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        loop {
            let path = Path::Index(&self.path, values.len());
            match items.next_element_seed(Strict { path, found: self.found })? {
                Some(value) => values.push(value),
                None => return Ok(Value::Array(values)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                let error = self.path.error(format!("the key `{}` stands twice in one object", shown(&key)));
                self.found.replace(Some(error));
                return Err(de::Error::custom("a key stands twice"));
            }
            let path = Path::Key(&self.path, &key);
            let value = entries.next_value_seed(Strict { path, found: self.found })?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
