//! The items that a `map` goes over, and what they put into the texts of its query.
//!
//! An item is a text, called `item`, or an object of texts, each called by its key. Inside a `map` texts are
//! templates, as those of a relQuery are (`{item}`, and `{{` for a brace); what is put in is never read again.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::error::SpanError;
use super::params::brief;
use super::path::{Path, shown};
use crate::template::{Template, TemplatePart};

/// What an item that is no object is called.
const NAME: &str = "item";

/// An item: texts by their names.
#[derive(Debug)]
pub(super) struct MapItem(BTreeMap<String, String>);

impl MapItem {
    /// Reads the items of an array; there is one at least.
    pub(super) fn all(value: &Value, path: &Path<'_>) -> Result<Vec<Self>, SpanError> {
        let items = value.as_array().filter(|items| !items.is_empty());
        let Some(items) = items else {
            return path.bad(format!("must be an array of at least one item, not {}", brief(value)));
        };
        let item = |(index, item)| Self::read(item, &Path::Index(path, index));
        items.iter().enumerate().map(item).collect()
    }

    fn read(value: &Value, path: &Path<'_>) -> Result<Self, SpanError> {
        let entry =
            |(name, value): (&String, &Value)| Ok((name.clone(), text(value, &Path::Key(path, name))?));
        let texts = match value {
            Value::Object(map) => map.iter().map(entry).collect::<Result<_, SpanError>>()?,
            one => BTreeMap::from([(NAME.to_owned(), text(one, path)?)]),
        };
        Ok(Self(texts))
    }
}

fn text(value: &Value, path: &Path<'_>) -> Result<String, SpanError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            path.bad(format!("must be a text, a number, true or false, not {}", brief(value)))
        }
    }
}

/// A text with items put in, that of the innermost `map` first; what stands in none is as it is written. Of
/// more bytes than there may be in all, `None`: a text that names a large item often is not made at all.
pub(super) fn fill<'a>(
    text: &'a str,
    items: &[MapItem],
    bytes_max: usize,
    path: &Path<'_>,
) -> Result<Option<Cow<'a, str>>, SpanError> {
    if items.is_empty() || text.is_empty() {
        return Ok(Some(text.into()));
    }
    let template = Template::parse(text).or_else(|error| path.bad(error.to_string()))?;
    let mut filled = String::new();
    for part in template.parts() {
        filled += match part {
            TemplatePart::Text(text) => text,
            TemplatePart::Field(name) => find(name, items, path)?,
            TemplatePart::Record => find("*", items, path)?,
        };
        if filled.len() > bytes_max {
            return Ok(None);
        }
    }
    Ok(Some(filled.into()))
}

fn find<'a>(name: &str, items: &'a [MapItem], path: &Path<'_>) -> Result<&'a str, SpanError> {
    let found = items.iter().rev().find_map(|item| item.0.get(name));
    found.map(String::as_str).ok_or_else(|| {
        let known = items.iter().flat_map(|item| item.0.keys()).map(|name| shown(name));
        let known = known.collect::<Vec<_>>().join(", ");
        path.error(format!("`{{{}}}` is in no item; the item has {known}", shown(name)))
    })
}
