//! Constraints in the words of OpenAI (`response_format`), of vLLM (`guided_*`, `structured_outputs`) and of
//! SGLang (`regex`, `json_schema`). At most one may be asked for. What is unknown in their objects is told or refused.

use base::Constraint;
use serde_json::{Value, json};
use serving::error::RequestError;

use super::neutral::left_out;
use crate::json::{self, JsonFields};
use crate::wire::ValidationContext;
use crate::wire::constraint::{Checked, checked, choice, grammar, regex, schema};

/// Where each may stand at the top of a body.
const NAMES: [(&str, Form); 7] = [
    ("guided_choice", Form::Choice),
    ("guided_regex", Form::Regex),
    ("guided_json", Form::Json),
    ("guided_grammar", Form::Grammar),
    ("structured_outputs", Form::Any),
    ("regex", Form::Regex),
    ("json_schema", Form::Json),
];

/// What a field holds.
#[derive(Clone, Copy)]
enum Form {
    Choice,
    Regex,
    /// A schema, or the text of one.
    Json,
    /// The text of a grammar.
    Grammar,
    /// An object with one of the others.
    Any,
}

/// A constraint and the full name of the field that asked for it.
type Named = (String, Constraint);

/// Takes the constraint of a body, in whichever dialect. One was `already` taken in our own. `ignored` gets the names of
/// what is unknown in their objects.
pub(super) fn take(
    fields: &mut JsonFields,
    already: bool,
    context: ValidationContext<'_>,
    ignored: &mut Vec<String>,
) -> Result<Option<Checked>, RequestError> {
    let mut found: Vec<Named> = take_response_format(fields, context, ignored)?.into_iter().collect();
    for (name, form) in NAMES {
        if let Some(value) = fields.take(name) {
            found.extend(read(fields.name(name), form, value, (context, &mut *ignored))?);
        }
    }
    let Some((field, constraint)) = found.pop() else { return Ok(None) };
    // Some clients say the same in the words of old servers and of new ones.
    found.retain(|(_, other)| *other != constraint);
    if already || !found.is_empty() {
        return Err(RequestError::invalid(field, "only one constraint can be kept to"));
    }
    checked(&field, constraint, context).map(Some)
}

/// Takes `response_format`.
fn take_response_format(
    fields: &mut JsonFields,
    context: ValidationContext<'_>,
    ignored: &mut Vec<String>,
) -> Result<Option<Named>, RequestError> {
    let Some(value) = fields.take("response_format") else { return Ok(None) };
    let mut format = JsonFields::nested("response_format", value)?;
    let constraint = match format.string("type")?.as_deref() {
        Some("text") => None,
        // Servers of llama.cpp, Together and Fireworks take a schema beside it.
        Some("json_object") => Some(match format.take("schema") {
            None => (format.name("type"), any_object()),
            Some(value) => {
                let field = format.name("schema");
                let constraint = schema(&field, &value)?;
                (field, constraint)
            }
        }),
        Some("json_schema") => {
            let value = format.require("json_schema")?;
            let mut inner = JsonFields::nested(format.name("json_schema"), value)?;
            inner.string("name")?;
            inner.string("description")?;
            // A schema is always kept to. Strict ones are closed, as OpenAI has them: an object has the properties that
            // are named, or a model writes others until it is cut off.
            let is_strict = inner.bool("strict")?.unwrap_or(false);
            let (field, mut value) = (inner.name("schema"), inner.take("schema"));
            ignored.extend(left_out(inner, context.unknown_fields)?);
            value.iter_mut().filter(|_| is_strict).for_each(close);
            let constraint = value.map_or_else(|| Ok(any_object()), |value| schema(&field, &value))?;
            Some((field, constraint))
        }
        Some(_) => return format.bad("type", "must be text, json_object or json_schema"),
        None => return format.bad("type", "is required"),
    };
    ignored.extend(left_out(format, context.unknown_fields)?);
    Ok(constraint)
}

