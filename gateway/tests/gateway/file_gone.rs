//! A database's file that somebody moves away, or replaces, under a running server.

use serde_json::json;

use crate::background;
use crate::common::batch;
use crate::common::client::Client;
use crate::common::{config, lasting_store, seen_in_time, serve_on};

/// Waits until the server says this of its readiness; the status that it says it with.
async fn until_told(client: &Client, status: &str) -> u16 {
    let wait = async {
        loop {
            let reply = client.get("/readyz").await;
            if reply.json()["status"] == status {
                return reply.status;
            }
        }
    };
    seen_in_time(status, wait).await
}

/// A number that the metrics have of a file that is gone.
async fn metric(client: &Client, name: &str) -> u64 {
    let metrics = client.get("/metrics").await.body;
    let name = format!("{name}{{cause=\"file_gone\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).expect("the metric")
}

const GONE: &str = "the file of the store is gone";

#[actix_web::test]
async fn a_server_whose_file_is_gone_says_so_and_promises_nothing_until_the_very_file_is_back() {
    let (folder, store) = lasting_store().await;
    let server = serve_on(config(), background::chatty(), store.clone()).await;
    let client = &server.client;
    let ask = json!({"model": "double", "input": "say one", "background": true, "max_output_tokens": 8});
    let begun = client.post("/v1/responses", &ask).await;
    assert_eq!(begun.status, 200, "{}", begun.body);
    let begun = begun.json();
    background::until(client, &begun, "completed").await;
    let state = ["relserve_store_outage", "relserve_store_errors_total"];
    assert_eq!([metric(client, state[0]).await, metric(client, state[1]).await], [0, 0]);

    let [file, aside] = ["test.db", "aside.db"].map(|name| folder.path().join(name));
    std::fs::rename(&file, &aside).unwrap();
    assert_eq!(until_told(client, GONE).await, 503);
    assert_eq!(metric(client, state[0]).await, 1);
    let errors = metric(client, state[1]).await;
    assert!(errors >= 1);
    let refused = client.post("/v1/responses", &ask).await;
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert_eq!(refused.json()["error"]["code"], "database_unavailable", "{}", refused.body);
    let parts = [("purpose", None, "batch"), ("file", Some("in.jsonl"), "{}\n")];
    let refused = batch::send(client, &parts).await;
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert!(metric(client, state[1]).await > errors);
    let online = server.relquery(json!({"template": "Say {w}", "rows": [["on"]]})).await;
    assert_eq!(online.status, 200, "online work goes on: {}", online.body);

    std::fs::copy(&aside, &file).unwrap();
    store.look_at_file().await;
    let other = client.get("/readyz").await;
    assert_eq!((other.status, &other.json()["status"]), (503, &json!(GONE)), "a copy is another file");

    std::fs::rename(&aside, &file).unwrap();
    assert_eq!(until_told(client, "ready").await, 200);
    assert_eq!(metric(client, state[0]).await, 0);
    background::until(client, &begun, "completed").await;
    let taken = client.post("/v1/responses", &ask).await;
    assert_eq!(taken.status, 200, "{}", taken.body);
    background::until(client, &taken.json(), "completed").await;
}
