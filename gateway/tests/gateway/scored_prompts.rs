//! Prompts in replies: their text in front of answers (`echo`), and how likely their tokens were.

use serde_json::{Value, json};
use serving::model::Model;

use crate::common::batch::{line, make, until_over, upload};
use crate::common::{config, lasting_store, model, serve_on, serve_with};
use crate::constraints::{posted, serve_demo};

const PROMPT: &str = "The film was a wonder, and nobody left before its end.";

/// Two computations of one thing: batches of other shapes add up in another order.
const TOLERANCE: f64 = 0.05;

fn numbers(list: &Value) -> Vec<Option<f64>> {
    list.as_array().unwrap_or_else(|| panic!("no list: {list}")).iter().map(Value::as_f64).collect()
}

#[actix_web::test]
async fn an_echoed_prompt_is_told_in_front_of_its_answer_whole_and_streamed() {
    let server = serve_with(config(), model()).await;
    let ids: Vec<u32> = "say long".bytes().map(u32::from).collect();
    let body =
        json!({"prompt": ["say a", "say long"], "n": 2, "temperature": 0, "max_tokens": 9, "echo": true});
    let reply = posted(&server.client, "/v1/completions", body).await;
    let texts: Vec<&str> =
        reply["choices"].as_array().unwrap().iter().filter_map(|choice| choice["text"].as_str()).collect();
    assert_eq!(texts, ["say aa", "say aa", "say longlong", "say longlong"]);
    // Sent as ids, it is told as text all the same.
    let mut body = json!({"prompt": ids, "temperature": 0, "max_tokens": 9, "echo": true});
    let whole = posted(&server.client, "/v1/completions", body.clone()).await;
    assert_eq!(whole["choices"][0]["text"], "say longlong");
    let special = [vec![256], ids.clone()].concat();
    let special = json!({"prompt": special, "temperature": 0, "max_tokens": 9, "echo": true});
    let special = posted(&server.client, "/v1/completions", special).await;
    assert_eq!(special["choices"][0]["text"], "<end>say longlong", "special tokens as they are written");
    body["stream"] = true.into();
    let reply = server.client.post("/v1/completions", &body).await;
    let events = reply.events();
    let pieces: Vec<&str> =
        events.iter().filter_map(|(_, chunk)| chunk["choices"][0]["text"].as_str()).collect();
    assert!(pieces[0].starts_with("say long"), "{}", reply.body);
    assert_eq!(pieces.concat(), "say longlong", "once");
    // Nothing but the prompt, which only an echo may ask for.
    let mut body = json!({"prompt": "say long", "max_tokens": 0, "echo": true, "stream_options": null});
    let alone = posted(&server.client, "/v1/completions", body.clone()).await;
    let choice = &alone["choices"][0];
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!("say long"), &json!("length")));
    assert_eq!((&alone["usage"]["completion_tokens"], &choice["logprobs"]), (&json!(1), &json!(null)));
    body["stream"] = true.into();
    body["stream_options"] = json!({"include_usage": true});
    let reply = server.client.post("/v1/completions", &body).await;
    let chunks: Vec<Value> =
        reply.events().into_iter().map(|(_, chunk)| chunk).filter(Value::is_object).collect();
    assert_eq!(chunks.len(), 2, "{}", reply.body);
    assert_eq!(chunks[0]["choices"][0]["text"], "say long");
    assert_eq!(chunks[0]["choices"][0]["finish_reason"], "length");
    assert_eq!(chunks[1]["usage"]["completion_tokens"], 1, "it was computed, and is paid for");
    for echo in [json!(null), json!(false)] {
        let body = json!({"prompt": "say long", "max_tokens": 0, "echo": echo});
        let reply = server.client.post("/v1/completions", &body).await;
        assert!(reply.status == 400 && reply.error().contains("`max_tokens`"), "{}", reply.body);
    }
    server.until_free().await;
}

