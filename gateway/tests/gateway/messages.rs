//! Anthropic's `/v1/messages`: the same answers as chats, in another shape.

use gateway::config::UnknownFields;
use serde_json::{Value, json};
use serving::model::Model;

use crate::common::{Server, config, model, serve_with};

async fn chatty() -> Server {
    serve_with(config(), Model { has_chat: true, ..model() }).await
}

#[actix_web::test]
async fn a_message_has_the_answer_and_the_tokens_of_the_same_chat() {
    let server = chatty().await;
    let body = json!({"model": "double", "system": "Say the last word.", "temperature": 0, "max_tokens": 8,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "row w7"}]}]});
    let reply = server.client.post("/v1/messages", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let message = reply.json();
    assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(message["content"], json!([{"type": "text", "text": "w7"}]));
    assert_eq!((&message["stop_reason"], &message["stop_sequence"]), (&json!("end_turn"), &Value::Null));
    let chat = json!({"model": "double", "temperature": 0, "max_tokens": 8, "messages": [
        {"role": "system", "content": "Say the last word."}, {"role": "user", "content": "row w7"}]});
    let usage = server.client.post("/v1/chat/completions", &chat).await.json()["usage"].clone();
    let tokens = |field: &str| message["usage"][field].as_u64().unwrap();
    assert_eq!(json!(tokens("input_tokens") + tokens("cache_read_input_tokens")), usage["prompt_tokens"]);
    assert_eq!(json!(tokens("output_tokens")), usage["completion_tokens"]);
    let mut short = body.clone();
    short["max_tokens"] = 1.into();
    assert_eq!(server.client.post("/v1/messages", &short).await.json()["stop_reason"], "max_tokens");
    let steps = server.gate.passed();
    let counted = server.client.post("/v1/messages/count_tokens", &body).await.json();
    assert_eq!(
        (&counted["input_tokens"], server.gate.passed()),
        (&usage["prompt_tokens"], steps),
        "no step ran"
    );
    server.until_free().await;
}

