//! Anthropic's `/v1/messages`: the same answers as chats, in another shape.

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
