//! Ids of tokens beside their text, as vLLM tells them: whole, streamed, of several answers and in batches. The double's
//! tokens are bytes.

use serde_json::{Value, json};
use serving::model::Model;

use crate::common::batch::{line, make, until_over, upload};
use crate::common::{Server, config, lasting_store, model, serve_on, serve_with};

/// Ends an answer.
const END: u32 = 256;

async fn chatty() -> Server {
    serve_with(config(), Model { has_chat: true, ..model() }).await
}

/// The ids of a text.
fn ids(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

/// Those of a whole answer.
fn ended(text: &str) -> Vec<u32> {
    [ids(text), vec![END]].concat()
}

async fn posted(server: &Server, path: &str, body: &Value) -> Value {
    let reply = server.client.post(path, body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

#[actix_web::test]
async fn a_completion_tells_the_ids_of_each_prompt_and_each_answer() {
    let server = chatty().await;
    let body = json!({"prompt": ["say a", "say long"], "n": 2, "temperature": 0, "max_tokens": 9, "return_token_ids": true});
    let reply = posted(&server, "/v1/completions", &body).await;
    let choices = reply["choices"].as_array().unwrap();
    let expected = [("say a", "a"), ("say a", "a"), ("say long", "long"), ("say long", "long")];
    assert_eq!(choices.len(), expected.len());
    for (choice, (prompt, answer)) in choices.iter().zip(expected) {
        assert_eq!(choice["prompt_token_ids"], json!(ids(prompt)));
        assert_eq!(choice["token_ids"], json!(ended(answer)));
    }
    assert!(reply.get("prompt_token_ids").is_none(), "{reply}");
    // Sent as ids, the prompt is told as it was.
    let body = json!({"prompt": ids("say a"), "temperature": 0, "max_tokens": 1, "return_token_ids": true});
    let reply = posted(&server, "/v1/completions", &body).await;
    assert_eq!(reply["choices"][0]["prompt_token_ids"], body["prompt"]);
    assert_eq!(reply["choices"][0]["token_ids"], json!(ids("a")), "it met its limit");
    for more in [json!({}), json!({"return_token_ids": false})] {
        let mut body = json!({"prompt": "say a", "temperature": 0});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let choice = posted(&server, "/v1/completions", &body).await["choices"][0].clone();
        assert!(choice.get("token_ids").is_none() && choice.get("prompt_token_ids").is_none(), "{choice}");
    }
    server.until_free().await;
}

#[actix_web::test]
async fn a_chat_tells_its_prompts_ids_once_whole_and_streamed() {
    let server = chatty().await;
    let mut body = json!({"messages": [{"role": "user", "content": "say something"}], "temperature": 0,
        "max_tokens": 30, "return_token_ids": true});
    let whole = posted(&server, "/v1/chat/completions", &body).await;
    let (prompt, answer) = (&whole["prompt_token_ids"], &whole["choices"][0]["token_ids"]);
    assert_eq!(prompt.as_array().unwrap().len() as u64, whole["usage"]["prompt_tokens"].as_u64().unwrap());
    assert_eq!(*answer, json!(ended("something")));
    body["stream"] = true.into();
    let reply = server.client.post("/v1/chat/completions", &body).await;
    let chunks: Vec<Value> =
        reply.events().into_iter().map(|(_, chunk)| chunk).filter(Value::is_object).collect();
    let told = chunks.iter().flat_map(|chunk| chunk["choices"][0]["token_ids"].as_array().unwrap());
    assert_eq!(told.cloned().collect::<Vec<_>>(), *answer.as_array().unwrap(), "{}", reply.body);
    assert_eq!(chunks[0]["prompt_token_ids"], *prompt);
    assert!(chunks[1..].iter().all(|chunk| chunk.get("prompt_token_ids").is_none()), "{}", reply.body);
    // Where an answer may be taken from the cache, it has ids all the same.
    body["stream"] = false.into();
    body["cache"] = true.into();
    for _ in 0..2 {
        let reply = posted(&server, "/v1/chat/completions", &body).await;
        assert_eq!(reply["choices"][0]["token_ids"], *answer, "{reply}");
    }
    server.until_free().await;
}

#[actix_web::test]
async fn routes_whose_replies_have_no_place_for_ids_refuse_to_tell_them() {
    let server = chatty().await;
    let message = json!([{"role": "user", "content": "say x"}]);
    for (path, body) in [
        ("/v1/responses", json!({"input": "say x", "return_token_ids": true})),
        ("/v1/messages", json!({"messages": message, "max_tokens": 8, "return_token_ids": true})),
        ("/v1/completions", json!({"prompt": "say x", "return_token_ids": "yes"})),
    ] {
        let reply = server.client.post(path, &body).await;
        assert!(reply.status == 400 && reply.body.contains("return_token_ids"), "{path}: {}", reply.body);
    }
}

#[actix_web::test]
async fn a_line_of_a_batch_tells_ids_where_it_asks_for_them() {
    let (_dir, store) = lasting_store().await;
    let server = serve_on(config(), model(), store).await;
    let text = [
        line("told", json!({"prompt": "Say yes", "return_token_ids": true})),
        line("plain", json!({"prompt": "Say no"})),
    ];
    let file = upload(&server.client, &text.join("\n")).await;
    let batch = until_over(&server.client, make(&server.client, &file).await["id"].as_str().unwrap()).await;
    let path = format!("/v1/files/{}/content", batch["output_file_id"].as_str().unwrap());
    let answers: Vec<Value> =
        server.client.get(&path).await.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let choice = |at: usize| &answers[at]["response"]["body"]["choices"][0];
    assert_eq!(choice(0)["token_ids"], json!(ended("yes")), "{batch}");
    assert_eq!(choice(0)["prompt_token_ids"], json!(ids("Say yes")));
    assert!(choice(1).get("token_ids").is_none(), "{}", choice(1));
    server.until_free().await;
}
