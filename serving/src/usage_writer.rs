//! Moves usage and cached answers from memory to the store, in batches.
//!
//! What cannot be written stays in memory within its bounds and is tried again; no request waits for it.

use std::collections::BTreeMap;

use base::TenantId;
use store::{NewResult, ResultKey, ResultLimits, UsageKey, UsageRow, UsageWrite, Used};

use crate::account::{Account, SentSums, Spent};
use crate::budgets::BudgetAmount;
use crate::runtime::Runtime;
use crate::submit::render_answer;

/// Answers written at a time.
const ANSWERS_PER_WRITE: usize = 1_000;

/// Writes the sums of usage.
pub async fn write_usage(runtime: &Runtime) {
    let accounts = &runtime.shared.accounts;
    let _moving = accounts.moving().await;
    // Twice: what an earlier try left is written as it was, and then what came since.
    for _ in 0..2 {
        let at = runtime.shared.unix_now();
        let Some(sent) = accounts.send(at.day()) else { return };
        let rows = rows_of(&runtime.model.name, &sent);
        let write = UsageWrite { writer: accounts.writer(), number: sent.number, rows: &rows, at };
        if let Err(error) = runtime.store.add_usage(write).await {
            tracing::warn!(%error, "usage may not be written and is kept");
            return;
        }
        accounts.kept();
        for (account, spent) in &sent.sums {
            runtime.shared.budgets.written(account.tenant, BudgetAmount::of(spent.usage, spent.cost));
        }
    }
}

/// Sums of a model as the store has them.
pub fn rows_of(model: &str, sent: &SentSums) -> Vec<UsageRow> {
    let row = |(account, spent): (&Account, &Spent)| UsageRow {
        key: UsageKey {
            tenant: account.tenant,
            day: sent.day,
            model: model.to_owned(),
            route: account.route.to_owned(),
        },
        used: Used {
            requests: spent.requests,
            rows: spent.rows,
            prompt: spent.usage.prompt,
            cached: spent.usage.cached,
            computed: spent.usage.computed,
            output: spent.usage.output,
            cost: spent.cost,
        },
    };
    sent.sums.iter().map(row).collect()
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
            let now = runtime.shared.unix_now();
            if let Err(error) = runtime.store.put_results(tenant, &results, limits, now).await {
                tracing::warn!(%error, "answers were not written; they stay in memory for a while");
            }
        }
    }
}
