//! Constraints on the wire: what an output must look like, in our own words.
//!
//! `{"choice": [..]}`, `{"integer": {"min": 1, "max": 5}}`, `{"regex": ".."}` or `{"json_schema": {..}}`.
//! Other dialects read their own fields and end in the same checks. Must not know how a constraint is kept
//! to.

use base::{Compiled, Constraint};
use serde_json::Value;
use serving::error::RequestError;

use crate::config::LimitsConfig;
use crate::json::JsonFields;
use crate::wire::ValidationContext;

/// Our name of the field.
const FIELD: &str = "constraint";

/// The largest bound of an integer either way.
const INTEGER_MAX: u64 = 1 << 53;

/// A constraint that outputs can be held to.
pub type Checked = (Constraint, Compiled);

/// Takes `constraint`.
pub fn take(
    fields: &mut JsonFields,
    context: ValidationContext<'_>,
) -> Result<Option<Checked>, RequestError> {
    let Some(value) = fields.take(FIELD) else { return Ok(None) };
    let path = fields.name(FIELD);
    let mut inner = JsonFields::nested(path.clone(), value)?;
    let mut found = Vec::new();
    if let Some(value) = inner.take("choice") {
        found.push(("choice", choice(&inner.name("choice"), value, context.limits)?));
    }
    if let Some(value) = inner.take("integer") {
        found.push(("integer", integer(&inner.name("integer"), value)?));
    }
    if let Some(value) = inner.take("regex") {
        found.push(("regex", regex(&inner.name("regex"), value)?));
    }
    if let Some(value) = inner.take("json_schema") {
        found.push(("json_schema", schema(&inner.name("json_schema"), &value)?));
    }
    let constraint = match (found.pop(), found.is_empty()) {
        (Some((name, constraint)), true) => checked(&inner.name(name), constraint, context)?,
        _ => {
            return Err(RequestError::invalid(
                path,
                "must have one of choice, integer, regex and json_schema",
            ));
        }
    };
    inner.finish()?;
    Ok(Some(constraint))
}

/// Refuses a constraint that is too large, or that this model's executor cannot keep to.
pub fn checked(
    field: &str,
    constraint: Constraint,
    context: ValidationContext<'_>,
) -> Result<Checked, RequestError> {
    let bytes = match &constraint {
        Constraint::Choice(texts) => texts.iter().map(String::len).sum(),
        Constraint::Integer { .. } => 0,
        Constraint::Regex(text)
        | Constraint::JsonSchema(text)
        | Constraint::Grammar(text)
        | Constraint::Ebnf(text) => text.len(),
        Constraint::StructuralTag(tag) => tag.schema.len() + tag.otherwise.as_ref().map_or(0, String::len),
        Constraint::TriggeredTags(tags) => {
            tags.tags.iter().map(|tag| tag.begin.len() + tag.schema.len() + tag.end.len()).sum()
        }
        // Cell functions alone ask for these, with limits of their own.
        Constraint::Excerpt { .. } | Constraint::Items(_) | Constraint::Reading { .. } => 0,
    };
    let limit = context.limits.constraint_bytes_max.0;
    if bytes as u64 > limit {
        return Err(RequestError::invalid(field, format!("has {bytes} bytes; at most {limit} are allowed")));
    }
    let compiled = context.constraints.compile(field, &constraint)?;
    Ok((constraint, compiled))
}

/// Texts to choose from.
pub fn choice(field: &str, value: Value, limits: &LimitsConfig) -> Result<Constraint, RequestError> {
    let bad = |reason: String| Err(RequestError::invalid(field, reason));
    let Value::Array(items) = value else { return bad("must be an array of strings".into()) };
    if items.is_empty() || items.len() > limits.choices_max {
        return bad(format!("must have 1 to {} texts, has {}", limits.choices_max, items.len()));
    }
    let mut texts = Vec::with_capacity(items.len());
    for item in items {
        match item {
            Value::String(text) if !text.is_empty() => texts.push(text),
            _ => return bad("must hold texts that are not empty".into()),
        }
    }
    Ok(Constraint::Choice(texts))
}

/// A range of integers.
fn integer(field: &str, value: Value) -> Result<Constraint, RequestError> {
    let mut fields = JsonFields::nested(field, value)?;
    // What compiles it counts in double precision.
    let is_exact = |number: &i64| number.unsigned_abs() <= INTEGER_MAX;
    let mut bound = |name: &str| match fields.require(name)?.as_i64().filter(is_exact) {
        Some(number) => Ok(number),
        None => fields.bad(name, format!("must be an integer from -{INTEGER_MAX} to {INTEGER_MAX}")),
    };
    let (low, high) = (bound("min")?, bound("max")?);
    if low > high {
        return fields.bad("max", format!("must not be below `min`, got {low} to {high}"));
    }
    fields.finish()?;
    Ok(Constraint::Integer { low, high })
}

/// A regular expression.
pub fn regex(field: &str, value: Value) -> Result<Constraint, RequestError> {
    match value {
        Value::String(pattern) if !pattern.is_empty() => Ok(Constraint::Regex(pattern)),
        _ => Err(RequestError::invalid(field, "must be a string that is not empty")),
    }
}

/// A grammar, in EBNF where a line of it begins so (`root ::=`), else in the notation of Lark.
pub fn grammar(field: &str, value: Value) -> Result<Constraint, RequestError> {
    match value {
        Value::String(text) if text.lines().any(begins_rule_of_ebnf) => Ok(Constraint::Ebnf(text)),
        Value::String(text) if !text.trim().is_empty() => Ok(Constraint::Grammar(text)),
        _ => Err(RequestError::invalid(field, "must be the text of a grammar, a string that is not empty")),
    }
}

fn begins_rule_of_ebnf(line: &str) -> bool {
    let is_name = |name: &str| {
        let mut chars = name.trim().chars().peekable();
        chars.peek().is_some() && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    line.split_once("::=").is_some_and(|(name, _)| is_name(name))
}

/// A JSON Schema.
pub fn schema(field: &str, value: &Value) -> Result<Constraint, RequestError> {
    match value {
        Value::Object(_) => Ok(Constraint::JsonSchema(value.to_string())),
        _ => Err(RequestError::invalid(field, "must be a JSON schema, an object")),
    }
}
