//! A constraint in the words of llguidance: its variant of the Lark grammar notation.

use base::{Constraint, ConstraintError, MarkedJson, StructuralTag, TriggeredTags};
use llguidance::api::TopLevelGrammar;
use llguidance::{JsonCompileOptions, regex_to_lark};
use serde_json::{Value, json};

/// The grammar of a constraint. With `leading_space`, one space may stand in front, which decoding drops
/// again: models with such a tokenizer write it, and would choose among odd tokens without.
pub(super) fn grammar(
    constraint: &Constraint,
    leading_space: bool,
) -> Result<TopLevelGrammar, ConstraintError> {
    let space = if leading_space { "(\" \")?" } else { "" };
    let text = match constraint {
        Constraint::Choice(texts) => {
            let quoted: Vec<String> = texts.iter().flat_map(|text| forms(text, leading_space)).collect();
            format!("start: ANSWER\nANSWER: {}\n", quoted.join(" | "))
        }
        Constraint::Regex(pattern) => {
            format!("start: ANSWER\nANSWER: {space} /{}/\n", regex_to_lark(unanchored(pattern), ""))
        }
        Constraint::Integer { low, high } => {
            json_grammar(space, json!({ "type": "integer", "minimum": low, "maximum": high }))?
        }
        Constraint::JsonSchema(schema) => {
            let schema = serde_json::from_str(schema).map_err(|error| super::reason(&error))?;
            json_grammar(space, schema)?
        }
        Constraint::StructuralTag(tag) => tagged(space, tag)?,
        Constraint::TriggeredTags(tags) => triggered(tags)?,
        // Its rules are the caller's own: a space in front would be one that they do not have.
        Constraint::Grammar(lark) => {
            super::lark::check(lark)?;
            lark.clone()
        }
        Constraint::Ebnf(ebnf) => {
            super::lark::check(&ebnf.replace("::=", ":"))?;
            super::ebnf::to_lark(ebnf)?
        }
        Constraint::Excerpt { .. } | Constraint::Items(_) | Constraint::Reading { .. } => {
            return Err(ConstraintError("is followed byte by byte, and is no grammar".into()));
        }
    };
    Ok(TopLevelGrammar::from_lark(text))
}

/// The ways to write a text that decode to it, quoted.
fn forms(text: &str, leading_space: bool) -> Vec<String> {
    let quote = |text: String| Value::from(text).to_string();
    match leading_space {
        false => vec![quote(text.to_owned())],
        // Its own space would be the one that is dropped.
        true if text.starts_with(' ') => vec![quote(format!(" {text}"))],
        true => vec![quote(text.to_owned()), quote(format!(" {text}"))],
    }
}

/// The pattern without anchors at its ends, where it has them: it holds for the whole text anyway.
fn unanchored(pattern: &str) -> &str {
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    match pattern.strip_suffix('$') {
        // An odd number of backslashes makes the last one part of `\$`.
        Some(rest) if (rest.len() - rest.trim_end_matches('\\').len()).is_multiple_of(2) => rest,
        _ => pattern,
    }
}

/// Properties of one object: compiling goes as deep as they are many.
const PROPERTIES_MAX: usize = 2_000;

/// Refuses objects of very many properties.
fn check_properties(schema: &Value) -> Result<(), ConstraintError> {
    match schema {
        Value::Object(keywords) => {
            let count = keywords.get("properties").and_then(Value::as_object).map_or(0, |all| all.len());
            if count > PROPERTIES_MAX {
                return Err(ConstraintError(format!(
                    "has an object of {count} properties; at most {PROPERTIES_MAX} are allowed"
                )));
            }
            keywords.values().try_for_each(check_properties)
        }
        Value::Array(schemas) => schemas.iter().try_for_each(check_properties),
        _ => Ok(()),
    }
}

/// The least bound of a number: next to the last number of 64 bits, whose negation is none.
const BOUND_MIN: f64 = -9_223_372_036_854_774_784.0;

