//! What SQL may compute: budgets of statements and days, and scans that tools make by themselves.

use base::{Millis, TokenCount};
use gateway::config::{Config, SqlBudget};
use serde_json::{Value, json};
use store::{DEFAULT_TENANT, Spending, Store, UnixMillis};

use crate::common::client::{Client, Reply, finish, read_until};
use crate::common::{Server, config, key_of, model, seen_in_time, serve_on, serve_with};
use crate::postgres_client::{config as sql_config, connect, connect_as_default, options};

/// Asks about so many distinct values, from a first one on.
async fn ask(client: &Client, (first, last): (u32, u32), settings: Value) -> Reply {
    let query = format!(
        "SELECT count(*) AS n FROM generate_series({first}, {last}) WHERE ai_if(prompt('{{0}} yes', value))"
    );
    client.post("/v1/sql", &json!({ "query": query, "settings": settings })).await
}

fn today(server: &Server) -> u64 {
    UnixMillis(server.running.app.runtime.shared.clock.unix_ms()).day()
}

/// Waits until the day's sum of a tenant is as expected.
async fn until_spent(store: &Store, server: &Server, expected: impl Fn(Spending) -> bool) -> Spending {
    let day = today(server);
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(2));
    let wait = async {
        loop {
            looks.tick().await;
            let spent = store.spending(DEFAULT_TENANT, day).await.unwrap();
            if expected(spent) {
                return spent;
            }
        }
    };
    seen_in_time("the sum is as expected", wait).await
}

#[actix_web::test]
async fn a_statement_computes_no_more_calls_than_its_budget() {
    let mut config = config();
    config.sql.budgets = vec![SqlBudget { statement_calls_max: Some(3), ..SqlBudget::default() }];
    let server = serve_with(config, model()).await;
    let store = &server.running.app.runtime.store;
    for settings in [json!({}), json!({ "relserve.max_calls": 1_000_000, "relserve.max_tokens": 1_000_000 })]
    {
        let reply = ask(&server.client, (1, 10), settings).await;
        assert!(reply.body.contains("sql.budgets.statement_calls_max is 3"), "{}", reply.body);
        assert_eq!(
            (reply.status, &reply.json()["error"]["code"]),
            (200, &json!("budget_spent")),
            "it had begun"
        );
    }
    // The second statement found three answers, and computed three.
    until_spent(store, &server, |spent| spent.calls == 6).await;
    assert_eq!(server.metric("relserve_rows_total{outcome=\"stop\"}"), 6.0);
    let lower = ask(&server.client, (21, 30), json!({ "relserve.max_calls": 2 })).await;
    assert!(lower.body.contains("relserve.max_calls is 2"), "{}", lower.body);
    assert_eq!(ask(&server.client, (1, 5), json!({})).await.body, "{\"n\":5}\n");
}

#[actix_web::test]
async fn rows_that_a_budget_has_paid_for_are_shown_before_its_error() {
    let mut config = config();
    config.sql.budgets = vec![SqlBudget { statement_calls_max: Some(5), ..SqlBudget::default() }];
    let server = serve_with(config, model()).await;
    let one = "SELECT ai_complete(prompt('say {0}', value)) AS t FROM generate_series(1, 9)";
    let two = "SELECT ai_complete(prompt('tell {0}', value)) AS t, ai_if(prompt('{0} yes', value)) AS y \
        FROM generate_series(11, 19)";
    for (query, shown) in [(one, 5), (two, 2)] {
        let reply = server.client.post("/v1/sql", &json!({ "query": query })).await;
        let lines: Vec<Value> = reply.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (last, rows) = lines.split_last().expect("an error");
        assert_eq!(
            (reply.status, &last["error"]["code"]),
            (200, &json!("budget_spent")),
            "{query}: {}",
            reply.body
        );
        assert_eq!(rows.len(), shown, "{query}: {}", reply.body);
        assert!(rows.iter().all(|row| row["t"].is_string()), "{query}: {}", reply.body);
    }
    server.until_free().await;
    assert_eq!(server.metric("relserve_rows_total{outcome=\"stop\"}"), 10.0);
}

