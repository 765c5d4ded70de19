//! Templates: `"Classify {review}"` with `{column}` fields; `{*}` is the record, all columns that have no
//! field of their own; `{{` and `}}` are literal braces.
//!
//! A template is parsed once and filled with cells as data: the text of a cell is never parsed.

use std::fmt;

/// A parsed template. Texts are non-empty and never adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Template {
    parts: Vec<TemplatePart>,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TemplatePart {
    /// Text, braces unescaped.
    Text(String),
    /// The cell of the column with this name.
    Field(String),
    /// The cells of all columns without a field of their own, with their names.
    Record,
}

/// The name that stands for all columns without a field.
const RECORD: &str = "*";

/// A template, or a table under it, that cannot be used. Positions count characters from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// Nothing to ask.
    #[error("the template is empty")]
    Empty,
    /// `{` that no `}` closes.
    #[error("`{{` at character {at} is never closed (write `{{{{` for a literal brace)")]
    Unclosed {
        /// Position of the brace.
        at: usize,
    },
    /// `{` inside a field's name.
    #[error("`{{` at character {at} stands inside a column name (write `{{{{` for a literal brace)")]
    Nested {
        /// Position of the inner brace.
        at: usize,
    },
    /// `}` that closes nothing.
    #[error("`}}` at character {at} closes nothing (write `}}}}` for a literal brace)")]
    Unopened {
        /// Position of the brace.
        at: usize,
    },
    /// `{}`.
    #[error("`{{}}` at character {at} names no column")]
    Unnamed {
        /// Position of the opening brace.
        at: usize,
    },
    /// A field that the table has no column for.
    #[error("the template names column `{name}`, the table has: {known} (write `{{{{` for a literal brace)")]
    UnknownColumn {
        name: String,
        /// Names the table has, for the reader.
        known: String,
    },
    /// `{*}`, and no column that it could stand for.
    #[error("`{{*}}` stands for the columns without a field of their own, and there is none")]
    EmptyRecord,
    /// A column name that stands for two columns.
    #[error("column `{name}` occurs twice, as number {first} and {second}")]
    DuplicateColumn {
        name: String,
        /// First position, from 1.
        first: usize,
        /// Second position, from 1.
        second: usize,
    },
}

impl Template {
    /// Parses template text.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut template = Self::default();
        let mut characters = text.chars().zip(1..).peekable();
        while let Some((character, at)) = characters.next() {
            let doubled = characters.peek().is_some_and(|(next, _)| *next == character);
            match character {
                '{' | '}' if doubled => {
                    characters.next();
                    template.push_char(character);
                }
                '{' => {
                    let name = field_name(&mut characters, at)?;
                    let is_record = name == RECORD;
                    template.parts.push(if is_record {
                        TemplatePart::Record
                    } else {
                        TemplatePart::Field(name)
                    });
                }
                '}' => return Err(TemplateError::Unopened { at }),
                _ => template.push_char(character),
            }
        }
        if template.parts.is_empty() { Err(TemplateError::Empty) } else { Ok(template) }
    }

    /// The parts, in order.
    pub fn parts(&self) -> &[TemplatePart] {
        &self.parts
    }

    /// Names of the fields, in order of first use, each once.
    pub fn fields(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for part in &self.parts {
            if let TemplatePart::Field(name) = part
                && !names.contains(&name.as_str())
            {
                names.push(name);
            }
        }
        names
    }

    /// Whether it has a record.
    pub fn has_record(&self) -> bool {
        self.parts.contains(&TemplatePart::Record)
    }

    /// The columns that its record holds, in the table's order; none where it has no record.
    pub fn record_of(&self, columns: &[String]) -> Vec<String> {
        if !self.has_record() {
            return Vec::new();
        }
        let fields = self.fields();
        columns.iter().filter(|column| !fields.contains(&column.as_str())).cloned().collect()
    }

    /// Refuses duplicate columns, fields that the table has no column for, and a record that would hold
    /// nothing.
    pub fn check_columns(&self, columns: &[String]) -> Result<(), TemplateError> {
        check_distinct(columns)?;
        if let Some(name) =
            self.fields().into_iter().find(|name| !columns.iter().any(|column| column == name))
        {
            return Err(unknown_column(name, columns));
        }
        if self.has_record() && self.record_of(columns).is_empty() {
            return Err(TemplateError::EmptyRecord);
        }
        Ok(())
    }

    /// Appends text that is taken as it is.
    pub fn push_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if let Some(TemplatePart::Text(last)) = self.parts.last_mut() {
            last.push_str(text);
        } else {
            self.parts.push(TemplatePart::Text(text.to_owned()));
        }
    }

    /// Appends a field.
    pub fn push_field(&mut self, name: &str) {
        self.parts.push(TemplatePart::Field(name.to_owned()));
    }

    /// Appends the record.
    pub fn push_record(&mut self) {
        self.parts.push(TemplatePart::Record);
    }

    /// Drops white space from the end, up to the last field.
    pub(crate) fn trim_end(&mut self) {
        if let Some(TemplatePart::Text(last)) = self.parts.last_mut() {
            last.truncate(last.trim_end().len());
            if last.is_empty() {
                self.parts.pop();
            }
        }
    }

    fn push_char(&mut self, character: char) {
        self.push_text(character.encode_utf8(&mut [0; 4]));
    }
}