/// Raises lower bounds to the least there is, which only refuses more; refuses upper ones below it.
fn check_bounds(schema: &mut Value) -> Result<(), ConstraintError> {
    match schema {
        Value::Object(keywords) => {
            keywords.iter_mut().try_for_each(|(name, value)| match (name.as_str(), value.as_f64()) {
                ("const" | "enum" | "default" | "examples", _) => Ok(()),
                ("minimum" | "exclusiveMinimum", Some(bound)) if bound < BOUND_MIN => {
                    *value = json!(BOUND_MIN);
                    Ok(())
                }
                ("maximum" | "exclusiveMaximum", Some(bound)) if bound < BOUND_MIN => {
                    Err(ConstraintError(format!("has `{name}` {bound}, below what 64 bits hold")))
                }
                _ => check_bounds(value),
            })
        }
        Value::Array(schemas) => schemas.iter_mut().try_for_each(check_bounds),
        _ => Ok(()),
    }
}

/// The grammar of a schema.
fn json_grammar(space: &str, schema: Value) -> Result<String, ConstraintError> {
    Ok(format!("start: {space} answer\nanswer: %json {}\n", json_rule(schema)?))
}

/// The grammar of text with a tag. The text before a tag goes up to its end, lazily; the text behind the last has no tag
/// in it, so there is one way to read what is written.
fn tagged(space: &str, tag: &StructuralTag) -> Result<String, ConstraintError> {
    let parsed = |text: &str| serde_json::from_str(text).map_err(|error| super::reason(&error));
    let (quote, end) = (regex_quoted(&tag.begin), Value::from(tag.end.as_str()));
    let json = json_rule(parsed(&tag.schema)?)?;
    let begin = Value::from(tag.begin.as_str());
    let times = if tag.is_repeated { "+" } else { "" };
    let call = format!("call: \"\\n\" json \"\\n\" {end}\njson: %json {json}\n");
    Ok(match &tag.otherwise {
        Some(otherwise) => {
            let otherwise = json_rule(parsed(otherwise)?)?;
            let again = if tag.is_repeated { format!("(\"\\n\" {begin} call)*") } else { String::new() };
            format!("start: {space} (answer | {begin} call {again})\nanswer: %json {otherwise}\n{call}")
        }
        None => {
            let rest = if tag.is_repeated { "REST" } else { "" };
            format!(
                "start: REST | (before call){times} {rest}\nREST: /(?s:.*)/ & ~/(?s:.*){quote}(?s:.*)/\n\
                 before[lazy]: /(?s:.*){quote}/\n{call}"
            )
        }
    })
}

/// The grammar of text with tags that one trigger begins, read as [`tagged`] text is.
fn triggered(TriggeredTags { trigger, tags }: &TriggeredTags) -> Result<String, ConstraintError> {
    let quote = regex_quoted(trigger);
    let quoted = |text: &str| Value::from(text).to_string();
    let mut rules = String::new();
    for (number, MarkedJson { begin, schema, end }) in tags.iter().enumerate() {
        let schema = serde_json::from_str(schema).map_err(|error| super::reason(&error))?;
        let json = json_rule(schema)?;
        let rest = begin.strip_prefix(trigger.as_str()).filter(|rest| !rest.is_empty());
        let (rest, end) = (rest.map(quoted).unwrap_or_default(), quoted(end));
        rules += &format!("tag{number}: {rest} json{number} {end}\njson{number}: %json {json}\n");
    }
    let names: Vec<String> = (0..tags.len()).map(|number| format!("tag{number}")).collect();
    Ok(format!(
        "start: REST | (before tag)+ REST\nREST: /(?s:.*)/ & ~/(?s:.*){quote}(?s:.*)/\n\
         before[lazy]: /(?s:.*){quote}/\ntag: {}\n{rules}",
        names.join(" | ")
    ))
}

/// A text as a regular expression of it alone.
fn regex_quoted(text: &str) -> String {
    let quoted = |c: char| {
        if c.is_alphanumeric() || c == '_' { c.to_string() } else { format!("\\x{{{:x}}}", u32::from(c)) }
    };
    text.chars().map(quoted).collect()
}

/// What a schema is to a grammar. White space is fixed: a weak model would go on with it for ever, and the more is
/// forced, the less is computed.
fn json_rule(schema: Value) -> Result<Value, ConstraintError> {
    let mut schema = match schema {
        Value::Object(_) => schema,
        Value::Bool(true) => json!({}),
        _ => return Err(ConstraintError("a JSON schema must be an object".into())),
    };
    check_properties(&schema)?;
    check_bounds(&mut schema)?;
    let options = JsonCompileOptions {
        item_separator: ", ".into(),
        key_separator: ": ".into(),
        whitespace_flexible: false,
        ..JsonCompileOptions::default()
    };
    options.apply_to(&mut schema);
    Ok(schema)
}
