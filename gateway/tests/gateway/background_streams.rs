//! Events of responses in the background: they go on when their client has gone, and are told again from any of them on,
//! the same ones by the same numbers, after a restart too.

use base::Millis;
use serde_json::{Value, json};
use store::UnixMillis;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::background::{cancel, chatty, path_of, read, serve, until};
use crate::common::client::{Client, Reply, finish, read_until};
use crate::common::replica::{FakeReplica, fleet};
use crate::common::{Server, key_of, lasting_store, serve_fleet_on};
use crate::constraints::serve_demo;
use crate::takes::{database, end, serve_shut_with};

const SAID: &str = "one two three four";

/// A request whose answer is [`SAID`].
fn ask() -> Value {
    json!({"model": "double", "input": format!("Repeat: {SAID}"), "background": true, "stream": true,
        "max_output_tokens": 64})
}

/// The events of a stream that is read to its end.
pub(crate) fn events(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    let same = |(name, data): (String, Value)| {
        assert_eq!(data["type"], name.as_str());
        data
    };
    reply.events().into_iter().map(same).collect()
}

/// The events of a response, followed to its end.
pub(crate) async fn told(client: &Client, response: &Value, query: &str) -> Vec<Value> {
    events(&client.get(&format!("{}?stream=true{query}", path_of(response))).await)
}

/// Begins to read a response behind an event.
pub(crate) async fn follow(client: &Client, response: &Value, after: u64) -> TcpStream {
    let path = format!("{}?stream=true&starting_after={after}", path_of(response));
    client.send(&client.request("GET", &path, "application/json", b"")).await
}

/// Begins a response that is streamed. What is known of it so far, and its stream.
pub(crate) async fn begin(client: &Client) -> (Value, TcpStream) {
    let mut stream = client.begin("/v1/responses", &ask()).await;
    let text = read_until(&mut stream, "\"type\":\"response.queued\"").await;
    let (_, id) = text.split_once("\"id\":\"").unwrap_or_else(|| panic!("no id: {text}"));
    let (id, _) = id.split_once('"').unwrap();
    (json!({ "id": id }), stream)
}

pub(crate) fn deltas(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["delta"].as_str()).collect()
}

pub(crate) fn numbers(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect()
}

#[actix_web::test]
async fn events_go_on_without_their_client_and_are_told_again_from_any_on() {
    let server = serve().await;
    let client = &server.client;
    server.gate.shut();
    let (response, mut first) = begin(client).await;
    assert_eq!(read(client, &response).await["status"], "queued");
    server.gate.allow(6);
    read_until(&mut first, "response.output_text.delta").await;
    drop(first);
    // One reads along as it goes on; one never reads on, and delays nobody.
    let mut silent = follow(client, &response, 2).await;
    let along = read_until(&mut silent, "response.output_text.delta").await;
    assert!(!along.contains("response.in_progress") && along.contains("\"sequence_number\":3"), "{along}");
    let reader = follow(client, &response, 4).await;
    server.gate.release();
    let rest = events(&finish(reader).await);
    let done = until(client, &response, "completed").await;
    let all = told(client, &response, "").await;
    assert_eq!(numbers(&all), (0..all.len() as u64).collect::<Vec<_>>());
    let names: Vec<&str> = all.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["response.created", "response.queued", "response.in_progress"]);
    assert_eq!(all[0]["response"]["status"], "queued");
    assert_eq!(deltas(&all), ["one", " two", " three", " four"]);
    assert_eq!((names[names.len() - 1], &all[all.len() - 1]["response"]), ("response.completed", &done));
    assert_eq!(rest, all[5..], "read along and told again");
    for after in [0, 7, all.len() as u64 - 1, 4_000_000_000] {
        let from = all.len().min(after as usize + 1);
        assert_eq!(told(client, &response, &format!("&starting_after={after}")).await, all[from..]);
    }
    drop(silent);
    assert_eq!(server.metric("relserve_disconnects_total"), 0.0, "nobody's leaving ends it");
    server.until_free().await;
}

#[actix_web::test]
async fn one_that_was_not_asked_for_as_a_stream_is_told_too() {
    let server = serve().await;
    let mut body = ask();
    body["stream"] = false.into();
    let response = server.client.post("/v1/responses", &body).await.json();
    let all = told(&server.client, &response, "").await;
    assert_eq!(all[0]["response"], response);
    assert_eq!(deltas(&all).concat(), SAID);
    server.until_free().await;
}

#[actix_web::test]
async fn a_response_that_is_called_off_or_deleted_ends_its_streams() {
    let server = serve().await;
    let client = &server.client;
    server.gate.shut();
    let (response, mut first) = begin(client).await;
    let cancelled = cancel(client, &response).await;
    let mut text = String::new();
    first.read_to_string(&mut text).await.unwrap();
    assert!(text.contains("event: response.cancelled"), "{text}");
    let all = told(client, &response, "").await;
    let last = all.last().unwrap();
    assert_eq!((&last["type"], &last["response"]), (&json!("response.cancelled"), &cancelled));
    // Its end comes behind whatever its reader has.
    let late = told(client, &response, "&starting_after=40").await;
    assert_eq!((late.len(), &late[0]["sequence_number"]), (1, &json!(41)));

    let (response, mut stream) = begin(client).await;
    assert_eq!(client.delete(&path_of(&response)).await.status, 200);
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.contains("event: error") && text.contains("not found"), "{text}");
    server.gate.release();
    server.until_free().await;
}

