//! What keys may: routes, looks alone, tables of SQL; keys that expire, and keys that come in place of others.

use actix_web::FromRequest as _;
use actix_web::dev::Payload;
use actix_web::test::TestRequest;
use base::Millis;
use gateway::auth::Authenticated;
use gateway::services::sql::tickets::SqlStatement;
use serde_json::{Value, json};
use serving::caller::{Caller, WeightedTenant};
use store::{DEFAULT_TENANT, KeyScope, NewKey, UnixMillis};

use crate::common::client::{Client, Reply};
use crate::common::{Parties, Server, config, serve_parties};
use crate::postgres_client::{PostgresClient, config as sql_config, connect, options, told};

/// Makes a key of the default tenant; what is told of it, and a client that has it.
async fn made(parties: &Parties, scope: Value) -> (Value, Client) {
    let mut body = json!({"name": "narrow", "tenant": "default"});
    body.as_object_mut().unwrap().extend(scope.as_object().unwrap().clone());
    let reply = parties.operators.post("/v1/keys", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let key = reply.json();
    let client = parties.server.client.with_key(key["key"].as_str().unwrap());
    (key, client)
}

/// Nothing but the scope is what a request lacks.
fn lacks(reply: &Reply, scope: &str) {
    assert_eq!(reply.status, 403, "{}", reply.body);
    assert_eq!(reply.json()["error"]["code"], "insufficient_scope", "{}", reply.body);
    assert!(reply.error().contains(&format!("`{scope}`")), "{:?} is not {scope}", reply.error());
}

/// Rows of one letter each.
fn rows() -> Value {
    json!({"template": "Say {w}", "rows": [["a"], ["b"]], "max_tokens": 4})
}

/// Routes that every key may look at; the last one takes a link in place of a key.
const OPEN: [&str; 8] = [
    "/v1/models",
    "/v1/models/{id}",
    "/v1/known-models",
    "/v1/catalogue",
    "/v1/usage",
    "/v1/me",
    "/v1/sign-in",
    "/v1/shared",
];

#[actix_web::test]
async fn a_key_without_routes_is_refused_on_every_route_there_is_with_the_scope_that_it_lacks() {
    let parties = serve_parties(config()).await;
    let (_, client) = made(&parties, json!({"routes": [], "operator": true})).await;
    let document = client.get("/openapi.json").await.json();
    let mut refused = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            if operation["security"].is_null() || OPEN.contains(&path.as_str()) {
                continue;
            }
            let address = path.replace(['{', '}'], "");
            let request = client.request(&method.to_uppercase(), &address, "application/json", b"{}");
            let reply = client.raw(&request).await;
            assert_eq!(reply.status, 403, "{method} {path}: {}", reply.body);
            assert_eq!(reply.json()["error"]["code"], "insufficient_scope", "{method} {path}");
            assert!(!reply.body.contains("all routes"), "{method} {path} is in no group");
            refused += 1;
        }
    }
    assert!(refused > 40, "{refused}");
    for path in ["/v1/models", "/v1/usage", "/v1/me", "/v1/catalogue"] {
        assert_eq!(client.get(path).await.status, 200, "{path}");
    }
}

#[actix_web::test]
async fn a_key_of_some_routes_uses_those_alone_however_an_address_is_written() {
    let parties = serve_parties(config()).await;
    let (key, client) = made(&parties, json!({"routes": ["relqueries"]})).await;
    assert_eq!((&key["routes"], &key["tables"]), (&json!(["relqueries"]), &Value::Null));
    assert_eq!(client.post("/v1/relqueries", &rows()).await.status, 200);
    let cell = json!({"calls": [{"function": "ask", "args": ["Say hello"]}]});
    lacks(&client.post("/v1/cells", &cell).await, "cells");
    lacks(&client.post("/v1/%63ells", &cell).await, "cells");
    lacks(&client.get("/v1/scheduler").await, "scheduler");
    let listed = parties.operators.get("/v1/keys").await.json();
    let shown = listed["data"].as_array().unwrap().last().unwrap();
    assert_eq!((&shown["routes"], &shown["key"]), (&json!(["relqueries"]), &Value::Null));
    let unknown = json!({"name": "n", "tenant": "default", "routes": ["cell"]});
    let refused = parties.operators.post("/v1/keys", &unknown).await;
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("routes")));
    let log = parties.operators.get("/v1/audit").await.json();
    assert_eq!(log["data"][0]["details"]["routes"], json!(["relqueries"]));
}

