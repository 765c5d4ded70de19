//! Keys, and what tenants cannot see of each other.

use base::Millis;
use serde_json::json;
use store::{Store, UnixMillis};

use crate::common::{Parties, config, key_of, model, serve_on, serve_parties, serve_with};

#[actix_web::test]
async fn without_a_valid_key_nothing_is_served_but_health() {
    let server = serve_with(config(), model()).await;
    let mut nobody = server.client.clone();
    nobody.key = None;
    let body = json!({"template": "Say {w}", "rows": [["x"]]});
    for client in [nobody.clone(), nobody.with_key("rs-wrong"), nobody.with_key(&"x".repeat(5_000))] {
        let reply = client.post("/v1/relqueries", &body).await;
        assert_eq!(reply.status, 401);
        assert_eq!(reply.json()["error"]["code"], "invalid_api_key");
        assert_eq!(client.get("/v1/usage").await.status, 401);
    }
    for path in ["/healthz", "/readyz", "/ping", "/metrics", "/openapi.json", "/"] {
        assert_eq!(nobody.get(path).await.status, 200, "{path}");
    }
}

#[actix_web::test]
async fn the_operators_key_of_the_configuration_is_told_to_be_no_tenants() {
    let Parties { server: _server, operators, .. } = serve_parties(config()).await;
    let statement = json!({"query": "SELECT 1"});
    let cell = json!({"calls": [{"function": "ask", "args": ["Say hello"]}]});
    let replies = [
        operators.post("/v1/sql", &statement).await,
        operators.post("/v1/cells", &cell).await,
        operators.get("/v1/usage").await,
    ];
    for reply in replies {
        let code = &reply.json()["error"]["code"];
        assert_eq!((reply.status, code), (401, &json!("tenant_key_required")), "{}", reply.body);
        assert!(reply.error().starts_with("`auth.admin_key` is the operators' key and no tenant's"));
    }
    assert_eq!(operators.get("/v1/tenants").await.status, 200);
}

#[actix_web::test]
async fn a_revoked_key_stops_working() {
    let mut config = config();
    config.auth.remember_ms = Millis(0);
    let store = Store::open("sqlite::memory:").await.unwrap();
    let server = serve_on(config, model(), store.clone()).await;
    assert_eq!(server.client.get("/v1/usage").await.status, 200);
    let id = store.keys(None, 9).await.unwrap()[0].key.id;
    store.revoke_key(id, UnixMillis(2)).await.unwrap();
    assert_eq!(server.client.get("/v1/usage").await.status, 401);
}

