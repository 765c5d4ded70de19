//! The gateway on a real Postgres: keys, answers, usage and tickets, over a crash of the database.

use base::{Millis, Time};
use gateway::auth::holder_at;
use gateway::error::ApiError;
use serde_json::json;
use serving::RequestError;
use store::{Store, StoreOutage, TicketState, UnixMillis};

use crate::batches::{hasty, leave_half_done as leave_batch};
use crate::common::batch::{lines, make, read, until, until_over, upload};
use crate::common::{config, model, seen_in_time, serve_on};
use crate::elsewhere::an_answer_grows_at_another_gateway;
use crate::idempotency::another_gateway_knows_the_ticket;
use crate::support;
use crate::tickets::{leave_half_done, rows_are_shown_once_they_are_stored};

#[actix_web::test]
async fn on_postgres_keys_answers_usage_and_tickets_survive_a_crash() {
    let Some(postgres) = support::Server::start() else { return };
    let url = postgres.create_database("gateway").await;
    let mut config = config();
    config.server.drain_ms_max = Millis(0);
    let store = Store::open(&url).await.unwrap();
    let first = serve_on(config.clone(), model(), store.clone()).await;
    assert_eq!(first.client.with_key("rs-wrong").get("/v1/usage").await.status, 401);
    let body = json!({"template": "Tell {w}", "rows": [["x"], ["y"]]});
    let answered = first.relquery(body.clone()).await.json();
    assert_eq!(answered["status"], "completed");
    assert_eq!(first.relquery(body.clone()).await.json()["usage"]["rows_from_cache"], 2);
    let old = first.client.key.clone().unwrap();
    let ticket = leave_half_done(first, &store).await;
    drop(store);

    postgres.crash();
    postgres.resume();

    let store = Store::open(&url).await.unwrap();
    let usage = store.usage(Some(store::DEFAULT_TENANT), 0..=1_000_000).await.unwrap();
    assert_eq!(usage[0].used.rows, 3, "x, y and a: {usage:?}");
    let second = serve_on(config, model(), store).await;
    let client = second.client.with_key(&old);
    let whole = client.until_over(&format!("/v1/relqueries/{ticket}")).await;
    assert_eq!(second.gate.computed(), "Say bbbbbbbbbb".len() as u64, "only the unfinished row ran");
    assert_eq!(whole["status"], "completed", "{whole}");
    assert_eq!((&whole["rows"][0]["text"], &whole["rows"][1]["text"]), (&json!("a"), &json!("bbbbbbbbbb")));
    let steps = second.gate.passed();
    let again = client.post("/v1/relqueries", &body).await.json();
    assert_eq!(again["usage"]["rows_from_cache"], 2, "out of the database: {again}");
    assert_eq!(again["rows"][0]["text"], answered["rows"][0]["text"]);
    assert_eq!(second.gate.passed(), steps, "no step ran");
}

#[actix_web::test]
async fn on_postgres_a_ticket_is_known_by_its_key_to_another_gateway() {
    let Some(postgres) = support::Server::start() else { return };
    let store = Store::open(&postgres.create_database("keys").await).await.unwrap();
    another_gateway_knows_the_ticket(&store, "/v1/relqueries").await;
}

#[actix_web::test]
async fn on_postgres_a_reader_at_another_gateway_is_told_the_same_events_before_the_end() {
    let Some(postgres) = support::Server::start() else { return };
    an_answer_grows_at_another_gateway(&postgres.create_database("elsewhere").await).await;
}

#[actix_web::test]
async fn on_postgres_what_has_a_nul_in_its_name_is_not_found() {
    let Some(postgres) = support::Server::start() else { return };
    let url = postgres.create_database("nul").await;
    let server = serve_on(config(), model(), Store::open(&url).await.unwrap()).await;
    for path in ["relqueries", "cells", "batches", "files", "schemas", "corpora", "workbooks"] {
        for name in ["%00", "a%00b"] {
            let reply = server.client.get(&format!("/v1/{path}/{name}")).await;
            assert_eq!(reply.status, 404, "{path}: {}", reply.body);
            assert_eq!(reply.json()["error"]["type"], "invalid_request_error", "{path}: {}", reply.body);
        }
    }
    let reply = server.client.get("/v1/batches?after=%00").await;
    assert_eq!(reply.status, 400, "{}", reply.body);
}

