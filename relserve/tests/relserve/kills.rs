//! A program that is killed while it runs a batch: every line once.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use crate::common::batch::{line, make, read, until_over, upload};
use crate::common::client::Client;
use crate::program::{start as start_program, told};

/// Requests of the batch whose server is killed.
const REQUESTS: u64 = 20_000;

/// The real program on a folder: its process, and how to call it.
fn start(folder: &std::path::Path, key: &mut Option<String>) -> (std::process::Child, Client) {
    let (process, said) = start_program(folder);
    *key = told(&said, "API key: ").map(str::to_owned).or(key.take());
    let address = told(&said, " on http://").expect("it says where it is").parse().unwrap();
    (process, Client { address, key: key.clone() })
}

#[actix_web::test]
async fn a_batch_of_20000_requests_whose_server_is_killed_ten_times_has_each_row_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut key = None;
    let (mut process, mut client) = start(dir.path(), &mut key);
    // Two tokens in, one out: as little work as there is.
    let request = |row: u64| {
        let body = json!({"prompt": [row % 150 + 1, row / 150 + 1], "max_tokens": 1, "temperature": 0});
        line(&format!("row {row}"), body) + "\n"
    };
    let file = upload(&client, &(0..REQUESTS).map(request).collect::<String>()).await;
    let id = make(&client, &file).await["id"].as_str().unwrap().to_owned();
    let mut random = StdRng::seed_from_u64(39);
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(20));
    let mut done = 0;
    for kill in 1..=10 {
        let least = kill * REQUESTS / 12 + random.random_range(0..REQUESTS / 12);
        while done < least {
            looks.tick().await;
            let batch = client.get(&format!("/v1/batches/{id}")).await.json();
            let now = batch["request_counts"]["completed"].as_u64().unwrap();
            assert!(now >= done, "what is recorded stays recorded: {batch}");
            done = now;
        }
        // SIGKILL.
        process.kill().unwrap();
        process.wait().unwrap();
        (process, client) = start(dir.path(), &mut key);
    }
    let batch = until_over(&client, &id).await;
    assert_eq!(batch["request_counts"], json!({"total": REQUESTS, "completed": REQUESTS, "failed": 0}));
    let answers = read(&client, &batch["output_file_id"]).await;
    assert_eq!(answers.len() as u64, REQUESTS);
    for (row, (name, _)) in answers.iter().enumerate() {
        assert_eq!(*name, format!("row {row}"));
    }
    let metrics = client.get("/metrics").await.body;
    let rows = metrics.lines().filter(|line| line.starts_with("relserve_rows_total{"));
    let ran: f64 = rows.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
    assert!(ran as u64 <= REQUESTS - done, "the last server ran {ran} rows, and {done} were recorded before");
    let usage = client.get("/v1/usage").await.json();
    let of_batches = usage["data"].as_array().unwrap().iter().filter(|day| day["route"] == "batches");
    let counted: u64 = of_batches.map(|day| day["rows"].as_u64().unwrap()).sum();
    assert_eq!(counted, REQUESTS, "each row is counted once, whatever was killed");
    process.kill().unwrap();
    process.wait().unwrap();
}
