//! Whether a server's answer has the form that its row asked for. Servers hold outputs to it themselves, but
//! one that does not know a field may drop it in silence, and what it says would pass for an answer.
//!
//! Of a JSON schema the plain keywords are looked at. What is not understood here fails no answer. Pure.

use base::{Constraint, End, ExcerptSource, Generation};
use regex::RegexBuilder;
use serde_json::Value;

use super::reply::{Outcome, cut};

/// Bytes of a compiled pattern; a larger one is not looked at.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// An answer that has the form that its row asked for, or why it is none.
pub fn held(outcome: Outcome, asked: &Generation) -> Outcome {
    let Outcome::Answered { finish, logprobs, .. } = &outcome else { return outcome };
    if asked.logprobs.is_some() && logprobs.is_empty() && !finish.text.is_empty() {
        return Outcome::Unfit("its answer has no log probabilities".into());
    }
    let violation = asked.constraint.as_ref().and_then(|form| violation(form, &finish.text, finish.end));
    match violation {
        Some(reason) => Outcome::Unfit(reason),
        None => outcome,
    }
}

/// Why an answer is none of the constraint's, where it is not. One that was cut at its length limit has no
/// form yet.
pub fn violation(constraint: &Constraint, text: &str, end: End) -> Option<String> {
    if end == End::Length || fits(constraint, text) {
        return None;
    }
    let form = match constraint {
        Constraint::Choice(_) => "none of the choices".into(),
        Constraint::Integer { low, high } => format!("no integer from {low} to {high}"),
        Constraint::Regex(pattern) => format!("not matched by the regex `{}`", cut(pattern)),
        Constraint::JsonSchema(_) => "no JSON of the schema".into(),
        Constraint::StructuralTag(_) | Constraint::TriggeredTags(_) => "no text with its tag".into(),
        Constraint::Grammar(_) | Constraint::Ebnf(_) => "nothing of the grammar".into(),
        Constraint::Excerpt { .. } => "no stretch of the row's text".into(),
        Constraint::Items(_) => "none of the items".into(),
        Constraint::Reading { .. } => "nothing that the row's text says".into(),
    };
    Some(format!("its answer is {form}: {}", cut(text)))
}

fn fits(constraint: &Constraint, text: &str) -> bool {
    match constraint {
        Constraint::Choice(texts) => texts.iter().any(|choice| choice == text),
        Constraint::Integer { low, high } => {
            text.trim().parse().is_ok_and(|number: i64| (*low..=*high).contains(&number))
        }
        Constraint::Regex(pattern) => {
            let whole = RegexBuilder::new(&format!("^(?:{pattern})$")).size_limit(REGEX_BYTES_MAX).build();
            whole.map_or(true, |whole| whole.is_match(text))
        }
        Constraint::JsonSchema(schema) => match (serde_json::from_str(schema), serde_json::from_str(text)) {
            (Ok(schema), Ok(value)) => of_schema(&schema, &value),
            (Err(_), _) => true,
            (_, Err(_)) => false,
        },
        // Servers are sent none.
        Constraint::StructuralTag(_) => true,
        // What stands in free text is whoever reads it to find.
        Constraint::TriggeredTags(_) => true,
        // What is not understood here fails no answer.
        Constraint::Grammar(_) | Constraint::Ebnf(_) => true,
        Constraint::Excerpt { of, otherwise } => {
            let holds = |source: &str| source.contains(text.trim());
            matches!(of, ExcerptSource::Text(source) if holds(source))
                || otherwise.as_deref() == Some(text.trim())
        }
        // Rows have the list of what their text says instead.
        Constraint::Reading { .. } => false,
        // Items that are alike are let through: servers hold outputs to a regex, which cannot see that.
        Constraint::Items(items) => {
            let is_item =
                |item: &str| items.texts.as_ref().is_none_or(|texts| texts.iter().any(|text| text == item));
            text.split(&items.separator).all(is_item)
        }
    }
}

