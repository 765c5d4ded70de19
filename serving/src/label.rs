//! What a relQuery is for, in its client's words: the place in a workbook that its answers are for, the statement
//! that it is part of, or the client's own name. Kept beside the relQuery for whoever watches it; nothing is
//! decided by it, and it is bounded whatever a client sends. Must not know HTTP.

use std::sync::Arc;

use serde::Serialize;

/// Characters of a name that are kept.
pub const NAME_CHARS_MAX: usize = 80;
/// Characters of a formula or a statement that are kept.
pub const TEXT_CHARS_MAX: usize = 240;

/// What a relQuery is for. A tenant's own, as its texts are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Label {
    /// The workbook, by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workbook: Option<String>,
    /// The sheet in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sheet: Option<String>,
    /// The column, by letter or title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// The formula, as it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub formula: Option<String>,
    /// The SQL statement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sql: Option<String>,
    /// What the client calls itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

impl Label {
    /// A statement's.
    pub fn of_sql(statement: &str) -> Option<Arc<Self>> {
        Self { sql: Some(statement.to_owned()), ..Self::default() }.bounded()
    }

    /// A client's that says no more than its name.
    pub fn of_client(name: &str) -> Option<Arc<Self>> {
        Self { client: Some(name.to_owned()), ..Self::default() }.bounded()
    }

    /// What is kept of it: each text on one line and cut to its bound; nothing where it says nothing.
    pub fn bounded(self) -> Option<Arc<Self>> {
        let name = |text: Option<String>| text.and_then(|text| line(&text, NAME_CHARS_MAX));
        let text = |text: Option<String>| text.and_then(|text| line(&text, TEXT_CHARS_MAX));
        let kept = Self {
            workbook: name(self.workbook),
            sheet: name(self.sheet),
            column: name(self.column),
            formula: text(self.formula),
            sql: text(self.sql),
            client: name(self.client),
        };
        (kept != Self::default()).then(|| Arc::new(kept))
    }
}

/// A text on one line, cut to so many characters.
fn line(text: &str, chars_max: usize) -> Option<String> {
    let mut kept = String::new();
    let mut chars = 0;
    let is_gap = |c: char| c.is_whitespace() || c.is_control();
    for word in text.split(is_gap).filter(|word| !word.is_empty()) {
        for c in (chars > 0).then_some(' ').into_iter().chain(word.chars()) {
            chars += 1;
            if chars > chars_max {
                // The ellipsis takes the place of the last that fits.
                kept.pop();
                kept.push('…');
                return Some(kept);
            }
            kept.push(c);
        }
    }
    (!kept.is_empty()).then_some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_kept_on_one_line_and_cut() {
        let label = Label {
            workbook: Some("Reviews".into()),
            column: Some(" C\n\tSentiment\u{0} ".into()),
            formula: Some("=AI.CLASSIFY(A2, \"ä\")".repeat(100)),
            client: Some(" \n".into()),
            ..Label::default()
        };
        let kept = label.bounded().expect("it says something");
        assert_eq!(kept.workbook.as_deref(), Some("Reviews"));
        assert_eq!((kept.column.as_deref(), kept.client.as_deref()), (Some("C Sentiment"), None));
        let formula = kept.formula.clone().unwrap_or_default();
        assert_eq!(formula.chars().count(), TEXT_CHARS_MAX);
        assert!(formula.ends_with('…') && formula.starts_with("=AI.CLASSIFY(A2, \"ä\")=AI"));
        assert_eq!(line(&"x".repeat(80), 80), Some("x".repeat(80)), "what fits is not cut");
        assert_eq!(line(&"x".repeat(81), 80), Some(format!("{}…", "x".repeat(79))));
        assert_eq!(line("a b", 2), Some("a…".into()));
        assert_eq!(Label { sheet: Some("\n".into()), ..Label::default() }.bounded(), None);
        assert_eq!(Label::of_sql("SELECT\n  1").and_then(|label| label.sql.clone()), Some("SELECT 1".into()));
    }
}
