//! Tenants' limits on every route, and the log of what operators change.

use serde_json::{Value, json};
use serving::config::Secret;
use store::DEFAULT_TENANT;

use crate::common::client::{Client, finish};
use crate::common::{Parties, config, lasting_store, model, serve_on, serve_parties};

/// Sets what a tenant may compute.
async fn set(operators: &Client, tenant: &str, limits: Value) {
    let reply = operators.post(&format!("/v1/tenants/{tenant}"), &json!({ "limits": limits })).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
}

/// One row of so many letters, each a token, that asks for as much as it is; the double says the word after `Say `.
fn body(letters: usize) -> Value {
    json!({"template": "Say {w}", "rows": [["x".repeat(letters)]], "max_tokens": letters + 1})
}

/// The tenant as its operators see it.
async fn seen(operators: &Client, name: &str) -> Value {
    let list = operators.get("/v1/tenants").await.json();
    list["data"].as_array().unwrap().iter().find(|tenant| tenant["name"] == name).unwrap().clone()
}

#[actix_web::test]
async fn a_budget_is_set_aside_before_rows_run_and_settled_after() {
    let Parties { server, theirs, operators } = serve_parties(config()).await;
    set(&operators, "default", json!({"day_tokens": 120})).await;
    // 14 of a prompt and 11 of an answer, at most.
    server.gate.shut();
    let running = server.client.begin("/v1/relqueries", &body(10)).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    assert_eq!(seen(&operators, "default").await["reserved_tokens"], 25);
    let refused = server.relquery(body(50)).await;
    assert_eq!(refused.status, 429, "25 and 105 of 120: {}", refused.body);
    let error = &refused.json()["error"];
    assert_eq!(
        (error["type"].as_str(), error["code"].as_str()),
        (Some("insufficient_quota"), Some("budget_spent"))
    );
    let said = error["message"].as_str().unwrap();
    assert!(
        said.contains("120 tokens a day") && said.contains("25 set aside") && said.contains("105"),
        "{said}"
    );
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=86_400).contains(&wait), "until midnight: {wait}");
    // Another tenant has none.
    server.gate.release();
    assert_eq!(theirs.post("/v1/relqueries", &body(50)).await.status, 200);
    let done = finish(running).await;
    assert_eq!(done.status, 200, "{}", done.body);
    server.until("it ends", |server| server.is_free()).await;
    let status = seen(&operators, "default").await;
    assert_eq!(status["reserved_tokens"], 0, "what it did not take is free again");
    let used = status["day_tokens"]["used"].as_u64().unwrap();
    assert!((20..=25).contains(&used), "what it took is counted: {used}");
    assert_eq!(status["day_tokens"]["max"], 120);
    let never = server.relquery(body(100)).await;
    assert_eq!(never.status, 413, "it never fits: {}", never.body);
    set(&operators, "default", json!({})).await;
    assert_eq!(server.relquery(body(100)).await.status, 200, "no bound any more");
}

#[actix_web::test]
async fn every_route_is_held_to_the_budget_and_known_answers_are_free() {
    let Parties { server, operators, .. } = serve_parties(config()).await;
    let cell = json!({"calls": [{"function": "ask", "args": ["Say hello"]}]});
    assert_eq!(server.client.post("/v1/cells", &cell).await.status, 200);
    set(&operators, "default", json!({"month_tokens": 1})).await;
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
        assert!(reply.body.contains("1 tokens, the tenant's budget of a month"), "{path}: {}", reply.body);
        assert!(!reply.body.contains("\"completed\""), "{path}: {}", reply.body);
    }
    let known = server.client.post("/v1/cells", &cell).await;
    assert_eq!((known.status, &known.json()["status"]), (200, &json!("completed")), "{}", known.body);
}

#[actix_web::test]
async fn a_statement_that_its_tenants_budget_ends_computes_no_further_row() {
    let Parties { server, operators, .. } = serve_parties(config()).await;
    // The third row is sent once one of the first two is answered, the short one.
    let sql = json!({
        "query": "SELECT ai_complete(prompt('Say {0}', w)) FROM (VALUES ('a'), ('bbbbbbbbbb'), ('c')) AS t(w)",
        "settings": { "relserve.window_rows": 2 },
    });
    let row = most_of_a_row(&server.client, &operators, &sql).await;
    set(&operators, "default", json!({"day_tokens": 3 * row})).await;
    server.gate.shut();
    let running = server.client.begin("/v1/sql", &sql).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    // Less is allowed now: nothing that those which run leave is enough for the third.
    set(&operators, "default", json!({"day_tokens": row})).await;
    server.gate.release();
    let ended = finish(running).await;
    let lines: Vec<Value> = ended.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [short, long, last] = &lines[..] else { panic!("{}", ended.body) };
    assert_eq!((ended.status, &last["error"]["code"]), (200, &json!("budget_spent")), "{}", ended.body);
    assert!(short["error"].is_null() && long["error"].is_null(), "what had begun is shown: {}", ended.body);
    server.until_free().await;
    assert_eq!(server.metric("relserve_rows_total{outcome=\"stop\"}"), 2.0);
    assert_eq!(seen(&operators, "default").await["reserved_tokens"], 0);
}