#[actix_web::test]
async fn a_route_takes_one_scope_under_all_its_names() {
    let parties = serve_parties(config()).await;
    let (_, able) = made(&parties, json!({"routes": ["completions"]})).await;
    let (_, other) = made(&parties, json!({"routes": ["cells"]})).await;
    let body = json!({"query": "a", "documents": ["b"]});
    for path in ["/v1/rerank", "/rerank", "/v2/rerank", "/v1/score", "/score", "/invocations"] {
        let reply = able.post(path, &body).await;
        assert!(reply.status == 501 && reply.error().contains("retrieval.model"), "{path}: {}", reply.body);
        lacks(&other.post(path, &body).await, "completions");
    }
}

#[actix_web::test]
async fn a_key_that_only_looks_reads_results_and_changes_nothing() {
    let parties = serve_parties(config()).await;
    let ours = &parties.server.client;
    let (key, client) = made(&parties, json!({"read_only": true})).await;
    assert_eq!(key["read_only"], true);
    let idempotent = |client: &Client| {
        let request =
            client.request("POST", "/v1/relqueries", "application/json", rows().to_string().as_bytes());
        let request = String::from_utf8(request).unwrap();
        request.replacen("\r\n", "\r\nIdempotency-Key: k\r\n", 1).into_bytes()
    };
    let done = ours.raw(&idempotent(ours)).await;
    assert_eq!(done.status, 200, "{}", done.body);
    let path = format!("/v1/relqueries/{}", done.json()["id"].as_str().unwrap());
    assert_eq!(client.get(&path).await.json()["rows"], done.json()["rows"]);
    assert_eq!(client.get("/v1/usage").await.status, 200);
    lacks(&client.delete(&path).await, "write");
    lacks(&client.post("/v1/relqueries", &rows()).await, "write");
    lacks(&client.raw(&idempotent(&client)).await, "write");
    lacks(&client.post("/v1/sql", &json!({"query": "SELECT 1"})).await, "write");
    assert_eq!(client.get(&path).await.status, 200, "it is still there");
}

#[actix_web::test]
async fn an_expired_key_is_told_so() {
    let parties = serve_parties(config()).await;
    let store = &parties.server.running.app.runtime.store;
    let scope = KeyScope::ALL;
    let new = NewKey {
        tenant: DEFAULT_TENANT,
        name: "old",
        expires: Some(UnixMillis(5)),
        is_operator: false,
        scope,
    };
    let key = store.create_key(new, UnixMillis(1)).await.unwrap();
    let refused = parties.server.client.with_key(&key.plaintext).get("/v1/models").await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (401, &json!("api_key_expired")));
    assert!(refused.error().contains("expired"), "{}", refused.body);
    let (key, client) = made(&parties, json!({"expires": 4_102_444_800_u64})).await;
    assert_eq!((&key["expires"], client.get("/v1/models").await.status), (&json!(4_102_444_800_u64), 200));
}

#[actix_web::test]
async fn a_key_that_would_never_work_is_not_made() {
    let parties = serve_parties(config()).await;
    let keys = async || parties.operators.get("/v1/keys").await.json()["data"].as_array().unwrap().len();
    let before = keys().await;
    for expires in [1, 1_700_000_000] {
        let body = json!({"name": "late", "tenant": "default", "expires": expires});
        let refused = parties.operators.post("/v1/keys", &body).await;
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("expires")));
        assert!(refused.error().contains("must be later than now"), "{}", refused.body);
    }
    assert_eq!(keys().await, before);
}

