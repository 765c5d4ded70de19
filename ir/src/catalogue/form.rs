//! Forms that a caller says in words or by example: `YYYY-MM-DD`, `(555) 555-5555`, `two decimals`, or what the
//! answers of pairs have in common. They become regular expressions, and examples in that very form.

use base::Constraint;

/// Most characters of an answer in one line.
const LINE_CHARS_MAX: usize = 300;
/// A longer target describes more than a form.
const TARGET_CHARS_MAX: usize = 60;
/// Fewest digits of a target that is a pattern of digits.
const DIGITS_MIN: usize = 4;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A moment, as an example's value writes it.
struct Moment {
    written: &'static str,
    /// Year, month and day; hour, minute and second.
    date: [u32; 3],
    time: [u32; 3],
}

/// Values of examples of dates.
const DATES: [Moment; 4] = [
    Moment { written: "6/23/1998", date: [1998, 6, 23], time: [0; 3] },
    Moment { written: "2016-02-28", date: [2016, 2, 28], time: [0; 3] },
    Moment { written: "17 November 2005", date: [2005, 11, 17], time: [0; 3] },
    Moment { written: "April 9, 2018", date: [2018, 4, 9], time: [0; 3] },
];

/// Values of examples of times of day.
const TIMES: [Moment; 4] = [
    Moment { written: "8.05 in the evening", date: [0; 3], time: [20, 5, 0] },
    Moment { written: "7 am", date: [0; 3], time: [7, 0, 0] },
    Moment { written: "11:20 am", date: [0; 3], time: [11, 20, 0] },
    Moment { written: "6:45 pm", date: [0; 3], time: [18, 45, 0] },
];

/// Digits of examples of patterns of digits.
const DIGITS: [&str; 3] = ["81703652948170365294", "49360271854936027185", "30691847523069184752"];

/// A part of a pattern of dates and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MomentPart {
    Year,
    ShortYear,
    Month,
    MonthName,
    Day,
    Hour,
    Minute,
    Second,
    Mark(char),
}

/// How letters are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LetterCase {
    Upper,
    Lower,
    Title,
}

/// How a number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberStyle {
    Percent,
    /// With so many digits behind the decimal mark.
    Decimals(usize),
    Thousands,
    Whole,
    Plain,
}

/// A target that is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A date or a time of day.
    Moment(Vec<MomentPart>),
    /// Digits, each a `0`, with marks between them.
    Digits(String),
    Case(LetterCase),
    Number(NumberStyle),
}

impl Target {
    /// What a target's words or its pattern say, where that is understood.
    pub(super) fn of(target: &str) -> Option<Self> {
        let target = target.trim();
        if let Some(parts) = moment(target) {
            return Some(Self::Moment(parts));
        }
        if let Some(pattern) = digits(target) {
            return Some(Self::Digits(pattern));
        }
        if target.chars().count() > TARGET_CHARS_MAX {
            return None;
        }
        let words = target.to_lowercase();
        let has = |any: &[&str]| any.iter().any(|word| words.contains(word));
        if has(&["upper case", "uppercase", "upper-case", "all caps", "capital letters"]) {
            return Some(Self::Case(LetterCase::Upper));
        }
        if has(&["lower case", "lowercase", "lower-case"]) {
            return Some(Self::Case(LetterCase::Lower));
        }
        if has(&["title case", "title-case"]) {
            return Some(Self::Case(LetterCase::Title));
        }
        if has(&["percent"]) {
            return Some(Self::Number(NumberStyle::Percent));
        }
        if has(&["decimal"]) {
            return decimals(&words).map(|places| Self::Number(NumberStyle::Decimals(places)));
        }
        if has(&["thousand"]) {
            return Some(Self::Number(NumberStyle::Thousands));
        }
        if has(&["whole number", "integer"]) {
            return Some(Self::Number(NumberStyle::Whole));
        }
        let is_plain = has(&["plain number", "number only", "just the number"])
            || words == "number"
            || words == "a number";
        is_plain.then_some(Self::Number(NumberStyle::Plain))
    }