/// Closes all objects of a schema that name properties and do not say whether they are. Those whose properties stand in several schemas
/// (`allOf`) stay as they are: each of them alone would refuse the others' properties.
pub(super) fn close(schema: &mut Value) {
    let Value::Object(keywords) = schema else { return };
    for (keyword, value) in keywords.iter_mut() {
        match (keyword.as_str(), value) {
            ("properties" | "$defs" | "definitions", Value::Object(schemas)) => {
                schemas.values_mut().for_each(close);
            }
            ("anyOf" | "oneOf" | "prefixItems", Value::Array(schemas)) => schemas.iter_mut().for_each(close),
            ("items", items) => close(items),
            _ => {}
        }
    }
    let says = ["additionalProperties", "patternProperties", "allOf", "unevaluatedProperties"];
    if keywords.contains_key("properties") && !says.iter().any(|keyword| keywords.contains_key(*keyword)) {
        keywords.insert("additionalProperties".into(), false.into());
    }
}

/// Any JSON object.
fn any_object() -> Constraint {
    Constraint::JsonSchema(json!({ "type": "object" }).to_string())
}

/// Reads one field.
fn read(
    field: String,
    form: Form,
    value: Value,
    (context, ignored): (ValidationContext<'_>, &mut Vec<String>),
) -> Result<Option<Named>, RequestError> {
    let constraint = match (form, value) {
        (Form::Choice, value) => choice(&field, value, context.limits)?,
        (Form::Regex, value) => regex(&field, value)?,
        (Form::Grammar, value) => grammar(&field, value)?,
        (Form::Json, Value::String(text)) if text.trim().is_empty() => {
            return Err(RequestError::invalid(field, "must be a JSON schema, an object"));
        }
        (Form::Json, Value::String(text)) => match json::value(text.as_bytes()) {
            Ok(value) => schema(&field, &value)?,
            Err(error) => return Err(RequestError::invalid(field, error.to_string())),
        },
        (Form::Json, value) => schema(&field, &value)?,
        (Form::Any, value) => return structured(field, value, (context, ignored)),
    };
    Ok(Some((field, constraint)))
}

/// Reads `structured_outputs`.
fn structured(
    field: String,
    value: Value,
    (context, ignored): (ValidationContext<'_>, &mut Vec<String>),
) -> Result<Option<Named>, RequestError> {
    let mut inner = JsonFields::nested(field, value)?;
    let mut found = Vec::new();
    let forms =
        [("choice", Form::Choice), ("regex", Form::Regex), ("json", Form::Json), ("grammar", Form::Grammar)];
    for (name, form) in forms {
        if let Some(value) = inner.take(name) {
            found.extend(read(inner.name(name), form, value, (context, &mut *ignored))?);
        }
    }
    // Nothing falls back here, and white space is fixed.
    for hint in ["disable_fallback", "disable_any_whitespace"] {
        inner.bool(hint)?;
    }
    if inner.bool("json_object")? == Some(true) {
        found.push((inner.name("json_object"), any_object()));
    }
    if inner.take("structural_tag").is_some() {
        return inner.bad("structural_tag", "is not supported; use choice, regex, json or grammar");
    }
    ignored.extend(left_out(inner, context.unknown_fields)?);
    let last = found.pop();
    match (last, found.is_empty()) {
        (Some((field, _)), false) => Err(RequestError::invalid(field, "only one constraint can be kept to")),
        (last, _) => Ok(last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_closed_at_every_depth_but_where_they_say_or_share_their_properties() {
        let object = |more: Value| {
            let mut object = json!({"type": "object", "properties": {"a": {"type": "string"}}});
            let Value::Object(more) = more else { panic!("an object") };
            object.as_object_mut().expect("an object").extend(more);
            object
        };
        let closed = || object(json!({"additionalProperties": false}));
        let same = [
            object(json!({"additionalProperties": true})),
            object(json!({"patternProperties": {"^x": {}}})),
            json!({"allOf": [object(json!({})), object(json!({}))]}),
            json!({"type": "object"}),
            json!({"enum": [object(json!({}))]}),
        ];
        for schema in same {
            let mut after = schema.clone();
            close(&mut after);
            assert_eq!(after, schema);
        }
        let nested = |inner: &Value| {
            json!({"$defs": {"d": inner}, "anyOf": [inner, {"type": "array", "items": inner, "prefixItems": [inner]}],
                "properties": {"p": inner}, "additionalProperties": false})
        };
        let mut schema = nested(&object(json!({})));
        close(&mut schema);
        assert_eq!(schema, nested(&closed()));
    }
}
