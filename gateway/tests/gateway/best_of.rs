//! More answers of a completion than are told (`best_of`): the likeliest are.

use serde_json::{Value, json};

use crate::common::batch::{line, until_over, upload};
use crate::common::{config, model, serve_with};
use crate::constraints::{posted, serve_demo};

fn ask(seed: u64) -> Value {
    json!({"model": "relserve-demo", "prompt": "The film was", "max_tokens": 4, "temperature": 2,
        "ignore_eos": true, "seed": seed})
}

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Mean log probability of a choice's tokens.
fn mean(choice: &Value) -> f64 {
    let told = choice["logprobs"]["token_logprobs"].clone();
    let told: Vec<f64> = serde_json::from_value(told).unwrap();
    told.iter().sum::<f64>() / told.len() as f64
}

/// The texts of a reply's choices, likeliest first.
fn likeliest(reply: &Value) -> Vec<String> {
    let mut choices: Vec<&Value> = reply["choices"].as_array().unwrap().iter().collect();
    choices.sort_by(|one, other| mean(other).total_cmp(&mean(one)));
    choices.into_iter().map(text).collect()
}

fn text(choice: &Value) -> String {
    choice["text"].as_str().unwrap().to_owned()
}

fn texts(reply: &Value) -> Vec<String> {
    reply["choices"].as_array().unwrap().iter().map(text).collect()
}

#[actix_web::test]
async fn the_likeliest_of_the_answers_that_are_made_are_told_and_all_are_counted() {
    let (_running, client) = serve_demo().await;
    let mut moved = 0;
    for seed in (0..80).step_by(10) {
        // The same answers, all of them told with how likely they are.
        let all = with(ask(seed), json!({"n": 6, "logprobs": 0}));
        let all = posted(&client, "/v1/completions", all).await;
        let best = with(ask(seed), json!({"n": 2, "best_of": 6}));
        let best = posted(&client, "/v1/completions", best).await;
        assert_eq!(texts(&best), likeliest(&all)[..2], "{all}");
        for (number, choice) in best["choices"].as_array().unwrap().iter().enumerate() {
            assert_eq!((&choice["index"], &choice["logprobs"]), (&json!(number), &Value::Null));
        }
        for tokens in ["prompt_tokens", "completion_tokens"] {
            assert_eq!(best["usage"][tokens], all["usage"][tokens], "all of them ran");
        }
        moved += u32::from(texts(&best) != texts(&all)[..2]);
    }
    assert!(moved > 0, "the first answers are not always the likeliest");

    // They are told how likely they are where that is asked for, and what is echoed is their prompt.
    let told =
        with(ask(0), json!({"best_of": 3, "logprobs": 1, "echo": true, "prompt": ["The film was", "So"]}));
    let told = posted(&client, "/v1/completions", told).await;
    let choices = told["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 2);
    for (choice, prompt) in choices.iter().zip(["The film was", "So"]) {
        assert!(text(choice).starts_with(prompt), "{told}");
        assert!(choice["logprobs"]["tokens"].as_array().is_some_and(|tokens| tokens.len() > 4), "{told}");
    }

    // A line of a batch is the same request.
    let file = upload(&client, &line("a", with(ask(0), json!({"best_of": 6})))).await;
    let made = json!({"input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h"});
    let made = posted(&client, "/v1/batches", made).await;
    let batch = until_over(&client, made["id"].as_str().unwrap()).await;
    let path = format!("/v1/files/{}/content", batch["output_file_id"].as_str().unwrap());
    let row: Value = serde_json::from_str(client.get(&path).await.body.trim()).unwrap();
    let alone = posted(&client, "/v1/completions", with(ask(0), json!({"best_of": 6}))).await;
    assert_eq!(texts(&row["response"]["body"]), texts(&alone), "{row}");
}

#[actix_web::test]
async fn more_answers_than_are_told_have_bounds_and_are_not_streamed() {
    let mut config = config();
    config.limits.rows_max = 5;
    let server = serve_with(config, model()).await;
    let body = json!({"model": "double", "prompt": ["a", "b"], "max_tokens": 4});
    for more in [
        json!({"best_of": 2, "stream": true}),
        json!({"n": 2, "best_of": 3}),
        json!({"n": 3, "best_of": 2}),
        json!({"best_of": 129}),
    ] {
        let reply = server.client.post("/v1/completions", &with(body.clone(), more.clone())).await;
        let found = (reply.status, reply.json()["error"]["param"].clone());
        assert_eq!(found, (400, json!("best_of")), "{more}: {}", reply.body);
    }
    server.until_free().await;
}
