//! Tools: what may be called is told to the model, what must be is forced, and calls come back as OpenAI has them.

use serde_json::{Value, json};
use serving::model::Model;

use crate::common::batch::{until_over, upload};
use crate::common::replica::{FakeReplica, fleet};
use crate::common::{Server, config, model, serve_fleet, serve_with};
use crate::constraints::{posted, serve_demo};

/// A call as a model writes it: one word, which the models of these tests say again.
const WRITTEN: &str =
    r#"<tool_call>{"name":"find","arguments":{"text":"a","deep":[1,{"b":null}]}}</tool_call>"#;
const ARGUMENTS: &str = r#"{"text":"a","deep":[1,{"b":null}]}"#;

async fn chatty() -> Server {
    serve_with(config(), Model { has_chat: true, ..model() }).await
}

fn tools() -> Value {
    json!([{"type": "function", "function": {"name": "find", "description": "Finds a text.", "parameters": {
        "type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}}}])
}

/// A chat that asks the model to say a word.
fn chat(model: &str, word: &str) -> Value {
    json!({"model": model, "temperature": 0, "max_tokens": 200, "tools": tools(),
        "messages": [{"role": "user", "content": format!("say {word}")}]})
}

#[actix_web::test]
async fn a_call_comes_back_whole_and_its_result_goes_on() {
    let server = chatty().await;
    let reply = posted(&server.client, "/v1/chat/completions", chat("double", WRITTEN)).await;
    let choice = &reply["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    let message = &choice["message"];
    assert_eq!((&message["content"], &message["role"]), (&Value::Null, &json!("assistant")));
    let call = &message["tool_calls"][0];
    assert_eq!(call["function"], json!({"name": "find", "arguments": ARGUMENTS}));
    assert_eq!(call["type"], "function");
    // What the model said and what came of it are the next request's.
    let mut next = chat("double", "x");
    let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "found it"});
    next["messages"].as_array_mut().unwrap().extend([message.clone(), result]);
    let reply = posted(&server.client, "/v1/chat/completions", next.clone()).await;
    // The last word of the prompt is the tag behind the result.
    assert_eq!(reply["choices"][0]["message"]["content"], "</tool_response>");
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    // Without tools nothing is told of them, and nothing is read as a call.
    let mut without = chat("double", WRITTEN);
    without["tool_choice"] = json!("none");
    let plain = posted(&server.client, "/v1/chat/completions", without).await;
    assert_eq!(plain["choices"][0]["message"]["content"], WRITTEN);
    let told = posted(&server.client, "/v1/chat/completions", chat("double", WRITTEN)).await;
    let prompt = |reply: &Value| reply["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(prompt(&told) > prompt(&plain) + 100, "the tools are in the prompt");
    server.until_free().await;
}

/// The calls of a stream: name and arguments, put together as clients do it; and how many pieces had arguments.
fn streamed(events: &[(String, Value)]) -> (Vec<(String, String)>, usize) {
    let (mut calls, mut pieces): (Vec<(String, String)>, usize) = (Vec::new(), 0);
    for (_, chunk) in events {
        for piece in chunk["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let index = piece["index"].as_u64().unwrap() as usize;
            if let Some(name) = piece["function"]["name"].as_str() {
                assert_eq!(index, calls.len());
                assert!(piece["id"].as_str().unwrap().starts_with("call_"));
                calls.push((name.to_owned(), String::new()));
            }
            let arguments = piece["function"]["arguments"].as_str().unwrap();
            pieces += usize::from(!arguments.is_empty());
            calls[index].1.push_str(arguments);
        }
    }
    (calls, pieces)
}

#[actix_web::test]
async fn a_calls_arguments_stream_as_they_are_written() {
    let server = chatty().await;
    let mut body = chat("double", WRITTEN);
    body["stream"] = true.into();
    let reply = server.client.post("/v1/chat/completions", &body).await;
    let events = reply.events();
    let (calls, pieces) = streamed(&events);
    assert_eq!(calls, [("find".to_owned(), ARGUMENTS.to_owned())]);
    assert!(pieces >= 1);
    let content =
        |(_, chunk): &(String, Value)| chunk["choices"][0]["delta"]["content"].as_str().map(str::len);
    assert_eq!(events.iter().filter_map(content).sum::<usize>(), 0, "the tags are not said: {}", reply.body);
    let reasons: Vec<&str> =
        events.iter().filter_map(|(_, chunk)| chunk["choices"][0]["finish_reason"].as_str()).collect();
    assert_eq!(reasons, ["tool_calls"]);
    server.until_free().await;
}

#[actix_web::test]
async fn several_calls_come_back_and_one_where_no_more_may_be() {
    let server = chatty().await;
    let both = format!("{WRITTEN}{WRITTEN}");
    for (is_parallel, count) in [(Value::Null, 2), (json!(true), 2), (json!(false), 1)] {
        let mut body = chat("double", &both);
        body["parallel_tool_calls"] = is_parallel;
        let reply = posted(&server.client, "/v1/chat/completions", body.clone()).await;
        let calls = reply["choices"][0]["message"]["tool_calls"].as_array().unwrap();
        let mut ids: Vec<&str> = calls.iter().filter_map(|call| call["id"].as_str()).collect();
        ids.dedup();
        assert_eq!((calls.len(), ids.len()), (count, count), "{reply}");
        let expected = json!({"name": "find", "arguments": ARGUMENTS});
        assert!(calls.iter().all(|call| call["function"] == expected), "{reply}");
        body["stream"] = true.into();
        let events = server.client.post("/v1/chat/completions", &body).await.events();
        assert_eq!(streamed(&events).0, vec![("find".to_owned(), ARGUMENTS.to_owned()); count]);
    }
    server.until_free().await;
}

#[actix_web::test]
async fn a_function_of_a_namespace_is_called_by_the_names_that_its_request_has() {
    let server = chatty().await;
    let written = WRITTEN.replace("\"find\"", "\"files__find\"");
    let tools = json!([{"type": "namespace", "name": "files", "description": "Files.", "tools": [
        {"type": "function", "name": "find", "parameters": {"type": "object"}}]}]);
    let mut body =
        json!({"model": "double", "input": format!("say {written}"), "temperature": 0, "tools": tools});
    let reply = posted(&server.client, "/v1/responses", body.clone()).await;
    let call = reply["output"][0].clone();
    assert_eq!((&call["namespace"], &call["name"]), (&json!("files"), &json!("find")), "{reply}");
    assert_eq!((&call["arguments"], &reply["tools"]), (&json!(ARGUMENTS), &tools));
    body["stream"] = true.into();
    let events = server.client.post("/v1/responses", &body).await.events();
    let items = events.iter().map(|(_, event)| &event["item"]);
    let items: Vec<&Value> = items.filter(|item| item.is_object()).collect();
    assert_eq!(items.len(), 2, "it begins and ends");
    for item in items {
        assert_eq!((&item["namespace"], &item["name"]), (&json!("files"), &json!("find")), "{item}");
    }
    // The model is told of a call that was made as it was told of the function.
    let ask = |call: Value| {
        let result = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "found"});
        json!({"model": "double", "input": [{"role": "user", "content": "go"}, call, result], "temperature": 0})
    };
    let mut flat = call.clone();
    flat.as_object_mut().unwrap().remove("namespace");
    let named = posted(&server.client, "/v1/responses", ask(call)).await;
    let unnamed = posted(&server.client, "/v1/responses", ask(flat)).await;
    let prompt = |reply: &Value| reply["usage"]["input_tokens"].as_u64().unwrap();
    assert_eq!(prompt(&named), prompt(&unnamed) + "files__".len() as u64);
    server.until_free().await;
}

#[actix_web::test]
async fn a_response_and_a_batch_have_calls_in_their_own_shapes() {
    let server = chatty().await;
    let flat =
        json!([{"type": "function", "name": "find", "parameters": {"type": "object"}, "strict": false}]);
    let mut body =
        json!({"model": "double", "input": format!("say {WRITTEN}"), "temperature": 0, "tools": flat});
    let reply = posted(&server.client, "/v1/responses", body.clone()).await;
    let output = reply["output"].as_array().unwrap();
    assert_eq!((output.len(), &output[0]["type"]), (1, &json!("function_call")));
    assert_eq!((&output[0]["name"], &output[0]["arguments"]), (&json!("find"), &json!(ARGUMENTS)));
    assert_eq!((&reply["tools"], &reply["status"]), (&flat, &json!("completed")));
    body["stream"] = true.into();
    let events = server.client.post("/v1/responses", &body).await.events();
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    let begins = ["response.created", "response.in_progress", "response.output_item.added"];
    assert_eq!(names[..3], begins);
    let ends = ["response.function_call_arguments.done", "response.output_item.done", "response.completed"];
    assert_eq!(names[names.len() - 3..], ends);
    assert!(names[3..names.len() - 3].iter().all(|name| *name == "response.function_call_arguments.delta"));
    let deltas: Vec<&str> = events.iter().filter_map(|(_, event)| event["delta"].as_str()).collect();
    assert_eq!(deltas.concat(), ARGUMENTS);
    let result = json!([{"role": "user", "content": "find a"}, output[0],
        {"type": "function_call_output", "call_id": output[0]["call_id"], "output": "found"}]);
    let after = json!({"model": "double", "input": result, "temperature": 0, "tools": flat});
    let after = posted(&server.client, "/v1/responses", after).await;
    assert_eq!(after["output"][0]["content"][0]["text"], "</tool_response>");

    let line = json!({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": chat("double", WRITTEN)});
    let file = upload(&server.client, &line.to_string()).await;
    let made = json!({"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"});
    let made = posted(&server.client, "/v1/batches", made).await;
    let batch = until_over(&server.client, made["id"].as_str().unwrap()).await;
    let text =
        server.client.get(&format!("/v1/files/{}/content", batch["output_file_id"].as_str().unwrap())).await;
    let row: Value = serde_json::from_str(text.body.trim()).unwrap();
    let choice = &row["response"]["body"]["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{row}");
    assert_eq!(choice["message"]["tool_calls"][0]["function"]["arguments"], ARGUMENTS);
}

#[actix_web::test]
async fn a_real_model_is_held_to_the_call_that_must_be() {
    let (running, client) = serve_demo().await;
    let parameters = json!({"type": "object", "required": ["city", "unit"], "properties": {
        "city": {"$ref": "#/$defs/City"}, "unit": {"enum": ["c", "f"]}},
        "$defs": {"City": {"enum": ["Oslo", "Rome"]}}});
    let tools = json!([
        {"type": "function", "function": {"name": "weather", "parameters": parameters}},
        {"type": "function", "function": {"name": "stop"}}]);
    let model = &running.app.runtime.model.name;
    let ask = async |choice: Value, more: Value| {
        let mut body = json!({"model": model, "temperature": 0, "max_tokens": 120, "tools": tools, "tool_choice": choice,
            "messages": [{"role": "user", "content": "What is the weather in Rome?"}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        posted(&client, "/v1/chat/completions", body).await["choices"][0].clone()
    };
    let arguments = |call: &Value| -> Value {
        serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap()
    };
    let named = json!({"type": "function", "function": {"name": "weather"}});
    let choice = ask(named, json!({})).await;
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    assert_eq!((calls.len(), &choice["finish_reason"]), (1, &json!("stop")), "as OpenAI has it");
    let found = arguments(&calls[0]);
    assert!(["Oslo", "Rome"].contains(&found["city"].as_str().unwrap()), "{found}");
    assert!(["c", "f"].contains(&found["unit"].as_str().unwrap()), "{found}");
    let choice = ask(json!("required"), json!({"parallel_tool_calls": false})).await;
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    assert_eq!((calls.len(), &choice["finish_reason"]), (1, &json!("tool_calls")));
    assert!(["weather", "stop"].contains(&calls[0]["function"]["name"].as_str().unwrap()));
    assert!(arguments(&calls[0]).is_object());
    // One call, or several where that is asked for.
    let choice = ask(json!("required"), json!({"parallel_tool_calls": true})).await;
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    // The last of them may meet the limit.
    let is_cut = choice["finish_reason"] == "length";
    let whole = &calls[..calls.len() - usize::from(is_cut)];
    assert!(!calls.is_empty() && whole.iter().all(|call| arguments(call).is_object()), "{choice}");
    // What it likes: text, or calls of these tools in their form. A form for the text holds beside.
    let choice = ask(json!("auto"), json!({})).await;
    let calls = choice["message"]["tool_calls"].as_array();
    assert_eq!(calls.is_some(), choice["finish_reason"] == "tool_calls", "{choice}");
    assert!(calls.is_some() || choice["message"]["content"].as_str().is_some_and(|text| !text.is_empty()));
    let form = json!({"type": "json_schema", "json_schema": {"name": "a", "strict": true,
        "schema": {"type": "object", "required": ["answer"], "properties": {"answer": {"enum": ["x", "y"]}}}}});
    let choice = ask(json!("auto"), json!({"response_format": form})).await;
    match choice["message"]["content"].as_str() {
        Some(text) => {
            let value: Value = serde_json::from_str(text).unwrap();
            assert!(["x", "y"].contains(&value["answer"].as_str().unwrap()));
        }
        None => assert!(arguments(&choice["message"]["tool_calls"][0]).is_object()),
    }
}

#[actix_web::test]
async fn servers_are_told_of_tools_in_messages_and_held_to_a_call_by_a_schema() {
    let a = FakeReplica::start().await;
    let server = serve_fleet(fleet(vec![a.executor()])).await;
    let is_up = |server: &Server| server.running.app.runtime.view().replicas.iter().all(|one| one.is_up);
    server.until("the replica is up", is_up).await;
    let reply = posted(&server.client, "/v1/chat/completions", chat("m", WRITTEN)).await;
    assert_eq!(reply["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], ARGUMENTS);
    let asked = a.state().asked[0].clone();
    assert!(asked.get("tools").is_none(), "{asked}");
    let system = asked["messages"][0]["content"].as_str().unwrap();
    assert!(system.contains(r#""name": "find", "description": "Finds a text.""#), "{system}");
    let mut forced = chat("m", r#"{"name":"find","arguments":{"text":"b"}}"#);
    forced["tool_choice"] = json!({"type": "function", "function": {"name": "find"}});
    let reply = posted(&server.client, "/v1/chat/completions", forced).await;
    assert_eq!(reply["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], r#"{"text":"b"}"#);
    let asked = a.state().asked[1].clone();
    let schema = &asked["structured_outputs"]["json"];
    assert_eq!(schema["properties"]["name"], json!({"const": "find"}), "{asked}");
}

#[actix_web::test]
async fn what_is_wrong_with_tools_is_named() {
    let server = chatty().await;
    let refused = async |change: &dyn Fn(&mut Value), param: &str| {
        let mut body = chat("double", "x");
        change(&mut body);
        let reply = server.client.post("/v1/chat/completions", &body).await;
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{}", reply.body);
    };
    refused(&|body| body["tools"][0]["type"] = "web_search".into(), "tools[0].type").await;
    refused(&|body| body["tools"][0]["function"]["name"] = "a b".into(), "tools[0].function.name").await;
    refused(&|body| body["tool_choice"] = "must".into(), "tool_choice").await;
    // This model cannot be held to anything.
    refused(&|body| body["tool_choice"] = "required".into(), "tools").await;
    let orphan = json!({"role": "tool", "content": "x"});
    refused(
        &|body| body["messages"].as_array_mut().unwrap().push(orphan.clone()),
        "messages[1].tool_call_id",
    )
    .await;
    server.until_free().await;
}