#[actix_web::test]
async fn a_statement_computes_no_more_tokens_than_its_budget() {
    const MAX: u64 = 3_000;
    let mut config = config();
    config.sql.budgets =
        vec![SqlBudget { statement_tokens_max: Some(TokenCount(MAX)), ..SqlBudget::default() }];
    let server = serve_with(config, model()).await;
    let reply = ask(&server.client, (1, 200), json!({ "relserve.max_tokens": 1_000_000 })).await;
    assert!(reply.body.contains("sql.budgets.statement_tokens_max is 3000"), "{}", reply.body);
    let store = &server.running.app.runtime.store;
    let spent = until_spent(store, &server, |spent| spent.calls > 0).await;
    assert!(spent.calls > 1 && spent.tokens <= MAX, "{spent:?}");
    assert!(server.gate.computed() <= MAX);
}

#[actix_web::test]
async fn a_tenants_day_has_a_budget_that_outlives_a_restart() {
    let (_dir, store) = crate::common::lasting_store().await;
    let other = store.create_tenant("other", 1.0, UnixMillis(1)).await.unwrap().id;
    let mut config = config();
    let own = SqlBudget { tenant: Some("default".into()), day_calls_max: Some(5), ..SqlBudget::default() };
    config.sql.budgets = vec![own];
    let first = serve_on(config.clone(), model(), store.clone()).await;
    assert_eq!(ask(&first.client, (1, 4), json!({})).await.body, "{\"n\":4}\n");
    let named = "sql.budgets[default].day_calls_max is 5";
    let reply = ask(&first.client, (11, 14), json!({})).await;
    assert!(reply.body.contains(named) && reply.body.contains("today's statements have"), "{}", reply.body);
    assert_eq!(ask(&first.client, (1, 4), json!({})).await.body, "{\"n\":4}\n", "known answers cost nothing");
    let theirs = first.client.with_key(&key_of(&store, other).await);
    assert_eq!(ask(&theirs, (21, 29), json!({})).await.body, "{\"n\":9}\n", "another tenant has none");
    until_spent(&store, &first, |spent| spent.calls == 5).await;
    first.running.drain(std::future::pending()).await;

    let second = serve_on(config, model(), store.clone()).await;
    let reply = ask(&second.client, (31, 31), json!({})).await;
    assert!(reply.body.contains(named), "{}", reply.body);
    let error = &reply.json()["error"];
    assert_eq!((reply.status, &error["type"]), (429, &json!("insufficient_quota")), "nothing had begun");
    assert_eq!((&error["code"], &error["param"]), (&json!("budget_spent"), &json!(null)));
    let wait: u64 = reply.header("retry-after").expect("tomorrow").parse().unwrap();
    assert!((1..=86_400).contains(&wait), "{wait}");
}

/// Three calls, of equal length.
const THREE: &str = "SELECT ai_complete(prompt('say {0}', value)) AS t FROM generate_series(1, 3)";

/// A tenant that may make so many calls in a day.
fn day_of(calls: u64) -> Config {
    let mut config = config();
    config.sql.budgets = vec![SqlBudget { day_calls_max: Some(calls), ..SqlBudget::default() }];
    config
}