    /// What all values in this form match; none where any line may be one.
    fn regex(&self) -> Option<String> {
        Some(match self {
            Self::Moment(parts) => parts.iter().map(|part| part.regex()).collect(),
            Self::Digits(pattern) => pattern
                .chars()
                .map(|mark| if mark == '0' { r"[0-9]".into() } else { escaped(mark) })
                .collect(),
            Self::Case(LetterCase::Upper) => format!(r"[^\p{{Ll}}\n]{{1,{LINE_CHARS_MAX}}}"),
            Self::Case(LetterCase::Lower) => format!(r"[^\p{{Lu}}\n]{{1,{LINE_CHARS_MAX}}}"),
            Self::Case(LetterCase::Title) => return None,
            Self::Number(NumberStyle::Percent) => r"-?[0-9]{1,12}(\.[0-9]{1,6})?%".into(),
            Self::Number(NumberStyle::Decimals(places)) => format!(r"-?[0-9]{{1,12}}\.[0-9]{{{places}}}"),
            Self::Number(NumberStyle::Thousands) => r"-?[0-9]{1,3}(,[0-9]{3}){0,5}(\.[0-9]{1,6})?".into(),
            Self::Number(NumberStyle::Whole) => r"-?[0-9]{1,12}".into(),
            Self::Number(NumberStyle::Plain) => r"-?[0-9]{1,12}(\.[0-9]{1,6})?".into(),
        })
    }
}

impl LetterCase {
    /// A text of one line in this case; none of more, or of none.
    pub(super) fn write(self, text: &str) -> Option<String> {
        if text.is_empty() || text.contains('\n') || text.chars().count() > LINE_CHARS_MAX {
            return None;
        }
        Some(match self {
            Self::Upper => text.to_uppercase(),
            Self::Lower => text.to_lowercase(),
            Self::Title => {
                let mut is_first = true;
                let mut out = String::new();
                for letter in text.chars() {
                    match is_first {
                        true => out.extend(letter.to_uppercase()),
                        false => out.extend(letter.to_lowercase()),
                    }
                    is_first = letter.is_whitespace() || letter == '-';
                }
                out
            }
        })
    }
}

/// The regular expression of a target's form, where it has one that is understood.
pub(super) fn of_target(target: &str) -> Option<String> {
    let target = target.trim();
    if let Some(understood) = Target::of(target) {
        return understood.regex();
    }
    if target.chars().count() > TARGET_CHARS_MAX {
        return None;
    }
    let words = target.to_lowercase();
    let choices: Vec<&str> =
        words.split([' ', '/', ',']).filter(|word| !word.is_empty() && *word != "or").collect();
    let is_choice = words.contains(" or ") || words.contains('/');
    let are_words = choices.iter().all(|word| word.chars().all(char::is_alphabetic));
    let chosen = is_choice && are_words && (2..=4).contains(&choices.len());
    // As the target writes them, not as they were compared.
    chosen.then(|| {
        let choices = target.split([' ', '/', ',']).filter(|word| !word.is_empty() && *word != "or");
        choices.collect::<Vec<_>>().join("|")
    })
}

/// Whether a pattern has a date in it.
pub(super) fn has_date(parts: &[MomentPart]) -> bool {
    parts.iter().any(|part| part.is_of_date())
}

/// Whether a pattern has a time of day in it.
pub(super) fn has_time(parts: &[MomentPart]) -> bool {
    parts.contains(&MomentPart::Hour)
}

/// A moment in a pattern; none where the pattern asks for a part of the date that is not known (0).
pub(super) fn write(parts: &[MomentPart], date: [u32; 3], time: [u32; 3]) -> Option<String> {
    let [year, month, day] = date;
    let is_known = |part: &MomentPart| match part {
        MomentPart::Year | MomentPart::ShortYear => year > 0,
        MomentPart::Month | MomentPart::MonthName => month > 0,
        MomentPart::Day => day > 0,
        _ => true,
    };
    parts.iter().all(is_known).then(|| parts.iter().map(|part| part.write(date, time)).collect())
}

/// Values with their answers in a target's form, where examples of it can be made: of dates, times and digits.
pub(super) fn examples(target: &str) -> Vec<(String, String)> {
    let target = target.trim();
    if let Some(parts) = moment(target) {
        let moments = match (has_date(&parts), has_time(&parts)) {
            (true, true) => return Vec::new(),
            (true, false) => &DATES,
            _ => &TIMES,
        };
        let one = |moment: &Moment| {
            let written = parts.iter().map(|part| part.write(moment.date, moment.time)).collect();
            (moment.written.to_owned(), written)
        };
        return moments.iter().map(one).collect();
    }
    let Some(pattern) = digits(target) else { return Vec::new() };
    let count = pattern.matches('0').count();
    let one = |digits: &&str| {
        let mut left = digits.chars().cycle();
        let value: String = left.clone().take(count).collect();
        let written = pattern.chars().map(|mark| if mark == '0' { left.next().unwrap_or('0') } else { mark });
        (value, written.collect())
    };
    DIGITS.iter().map(one).collect()
}