#[actix_web::test]
async fn a_key_is_rotated_without_a_gap_and_the_old_one_ends_by_itself() {
    let parties = serve_parties(config()).await;
    let operators = &parties.operators;
    let (key, old) = made(&parties, json!({"routes": ["cells"], "read_only": true})).await;
    assert_eq!(old.get("/v1/models").await.status, 200, "it is remembered from now on");
    let path = format!("/v1/keys/{}/rotate", key["id"]);
    let reply = operators.post(&path, &json!({"overlap_ms": 3_600_000})).await;
    assert_eq!((reply.status, reply.header("cache-control")), (200, Some("no-store")), "{}", reply.body);
    let rotated = reply.json();
    assert_eq!((&rotated["rotated_from"], &rotated["name"]), (&key["id"], &json!("narrow")));
    assert_eq!((&rotated["routes"], &rotated["read_only"]), (&json!(["cells"]), &json!(true)));
    let new = parties.server.client.with_key(rotated["key"].as_str().unwrap());
    for client in [&old, &new] {
        assert_eq!(client.get("/v1/models").await.status, 200);
        lacks(&client.get("/v1/scheduler").await, "scheduler");
    }
    let list = operators.get("/v1/keys").await.json();
    let of =
        |id: &Value| list["data"].as_array().unwrap().iter().find(|key| &key["id"] == id).unwrap().clone();
    let ends = of(&key["id"])["expires"].as_u64().unwrap();
    assert!(ends.abs_diff(rotated["created"].as_u64().unwrap() + 3_600) <= 1, "an hour from then");
    assert_eq!((&of(&rotated["id"])["expires"], &of(&rotated["id"])["key"]), (&Value::Null, &Value::Null));
    let again = operators.post(&path, &json!({})).await;
    assert_eq!(again.status, 400, "once: {}", again.body);
    assert!(again.error().contains(&rotated["id"].to_string()), "{}", again.body);

    let path = format!("/v1/keys/{}/rotate", rotated["id"]);
    let last = operators.post(&path, &json!({"overlap_ms": 0})).await.json();
    let last = parties.server.client.with_key(last["key"].as_str().unwrap());
    assert_eq!(last.get("/v1/models").await.status, 200);
    let ended = new.get("/v1/models").await;
    assert_eq!(ended.json()["error"]["code"], "api_key_expired", "though it was remembered: {}", ended.body);
    assert_eq!(operators.post(&path, &json!({})).await.status, 404, "it has ended");
    assert_eq!(parties.server.client.post(&path, &json!({})).await.status, 403, "for operators");

    let log = operators.get("/v1/audit").await.json();
    let entry = |entry: &Value| (entry["subject"].clone(), entry["done"].clone());
    let rotations = log["data"].as_array().unwrap().iter().filter(|entry| entry["action"] == "key.rotate");
    let (first, second) = (key["id"].to_string(), rotated["id"].to_string());
    let expected = [(&second, false), (&second, true), (&first, false), (&first, true)];
    let expected = expected.map(|(subject, done)| (json!(subject), json!(done)));
    assert_eq!(rotations.map(entry).collect::<Vec<_>>(), expected, "the newest first");
    for secret in [&key, &rotated] {
        assert!(!log.to_string().contains(secret["key"].as_str().unwrap()), "no secret is in it");
    }
}

