//! The body of `/v1/sql`.

use std::collections::BTreeMap;

use base::Millis;
use serde_json::Value;
use serving::error::RequestError;
use sql::format::ResultFormat;

use crate::json::JsonFields;
use crate::wire::relquery::deadline;

/// Longest statement, in bytes.
const QUERY_BYTES_MAX: usize = 1_000_000;

/// A statement and how its result is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct SqlRequest {
    pub query: String,
    pub format: ResultFormat,
    /// Settings of the session, as text.
    pub settings: BTreeMap<String, String>,
    /// After which time nobody waits any more.
    pub deadline: Option<Millis>,
}

impl SqlRequest {
    /// Reads and checks a body.
    pub fn parse(body: &[u8]) -> Result<Self, RequestError> {
        Self::read(crate::json::object(body).map_err(of_large)?)
    }

    /// Reads and checks the fields.
    pub fn read(mut fields: JsonFields) -> Result<Self, RequestError> {
        let Some(query) = fields.string("query")? else { return fields.bad("query", "is required") };
        if query.len() > QUERY_BYTES_MAX {
            let what = format!("`query` of {} bytes", query.len());
            return Err(RequestError::TooLarge { what, limit: format!("{QUERY_BYTES_MAX} bytes") });
        }
        let format = match fields.string("format")? {
            None => ResultFormat::default(),
            Some(name) => match name.parse() {
                Ok(format) => format,
                Err(reason) => return fields.bad("format", reason),
            },
        };
        let settings = match fields.take("settings") {
            None => BTreeMap::new(),
            Some(Value::Object(map)) => settings(map, &fields)?,
            Some(_) => return fields.bad("settings", "must be an object"),
        };
        let deadline = deadline(&mut fields)?;
        fields.finish()?;
        Ok(Self { query, format, settings, deadline })
    }
}

/// An integer that no number keeps is none of a setting either: its limits are told.
fn of_large(error: RequestError) -> RequestError {
    let RequestError::Invalid { field, .. } = &error else { return error };
    match field.strip_prefix("settings.").and_then(sql::number_limits) {
        Some(limits) => RequestError::invalid(field.clone(), limits),
        None => error,
    }
}

fn settings(
    map: serde_json::Map<String, Value>,
    fields: &JsonFields,
) -> Result<BTreeMap<String, String>, RequestError> {
    let one = |(name, value): (String, Value)| match value {
        Value::String(text) => Ok((name, text)),
        Value::Number(_) | Value::Bool(_) => Ok((name, value.to_string())),
        _ => fields.bad(&format!("settings.{name}"), "must be a string, a number or a boolean"),
    };
    map.into_iter().map(one).collect()
}