#[actix_web::test]
async fn on_postgres_a_batch_outlives_a_crash_of_the_database_and_a_change_of_gateways() {
    let Some(postgres) = support::Server::start() else { return };
    let url = postgres.create_database("batches").await;
    let store = Store::open(&url).await.unwrap();
    let first = serve_on(hasty(), model(), store).await;
    first.gate.shut();
    let words = |count: usize| (0..count).map(|number| format!("w{number}"));
    let file = upload(&first.client, &lines(words(40))).await;
    let id = make(&first.client, &file).await["id"].as_str().unwrap().to_owned();
    first.gate.allow(12);
    until(&first.client, &id, |batch| batch["request_counts"]["completed"].as_u64() > Some(1)).await;
    postgres.crash();
    first.gate.release();
    first
        .until("the rows in flight end", |server| server.running.app.runtime.shared.intake.unfinished() == 0)
        .await;
    postgres.resume();
    let batch = until_over(&first.client, &id).await;
    assert_eq!(batch["status"], "completed", "{batch}");
    let expected: Vec<_> = words(40).map(|word| (format!("id of {word}"), word)).collect();
    assert_eq!(read(&first.client, &batch["output_file_id"]).await, expected);
    assert_eq!(first.metric("relserve_rows_total{outcome=\"stop\"}"), 40.0, "no row ran twice");

    let key = first.client.key.clone().unwrap();
    let id = leave_batch(first, 30).await;
    // A pool of its own: connections of the first gateway's threads have ended with those.
    let store = Store::open(&url).await.unwrap();
    let recorded = store.row_numbers(&id).await.unwrap().len();
    let mut other = hasty();
    other.store.node = "another".into();
    // As if the first gateway's lease had run out.
    let pool = sqlx::AnyPool::connect(&url).await.unwrap();
    sqlx::query("UPDATE tickets SET leased_until = 1").execute(&pool).await.unwrap();
    let second = serve_on(other, model(), store).await;
    let client = second.client.with_key(&key);
    let batch = until_over(&client, &id).await;
    assert_eq!(read(&client, &batch["output_file_id"]).await.len(), 30, "{batch}");
    assert_eq!(second.metric("relserve_rows_total{outcome=\"stop\"}") as usize, 30 - recorded);
}

#[actix_web::test]
async fn on_postgres_a_ticket_that_another_gateway_has_taken_is_not_ended_by_the_first() {
    let Some(postgres) = support::Server::start() else { return };
    let url = postgres.create_database("taken").await;
    let store = Store::open(&url).await.unwrap();
    let mut config = config();
    config.limits.finished_max = 0;
    let first = serve_on(config, model(), store.clone()).await;
    first.gate.shut();
    let reply = first.relquery(json!({"template": "Say a", "rows": [[]], "deadline_ms": 30})).await.json();
    let id = reply["ticket"].as_str().expect("a ticket for the rest");
    let pool = sqlx::AnyPool::connect(&url).await.unwrap();
    sqlx::query("UPDATE tickets SET holder = 'another'").execute(&pool).await.unwrap();
    let app = first.running.app.clone();
    let relquery = app.runtime.registry.running()[0].clone();
    first.gate.release();
    first
        .until("the first forgets it", |_| {
            app.runtime.registry.get(store::DEFAULT_TENANT, relquery.id).is_none()
        })
        .await;
    let ticket = store.ticket(store::DEFAULT_TENANT, id, UnixMillis(1)).await.unwrap().unwrap();
    assert_eq!((ticket.state, ticket.rows.len()), (TicketState::Running, 0), "the other one ends it");
}

#[actix_web::test]
async fn on_postgres_a_row_of_a_ticket_is_shown_once_it_is_stored() {
    let Some(postgres) = support::Server::start() else { return };
    let url = postgres.create_database("shown").await;
    let server = serve_on(config(), model(), Store::open(&url).await.unwrap()).await;
    let pool = sqlx::AnyPool::connect(&url).await.unwrap();
    let hold = async || {
        let mut holding = pool.begin().await.unwrap();
        // What every write of tickets waits for.
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(0x7265_6c04_i64)
            .execute(&mut *holding)
            .await
            .unwrap();
        holding
    };
    rows_are_shown_once_they_are_stored(&server, hold).await;
}

#[actix_web::test]
async fn on_postgres_a_ticket_keeps_rows_that_end_while_the_database_is_away() {
    let Some(postgres) = support::Server::start() else { return };
    let store = Store::open(&postgres.create_database("tickets").await).await.unwrap();
    let first = serve_on(config(), model(), store.clone()).await;
    first.gate.shut();
    let rows = json!([["a"], ["bbbbbbbbbb"]]);
    let body = json!({"template": "Say {w}", "rows": rows, "deadline_ms": 30});
    let reply = first.relquery(body).await.json();
    let id = reply["ticket"].as_str().expect("a ticket for the rest");
    postgres.crash();
    first.gate.release();
    first.until("the rows end", |server| server.running.app.runtime.shared.intake.unfinished() == 0).await;
    let reply = first.client.get("/v1/usage").await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{}", reply.body);
    assert_eq!(reply.json()["error"]["code"], "database_unavailable");
    postgres.resume();
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(10));
    let mut left = 6_000;
    let ticket = loop {
        looks.tick().await;
        left -= 1;
        assert!(left > 0, "the ticket does not end");
        let ticket = store.ticket(store::DEFAULT_TENANT, id, UnixMillis(1)).await;
        if let Some(ticket) = ticket.ok().flatten().filter(|ticket| ticket.state != TicketState::Running) {
            break ticket;
        }
    };
    assert_eq!(ticket.state, TicketState::Completed);
    let texts: Vec<serde_json::Value> =
        ticket.rows.iter().map(|row| serde_json::from_str(&row.result).unwrap()).collect();
    assert_eq!((&texts[0]["text"], &texts[1]["text"]), (&json!("a"), &json!("bbbbbbbbbb")));
}

