//! Statements over HTTP: rows stream, AI columns are relQueries of class dashboard, mistakes are named.

use retrieval::synthetic::Synthetic;
use serde_json::{Value, json};
use serving::config::{ReplicaKind, ReplicaSettings};

use crate::common::client::{finish, read_until};
use crate::common::{Server, config, model, serve, serve_with};

/// A table whose texts end in what the model answers.
const TABLE: &str = "(VALUES (1, 'fine yes'), (2, 'poor no'), (3, 'fine yes'), (4, NULL)) AS t(id, text)";

async fn rows(server: &Server, query: String) -> Vec<Value> {
    let reply = server.client.post("/v1/sql", &json!({ "query": query })).await;
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, Some("application/x-ndjson")),
        "{}",
        reply.body
    );
    reply.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[actix_web::test]
async fn rows_come_as_lines_and_equal_prompts_run_once() {
    let server = serve().await;
    let answered = rows(&server, format!("SELECT id, ai_if(text) AS good FROM {TABLE} ORDER BY id")).await;
    let expected = [json!({"id": 1, "good": true}), json!({"id": 2, "good": false})];
    assert_eq!(answered[..2], expected);
    assert_eq!(answered[2..], [json!({"id": 3, "good": true}), json!({"id": 4})]);
    assert_eq!(server.metric("relserve_rows_total{outcome=\"stop\"}"), 2.0);
    // Asked again, everything is in the tenant's cache.
    rows(&server, format!("SELECT id FROM {TABLE} WHERE ai_if(text)")).await;
    assert_eq!(server.metric("relserve_cache_rows_total{result=\"hit\"}"), 2.0);
}

