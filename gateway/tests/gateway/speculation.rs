//! Guessed tokens behind the real engine: the same replies, and metrics that say how many came so.

use base::Bytes;
use engine::checkpoint::Dtype;
use gateway::app::{Running, start};
use scheduler::{CostModel, Speculation};
use serde_json::{Value, json};
use serving::clock::Clock;
use serving::load;
use serving::load::LoadedModel;
use store::{DEFAULT_TENANT, Store};

use crate::common::client::Client;
use crate::common::{config, key_of};

/// The demo model behind a socket, on a machine whose steps cost much and rows little.
async fn serve_demo(speculation: Speculation) -> (Running, Client) {
    let mut config = config();
    config.engine.threads = Some(1);
    config.engine.kv_bytes = Some(Bytes(8 << 20));
    // In bf16 the rounding of another batch shape might tip a tie.
    config.engine.dtype = Some(Dtype::F32);
    config.scheduler.sequences_max = 3;
    config.scheduler.refit = false;
    config.scheduler.speculation = speculation;
    let engine = load::load(config.backend()).unwrap();
    let model = load::model_of(&engine, config.backend(), Clock::start());
    let store = Store::open("sqlite::memory:").await.unwrap();
    let key = key_of(&store, DEFAULT_TENANT).await;
    let backend = LoadedModel {
        executor: Some(Box::new(engine.executor)),
        fresh: None,
        model,
        cost: CostModel::default(),
    };
    let running = start(config, backend, store).await.unwrap();
    let client = Client { address: running.address, key: Some(key) };
    (running, client)
}

fn counter(running: &Running, name: &str) -> u64 {
    let text = running.app.runtime.shared.metrics.render();
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
}

/// Replies to a relQuery of long answers and one of short ones, without what is measured.
async fn replies(client: &Client) -> Vec<Value> {
    let places = ["film", "phone", "book", "hotel", "chair", "song", "meal", "tour"];
    let texts: Vec<Value> = places.iter().map(|place| json!([format!("This {place} is not bad.")])).collect();
    let mut replies = Vec::new();
    for (max_tokens, ignore_eos, stop) in
        [(40, true, json!(null)), (40, true, json!(["o"])), (9, false, json!(null))]
    {
        let body = json!({"template": "Classify the text. Answer with one of these labels: positive, negative.\n\nText: {text}",
            "rows": texts, "max_tokens": max_tokens, "ignore_eos": ignore_eos, "stop": stop, "cache": false});
        let reply = client.post("/v1/relqueries", &body).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        for row in reply.json()["rows"].as_array().unwrap() {
            let tokens = &row["usage"]["completion_tokens"];
            replies.push(json!([row["text"], row["finish_reason"], tokens]));
        }
    }
    replies
}

#[actix_web::test]
async fn replies_are_the_same_with_and_without_guesses_which_are_counted() {
    let (off, client) = serve_demo(Speculation::Off).await;
    let plain = replies(&client).await;
    assert_eq!(counter(&off, "relserve_draft_tokens_total"), 0);
    off.drain(std::future::pending()).await;

    let (auto, client) = serve_demo(Speculation::Auto).await;
    assert_eq!(replies(&client).await, plain);
    let guessed = counter(&auto, "relserve_draft_tokens_total");
    let accepted = counter(&auto, "relserve_accepted_tokens_total");
    assert!(accepted > 20 && guessed >= accepted, "{accepted} of {guessed}");
    let view = client.get("/v1/scheduler").await.json();
    assert_eq!((&view["draft_tokens"], &view["accepted_tokens"]), (&json!(guessed), &json!(accepted)));
    auto.drain(std::future::pending()).await;
}
