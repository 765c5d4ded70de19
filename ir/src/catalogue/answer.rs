//! Reading answers: what a model wrote becomes a value, or an error that quotes it.

use base::Constraint;

/// How an answer is read, with what the call said about it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// As it is, without white space around it.
    Text,
    /// One of these labels.
    Label {
        /// The labels, different in more than case.
        labels: Vec<String>,
    },
    /// Items, one a line.
    Lines {
        /// Most items.
        count_max: usize,
    },
    /// An integer of this range.
    Integer {
        /// Least.
        low: i64,
        /// Greatest.
        high: i64,
    },
}

/// A value for a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerValue {
    Text(String),
    List(Vec<String>),
    /// A number.
    Integer(i64),
}

/// An answer that is not what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Not one of the labels.
    #[error("the model answered `{answered}`, which is none of the labels")]
    NoLabel {
        /// What the model wrote, shortened.
        answered: String,
    },
    /// Not an integer.
    #[error("the model answered `{answered}`, which is no integer")]
    NoInteger {
        /// What the model wrote, shortened.
        answered: String,
    },
    /// An integer beyond the scale.
    #[error("the model answered {answered}, which is not from {low} to {high}")]
    OutOfRange {
        /// What the model wrote.
        answered: i64,
        /// Least.
        low: i64,
        /// Greatest.
        high: i64,
    },
    /// Nothing where a list was asked for.
    #[error("the model answered nothing")]
    Nothing,
}

impl Answer {
    /// The form of answers that can be read so; none where any can.
    pub fn form(&self) -> Option<Constraint> {
        match self {
            Self::Text | Self::Lines { .. } => None,
            Self::Label { labels } => Some(Constraint::Choice(labels.clone())),
            Self::Integer { low, high } => Some(Constraint::Integer { low: *low, high: *high }),
        }
    }

    /// Reads what the model wrote.
    pub fn read(&self, text: &str) -> Result<AnswerValue, AnswerError> {
        match self {
            Self::Text => Ok(AnswerValue::Text(text.trim().to_owned())),
            Self::Label { labels } => read_label(text, labels),
            Self::Lines { count_max } => read_lines(text, *count_max),
            Self::Integer { low, high } => read_integer(text, *low, *high),
        }
    }
}

/// The start of an answer, for an error.
fn quote(text: &str) -> String {
    const CHARS_MAX: usize = 80;
    let text = text.trim();
    let start: String = text.chars().take(CHARS_MAX).collect();
    if start.len() < text.len() { format!("{start}...") } else { start }
}

/// Lower case, without quotes, markdown and punctuation around it.
fn plain(text: &str) -> String {
    let is_dressing = |character: char| {
        character.is_whitespace()
            || "\"'`*_.,;:!?()[]{}<>\u{201c}\u{201d}\u{2018}\u{2019}\u{ab}\u{bb}".contains(character)
    };
    text.trim_matches(is_dressing).to_lowercase()
}