#[actix_web::test]
async fn the_rows_of_a_column_are_a_relquery_of_class_dashboard() {
    let server = serve().await;
    server.gate.shut();
    let query = "SELECT ai_complete(prompt('say {0}', value)) AS t FROM generate_series(1, 40)";
    let stream = server.client.begin("/v1/sql", &json!({ "query": query })).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    let running = server.running.app.runtime.registry.running();
    assert_eq!((running.len(), running[0].read().rows.len()), (1, 40));
    let shown = server.client.get("/v1/scheduler").await;
    assert!(shown.body.contains("dashboard"), "{}", shown.body);
    server.gate.release();
    let reply = finish(stream).await;
    assert_eq!(reply.body.lines().count(), 40);
    assert_eq!(reply.body.lines().next(), Some(r#"{"t":"1"}"#));
}

#[actix_web::test]
async fn a_client_that_goes_away_ends_its_statement() {
    let server = serve().await;
    server.gate.shut();
    let query = "SELECT ai_complete(prompt('say {0}', value)) AS t FROM generate_series(1, 400)";
    let mut stream = server.client.begin("/v1/sql", &json!({ "query": query })).await;
    read_until(&mut stream, "\r\n\r\n").await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    drop(stream);
    server.until("it is noticed", |server| server.metric("relserve_disconnects_total") == 1.0).await;
    let before = server.gate.passed();
    server.gate.allow(2);
    server.until("everything is free", |server| server.is_free()).await;
    assert!(server.gate.passed() <= before + 2);
}

/// A column longer than a relQuery may be at a time: it is one all the same, and holds no more than that.
#[actix_web::test]
async fn a_column_of_any_length_is_one_relquery_that_holds_a_bounded_number_of_rows() {
    const ROWS: usize = 3_000;
    let mut config = config();
    config.limits.rows_max = 200;
    let server = serve_with(config, model()).await;
    server.gate.shut();
    let query =
        format!("SELECT value, ai_if(prompt('{{0}} yes', value)) AS good FROM generate_series(1, {ROWS})");
    let body = json!({ "query": query, "settings": { "relserve.window_rows": 500 } });
    let stream = server.client.begin("/v1/sql", &body).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    let column = server.running.app.runtime.registry.running().remove(0);
    assert_eq!(column.read().held(), 200, "a window of 500 rows waits for room");
    server.gate.release();
    let reply = finish(stream).await;
    let lines: Vec<&str> = reply.body.lines().collect();
    assert_eq!(lines.len(), ROWS, "{:?}", lines.last());
    assert!(lines.iter().all(|line| line.ends_with(r#""good":true}"#)), "{:?}", lines[0]);
    // Places of rows are used again: there were never more than are held at a time.
    server.until("it has ended", |_| column.read().is_over()).await;
    assert_eq!(column.read().rows.len(), 200);
    server
        .until("it is counted", |server| {
            server.metric("relserve_relqueries_total{status=\"completed\"}") == 1.0
        })
        .await;
    assert!(server.running.app.runtime.registry.running().is_empty());
    server.until_free().await;
}

#[actix_web::test]
async fn results_come_as_csv_and_arrow_too() {
    let server = serve().await;
    let query = format!("SELECT id, ai_if(text) AS good FROM {TABLE} WHERE id < 3 ORDER BY id");
    let csv = server.client.post("/v1/sql", &json!({ "query": query, "format": "csv" })).await;
    assert_eq!(csv.body, "id,good\n1,true\n2,false\n");
    let arrow = server.client.post("/v1/sql", &json!({ "query": query, "format": "arrow" })).await;
    assert_eq!(arrow.header("content-type"), Some("application/vnd.apache.arrow.stream"));
    assert!(arrow.body.len() > 100);
}

#[actix_web::test]
async fn csv_marks_what_a_spreadsheet_would_compute_unless_it_is_to_be_raw() {
    let server = serve().await;
    let query = "SELECT '=1+1' AS \"@a\", '-x' AS b, '-5' AS c, -5 AS d";
    for (format, expected) in
        [("csv", "'@a,b,c,d\n'=1+1,'-x,-5,-5\n"), ("csv_raw", "@a,b,c,d\n=1+1,-x,-5,-5\n")]
    {
        let reply = server.client.post("/v1/sql", &json!({ "query": query, "format": format })).await;
        assert_eq!((reply.status, reply.body.as_str()), (200, expected), "{format}");
        assert_eq!(reply.header("content-type"), Some("text/csv; charset=utf-8"));
    }
}

#[actix_web::test]
async fn settings_bound_what_a_statement_computes() {
    let server = serve().await;
    let query = format!("SELECT id, ai_if(text) AS good FROM {TABLE} WHERE id < 3 ORDER BY id");
    let body = json!({ "query": query, "settings": { "relserve.cached_only": true } });
    let reply = server.client.post("/v1/sql", &body).await;
    assert_eq!(reply.body, "{\"id\":1}\n{\"id\":2}\n");
    assert_eq!(server.gate.computed(), 0);
    let many = "SELECT count(*) FROM generate_series(1, 20000) WHERE ai_if(prompt('{0} yes', value))";
    let body = json!({ "query": many, "settings": { "relserve.max_tokens": 1000 } });
    let reply = server.client.post("/v1/sql", &body).await;
    assert!(reply.body.contains("relserve.max_tokens is 1000"), "{}", reply.body);
}

#[actix_web::test]
async fn mistakes_are_named_and_nothing_else_is_told() {
    let server = serve().await;
    for (body, said) in [
        (json!({}), "`query`: is required"),
        (json!({"query": "SELEC 1"}), "invalid `query`: syntax error: "),
        (json!({"query": "SELEC 1"}), "SELEC"),
        (json!({"query": "SELECT 1; SELECT 2"}), "one statement at a time"),
        (json!({"query": "SELECT nothing FROM nowhere"}), "nowhere"),
        (json!({"query": "SELECT nothing FROM (VALUES (1)) AS t(n)"}), "nothing"),
        (json!({"query": "SELECT ai_if()"}), "ai_if"),
        (json!({"query": "SELECT 1", "format": "xml"}), "must be jsonl, csv, csv_raw or arrow"),
        (json!({"query": "SELECT 1", "settings": {"relserve.nonsense": 1}}), "settings.relserve.nonsense"),
        (json!({"query": "SELECT 1", "settings": {"a = 1; DROP": 1}}), "must be a setting's name"),
        (
            json!({"query": "SELECT 1", "settings": {"relserve.max_tokens": -1}}),
            "invalid `settings.relserve.max_tokens`: must be a whole number from 0 to 18446744073709551615, not `-1`",
        ),
        (
            json!({"query": "SELECT 1", "settings": {"relserve.window_rows": 0}}),
            "invalid `settings.relserve.window_rows`: must be a whole number from 1 to 18446744073709551615, not `0`",
        ),
        (
            json!({"query": "SELECT 1", "settings": {"relserve.max_calls": "18446744073709551616"}}),
            "must be a whole number from 0 to 18446744073709551615, not `18446744073709551616`",
        ),
        (
            json!({"query": "SELECT 1", "settings": {"relserve.cached_only": "maybe"}}),
            "invalid `settings.relserve.cached_only`: must be true or false, not `maybe`",
        ),
        (
            json!({"query": "SELECT 1", "settings": {"datafusion.optimizer.max_passes": "many"}}),
            "invalid `settings.datafusion.optimizer.max_passes`: must be a whole number, not `many`",
        ),
        (
            json!({"query": "SELECT 1", "settings": {"datafusion.explain.logical_plan_only": "often"}}),
            "invalid `settings.datafusion.explain.logical_plan_only`: must be true or false, not `often`",
        ),
        (
            json!({"query": "SELECT now()", "settings": {"timezone": "Nowhere"}}),
            "invalid `settings.timezone`: `Nowhere` is no time zone",
        ),
        (
            json!({"query": "SELECT 1", "settings": {"datafusion.execution.time_zone": "Nowhere"}}),
            "invalid `settings.datafusion.execution.time_zone`: `Nowhere` is no time zone",
        ),
        (
            json!({"query": "SELECT 1", "settings": {"relserve.model": ""}}),
            "invalid `settings.relserve.model`: must be the name of a model, not ``",
        ),
        (
            json!({"query": "SET datafusion.optimizer.nothing = 1"}),
            "there is no setting datafusion.optimizer.nothing",
        ),
        (json!({"query": "SELECT 1", "colour": 1}), "colour"),
    ] {
        let reply = server.client.post("/v1/sql", &body).await;
        assert!(reply.status == 400 && reply.body.contains(said), "{body}: {} {}", reply.status, reply.body);
        for internal in ["Error during planning", "Execution error", "Schema error", "SQL error"] {
            assert!(!reply.body.contains(&format!("`: {internal}")), "{body}: {}", reply.body);
        }
    }
}

#[actix_web::test]
async fn an_integer_that_no_number_keeps_is_refused_with_the_limits_and_no_advice_that_does_not_help() {
    let server = serve().await;
    for (field, said) in [
        (
            "\"settings\": {\"relserve.max_tokens\": 18446744073709551616}",
            "invalid `settings.relserve.max_tokens`: must be a whole number from 0 to 18446744073709551615",
        ),
        (
            "\"settings\": {\"relserve.window_rows\": -9223372036854775809}",
            "invalid `settings.relserve.window_rows`: must be a whole number from 1 to 18446744073709551615",
        ),
        (
            "\"deadline_ms\": 18446744073709551616",
            "invalid `deadline_ms`: the number 18446744073709551616 is too large",
        ),
    ] {
        let body = format!("{{\"query\": \"SELECT 1\", {field}}}");
        let reply = server.client.post_bytes("/v1/sql", "application/json", body.as_bytes()).await;
        assert_eq!((reply.status, reply.error().as_str()), (400, said), "{body}");
    }
}

/// As complex as is allowed runs, and more is refused before anything walks it.
#[actix_web::test]
async fn a_statement_that_nests_beyond_any_stack_is_refused() {
    let server = serve().await;
    let sum = |terms: usize| format!("SELECT 1{} AS n", "+1".repeat(terms));
    assert_eq!(rows(&server, sum(900)).await, [json!({"n": 901})]);
    for text in [
        sum(20_000),
        format!("SELECT 1 WHERE true{}", " AND true".repeat(20_000)),
        format!("SELECT 1{}", "::int".repeat(20_000)),
        format!("SELECT {}1{}", "(".repeat(20_000), ")".repeat(20_000)),
        format!("SELECT {}1", "- ".repeat(20_000)),
        format!("SELECT 1 {}", "UNION ALL SELECT 1 ".repeat(20_000)),
    ] {
        let reply = server.client.post("/v1/sql", &json!({ "query": text })).await;
        assert_eq!(reply.status, 400, "{}", reply.body);
    }
    let reply = server.client.post("/v1/sql", &json!({ "query": sum(1_001) })).await;
    assert!(reply.status == 400 && reply.body.contains("more than 1000 operators"), "{}", reply.body);
}

#[actix_web::test]
async fn a_value_that_is_too_long_fails_alone() {
    let mut config = config();
    config.limits.cell_bytes_max = base::Bytes(100);
    let server = serve_with(config, model()).await;
    let query = "SELECT id, ai_if(text) AS good FROM (VALUES (1, 'yes'), (2, repeat('x', 200))) AS t(id, text) ORDER BY id";
    assert_eq!(rows(&server, query.into()).await, [json!({"id": 1, "good": true}), json!({"id": 2})]);
    let errors = rows(&server, "SELECT reason FROM relserve.errors".into()).await;
    assert!(errors[0]["reason"].as_str().unwrap().contains("limit of 100 bytes"), "{errors:?}");
}

#[actix_web::test]
async fn texts_are_compared_by_the_embedding_model_of_corpora() {
    const TEXTS: &str = "(VALUES (1, 'the river boat'), (2, 'a tax loan'), (3, 'the river boat'), (4, repeat('x', 200))) AS t(id, text)";
    let folder = tempfile::tempdir().unwrap();
    Synthetic::tiny(&["river", "boat", "tax", "loan", "the", "a"], 3).write(folder.path()).unwrap();
    let mut config = config();
    config.retrieval.model = Some(folder.path().to_owned());
    config.limits.cell_bytes_max = base::Bytes(100);
    let server = serve_with(config, model()).await;
    let query = format!("SELECT id, ai_similarity(text, 'the river boat') AS s FROM {TEXTS} ORDER BY id");
    let answered = rows(&server, query).await;
    let similarity = |row: usize| answered[row]["s"].as_f64();
    assert!((similarity(0).unwrap() - 1.0).abs() < 1e-5 && similarity(0) == similarity(2), "{answered:?}");
    assert!(similarity(1).unwrap() < 0.999, "{answered:?}");
    assert_eq!(similarity(3), None, "too long a text fails alone");
    assert_eq!(server.metric("relserve_embedded_texts_total"), 2.0, "each distinct text once");
    assert_eq!(server.gate.computed(), 0, "no model is asked");
    let errors = rows(&server, "SELECT reason FROM relserve.errors".into()).await;
    assert!(errors[0]["reason"].as_str().unwrap().contains("limit of 100 bytes"), "{errors:?}");
    let without = serve().await;
    let query = format!("SELECT ai_embed(text) AS v FROM {TABLE}");
    let reply = without.client.post("/v1/sql", &json!({ "query": query })).await;
    assert!(reply.body.contains("retrieval.model"), "{}", reply.body);
}

#[actix_web::test]
async fn aggregates_of_the_same_texts_prefill_them_once() {
    let server = serve().await;
    let text =
        "(VALUES ('a text of some length that several prompts begin with'), ('and another')) AS t(text)";
    let first =
        format!("SELECT ai_agg(text, 'what is good?') AS g, ai_agg(text, 'what is bad?') AS b FROM {text}");
    rows(&server, first).await;
    let cached = rows(&server, "SELECT sum(cached_tokens) AS n FROM relserve.queries".into()).await;
    assert!(cached[0]["n"].as_u64().unwrap() >= 48, "three blocks of the texts at least: {cached:?}");
}

#[actix_web::test]
async fn a_plan_says_what_the_replicas_take_for_it() {
    let mut config = config();
    let (kind, prompt_price) = (ReplicaKind::Local, Some(1e6));
    config.replicas.push(ReplicaSettings { kind, prompt_price, ..ReplicaSettings::default() });
    let server = serve_with(config, model()).await;
    let query = "SELECT ai_complete(prompt('say {0}', value)) AS t FROM generate_series(1, 3)";
    let plan =
        server.client.post("/v1/sql", &json!({ "query": format!("EXPLAIN FORMAT INDENT {query}") })).await;
    assert!(
        plan.body.contains("at most 15.0000 by the replicas' prices"),
        "3 prompts of 5 bytes: {}",
        plan.body
    );
    rows(&server, query.into()).await;
    let spent = rows(&server, "SELECT price FROM relserve.queries WHERE prompts > 0".into()).await;
    assert_eq!(spent, [json!({"price": 15.0})]);
}