#[actix_web::test]
async fn a_stream_of_a_message_begins_grows_and_ends() {
    let server = chatty().await;
    let body = json!({"model": "double", "max_tokens": 16, "stream": true,
        "messages": [{"role": "user", "content": "say something"}]});
    let events = server.client.post("/v1/messages", &body).await.events();
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..2], ["message_start", "content_block_start"]);
    assert_eq!(names[names.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    assert!(events.iter().all(|(name, data)| data["type"] == name.as_str()));
    let deltas: Vec<&str> = events.iter().filter_map(|(_, data)| data["delta"]["text"].as_str()).collect();
    assert_eq!(deltas.concat(), "something");
    server.until_free().await;
}

#[actix_web::test]
async fn keys_come_in_anthropics_header_too_and_errors_have_its_shape() {
    let server = chatty().await;
    let key = server.client.key.clone().unwrap();
    let body =
        json!({"model": "double", "max_tokens": 8, "messages": [{"role": "user", "content": "say x"}]});
    let send = async |header: String, body: &Value| {
        let mut client = server.client.clone();
        client.key = None;
        let bytes = client.request("POST", "/v1/messages", "application/json", body.to_string().as_bytes());
        let text = String::from_utf8(bytes).unwrap();
        client.raw(text.replacen("\r\n", &format!("\r\n{header}"), 1).as_bytes()).await
    };
    let reply = send(format!("X-Api-Key: {key}\r\nAnthropic-Version: 2023-06-01\r\n"), &body).await;
    assert_eq!((reply.status, &reply.json()["content"][0]["text"]), (200, &json!("x")));
    for (header, class) in [
        (String::new(), "authentication_error"),
        ("X-Api-Key: rs-no\r\n".to_owned(), "authentication_error"),
        // A key that does not work is not helped by another that does.
        (format!("X-Api-Key: {key}\r\nAuthorization: Bearer rs-no\r\n"), "authentication_error"),
    ] {
        let reply = send(header, &body).await;
        assert_eq!((reply.status, &reply.json()["type"]), (401, &json!("error")), "{}", reply.body);
        assert_eq!(reply.json()["error"]["type"], class);
    }
    for (field, value, status) in [
        ("max_tokens", Value::Null, 400),
        ("thinking", json!({"type": "enabled", "budget_tokens": 1024}), 400),
        ("model", json!("none-such"), 404),
    ] {
        let mut bad = body.clone();
        bad[field] = value;
        let reply = server.client.post("/v1/messages", &bad).await;
        assert_eq!((reply.status, &reply.json()["type"]), (status, &json!("error")), "{}", reply.body);
        let said = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(said.contains(field), "{said}");
    }
    assert_eq!(server.client.get("/v1/messages").await.status, 405);
    server.until_free().await;
}

/// A request as a coding agent sends it: its thinking on, its caches marked, what it thought and called among what was said.
fn of_agent() -> Value {
    let cached = json!({"type": "ephemeral"});
    json!({"model": "double", "max_tokens": 32_000, "temperature": 1,
        "metadata": {"user_id": "user_1_session_2"},
        "thinking": {"type": "enabled", "budget_tokens": 31_999},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "system": [{"type": "text", "text": "You help with code.", "cache_control": cached},
            {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        "tools": [{"name": "Read", "description": "Reads a file.", "cache_control": cached, "input_schema": {
            "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "required": ["path"],
            "properties": {"path": {"type": "string"}}, "additionalProperties": false}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "say w1", "cache_control": cached}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Which file?", "signature": "s"},
                {"type": "redacted_thinking", "data": "d"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "a"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": false, "cache_control": cached,
                    "content": [{"type": "text", "text": "found"}]},
                {"type": "text", "text": "say w7"}]}]})
}

#[actix_web::test]
async fn a_request_of_a_coding_agent_is_answered_and_counted_and_what_has_no_effect_is_named() {
    const IGNORED: &str = "x-relserve-ignored-fields";
    let server = chatty().await;
    let send = async |path: &str, body: &Value| {
        let bytes = server.client.request("POST", path, "application/json", body.to_string().as_bytes());
        let text = String::from_utf8(bytes).unwrap();
        let headers = "\r\nAnthropic-Beta: interleaved-thinking-2025-05-14,context-management-2025-06-27\r\n";
        server.client.raw(text.replacen("\r\n", headers, 1).as_bytes()).await
    };
    let mut body = of_agent();
    let reply = send("/v1/messages?beta=true", &body).await;
    assert_eq!((reply.status, reply.header(IGNORED)), (200, Some("thinking, max_tokens")), "{}", reply.body);
    let message = reply.json();
    assert_eq!(message["content"], json!([{"type": "text", "text": "w7"}]));
    body["stream"] = true.into();
    let stream = send("/v1/messages?beta=true", &body).await;
    assert_eq!((stream.status, stream.header(IGNORED)), (200, Some("thinking, max_tokens")));
    let events = stream.events();
    let said = events.iter().filter_map(|(_, data)| data["delta"]["text"].as_str());
    assert_eq!(said.collect::<String>(), "w7");
    // The same conversation is counted without a limit; what was thought is no part of it.
    body.as_object_mut().unwrap().retain(|field, _| !["stream", "max_tokens"].contains(&field.as_str()));
    let counted = send("/v1/messages/count_tokens?beta=true", &body).await;
    assert_eq!((counted.status, counted.header(IGNORED)), (200, Some("thinking")), "{}", counted.body);
    let usage = &message["usage"];
    let prompt = |field: &str| usage[field].as_u64().unwrap();
    assert_eq!(counted.json()["input_tokens"], prompt("input_tokens") + prompt("cache_read_input_tokens"));
    body["messages"][1]["content"].as_array_mut().unwrap().drain(..2);
    let unthought = send("/v1/messages/count_tokens", &body).await;
    assert_eq!(unthought.json(), counted.json());
    server.until_free().await;
}

#[actix_web::test]
async fn where_what_has_no_effect_is_refused_so_are_thinking_and_edits_that_clear_more() {
    let mut config = config();
    config.openai.unknown_fields = UnknownFields::Refuse;
    let server = serve_with(config, Model { has_chat: true, ..model() }).await;
    let mut body = of_agent();
    body["max_tokens"] = 8.into();
    for (field, value) in [
        ("thinking", json!({"type": "enabled", "budget_tokens": 1_024})),
        ("context_management", json!({"edits": [{"type": "clear_tool_uses_20250919"}]})),
    ] {
        let mut bad = body.clone();
        bad["thinking"] = json!({"type": "adaptive"});
        bad[field] = value;
        let reply = server.client.post("/v1/messages", &bad).await;
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(field)), "{}", reply.body);
    }
    body["thinking"] = json!({"type": "adaptive"});
    let reply = server.client.post("/v1/messages", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    server.until_free().await;
}

#[actix_web::test]
async fn the_id_of_a_request_comes_under_anthropics_name_too_and_unknown_fields_are_told() {
    let server = chatty().await;
    let body = json!({"model": "double", "max_tokens": 8, "thinking": {"type": "adaptive"}, "strange": 1,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "say x", "seen": true}]}]});
    let reply = server.client.post("/v1/messages", &body).await;
    assert_eq!((reply.status, &reply.json()["content"][0]["text"]), (200, &json!("x")), "{}", reply.body);
    let ignored = reply.header("x-relserve-ignored-fields");
    assert_eq!(ignored, Some("messages[0].content[0].seen, strange"));
    let refused = server.client.post("/v1/messages", &json!({})).await;
    for reply in [&reply, &refused] {
        assert!(reply.header("request-id").is_some_and(|id| !id.is_empty()), "{}", reply.body);
        assert_eq!(reply.header("request-id"), reply.header("x-request-id"));
    }
    let chat = server.client.post("/v1/chat/completions", &json!({})).await;
    assert_eq!(chat.header("request-id"), None);
    server.until_free().await;
}
