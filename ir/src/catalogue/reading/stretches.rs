//! Stretches of a text that are what a call names: an address, a number to call, a date, a sum of money, an order's number.

use std::sync::LazyLock;

use regex::Regex;

use super::overlaps::longest;
use super::{NOTHING, READINGS_MAX, moments};

/// What can be told from its letters alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Email,
    Link,
    Phone,
    Date,
    Time,
    Year,
    Weekday,
    Money,
    Percent,
    Identifier,
}

/// What has a number by which it is found again. No account or card: their numbers have spaces.
const NUMBERED: [&str; 22] = [
    "article",
    "bill",
    "booking",
    "case",
    "confirmation",
    "contract",
    "customer",
    "flight",
    "invoice",
    "item",
    "model",
    "order",
    "part",
    "policy",
    "product",
    "purchase",
    "reference",
    "serial",
    "ticket",
    "tracking",
    "transaction",
    "version",
];

#[expect(clippy::expect_used, reason = "constants, and tests that use them")]
fn regex(text: &str) -> Regex {
    Regex::new(text).expect("a regular expression")
}

static EMAIL: LazyLock<Regex> =
    LazyLock::new(|| regex(r"[\p{L}\p{N}._%+-]+@[\p{L}\p{N}-]+(?:\.[\p{L}\p{N}-]+)*\.\p{L}{2,}"));
static LINK: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"(?i)(?:https?://|www\.)[^\s<>"']*[^\s<>"'.,;:!?)\]]"#));
static PHONE: LazyLock<Regex> = LazyLock::new(|| regex(r"\+?\(?\d[\d\s()./-]{4,}\d"));
static YEAR: LazyLock<Regex> = LazyLock::new(|| regex(r"\b(?:1[0-9]|20|21)\d{2}\b"));
static WEEKDAY: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?i)\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b"));
static MONEY: LazyLock<Regex> = LazyLock::new(|| {
    let number = r"\d+(?:[.,'\u{a0}]\d+)*";
    let currency = r"(?:\p{Sc}|\b(?:EUR|USD|GBP|CHF|JPY|CAD|AUD|Euros?|dollars?|pounds?|francs?|cents?)\b)";
    regex(&format!(r"(?i)(?:{currency}\s?{number}|{number}\s?{currency})"))
});
static IDENTIFIER: LazyLock<Regex> = LazyLock::new(|| regex(r"[\p{L}\p{N}]+(?:[-/_.][\p{L}\p{N}]+)*"));
/// A number with a fraction or with groups of digits.
static FRACTION: LazyLock<Regex> = LazyLock::new(|| regex(r"^\d+[.,]\d+$"));
static PERCENT: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?i)\d+(?:[.,]\d+)?\s?(?:%|percent\b|per cent\b)"));

impl Kind {
    /// What a call names, where it is of one kind.
    pub(super) fn of(what: &str) -> Option<Self> {
        let what = what.to_lowercase();
        let has = |words: &[&str]| {
            what.split(|mark: char| !mark.is_alphanumeric() && mark != '-').any(|word| words.contains(&word))
        };
        // Of what follows `of` it is the amount, and no sum of money: `the amount of flour`.
        let is_of = has(&["of", "per"]);
        let kinds = [
            (has(&["email", "e-mail", "emails", "e-mails"]), Self::Email),
            (has(&["link", "url", "website", "links", "urls"]), Self::Link),
            (has(&["phone", "telephone", "mobile", "fax"]), Self::Phone),
            (has(&["date", "dates"]), Self::Date),
            (has(&["time"]) && !is_of, Self::Time),
            (has(&["year"]) && !is_of, Self::Year),
            (has(&["weekday"]), Self::Weekday),
            (has(&["price", "cost", "fee", "amount", "total", "sum"]) && !is_of, Self::Money),
            (has(&["percentage", "percent"]), Self::Percent),
        ];
        let mut named = kinds.into_iter().filter(|(is_named, _)| *is_named).map(|(_, kind)| kind);
        // Of two kinds at once it is not clear which is meant.
        match (named.next(), named.next()) {
            (Some(kind), None) => Some(kind),
            (None, _) => {
                let is_named = has(&["number", "no", "id", "code"]) && has(&NUMBERED)
                    || has(&["reference", "sku", "identifier"]);
                (is_named && !is_of).then_some(Self::Identifier)
            }
            (Some(_), Some(_)) => None,
        }
    }