/// Whether a value is one of the schema's.
fn of_schema(schema: &Value, value: &Value) -> bool {
    let Value::Object(keywords) = schema else { return *schema != Value::Bool(false) };
    keywords.iter().all(|(keyword, wanted)| match keyword.as_str() {
        "const" => wanted == value,
        "enum" => wanted.as_array().is_none_or(|values| values.contains(value)),
        "anyOf" => wanted.as_array().is_none_or(|any| any.iter().any(|one| of_schema(one, value))),
        "type" => match wanted {
            Value::Array(names) => names.iter().any(|name| is_a(name, value)),
            name => is_a(name, value),
        },
        "minimum" => compared(value, wanted).is_none_or(|order| order.is_ge()),
        "maximum" => compared(value, wanted).is_none_or(|order| order.is_le()),
        "required" => match (wanted, value) {
            (Value::Array(names), Value::Object(entries)) => {
                names.iter().filter_map(Value::as_str).all(|name| entries.contains_key(name))
            }
            _ => true,
        },
        "properties" => match (wanted, value) {
            (Value::Object(properties), Value::Object(entries)) => properties
                .iter()
                .all(|(name, schema)| entries.get(name).is_none_or(|entry| of_schema(schema, entry))),
            _ => true,
        },
        "items" if wanted.is_object() => {
            value.as_array().is_none_or(|items| items.iter().all(|item| of_schema(wanted, item)))
        }
        _ => true,
    })
}

fn compared(value: &Value, bound: &Value) -> Option<std::cmp::Ordering> {
    value.as_f64()?.partial_cmp(&bound.as_f64()?)
}

/// Whether a value has a type of this name.
fn is_a(name: &Value, value: &Value) -> bool {
    match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some("number") => value.is_number(),
        Some("integer") => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(constraint: &Constraint, good: &[&str], bad: &[&str]) {
        for text in good {
            assert_eq!(violation(constraint, text, End::Stop), None, "{text:?}");
        }
        for text in bad {
            let reason = violation(constraint, text, End::Stop).unwrap_or_else(|| panic!("{text:?} passes"));
            assert!(reason.contains(text), "{reason}");
            assert_eq!(violation(constraint, text, End::Length), None, "it was cut");
        }
    }

    #[test]
    fn an_answer_is_held_to_what_its_row_asked_for() {
        check(
            &Constraint::Choice(vec!["good".into(), "bad".into()]),
            &["good", "bad"],
            &["Good", "good.", ""],
        );
        check(&Constraint::Integer { low: -1, high: 5 }, &["5", "-1", " 3\n"], &["6", "3.0", "three", ""]);
        check(&Constraint::Regex("[a-c]+|x".into()), &["abc", "x"], &["xx", "abcd", "\nabc", ""]);
        check(&Constraint::Regex("^a\\$$".into()), &["a$"], &["a"]);
        check(&Constraint::Regex("(".into()), &["what cannot be checked is let through"], &[]);
    }

    #[test]
    fn json_is_held_to_the_plain_keywords_of_its_schema() {
        let schema = |schema: Value| Constraint::JsonSchema(schema.to_string());
        let person = json!({
            "type": "object", "required": ["name"], "unheard_of": 7,
            "properties": {
                "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
                "tags": {"type": "array", "items": {"enum": ["a", "b"]}}, "of": {"anyOf": [{"type": "null"}, {"const": 1}]},
            },
        });
        check(
            &schema(person),
            &[
                r#"{"name": "x"}"#,
                r#"{"age":5,"name":"x","tags":["a","b"],"of":null}"#,
                r#"{"name":"x","z":1}"#,
            ],
            &[
                "hello",
                "[]",
                "{}",
                r#"{"name": 1}"#,
                r#"{"name":"x","age":151}"#,
                r#"{"name":"x","age":1.5}"#,
                r#"{"name":"x","tags":["c"]}"#,
                r#"{"name":"x","of":2}"#,
                r#"{"name":"x"} and more"#,
            ],
        );
        check(&schema(json!({"type": ["string", "null"]})), &["null", "\"x\""], &["1"]);
    }
}
