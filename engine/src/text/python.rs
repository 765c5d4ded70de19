//! Where Python, which chat templates are written for, and Rust say different things of a text.

use std::borrow::Cow;
use std::io;

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;
use serde::Serialize as _;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// White space: Unicode's, and four separators that Python counts in.
pub(super) fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

/// Jinja's filter `trim`.
pub(super) fn trim(text: Cow<'_, str>, characters: Option<&str>) -> String {
    match characters {
        Some(characters) => text.trim_matches(|c| characters.contains(c)).to_owned(),
        None => text.trim_matches(is_space).to_owned(),
    }
}

/// Methods of Python's texts, maps and lists.
pub(super) fn method(
    state: &State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match (value.as_str(), name, args) {
        (Some(text), "strip", []) => Ok(text.trim_matches(is_space).into()),
        (Some(text), "lstrip", []) => Ok(text.trim_start_matches(is_space).into()),
        (Some(text), "rstrip", []) => Ok(text.trim_end_matches(is_space).into()),
        _ => pycompat::unknown_method_callback(state, value, name, args),
    }
}

/// Jinja's filter `tojson` as transformers has it: Python's `json.dumps`, nothing escaped for HTML.
pub(super) fn to_json(value: &Value, indent: Option<usize>, options: Kwargs) -> Result<Value, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => options.get("indent")?,
    };
    if options.get::<Option<bool>>("ensure_ascii")? == Some(true) {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson cannot `ensure_ascii`"));
    }
    options.assert_all_used()?;
    let mut text = Vec::new();
    let written = match indent {
        Some(indent) => {
            let indent = " ".repeat(indent);
            let formatter = PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut text, formatter))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut text, Spaced)),
    };
    let wrong = |error: &dyn std::fmt::Display| Error::new(ErrorKind::InvalidOperation, error.to_string());
    written.map_err(|error| wrong(&error))?;
    String::from_utf8(text).map(Value::from).map_err(|error| wrong(&error))
}

/// JSON with a space behind each comma and colon.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use minijinja::{Environment, context};

    use super::*;

    fn check(template: &str, text: &str, expected: &str) {
        let mut environment = Environment::new();
        environment.set_unknown_method_callback(method);
        environment.add_filter("trim", trim);
        environment.add_filter("tojson", to_json);
        let value = serde_json::json!({ "a": [1, "<b> \u{e9}"], "c": [] });
        let rendered = environment.render_str(template, context! { text, value });
        assert_eq!(rendered.expect("it renders"), expected, "{template}");
    }

    #[test]
    fn texts_and_json_are_as_in_python() {
        let space = " \u{1c}\u{85}\u{a0}\u{3000}\t\r\n";
        let text = format!("{space}a b{space}");
        check("{{ text | trim }}", &text, "a b");
        check("{{ text.strip() }}", &text, "a b");
        check("{{ text.lstrip() }}", &text, &format!("a b{space}"));
        check("{{ text.rstrip() }}", &text, &format!("{space}a b"));
        check("{{ text.strip('x') }}|{{ text | trim('xy') }}", "xyax", "ya|a");
        check("{{ text | trim }}", "\u{200b}a\u{feff}", "\u{200b}a\u{feff}");
        check("{{ value | tojson }}", "", "{\"a\": [1, \"<b> \u{e9}\"], \"c\": []}");
        let indented = "{\n  \"a\": [\n    1,\n    \"<b> \u{e9}\"\n  ],\n  \"c\": []\n}";
        check("{{ value | tojson(indent=2) }}", "", indented);
    }
}
