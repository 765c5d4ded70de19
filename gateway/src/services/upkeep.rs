//! Upkeep of the store, once every `store.flush_ms`: usage and answers are written, leases renewed,
//! unfinished tickets and batches taken over, what is past its date deleted.

use std::sync::Arc;
use std::time::Duration;

use base::{Millis, Nanos};
use serving::{calibrate, usage_replay, usage_writer};
use tokio::sync::watch;

use crate::services::old_usage::UsageMerger;
use crate::services::sql::uploads as sql_uploads;
use crate::services::{batches, files, key_claims, limits, tickets, uploads};
use crate::state::{App, CurrentApp};

/// Rounds between two renewals of leases and looks for idle tenants, at most; and, times ten, two writes of the cost
/// model. Fewer where rounds are long: see [`rounds_per_lease`].
const ROUNDS_PER_LEASE: u64 = 20;

/// Longest time between two renewals, but for a round that is longer: a sixth of what leases last. `store.flush_ms` is a
/// third of that at most.
const RENEWAL_MS: u64 = 10_000;

/// Longest time since this gateway renewed its leases in which none can have run out whose holder lives: what leases last,
/// but for the longest time between two renewals.
const RENEWED_WITHIN: Millis = Millis(40_000);

/// Rounds of `flush` from one renewal of leases to the next.
fn rounds_per_lease(flush: Millis) -> u64 {
    (RENEWAL_MS / flush.0.max(1)).clamp(1, ROUNDS_PER_LEASE)
}

/// How long a writer of usage is known that was not heard of: longer than any database is away.
const USAGE_WRITERS_KEPT: Millis = Millis(30 * 24 * 60 * 60 * 1_000);

/// Writes every `store.flush_ms`, and once more when told to stop. Each round is one of the configuration of then.
///
/// `is_left`: the start could not resume all tickets.
pub async fn run(current: Arc<CurrentApp>, mut stop: watch::Receiver<bool>, mut is_left: bool) {
    let mut round = 0_u64;
    // The start has claimed, which renews.
    let mut renewed = current.get().runtime.shared.clock.now();
    let mut merger = UsageMerger::default();
    loop {
        let flush = current.get().config.store.flush_ms;
        let period = Duration::from_millis(flush.0);
        // Err: the sender is gone, which means stop too.
        let is_last = tokio::time::timeout(period, stop.changed()).await.is_ok();
        let app = current.get();
        // Before anything is written.
        app.runtime.store.look_at_file().await;
        usage_replay::send_left(&app.runtime).await;
        for model in app.models.iter() {
            usage_writer::write_usage(&model.runtime).await;
        }
        limits::refresh(&app).await;
        usage_writer::write_answers(&app.runtime).await;
        app.sql.budgets.keep(&app.runtime).await;
        look_for_the_end_of_an_outage(&app).await;
        round += 1;
        let rounds = rounds_per_lease(flush);
        if round.is_multiple_of(rounds) {
            app.models.iter().for_each(|model| model.runtime.forget_idle_tenants());
            app.runtime.look_at_database_clock().await;
            // Tickets that had to wait are not renewed, so that the next claim finds them too. Those that run
            // are claimed along with them, which changes nothing.
            let lease = tickets::lease(&app);
            let now = app.runtime.shared.clock.now();
            // The database was away, it seems: leases ran out whose holders live. Those renew first, as this gateway does,
            // and what nobody has renewed is claimed the next time.
            let was_away = now.since(renewed) > Nanos::from(RENEWED_WITHIN);
            if was_away || !is_left {
                match app.runtime.store.renew_tickets(&lease).await {
                    Ok(_) => renewed = now,
                    Err(error) => tracing::warn!(%error, "leases were not renewed"),
                }
            }
            key_claims::renew(&app).await;
            if !is_last && !was_away && app.runtime.shared.database_clock.is_known() {
                is_left = tickets::resume(&app, &lease).await;
                batches::resume(&app, &lease).await;
            }
        }
        if is_last || round.is_multiple_of(10 * rounds) {
            if app.runtime.shared.database_clock.is_known() {
                forget(&app).await;
            }
            if !is_last {
                // Beside the rounds: leases are renewed meanwhile.
                merger.begin_pass(&app);
            }
            calibrate::keep(
                &app.runtime.store,
                &app.runtime.model,
                app.runtime.view().cost,
                app.runtime.shared.unix_now().0,
            )
            .await;
        }
        if is_last {
            key_claims::end_all(&app).await;
            files::delete_drafts(&app).await;
            tickets::give_all_back(&app).await;
            return;
        }
    }
}

/// Tries to write where the store takes no writes: a server without work would never learn that it does again.
async fn look_for_the_end_of_an_outage(app: &App) {
    let (store, now) = (&app.runtime.store, app.runtime.shared.clock.now());
    if store.health().outage().is_none() || store.try_to_write(now).await.is_err() {
        return;
    }
    if store.health().outage().is_none() {
        tracing::info!("the store takes writes again");
    }
}

/// Deletes what is past its date.
async fn forget(app: &App) {
    uploads::expire(app).await;
    files::expire(app).await;
    sql_uploads::forget_gone(&app.runtime, &app.config).await;
    let (store, now) = (&app.runtime.store, app.runtime.shared.unix_now());
    note(store.expire_tickets(now).await, "old tickets were not deleted");
    note(store.forget_progress().await, "what was told of tickets was not forgotten");
    note(store.expire_replies(now).await, "old replies of idempotency keys were not deleted");
    note(store.expire_responses(now).await, "old responses were not deleted");
    note(store.expire_key_claims().await, "old claims of idempotency keys were not deleted");
    note(store.expire_signed_in_keys(now).await, "old keys of sign-in links were not deleted");
    for model in app.models.iter() {
        usage_replay::keep_known(&model.runtime).await;
    }
    let silent_since = now.before(USAGE_WRITERS_KEPT);
    note(store.forget_usage_writers(silent_since).await, "old writers of usage were not forgotten");
}

/// Logs what could not be done; another round tries again.
fn note(done: Result<u64, store::Error>, failure: &str) {
    if let Err(error) = done {
        tracing::warn!(%error, "{failure}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_renewed_in_time_however_long_a_round_is() {
        for (flush, rounds) in [(1, 20), (500, 20), (501, 19), (3_000, 3), (20_000, 1)] {
            assert_eq!(rounds_per_lease(Millis(flush)), rounds, "{flush}");
            assert!(rounds * flush <= 20_000, "a third of a lease");
            assert!(rounds * flush + RENEWED_WITHIN.0 <= tickets::LEASE.0, "who lives has renewed by then");
        }
    }
}
