//! Dates and times of day as texts write them, in English and in numbers.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::overlaps::longest;

/// A date; a part that the text leaves out is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Date {
    pub(super) year: u32,
    pub(super) month: u32,
    pub(super) day: u32,
}

const MONTH: &str = "(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|\
    sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)";
/// Where a date ends.
const END: &str = r"(?:\b|$)";

fn regex(text: &str) -> Regex {
    // Constants, and a test that uses each.
    #[expect(clippy::expect_used, reason = "constants")]
    Regex::new(text).expect("a regular expression")
}

/// `2024-03-05`.
static ISO: LazyLock<Regex> =
    LazyLock::new(|| regex(r"\b(?P<year>\d{4})[-/](?P<month>\d{1,2})[-/](?P<day>\d{1,2})(?:\b|T)"));
/// `5 March 2024`, `the 5th of March`.
static DAY_FIRST: LazyLock<Regex> = LazyLock::new(|| {
    let tail = r"\.?(?:,?\s+(?P<year>\d{4}))?";
    regex(&format!(r"(?i)\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\.?\s+(?:of\s+)?{MONTH}{END}{tail}"))
});
/// `March 5, 2024`, `March 5th`.
static MONTH_FIRST: LazyLock<Regex> = LazyLock::new(|| {
    let tail = r"(?:st|nd|rd|th)?(?:,?\s+(?P<year>\d{4}))?";
    regex(&format!(r"(?i)\b{MONTH}\.?\s+(?P<day>\d{{1,2}}){tail}{END}"))
});
/// `5/3/2024`, `5.3.24`: which of the two is the day is not said.
static NUMERIC: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"\b(?P<first>\d{1,2})(?P<mark>[./-])(?P<second>\d{1,2})[./-](?P<year>\d{4}|\d{2})\b")
});
/// `3:30 pm`, `16:05`, `16:05:30`.
static CLOCK: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?i)\b(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}))?(?:\s*(?P<half>[ap])\.?m\b)?")
});
/// `9 am`.
static HOUR: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)\b(?P<hour>\d{1,2})\s*(?P<half>[ap])\.?m\b"));

fn number(found: &Captures<'_>, name: &str) -> Option<u32> {
    found.name(name)?.as_str().parse().ok()
}

fn month(found: &Captures<'_>) -> Option<u32> {
    const MONTHS: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let name = found.name("month")?.as_str().to_lowercase();
    let place = MONTHS.iter().position(|month| name.starts_with(month))?;
    u32::try_from(place + 1).ok()
}

impl Date {
    /// A date that there is.
    fn checked(year: u32, month: u32, day: u32) -> Option<Self> {
        let is_leap =
            year == 0 || (year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)));
        let days = match month {
            2 => 28 + u32::from(is_leap),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        (1..=days).contains(&day).then_some(Self { year, month, day })
    }
}

/// A year of two digits: of this century up to 69, as most programs take it.
fn full_year(written: &str) -> Option<u32> {
    let year: u32 = written.parse().ok()?;
    match written.len() {
        2 if year < 70 => Some(2_000 + year),
        2 => Some(1_900 + year),
        _ => Some(year),
    }
}

/// The dates of a text, in its order; of one that may be read in two ways, both.
pub(super) fn dates(text: &str) -> Vec<Date> {
    let mut found: Vec<(usize, Date)> = Vec::new();
    for one in ISO.captures_iter(text) {
        let date = || Date::checked(number(&one, "year")?, number(&one, "month")?, number(&one, "day")?);
        found.extend(date().map(|date| (start(&one), date)));
    }
    for regex in [&DAY_FIRST, &MONTH_FIRST] {
        for one in regex.captures_iter(text) {
            let date = || {
                Date::checked(number(&one, "year").unwrap_or_default(), month(&one)?, number(&one, "day")?)
            };
            found.extend(date().map(|date| (start(&one), date)));
        }
    }
    for one in NUMERIC.captures_iter(text) {
        let Some(year) = one.name("year").and_then(|year| full_year(year.as_str())) else { continue };
        let (Some(first), Some(second)) = (number(&one, "first"), number(&one, "second")) else { continue };
        // With dots between them the day comes first wherever they are written so.
        let is_dotted = one.name("mark").is_some_and(|mark| mark.as_str() == ".");
        let month_first = Date::checked(year, first, second).filter(|_| !is_dotted);
        let day_first = Date::checked(year, second, first);
        found.extend(month_first.into_iter().chain(day_first).map(|date| (start(&one), date)));
    }
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, date)| date).collect()
}

fn start(found: &Captures<'_>) -> usize {
    found.get(0).map_or(0, |whole| whole.start())
}

/// The times of day of a text, in its order: hour, minute, second.
pub(super) fn times(text: &str) -> Vec<[u32; 3]> {
    let mut found: Vec<(usize, [u32; 3])> = Vec::new();
    for one in CLOCK.captures_iter(text).chain(HOUR.captures_iter(text)) {
        // The minutes of a clock are an hour to the other.
        let is_inside = |place: usize| CLOCK.find_iter(text).any(|clock| clock.range().contains(&place));
        if one.name("minute").is_none() && is_inside(start(&one)) {
            continue;
        }
        let Some(hour) = number(&one, "hour") else { continue };
        let hour = match one.name("half").map(|half| half.as_str().eq_ignore_ascii_case("p")) {
            Some(_) if !(1..=12).contains(&hour) => continue,
            Some(is_afternoon) => hour % 12 + if is_afternoon { 12 } else { 0 },
            None => hour,
        };
        let time = [hour, number(&one, "minute").unwrap_or(0), number(&one, "second").unwrap_or(0)];
        if time[0] < 24 && time[1] < 60 && time[2] < 60 {
            found.push((start(&one), time));
        }
    }
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, time)| time).collect()
}

/// The stretches of a text that are dates.
pub(super) fn date_stretches(text: &str) -> Vec<&str> {
    let regexes: [&Regex; 4] = [&ISO, &DAY_FIRST, &MONTH_FIRST, &NUMERIC];
    longest(text, &regexes)
}

/// The stretches of a text that are times of day.
pub(super) fn time_stretches(text: &str) -> Vec<&str> {
    let regexes: [&Regex; 2] = [&CLOCK, &HOUR];
    longest(text, &regexes)
}
