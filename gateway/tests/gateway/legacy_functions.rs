//! Functions as OpenAI had them before tools: they are called, and their calls told, in the shape of then.

use serde_json::{Value, json};
use serving::model::Model;

use crate::common::batch::{until_over, upload};
use crate::common::{Server, config, model, serve_with};
use crate::constraints::{posted, serve_demo};

/// A call as a model writes it: one word, which the model of these tests says again.
const WRITTEN: &str =
    r#"<tool_call>{"name":"find","arguments":{"text":"a","deep":[1,{"b":null}]}}</tool_call>"#;
const ARGUMENTS: &str = r#"{"text":"a","deep":[1,{"b":null}]}"#;

async fn chatty() -> Server {
    serve_with(config(), Model { has_chat: true, ..model() }).await
}

/// A chat that asks the model to say a word.
fn chat(word: &str) -> Value {
    let parameters =
        json!({"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}});
    json!({"model": "double", "temperature": 0, "max_tokens": 200,
        "functions": [{"name": "find", "description": "Finds a text.", "parameters": parameters}],
        "messages": [{"role": "user", "content": format!("say {word}")}]})
}

#[actix_web::test]
async fn a_function_is_called_in_the_shape_of_its_request_and_its_result_goes_on() {
    let server = chatty().await;
    let reply = posted(&server.client, "/v1/chat/completions", chat(WRITTEN)).await;
    let choice = &reply["choices"][0];
    assert_eq!(choice["finish_reason"], "function_call", "{reply}");
    let message = &choice["message"];
    assert_eq!(message["function_call"], json!({"name": "find", "arguments": ARGUMENTS}));
    assert_eq!((&message["content"], message.get("tool_calls")), (&Value::Null, None));
    // What the model said and what came of it are the next request's, and told as those of a tool are.
    let mut next = chat("x");
    let result = json!({"role": "function", "name": "find", "content": "found it"});
    next["messages"].as_array_mut().unwrap().extend([message.clone(), result]);
    let reply = posted(&server.client, "/v1/chat/completions", next.clone()).await;
    assert_eq!(reply["choices"][0]["message"]["content"], "</tool_response>");
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    let tool = json!({"type": "function", "function": next["functions"][0]});
    let function = json!({"name": "find", "arguments": ARGUMENTS});
    let call = json!({"id": "c", "type": "function", "function": function});
    let of_tools = json!({"model": "double", "temperature": 0, "max_tokens": 200, "tools": [tool], "messages": [
        next["messages"][0], {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "found it"}]});
    let of_tools = posted(&server.client, "/v1/chat/completions", of_tools).await;
    assert_eq!(reply["usage"]["prompt_tokens"], of_tools["usage"]["prompt_tokens"]);
    // Where none may be called nothing is told of them, and nothing is read as a call.
    let mut without = chat(WRITTEN);
    without["function_call"] = json!("none");
    let plain = posted(&server.client, "/v1/chat/completions", without).await;
    assert_eq!(plain["choices"][0]["message"]["content"], WRITTEN);
    server.until_free().await;
}

#[actix_web::test]
async fn a_functions_arguments_stream_behind_its_name() {
    let server = chatty().await;
    let mut body = chat(WRITTEN);
    body["stream"] = true.into();
    let events = server.client.post("/v1/chat/completions", &body).await.events();
    let choices: Vec<&Value> = events.iter().map(|(_, chunk)| &chunk["choices"][0]).collect();
    let calls: Vec<&Value> = choices
        .iter()
        .map(|choice| &choice["delta"]["function_call"])
        .filter(|call| call.is_object())
        .collect();
    assert_eq!(calls[0], &json!({"name": "find", "arguments": ""}));
    assert!(calls[1..].iter().all(|call| call.get("name").is_none()), "{calls:?}");
    let arguments: Vec<&str> = calls.iter().filter_map(|call| call["arguments"].as_str()).collect();
    assert_eq!(arguments.concat(), ARGUMENTS);
    assert!(choices.iter().all(|choice| choice["delta"].get("tool_calls").is_none()));
    let reasons: Vec<&str> = choices.iter().filter_map(|choice| choice["finish_reason"].as_str()).collect();
    assert_eq!(reasons, ["function_call"]);
    server.until_free().await;
}

#[actix_web::test]
async fn a_line_of_a_batch_has_functions_too_and_other_routes_have_none() {
    let server = chatty().await;
    let line =
        json!({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": chat(WRITTEN)});
    let file = upload(&server.client, &line.to_string()).await;
    let made = json!({"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"});
    let made = posted(&server.client, "/v1/batches", made).await;
    let batch = until_over(&server.client, made["id"].as_str().unwrap()).await;
    let path = format!("/v1/files/{}/content", batch["output_file_id"].as_str().unwrap());
    let text = server.client.get(&path).await;
    let row: Value = serde_json::from_str(text.body.trim()).unwrap();
    let choice = &row["response"]["body"]["choices"][0];
    assert_eq!(choice["message"]["function_call"]["arguments"], ARGUMENTS, "{row}");

    let functions = chat("x")["functions"].clone();
    let response = json!({"model": "double", "input": "say x", "functions": functions});
    let message = json!({"model": "double", "max_tokens": 8, "functions": functions,
        "messages": [{"role": "user", "content": "say x"}]});
    for (path, body) in [("/v1/responses", response), ("/v1/messages", message)] {
        let reply = server.client.post(path, &body).await;
        assert!(reply.status == 400 && reply.body.contains("`functions`"), "{path}: {}", reply.body);
    }
    server.until_free().await;
}

#[actix_web::test]
async fn a_real_model_is_held_to_the_function_that_is_named() {
    let (running, client) = serve_demo().await;
    let parameters =
        json!({"type": "object", "required": ["city"], "properties": {"city": {"enum": ["Oslo", "Rome"]}}});
    let body = json!({"model": running.app.runtime.model.name, "temperature": 0, "max_tokens": 60,
        "functions": [{"name": "weather", "parameters": parameters}, {"name": "stop"}],
        "function_call": {"name": "weather"},
        "messages": [{"role": "user", "content": "What is the weather in Rome?"}]});
    let choice = posted(&client, "/v1/chat/completions", body).await["choices"][0].clone();
    let call = &choice["message"]["function_call"];
    assert_eq!((&call["name"], &choice["finish_reason"]), (&json!("weather"), &json!("stop")), "{choice}");
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert!(["Oslo", "Rome"].contains(&arguments["city"].as_str().unwrap()), "{arguments}");
}
