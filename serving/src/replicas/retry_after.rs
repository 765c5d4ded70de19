//! For how long a server asks to be left alone: `Retry-After`, in seconds or as a date (RFC 9110, 10.2.3). Pure.
//!
//! A date is compared with the reply's own `Date`, so that clocks need not agree.

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Seconds from now on; none where the headers do not say.
pub(super) fn seconds(retry_after: Option<&str>, date: Option<&str>) -> Option<u64> {
    let asked = retry_after?.trim();
    if let Ok(seconds) = asked.parse() {
        return Some(seconds);
    }
    let (until, now) = (unix_seconds(asked)?, unix_seconds(date?.trim())?);
    Some(until.saturating_sub(now))
}

/// A date as HTTP writes it, `Sun, 06 Nov 1994 08:49:37 GMT`.
fn unix_seconds(date: &str) -> Option<u64> {
    let [_, day, month, year, time, "GMT"] = date.split_ascii_whitespace().collect::<Vec<_>>()[..] else {
        return None;
    };
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let (day, year) = (day.parse::<u64>().ok()?, year.parse::<u64>().ok()?);
    let clock: Vec<u64> = time.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [hour, minute, second] = clock[..] else { return None };
    let is_sound = (1..=31).contains(&day) && (1_970..10_000).contains(&year);
    if !is_sound || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days since 1 March of year 0, a year beginning in March (Hinnant, days_from_civil); 1970 begins 719,468 days on.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    Some(((days.checked_sub(719_468)? * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_count_and_so_does_a_date_after_the_replys_own() {
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(seconds(Some(" 7 "), None), Some(7));
        assert_eq!(seconds(Some("Sun, 06 Nov 1994 08:50:07 GMT"), date), Some(30));
        assert_eq!(seconds(Some("Sat, 05 Nov 1994 08:50:07 GMT"), date), Some(0), "that is over");
        for unread in ["soon", "-3", "0.5", "Sun, 06 Nov 1994 08:50:07", "Sun, 06 Nov 1994 08:61:07 GMT"] {
            assert_eq!(seconds(Some(unread), date), None, "{unread}");
        }
        assert_eq!(
            seconds(Some("Sun, 06 Nov 1994 08:50:07 GMT"), None),
            None,
            "nobody knows when it was said"
        );
        assert_eq!(seconds(None, date), None);
    }

    #[test]
    fn dates_are_seconds_since_1970() {
        for (date, expected) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Tue, 29 Feb 2000 23:59:59 GMT", 951_868_799),
            ("Wed, 01 Mar 2000 00:00:00 GMT", 951_868_800),
            ("Thu, 31 Dec 2026 00:00:00 GMT", 1_798_675_200),
        ] {
            assert_eq!(unix_seconds(date), Some(expected), "{date}");
        }
    }
}
