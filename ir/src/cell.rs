//! Cells: the typed values of a table, and the one rule that turns them into prompt text.
//!
//! The rule: NULL is empty; text stays as it is, in whatever Unicode form it came; numbers stay as
//! they were written (`1.50`, `-0.0` and `NaN` are themselves); booleans are `true` and `false`.
//! Values of different types stay different (`1` and `"1"`), although their texts may be equal.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

/// A value of a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    /// No value.
    Null,
    /// `TRUE` or `FALSE`.
    Bool(bool),
    /// A number, as its source wrote it.
    Number(String),
    Text(String),
}

impl Cell {
    /// The text that stands in the prompt.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Null => Cow::Borrowed(""),
            Self::Bool(true) => Cow::Borrowed("true"),
            Self::Bool(false) => Cow::Borrowed("false"),
            Self::Number(text) | Self::Text(text) => Cow::Borrowed(text),
        }
    }

    /// The JSON that stands in a record: a number that JSON cannot write (`NaN`, `007`) is text there.
    pub fn json(&self) -> Cow<'_, str> {
        match self {
            Self::Null => Cow::Borrowed("null"),
            Self::Bool(true) => Cow::Borrowed("true"),
            Self::Bool(false) => Cow::Borrowed("false"),
            Self::Number(text) if serde_json::from_str::<Number>(text).is_ok() => Cow::Borrowed(text),
            Self::Number(text) | Self::Text(text) => Cow::Owned(Value::from(text.as_str()).to_string()),
        }
    }

    /// The cell a JSON scalar stands for; `None` for arrays and objects. A JSON number is written
    /// as `serde_json` keeps it, so `1.50` arrives as `1.5`.
    pub fn from_json(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(Self::Null),
            Value::Bool(flag) => Some(Self::Bool(*flag)),
            Value::Number(number) => Some(Self::Number(number.to_string())),
            Value::String(text) => Some(Self::Text(text.clone())),
            Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// Whether the cell's text is empty or white space.
    pub fn is_blank(&self) -> bool {
        self.text().trim().is_empty()
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_cell_has_one_text() {
        let cases = [
            (Cell::Null, ""),
            (Cell::Bool(true), "true"),
            (Cell::Number("-0.0".into()), "-0.0"),
            (Cell::Number("NaN".into()), "NaN"),
            ("NaN".into(), "NaN"),
            ("e\u{301}".into(), "e\u{301}"),
        ];
        for (cell, text) in cases {
            assert_eq!(cell.text(), text);
        }
    }

    #[test]
    fn every_kind_of_cell_has_one_json() {
        let cases = [
            (Cell::Null, "null"),
            (Cell::Bool(false), "false"),
            (Cell::Number("-0.0".into()), "-0.0"),
            (Cell::Number("1.50".into()), "1.50"),
            (Cell::Number("NaN".into()), r#""NaN""#),
            (Cell::Number("007".into()), r#""007""#),
            ("a \"b\"\n".into(), r#""a \"b\"\n""#),
        ];
        for (cell, json) in cases {
            assert_eq!(cell.json(), json);
        }
    }

    #[test]
    fn a_number_and_its_text_are_different_values() {
        assert_ne!(Cell::from_json(&json!(1)), Cell::from_json(&json!("1")));
        assert_eq!(Cell::from_json(&json!(1)).map(|cell| cell.text().into_owned()), Some("1".into()));
        assert_eq!(Cell::from_json(&json!(-0.0)).map(|cell| cell.text().into_owned()), Some("-0.0".into()));
        assert_eq!(Cell::from_json(&json!([1])), None);
    }
}
