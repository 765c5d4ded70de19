//! OpenAI's `/v1/responses`: the same answers as chats, in another shape, and those that are kept.

use base::{Bytes, Millis};
use serde_json::{Value, json};
use serving::model::Model;
use store::UnixMillis;

use crate::common::{Server, config, key_of, model, serve_with};

async fn chatty() -> Server {
    serve_with(config(), Model { has_chat: true, ..model() }).await
}

/// The data of a stream's events, whose names stand in them too.
fn named(events: Vec<(String, Value)>) -> Vec<Value> {
    let same = |(name, data): (String, Value)| {
        assert_eq!(data["type"], name.as_str());
        data
    };
    events.into_iter().map(same).collect()
}

#[actix_web::test]
async fn a_response_has_the_answer_the_usage_and_what_was_asked() {
    let server = chatty().await;
    let body = json!({"model": "double", "instructions": "Say the last word.", "temperature": 0, "max_output_tokens": 8,
        "metadata": {"team": "x"}, "input": [{"role": "user", "content": [{"type": "input_text", "text": "row w7"}]}]});
    let reply = server.client.post("/v1/responses", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let response = reply.json();
    assert_eq!((&response["object"], &response["status"]), (&json!("response"), &json!("completed")));
    let message = &response["output"][0];
    assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(message["content"], json!([{"type": "output_text", "text": "w7", "annotations": []}]));
    assert_eq!(
        (&response["instructions"], &response["metadata"]),
        (&body["instructions"], &body["metadata"])
    );
    // What is in force and was not asked for is told too.
    let in_force = json!({"truncation": "disabled", "service_tier": "default", "reasoning": {"effort": null, "summary": null},
        "top_logprobs": 0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "max_tool_calls": null});
    for (field, value) in in_force.as_object().unwrap() {
        assert_eq!(&response[field], value, "{field}");
        assert!(response.as_object().unwrap().contains_key(field), "{field}");
    }
    // The same tokens as a chat of the same words.
    let chat = json!({"model": "double", "temperature": 0, "max_tokens": 8, "messages": [
        {"role": "system", "content": "Say the last word."}, {"role": "user", "content": "row w7"}]});
    let usage = server.client.post("/v1/chat/completions", &chat).await.json()["usage"].clone();
    assert_eq!(response["usage"]["input_tokens"], usage["prompt_tokens"]);
    assert_eq!(response["usage"]["output_tokens"], usage["completion_tokens"]);
    // An answer that meets its limit.
    let mut short = body.clone();
    short["max_output_tokens"] = 1.into();
    let short = server.client.post("/v1/responses", &short).await.json();
    assert_eq!(
        (&short["status"], &short["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
    server.until_free().await;
}

#[actix_web::test]
async fn the_oldest_messages_are_left_out_of_what_does_not_fit_where_that_is_asked_for() {
    let server = chatty().await;
    let long = "x ".repeat(900);
    let mut body = json!({"model": "double", "instructions": "Be brief.", "max_output_tokens": 8, "temperature": 0,
        "input": [{"role": "user", "content": long}, {"role": "assistant", "content": long},
            {"role": "user", "content": "say w7"}]});
    let refused = server.client.post("/v1/responses", &body).await;
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert_eq!(refused.json()["error"]["code"], "context_length_exceeded");
    body["truncation"] = "auto".into();
    let reply = server.client.post("/v1/responses", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let response = reply.json();
    assert_eq!(
        (&response["truncation"], &response["output"][0]["content"][0]["text"]),
        (&json!("auto"), &json!("w7"))
    );
    body["input"] = "say w7".into();
    let alone = server.client.post("/v1/responses", &body).await.json();
    assert_eq!(response["usage"]["input_tokens"], alone["usage"]["input_tokens"], "as without them");
    server.until_free().await;
}

#[actix_web::test]
async fn an_inputs_tokens_are_counted_as_its_response_has_them_and_nothing_runs() {
    let server = chatty().await;
    let count = async |body: &Value| server.client.post("/v1/responses/input_tokens", body).await;
    let body = json!({"model": "double", "instructions": "Say the last word.", "input": "row w7", "max_output_tokens": 8});
    let first = server.client.post("/v1/responses", &body).await.json();
    server.until_free().await;
    let (steps, ended) = (server.gate.passed(), server.metric("relserve_rows_total{outcome=\"stop\"}"));
    let counted = count(&body).await;
    assert_eq!(counted.status, 200, "{}", counted.body);
    let expected = json!({"object": "response.input_tokens", "input_tokens": first["usage"]["input_tokens"]});
    assert_eq!(counted.json(), expected);
    // What was said before counts too.
    let next = json!({"model": "double", "input": "and now?", "previous_response_id": first["id"], "max_output_tokens": 8});
    let counted = count(&next).await.json()["input_tokens"].clone();
    assert_eq!(
        (server.gate.passed(), server.metric("relserve_rows_total{outcome=\"stop\"}")),
        (steps, ended),
        "no step ran, no row ended"
    );
    let second = server.client.post("/v1/responses", &next).await.json();
    assert_eq!(second["usage"]["input_tokens"], counted, "{second}");
    for (body, status, part) in [
        (json!({"input": "x", "previous_response_id": "resp-1"}), 404, "resp-1"),
        (json!({"input": 7}), 400, "`input`"),
        (json!({}), 400, "`input`"),
    ] {
        let refused = count(&body).await;
        assert!(refused.status == status && refused.error().contains(part), "{body}: {}", refused.body);
    }
    assert_eq!(server.client.get("/v1/responses/input_tokens").await.status, 405);
    server.until_free().await;
}

#[actix_web::test]
async fn a_stream_of_a_response_begins_grows_and_ends_with_all_of_it() {
    let server = chatty().await;
    let body = json!({"model": "double", "input": "say something", "max_output_tokens": 16, "stream": true});
    let events = named(server.client.post("/v1/responses", &body).await.events());
    let names: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!((names[0], names[1]), ("response.created", "response.in_progress"));
    assert_eq!(names.last(), Some(&"response.completed"));
    let deltas: String =
        events.iter().filter_map(|event| event["delta"].as_str()).collect::<Vec<_>>().concat();
    let whole = &events.last().unwrap()["response"]["output"][0]["content"][0]["text"];
    assert_eq!((deltas.as_str(), whole), ("something", &json!("something")));
    server.until_free().await;
}

#[actix_web::test]
async fn a_deadline_ends_a_response_and_what_is_not_kept_here_is_not_found() {
    let server = chatty().await;
    server.gate.shut();
    let body = json!({"model": "double", "input": "say x", "deadline_ms": 1, "stream": true});
    let reply = server.client.post("/v1/responses", &body).await;
    assert!(reply.body.contains("deadline"), "{}", reply.body);
    server.gate.release();
    server.until_free().await;
    let before = json!({"model": "double", "input": "and now?", "previous_response_id": "resp-1"});
    let reply = server.client.post("/v1/responses", &before).await;
    assert_eq!(reply.status, 404, "{}", reply.body);
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("resp-1"), "{}", reply.body);
    let escaped = before.to_string().replace("previous_response_id", "previous_response\\u005fid");
    let bytes = server.client.request("POST", "/v1/responses", "application/json", escaped.as_bytes());
    let reply = server.client.raw(&bytes).await;
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("previous_response_id")));
}

/// The texts of a conversation's items.
fn texts(items: &Value) -> Vec<&str> {
    let items = items.as_array().unwrap();
    items.iter().map(|item| item["content"][0]["text"].as_str().unwrap_or("-")).collect()
}

#[actix_web::test]
async fn a_request_goes_on_from_a_response_that_is_kept_streamed_or_not() {
    let server = chatty().await;
    let ask = |input: &str, before: &Value, stream: bool| {
        json!({"model": "double", "input": input, "previous_response_id": before, "stream": stream,
            "instructions": "Be brief.", "max_output_tokens": 8})
    };
    let first = server.client.post("/v1/responses", &ask("say one", &Value::Null, false)).await.json();
    assert_eq!((&first["store"], &first["previous_response_id"]), (&json!(true), &Value::Null));
    let events =
        named(server.client.post("/v1/responses", &ask("say two", &first["id"], true)).await.events());
    let second = &events.last().unwrap()["response"];
    assert_eq!((&second["previous_response_id"], &second["store"]), (&first["id"], &json!(true)));
    let third = server.client.post("/v1/responses", &ask("say three", &second["id"], false)).await.json();
    // The prompt is that of a chat with all that was said, and the last instructions alone.
    let said = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "say one"},
        {"role": "assistant", "content": "one"}, {"role": "user", "content": "say two"},
        {"role": "assistant", "content": "two"}, {"role": "user", "content": "say three"}]);
    let chat = json!({"model": "double", "max_tokens": 8, "messages": said});
    let chat = server.client.post("/v1/chat/completions", &chat).await.json();
    assert_eq!(third["usage"]["input_tokens"], chat["usage"]["prompt_tokens"]);
    // It is shown as it was answered, and its input from the newest item on.
    let path = format!("/v1/responses/{}", third["id"].as_str().unwrap());
    assert_eq!(server.client.get(&path).await.json(), third);
    let items = server.client.get(&format!("{path}/input_items")).await.json();
    assert_eq!(texts(&items["data"]), ["say three", "two", "say two", "one", "say one"]);
    assert_eq!((&items["has_more"], &items["first_id"]), (&json!(false), &items["data"][0]["id"]));
    let page = server.client.get(&format!("{path}/input_items?order=asc&limit=2")).await.json();
    assert_eq!((texts(&page["data"]), &page["has_more"]), (vec!["say one", "one"], &json!(true)));
    let after = page["last_id"].as_str().unwrap();
    let page = server.client.get(&format!("{path}/input_items?order=asc&limit=2&after={after}")).await.json();
    assert_eq!(texts(&page["data"]), ["say two", "two"]);
    for (query, param) in [("order=up", "order"), ("limit=0", "limit"), ("limit=101", "limit")] {
        let reply = server.client.get(&format!("{path}/input_items?{query}")).await;
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{query}");
    }
    // What is forgotten is gone; what went on from it is not.
    let first_path = format!("/v1/responses/{}", first["id"].as_str().unwrap());
    assert_eq!(server.client.delete(&first_path).await.json()["deleted"], true);
    assert_eq!(server.client.get(&first_path).await.status, 404);
    assert_eq!(server.client.delete(&first_path).await.status, 404);
    let items = server.client.get(&format!("{path}/input_items")).await.json();
    assert_eq!(items["data"].as_array().unwrap().len(), 5);
    server.until_free().await;
}

