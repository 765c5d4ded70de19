//! A row that several have asked for, and that goes on without the one that asked first: who it goes on for pays for it, on its
//! own route, and is told that it was computed.

use serde_json::{Value, json};
use serving::usage_writer;
use tokio::net::TcpStream;

use crate::common::batch::{line, make, until_over, upload};
use crate::common::client::finish;
use crate::common::{Server, config, lasting_store, model, serve, serve_on};

/// A request whose row others may join.
fn asked() -> Value {
    let prompt = format!("Repeat: {}", "x".repeat(50));
    json!({"prompt": prompt, "max_tokens": 60, "temperature": 0, "cache": true})
}

/// Of each route that has some: rows, and tokens of prompts computed and of outputs.
async fn counted(server: &Server) -> Vec<(String, [u64; 3])> {
    usage_writer::store_usage(&server.running.app.runtime).await.unwrap();
    let usage = server.client.get("/v1/usage").await.json();
    let sums = usage["data"].as_array().unwrap().iter();
    let of_route = |sum: &Value| {
        let counts = ["rows", "computed_tokens", "completion_tokens"].map(|name| sum[name].as_u64().unwrap());
        (sum["route"].as_str().unwrap().to_owned(), counts)
    };
    sums.map(of_route).filter(|(_, [rows, ..])| *rows > 0).collect()
}

/// Begins a completion that joins the row that is at the gate.
async fn joined(server: &Server) -> TcpStream {
    let connection = server.client.begin("/v1/completions", &asked()).await;
    let handed_over = |server: &Server| server.running.app.runtime.shared.intake.unfinished() == 2;
    server.until("its row is handed over", handed_over).await;
    server.gate.allow(1);
    server.until("it joins", |server| server.metric("relserve_rows_shared_total") == 1.0).await;
    connection
}

/// Waits until one request is left, lets its row run, and holds what it is told against what is counted: on its route alone.
async fn assert_pays_alone(server: &Server, joined: TcpStream) {
    let is_alone = |server: &Server| server.running.app.runtime.registry.running().len() == 1;
    server.until("the first is called off", is_alone).await;
    server.gate.release();
    let usage = finish(joined).await.json()["usage"].clone();
    let told = ["prompt_tokens", "computed_tokens", "completion_tokens"].map(|name| usage[name].as_u64());
    let computed = server.gate.computed();
    assert_eq!([told[0], told[1]], [Some(computed); 2], "nothing of it was cached: {usage}");
    server.until_free().await;
    let output = told[2].unwrap();
    assert_eq!(counted(server).await, [("completions".to_owned(), [1, computed, output])]);
}

#[actix_web::test]
async fn a_row_that_goes_on_without_who_asked_first_is_told_as_it_is_paid_for() {
    let server = serve().await;
    server.gate.shut();
    let first = server.client.begin("/v1/completions", &asked()).await;
    server.until("its row is at the gate", |server| server.gate.passed() == 1).await;
    let second = joined(&server).await;
    drop(first);
    assert_pays_alone(&server, second).await;
}

#[actix_web::test]
async fn a_row_of_a_batch_that_goes_on_for_another_route_is_counted_there() {
    let (_dir, store) = lasting_store().await;
    let server = serve_on(config(), model(), store).await;
    server.gate.shut();
    let file = upload(&server.client, &line("a", asked())).await;
    let id = make(&server.client, &file).await["id"].as_str().unwrap().to_owned();
    server.until("its row is at the gate", |server| server.gate.passed() == 1).await;
    let second = joined(&server).await;
    server.client.post(&format!("/v1/batches/{id}/cancel"), &json!({})).await;
    assert_pays_alone(&server, second).await;
    let batch = until_over(&server.client, &id).await;
    assert_eq!(
        (&batch["status"], &batch["usage"]["total_tokens"]),
        (&json!("cancelled"), &json!(0)),
        "{batch}"
    );
}
