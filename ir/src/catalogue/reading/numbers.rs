//! Numbers of a text, written in the style that is asked for; digits put into a pattern.

use std::sync::LazyLock;

use regex::Regex;

use crate::catalogue::form::NumberStyle;

#[expect(clippy::expect_used, reason = "a constant, and tests that use it")]
static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?P<sign>[-\u{2212}])?(?P<digits>\d+(?:[.,'\u{a0}\u{202f}]\d+)*)")
        .expect("a regular expression")
});

/// Most digits before the decimal mark.
const DIGITS_MAX: usize = 15;

/// A number in digits: its sign, what is before the decimal mark, and behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    whole: String,
    fraction: String,
}

/// The numbers that a text may mean, in its order: of a mark that may be a decimal one or may not, both.
fn decimals(text: &str) -> Vec<Decimal> {
    let mut found = Vec::new();
    for one in NUMBER.captures_iter(text) {
        let Some(digits) = one.name("digits").map(|digits| digits.as_str()) else { continue };
        // A dash between two words or numbers is no sign.
        let before = text[..one.get(0).map_or(0, |whole| whole.start())].chars().next_back();
        let is_negative = one.name("sign").is_some() && before.is_none_or(|before| !before.is_alphanumeric());
        let marks: Vec<(usize, char)> =
            digits.char_indices().filter(|(_, mark)| !mark.is_ascii_digit()).collect();
        let whole = |text: &str| -> String { text.chars().filter(char::is_ascii_digit).collect() };
        let split = |place: usize| {
            let (before, behind) = digits.split_at(place);
            Decimal { is_negative, whole: whole(before), fraction: whole(behind) }
        };
        let plain = Decimal { is_negative, whole: whole(digits), fraction: String::new() };
        let is_grouped = |behind: &str| behind.chars().filter(char::is_ascii_digit).count() == 3;
        match marks.as_slice() {
            [] => found.push(plain),
            [(place, mark)] if matches!(mark, '.' | ',') => {
                let could_be_group = is_grouped(&digits[*place..]) && *place <= 3 && !digits.starts_with('0');
                match (could_be_group, mark) {
                    // In English a comma before three digits separates thousands, and a point does not.
                    (true, ',') => found.extend([plain, split(*place)]),
                    (true, _) => found.extend([split(*place), plain]),
                    _ => found.push(split(*place)),
                }
            }
            [_] => found.push(plain),
            [first @ .., (place, last)] => {
                if first.iter().all(|(_, mark)| mark == last) {
                    found.push(plain);
                } else {
                    found.push(split(*place));
                }
            }
        }
    }
    found.retain(|number| number.whole.len() <= DIGITS_MAX);
    found
}

impl Decimal {
    fn sign(&self) -> &'static str {
        if self.is_negative { "-" } else { "" }
    }

    /// Without zeros in front.
    fn whole(&self) -> &str {
        let short = self.whole.trim_start_matches('0');
        if short.is_empty() { "0" } else { short }
    }

    fn tail(&self) -> String {
        if self.fraction.is_empty() { String::new() } else { format!(".{}", self.fraction) }
    }

    /// With so many digits behind the decimal mark, rounded away from zero at the half.
    fn rounded(&self, places: usize) -> Option<String> {
        let mut digits: Vec<u8> = self.whole().bytes().chain(self.fraction.bytes()).collect();
        let keep = self.whole().len() + places;
        let rounds_up = digits.get(keep).is_some_and(|digit| *digit >= b'5');
        digits.resize(keep, b'0');
        if rounds_up {
            for digit in digits.iter_mut().rev() {
                if *digit != b'9' {
                    *digit += 1;
                    break;
                }
                *digit = b'0';
            }
            if digits.iter().all(|digit| *digit == b'0') {
                digits.insert(0, b'1');
            }
        }
        let text = String::from_utf8(digits).ok()?;
        let (whole, fraction) = text.split_at(text.len() - places);
        Some(if places == 0 {
            format!("{}{whole}", self.sign())
        } else {
            format!("{}{whole}.{fraction}", self.sign())
        })
    }

    fn grouped(&self) -> String {
        let whole = self.whole();
        let mut out = String::new();
        for (place, digit) in whole.chars().enumerate() {
            if place > 0 && (whole.len() - place).is_multiple_of(3) {
                out.push(',');
            }
            out.push(digit);
        }
        format!("{}{out}{}", self.sign(), self.tail())
    }

    /// A hundred times as much.
    fn hundredfold(&self) -> Self {
        let mut fraction = self.fraction.clone();
        while fraction.len() < 2 {
            fraction.push('0');
        }
        let behind = fraction.split_off(2);
        let behind = behind.trim_end_matches('0').to_owned();
        Self { is_negative: self.is_negative, whole: format!("{}{fraction}", self.whole), fraction: behind }
    }

    fn plain(&self) -> String {
        format!("{}{}{}", self.sign(), self.whole(), self.tail())
    }
}

/// The numbers of a text in a style.
pub(super) fn styled(style: NumberStyle, text: &str) -> Vec<String> {
    let numbers = decimals(text);
    match style {
        NumberStyle::Plain => numbers.iter().map(Decimal::plain).collect(),
        NumberStyle::Whole => {
            let is_whole = |number: &&Decimal| number.fraction.chars().all(|digit| digit == '0');
            numbers
                .iter()
                .filter(is_whole)
                .map(|number| format!("{}{}", number.sign(), number.whole()))
                .collect()
        }
        NumberStyle::Decimals(places) => numbers.iter().filter_map(|number| number.rounded(places)).collect(),
        NumberStyle::Thousands => numbers.iter().map(Decimal::grouped).collect(),
        NumberStyle::Percent => {
            let percent = |number: &Decimal| format!("{}%", number.plain());
            let is_share = |number: &Decimal| number.whole() == "0" || number.plain() == "1";
            let written = |number: &Decimal| {
                let share = (!text.contains('%') && is_share(number)).then(|| percent(&number.hundredfold()));
                share.into_iter().chain([percent(number)])
            };
            numbers.iter().flat_map(written).collect()
        }
    }
}

/// A text's digits in a pattern that has a `0` for each; a code of the country in front of them is left out.
pub(super) fn in_pattern(pattern: &str, text: &str) -> Vec<String> {
    const COUNTRY_DIGITS_MAX: usize = 3;
    let digits: Vec<char> = text.chars().filter(char::is_ascii_digit).collect();
    let wanted = pattern.matches('0').count();
    let Some(extra) = digits.len().checked_sub(wanted) else { return Vec::new() };
    let has_code = text.trim_start().starts_with('+') || (extra == 1 && digits.first() == Some(&'1'));
    if extra > COUNTRY_DIGITS_MAX || (extra > 0 && !has_code) {
        return Vec::new();
    }
    let mut left = digits[extra..].iter().copied();
    let mut fill = |mark| if mark == '0' { left.next().unwrap_or('0') } else { mark };
    vec![pattern.chars().map(&mut fill).collect()]
}
