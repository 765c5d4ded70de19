//! A gateway whose wall clock is wrong: what is stored begins and ends by the database's clock, which all gateways share.

use base::Millis;
use sqlx::AnyPool;
use store::{Lease, Store, UnixMillis};

use crate::batches::hasty;
use crate::common::batch::{lines, read, until_over, upload};
use crate::common::left::{LeftTicket, gone};
use crate::common::{model, serve_on, until_count};
use crate::support;

const HOUR: u64 = 3_600_000;

/// Has a database tell the time of yesterday: as if every gateway's clock were a day ahead.
const YESTERDAY: [&str; 3] = [
    "CREATE SCHEMA yesterday",
    "CREATE FUNCTION yesterday.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS \
     'SELECT pg_catalog.clock_timestamp() - interval ''1 day'''",
    "ALTER DATABASE wrong_clocks SET search_path = public, yesterday, pg_catalog",
];

/// Has a database fail whenever it is asked for the time.
const NO_CLOCK: [&str; 3] = [
    "CREATE SCHEMA own",
    "CREATE FUNCTION own.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS \
     'BEGIN RAISE EXCEPTION ''the test asked for it''; END'",
    "ALTER DATABASE no_clock SET search_path = public, own, pg_catalog",
];
/// Has it tell the time again.
const A_CLOCK: &str = "CREATE OR REPLACE FUNCTION own.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS \
     'BEGIN RETURN pg_catalog.clock_timestamp(); END'";

/// A database of that name after those statements.
async fn changed(postgres: &support::Server, name: &str, statements: &[&'static str]) -> (String, AnyPool) {
    let url = postgres.create_database(name).await;
    let pool = AnyPool::connect(&url).await.unwrap();
    for statement in statements {
        sqlx::query(*statement).execute(&pool).await.unwrap();
    }
    (url, pool)
}

#[actix_web::test]
async fn on_postgres_a_gateway_whose_clock_is_a_day_ahead_takes_nothing_over_and_ends_nothing_early() {
    let Some(postgres) = support::Server::start() else { return };
    let (url, _) = changed(&postgres, "wrong_clocks", &YESTERDAY).await;
    let store = Store::open(&url).await.unwrap();
    let first = serve_on(hasty(), model(), store.clone()).await;
    let wall = first.running.app.runtime.shared.clock.unix_ms();
    let file = upload(&first.client, &lines(["x".to_owned(), "y".to_owned()])).await;
    let created = first.client.get(&format!("/v1/files/{file}")).await.json()["created_at"].as_u64().unwrap();
    assert!(created * 1_000 < wall - 12 * HOUR, "it is dated by the database's clock: {created}");
    first.running.drain(std::future::ready(())).await;

    // Connections of the first gateway's threads have ended with those.
    let store = Store::open(&url).await.unwrap();
    let now = store.now().await.unwrap();
    let lease = Lease { holder: "another".into(), process: "one".into(), until: now.after(Millis(HOUR)) };
    let ticket = LeftTicket { created: now, ..LeftTicket::batch("batch_1", &file, 1) };
    ticket.put(&store, &lease).await;
    // Its start claims what it may.
    let second = serve_on(hasty(), model(), store.clone()).await;
    let found = store.ticket(store::DEFAULT_TENANT, "batch_1", now).await.unwrap().unwrap();
    assert_eq!(found.holder, "another", "the lease has not run out");
    // It has.
    let over = Lease { until: UnixMillis(1), ..lease };
    assert_eq!(store.renew_tickets(&over).await.unwrap(), 1);
    let batch = until_over(&second.client, "batch_1").await;
    assert_eq!(
        read(&second.client, &batch["output_file_id"]).await.len(),
        2,
        "its hour has just begun: {batch}"
    );
}

#[actix_web::test]
async fn on_postgres_nothing_is_taken_over_or_deleted_before_the_database_has_said_what_time_it_is() {
    let Some(postgres) = support::Server::start() else { return };
    let (url, pool) = changed(&postgres, "no_clock", &NO_CLOCK).await;
    let store = Store::open(&url).await.unwrap();
    // By any clock the leases have run out, and one of the tickets is past its date.
    LeftTicket::relquery("rq-1", "word 1").put(&store, &gone()).await;
    let old = LeftTicket { expires: UnixMillis(2), ..LeftTicket::relquery("rq-2", "word 2") };
    old.put(&store, &gone()).await;
    let mut config = hasty();
    config.store.flush_ms = Millis(1);
    let server = serve_on(config, model(), store.clone()).await;
    // The last that a round of upkeep does which deletes what is old; rounds before it have looked for what to take over.
    until_count(&pool, 1, "SELECT COUNT(*) FROM calibrations").await;
    for id in ["rq-1", "rq-2"] {
        let found = store.ticket(store::DEFAULT_TENANT, id, UnixMillis(1)).await.unwrap();
        assert_eq!(found.expect("it is not deleted").holder, "gone", "{id}");
    }
    sqlx::query(A_CLOCK).execute(&pool).await.unwrap();
    assert_eq!(server.client.until_over("/v1/relqueries/rq-1").await["status"], "completed");
    until_count(&pool, 0, "SELECT COUNT(*) FROM tickets WHERE id = 'rq-2'").await;
}
