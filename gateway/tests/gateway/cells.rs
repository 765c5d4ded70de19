//! Cell functions: values, errors, and calls that find each other.

use serde_json::json;

use crate::common::client::finish;
use crate::common::serve;

#[actix_web::test]
async fn every_call_has_its_own_value_or_error_in_order() {
    let server = serve().await;
    let calls = json!([
        {"function": "classify", "args": ["a film that is good", ["Good", "bad"]]},
        {"function": "rate", "args": ["worth a 4"]},
        {"function": "nonsense", "args": ["x"]},
        {"function": "list", "args": ["colours: red"]},
        {"function": "classify", "args": ["what?", ["good", "bad"]]},
        {"function": "summarize", "args": [["a", "range"]]},
        {"function": "ask", "args": ["hello there"]},
    ]);
    let reply = server.client.post("/v1/cells", &json!({"calls": calls})).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let json = reply.json();
    assert_eq!((json["object"].as_str(), json["status"].as_str()), (Some("cells"), Some("completed")));
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(cells[0], json!({"value": "Good"}));
    assert_eq!(cells[1], json!({"value": 4}));
    assert!(cells[2]["error"]["message"].as_str().unwrap().contains("nonsense"));
    assert_eq!(cells[3], json!({"value": ["red"]}));
    assert!(cells[4]["error"]["message"].as_str().unwrap().contains("none of the labels"));
    assert!(cells[5]["error"]["message"].as_str().unwrap().contains("one cell"));
    assert_eq!(cells[6], json!({"value": "there"}));
    assert!(json["usage"]["prompt_tokens"].as_u64().unwrap() > 0);
}

#[actix_web::test]
async fn json_in_a_plain_text_body_is_read_and_cells_stream() {
    let server = serve().await;
    let body = br#"{"calls":[{"function":"ask","args":["say x"]},{"function":"ask","args":["say y"]}],"stream":true}"#;
    let reply = server.client.post_bytes("/v1/cells", "text/plain;charset=utf-8", body).await;
    let events = reply.events();
    assert_eq!(events.len(), 3, "{}", reply.body);
    assert!(events[..2].iter().all(|(name, cell)| name == "cell" && cell["value"].is_string()));
    assert_eq!((events[2].0.as_str(), events[2].1["status"].as_str()), ("done", Some("completed")));
}

#[actix_web::test]
async fn single_calls_join_the_open_relquery_of_their_function() {
    let server = serve().await;
    server.gate.shut();
    let call =
        |text: &str, labels: &[&str]| json!({"calls": [{"function": "classify", "args": [text, labels]}]});
    let same = ["good", "bad"];
    let first = server.client.begin("/v1/cells", &call("1 good", &same)).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    let second = server.client.begin("/v1/cells", &call("2 bad", &same)).await;
    let other = server.client.begin("/v1/cells", &call("3 bad", &["ugly", "bad"])).await;
    server.until("all arrive", |server| server.running.app.runtime.registry.running().len() == 3).await;
    server.gate.release();
    for (stream, value) in [(first, "good"), (second, "bad"), (other, "bad")] {
        assert_eq!(finish(stream).await.json()["cells"], json!([{"value": value}]));
    }
    assert_eq!(server.metric("relserve_rows_coalesced_total"), 1.0);
    server.until("everything is free", |server| server.is_free()).await;
}

#[actix_web::test]
async fn a_call_that_leaves_takes_only_its_own_row_away() {
    let server = serve().await;
    server.gate.shut();
    let call = |text: &str| json!({"calls": [{"function": "ask", "args": [text]}]});
    let first = server.client.begin("/v1/cells", &call("1 one")).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    let second = server.client.begin("/v1/cells", &call("2 two")).await;
    server.until("both are there", |server| server.running.app.runtime.registry.running().len() == 2).await;
    drop(first);
    server.until("it is noticed", |server| server.metric("relserve_disconnects_total") == 1.0).await;
    server.gate.release();
    assert_eq!(finish(second).await.json()["cells"], json!([{"value": "two"}]));
    server.until("everything is free", |server| server.is_free()).await;
}

#[actix_web::test]
async fn the_catalogue_lists_what_can_be_called() {
    let server = serve().await;
    let reply = server.client.get("/v1/catalogue").await.json();
    let names: Vec<_> =
        reply["data"].as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
    for name in [
        "ask",
        "classify",
        "extract",
        "summarize",
        "translate",
        "tag",
        "format",
        "edit",
        "fill",
        "list",
        "rate",
    ] {
        assert!(names.contains(&name), "{name} is missing");
    }
}
