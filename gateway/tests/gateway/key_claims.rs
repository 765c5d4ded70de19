//! One idempotency key at two gateways of one database: while one runs its request, the other begins nothing.

use base::Millis;
use gateway::config::Config;
use serde_json::json;
use sqlx::AnyPool;
use store::{DEFAULT_TENANT, KeyClaim, KeyClaimed, Store};

use crate::common::client::{finish, read_until};
use crate::common::{Server, seen_in_time, serve_on};
use crate::idempotency::{CELLS, RELQUERIES, bodies, body, chatting, keyed, post};
use crate::support;

/// Two gateways, of which each waits so long for the other.
async fn two(store: &Store, wait: Millis) -> (Server, Server) {
    let named = |node: &str| {
        let mut config = crate::common::config();
        config.store.node = node.into();
        config.limits.idempotency_wait_ms_max = wait;
        config
    };
    let start = |config: Config| serve_on(config, chatting(), store.clone());
    (start(named("first")).await, start(named("second")).await)
}

/// Longer than a test.
const LONG: Millis = Millis(600_000);
/// A look, and no wait.
const NONE: Millis = Millis(0);

/// Waits until a gateway asks for a key, or has it.
async fn until_it_waits(server: &Server) {
    server.until("it waits for the key", |server| server.running.app.key_claims.tokens().len() == 1).await;
}

#[actix_web::test]
async fn on_postgres_what_another_gateway_runs_is_waited_for_and_runs_once() {
    let Some(postgres) = support::Server::start() else { return };
    let store = Store::open(&postgres.create_database("waits").await).await.unwrap();
    let (first, second) = two(&store, LONG).await;
    let (chats, chat) = bodies().remove(0);
    for (path, body) in [(RELQUERIES, body(RELQUERIES)), (CELLS, body(CELLS)), (chats, chat)] {
        for stream in [false, true] {
            let (key, mut body) = (format!("{path}-{stream}"), body.clone());
            body["stream"] = json!(stream);
            first.gate.shut();
            let begun = first.gate.passed();
            let running = first.client.send(&keyed(&first.client, path, &key, &body)).await;
            first.until("a step waits", |server| server.gate.passed() > begun).await;
            let waiting = second.client.send(&keyed(&second.client, path, &key, &body)).await;
            until_it_waits(&second).await;
            assert_eq!(second.running.app.runtime.registry.running().len(), 0);
            first.gate.release();
            let (one, other) = (finish(running).await, finish(waiting).await);
            assert_eq!((one.status, other.status), (200, 200), "{key}: {} {}", one.body, other.body);
            assert_eq!(other.body, one.body, "{key}");
            assert_eq!(other.header("idempotency-replayed"), Some("true"), "{key}");
            assert_eq!(second.gate.passed(), 0, "{key}: it began nothing");
        }
    }
}

#[actix_web::test]
async fn on_postgres_who_does_not_wait_is_told_to_try_again_and_then_gets_the_answer() {
    let Some(postgres) = support::Server::start() else { return };
    let url = postgres.create_database("told").await;
    let store = Store::open(&url).await.unwrap();
    let (first, second) = two(&store, NONE).await;
    let (chats, chat) = bodies().remove(0);
    for (path, body) in [(RELQUERIES, body(RELQUERIES)), (chats, chat)] {
        first.gate.shut();
        let begun = first.gate.passed();
        let running = first.client.send(&keyed(&first.client, path, path, &body)).await;
        first.until("a step waits", |server| server.gate.passed() > begun).await;
        let told = post(&second.client, path, path, &body).await;
        assert_eq!((told.status, told.header("retry-after")), (409, Some("1")), "{path}: {}", told.body);
        assert!(told.error().contains("by another gateway; try again"), "{}", told.body);
        let error = &told.json()["error"];
        assert_eq!(
            (&error["code"], &error["param"]),
            (&json!("idempotency_key_in_use"), &json!("Idempotency-Key"))
        );
        let mut other = body.clone();
        other["seed"] = json!(7);
        let reused = post(&second.client, path, path, &other).await;
        assert_eq!((reused.status, &reused.json()["error"]["code"]), (422, &json!("idempotency_key_reused")));
        first.gate.release();
        let one = finish(running).await;
        assert_eq!(post(&second.client, path, path, &body).await.body, one.body);
    }
    assert_eq!(second.gate.passed(), 0, "it began nothing");
    let pool = AnyPool::connect(&url).await.unwrap();
    let all_back = async {
        let count = "SELECT COUNT(*) FROM key_claims";
        while sqlx::query_scalar::<_, i64>(count).fetch_one(&pool).await.unwrap() > 0 {}
    };
    seen_in_time("every key is given back", all_back).await;
}

