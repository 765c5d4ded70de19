//! Tenants' budgets of money on every route: prices of models and replicas, set aside and settled.

use gateway::config::Config;
use serde_json::{Value, json};
use serving::config::{ReplicaSettings, Secret};
use store::DEFAULT_TENANT;

use crate::common::batch::{lines, make, until_over, upload};
use crate::common::client::{Client, finish};
use crate::common::replica::{FakeReplica, fleet};
use crate::common::words::{table, until_up};
use crate::common::{
    Parties, Server, config, lasting_store, model, seen_in_time, serve_fleet, serve_on, serve_parties,
};

/// A million prompt tokens for 1, cached ones for a quarter, output for 10.
fn priced() -> Config {
    let mut config = config();
    config.model.prompt_price = Some(1.0);
    config.model.cached_price = Some(0.25);
    config.model.output_price = Some(10.0);
    config
}

/// Sets what a tenant may spend.
async fn set(operators: &Client, limits: Value) {
    let reply = operators.post("/v1/tenants/default", &json!({ "limits": limits })).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
}

/// One row of so many letters, each a token, with 4 before them, that asks for one more than it is.
fn body(letters: usize) -> Value {
    json!({"template": "Say {w}", "rows": [["x".repeat(letters)]], "max_tokens": letters + 1})
}

/// How the caller stands with its limits.
async fn limits(client: &Client) -> Value {
    client.get("/v1/usage?days=1").await.json()["limits"].clone()
}

/// Millionths.
fn millionths(money: &Value) -> f64 {
    (money.as_f64().unwrap() * 1e9).round() / 1e3
}

/// Waits until the usage of a route is written; its sum.
async fn written(server: &Server, route: &str) -> Value {
    let is_written = async {
        loop {
            let usage = server.client.get("/v1/usage?days=1").await.json();
            let row = usage["data"].as_array().unwrap().iter().find(|row| row["route"] == route).cloned();
            match row.filter(|row| row["rows"] != 0) {
                Some(row) => return row,
                None => tokio::task::yield_now().await,
            }
        }
    };
    seen_in_time("the usage is written", is_written).await
}

#[actix_web::test]
async fn money_is_set_aside_at_the_most_that_rows_may_cost_and_settled_at_what_they_did() {
    let Parties { server, theirs, operators } = serve_parties(priced()).await;
    set(&operators, json!({"day_cost": 0.0005, "month_cost": 1000})).await;
    server.gate.shut();
    let running = server.client.begin("/v1/relqueries", &body(10)).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    // 14 of a prompt and 11 of an answer: 14 and 110 millionths.
    assert_eq!(limits(&server.client).await["reserved_cost"], 0.000124);
    let refused = server.relquery(body(35)).await;
    assert_eq!(refused.status, 429, "124 and 39 and 360 of 500 millionths: {}", refused.body);
    let error = &refused.json()["error"];
    assert_eq!((&error["type"], &error["code"]), (&json!("insufficient_quota"), &json!("budget_spent")));
    let said = error["message"].as_str().unwrap();
    for part in ["0.0005 in money a day (`limits.day_cost`)", "0 are spent", "0.000124 set aside", "0.000399"]
    {
        assert!(said.contains(part), "{said:?} lacks {part:?}");
    }
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=86_400).contains(&wait), "until midnight: {wait}");
    let never = server.relquery(body(50)).await;
    assert_eq!(never.status, 413, "54 and 510 millionths never fit: {}", never.body);
    server.gate.release();
    assert_eq!(theirs.post("/v1/relqueries", &body(50)).await.status, 200, "another tenant has no bound");
    let done = finish(running).await.json();
    let usage = &done["usage"];
    let tokens = |name: &str| usage[name].as_f64().unwrap();
    let cost = tokens("computed_tokens") + 10.0 * tokens("completion_tokens");
    assert!((100.0..=124.0).contains(&cost), "{done}");
    server.until("it ends", |server| server.is_free()).await;
    let status = limits(&server.client).await;
    assert_eq!(status["reserved_cost"], 0.0, "what it did not take is free again");
    assert_eq!(millionths(&status["day_cost"]["used"]), cost, "{status}");
    assert_eq!((&status["day_cost"]["max"], &status["month_cost"]["max"]), (&json!(0.0005), &json!(1000.0)));
    assert_eq!(millionths(&written(&server, "relqueries").await["cost"]), cost);
    let seen = operators.get("/v1/tenants").await.json();
    assert_eq!(seen["data"][0]["day_cost"], status["day_cost"], "operators see the same");
    assert_eq!(theirs.get("/v1/usage").await.json()["limits"], json!({}));
}

