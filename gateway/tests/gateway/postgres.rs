//! The gateway on a real Postgres: keys, answers, usage and tickets, over a crash of the database.

use base::Millis;
use serde_json::json;
use store::Store;

use crate::common::{config, model, serve_on};
use crate::support;
use crate::tickets::leave_half_done;

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
    second.until("the ticket ends", |server| server.is_free() && server.gate.passed() > 0).await;
    assert_eq!(second.gate.computed(), "Say bbbbbbbbbb".len() as u64, "only the unfinished row ran");
    let client = second.client.with_key(&old);
    let whole = client.get(&format!("/v1/relqueries/{ticket}")).await.json();
    assert_eq!(whole["status"], "completed", "{whole}");
    assert_eq!((&whole["rows"][0]["text"], &whole["rows"][1]["text"]), (&json!("a"), &json!("bbbbbbbbbb")));
    let steps = second.gate.passed();
    let again = client.post("/v1/relqueries", &body).await.json();
    assert_eq!(again["usage"]["rows_from_cache"], 2, "out of the database: {again}");
    assert_eq!(again["rows"][0]["text"], answered["rows"][0]["text"]);
    assert_eq!(second.gate.passed(), steps, "no step ran");
}