/// Prints text that parses back to the same template.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => {
                    f.write_str(&text.replace('{', "{{").replace('}', "}}"))?;
                }
                TemplatePart::Field(name) => write!(f, "{{{name}}}")?,
                TemplatePart::Record => write!(f, "{{{RECORD}}}")?,
            }
        }
        Ok(())
    }
}

/// Reads a field's name up to its closing brace; `at` is where it opened.
fn field_name(
    characters: &mut impl Iterator<Item = (char, usize)>,
    at: usize,
) -> Result<String, TemplateError> {
    let mut name = String::new();
    for (character, inner) in characters {
        match character {
            '}' if name.is_empty() => return Err(TemplateError::Unnamed { at }),
            '}' => return Ok(name),
            '{' => return Err(TemplateError::Nested { at: inner }),
            _ => name.push(character),
        }
    }
    Err(TemplateError::Unclosed { at })
}

/// What stands before a value in a record. The space behind the colon is how most JSON that models have read
/// is written.
pub(crate) fn record_name(name: &str) -> String {
    format!("{}: ", serde_json::Value::from(name))
}

/// Refuses a table in which a name stands for two columns.
pub(crate) fn check_distinct(columns: &[String]) -> Result<(), TemplateError> {
    let mut seen = std::collections::BTreeMap::new();
    for (name, position) in columns.iter().zip(1..) {
        if let Some(first) = seen.insert(name, position) {
            return Err(TemplateError::DuplicateColumn { name: name.clone(), first, second: position });
        }
    }
    Ok(())
}

/// The error for a field without a column; lists at most twenty of the columns there are.
pub(crate) fn unknown_column(name: &str, columns: &[String]) -> TemplateError {
    const LISTED_MAX: usize = 20;
    let mut known: Vec<String> =
        columns.iter().take(LISTED_MAX).map(|column| format!("`{column}`")).collect();
    if columns.len() > LISTED_MAX {
        known.push(format!("{} more", columns.len() - LISTED_MAX));
    }
    let known = if known.is_empty() { "no columns".into() } else { known.join(", ") };
    TemplateError::UnknownColumn { name: name.to_owned(), known }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: Result<&[TemplatePart], TemplateError>) {
        let parsed = Template::parse(text);
        assert_eq!(parsed.as_ref().map(Template::parts), expected.as_ref().map(|parts| *parts), "{text}");
    }

    fn text(text: &str) -> TemplatePart {
        TemplatePart::Text(text.into())
    }

    fn field(name: &str) -> TemplatePart {
        TemplatePart::Field(name.into())
    }

    #[test]
    fn braces_name_columns_and_doubled_braces_are_literal() {
        check("Classify {review}.", Ok(&[text("Classify "), field("review"), text(".")]));
        check("{a}{b c}", Ok(&[field("a"), field("b c")]));
        check("{{\"k\": {v}}}", Ok(&[text("{\"k\": "), field("v"), text("}")]));
    }

    #[test]
    fn errors_say_where_and_what() {
        check("", Err(TemplateError::Empty));
        check("é{a", Err(TemplateError::Unclosed { at: 2 }));
        check("{a{b}", Err(TemplateError::Nested { at: 3 }));
        check("a}", Err(TemplateError::Unopened { at: 2 }));
        check("a{}", Err(TemplateError::Unnamed { at: 2 }));
        let columns = ["a".to_owned(), "b".to_owned(), "a".to_owned()];
        let template = Template::parse("{c}").expect("it parses");
        assert_eq!(
            template.check_columns(&columns[..2]).expect_err("there is no c").to_string(),
            "the template names column `c`, the table has: `a`, `b` (write `{{` for a literal brace)"
        );
        assert_eq!(
            template.check_columns(&columns).expect_err("a is there twice").to_string(),
            "column `a` occurs twice, as number 1 and 3"
        );
    }

    proptest! {
        #[test]
        fn a_printed_template_parses_back(parts in proptest::collection::vec(("[a-z{}\u{e9} ]{0,6}", "[a-z ]{1,4}"), 1..6)) {
            let mut template = Template::default();
            for (text, name) in &parts {
                template.push_text(text);
                template.push_field(name);
            }
            prop_assert_eq!(Template::parse(&template.to_string()), Ok(template));
        }

        #[test]
        fn any_text_parses_or_is_refused_without_a_panic(text in "[{}ab\u{e9}]{0,12}") {
            let _ = Template::parse(&text);
        }
    }
}