#[actix_web::test]
async fn every_route_is_held_to_the_money_and_known_answers_are_free() {
    let Parties { server, operators, .. } = serve_parties(priced()).await;
    let cell = json!({"calls": [{"function": "ask", "args": ["Say hello"]}]});
    assert_eq!(server.client.post("/v1/cells", &cell).await.status, 200);
    set(&operators, json!({"month_cost": 0.000001})).await;
    let completion = json!({"prompt": "Say a", "max_tokens": 4});
    let other_cell = json!({"calls": [{"function": "ask", "args": ["Say bye"]}]});
    let sql = json!({"query": "SELECT ai_complete(prompt('Say {0}', w)) FROM (VALUES ('a'), ('b')) AS t(w)"});
    for (path, asked) in [
        ("/v1/relqueries", &body(3)),
        ("/v1/cells", &other_cell),
        ("/v1/completions", &completion),
        ("/v1/sql", &sql),
    ] {
        let reply = server.client.post(path, asked).await;
        assert!(reply.body.contains("`limits.month_cost`"), "{path}: {}", reply.body);
    }
    let known = server.client.post("/v1/cells", &cell).await;
    assert_eq!((known.status, &known.json()["status"]), (200, &json!("completed")), "{}", known.body);
    let file = upload(&server.client, &lines(["a".to_owned()].into_iter())).await;
    let batch = until_over(&server.client, make(&server.client, &file).await["id"].as_str().unwrap()).await;
    assert_eq!(batch["request_counts"], json!({"total": 1, "completed": 0, "failed": 1}), "{batch}");
    set(&operators, json!({"month_cost": 1})).await;
    let before = millionths(&limits(&server.client).await["month_cost"]["used"]);
    let file = upload(&server.client, &lines(["b".to_owned()].into_iter())).await;
    let batch = until_over(&server.client, make(&server.client, &file).await["id"].as_str().unwrap()).await;
    assert_eq!(batch["status"], "completed", "{batch}");
    let of_batches = millionths(&written(&server, "batches").await["cost"]);
    assert!(of_batches > 0.0);
    // What is set aside for a batch's rows is given back once they have left, shortly after it says that it is completed.
    server.until_free().await;
    let after = millionths(&limits(&server.client).await["month_cost"]["used"]);
    assert_eq!(after, ((before + of_batches) * 1e3).round() / 1e3, "a batch's rows cost once");
}

#[actix_web::test]
async fn a_row_costs_what_it_costs_where_it_ran_and_is_set_aside_at_the_dearest_place() {
    let (cheap, dear) = (FakeReplica::start().await, FakeReplica::start().await);
    let one_at_a_time = |replica: &FakeReplica| ReplicaSettings { rows_max: 1, ..replica.executor() };
    let dear_one = ReplicaSettings { output_price: Some(1_000.0), ..one_at_a_time(&dear) };
    let mut config = fleet(vec![one_at_a_time(&cheap), dear_one]);
    config.model.output_price = Some(10.0);
    config.auth.admin_key = Some(Secret("op".into()));
    let server = serve_fleet(config).await;
    until_up(&server, 2).await;
    let operators = server.client.with_key("op");
    // At most 8 tokens of an answer: 8,000 millionths at the dear one.
    set(&operators, json!({"day_cost": 0.0079})).await;
    assert_eq!(server.relquery(table(1)).await.status, 413);
    set(&operators, json!({"day_cost": 1})).await;
    let reply = server.relquery(table(20)).await.json();
    assert_eq!(reply["status"], "completed", "{reply}");
    let [at_cheap, at_dear] = [&cheap, &dear].map(|replica| replica.state().answered.len() as f64);
    assert!(at_cheap > 0.0 && at_dear > 0.0, "both ran some");
    let output = reply["usage"]["completion_tokens"].as_f64().unwrap() / 20.0;
    let cost = (at_cheap * 10.0 + at_dear * 1_000.0) * output;
    server.until("it ends", |server| server.is_free()).await;
    assert_eq!(millionths(&limits(&server.client).await["day_cost"]["used"]), cost);
}

#[actix_web::test]
async fn money_that_another_gateway_spent_counts_and_a_restart_forgets_none() {
    let (_folder, store) = lasting_store().await;
    // Once some 120 millionths are spent, there is no room for 200 more, but for 20.
    let limit = base::Money::of_units(0.0003);
    let limits = store::TenantLimits { day_cost: limit, ..store::TenantLimits::default() };
    store.set_limits(DEFAULT_TENANT, &limits).await.unwrap();
    let first = serve_on(priced(), model(), store.clone()).await;
    assert_eq!(first.relquery(body(10)).await.status, 200);
    first.running.drain(std::future::pending()).await;
    let mut second = priced();
    second.store.node = "another".into();
    let second = serve_on(second, model(), store).await;
    let refused = second.relquery(body(20)).await;
    assert_eq!(refused.status, 429, "some 120 are spent, and 234 asked: {}", refused.body);
    assert_eq!(second.relquery(body(5)).await.status, 200);
}
