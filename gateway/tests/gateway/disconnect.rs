//! Clients that go away: their rows and blocks are free within two steps.

use serde_json::json;

use crate::common::client::{finish, read_until};
use crate::common::{Server, serve};

/// A relQuery that decodes for long.
fn long(stream: bool) -> serde_json::Value {
    json!({"template": "Say {w}", "rows": [["a"], ["b"], ["c"]], "max_tokens": 500, "ignore_eos": true, "stream": stream})
}

/// Lets the step in flight and two more pass, and waits until all is free.
async fn is_free_within_two_steps(server: &Server) {
    server.until("it is noticed", |server| server.metric("relserve_disconnects_total") == 1.0).await;
    let before = server.gate.passed();
    server.gate.allow(2);
    server.until("everything is free", |server| server.is_free()).await;
    assert!(server.gate.passed() <= before + 2);
    server.gate.release();
}

#[actix_web::test]
async fn a_client_gone_in_prefill_frees_its_blocks() {
    for stream in [false, true] {
        let server = serve().await;
        server.gate.shut();
        let connection = server.client.begin("/v1/relqueries", &long(stream)).await;
        server.until("the prefill waits", |server| server.gate.passed() == 1).await;
        drop(connection);
        is_free_within_two_steps(&server).await;
    }
}

#[actix_web::test]
async fn a_client_gone_in_decode_frees_its_blocks() {
    for stream in [false, true] {
        let server = serve().await;
        server.gate.shut();
        let connection = server.client.begin("/v1/relqueries", &long(stream)).await;
        server.gate.allow(20);
        server.until("it decodes", |server| server.gate.passed() == 21).await;
        drop(connection);
        is_free_within_two_steps(&server).await;
    }
}

#[actix_web::test]
async fn a_client_gone_while_queued_leaves_nothing_behind() {
    let server = serve().await;
    server.gate.shut();
    let first = server.client.begin("/v1/relqueries", &json!({"template": "Say {w}", "rows": [["x"]]})).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    let queued = server.client.begin("/v1/relqueries", &long(true)).await;
    server.until("both are there", |server| server.running.app.runtime.registry.running().len() == 2).await;
    drop(queued);
    server.until("it is noticed", |server| server.metric("relserve_disconnects_total") == 1.0).await;
    server.gate.release();
    assert_eq!(finish(first).await.json()["rows"][0]["text"], "x");
    server.until("everything is free", |server| server.is_free()).await;
    assert_eq!(server.metric("relserve_rows_total{outcome=\"cancelled\"}"), 3.0);
}

#[actix_web::test]
async fn a_client_that_never_reads_delays_nobody() {
    let server = serve().await;
    let rows: Vec<_> = (0..2_000).map(|i| json!([format!("{i}")])).collect();
    let body = json!({"template": "Say {w}", "rows": rows, "stream": true});
    let mut silent = server.client.begin("/v1/relqueries", &body).await;
    let reply = server.relquery(json!({"template": "Tell {w}", "rows": [["now"]]})).await;
    assert_eq!(reply.json()["rows"][0]["text"], "now");
    server.until("the silent one's rows end too", |server| server.is_free()).await;
    // And when it does read, everything is there.
    let text = read_until(&mut silent, "event: done").await;
    assert_eq!(text.matches("event: row").count(), 2_000);
}