#[actix_web::test]
async fn log_probabilities_cover_an_echoed_prompt_and_are_those_of_saying_it() {
    let (running, client) = serve_demo().await;
    let ask = json!({"prompt": PROMPT, "max_tokens": 4, "temperature": 0, "ignore_eos": true, "logprobs": 2,
        "echo": true, "return_token_ids": true, "skip_special_tokens": false});
    let said = posted(&client, "/v1/completions", ask.clone()).await;
    let choice = &said["choices"][0];
    let prompt: Vec<u64> = serde_json::from_value(choice["prompt_token_ids"].clone()).unwrap();
    let told = &choice["logprobs"];
    let logprobs = numbers(&told["token_logprobs"]);
    assert_eq!(logprobs.len(), prompt.len() + 4, "{said}");
    assert_eq!((logprobs[0], &told["top_logprobs"][0]), (None, &json!(null)), "nothing stands before it");
    assert!(logprobs[1..].iter().all(|own| own.is_some_and(|own| own <= 0.0)), "{told}");
    let (text, tokens) = (choice["text"].as_str().unwrap(), told["tokens"].as_array().unwrap());
    assert!(text.starts_with(PROMPT), "{said}");
    let offsets: Vec<usize> = serde_json::from_value(told["text_offset"].clone()).unwrap();
    assert!(offsets.is_sorted() && offsets[prompt.len()] == PROMPT.chars().count(), "{told}");
    for (at, token) in tokens.iter().enumerate().take(prompt.len()).skip(1) {
        let (rest, token): (String, _) = (text.chars().skip(offsets[at]).collect(), token.as_str().unwrap());
        assert!(
            rest.trim_start().starts_with(token.trim_start()),
            "{token:?} at {} of {text:?}",
            offsets[at]
        );
        let top = told["top_logprobs"][at].as_object().unwrap();
        assert!(top[token].as_f64() == logprobs[at] && (1..=3).contains(&top.len()), "{told}");
    }

    // In a stream they come with the first chunk, and those of the answer go on behind them.
    let mut streamed = ask.clone();
    streamed["stream"] = true.into();
    let reply = client.post("/v1/completions", &streamed).await;
    let joined = |field: &str| -> Vec<Value> {
        let lists =
            reply.events().into_iter().map(|(_, chunk)| chunk["choices"][0]["logprobs"][field].clone());
        lists.filter_map(|list| list.as_array().cloned()).flatten().collect()
    };
    assert_eq!(json!(joined("text_offset")), told["text_offset"]);
    assert_eq!(json!(joined("tokens")), told["tokens"]);

    // What was said is as likely as part of a prompt, whatever the prefix cache has of it.
    let answer: Vec<u64> = serde_json::from_value(choice["token_ids"].clone()).unwrap();
    let whole = [prompt.clone(), answer].concat();
    let scored = json!({"prompt": whole, "max_tokens": 0, "logprobs": 2, "echo": true, "prompt_logprobs": 1});
    for _ in 0..2 {
        let scored = posted(&client, "/v1/completions", scored.clone()).await;
        let choice = &scored["choices"][0];
        let again = numbers(&choice["logprobs"]["token_logprobs"]);
        assert_eq!(again.len(), whole.len(), "{scored}");
        for (one, other) in again.iter().zip(&logprobs).skip(1) {
            assert!((one.unwrap() - other.unwrap()).abs() < TOLERANCE, "{again:?}, not {logprobs:?}");
        }
        let usage = &scored["usage"];
        assert_eq!(
            (&usage["completion_tokens"], &usage["prompt_tokens_details"]["cached_tokens"]),
            (&json!(1), &json!(0))
        );
        assert_eq!(usage["prompt_tokens"], json!(whole.len()));
        // And in vLLM's shape.
        let scores = choice["prompt_logprobs"].as_array().unwrap();
        assert_eq!((scores.len(), &scores[0]), (whole.len(), &json!(null)));
        for ((scores, id), own) in scores.iter().zip(&whole).zip(&again).skip(1) {
            let found = &scores[id.to_string()];
            assert_eq!(found["logprob"].as_f64(), *own, "{scores}");
            assert!(found["rank"].as_u64().is_some_and(|rank| rank >= 1), "{scores}");
            assert!((1..=2).contains(&scores.as_object().unwrap().len()), "{scores}");
        }
    }
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn a_chat_tells_how_likely_its_prompt_was_beside_its_answer() {
    let (running, client) = serve_demo().await;
    let asked = "How was it? ".repeat(15);
    let mut ask = json!({"messages": [{"role": "user", "content": asked}], "max_tokens": 2, "n": 2,
        "temperature": 0, "cache": true, "prompt_logprobs": 0, "return_token_ids": true});
    for number in 0..2 {
        let reply = posted(&client, "/v1/chat/completions", ask.clone()).await;
        let ids: Vec<u64> = serde_json::from_value(reply["prompt_token_ids"].clone()).unwrap();
        let scores = reply["prompt_logprobs"].as_array().unwrap_or_else(|| panic!("{reply}"));
        assert_eq!((scores.len(), &scores[0]), (ids.len(), &json!(null)));
        assert_eq!(reply["choices"].as_array().map(Vec::len), Some(2), "{reply}");
        // It is scored with the first answer; the other's is found in the prefix cache, once it is there.
        let cached = reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
        assert!(number == 0 || cached > Some(0) && cached < Some(ids.len() as u64), "{reply}");
        for (scores, id) in scores.iter().zip(&ids).skip(1) {
            assert_eq!(scores.as_object().unwrap().len(), 1, "{scores}");
            let found = &scores[id.to_string()];
            assert!(found["logprob"].as_f64().is_some_and(|own| own <= 0.0), "{scores}");
            assert!(found["decoded_token"].is_string(), "{scores}");
        }
    }
    ask["stream"] = true.into();
    let reply = client.post("/v1/chat/completions", &ask).await;
    assert!(reply.status == 400 && reply.error().contains("`prompt_logprobs`"), "{}", reply.body);
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn more_than_a_reply_may_hold_is_refused_by_name() {
    let (running, client) = serve_demo().await;
    let words = "good ".repeat(60);
    for (field, body) in [
        ("`echo`", json!({"prompt": words, "n": 128, "max_tokens": 0, "echo": true, "logprobs": 20})),
        ("`prompt_logprobs`", json!({"prompt": words, "n": 128, "max_tokens": 1, "prompt_logprobs": 20})),
        ("`prompt_logprobs`", json!({"prompt": words, "prompt_logprobs": 21})),
    ] {
        let reply = client.post("/v1/completions", &body).await;
        assert!(reply.status == 400 && reply.error().contains(field), "{}", reply.body);
    }
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn where_prompts_are_not_scored_or_replies_have_no_place_for_it_that_is_refused_by_name() {
    let (_dir, store) = lasting_store().await;
    let server = serve_on(config(), Model { has_chat: true, ..model() }, store).await;
    let message = json!([{"role": "user", "content": "say x"}]);
    for (path, field, body) in [
        ("/v1/completions", "prompt_logprobs", json!({"prompt": "say x", "prompt_logprobs": 1})),
        ("/v1/completions", "echo", json!({"prompt": "say x", "echo": true, "logprobs": 1})),
        ("/v1/responses", "prompt_logprobs", json!({"input": "say x", "prompt_logprobs": 0})),
        (
            "/v1/messages",
            "prompt_logprobs",
            json!({"messages": message, "max_tokens": 8, "prompt_logprobs": 0}),
        ),
    ] {
        let reply = server.client.post(path, &body).await;
        assert!(reply.status == 400 && reply.body.contains(field), "{path}: {}", reply.body);
    }
    // A line of a batch may have its prompt in front of its answer.
    let file = upload(&server.client, &line("echoed", json!({"prompt": "say yes", "echo": true}))).await;
    let batch = until_over(&server.client, make(&server.client, &file).await["id"].as_str().unwrap()).await;
    let path = format!("/v1/files/{}/content", batch["output_file_id"].as_str().unwrap());
    let answer: Value = serde_json::from_str(server.client.get(&path).await.body.trim()).unwrap();
    assert_eq!(answer["response"]["body"]["choices"][0]["text"], "say yesyes", "{answer}");
    server.until_free().await;
}
