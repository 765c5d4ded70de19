//! Keys, and what tenants cannot see of each other.

use base::Millis;
use serde_json::json;
use store::{Store, UnixMillis};

use crate::common::{config, key_of, model, serve_on, serve_with};

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
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json", "/"] {
        assert_eq!(nobody.get(path).await.status, 200, "{path}");
    }
}

#[actix_web::test]
async fn a_revoked_key_stops_working() {
    let mut config = config();
    config.auth.remember_ms = Millis(0);
    let store = Store::open("sqlite::memory:").await.unwrap();
    let server = serve_on(config, model(), store.clone()).await;
    assert_eq!(server.client.get("/v1/usage").await.status, 200);
    let id = store.keys(None).await.unwrap()[0].id;
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
    let mut server = serve_with(config, model()).await;
    server.client.key = None;
    assert_eq!(server.relquery(json!({"template": "Say {w}", "rows": [["x"]]})).await.status, 200);
}
