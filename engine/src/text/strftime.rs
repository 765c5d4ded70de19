//! Dates for chat templates that ask for one. The clock is not read here: the caller says when.

use minijinja::{Error, ErrorKind};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// `seconds` since 1970 (UTC) in the format of C's strftime, as far as templates use it.
pub(crate) fn strftime(seconds: u64, format: &str) -> Result<String, Error> {
    let days = seconds / 86_400;
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let month_name = MONTHS[month as usize - 1];
    let weekday = WEEKDAYS[((days + 3) % 7) as usize]; // 1970-01-01 was a Thursday
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        match characters.next() {
            Some('Y') => text += &year.to_string(),
            Some('y') => text += &format!("{:02}", year % 100),
            Some('m') => text += &format!("{month:02}"),
            Some('d') => text += &format!("{day:02}"),
            Some('B') => text += month_name,
            Some('b') => text += &month_name[..3],
            Some('A') => text += weekday,
            Some('a') => text += &weekday[..3],
            Some('H') => text += &format!("{hour:02}"),
            Some('I') => text += &format!("{:02}", (hour + 11) % 12 + 1),
            Some('p') => text += if hour < 12 { "AM" } else { "PM" },
            Some('M') => text += &format!("{minute:02}"),
            Some('S') => text += &format!("{second:02}"),
            Some('%') => text.push('%'),
            other => {
                let reason =
                    format!("strftime_now does not know %{}", other.map_or(String::new(), String::from));
                return Err(Error::new(ErrorKind::InvalidOperation, reason));
            }
        }
    }
    Ok(text)
}

/// Year, month and day of a day since 1970-01-01, by counting 400-year eras of 146,097 days from
/// 0000-03-01, so that a leap day ends a year.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = days / 146_097 * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "Thursday 01 Jan 1970 00:00:00"),
            (951_782_400, "Tuesday 29 Feb 2000 00:00:00"),
            (1_709_251_199, "Thursday 29 Feb 2024 23:59:59"),
            (4_107_542_400, "Monday 01 Mar 2100 00:00:00"),
        ] {
            assert_eq!(strftime(seconds, "%A %d %b %Y %H:%M:%S").expect("known"), expected);
        }
        assert_eq!(strftime(46_800, "%I %p %y-%m %B %a %%").expect("known"), "01 PM 70-01 January Thu %");
        assert!(strftime(0, "%Q").is_err());
    }
}
