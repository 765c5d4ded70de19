//! Conversations whose last message is continued, or behind which no answer begins: whole, streamed, in Anthropic's
//! shape and on replicas. The double answers with its prompt's last word, and its tokens are bytes.

use serde_json::{Value, json};
use serving::config::Dialect;
use serving::model::Model;

use crate::common::batch::{until_over, upload};
use crate::common::replica::{FakeReplica, fleet};
use crate::common::{Server, config, model, serve_fleet, serve_with};

const CHAT: &str = "/v1/chat/completions";
/// What ends a message.
const END: u32 = 256;

async fn chatty() -> Server {
    serve_with(config(), Model { has_chat: true, ..model() }).await
}

fn ids(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

/// A question and an answer that has begun.
fn begun(more: &Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "Say it."}, {"role": "assistant", "content": "The word is"}],
        "temperature": 0, "max_tokens": 9, "return_token_ids": true});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

async fn posted(server: &Server, path: &str, body: &Value) -> Value {
    let reply = server.client.post(path, body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

#[actix_web::test]
async fn a_prompt_ends_where_the_request_says() {
    let server = chatty().await;
    let message = [ids("[user]Say it."), vec![END], ids("[assistant]The word is")].concat();
    let closed = [message.clone(), vec![END]].concat();
    let answered = [closed.clone(), ids("[assistant]")].concat();
    for (more, prompt) in [
        (json!({}), &answered),
        (json!({"add_generation_prompt": true, "continue_final_message": false}), &answered),
        (json!({"add_generation_prompt": false}), &closed),
        (json!({"add_generation_prompt": false, "continue_final_message": true}), &message),
        (json!({"continue_final_message": true}), &message),
    ] {
        let reply = posted(&server, CHAT, &begun(&more)).await;
        assert_eq!(reply["prompt_token_ids"], json!(prompt), "{more}");
        assert_eq!(reply["usage"]["prompt_tokens"], prompt.len(), "{more}");
        assert_eq!(reply["choices"][0]["message"]["content"], "is", "{more}");
    }
    let both = json!({"add_generation_prompt": true, "continue_final_message": true});
    let reply = server.client.post(CHAT, &begun(&both)).await;
    assert!(reply.status == 400 && reply.error().contains("`add_generation_prompt`"), "{}", reply.body);
    server.until_free().await;
}

#[actix_web::test]
async fn the_last_message_is_told_in_front_of_an_answer_of_the_same_speaker() {
    let server = chatty().await;
    let contents = |reply: &Value| -> Vec<String> {
        let choices = reply["choices"].as_array().unwrap().iter();
        choices.map(|choice| choice["message"]["content"].as_str().unwrap().to_owned()).collect()
    };
    let continued =
        json!({"continue_final_message": true, "add_generation_prompt": false, "echo": true, "n": 2});
    let reply = posted(&server, CHAT, &begun(&continued)).await;
    assert_eq!(contents(&reply), ["The word isis", "The word isis"]);
    let plain = posted(&server, CHAT, &begun(&json!({"echo": true}))).await;
    assert_eq!(contents(&plain), ["The word isis"], "the last was the assistant's");
    let quiet = posted(&server, CHAT, &begun(&json!({"echo": false}))).await;
    assert_eq!(contents(&quiet), ["is"]);
    let mut asked =
        json!({"messages": [{"role": "user", "content": "say long"}], "temperature": 0, "echo": true});
    assert_eq!(contents(&posted(&server, CHAT, &asked).await), ["long"], "the last was the user's");
    asked["add_generation_prompt"] = false.into();
    assert_eq!(contents(&posted(&server, CHAT, &asked).await), ["say longlong"]);

    let mut streamed = begun(&continued);
    streamed["stream"] = true.into();
    streamed["n"] = 1.into();
    let reply = server.client.post(CHAT, &streamed).await;
    let chunks: Vec<Value> =
        reply.events().into_iter().map(|(_, chunk)| chunk).filter(Value::is_object).collect();
    let delta = |chunk: &Value| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned);
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant", "{}", reply.body);
    assert_eq!(delta(&chunks[1]).as_deref(), Some("The word is"), "{}", reply.body);
    assert_eq!(chunks.iter().filter_map(delta).collect::<String>(), "The word isis");
    server.until_free().await;
}

#[actix_web::test]
async fn the_last_message_is_told_in_each_stream_beside_tools_and_in_batches() {
    let server = chatty().await;
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
    let continued = json!({"continue_final_message": true, "echo": true, "n": 2, "return_token_ids": false});
    let mut with_tools = begun(&continued);
    with_tools["tools"] = json!([tool]);
    for mut body in [begun(&continued), with_tools] {
        let whole = posted(&server, CHAT, &body).await;
        body["stream"] = true.into();
        let reply = server.client.post(CHAT, &body).await;
        let chunks: Vec<Value> =
            reply.events().into_iter().map(|(_, chunk)| chunk).filter(Value::is_object).collect();
        for index in 0..2_usize {
            assert_eq!(whole["choices"][index]["message"]["content"], "The word isis", "{body}");
            let choices = chunks.iter().map(|chunk| &chunk["choices"][0]);
            let own = choices.filter(|choice| choice["index"] == index);
            let texts: Vec<&str> = own.filter_map(|choice| choice["delta"]["content"].as_str()).collect();
            assert_eq!(texts[..2], ["", "The word is"], "{}", reply.body);
            assert_eq!(texts.concat(), "The word isis", "{}", reply.body);
        }
    }

    let line = json!({"custom_id": "a", "method": "POST", "url": CHAT, "body": begun(&continued)});
    let file = upload(&server.client, &line.to_string()).await;
    let made = json!({"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"});
    let made = posted(&server, "/v1/batches", &made).await;
    let batch = until_over(&server.client, made["id"].as_str().unwrap()).await;
    let output = batch["output_file_id"].as_str().unwrap_or_else(|| panic!("{batch}"));
    let text = server.client.get(&format!("/v1/files/{output}/content")).await;
    let row: Value = serde_json::from_str(text.body.trim()).unwrap();
    for index in 0..2_usize {
        let choice = &row["response"]["body"]["choices"][index];
        assert_eq!(choice["message"]["content"], "The word isis", "{row}");
    }
    server.until_free().await;
}

#[actix_web::test]
async fn what_cannot_be_continued_is_refused_by_name() {
    let server = chatty().await;
    let blank = json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": " "}],
        "continue_final_message": true});
    let called = json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b",
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}],
        "continue_final_message": true});
    for (path, body, field) in [
        (CHAT, blank, "continue_final_message"),
        (CHAT, called, "continue_final_message"),
        (CHAT, begun(&json!({"continue_final_message": "yes"})), "continue_final_message"),
        ("/v1/responses", json!({"input": "say x", "echo": true}), "echo"),
        ("/v1/responses", json!({"input": "say x", "continue_final_message": true}), "`store`"),
        ("/v1/messages", begun(&json!({"echo": true, "return_token_ids": false})), "echo"),
    ] {
        let reply = server.client.post(path, &body).await;
        assert!(reply.status == 400 && reply.body.contains(field), "{path}: {}", reply.body);
    }
}

