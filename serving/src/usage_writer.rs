//! Moves usage and cached answers from memory to the store, in batches.
//!
//! What cannot be written stays in memory within its bounds and is tried again; no request waits for it.

use std::collections::BTreeMap;

use base::TenantId;
use store::{NewResult, ResultKey, ResultLimits, UnixMillis, UsageKey, UsageRow, Used};

use crate::runtime::Runtime;
use crate::submit::render_answer;

/// Answers written at a time.
const ANSWERS_PER_WRITE: usize = 1_000;

/// Writes the sums of usage.
pub async fn write_usage(runtime: &Runtime) {
    let _moving = runtime.shared.accounts.moving().await;
    let sums = runtime.shared.accounts.take();
    if sums.is_empty() {
        return;
    }
    let day = UnixMillis(runtime.shared.clock.unix_ms()).day();
    let rows: Vec<UsageRow> = sums
        .iter()
        .map(|(account, spent)| UsageRow {
            key: UsageKey {
                tenant: account.tenant,
                day,
                model: runtime.model.name.clone(),
                route: account.route.into(),
            },
            used: Used {
                requests: spent.requests,
                rows: spent.rows,
                prompt: spent.usage.prompt,
                cached: spent.usage.cached,
                computed: spent.usage.computed,
                output: spent.usage.output,
            },
        })
        .collect();
    if let Err(error) = runtime.store.add_usage(&rows).await {
        tracing::warn!(%error, "usage was not written and is kept");
        runtime.shared.accounts.put_back(sums);
        return;
    }
    for (account, spent) in sums {
        runtime.shared.budgets.written(account.tenant, spent.usage);
    }
}

/// Writes answers for the next recalculation.
pub async fn write_answers(runtime: &Runtime) {
    let cache = &runtime.cache;
    let limits = ResultLimits {
        tenant_rows_max: cache.tenant_entries_max,
        rows_max: cache.entries_max,
        lifetime: cache.lifetime_ms,
        ..ResultLimits::default()
    };
    loop {
        let answers = runtime.shared.results.take_unwritten(ANSWERS_PER_WRITE);
        if answers.is_empty() {
            return;
        }
        let mut by_tenant: BTreeMap<TenantId, Vec<NewResult>> = BTreeMap::new();
        for (tenant, key, answer) in answers {
            let result = NewResult { key: ResultKey(key), value: render_answer(&answer) };
            by_tenant.entry(tenant).or_default().push(result);
        }
        for (tenant, results) in by_tenant {
            let now = UnixMillis(runtime.shared.clock.unix_ms());
            if let Err(error) = runtime.store.put_results(tenant, &results, limits, now).await {
                tracing::warn!(%error, "answers were not written; they stay in memory for a while");
            }
        }
    }
}
