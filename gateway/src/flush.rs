//! The writer: moves usage, cached answers, leases and the cost model from memory to the store, in batches.
//!
//! What cannot be written stays in memory within its bounds and is tried again; no request waits for it.

use std::collections::BTreeMap;
use std::time::Duration;

use actix_web::web::Data;
use base::TenantId;
use store::{NewResult, ResultKey, ResultLimits, UnixMillis, UsageKey, UsageRow, Used};
use tokio::sync::watch;

use crate::app::App;
use crate::calibrate;
use crate::service::render_answer;
use crate::{batches, files, tickets};

/// Answers written at a time.
const ANSWERS_PER_WRITE: usize = 1_000;
/// Rounds between two renewals of leases; and, times ten, two writes of the cost model.
const ROUNDS_PER_LEASE: u64 = 20;

/// Writes every `store.flush_ms`, and once more when told to stop.
///
/// `is_left`: the start could not resume all tickets.
pub async fn run(app: Data<App>, mut stop: watch::Receiver<bool>, mut is_left: bool) {
    let period = Duration::from_millis(app.config.store.flush_ms.0);
    let mut round = 0_u64;
    loop {
        // Err: the sender is gone, which means stop too.
        let is_last = tokio::time::timeout(period, stop.changed()).await.is_ok();
        write_usage(&app).await;
        write_answers(&app).await;
        app.shared.metrics.fold();
        round += 1;
        if round.is_multiple_of(ROUNDS_PER_LEASE) {
            // Tickets that had to wait are not renewed, so that the next claim finds them too. Those that run
            // are claimed along with them, which changes nothing.
            let lease = tickets::lease(&app);
            if !is_left && let Err(error) = app.store.renew_tickets(&lease).await {
                tracing::warn!(%error, "leases were not renewed");
            }
            if !is_last {
                is_left = tickets::resume(&app, &lease).await;
                batches::resume(&app, &lease).await;
            }
        }
        if is_last || round.is_multiple_of(10 * ROUNDS_PER_LEASE) {
            forget(&app).await;
            calibrate::keep(&app.store, &app.model, app.view().cost, app.shared.clock.unix_ms()).await;
        }
        if is_last {
            return;
        }
    }
}

/// Deletes what is past its date.
async fn forget(app: &App) {
    files::expire(app).await;
    let now = UnixMillis(app.shared.clock.unix_ms());
    if let Err(error) = app.store.expire_tickets(now).await {
        tracing::warn!(%error, "old tickets were not deleted");
    }
}

async fn write_usage(app: &App) {
    let sums = app.shared.accounts.take();
    if sums.is_empty() {
        return;
    }
    let day = UnixMillis(app.shared.clock.unix_ms()).day();
    let rows: Vec<UsageRow> = sums
        .iter()
        .map(|(account, spent)| UsageRow {
            key: UsageKey {
                tenant: account.tenant,
                day,
                model: app.model.name.clone(),
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
    if let Err(error) = app.store.add_usage(&rows).await {
        tracing::warn!(%error, "usage was not written and is kept");
        app.shared.accounts.put_back(sums);
    }
}

async fn write_answers(app: &App) {
    let cache = &app.config.cache;
    let limits = ResultLimits {
        tenant_rows_max: cache.tenant_entries_max,
        rows_max: cache.entries_max,
        lifetime: cache.lifetime_ms,
        ..ResultLimits::default()
    };
    loop {
        let answers = app.shared.results.take_unwritten(ANSWERS_PER_WRITE);
        if answers.is_empty() {
            return;
        }
        let mut by_tenant: BTreeMap<TenantId, Vec<NewResult>> = BTreeMap::new();
        for (tenant, key, answer) in answers {
            let result = NewResult { key: ResultKey(key), value: render_answer(&answer) };
            by_tenant.entry(tenant).or_default().push(result);
        }
        for (tenant, results) in by_tenant {
            let now = UnixMillis(app.shared.clock.unix_ms());
            if let Err(error) = app.store.put_results(tenant, &results, limits, now).await {
                tracing::warn!(%error, "answers were not written; they stay in memory for a while");
            }
        }
    }
}
