//! What SQL may compute: budgets of statements and days, and scans that tools make by themselves.

use base::TokenCount;
use gateway::config::SqlBudget;
use serde_json::json;
use store::{DEFAULT_TENANT, Spending, Store, UnixMillis};

use crate::common::client::{Client, Reply};
use crate::common::{Server, config, key_of, model, seen_in_time, serve_on, serve_with};
use crate::postgres_client::{config as sql_config, connect, connect_as_default, options};

/// Asks about so many distinct values, from a first one on.
async fn ask(client: &Client, (first, last): (u32, u32), settings: serde_json::Value) -> Reply {
    let query = format!(
        "SELECT count(*) AS n FROM generate_series({first}, {last}) WHERE ai_if(prompt('{{0}} yes', value))"
    );
    client.post("/v1/sql", &json!({ "query": query, "settings": settings })).await
}

/// Waits until the day's sum of a tenant is as expected.
async fn until_spent(store: &Store, server: &Server, expected: impl Fn(Spending) -> bool) -> Spending {
    let day = UnixMillis(server.running.app.runtime.shared.clock.unix_ms()).day();
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
    }
    // The second statement found three answers, and computed three.
    until_spent(store, &server, |spent| spent.calls == 6).await;
    assert_eq!(server.metric("relserve_rows_total{outcome=\"stop\"}"), 6.0);
    let lower = ask(&server.client, (21, 30), json!({ "relserve.max_calls": 2 })).await;
    assert!(lower.body.contains("relserve.max_calls is 2"), "{}", lower.body);
    assert_eq!(ask(&server.client, (1, 5), json!({})).await.body, "{\"n\":5}\n");
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