#[actix_web::test]
async fn a_message_that_ends_with_the_assistants_words_is_continued() {
    let server = chatty().await;
    let chat = posted(&server, CHAT, &begun(&json!({"continue_final_message": true}))).await;
    let mut body = begun(&json!({"return_token_ids": false, "temperature": 0}));
    let counted = posted(&server, "/v1/messages/count_tokens", &body).await;
    assert_eq!(counted["input_tokens"], chat["usage"]["prompt_tokens"]);
    let reply = posted(&server, "/v1/messages", &body).await;
    assert_eq!(reply["content"], json!([{"type": "text", "text": "is"}]));
    body["stream"] = true.into();
    let events = server.client.post("/v1/messages", &body).await.events();
    let deltas: Vec<&str> = events.iter().filter_map(|(_, data)| data["delta"]["text"].as_str()).collect();
    assert_eq!(deltas.concat(), "is", "what was sent is not told again");
    // Who does not want it continued gets the next answer.
    let mut next = begun(&json!({"return_token_ids": false, "continue_final_message": false}));
    let answered = posted(&server, "/v1/messages/count_tokens", &next).await;
    next["continue_final_message"] = true.into();
    assert_eq!(posted(&server, "/v1/messages/count_tokens", &next).await, counted);
    assert!(answered["input_tokens"].as_u64() > counted["input_tokens"].as_u64(), "{answered}");
    // An answer of which nothing is said yet is the next one.
    let asked =
        json!({"messages": [{"role": "user", "content": "say long"}], "temperature": 0, "max_tokens": 9});
    let mut blank = asked.clone();
    blank["messages"].as_array_mut().unwrap().push(json!({"role": "assistant", "content": ""}));
    let [one, other] = [
        posted(&server, "/v1/messages/count_tokens", &asked).await,
        posted(&server, "/v1/messages/count_tokens", &blank).await,
    ];
    assert_eq!(one, other);
    server.until_free().await;
}

