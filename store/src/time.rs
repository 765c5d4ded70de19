//! Instants as the store keeps them.

use base::Millis;
use serde::{Deserialize, Serialize};

/// An instant, in milliseconds since 1970-01-01 UTC. Given by the caller, never read from a clock here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// The instant `span` later.
    pub fn after(self, span: Millis) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The instant `span` earlier.
    pub fn before(self, span: Millis) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// The UTC day that holds the instant, counted from 1970-01-01.
    pub fn day(self) -> u64 {
        self.0 / 86_400_000
    }

    /// As RFC 3339 has it, in UTC.
    pub fn rfc3339(self) -> String {
        let (year, month, day) = civil(self.day());
        let ms = self.0 % 86_400_000;
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1_000)
    }

    /// As SQL's BIGINT.
    pub(crate) fn to_sql(self) -> i64 {
        to_sql(self.0)
    }
}

/// The first day of the UTC month that holds a day, both counted from 1970-01-01.
pub fn month_start(day: u64) -> u64 {
    day - (civil(day).2 - 1)
}

/// Year, month and day of the month of a UTC day, counted from 1970-01-01.
fn civil(day: u64) -> (u64, u64, u64) {
    // Days since 0000-03-01, in eras of 400 years: a year that begins in March ends with its leap day, and the
    // lengths of its months repeat themselves every five (Hinnant's `civil_from_days`).
    let (era, day_of_era) = ((day + 719_468) / 146_097, (day + 719_468) % 146_097);
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    // Months were counted from March; January and February are of the next year.
    let (calendar_month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + carry, calendar_month, day_of_month)
}

/// A count as SQL's BIGINT; what would not fit stays at the largest BIGINT.
pub(crate) fn to_sql(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A BIGINT that was written by [`to_sql`].
pub(crate) fn from_sql(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

/// An instant that was written by [`UnixMillis::to_sql`].
pub(crate) fn instant(count: i64) -> UnixMillis {
    UnixMillis(from_sql(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_written_as_calendars_have_it() {
        let known = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_735_689_599_999, "2024-12-31T23:59:59.999Z"),
            (1_740_787_200_000, "2025-03-01T00:00:00.000Z"),
        ];
        for (ms, text) in known {
            assert_eq!(UnixMillis(ms).rfc3339(), text);
        }
    }

    #[test]
    fn every_day_of_a_long_time_is_in_its_month() {
        let is_leap =
            |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
        let mut day = 0;
        for year in 1970..2405 {
            for (month, usual) in [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31].into_iter().enumerate() {
                let days = if month == 1 && is_leap(year) { 29 } else { usual };
                for within in day..day + days {
                    assert_eq!(month_start(within), day, "{year}-{}", month + 1);
                }
                day += days;
            }
        }
    }
}