#[actix_web::test]
async fn a_call_is_in_the_sum_of_its_day_before_it_runs() {
    let (_dir, store) = crate::common::lasting_store().await;
    let mut config = day_of(3);
    // Nothing is written meanwhile but what a statement writes itself.
    config.store.flush_ms = Millis(20_000);
    let first = serve_on(config.clone(), model(), store.clone()).await;
    first.gate.shut();
    let running = first.client.begin("/v1/sql", &json!({ "query": THREE })).await;
    first.until("a step waits", |server| server.gate.passed() == 1).await;
    let day = today(&first);
    let held = store.spending(DEFAULT_TENANT, day).await.unwrap();
    assert_eq!(held.calls, 3);
    // Whatever becomes of that server, another one finds the day spent.
    config.store.node = "another".into();
    let second = serve_on(config, model(), store.clone()).await;
    let refused = ask(&second.client, (31, 31), json!({})).await;
    assert!(
        refused.status == 429 && refused.body.contains("have computed 3 calls, 0 are left"),
        "{}",
        refused.body
    );
    first.gate.release();
    assert_eq!(finish(running).await.body.lines().count(), 3);
    first.running.drain(std::future::pending()).await;
    let took = store.spending(DEFAULT_TENANT, day).await.unwrap();
    assert!(
        took.calls == 3 && took.tokens < held.tokens,
        "what they did not take is out again: {took:?} of {held:?}"
    );
}

/// Three calls whose answers take more steps than [`BEGUN`].
const LONG: &str = "SELECT ai_complete(prompt('say {0}{1}', repeat('a', 60), value), max_tokens => 100) AS t \
    FROM generate_series(1, 3)";
/// Steps in which all of them begin, and none ends.
const BEGUN: u64 = 20;

#[actix_web::test]
async fn calls_that_were_made_count_though_their_client_has_left_and_those_of_the_queue_do_not() {
    let server = serve_with(day_of(3), model()).await;
    let store = &server.running.app.runtime.store;
    server.gate.shut();
    let before =
        server.client.begin("/v1/relqueries", &json!({"template": "Say {w}", "rows": [["x"]]})).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    // The loop is busy with that step: none of these begins.
    let mut queued = server.client.begin("/v1/sql", &json!({ "query": THREE })).await;
    read_until(&mut queued, "\r\n\r\n").await;
    assert_eq!(store.spending(DEFAULT_TENANT, today(&server)).await.unwrap().calls, 3, "they are set aside");
    drop(queued);
    server.until("it is noticed", |server| server.metric("relserve_disconnects_total") == 1.0).await;
    server.gate.release();
    finish(before).await;
    let spent = until_spent(store, &server, |spent| spent.calls == 0).await;
    assert_eq!(spent.tokens, 0, "none of them was made");
    server.until_free().await;

    let (computed, passed) = (server.gate.computed(), server.gate.passed());
    server.gate.shut();
    server.gate.allow(BEGUN);
    let mut begun = server.client.begin("/v1/sql", &json!({ "query": LONG })).await;
    read_until(&mut begun, "\r\n\r\n").await;
    server.until("all have begun", |server| server.gate.passed() == passed + BEGUN + 1).await;
    let most = store.spending(DEFAULT_TENANT, today(&server)).await.unwrap();
    drop(begun);
    server.until("it is noticed", |server| server.metric("relserve_disconnects_total") == 2.0).await;
    server.gate.release();
    server.until_free().await;
    let spent = until_spent(store, &server, |spent| spent.tokens < most.tokens).await;
    assert_eq!((most.calls, spent.calls), (3, 3), "each of them was");
    assert!(spent.tokens >= server.gate.computed() - computed, "with its prompt at least: {spent:?}");
    let refused = ask(&server.client, (31, 31), json!({})).await;
    assert!(refused.body.contains("have computed 3 calls"), "{}", refused.body);
}