/// A server with two tables of the default tenant, and a view of one of them.
async fn serve_tables(folder: &std::path::Path) -> Parties {
    let mut config = sql_config(folder);
    config.auth.remember_ms = Millis(0);
    let parties = serve_parties(config).await;
    let tables = folder.join(format!("tables/{DEFAULT_TENANT}"));
    std::fs::write(tables.join("orders.csv"), "id,text\n1,fine yes\n2,poor no\n").unwrap();
    std::fs::write(tables.join("salaries.csv"), "id,amount\n1,90\n").unwrap();
    let view = json!({"query": "CREATE VIEW paid AS SELECT sum(amount) AS total FROM salaries"});
    assert_eq!(parties.server.client.post("/v1/sql", &view).await.status, 200);
    parties
}

/// Connects with a key, as itself.
async fn login(server: &Server, key: &Value) -> PostgresClient {
    let options = options(server, key["sql_user"].as_str().unwrap(), key["key"].as_str().unwrap());
    connect(&options).await.expect("it is let in")
}

/// Statements that read salaries, or make another name for them.
const REFUSED: [(&str, &str); 12] = [
    ("SELECT * FROM salaries", "tables: salaries"),
    ("SELECT * FROM \"salaries\"", "tables: salaries"),
    ("SELECT * FROM public.salaries", "tables: salaries"),
    ("SELECT * FROM orders o JOIN salaries s ON o.id = s.id", "tables: salaries"),
    ("SELECT (SELECT max(amount) FROM salaries) FROM orders", "tables: salaries"),
    ("WITH s AS (SELECT * FROM salaries) SELECT * FROM s", "tables: salaries"),
    ("SELECT id FROM orders UNION SELECT id FROM SALARIES", "tables: salaries"),
    ("EXPLAIN SELECT * FROM salaries", "tables: salaries"),
    ("SELECT statement FROM relserve.queries", "tables: relserve.queries"),
    ("CREATE VIEW mine AS SELECT * FROM salaries", "write"),
    ("CREATE TABLE mine AS SELECT * FROM orders", "write"),
    ("DROP VIEW paid", "write"),
];

#[actix_web::test]
async fn a_key_of_some_tables_reads_those_alone_over_http_and_over_postgres() {
    let folder = tempfile::tempdir().unwrap();
    let parties = serve_tables(folder.path()).await;
    let (key, client) = made(&parties, json!({"tables": ["orders", "paid"]})).await;
    assert_eq!(key["routes"], json!(["sql"]), "other routes show the tenant's data by other names");
    let postgres = login(&parties.server, &key).await;
    let ask = |query: &str| {
        let (client, body) = (client.clone(), json!({ "query": query }));
        async move { client.post("/v1/sql", &body).await }
    };
    for (query, expected, told) in [
        ("SELECT count(*) AS n FROM orders", "{\"n\":2}\n", "2"),
        (
            "SELECT count(*) AS n FROM Orders JOIN generate_series(1, 1) AS s(id) ON orders.id = s.id",
            "{\"n\":1}\n",
            "1",
        ),
        ("SELECT total AS n FROM paid", "{\"n\":90}\n", "90"),
        ("WITH few AS (SELECT 1 AS n) SELECT n FROM few", "{\"n\":1}\n", "1"),
        ("SELECT count(*) > 0 AS n FROM information_schema.tables", "{\"n\":true}\n", "t"),
    ] {
        assert_eq!(ask(query).await.body, expected, "{query}");
        assert_eq!(postgres.rows(query).await, [told], "{query}");
    }
    for (query, scope) in REFUSED {
        lacks(&ask(query).await, scope);
        let (code, message) = postgres.error(query).await;
        assert!(code == "42501" && message.contains(&format!("`{scope}`")), "{query}: {code} {message}");
        let prepared = postgres.client.prepare(query).await.err().map(|error| told(&error).0);
        assert_eq!(prepared.as_deref(), Some("42501"), "{query}");
    }
    for query in ["COPY salaries TO STDOUT", "COPY (SELECT * FROM salaries) TO STDOUT"] {
        assert_eq!(postgres.error(query).await.0, "42501", "{query}");
    }
    for query in ["BEGIN; DECLARE c CURSOR FOR SELECT * FROM salaries", "PREPARE p AS SELECT * FROM salaries"]
    {
        postgres.rows("ROLLBACK").await;
        assert_eq!(postgres.error(query).await.0, "42501", "{query}");
    }
    postgres.rows("ROLLBACK").await;
    assert_eq!(postgres.error("ALTER TABLE orders RENAME TO mine").await.0, "25006");
    assert_eq!(postgres.rows("SELECT count(*) FROM orders").await, ["2"]);
}