/// The label an answer means: equal to it, or begun by it, or its beginning (an answer cut short).
/// More than one possible meaning is none.
fn read_label(text: &str, labels: &[String]) -> Result<AnswerValue, AnswerError> {
    let chosen = |label: &String| Ok(AnswerValue::Text(label.clone()));
    if let Some(label) = labels.iter().find(|label| label.trim() == text.trim()) {
        return chosen(label);
    }
    let first_line = text.trim().lines().next().unwrap_or_default();
    let line = plain(first_line);
    let answer =
        ["label:", "answer:"].iter().find_map(|lead| line.strip_prefix(lead)).map_or(line.clone(), plain);
    if let Some(label) = labels.iter().find(|label| plain(label) == answer && !answer.is_empty()) {
        return chosen(label);
    }
    let begins = |label: &&String| {
        let label = plain(label);
        !label.is_empty()
            && answer.strip_prefix(&label).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    if let Some(label) = labels.iter().filter(begins).max_by_key(|label| label.len()) {
        return chosen(label);
    }
    let mut continued = labels.iter().filter(|label| !answer.is_empty() && plain(label).starts_with(&answer));
    match (continued.next(), continued.next()) {
        (Some(label), None) => chosen(label),
        _ => Err(AnswerError::NoLabel { answered: quote(text) }),
    }
}

fn read_lines(text: &str, count_max: usize) -> Result<AnswerValue, AnswerError> {
    let items: Vec<String> =
        text.lines().map(item).filter(|item| !item.is_empty()).take(count_max).map(str::to_owned).collect();
    if items.is_empty() { Err(AnswerError::Nothing) } else { Ok(AnswerValue::List(items)) }
}

/// A line without its bullet or number.
fn item(line: &str) -> &str {
    let line = line.trim();
    for bullet in ["- ", "* ", "\u{2022}", "\u{2013} "] {
        if let Some(rest) = line.strip_prefix(bullet) {
            return rest.trim();
        }
    }
    let rest = line.trim_start_matches(|character: char| character.is_ascii_digit());
    match rest.strip_prefix(['.', ')']) {
        Some(item) if rest.len() < line.len() && (item.is_empty() || item.starts_with(' ')) => item.trim(),
        _ => line,
    }
}

/// The first integer of the answer, which must not be the start of a decimal number.
fn read_integer(text: &str, low: i64, high: i64) -> Result<AnswerValue, AnswerError> {
    let no_integer = || AnswerError::NoInteger { answered: quote(text) };
    let start = text.find(|character: char| character.is_ascii_digit()).ok_or_else(no_integer)?;
    let digits =
        text[start..].split(|character: char| !character.is_ascii_digit()).next().unwrap_or_default();
    let after = &text[start + digits.len()..];
    let is_decimal =
        after.strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if is_decimal {
        return Err(no_integer());
    }
    let size: i64 = digits.parse().map_err(|_| no_integer())?;
    let answered = if text[..start].ends_with('-') { -size } else { size };
    if (low..=high).contains(&answered) {
        Ok(AnswerValue::Integer(answered))
    } else {
        Err(AnswerError::OutOfRange { answered, low, high })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn label(text: &str) -> Option<String> {
        let labels = ["good", "Not good", "bad", "batch"].map(str::to_owned).to_vec();
        match (Answer::Label { labels }).read(text) {
            Ok(AnswerValue::Text(label)) => Some(label),
            _ => None,
        }
    }

    #[test]
    fn labels_are_found_behind_quotes_case_and_chatter() {
        let cases = [
            ("good", Some("good")),
            (" \"Good.\"\n", Some("good")),
            ("**NOT GOOD**", Some("Not good")),
            ("Label: bad", Some("bad")),
            ("good, because it is", Some("good")),
            ("go", Some("good")),
            ("ba", None),
            ("goodness", None),
            ("excellent", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(label(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_wrong_answer_is_quoted() {
        let error = Answer::Label { labels: vec!["a".into()] }.read(&"z".repeat(100)).expect_err("no label");
        assert_eq!(
            error.to_string(),
            format!("the model answered `{}...`, which is none of the labels", "z".repeat(80))
        );
    }

    #[test]
    fn lists_lose_bullets_and_numbers_and_end_at_the_count() {
        let read = |text: &str| Answer::Lines { count_max: 3 }.read(text);
        let list =
            |items: &[&str]| Ok(AnswerValue::List(items.iter().map(|item| (*item).to_owned()).collect()));
        assert_eq!(read("1. apple\n2) pear\n\n- 3.5 figs\nmore"), list(&["apple", "pear", "3.5 figs"]));
        assert_eq!(read("2024 wine\n1."), list(&["2024 wine"]));
        assert_eq!(read(" \n"), Err(AnswerError::Nothing));
    }

    #[test]
    fn integers_stay_in_their_range() {
        let read = |text: &str| Answer::Integer { low: -1, high: 5 }.read(text);
        assert_eq!(read("4"), Ok(AnswerValue::Integer(4)));
        assert_eq!(read("Rating: 4/5."), Ok(AnswerValue::Integer(4)));
        assert_eq!(read("-1"), Ok(AnswerValue::Integer(-1)));
        assert_eq!(read("7"), Err(AnswerError::OutOfRange { answered: 7, low: -1, high: 5 }));
        assert_eq!(read("4.5"), Err(AnswerError::NoInteger { answered: "4.5".into() }));
        assert_eq!(
            read("99999999999999999999"),
            Err(AnswerError::NoInteger { answered: "99999999999999999999".into() })
        );
        assert_eq!(read("four"), Err(AnswerError::NoInteger { answered: "four".into() }));
    }

    proptest! {
        #[test]
        fn any_answer_is_read_without_a_panic(text in "\\PC{0,40}") {
            for answer in [
                Answer::Text,
                Answer::Label { labels: vec!["a".into(), "\u{e9}t\u{e9}".into()] },
                Answer::Lines { count_max: 2 },
                Answer::Integer { low: 1, high: 5 },
            ] {
                let _ = answer.read(&text);
            }
        }
    }
}