#[actix_web::test]
async fn a_call_that_goes_on_for_another_statement_counts_though_the_one_that_asked_first_has_left() {
    let (_dir, store) = crate::common::lasting_store().await;
    let mut config = day_of(6);
    // What calls did not take is told once, as the server ends.
    config.store.flush_ms = Millis(20_000);
    let server = serve_on(config, model(), store.clone()).await;
    let day = today(&server);
    server.gate.shut();
    let before =
        server.client.begin("/v1/relqueries", &json!({"template": "Say {w}", "rows": [["x"]]})).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    // The loop is busy with that step: none of these begins.
    let mut first = server.client.begin("/v1/sql", &json!({ "query": THREE })).await;
    read_until(&mut first, "\r\n\r\n").await;
    let mut second = server.client.begin("/v1/sql", &json!({ "query": THREE })).await;
    read_until(&mut second, "\r\n\r\n").await;
    assert_eq!(store.spending(DEFAULT_TENANT, day).await.unwrap().calls, 6, "set aside for both");
    drop(first);
    server.until("it is noticed", |server| server.metric("relserve_disconnects_total") == 1.0).await;
    server.gate.release();
    finish(before).await;
    let rows = read_until(&mut second, "\r\n0\r\n\r\n").await;
    assert_eq!(rows.matches("{\"t\":").count(), 3, "{rows}");
    server.until_free().await;
    server.running.drain(std::future::pending()).await;
    assert_eq!(store.spending(DEFAULT_TENANT, day).await.unwrap().calls, 3, "each was made once");
}

#[actix_web::test]
async fn calls_that_began_count_once_though_all_statements_that_asked_for_them_have_left() {
    let (_dir, store) = crate::common::lasting_store().await;
    let mut config = day_of(6);
    // What calls did not take is told once, as the server ends.
    config.store.flush_ms = Millis(20_000);
    let server = serve_on(config, model(), store.clone()).await;
    let day = today(&server);
    server.gate.shut();
    server.gate.allow(BEGUN);
    let mut first = server.client.begin("/v1/sql", &json!({ "query": LONG })).await;
    read_until(&mut first, "\r\n\r\n").await;
    server.until("all have begun", |server| server.gate.passed() == BEGUN + 1).await;
    let mut second = server.client.begin("/v1/sql", &json!({ "query": LONG })).await;
    read_until(&mut second, "\r\n\r\n").await;
    let most = store.spending(DEFAULT_TENANT, day).await.unwrap();
    assert_eq!(most.calls, 6, "set aside for both");
    server.gate.allow(1);
    server.until("the second joins", |server| server.metric("relserve_rows_shared_total") == 3.0).await;
    drop(first);
    server.until("it is noticed", |server| server.metric("relserve_disconnects_total") == 1.0).await;
    server.gate.allow(1);
    server.until("the calls go on", |server| server.gate.passed() == BEGUN + 3).await;
    drop(second);
    server.until("it is noticed", |server| server.metric("relserve_disconnects_total") == 2.0).await;
    server.gate.release();
    server.until_free().await;
    let computed = server.gate.computed();
    server.running.drain(std::future::pending()).await;
    let spent = store.spending(DEFAULT_TENANT, day).await.unwrap();
    assert_eq!(spent.calls, 3, "each was made once");
    assert!(spent.tokens >= computed && 2 * spent.tokens < most.tokens, "{spent:?} of {most:?}");
}

#[actix_web::test]
async fn calls_that_were_made_count_though_their_ticket_is_deleted() {
    let server = serve_with(day_of(3), model()).await;
    let store = &server.running.app.runtime.store;
    server.gate.shut();
    let hasty = json!({ "query": LONG, "format": "csv", "deadline_ms": 60 });
    let reply = server.client.post("/v1/sql", &hasty).await;
    let id = reply.header("relserve-ticket").expect("a ticket").to_owned();
    server.gate.allow(BEGUN);
    server.until("all have begun", |server| server.gate.passed() == BEGUN + 1).await;
    let most = store.spending(DEFAULT_TENANT, today(&server)).await.unwrap();
    assert_eq!(server.client.delete(&format!("/v1/sql/{id}")).await.json()["cancelled"], true);
    server.gate.release();
    server.until_free().await;
    let spent = until_spent(store, &server, |spent| spent.tokens < most.tokens).await;
    assert_eq!((most.calls, spent.calls), (3, 3));
    let refused = ask(&server.client, (31, 31), json!({})).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!("budget_spent")));
}