/// Tokens that a row of a statement sets aside, as the refusal of a budget of one token says.
async fn most_of_a_row(client: &Client, operators: &Client, sql: &Value) -> u64 {
    set(operators, "default", json!({"day_tokens": 1})).await;
    let refused = client.post("/v1/sql", sql).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (413, &json!("too_large")));
    let (_, behind) = refused.body.split_once("may take ").expect("it says how much");
    behind.split_once(' ').expect("a number").0.parse().expect("of tokens")
}

/// A statement of so many rows, whose answers are far shorter than they may be.
fn roomy_rows(first: u32, last: u32) -> Value {
    let query = format!(
        "SELECT ai_complete(prompt('Say {{0}}', value), max_tokens => 900) AS t FROM generate_series({first}, {last})"
    );
    json!({ "query": query })
}

#[actix_web::test]
async fn rows_that_do_not_fit_at_their_most_wait_for_those_that_run() {
    let Parties { server, operators, .. } = serve_parties(config()).await;
    let row = most_of_a_row(&server.client, &operators, &roomy_rows(10, 10)).await;
    // A window at its most is 13 times as much.
    set(&operators, "default", json!({"day_tokens": 3 * row})).await;
    let (first, second) = (roomy_rows(11, 30), roomy_rows(31, 50));
    let (first, second) =
        tokio::join!(server.client.post("/v1/sql", &first), server.client.post("/v1/sql", &second));
    for reply in [first, second] {
        assert_eq!((reply.status, reply.body.lines().count()), (200, 20), "{}", reply.body);
        assert!(!reply.body.contains("error"), "{}", reply.body);
    }
    server.until_free().await;
    let status = seen(&operators, "default").await;
    assert_eq!(status["reserved_tokens"], 0);
    let used = status["day_tokens"]["used"].as_u64().unwrap();
    assert!(used <= 2 * row, "what 40 rows took left room for one more to the last: {used}");

    // With nothing of its own set aside there is nothing to wait for, and nothing has run: as on any other route.
    set(&operators, "default", json!({"day_tokens": row})).await;
    let refused = server.client.post("/v1/sql", &roomy_rows(51, 70)).await;
    let error = &refused.json()["error"];
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert_eq!((&error["type"], &error["code"]), (&json!("insufficient_quota"), &json!("budget_spent")));
    let said = error["message"].as_str().unwrap();
    let (is, left) = (
        format!("{row} tokens a day (`limits.day_tokens`)"),
        format!("{} are left", row.saturating_sub(used)),
    );
    let asked = format!("may take {row};");
    for part in
        [is.as_str(), &left, &asked, "`max_tokens => n`", "`relserve.max_tokens`", "`relserve.window_rows`"]
    {
        assert!(said.contains(part), "{said:?} lacks {part:?}");
    }
    assert!(refused.header("retry-after").is_some());
    let known = server.client.post("/v1/sql", &roomy_rows(11, 30)).await;
    assert_eq!(
        (known.status, known.body.lines().count()),
        (200, 20),
        "known answers are free: {}",
        known.body
    );
}

#[actix_web::test]
async fn requests_and_models_have_bounds_of_a_tenant() {
    let Parties { server, theirs, operators } = serve_parties(config()).await;
    set(&operators, "default", json!({"minute_requests": 2})).await;
    for _ in 0..2 {
        assert_eq!(server.relquery(body(3)).await.status, 200);
    }
    let refused = server.relquery(body(3)).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!("rate_limit")));
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() <= 30, "half a minute at most");
    assert_eq!(server.client.get("/v1/me").await.status, 200, "looking is free");
    assert_eq!(theirs.post("/v1/relqueries", &body(3)).await.status, 200, "another tenant has no bound");
    set(&operators, "default", json!({"models": []})).await;
    let refused = server.relquery(body(3)).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (404, &json!("model_not_found")));
    assert!(refused.error().ends_with("does not exist; served: none"), "{}", refused.body);
    let name = server.running.app.runtime.model.name.clone();
    set(&operators, "default", json!({"models": [name]})).await;
    assert_eq!(server.relquery(body(3)).await.status, 200);
    assert_eq!(seen(&operators, "default").await["models"], json!([name]));
}

#[actix_web::test]
async fn a_wrong_limit_is_named_and_changes_nothing() {
    let Parties { server: _server, operators, .. } = serve_parties(config()).await;
    set(&operators, "default", json!({"minute_requests": 5})).await;
    for wrong in ["zzz", ""] {
        let limits = json!({"limits": {"models": ["double", wrong]}});
        let refused = operators.post("/v1/tenants/default", &limits).await;
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("limits.models")));
        let expected = format!("`{wrong}`, which no model is called; served: `double`");
        assert!(refused.error().contains(&expected), "{}", refused.body);
    }
    let body = br#"{"limits": {"day_tokens": 99999999999999999999}}"#;
    let refused = operators.post_bytes("/v1/tenants/default", "application/json", body).await;
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("limits.day_tokens")));
    assert!(refused.error().ends_with("the number 99999999999999999999 is too large"), "{}", refused.body);
    assert_eq!(seen(&operators, "default").await["minute_requests"], 5);
}

