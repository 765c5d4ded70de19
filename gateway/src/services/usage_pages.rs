//! Pages of all tenants' usage, from the newest day back. A page may part a day: what one call of the store reads is
//! bounded, however many tenants there are.

use std::ops::RangeInclusive;

use serving::error::{RequestError, stored};
use store::UsageRow;

use crate::state::App;
use crate::wire::usage_cursor::UsageCursor;

/// A page of usage.
pub struct UsagePage {
    /// Sums by day, tenant, model and route.
    pub rows: Vec<UsageRow>,
    /// Before this are more; none: the page has the first of all that was asked for.
    pub before: Option<UsageCursor>,
}

/// The last sums of some days, at most so many, of those that stand before a cursor.
pub async fn read(
    app: &App,
    days: RangeInclusive<u64>,
    before: Option<UsageCursor>,
    rows_max: usize,
) -> Result<UsagePage, RequestError> {
    let end = days.end() + 1;
    let (end, mut key) = match before {
        Some(UsageCursor::Day(day)) => (day.min(end), None),
        Some(UsageCursor::Key(key)) if key.day < end => (key.day + 1, Some(key)),
        // All stand before a day that is still to come.
        Some(UsageCursor::Key(_)) | None => (end, None),
    };
    let mut left = *days.start()..end.max(*days.start());
    let (mut rows, mut before) = (Vec::new(), None);
    while before.is_none()
        && rows.len() < rows_max
        && let Some(day) = left.next_back()
    {
        let room = rows_max - rows.len();
        // One more says whether the day has more.
        let limit = u32::try_from(room).unwrap_or(u32::MAX).saturating_add(1);
        let mut found = stored(app.runtime.store.usage_of_day(day, key.take().as_ref(), limit).await)?;
        let is_parted = found.len() > room;
        found.truncate(room);
        rows.append(&mut found);
        if is_parted {
            before = rows.last().map(|row: &UsageRow| UsageCursor::Key(row.key.clone()));
        }
    }
    if before.is_none() && !left.is_empty() {
        before = Some(UsageCursor::Day(left.end));
    }
    rows.reverse();
    Ok(UsagePage { rows, before })
}
