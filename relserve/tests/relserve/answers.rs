//! Answers in documents: JSON in lines, shortened where `{ ... }`, `[ ... ]` or `, ...` stands, and how it is
//! compared with what a server answers. Numbers, times and texts of a model may differ; keys may not.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::document::WIDTH;

/// What stands for what is left out.
const REST: &str = "...";
const OBJECT: &str = "{ ... }";
const ARRAY: &str = "[ ... ]";

/// Ids of a document, each with the one of this run.
pub type Ids = BTreeMap<String, String>;

/// Reads a documented answer, if it is JSON.
pub fn parse(text: &str) -> Option<Value> {
    let line = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let whole = line.replace(OBJECT, "\"{ ... }\"").replace(ARRAY, "\"[ ... ]\"");
    serde_json::from_str(&whole.replace(", ... }", ",\"...\":0}").replace(", ... ]", ",\"...\"]")).ok()
}

/// How an answer differs from the documented one.
pub fn difference(written: &Value, real: &Value, ids: &mut Ids) -> Option<String> {
    match (written, real) {
        (Value::String(text), Value::Object(_)) if text == OBJECT => None,
        (Value::String(text), Value::Array(_)) if text == ARRAY => None,
        (Value::Object(written), Value::Object(real)) => objects(written, real, ids),
        (Value::Array(written), Value::Array(real)) => {
            let is_open = written.last().is_some_and(|last| last == REST);
            let shown = written.len() - usize::from(is_open);
            if shown > real.len() || (shown < real.len() && !is_open) {
                return Some(format!("{shown} elements are written, {} are there", real.len()));
            }
            written[..shown].iter().zip(real).find_map(|(written, real)| difference(written, real, ids))
        }
        (Value::Object(_) | Value::Array(_), Value::Null) | (Value::Null, _) => None,
        (Value::Object(_) | Value::Array(_), _) | (_, Value::Object(_) | Value::Array(_)) => {
            Some(format!("{written} is written, {real} is there"))
        }
        _ => None,
    }
}

fn objects(written: &Map<String, Value>, real: &Map<String, Value>, ids: &mut Ids) -> Option<String> {
    let is_open = written.contains_key(REST);
    if let Some(key) = real.keys().find(|key| !is_open && !written.contains_key(*key)) {
        return Some(format!("`{key}` is there and not written"));
    }
    for (key, written) in written.iter().filter(|(key, _)| *key != REST) {
        let Some(real) = real.get(key) else { return Some(format!("`{key}` is written and not there")) };
        if let (Value::String(written), Value::String(real)) = (written, real) {
            if key == "object" && written != real {
                return Some(format!("object {written:?} is written, {real:?} is there"));
            }
            if is_id(written) && is_id(real) {
                ids.insert(written.clone(), real.clone());
            }
        }
        if let Some(found) = difference(written, real, ids) {
            return Some(format!("{key}: {found}"));
        }
    }
    None
}

/// The id of what an answer is about.
pub fn id(answer: &str) -> Option<String> {
    parse(answer)?.get("id")?.as_str().filter(|id| is_id(id)).map(str::to_owned)
}

/// Whether a text is what a server calls something: a word, and a long number or hash.
fn is_id(text: &str) -> bool {
    let hash = text.split_once(['-', '_']).map_or("", |(_, hash)| hash);
    hash.len() >= 12 && hash.chars().all(|c| c.is_ascii_hexdigit())
}

/// An answer of this run, left out of it what was left out of the documented one.
pub fn shortened(written: Option<&Value>, real: &Value) -> Value {
    match (written, real) {
        (Some(Value::String(text)), Value::Object(_) | Value::Array(_))
            if [OBJECT, ARRAY].contains(&text.as_str()) =>
        {
            Value::String(if real.is_array() { ARRAY } else { OBJECT }.into())
        }
        (Some(Value::Object(written)), Value::Object(real)) => {
            let is_open = written.contains_key(REST);
            let shown = real.iter().filter(|(key, _)| !is_open || written.contains_key(*key));
            let mut short: Map<String, Value> =
                shown.map(|(key, real)| (key.clone(), shortened(written.get(key), real))).collect();
            if is_open {
                short.insert(REST.into(), Value::from(0));
            }
            Value::Object(short)
        }
        (Some(Value::Array(written)), Value::Array(real)) => {
            let is_open = written.last().is_some_and(|last| last == REST);
            let shown = if is_open { (written.len() - 1).min(real.len()) } else { real.len() };
            let each = real[..shown].iter().enumerate();
            let mut short: Vec<Value> = each.map(|(at, real)| shortened(written.get(at), real)).collect();
            if is_open {
                short.push(REST.into());
            }
            Value::Array(short)
        }
        _ => real.clone(),
    }
}

/// JSON as documents have it, behind `start` in lines of bounded width.
pub fn lines(start: &str, value: &Value) -> String {
    let plain = value.to_string().replace("\"{ ... }\"", OBJECT).replace("\"[ ... ]\"", ARRAY);
    let plain = plain.replace(",\"...\":0}", ", ... }").replace(",\"...\"]", ", ... ]");
    let mut lines = vec![start.to_owned()];
    for part in parts(&plain) {
        let line = lines.last_mut().expect("there is always one");
        if !line.trim().is_empty() && line.chars().count() + part.trim_end().chars().count() > WIDTH {
            lines.push(format!("  {}", part.trim_start()));
        } else {
            line.push_str(part);
        }
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

/// JSON cut behind the commas that are in no text.
fn parts(plain: &str) -> Vec<&str> {
    let (mut parts, mut start, mut is_text, mut is_escaped) = (Vec::new(), 0, false, false);
    for (at, c) in plain.char_indices() {
        match c {
            '"' if !is_escaped => is_text = !is_text,
            ',' if !is_text => {
                parts.push(&plain[start..=at]);
                start = at + 1;
            }
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    parts.push(&plain[start..]);
    parts
}