/// The form that the answers of pairs have in common: some of a few, digits in one pattern, numbers, or a line.
pub(super) fn of_answers<'a>(answers: impl Iterator<Item = &'a str>) -> Option<Constraint> {
    let answers: Vec<&str> = answers.filter(|answer| !answer.is_empty()).collect();
    let mut distinct = answers.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if answers.is_empty() || answers.iter().any(|answer| answer.contains('\n')) {
        return None;
    }
    let is_repeated = |one: &&str| answers.iter().filter(|answer| *answer == one).count() > 1;
    if distinct.len() > 1 && distinct.iter().all(is_repeated) {
        return Some(Constraint::Choice(distinct.into_iter().map(str::to_owned).collect()));
    }
    let shape = |answer: &str| -> String {
        answer
            .chars()
            .map(|mark| if mark.is_ascii_digit() { r"[0-9]".to_owned() } else { escaped(mark) })
            .collect()
    };
    let first = shape(answers[0]);
    let has_digits = answers[0].chars().filter(char::is_ascii_digit).count() >= DIGITS_MIN;
    if has_digits && answers.len() > 1 && answers.iter().all(|answer| shape(answer) == first) {
        return Some(Constraint::Regex(first));
    }
    if answers.iter().all(|answer| answer.parse::<i64>().is_ok()) {
        return Some(Constraint::Regex(r"-?[0-9]{1,12}".into()));
    }
    if answers.iter().all(|answer| answer.parse::<f64>().is_ok_and(f64::is_finite)) {
        return Some(Constraint::Regex(r"-?[0-9]{1,12}(\.[0-9]{1,6})?".into()));
    }
    Some(Constraint::Regex(format!(r"[^\n]{{1,{LINE_CHARS_MAX}}}")))
}

/// A target that is a pattern of a date or a time of day, up to a remark behind a comma or in brackets.
fn moment(target: &str) -> Option<Vec<MomentPart>> {
    let end = [", ", " ("].iter().filter_map(|mark| target.find(mark)).min().unwrap_or(target.len());
    let pattern = target[..end].trim().to_uppercase();
    let mut rest = pattern.as_str();
    let mut parts = Vec::new();
    while let Some(mark) = rest.chars().next() {
        let is_timed = parts.contains(&MomentPart::Hour);
        let names = [
            ("YYYY", MomentPart::Year),
            ("YY", MomentPart::ShortYear),
            ("MMM", MomentPart::MonthName),
            ("MM", if is_timed { MomentPart::Minute } else { MomentPart::Month }),
            ("DD", MomentPart::Day),
            ("HH", MomentPart::Hour),
            ("SS", MomentPart::Second),
        ];
        let part = names.into_iter().find(|(name, _)| rest.starts_with(name));
        let (length, part) = match part {
            Some((name, part)) => (name.len(), part),
            None if mark.is_alphanumeric() => return None,
            None => (mark.len_utf8(), MomentPart::Mark(mark)),
        };
        parts.push(part);
        rest = &rest[length..];
    }
    let named = parts.iter().filter(|part| !matches!(part, MomentPart::Mark(_))).count();
    (named >= 2).then_some(parts)
}

/// A target that is a pattern of digits, written with any: each as a `0`.
fn digits(target: &str) -> Option<String> {
    let pattern = target.chars().map(|mark| match mark {
        '0'..='9' | '#' | 'X' | 'x' => Some('0'),
        ' ' | '(' | ')' | '-' | '.' | '/' | '+' => Some(mark),
        _ => None,
    });
    let pattern: String = pattern.collect::<Option<_>>()?;
    (pattern.matches('0').count() >= DIGITS_MIN).then_some(pattern)
}

fn decimals(words: &str) -> Option<usize> {
    const NAMED: [(&str, usize); 4] = [("one", 1), ("two", 2), ("three", 3), ("four", 4)];
    let mut found = words.split_whitespace().filter_map(|word| {
        let named = NAMED.iter().find(|(name, _)| *name == word).map(|(_, number)| *number);
        named.or_else(|| word.parse().ok())
    });
    found.next().filter(|places| (1..=9).contains(places))
}