#[actix_web::test]
async fn events_are_their_tenants_and_of_the_background_alone() {
    let server = serve().await;
    let client = &server.client;
    let (response, _stream) = begin(client).await;
    let store = &server.running.app.runtime.store;
    let zeta = store.create_tenant("zeta", 1.0, UnixMillis(1)).await.unwrap().id;
    let other = client.with_key(&key_of(store, zeta).await);
    for path in [format!("{}?stream=true", path_of(&response)), "/v1/responses/resp-1?stream=true".into()] {
        assert_eq!(other.get(&path).await.status, 404, "{path}");
    }
    let waited = json!({"model": "double", "input": "say one", "max_output_tokens": 8});
    let waited = client.post("/v1/responses", &waited).await.json();
    let reply = client.get(&format!("{}?stream=true", path_of(&waited))).await;
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("stream")), "{}", reply.body);
    server.until_free().await;
}

#[actix_web::test]
async fn after_a_restart_the_same_events_have_the_same_numbers() {
    let (folder, _database) = database().await;
    let first = serve_shut_with(folder.path(), chatty()).await;
    let (response, mut stream) = begin(&first.client).await;
    first.gate.allow(6);
    read_until(&mut stream, "response.output_text.delta").await;
    end(first).await;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.contains("event: error") && !text.contains("response.failed"), "{text}");

    let second = serve_shut_with(folder.path(), chatty()).await;
    let reader = follow(&second.client, &response, 5).await;
    second.gate.release();
    let rest = events(&finish(reader).await);
    assert_eq!(deltas(&rest), [" two", " three", " four"], "the first is event 5");
    let all = told(&second.client, &response, "").await;
    assert_eq!(rest, all[6..]);
    end(second).await;
    let third = serve_shut_with(folder.path(), chatty()).await;
    assert_eq!(told(&third.client, &response, "").await, all, "from what is kept");
    third.gate.release();
    third.until_free().await;
}

#[actix_web::test]
async fn log_probabilities_come_with_the_words_that_they_are_of_and_are_told_again() {
    let (running, client) = serve_demo().await;
    let ask = json!({"model": "relserve-demo", "input": "How was it?", "max_output_tokens": 12,
        "temperature": 0, "include": ["message.output_text.logprobs"], "top_logprobs": 2,
        "background": true, "stream": true});
    let live = events(&client.post("/v1/responses", &ask).await);
    let response = &live[0]["response"];
    assert_eq!(told(&client, response, "").await, live);
    let from = live.iter().position(|event| event["delta"].is_string()).unwrap();
    assert_eq!(told(&client, response, &format!("&starting_after={from}")).await, live[from + 1..]);
    let done = &live.last().unwrap()["response"]["output"][0]["content"][0]["logprobs"];
    let done = done.as_array().unwrap();
    assert!(!done.is_empty() && done.iter().all(|token| token["top_logprobs"][1].is_object()), "{done:?}");
    for kind in ["response.output_text.delta", "response.output_text.done"] {
        let of_kind = live.iter().filter(|event| event["type"] == kind);
        let tokens: Vec<Value> =
            of_kind.flat_map(|event| event["logprobs"].as_array().unwrap().clone()).collect();
        assert_eq!(&tokens, done, "{kind}");
    }
    running.drain(std::future::pending()).await;
}

/// Waits until the replica was asked so often; by what it was to draw then.
async fn asked(server: &Server, replica: &FakeReplica, times: usize) -> Value {
    server.until("the replica is asked", |_| replica.state().asked.len() == times).await;
    replica.state().asked[times - 1]["seed"].clone()
}

#[actix_web::test]
async fn an_answer_that_begins_anew_is_drawn_as_it_was() {
    let (_folder, store) = lasting_store().await;
    let replica = FakeReplica::start().await;
    let gate = replica.shut();
    let config = || {
        let mut config = fleet(vec![replica.executor()]);
        config.server.drain_ms_max = Millis(0);
        config
    };
    let first = serve_fleet_on(config(), store.clone()).await;
    let mut body = ask();
    body["model"] = "m".into();
    body["temperature"] = json!(0.9);
    body["stream"] = false.into();
    let response = first.client.post("/v1/responses", &body).await.json();
    let drawn = asked(&first, &replica, 1).await;
    assert!(drawn.is_u64(), "{drawn}");
    first.running.drain(std::future::pending()).await;
    let second = serve_fleet_on(config(), store).await;
    assert_eq!(asked(&second, &replica, 2).await, drawn);
    gate.add_permits(9);
    until(&second.client, &response, "completed").await;
}