#[actix_web::test]
async fn what_is_not_to_be_kept_is_not_and_nobody_finds_anothers() {
    let mut config = config();
    config.openai.tenant_responses_bytes_max = Bytes(2_000);
    let server = serve_with(config, Model { has_chat: true, ..model() }).await;
    let ask = |input: &str, store: Value| json!({"model": "double", "input": input, "store": store, "max_output_tokens": 8});
    let path = |reply: &Value| format!("/v1/responses/{}", reply["id"].as_str().unwrap());
    let unkept = server.client.post("/v1/responses", &ask("say one", json!(false))).await.json();
    assert_eq!(unkept["store"], false);
    let gone = server.client.get(&path(&unkept)).await;
    let words = format!("Response with id '{}' not found.", unkept["id"].as_str().unwrap());
    assert_eq!((gone.status, gone.error()), (404, words), "OpenAI's words");
    // What is larger than all that may be kept says that it is not; its answer is whole.
    let long = ask(&format!("say {}", "x ".repeat(900)), json!(true));
    let long = server.client.post("/v1/responses", &long).await.json();
    assert_eq!((&long["store"], &long["status"]), (&json!(false), &json!("completed")), "{long}");
    assert_eq!(server.client.get(&path(&long)).await.status, 404);
    let kept = server.client.post("/v1/responses", &ask("say two", Value::Null)).await.json();
    assert_eq!(kept["store"], true);
    let store = &server.running.app.runtime.store;
    let zeta = store.create_tenant("zeta", 1.0, UnixMillis(1)).await.unwrap().id;
    let other = server.client.with_key(&key_of(store, zeta).await);
    for reply in [other.get(&path(&kept)).await, other.delete(&path(&kept)).await] {
        assert_eq!(reply.status, 404);
    }
    let steal = json!({"model": "double", "input": "and?", "previous_response_id": kept["id"]});
    assert_eq!(other.post("/v1/responses", &steal).await.status, 404);
    assert_eq!(server.client.get(&path(&kept)).await.json(), kept);
    server.until_free().await;
}

#[actix_web::test]
async fn a_response_is_forgotten_when_its_time_is_over() {
    let mut config = config();
    config.openai.responses_ms_max = Millis(0);
    let server = serve_with(config, Model { has_chat: true, ..model() }).await;
    let body = json!({"model": "double", "input": "say one", "max_output_tokens": 8});
    let reply = server.client.post("/v1/responses", &body).await.json();
    assert_eq!(reply["store"], true);
    let path = format!("/v1/responses/{}", reply["id"].as_str().unwrap());
    assert_eq!(server.client.get(&path).await.status, 404);
    server.until_free().await;
}