#[actix_web::test]
async fn a_spent_budget_says_when_it_begins_anew_in_hours_and_minutes() {
    let Parties { server, operators, .. } = serve_parties(config()).await;
    set(&operators, "default", json!({"month_tokens": 30})).await;
    assert_eq!(server.relquery(body(10)).await.status, 200);
    let refused = server.relquery(body(12)).await;
    assert_eq!(refused.status, 429, "{}", refused.body);
    let said = refused.error();
    assert!(said.contains("the count begins anew in ") && said.ends_with(" min"), "{said}");
}

#[actix_web::test]
async fn what_another_gateway_computed_counts_and_a_restart_forgets_nothing() {
    let (_folder, store) = lasting_store().await;
    let limits = store::TenantLimits { day_tokens: Some(60), ..store::TenantLimits::default() };
    store.set_limits(DEFAULT_TENANT, &limits).await.unwrap();
    let first = serve_on(config(), model(), store.clone()).await;
    assert_eq!(first.relquery(body(10)).await.status, 200);
    first.running.drain(std::future::pending()).await;
    let mut second = config();
    second.store.node = "another".into();
    let second = serve_on(second, model(), store).await;
    let refused = second.relquery(body(20)).await;
    assert_eq!(refused.status, 429, "some 24 are spent, and 45 asked: {}", refused.body);
    assert_eq!(second.relquery(body(5)).await.status, 200);
}

#[actix_web::test]
async fn what_operators_change_is_in_the_log_with_who_and_how_it_ended() {
    let Parties { server, operators, .. } = serve_parties(config()).await;
    operators.post("/v1/tenants", &json!({"name": "acme"})).await;
    operators.post("/v1/tenants", &json!({"name": "acme"})).await;
    let asked = json!({"name": "ops", "tenant": "acme", "operator": true});
    let key = operators.post("/v1/keys", &asked).await.json();
    let by_key = server.client.with_key(key["key"].as_str().unwrap());
    by_key.post("/v1/tenants/acme", &json!({"weight": 2, "limits": {"day_tokens": 9}})).await;
    by_key.delete(&format!("/v1/keys/{}", key["id"])).await;
    operators.delete("/v1/keys/999").await;

    let log = operators.get("/v1/audit").await.json();
    let shown: Vec<(&str, &str, &str, bool)> = log["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            let word = |field: &str| entry[field].as_str().unwrap();
            (word("actor"), word("action"), word("subject"), entry["done"].as_bool().unwrap())
        })
        .collect();
    let number = key["id"].to_string();
    let by = format!("key {number}");
    let expected = [
        ("auth.admin_key", "key.revoke", "999", false),
        (&*by, "key.revoke", &*number, true),
        (&*by, "tenant.change", "acme", true),
        ("auth.admin_key", "key.create", "ops", true),
        ("auth.admin_key", "tenant.create", "acme", false),
        ("auth.admin_key", "tenant.create", "acme", true),
    ];
    assert_eq!(shown, expected, "the newest first");
    assert_eq!(log["data"][2]["details"], json!({"weight": 2.0, "limits": {"day_tokens": 9}}));
    assert!(!log.to_string().contains(key["key"].as_str().unwrap()), "no secret is in it");
    let before = log["data"][3]["id"].as_u64().unwrap();
    let older = operators.get(&format!("/v1/audit?before={before}")).await.json();
    assert_eq!(older["data"].as_array().unwrap().len(), 2);
    let wrong = operators.get("/v1/audit?before=abc").await;
    assert_eq!((wrong.status, &wrong.json()["error"]["param"]), (400, &json!("before")), "{}", wrong.body);
    assert!(wrong.error().contains("must be a whole number"), "{}", wrong.body);
    assert_eq!(server.client.get("/v1/audit").await.status, 403, "for operators");
}

#[actix_web::test]
async fn a_change_that_cannot_be_written_down_is_not_made() {
    let (folder, store) = lasting_store().await;
    let mut config = config();
    config.auth.admin_key = Some(Secret("op".into()));
    let server = serve_on(config, model(), store.clone()).await;
    let operators = server.client.with_key("op");
    sqlx::any::install_default_drivers();
    let url = format!("sqlite://{}", folder.path().join("test.db").display());
    let other = sqlx::AnyPool::connect(&url).await.unwrap();
    sqlx::query("ALTER TABLE audit_log RENAME TO gone").execute(&other).await.unwrap();
    let refused = operators.post("/v1/tenants", &json!({"name": "acme"})).await;
    assert_eq!(refused.status, 500, "{}", refused.body);
    assert_eq!(store.tenants().await.unwrap().len(), 1);
    sqlx::query("ALTER TABLE gone RENAME TO audit_log").execute(&other).await.unwrap();
    assert_eq!(operators.post("/v1/tenants", &json!({"name": "acme"})).await.status, 200);
    assert_eq!(store.tenants().await.unwrap().len(), 2);
}
