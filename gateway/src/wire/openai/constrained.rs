//! Constraints in the words of OpenAI (`response_format`), of vLLM (`guided_*`, `structured_outputs`) and of
//! SGLang (`regex`, `json_schema`). At most one may be asked for. What is unknown in their objects is told or refused.

use base::{Constraint, MarkedJson, TriggeredTags};
use serde_json::{Value, json};
use serving::error::RequestError;

use super::neutral::left_out;
use crate::json::{self, JsonFields};
use crate::wire::ValidationContext;
use crate::wire::constraint::{Checked, checked, choice, grammar, regex, schema};

/// Tags that one trigger may begin.
const TAGS_MAX: usize = 64;

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
        Some("structural_tag") => {
            let constraint = structural_tag(&mut format, (context, &mut *ignored))?;
            Some((format.name("structures"), constraint))
        }
        Some(_) => return format.bad("type", "must be text, json_object, json_schema or structural_tag"),
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
    if let Some(value) = inner.take("structural_tag") {
        let field = inner.name("structural_tag");
        // vLLM takes its text.
        let value = match value {
            Value::String(text) => json::value(text.as_bytes())
                .map_err(|error| RequestError::invalid(field.as_str(), error.to_string()))?,
            value => value,
        };
        let mut tag = JsonFields::nested(field.as_str(), value)?;
        tag.take("type");
        found.push((field, structural_tag(&mut tag, (context, &mut *ignored))?));
        ignored.extend(left_out(tag, context.unknown_fields)?);
    }
    ignored.extend(left_out(inner, context.unknown_fields)?);
    let last = found.pop();
    match (last, found.is_empty()) {
        (Some((field, _)), false) => Err(RequestError::invalid(field, "only one constraint can be kept to")),
        (last, _) => Ok(last),
    }
}

/// Takes a structural tag: structures that may stand in a text, and what begins them.
fn structural_tag(
    fields: &mut JsonFields,
    (context, ignored): (ValidationContext<'_>, &mut Vec<String>),
) -> Result<Constraint, RequestError> {
    let trigger = match fields.array("triggers")?.unwrap_or_default().as_slice() {
        [Value::String(trigger)] if !trigger.is_empty() => trigger.clone(),
        _ => {
            let reason = "must have one text, which all `structures` begin with; a `format` is not supported";
            return fields.bad("triggers", reason);
        }
    };
    let structures = fields.array("structures")?.unwrap_or_default();
    if structures.is_empty() || structures.len() > TAGS_MAX {
        let reason = format!("must have 1 to {TAGS_MAX} structures, has {}", structures.len());
        return fields.bad("structures", reason);
    }
    let mut tags = Vec::with_capacity(structures.len());
    for (place, structure) in structures.into_iter().enumerate() {
        let mut tag = JsonFields::nested(fields.name(&format!("structures[{place}]")), structure)?;
        let begin = tag.string("begin")?.unwrap_or_default();
        if !begin.starts_with(&trigger) {
            return tag.bad("begin", format!("must begin with the trigger, `{trigger}`"));
        }
        let end = tag.string("end")?.unwrap_or_default();
        if end.is_empty() {
            return tag.bad("end", "must be a text that is not empty");
        }
        let value = tag.require("schema")?;
        if !value.is_object() {
            return tag.bad("schema", "must be a JSON schema, an object");
        }
        tags.push(MarkedJson { begin, schema: value.to_string(), end });
        ignored.extend(left_out(tag, context.unknown_fields)?);
    }
    Ok(Constraint::TriggeredTags(Box::new(TriggeredTags { trigger, tags })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LimitsConfig;
    use crate::wire::openai::tests::with_context;

    #[test]
    fn a_structural_tag_is_read_and_what_is_wrong_with_it_named() {
        let read = |body: Value| {
            let mut fields = json::object(body.to_string().as_bytes())?;
            with_context(&LimitsConfig::default(), |context| {
                structural_tag(&mut fields, (context, &mut Vec::new()))
            })
        };
        let structure = |begin: &str| json!({"begin": begin, "schema": {"type": "object"}, "end": "</a>"});
        let body = json!({"structures": [structure("<a>"), structure("<a b>")], "triggers": ["<a"]});
        let Ok(Constraint::TriggeredTags(found)) = read(body) else { panic!("it is valid") };
        let begins: Vec<&str> = found.tags.iter().map(|tag| tag.begin.as_str()).collect();
        assert_eq!((found.trigger.as_str(), begins), ("<a", vec!["<a>", "<a b>"]));
        let with = |name: &str, value: Value| {
            let mut tag = structure("<a>");
            tag[name] = value;
            json!({"structures": [tag], "triggers": ["<a"]})
        };
        for (body, blamed) in [
            (json!({"format": {"type": "any_text"}}), "triggers"),
            (json!({"structures": [structure("<a>")]}), "triggers"),
            (json!({"structures": [structure("<a>")], "triggers": ["<a", "<b"]}), "triggers"),
            (json!({"structures": [], "triggers": ["<a"]}), "structures"),
            (json!({"structures": vec![structure("<a>"); TAGS_MAX + 1], "triggers": ["<a"]}), "structures"),
            (with("begin", json!("<b>")), "structures[0].begin"),
            (with("end", json!("")), "structures[0].end"),
            (with("schema", json!("{}")), "structures[0].schema"),
            (with("more", json!(1)), "structures[0].more"),
        ] {
            match read(body.clone()) {
                Err(RequestError::Invalid { field, .. }) => assert_eq!(field, blamed, "{body}"),
                other => panic!("{body} gave {other:?}"),
            }
        }
    }

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