impl MomentPart {
    fn is_of_date(self) -> bool {
        matches!(self, Self::Year | Self::ShortYear | Self::Month | Self::MonthName | Self::Day)
    }

    fn regex(self) -> String {
        match self {
            Self::Year => r"[12][0-9]{3}".into(),
            Self::ShortYear => r"[0-9]{2}".into(),
            Self::Month => "(0[1-9]|1[0-2])".into(),
            Self::MonthName => format!("({})", MONTHS.join("|")),
            Self::Day => r"(0[1-9]|[12][0-9]|3[01])".into(),
            Self::Hour => r"([01][0-9]|2[0-3])".into(),
            Self::Minute | Self::Second => r"[0-5][0-9]".into(),
            Self::Mark(mark) => escaped(mark),
        }
    }

    fn write(self, [year, month, day]: [u32; 3], [hour, minute, second]: [u32; 3]) -> String {
        match self {
            Self::Year => format!("{year:04}"),
            Self::ShortYear => format!("{:02}", year % 100),
            Self::Month => format!("{month:02}"),
            Self::MonthName => {
                MONTHS.get((month as usize).wrapping_sub(1)).copied().unwrap_or_default().to_owned()
            }
            Self::Day => format!("{day:02}"),
            Self::Hour => format!("{hour:02}"),
            Self::Minute => format!("{minute:02}"),
            Self::Second => format!("{second:02}"),
            Self::Mark(mark) => mark.to_string(),
        }
    }
}

/// A character that a regular expression matches to the letter.
fn escaped(mark: char) -> String {
    if mark.is_ascii_punctuation() { format!("\\{mark}") } else { mark.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_say_their_form() {
        let cases = [
            ("YYYY-MM-DD", r"[12][0-9]{3}\-(0[1-9]|1[0-2])\-(0[1-9]|[12][0-9]|3[01])"),
            ("hh:mm, 24 hours", r"([01][0-9]|2[0-3])\:[0-5][0-9]"),
            ("(555) 555-0100", r"\([0-9][0-9][0-9]\) [0-9][0-9][0-9]\-[0-9][0-9][0-9][0-9]"),
            ("###-####", r"[0-9][0-9][0-9]\-[0-9][0-9][0-9][0-9]"),
            ("two decimals", r"-?[0-9]{1,12}\.[0-9]{2}"),
            ("3 decimal places", r"-?[0-9]{1,12}\.[0-9]{3}"),
            ("yes or no", "yes|no"),
            ("Yes/No", "Yes|No"),
            ("a plain number", r"-?[0-9]{1,12}(\.[0-9]{1,6})?"),
        ];
        for (target, regex) in cases {
            assert_eq!(of_target(target).as_deref(), Some(regex), "{target}");
        }
        for target in
            ["Last, First", "a friendly letter", "title case", "MM", "two or three friendly words, please"]
        {
            assert_eq!(of_target(target), None, "{target}");
        }
    }

    #[test]
    fn examples_are_written_in_the_form_itself() {
        let dates = examples("DD.MM.YYYY");
        assert_eq!(dates.last(), Some(&("April 9, 2018".to_owned(), "09.04.2018".to_owned())));
        assert_eq!(examples("HH:MM")[0].1, "20:05");
        assert_eq!(examples("DD MMM YY")[1].1, "28 Feb 16");
        assert_eq!(examples("(555) 555-0100")[0], ("8170365294".to_owned(), "(817) 036-5294".to_owned()));
        assert_eq!(examples("upper case"), []);
    }

    #[test]
    fn answers_say_their_common_form() {
        let form = |answers: &[&str]| of_answers(answers.iter().copied());
        let regex = |text: &str| Some(Constraint::Regex(text.to_owned()));
        assert_eq!(form(&["b", "a", "b", "a"]), Some(Constraint::Choice(vec!["a".into(), "b".into()])));
        assert_eq!(
            form(&["2024-03-05", "2021-07-17"]),
            regex(r"[0-9][0-9][0-9][0-9]\-[0-9][0-9]\-[0-9][0-9]")
        );
        assert_eq!(form(&["4", "17"]), regex(r"-?[0-9]{1,12}"));
        assert_eq!(form(&["4.5", "17"]), regex(r"-?[0-9]{1,12}(\.[0-9]{1,6})?"));
        assert_eq!(form(&["Rome", "Oslo"]), regex(r"[^\n]{1,300}"));
        assert_eq!(form(&["a\nb"]), None);
    }
}
