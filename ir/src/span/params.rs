//! The fields of a `g` that say how text is generated.

use std::sync::Arc;

use base::Constraint;
use serde_json::{Map, Value};

use super::error::SpanError;
use super::path::{Path, shown};
use super::query::Params;

/// Their names.
pub(super) const NAMES: [&str; 8] =
    ["model", "max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "constraint"];

/// Texts that can end an output.
const STOPS_MAX: usize = 16;

/// An object and where it stands.
#[derive(Clone, Copy)]
pub(super) struct SpanFields<'a> {
    pub(super) map: &'a Map<String, Value>,
    pub(super) path: &'a Path<'a>,
}

impl<'a> SpanFields<'a> {
    /// Reads an object whose keys are among these.
    pub(super) fn of(value: &'a Value, path: &'a Path<'a>, names: &[&[&str]]) -> Result<Self, SpanError> {
        let Value::Object(map) = value else { return path.bad("must be an object") };
        let unknown = map.keys().filter(|key| !names.iter().any(|names| names.contains(&key.as_str())));
        // The least, for what order keys are kept in is nobody's promise.
        match unknown.min() {
            Some(key) => path.bad(format!(
                "`{}` is not known here; what is: {}",
                shown(key),
                names.concat().join(", ")
            )),
            None => Ok(Self { map, path }),
        }
    }

    /// A field; `null` counts as absent.
    pub(super) fn get(self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// A field that must be there.
    pub(super) fn required(self, name: &str) -> Result<&'a Value, SpanError> {
        self.get(name).ok_or_else(|| self.path.error(format!("`{name}` is missing")))
    }

    /// A field that `read` reads, at its place.
    pub(super) fn read<T>(
        self,
        name: &str,
        read: impl FnOnce(&Value) -> Option<T>,
        must: &str,
    ) -> Result<Option<T>, SpanError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match read(value) {
            Some(found) => Ok(Some(found)),
            None => Path::Key(self.path, name).bad(format!("must be {must}, not {}", brief(value))),
        }
    }
}

/// A value as errors show it.
pub(super) fn brief(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::Object(_) => "an object".into(),
        Value::String(text) => format!("`{}`", shown(text)),
        other => other.to_string(),
    }
}

/// A whole number, quoted or not: substituting values into a query's text leaves the quotes.
pub(super) fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// A number, quoted or not.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok()).filter(|number| number.is_finite())
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Reads the fields.
pub(super) fn read(fields: SpanFields<'_>) -> Result<Params, SpanError> {
    let absent = Params::default();
    let model = fields.read("model", text, "a name")?;
    let max_tokens = fields.read("max_tokens", whole, "a whole number")?;
    let in_range = |value: &Value| number(value).filter(|number| (0.0..=2.0).contains(number));
    let temperature = fields.read("temperature", in_range, "a number from 0 to 2")?;
    let share = |value: &Value| number(value).filter(|number| *number > 0.0 && *number <= 1.0);
    let top_p = fields.read("top_p", share, "a number above 0 and at most 1")?;
    let count = |value: &Value| whole(value).and_then(|k| u32::try_from(k).ok()).filter(|k| *k > 0);
    let seed = |value: &Value| value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned));
    Ok(Params {
        model: model.map(Arc::from),
        max_tokens: max_tokens.filter(|tokens| *tokens > 0),
        temperature: temperature.map_or(absent.temperature, |number| number as f32),
        // The least above 0 rather than 0: a tiny share is legal and must not become an illegal one.
        top_p: top_p.map(|share| (share as f32).max(f32::MIN_POSITIVE)),
        top_k: fields.read("top_k", count, "a whole number above 0")?,
        seed: fields.read("seed", seed, "an integer of 64 bits")?,
        stop: stops(fields)?,
        constraint: fields.get("constraint").map(|value| constraint(value, fields.path)).transpose()?,
        place: fields.path.into(),
    })
}

fn stops(fields: SpanFields<'_>) -> Result<Vec<String>, SpanError> {
    let stops = |value: &Value| match value {
        Value::Array(items) if items.len() <= STOPS_MAX => items.iter().map(text).collect(),
        one => Some(vec![text(one)?]),
    };
    let must = format!("a text, or at most {STOPS_MAX} texts, none of them empty");
    Ok(fields.read("stop", stops, &must)?.unwrap_or_default())
}

/// Reads `{"choice": [..]}`, `{"integer": {"min": 1, "max": 5}}`, `{"regex": ".."}` or `{"json_schema":
/// {..}}`.
fn constraint(value: &Value, parent: &Path<'_>) -> Result<Constraint, SpanError> {
    let path = Path::Key(parent, "constraint");
    let fields = SpanFields::of(value, &path, &[&["choice", "integer", "regex", "json_schema"]])?;
    let choice = |value: &Value| {
        let texts: Option<Vec<String>> = value.as_array()?.iter().map(text).collect();
        texts.filter(|texts| !texts.is_empty()).map(Constraint::Choice)
    };
    let integer = |value: &Value| {
        let map = value.as_object().filter(|map| map.len() == 2)?;
        // What compiles it counts in double precision.
        let bound = |name| map.get(name)?.as_i64().filter(|bound| bound.unsigned_abs() <= 1 << 53);
        let (low, high) = (bound("min")?, bound("max")?);
        (low <= high).then_some(Constraint::Integer { low, high })
    };
    let schema = |value: &Value| value.is_object().then(|| Constraint::JsonSchema(value.to_string()));
    let found = [
        fields.read("choice", choice, "texts, none of them empty")?,
        fields.read(
            "integer",
            integer,
            "`min` and `max`, integers of up to 2^53 either way, in this order",
        )?,
        fields.read("regex", |value| text(value).map(Constraint::Regex), "a text that is not empty")?,
        fields.read("json_schema", schema, "a JSON schema, an object")?,
    ];
    let mut found = found.into_iter().flatten();
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        _ => path.bad("must have one of choice, integer, regex and json_schema"),
    }
}