#[actix_web::test]
async fn on_postgres_what_failed_or_was_left_at_one_gateway_begins_at_the_other_that_waited() {
    let Some(postgres) = support::Server::start() else { return };
    let store = Store::open(&postgres.create_database("abandoned").await).await.unwrap();
    let (first, second) = two(&store, LONG).await;
    first.gate.shut();
    let mut body = body(RELQUERIES);
    body["stream"] = json!(true);
    let mut running = first.client.send(&keyed(&first.client, RELQUERIES, "k", &body)).await;
    read_until(&mut running, "\r\n\r\n").await;
    let relquery = first.running.app.runtime.registry.running()[0].clone();
    let waiting = second.client.send(&keyed(&second.client, RELQUERIES, "k", &body)).await;
    until_it_waits(&second).await;
    drop(running);
    // The step that follows shows the client's leaving to the connection's thread.
    first.gate.allow(1);
    first.until("nobody waits", |_| relquery.read().is_over()).await;
    let reply = finish(waiting).await;
    assert_eq!(reply.events().last().unwrap().0, "done", "{}", reply.body);
    assert!(reply.header("idempotency-replayed").is_none() && second.gate.passed() > 0);
    let bad = json!({"template": "Say {w", "rows": [["a"]]});
    assert_eq!(post(&first.client, RELQUERIES, "bad", &bad).await.status, 400);
    assert_eq!(post(&second.client, RELQUERIES, "bad", &bad).await.status, 400, "the key is free");
    first.gate.release();
}

#[actix_web::test]
async fn on_postgres_the_keys_of_a_gateway_that_died_are_free_when_it_starts_again_or_their_time_is_over() {
    let Some(postgres) = support::Server::start() else { return };
    let url = postgres.create_database("died").await;
    let store = Store::open(&url).await.unwrap();
    let claim = async |name: &str, span| {
        let (name, token) = (name.to_owned(), KeyClaim::token().unwrap());
        let claim = KeyClaim { tenant: DEFAULT_TENANT, name, request: [0; 32], node: "first".into(), token };
        let claimed = store.claim_key(&claim, span, store::UnixMillis(1)).await.unwrap();
        assert_eq!(claimed, KeyClaimed::Granted { is_answered: false });
    };
    let mut config = crate::common::config();
    config.store.node = "second".into();
    config.limits.idempotency_wait_ms_max = NONE;
    let second = serve_on(config.clone(), chatting(), store.clone()).await;
    claim("over", NONE).await;
    claim("k", LONG).await;
    assert_eq!(post(&second.client, CELLS, "over", &body(CELLS)).await.status, 200);
    let other = post(&second.client, CELLS, "k", &body(CELLS)).await;
    assert_eq!(other.status, 422, "it is claimed for another request: {}", other.body);
    config.store.node = "first".into();
    let first = serve_on(config, chatting(), store.clone()).await;
    assert_eq!(post(&second.client, CELLS, "k", &body(CELLS)).await.status, 200);

    // What runs for long keeps its key.
    first.gate.shut();
    let running = first.client.send(&keyed(&first.client, RELQUERIES, "long", &body(RELQUERIES))).await;
    first.until("a step waits", |server| server.gate.passed() == 1).await;
    let pool = AnyPool::connect(&url).await.unwrap();
    sqlx::query("UPDATE key_claims SET expires = 1").execute(&pool).await.unwrap();
    let is_renewed = async {
        let until = "SELECT MAX(expires) FROM key_claims";
        while sqlx::query_scalar::<_, i64>(until).fetch_one(&pool).await.unwrap() == 1 {}
    };
    seen_in_time("the claim is renewed", is_renewed).await;
    assert_eq!(post(&second.client, RELQUERIES, "long", &body(RELQUERIES)).await.status, 409);
    first.gate.release();
    assert_eq!(finish(running).await.status, 200);
}

#[actix_web::test]
async fn on_postgres_a_request_with_a_key_is_refused_while_the_database_is_away_and_others_run() {
    let Some(postgres) = support::Server::start() else { return };
    let store = Store::open(&postgres.create_database("away").await).await.unwrap();
    let (first, _second) = two(&store, NONE).await;
    let ask = async || post(&first.client, RELQUERIES, "k", &body(RELQUERIES)).await;
    assert_eq!(first.relquery(body(RELQUERIES)).await.status, 200);
    postgres.crash();
    let refused = ask().await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{}", refused.body);
    assert_eq!(refused.json()["error"]["code"], "database_unavailable");
    assert_eq!(first.relquery(body(RELQUERIES)).await.status, 200, "without a key it runs");
    postgres.resume();
    let is_back = async { while ask().await.status != 200 {} };
    seen_in_time("it is there again", is_back).await;
}