#[actix_web::test]
async fn on_postgres_online_work_goes_on_for_known_keys_while_the_database_is_away() {
    let Some(postgres) = support::Server::start() else { return };
    let store = Store::open(&postgres.create_database("online").await).await.unwrap();
    let mut config = config();
    // A verdict is asked for anew by each request.
    config.auth.remember_ms = Millis(0);
    config.limits.tenant_day_cell_tokens_max = Some(1_000_000);
    let server = serve_on(config, model(), store.clone()).await;
    let body = |word: String| json!({"template": "Say {w}", "rows": [[word]]});
    assert_eq!(server.relquery(body("before".into())).await.status, 200);
    assert_eq!(server.client.get("/readyz").await.json()["status"], "ready");
    postgres.crash();
    let mut words = 0;
    let is_told = async {
        while server.client.get("/readyz").await.status == 200 {
            words += 1;
            assert_eq!(server.relquery(body(format!("word {words}"))).await.status, 200);
        }
    };
    seen_in_time("the outage is told", is_told).await;
    assert_eq!(server.client.get("/readyz").await.json()["status"], "the store is away");
    for word in ["a", "b", "c"] {
        let reply = server.relquery(body(word.into())).await;
        assert_eq!((reply.status, &reply.json()["rows"][0]["text"]), (200, &json!(word)));
        let call = json!({"function": "ask", "args": [format!("Say {word}")]});
        let cells = server.client.post("/v1/cells", &json!({"calls": [call]})).await;
        assert_eq!(cells.status, 200, "{}", cells.body);
        words += 2;
    }
    let unknown = server.client.with_key("rs-wrong").post("/v1/relqueries", &body("x".into())).await;
    assert_eq!(unknown.status, 503, "nobody can tell whose it is: {}", unknown.body);
    postgres.resume();
    let is_told = async { while server.client.get("/readyz").await.status != 200 {} };
    seen_in_time("it is there again", is_told).await;
    assert_eq!(server.client.with_key("rs-wrong").get("/v1/usage").await.status, 401);
    let is_counted = async {
        loop {
            let usage = store.usage(Some(store::DEFAULT_TENANT), 0..=1_000_000).await.unwrap();
            let rows: u64 = usage.iter().map(|row| row.used.rows).sum();
            assert!(rows <= words + 1, "each row once: {usage:?}");
            if rows == words + 1 {
                return;
            }
        }
    };
    seen_in_time("what ran meanwhile is counted", is_counted).await;
}

#[actix_web::test]
async fn on_postgres_a_key_that_worked_is_honoured_for_as_long_as_it_is_said_while_the_database_is_away() {
    let Some(postgres) = support::Server::start() else { return };
    let store = Store::open(&postgres.create_database("honoured").await).await.unwrap();
    let mut config = config();
    config.auth.remember_ms = Millis(0);
    config.auth.away_ms_max = Millis(60_000);
    let server = serve_on(config, model(), store).await;
    let app = &server.running.app;
    let worked = app.runtime.shared.clock.now();
    let holder = async |at: Time| holder_at(app, server.client.key.clone(), at).await;
    let after = |ms: u64| worked + Millis(ms).into();
    let known = holder(worked).await.unwrap();
    postgres.crash();
    let refused = ApiError::from(RequestError::NoDatabase(StoreOutage::Away));
    assert_eq!(holder(after(0)).await, Ok(known.clone()));
    assert_eq!(holder(after(59_999)).await, Ok(known.clone()));
    assert_eq!(holder(after(60_000)).await.unwrap_err(), refused, "the time is over");
    assert_eq!(holder(after(59_999)).await, Ok(known.clone()), "what is known of it stays");
    let unknown = holder_at(app, Some("rs-wrong".into()), after(0)).await;
    assert_eq!(unknown.unwrap_err(), refused, "nobody can tell whose it is");
    postgres.resume();
    let is_back = async { while holder(after(60_000)).await != Ok(known.clone()) {} };
    seen_in_time("the database tells whose it is again", is_back).await;
    assert_eq!(holder(after(0)).await, Ok(known));
}