    /// The stretches of its kind, or that there is nothing; none where a text may write it in another way.
    pub(super) fn stretches(self, text: &str) -> Option<Vec<String>> {
        let found = match self {
            Self::Email => longest(text, &[&EMAIL]),
            Self::Link => longest(text, &[&LINK]),
            Self::Phone => {
                let digits = |one: &&str| one.chars().filter(char::is_ascii_digit).count();
                longest(text, &[&PHONE]).into_iter().filter(|one| (6..=15).contains(&digits(one))).collect()
            }
            Self::Date => moments::date_stretches(text),
            Self::Time => moments::time_stretches(text),
            Self::Year => longest(text, &[&YEAR]),
            Self::Weekday => longest(text, &[&WEEKDAY]),
            Self::Money => longest(text, &[&MONEY]),
            Self::Percent => longest(text, &[&PERCENT]),
            Self::Identifier => identifiers(text),
        };
        let found = super::distinct(found.into_iter().map(|one| one.trim().to_owned()).collect());
        if found.len() > READINGS_MAX {
            return None;
        }
        if !found.is_empty() {
            return Some(found);
        }
        // What is written in digits or with an @ in every language is not there without them.
        let has_digit = text.chars().any(char::is_numeric);
        let is_absent = match self {
            Self::Email => !text.contains('@'),
            Self::Phone | Self::Year | Self::Percent => !has_digit,
            Self::Money => !has_digit && text.is_ascii(),
            Self::Link | Self::Date | Self::Time | Self::Weekday | Self::Identifier => false,
        };
        is_absent.then(|| vec![NOTHING.to_owned()])
    }
}

/// Words with a digit that are none of what is known by its form.
fn identifiers(text: &str) -> Vec<&str> {
    let mut others = longest(text, &[&EMAIL, &LINK, &MONEY, &PERCENT]);
    others.extend(moments::date_stretches(text));
    others.extend(moments::time_stretches(text));
    let place = |part: &str| {
        let start = part.as_ptr().addr() - text.as_ptr().addr();
        start..start + part.len()
    };
    let others: Vec<_> = others.into_iter().map(place).collect();
    let is_free = |word: &&str| {
        let range = place(word);
        others.iter().all(|other| range.end <= other.start || other.end <= range.start)
    };
    let has_digit = |word: &&str| word.chars().any(|mark| mark.is_ascii_digit());
    let words = longest(text, &[&IDENTIFIER]).into_iter();
    words.filter(has_digit).filter(|word| !FRACTION.is_match(word)).filter(is_free).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(what: &str, text: &str, expected: &[&str]) {
        let found = Kind::of(what).expect("a kind").stretches(text).unwrap_or_default();
        assert_eq!(found, expected, "{what:?} of {text:?}");
    }

    #[test]
    fn a_kind_is_what_its_words_say() {
        assert_eq!(Kind::of("the customer's e-mail address"), Some(Kind::Email));
        assert_eq!(Kind::of("due date"), Some(Kind::Date));
        assert_eq!(Kind::of("the phone number"), Some(Kind::Phone));
        assert_eq!(Kind::of("the order number"), Some(Kind::Identifier));
        assert_eq!(Kind::of("Ticket ID"), Some(Kind::Identifier));
        for other in [
            "the person's name",
            "the amount of flour",
            "date and time",
            "the number of items",
            "the number",
            "updated",
        ] {
            assert_eq!(Kind::of(other), None, "{other}");
        }
    }

    #[test]
    fn stretches_are_found_in_the_texts_own_letters() {
        let text =
            "Invoice INV-2044 over 318.20 EUR is due on 15 March 2025 (see https://example.org/a?b=c).";
        check("the amount", text, &["318.20 EUR"]);
        check("the due date", text, &["15 March 2025"]);
        check("the link", text, &["https://example.org/a?b=c"]);
        // Whether a number is a year, only the model can tell.
        check("the year", text, &["2044", "2025"]);
        check(
            "the phone number",
            "Call Maria at 555-0142 or +49 (30) 1234567.",
            &["555-0142", "+49 (30) 1234567"],
        );
        check("the email", "Write to julia.stein@example.com.", &["julia.stein@example.com"]);
        check("the price", "It was $1,240.50, now \u{20ac}9", &["$1,240.50", "\u{20ac}9"]);
        check("the departure time", "LH 441 leaves at 16:05, not at 4 pm.", &["16:05", "4 pm"]);
        check("the weekday", "See you Friday.", &["Friday"]);
        check("the date", "on 4 May to Hamburg, 2024-01-02, 1.2.2023", &["4 May", "2024-01-02", "1.2.2023"]);
        check("the percentage", "a discount of 12.5 %", &["12.5 %"]);
        check("the invoice number", text, &["INV-2044"]);
        let text = "Statement from Kato Print, ref KP/26/014, 500 flyers at 1.50, JPY 24,000 incl. tax, 21 Jan 2026, 9:30";
        check("the reference number", text, &["KP/26/014", "500"]);
        check("the order number", "Order #88213 was shipped on 4 May to a@b.de.", &["88213"]);
    }

    #[test]
    fn what_cannot_be_there_is_nothing_and_what_may_be_written_otherwise_is_left_open() {
        check("the phone number", "Our new office is nice and bright.", &[NOTHING]);
        check("the email address", "Thanks, it works.", &[NOTHING]);
        check("the price", "Two tickets, please.", &[NOTHING]);
        // Not understood, but perhaps there.
        for (what, text) in
            [("the date", "am 15. M\u{e4}rz"), ("the phone number", "room 12"), ("the price", "for 5")]
        {
            assert_eq!(Kind::of(what).expect("a kind").stretches(text), None, "{text}");
        }
    }
}
