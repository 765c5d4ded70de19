//! Usage of long ago: of days before those that `store.usage_days_max` keeps by themselves, whole months are one sum each,
//! on their first day.
//!
//! It is merged in passes of a bounded number of steps, each the month of a tenant. A step that fails is logged and the pass
//! goes on; the next one begins behind the last step, so that a month that always fails keeps no other waiting.

use std::sync::{Arc, Mutex, PoisonError};

use base::TenantId;
use store::month_start;
use tokio::task::JoinHandle;

use crate::state::App;

/// Steps of a pass.
const STEPS_MAX: usize = 200;
/// Steps of a pass that may fail before it is given up for now: each may have waited as long as a call of the store may.
const FAILURES_MAX: usize = 3;

/// How far usage is merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergePosition {
    /// The first day of the month that is next; `None`: that of the first usage.
    month: Option<u64>,
    /// The last tenant of it that was looked at.
    after: Option<TenantId>,
    /// The first month of which a step failed since they were begun anew: it is looked at again.
    failed: Option<u64>,
}

/// Merges in the background: one pass at a time.
#[derive(Debug, Default)]
pub struct UsageMerger {
    position: Arc<Mutex<MergePosition>>,
    pass: Option<JoinHandle<()>>,
}

impl UsageMerger {
    /// Begins a pass, unless one still runs.
    pub fn begin_pass(&mut self, app: &Arc<App>) {
        if self.pass.as_ref().is_some_and(|pass| !pass.is_finished()) {
            return;
        }
        let (app, position) = (Arc::clone(app), Arc::clone(&self.position));
        self.pass = Some(tokio::spawn(async move {
            let begun = *position.lock().unwrap_or_else(PoisonError::into_inner);
            let reached = merge(&app, begun, STEPS_MAX).await;
            *position.lock().unwrap_or_else(PoisonError::into_inner) = reached;
        }));
    }
}

impl Drop for UsageMerger {
    fn drop(&mut self) {
        // A step is whole or was not begun: a transaction.
        if let Some(pass) = &self.pass {
            pass.abort();
        }
    }
}

/// Merges what is due from a position on, in at most so many steps; the position that it reached. It is the same where
/// nothing is left.
pub async fn merge(app: &App, begun: MergePosition, steps_max: usize) -> MergePosition {
    // Where a limit is set again everything is looked at again.
    let Some(days) = app.config.store.usage_days_max else { return MergePosition::default() };
    let today = app.runtime.shared.unix_now().day();
    let mut position = begun;
    let from = match begun.month {
        Some(month) => month,
        None => match app.runtime.store.first_usage_day().await {
            Ok(Some(day)) => month_start(day),
            Ok(None) => return begun,
            Err(error) => {
                tracing::warn!(%error, "usage of long ago was not merged into months");
                return begun;
            }
        },
    };
    position.month = Some(from);
    let (mut steps, mut failures) = (0, 0);
    for month in months(from, today.saturating_sub(days)) {
        let tenants = match app.runtime.store.tenants_with_usage(month).await {
            Ok(tenants) => tenants,
            Err(error) => {
                tracing::warn!(%error, "usage of long ago was not merged into months");
                return position;
            }
        };
        let after = position.after;
        for tenant in tenants.into_iter().filter(|tenant| after.is_none_or(|after| *tenant > after)) {
            if steps == steps_max || failures == FAILURES_MAX {
                return position;
            }
            steps += 1;
            position.after = Some(tenant);
            if let Err(error) = app.runtime.store.merge_usage(tenant, month).await {
                tracing::warn!(%error, tenant = tenant.0, first_day = month.0, "a month of usage was not merged");
                failures += 1;
                position.failed.get_or_insert(month.0);
            }
        }
        (position.month, position.after) = (Some(month.1), None);
    }
    if let Some(failed) = position.failed.take() {
        position.month = Some(failed);
    }
    position
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