#[actix_web::test]
async fn a_key_that_only_looks_gets_known_answers_over_postgres_and_computes_none() {
    let folder = tempfile::tempdir().unwrap();
    let parties = serve_tables(folder.path()).await;
    let (key, _) = made(&parties, json!({"read_only": true})).await;
    let postgres = login(&parties.server, &key).await;
    let query = "SELECT id, ai_if(text) FROM orders ORDER BY id";
    assert_eq!(postgres.rows(query).await, ["1|-", "2|-"]);
    postgres.rows("SET relserve.cached_only = false").await;
    assert_eq!(postgres.rows(query).await, ["1|-", "2|-"], "no setting has more computed");
    assert_eq!(parties.server.gate.computed(), 0);
    assert_eq!(postgres.error("CREATE VIEW mine AS SELECT 1 AS n").await.0, "42501");
    let body = json!({ "query": query });
    assert_eq!(parties.server.client.post("/v1/sql", &body).await.status, 200);
    assert_eq!(postgres.rows(query).await, ["1|t", "2|f"], "what is known is shown");
}

#[actix_web::test]
async fn a_key_without_the_route_of_sql_opens_no_session() {
    let folder = tempfile::tempdir().unwrap();
    let parties = serve_tables(folder.path()).await;
    let (key, _) = made(&parties, json!({"routes": ["cells"]})).await;
    let user = key["sql_user"].as_str().unwrap();
    let refused = connect(&options(&parties.server, user, key["key"].as_str().unwrap())).await;
    let (code, message) = told(&refused.err().expect("refused"));
    assert_eq!(code, "42501", "{message}");
    assert!(message.contains("`sql`"), "{message}");
}

#[actix_web::test]
async fn a_ticket_of_sql_reads_no_more_after_a_restart_than_its_key_may() {
    let folder = tempfile::tempdir().unwrap();
    let parties = serve_tables(folder.path()).await;
    let app = &parties.server.running.app;
    let statement = SqlStatement {
        query: "SELECT * FROM salaries".into(),
        settings: Default::default(),
        tables: Some(vec!["orders".into()]),
    };
    let kept = SqlStatement::of(&statement.request()).expect("it is read as it was written");
    assert_eq!(kept, statement);
    let caller = Caller::of(WeightedTenant::usual(DEFAULT_TENANT));
    let refused = kept.start(app, caller, None).await.err().expect("refused").to_string();
    assert!(refused.contains("`tables: salaries`"), "{refused}");
    let old = SqlStatement::of(r#"{"query": "SELECT 1", "settings": {}}"#).expect("of an older version");
    assert_eq!(old.tables, None);
}

#[actix_web::test]
async fn a_weight_that_is_set_counts_from_the_next_request_on() {
    let parties = serve_parties(config()).await;
    let key = parties.server.client.key.clone().unwrap();
    let weight = async || {
        let request = TestRequest::default().insert_header(("authorization", format!("Bearer {key}")));
        let request = request.app_data(parties.server.running.app.clone()).to_http_request();
        Authenticated::from_request(&request, &mut Payload::None).await.unwrap().0.weight
    };
    assert_eq!(weight().await, 1_000, "the key is remembered from now on");
    let changed = parties.operators.post("/v1/tenants/default", &json!({"weight": 3.5})).await;
    assert_eq!(changed.json()["weight"], 3.5);
    assert_eq!(weight().await, 3_500);
}
