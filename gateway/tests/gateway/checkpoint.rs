//! The same server over the real engine: a small random checkpoint, measured at the start.

use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use gateway::app::start;
use gateway::backend;
use gateway::clock::Clock;
use serde_json::json;
use store::{DEFAULT_TENANT, Store};

use crate::common::client::Client;
use crate::common::{config, key_of};

#[actix_web::test]
async fn a_checkpoint_is_measured_once_and_serves_rows() {
    let folder = tempfile::tempdir().unwrap();
    Synthetic::tiny(Family::Llama, 7).write(folder.path()).unwrap();
    let mut config = config();
    config.model.dir = Some(folder.path().to_owned());
    config.engine.threads = Some(1);
    config.engine.kv_bytes = base::Bytes(4 << 20);
    let store = Store::open("sqlite::memory:").await.unwrap();
    let clock = Clock::start();
    let first = backend::ready(backend::load(&config).unwrap(), &config, &store, clock).await.unwrap();
    let second = backend::ready(backend::load(&config).unwrap(), &config, &store, clock).await.unwrap();
    assert_eq!(first.cost, second.cost, "the second start takes what the first has measured");
    let key = key_of(&store, DEFAULT_TENANT).await;
    let running = start(config, first, store).await.unwrap();
    let client = Client { address: running.address, key: Some(key) };
    let body = json!({"template": "Say {w}", "rows": [["a"], ["b"], ["a"]], "max_tokens": 4, "ignore_eos": true, "chat": false});
    let reply = client.post("/v1/relqueries", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let reply = reply.json();
    assert_eq!(reply["progress"]["done"], 3, "{reply}");
    assert_eq!(reply["rows"][0]["text"], reply["rows"][2]["text"]);
    assert_eq!(reply["rows"][1]["usage"]["completion_tokens"], 4);
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn a_model_on_two_ranks_serves_the_answers_of_one() {
    let folder = tempfile::tempdir().unwrap();
    Synthetic::tiny(Family::Qwen2, 7).write(folder.path()).unwrap();
    let rows: Vec<_> = (0..12).map(|row| json!([format!("row {row}")])).collect();
    let body = json!({"template": "Say {w}", "rows": rows, "max_tokens": 9, "chat": false});
    let choice = json!({"template": "Say {w}", "rows": rows, "chat": false,
        "constraint": {"choice": ["good", "bad", "neither"]}});
    let mut answers = Vec::new();
    for ranks in [1, 2] {
        let mut config = config();
        config.model.dir = Some(folder.path().to_owned());
        config.engine.tensor_parallel = ranks;
        config.engine.threads = Some(2);
        config.engine.kv_bytes = base::Bytes(4 << 20);
        let store = Store::open("sqlite::memory:").await.unwrap();
        let engine = backend::load(&config).unwrap();
        let backend = backend::ready(engine, &config, &store, Clock::start()).await.unwrap();
        let key = key_of(&store, DEFAULT_TENANT).await;
        let running = start(config, backend, store).await.unwrap();
        let client = Client { address: running.address, key: Some(key) };
        let mut texts = Vec::new();
        for body in [&body, &choice] {
            let reply = client.post("/v1/relqueries", body).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
            let reply = reply.json();
            texts.extend(reply["rows"].as_array().unwrap().iter().map(|row| row["text"].clone()));
        }
        answers.push(texts);
        running.drain(std::future::pending()).await;
    }
    assert_eq!(answers[0].len(), 24);
    assert_eq!(answers[0], answers[1]);
}
