//! Usage of processes that have ended without writing it to the store, however they ended: it is sent from what is left of
//! their journals, under the writers and numbers that they would have sent it with. What the store has is not added again,
//! and what it cannot know, because another database's process left it, is not added at all.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use base::{Millis, Money, TenantId, TokenCount};
use store::{UsageKey, UsageReplay, UsageRow, UsageWrite, Used};

use crate::runtime::Runtime;
use crate::usage_journal::{JournalEntry, LeftSegment};

/// For so many days a file is kept whose writer the database does not know: the server of its own may start again.
const FOREIGN_DAYS: u64 = 30;

/// A writer that was heard of within this time need not be heard of again: far less than it takes to be forgotten.
const HEARD_WITHIN: Millis = Millis(24 * 60 * 60 * 1_000);

/// Before requests are taken: has the store know the writers of this process, and sends what others left.
pub async fn begin(runtimes: &[Arc<Runtime>]) {
    for runtime in runtimes {
        keep_known(runtime).await;
    }
    if let Some(runtime) = runtimes.first() {
        send_left(runtime).await;
    }
}

/// Has the store know the writer of a model's usage, by which it will tell what of its journal it has. One that writes nothing for
/// long is forgotten, so it is said again now and then.
pub async fn keep_known(runtime: &Runtime) {
    let shared = &runtime.shared;
    if shared.journals.is_none() {
        return;
    }
    let (writer, at) = (shared.accounts.writer(), shared.unix_now());
    if let Err(error) = runtime.store.know_usage_writer(writer, at, at.before(HEARD_WITHIN)).await {
        tracing::warn!(%error, "a writer of usage is not known to the database before its next write");
    }
}

/// Sends what processes that have ended have left, in the order of their numbers. What the store does not take now is kept
/// for the next time.
pub async fn send_left(runtime: &Runtime) {
    let Some(folder) = &runtime.shared.journals else { return };
    for path in folder.left() {
        let shown = path.display();
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            // Another process of the same database was quicker.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                folder.set_aside(&path);
                continue;
            }
            Err(error) => {
                tracing::error!(%error, path = %shown, "what is left of a journal of usage cannot be read");
                folder.set_aside(&path);
                continue;
            }
        };
        let Some(left) = LeftSegment::parse(&text) else {
            tracing::error!(path = %shown, "what is left of a journal of usage is damaged from its beginning");
            folder.remove_left(&path);
            continue;
        };
        if left.is_torn {
            let lines = left.entries.len();
            tracing::warn!(path = %shown, lines, "the end of a journal of usage is damaged; what is before it counts");
        }
        match send(runtime, &left).await {
            Ok(UsageReplay::Added) => {
                let lines = left.entries.len();
                tracing::info!(
                    lines,
                    "usage is counted that an earlier process had not written to the database"
                );
                folder.remove_left(&path);
            }
            Ok(UsageReplay::Known) => folder.remove_left(&path),
            Ok(UsageReplay::Foreign) => {
                tracing::warn!(path = %shown, "a journal of usage is another database's, and is not counted in this one");
                let today = runtime.shared.unix_now().day();
                let last = left.entries.iter().map(|entry| entry.day).max();
                match last.is_none_or(|last| today.saturating_sub(last) > FOREIGN_DAYS) {
                    true => folder.remove_left(&path),
                    false => folder.leave_to_others(&path),
                }
            }
            // Not before those that come before it.
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, "what is left of a journal of usage may not be written and is kept");
                return;
            }
            Err(error) => {
                tracing::error!(%error, path = %shown, "what is left of a journal of usage cannot be written");
                folder.set_aside(&path);
            }
        }
    }
}

async fn send(runtime: &Runtime, left: &LeftSegment) -> Result<UsageReplay, store::Error> {
    let rows = rows_of(left);
    let (writer, number, at) = (&left.head.writer, left.head.number, runtime.shared.unix_now());
    runtime.store.replay_usage(UsageWrite { writer, number, rows: &rows, at }).await
}

/// The sums of what was left, as the store has them.
fn rows_of(left: &LeftSegment) -> Vec<UsageRow> {
    let mut sums: BTreeMap<UsageKey, Used> = BTreeMap::new();
    for entry in &left.entries {
        let JournalEntry { tenant, day, route, requests, rows, prompt, cached, computed, output, cost } =
            entry;
        let key = UsageKey {
            tenant: TenantId(*tenant),
            day: *day,
            model: left.head.model.clone(),
            route: route.to_string(),
        };
        *sums.entry(key).or_default() += Used {
            requests: *requests,
            rows: *rows,
            prompt: TokenCount(*prompt),
            cached: TokenCount(*cached),
            computed: TokenCount(*computed),
            output: TokenCount(*output),
            cost: Money(*cost),
        };
    }
    sums.into_iter().map(|(key, used)| UsageRow { key, used }).collect()
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::usage_journal::SegmentHead;

    #[test]
    fn amounts_of_a_tenant_a_day_and_a_route_are_one_sum() {
        let entry = |tenant, day, route, rows| {
            let (requests, prompt, cached, computed, output, cost) = (1, 2, 3, 4, 5, 6);
            let route = Cow::Borrowed(route);
            JournalEntry { tenant, day, route, requests, rows, prompt, cached, computed, output, cost }
        };
        let entries = vec![
            entry(1, 7, "cells", 10),
            entry(2, 7, "cells", 20),
            entry(1, 7, "cells", 30),
            entry(1, 7, "sql", 40),
            entry(1, 8, "cells", 50),
        ];
        let head = SegmentHead { writer: "a".into(), number: 1, model: "demo".into() };
        let rows = rows_of(&LeftSegment { head, entries, is_torn: false });
        let shown: Vec<_> = rows
            .iter()
            .map(|row| {
                (row.key.tenant.0, row.key.day, row.key.route.as_str(), row.used.requests, row.used.rows)
            })
            .collect();
        assert_eq!(
            shown,
            [(1, 7, "cells", 2, 40), (1, 7, "sql", 1, 40), (1, 8, "cells", 1, 50), (2, 7, "cells", 1, 20)]
        );
        let (both, cost) = (rows[0].used, Money(12));
        assert_eq!((both.prompt, both.cached, both.cost), (TokenCount(4), TokenCount(6), cost));
        assert_eq!((both.computed, both.output), (TokenCount(8), TokenCount(10)));
        assert!(rows.iter().all(|row| row.key.model == "demo"));
    }
}