#[actix_web::test]
async fn replicas_are_told_where_the_conversation_ends_or_the_request_is_refused() {
    let replica = FakeReplica::start().await;
    let server = serve_fleet(fleet(vec![replica.executor()])).await;
    server.until("it is up", |server| server.running.app.runtime.view().replicas[0].is_up).await;
    let plain = json!({"model": "m", "return_token_ids": false});
    let with = |more: Value| {
        let mut body = begun(&plain);
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let continued = with(json!({"continue_final_message": true, "echo": true}));
    let reply = posted(&server, CHAT, &continued).await;
    assert_eq!(reply["choices"][0]["message"]["content"], "The word isis");
    let sent = replica.state().asked[0].clone();
    assert_eq!(sent["messages"], continued["messages"]);
    let ends = (&sent["add_generation_prompt"], &sent["continue_final_message"]);
    assert_eq!(ends, (&json!(false), &json!(true)), "{sent}");
    assert!(sent.get("echo").is_none(), "it is put in front here: {sent}");
    posted(&server, CHAT, &with(json!({"add_generation_prompt": false}))).await;
    let sent = replica.state().asked[1].clone();
    let ends = (&sent["add_generation_prompt"], &sent["continue_final_message"]);
    assert_eq!(ends, (&json!(false), &Value::Null), "{sent}");

    let mut settings = replica.executor();
    settings.dialect = Dialect::Openai;
    let server = serve_fleet(fleet(vec![settings])).await;
    server.until("it is up", |server| server.running.app.runtime.view().replicas[0].is_up).await;
    let asked = replica.state().asked.len();
    for field in ["continue_final_message", "add_generation_prompt"] {
        let more = json!({field: field == "continue_final_message"});
        let reply = server.client.post(CHAT, &with(more)).await;
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert!(reply.error().contains(&format!("`{field}`")), "{}", reply.body);
    }
    let mut message = begun(&json!({"return_token_ids": false}));
    let reply = server.client.post("/v1/messages", &message).await;
    assert!(reply.status == 400 && reply.body.contains("`messages`"), "{}", reply.body);
    message["stream"] = true.into();
    let reply = server.client.post("/v1/messages", &message).await;
    assert!(reply.status == 400 && reply.body.contains("`messages`"), "not in a stream: {}", reply.body);
    assert_eq!(server.running.app.runtime.registry.running().len(), 0, "no row waits");
    assert_eq!(replica.state().asked.len(), asked, "it was asked nothing");
}
