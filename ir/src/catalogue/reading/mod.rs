//! What a row's text says, written in the form that a call asks for: the dates, times, numbers and stretches that
//! stand in it. A model chooses among them and cannot write a digit that its text does not have. Where a text is not
//! understood there are no readings, and the answer is held to the form alone.

mod moments;
mod numbers;
mod overlaps;
mod stretches;

use base::{Constraint, ExcerptSource, TextReading};

use super::form;

/// Most readings of a text: with more of them the text is a table, and no cell.
const READINGS_MAX: usize = 40;
/// Most characters of a text that is looked through.
const TEXT_CHARS_MAX: usize = 20_000;
/// What is answered where a text has nothing to copy.
pub(super) const NOTHING: &str = "none";

/// Whether the texts of such a call can be read at all.
pub(super) fn can_read(reading: &TextReading) -> bool {
    match reading {
        TextReading::Formatted { target } => form::Target::of(target).is_some(),
        TextReading::Stretches { what } => stretches::Kind::of(what).is_some(),
    }
}

/// The readings of a text; none where it is not understood.
fn readings(reading: &TextReading, text: &str) -> Option<Vec<String>> {
    if text.chars().count() > TEXT_CHARS_MAX {
        return None;
    }
    let found = match reading {
        TextReading::Formatted { target } => formatted(&form::Target::of(target)?, text),
        TextReading::Stretches { what } => return stretches::Kind::of(what)?.stretches(text),
    };
    let found = distinct(found);
    (!found.is_empty() && found.len() <= READINGS_MAX).then_some(found)
}

fn formatted(target: &form::Target, text: &str) -> Vec<String> {
    match target {
        form::Target::Moment(parts) => {
            let (has_date, has_time) = (form::has_date(parts), form::has_time(parts));
            let dates = if has_date { moments::dates(text) } else { vec![moments::Date::default()] };
            let times = if has_time { moments::times(text) } else { vec![[0; 3]] };
            let written =
                |date: &moments::Date, time| form::write(parts, [date.year, date.month, date.day], time);
            dates.iter().flat_map(|date| times.iter().filter_map(|time| written(date, *time))).collect()
        }
        form::Target::Digits(pattern) => numbers::in_pattern(pattern, text),
        form::Target::Case(case) => case.write(text.trim()).into_iter().collect(),
        form::Target::Number(style) => numbers::styled(*style, text),
    }
}

/// The constraint of one row, whose cell has this text; none where it has none.
pub fn of_row(form: &Constraint, text: &str) -> Option<Constraint> {
    match form {
        Constraint::Reading { reading, otherwise, .. } => match readings(reading, text) {
            Some(readings) => Some(Constraint::Choice(readings)),
            None => of_row(otherwise.as_deref()?, text),
        },
        Constraint::Excerpt { of: ExcerptSource::Field(_), .. } => {
            (!text.trim().is_empty()).then(|| form.of_row(|_| Some(text.to_owned())))?
        }
        other => Some(other.clone()),
    }
}

fn distinct(mut found: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    found.retain(|one| seen.insert(one.clone()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(target: &str, text: &str, expected: &[&str]) {
        let reading = TextReading::Formatted { target: target.into() };
        let found = readings(&reading, text).unwrap_or_default();
        assert_eq!(found, expected, "{text:?} as {target:?}");
    }

    #[test]
    fn dates_are_written_in_the_pattern_that_is_asked_for() {
        check("YYYY-MM-DD", "March 5, 2024", &["2024-03-05"]);
        check("YYYY-MM-DD", "due 3 Aug 2022, please", &["2022-08-03"]);
        check("YYYY-MM-DD", "the 1st of June 2019", &["2019-06-01"]);
        check("DD.MM.YYYY", "2023-11-09T10:00:00Z", &["09.11.2023"]);
        check("DD MMM YY", "25.12.2020", &["25 Dec 20"]);
        check("YYYY-MM-DD", "7/4/2021", &["2021-07-04", "2021-04-07"]);
        check("YYYY-MM-DD", "31/12/99", &["1999-12-31"]);
        check("YYYY-MM-DD", "from 1 May 2020 to 2 May 2020", &["2020-05-01", "2020-05-02"]);
        check("MM-DD", "4 July", &["07-04"]);
        check("YYYY-MM-DD", "4 July", &[]);
        check("YYYY-MM-DD", "30 February 2020", &[]);
        check("YYYY-MM-DD", "ab 1.1.1", &[]);
    }

    #[test]
    fn times_are_written_in_the_pattern_that_is_asked_for() {
        check("HH:MM, 24 hours", "3:30 pm", &["15:30"]);
        check("HH:MM", "9 am", &["09:00"]);
        check("HH:MM", "12 a.m.", &["00:00"]);
        check("HH:MM:SS", "at 16:05", &["16:05:00"]);
        check("HH:MM", "from 8:15 to 25:99", &["08:15"]);
        check("HH:MM", "noon", &[]);
    }

    #[test]
    fn digits_and_numbers_are_those_of_the_text() {
        check("(555) 555-5555", "212.555.0187", &["(212) 555-0187"]);
        check("(555) 555-5555", "+1 212 555 0187", &["(212) 555-0187"]);
        check("(555) 555-5555", "555-0187", &[]);
        check("two decimals", "19.9", &["19.90"]);
        check("two decimals", "about 2.3456 m", &["2.35"]);
        check("two decimals", "1.299 EUR", &["1.30", "1299.00"]);
        check("a number with thousands separators", "1234567.5", &["1,234,567.5"]);
        check("a number with thousands separators", "-25000", &["-25,000"]);
        check("a plain number", "$1,299.00", &["1299.00"]);
        check("a plain number", "1.299,00 EUR", &["1299.00"]);
        check("a plain number", "12,5 kg", &["12.5"]);
        check("a plain number", "1,299 or 1.299", &["1299", "1.299"]);
        check("a plain number", "twelve", &[]);
        check("a whole number", "40 people", &["40"]);
        check("a percentage", "0.25", &["25%", "0.25%"]);
        check("a percentage", "7 %", &["7%"]);
    }

    #[test]
    fn letters_keep_their_order() {
        check("upper case", " acme gmbh\n", &["ACME GMBH"]);
        check("lower case", "BERLIN", &["berlin"]);
        check("title case", "john o'neil-smith", &["John O'neil-Smith"]);
        check("upper case", "a\nb", &[]);
    }

    #[test]
    fn a_row_is_held_to_its_readings_or_else_to_the_form() {
        let form = Constraint::Reading {
            field: "value".into(),
            reading: TextReading::Formatted { target: "a plain number".into() },
            otherwise: Some(Box::new(Constraint::Regex("[0-9]+".into()))),
        };
        assert_eq!(of_row(&form, "about 40"), Some(Constraint::Choice(vec!["40".into()])));
        assert_eq!(of_row(&form, "forty"), Some(Constraint::Regex("[0-9]+".into())));
    }
}
