//! Usage of long ago: of days before those that `store.usage_days_max` keeps by themselves, whole months are one sum each,
//! on their first day.

use store::{UnixMillis, month_start};

use crate::state::App;

/// Merges what is due, of at most so many months of tenants; whether nothing is left.
pub async fn merge(app: &App, most: usize) -> Result<bool, store::Error> {
    let Some(days) = app.config.store.usage_days_max else { return Ok(true) };
    let store = &app.runtime.store;
    let today = UnixMillis(app.runtime.shared.clock.unix_ms()).day();
    let Some(oldest) = store.first_usage_day().await? else { return Ok(true) };
    let mut left = most;
    for month in months(oldest, today.saturating_sub(days)) {
        for tenant in store.tenants_with_usage(month).await? {
            if left == 0 {
                return Ok(false);
            }
            left -= 1;
            store.merge_usage(tenant, month).await?;
        }
    }
    Ok(true)
}

/// The months from that of a day to the last that is over before another: the first day of each, and that of the next.
fn months(from: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = month_start(end);
    let mut first = month_start(from);
    std::iter::from_fn(move || {
        let month = (first, month_start(first + 31));
        first = month.1;
        (month.1 <= end).then_some(month)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_are_whole_and_those_that_are_not_over_are_left_out() {
        // 2024-01-31, a leap year.
        let from = 19_753;
        let all = |end| months(from, end).collect::<Vec<_>>();
        assert!(all(from).is_empty(), "it is not over");
        assert_eq!(all(19_754), [(19_723, 19_754)], "2024-02-01");
        assert_eq!(all(19_782), [(19_723, 19_754)], "2024-02-29");
        assert_eq!(all(19_783), [(19_723, 19_754), (19_754, 19_783)]);
        assert!(all(from - 400).is_empty(), "it has not begun");
    }
}
