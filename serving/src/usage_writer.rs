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

/// Writes the sums of usage. What may not be written is kept for the next time.
pub async fn write_usage(runtime: &Runtime) {
    if let Err(error) = store_usage(runtime).await {
        tracing::warn!(%error, "usage may not be written and is kept");
    }
}

/// The same; without an error all is stored that was counted before.
pub async fn store_usage(runtime: &Runtime) -> Result<(), store::Error> {
    let accounts = &runtime.shared.accounts;
    let _moving = accounts.moving().await;
    // Twice: what an earlier try left is written as it was, and then what came since.
    for _ in 0..2 {
        let at = runtime.shared.unix_now();
        let Some(sent) = accounts.send(at.day()) else { return Ok(()) };
        let rows = rows_of(&runtime.model.name, &sent);
        let write = UsageWrite { writer: accounts.writer(), number: sent.number, rows: &rows, at };
        runtime.store.add_usage(write).await?;
        accounts.kept();
        for (account, spent) in &sent.sums {
            runtime.shared.budgets.written(account.tenant, BudgetAmount::of(spent.usage, spent.cost));
        }
    }
    Ok(())
}

/// Sums of a model as the store has them.
pub fn rows_of(model: &str, sent: &SentSums) -> Vec<UsageRow> {
    sent.sums.iter().map(|(account, spent)| row_of((model, sent.day), *account, spent)).collect()
}

/// What an account used of a model on a day, as the store has it.
pub fn row_of((model, day): (&str, u64), account: Account, spent: &Spent) -> UsageRow {
    UsageRow {
        key: UsageKey {
            tenant: account.tenant,
            day,
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
    }
}

/// Writes answers for the next recalculation.
pub async fn write_answers(runtime: &Runtime) {
    let cache = &runtime.cache;
    let limits = ResultLimits {
        tenant_rows_max: cache.tenant_entries_max,
        tenant_bytes_max: cache.tenant_bytes_max,
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
