//! Time zones as clients of Postgres name them, in a form that DataFusion reads. Must not know who sets one.

use datafusion::arrow::array::timezone::Tz;

/// A time zone by its name, or by hours: `+02`, and with the other sign `GMT-2`, as POSIX counts them.
pub(crate) fn time_zone(text: &str) -> Option<String> {
    let text = text.trim();
    let is_known = |zone: &str| zone.parse::<Tz>().is_ok();
    if is_known(text) {
        return Some(text.to_owned());
    }
    let upper = text.to_ascii_uppercase();
    if ["UTC", "GMT", "Z", "ZULU"].contains(&upper.as_str()) {
        return Some("UTC".to_owned());
    }
    let posix = upper.strip_prefix("GMT").or_else(|| upper.strip_prefix("UTC"));
    let (hours, minutes) = posix.unwrap_or(&upper).split_once(':').unwrap_or((posix.unwrap_or(&upper), "0"));
    let hours: i32 = hours.parse().ok()?;
    let minutes: u32 = minutes.parse().ok()?;
    let is_west = (hours < 0) != posix.is_some();
    let zone = format!("{}{:02}:{minutes:02}", if is_west { '-' } else { '+' }, hours.unsigned_abs());
    is_known(&zone).then_some(zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_zones_have_names_or_hours() {
        for (text, zone) in [
            ("Europe/Berlin", Some("Europe/Berlin")),
            ("utc", Some("UTC")),
            ("-8", Some("-08:00")),
            ("+05:30", Some("+05:30")),
            ("GMT-2", Some("+02:00")),
            ("nowhere", None),
            ("-2147483648", None),
        ] {
            assert_eq!(time_zone(text).as_deref(), zone, "{text}");
        }
    }
}