#[actix_web::test]
async fn tenants_share_no_answer_no_block_and_no_id() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let other = store.create_tenant("other", 1.0, UnixMillis(1)).await.unwrap().id;
    let server = serve_on(config(), model(), store.clone()).await;
    let theirs = server.client.with_key(&key_of(&store, other).await);
    let body = json!({"template": "A prompt of more than one block of sixteen tokens: {w}", "rows": [["x"]]});
    let first = server.relquery(body.clone()).await.json();
    let second = theirs.post("/v1/relqueries", &body).await.json();
    assert_eq!(second["usage"]["rows_from_cache"], 0);
    assert_eq!(second["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let path = format!("/v1/relqueries/{}", first["id"].as_str().unwrap());
    assert_eq!(server.client.get(&path).await.status, 200);
    assert_eq!(theirs.get(&path).await.status, 404);
    assert_eq!(theirs.delete(&path).await.status, 404);
}

#[actix_web::test]
async fn usage_is_added_up_by_tenant_and_route() {
    let (_dir, store) = crate::common::lasting_store().await;
    let server = serve_on(config(), model(), store.clone()).await;
    let reply = server.relquery(json!({"template": "Say {w}", "rows": [["x"], ["y"]]})).await.json();
    let client = server.client.clone();
    server.running.drain(std::future::pending()).await;
    let server = serve_on(config(), model(), store).await;
    let usage = crate::common::client::Client { address: server.running.address, ..client };
    let rows = usage.get("/v1/usage").await.json();
    let row = &rows["data"][0];
    assert_eq!(
        (row["route"].as_str(), row["requests"].as_u64(), row["rows"].as_u64()),
        (Some("relqueries"), Some(1), Some(2))
    );
    assert_eq!(row["prompt_tokens"], reply["usage"]["prompt_tokens"]);
    assert_eq!(usage.get("/v1/usage?days=0").await.status, 400);
    let reply = usage.get("/v1/usage?days=x").await;
    assert_eq!((reply.status, reply.json()["error"]["param"].as_str()), (400, Some("days")));
}

#[actix_web::test]
async fn without_keys_everyone_is_the_one_tenant() {
    let mut config = config();
    config.auth.mode = gateway::config::AuthMode::None;
    config.server.hosts = vec!["test".into()];
    let mut server = serve_with(config, model()).await;
    server.client.key = None;
    assert_eq!(server.relquery(json!({"template": "Say {w}", "rows": [["x"]]})).await.status, 200);
}

#[actix_web::test]
async fn without_keys_no_foreign_page_is_answered() {
    let body = json!({"template": "Say {w}", "rows": [["x"]]}).to_string();
    let mut config = config();
    config.auth.mode = gateway::config::AuthMode::None;
    let post = |host: &str, origin: &str, kind: &str| {
        let origin = if origin.is_empty() { String::new() } else { format!("Origin: {origin}\r\n") };
        format!(
            "POST /v1/relqueries HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: {kind}\r\n\
             {origin}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    const JSON: &str = "application/json";
    let cases = [
        ("127.0.0.1:8080", "", JSON, 200, ""),
        ("localhost:8080", "http://localhost:8080", JSON, 200, ""),
        // A page whose name was made to point here.
        ("evil.example:8080", "http://evil.example:8080", JSON, 403, "unknown_host"),
        ("127.0.0.1:8080", "https://evil.example", JSON, 403, "foreign_origin"),
        ("127.0.0.1:8080", "null", JSON, 403, "foreign_origin"),
        ("127.0.0.1:8080", "http://127.0.0.1:3000", JSON, 403, "foreign_origin"),
        // What a page sends without asking.
        ("127.0.0.1:8080", "", "text/plain", 415, ""),
    ];
    let server = serve_with(config.clone(), model()).await;
    for (host, origin, kind, status, code) in cases {
        let reply = server.client.raw(post(host, origin, kind).as_bytes()).await;
        assert_eq!(reply.status, status, "{host} {origin} {kind}: {}", reply.body);
        let told = reply.json()["error"]["code"].as_str().unwrap_or_default().to_owned();
        assert_eq!(told, code, "{host} {origin}");
    }
    for path in ["/readyz", "/ping"] {
        let probe =
            format!("GET {path} HTTP/1.1\r\nHost: relserve.cluster.local\r\nConnection: close\r\n\r\n");
        assert_eq!(server.client.raw(probe.as_bytes()).await.status, 200, "a supervisor asks by any name");
    }
    config.server.cors_origins = vec!["https://addin.example".into()];
    let server = serve_with(config, model()).await;
    let reply =
        server.client.raw(post("127.0.0.1:80", "https://addin.example", "text/plain").as_bytes()).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    // With keys a page gains nothing, and nobody is asked where it is from.
    let server = crate::common::serve().await;
    let reply = server.client.raw(post("evil.example", "https://evil.example", JSON).as_bytes()).await;
    assert_eq!(reply.status, 401);
}

#[actix_web::test]
async fn guesses_are_told_the_same_however_near_they_are_and_the_key_works_on() {
    let Parties { server, operators, .. } = serve_parties(config()).await;
    let (theirs, admins) = (server.client.key.clone().unwrap(), operators.key.clone().unwrap());
    for (right, path) in [(theirs, "/v1/usage"), (admins, "/v1/keys")] {
        let told = server.client.with_key("rs-nothing").get(path).await;
        assert_eq!((told.status, &told.json()["error"]["code"]), (401, &json!("invalid_api_key")));
        for place in 1..right.len() {
            let mut other = right.clone();
            other.replace_range(place..=place, if &right[place..=place] == "0" { "1" } else { "0" });
            for guess in [right[..place].to_owned(), other] {
                let reply = server.client.with_key(&guess).get(path).await;
                assert_eq!((reply.status, &reply.body), (401, &told.body), "{guess:?}");
            }
        }
        // An address that guessed is not kept from using what it has.
        assert_eq!(server.client.with_key(&right).get(path).await.status, 200);
    }
}