/// What Metabase sends of itself, before a fingerprint of a view.
const FINGERPRINT: &str = "-- Metabase\n\
    SELECT \"public\".\"judged\".\"id\" AS \"id\", \"public\".\"judged\".\"good\" AS \"good\" \
    FROM \"public\".\"judged\" LIMIT 10000";
/// The same, asked for by a person.
const QUESTION: &str = "-- Metabase:: userID: 1 queryType: MBQL queryHash: ab12\n\
    SELECT \"public\".\"judged\".\"id\" AS \"id\", \"public\".\"judged\".\"good\" AS \"good\" \
    FROM \"public\".\"judged\" LIMIT 2000";
const VIEW: &str = "CREATE VIEW judged AS \
    SELECT id, ai_if(text) AS good FROM (VALUES (1, 'fine yes'), (2, 'poor no')) AS t(id, text)";

#[actix_web::test]
async fn a_scan_that_a_tool_makes_by_itself_computes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve_with(sql_config(folder.path()), model()).await;
    let key = server.client.key.clone().unwrap();
    connect_as_default(&server).await.rows(VIEW).await;
    let mut options = options(&server, "default-1", &key);
    let metabase = connect(options.application_name("Metabase v0.56.3 [6b1f]")).await.unwrap();
    assert_eq!(metabase.rows("SHOW relserve.cached_only").await, ["auto"]);
    assert_eq!(metabase.rows(FINGERPRINT).await, ["1|-", "2|-"]);
    assert_eq!(server.gate.computed(), 0);
    let [notice] = <[String; 1]>::try_from(metabase.notices()).unwrap();
    for part in [
        "2 of the AI answers are not computed and are NULL",
        "a scan that Metabase makes by itself",
        "sql.cached_only_scans",
        "SET relserve.cached_only = false computes them",
    ] {
        assert!(notice.contains(part), "{notice}");
    }
    // As drivers prepare it.
    let rows = metabase.client.query(FINGERPRINT, &[]).await.unwrap();
    assert_eq!(rows[0].get::<_, Option<bool>>(1), None);
    assert_eq!(server.gate.computed(), 0);

    assert_eq!(metabase.rows(QUESTION).await, ["1|t", "2|f"]);
    assert_eq!(metabase.rows(FINGERPRINT).await, ["1|t", "2|f"], "what is known is shown");
}

#[actix_web::test]
async fn a_session_or_a_configuration_asks_for_the_real_answers_of_scans() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve_with(sql_config(folder.path()), model()).await;
    let key = server.client.key.clone().unwrap();
    connect_as_default(&server).await.rows(VIEW).await;
    let mut settings = options(&server, "default-1", &key);
    settings.application_name("Metabase v0.56.3 [6b1f]").options("-c relserve.cached_only=false");
    let metabase = connect(&settings).await.unwrap();
    assert_eq!(metabase.rows(FINGERPRINT).await, ["1|t", "2|f"]);
    assert_eq!(metabase.notices(), Vec::<String>::new());

    let folder = tempfile::tempdir().unwrap();
    let mut config = sql_config(folder.path());
    config.sql.cached_only_scans = vec!["superset".into()];
    let server = serve_with(config, model()).await;
    let key = server.client.key.clone().unwrap();
    let mut options = options(&server, "default-1", &key);
    let client = connect(options.application_name("Metabase v0.56.3 [6b1f]")).await.unwrap();
    client.rows(VIEW).await;
    let sample = "SELECT id AS id, good AS good \nFROM public.judged \n LIMIT 1000";
    assert_eq!(client.rows(sample).await, ["1|-", "2|-"]);
    assert!(client.notices()[0].contains("a scan that Superset makes by itself"));
    assert_eq!(client.rows(FINGERPRINT).await, ["1|t", "2|f"]);
}
