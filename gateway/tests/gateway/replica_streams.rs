//! Text and log probabilities of servers: an answer goes out as it is said where that is safe, and never twice.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::common::client::{Reply, read_until};
use crate::common::replica::{Act, FakeReplica, fleet};
use crate::common::{Server, serve_fleet};

async fn front(replica: &FakeReplica) -> Server {
    let server = serve_fleet(fleet(vec![replica.executor()])).await;
    let is_up = |server: &Server| server.running.app.runtime.view().replicas.iter().all(|one| one.is_up);
    server.until("the replica is up", is_up).await;
    server
}

fn chat(word: &str) -> Value {
    json!({"model": "m", "stream": true, "stream_options": {"include_usage": true}, "temperature": 0,
        "messages": [{"role": "user", "content": format!("say {word}")}]})
}

/// The text of a stream's chunks.
fn said(reply: &Reply) -> String {
    let text = |(_, chunk): (String, Value)| {
        let choice = &chunk["choices"][0];
        choice["delta"]["content"].as_str().or(choice["text"].as_str()).unwrap_or_default().to_owned()
    };
    reply.events().into_iter().map(text).collect()
}

#[actix_web::test]
async fn text_goes_out_as_the_server_says_it_and_is_counted_once() {
    let a = FakeReplica::start().await;
    let server = front(&a).await;
    let goes_on = Arc::new(Notify::new());
    a.next([Act::StreamHalf(Arc::clone(&goes_on))]);
    let mut stream = server.client.begin("/v1/chat/completions", &chat("greetings")).await;
    let first = read_until(&mut stream, "gree").await;
    assert!(!first.contains("tings"), "the rest was not said yet: {first}");
    goes_on.notify_one();
    let rest = finish_text(stream).await;
    assert!(rest.contains("\"tings\"") && rest.contains("[DONE]"), "{rest}");
    assert!(rest.contains("\"completion_tokens\":2") && rest.contains("\"cached_tokens\":4"), "{rest}");
    let asked = a.state().asked[0].clone();
    assert_eq!((&asked["stream"], &asked["stream_options"]), (&json!(true), &json!({"include_usage": true})));
    let text = json!({"model": "m", "stream": true, "prompt": "go on", "max_tokens": 5});
    assert_eq!(said(&server.client.post("/v1/completions", &text).await), "on");
    server.until_rows_end().await;
    assert_eq!(server.metric("relserve_replica_output_tokens_total{replica=\"0\"}"), 4.0);
}

#[actix_web::test]
async fn each_of_several_answers_goes_out_as_it_is_said() {
    let a = FakeReplica::start().await;
    let server = front(&a).await;
    let goes_on = [Arc::new(Notify::new()), Arc::new(Notify::new())];
    a.next(goes_on.clone().map(Act::StreamHalf));
    let mut body = chat("greetings");
    (body["n"], body["temperature"]) = (json!(2), json!(1));
    let mut stream = server.client.begin("/v1/chat/completions", &body).await;
    let first = read_until(&mut stream, "gree").await;
    assert!(!first.contains("tings"), "the rest was not said yet: {first}");
    goes_on.iter().for_each(|one| one.notify_one());
    let all = first + &finish_text(stream).await;
    assert_eq!((all.matches("gree").count(), all.matches("tings").count()), (2, 2), "{all}");
    for part in ["\"index\":0", "\"index\":1", "[DONE]"] {
        assert!(all.contains(part), "{part}: {all}");
    }
    assert!(a.state().asked.iter().all(|asked| asked["stream"] == true));
}

/// What is left of a stream.
async fn finish_text(mut stream: tokio::net::TcpStream) -> String {
    let mut text = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut text).await.unwrap();
    text
}

#[actix_web::test]
async fn a_server_that_fails_before_it_says_anything_is_followed_by_another_try() {
    let a = FakeReplica::start().await;
    let server = front(&a).await;
    a.next([Act::Reply(500, "", "boom"), Act::Break]);
    // Of a word of one letter the first half is nothing.
    let reply = server.client.post("/v1/chat/completions", &chat("x")).await;
    assert_eq!(said(&reply), "x", "{}", reply.body);
    assert!(reply.body.contains("[DONE]"), "{}", reply.body);
    assert_eq!(a.state().asked.len(), 3);
}

#[actix_web::test]
async fn a_server_that_fails_in_the_middle_ends_the_stream_with_an_error_and_nothing_is_said_twice() {
    let a = FakeReplica::start().await;
    let server = front(&a).await;
    a.next([Act::Break]);
    let reply = server.client.post("/v1/chat/completions", &chat("greetings")).await;
    assert_eq!(said(&reply), "gree", "{}", reply.body);
    assert!(!reply.body.contains("[DONE]"), "{}", reply.body);
    let (_, last) = reply.events().pop().unwrap();
    let message = last["error"]["message"].as_str().unwrap_or_else(|| panic!("{}", reply.body));
    assert!(message.contains("failed after the answer had begun"), "{message}");
    assert_eq!(a.state().asked.len(), 1, "it was not tried again");
    assert_eq!(said(&server.client.post("/v1/chat/completions", &chat("again")).await), "again");
}

#[actix_web::test]
async fn a_client_that_leaves_in_the_middle_ends_the_servers_stream() {
    let a = FakeReplica::start().await;
    let server = front(&a).await;
    a.next([Act::StreamHalf(Arc::default())]);
    let mut stream = server.client.begin("/v1/chat/completions", &chat("greetings")).await;
    read_until(&mut stream, "gree").await;
    drop(stream);
    server.until("the request is gone", |_| a.state().left == 1).await;
    server.until_rows_end().await;
}

#[actix_web::test]
async fn what_may_be_tried_again_or_shared_is_taken_whole() {
    let a = FakeReplica::start().await;
    let server = front(&a).await;
    let mut constrained = chat("good");
    constrained["constraint"] = json!({"choice": ["good", "bad"]});
    let mut cached = chat("kept");
    cached["cache"] = json!(true);
    let mut many = json!({"model": "m", "stream": true, "prompt": ["one", "two"], "max_tokens": 5});
    many["temperature"] = json!(0);
    let table = json!({"template": "Say {w}", "rows": [["w0"]], "stream": true, "cache": false});
    for (path, body) in [
        ("/v1/chat/completions", constrained),
        ("/v1/chat/completions", cached),
        ("/v1/completions", many),
        ("/v1/relqueries", table),
    ] {
        // Half of a reply is nothing, and is asked for again.
        a.next([Act::Break]);
        let reply = server.client.post(path, &body).await;
        assert!(reply.status == 200 && !reply.body.contains("\"error\":{"), "{path}: {}", reply.body);
    }
    assert!(a.state().asked.iter().all(|asked| asked.get("stream").is_none()));
}

#[actix_web::test]
async fn log_probabilities_come_back_in_the_shape_of_the_route() {
    let a = FakeReplica::start().await;
    let server = front(&a).await;
    let mut body = chat("hello");
    (body["logprobs"], body["top_logprobs"]) = (json!(true), json!(1));
    let one = json!({"token": "hello", "logprob": -0.25, "bytes": b"hello"});
    let mut token = one.clone();
    token["top_logprobs"] = json!([one]);
    let expected = json!({"content": [token], "refusal": null});
    let streamed = server.client.post("/v1/chat/completions", &body).await;
    let chunks = streamed.events();
    let told = chunks.iter().find(|(_, chunk)| !chunk["choices"][0]["logprobs"].is_null());
    assert_eq!(told.unwrap().1["choices"][0]["logprobs"], expected, "{}", streamed.body);
    let asked = a.state().asked[0].clone();
    assert_eq!((&asked["logprobs"], &asked["top_logprobs"]), (&json!(true), &json!(1)));
    for field in ["stream", "stream_options"] {
        body.as_object_mut().unwrap().remove(field);
    }
    body["cache"] = json!(true);
    for _ in 0..2 {
        let reply = server.client.post("/v1/chat/completions", &body).await.json();
        assert_eq!(reply["choices"][0]["logprobs"], expected, "they are not lost in a cache");
    }
    let text = json!({"model": "m", "prompt": "say hello", "max_tokens": 5, "logprobs": 1, "temperature": 0});
    let reply = server.client.post("/v1/completions", &text).await.json();
    let expected = json!({"tokens": ["hello"], "token_logprobs": [-0.25], "top_logprobs": [{"hello": -0.25}],
        "text_offset": [0]});
    assert_eq!(reply["choices"][0]["logprobs"], expected);
    body["logprobs"] = json!(false);
    let wrong = server.client.post("/v1/chat/completions", &body).await;
    assert!(wrong.status == 400 && wrong.error().contains("`top_logprobs`"), "{}", wrong.body);
}

#[actix_web::test]
async fn who_tells_no_log_probabilities_says_so() {
    let a = FakeReplica::start().await;
    a.state().hides_logprobs = true;
    let mut config = fleet(vec![a.executor()]);
    config.fleet.tries_max = 2;
    let server = serve_fleet(config).await;
    server.until("it is up", |server| server.running.app.runtime.view().replicas[0].is_up).await;
    let text = json!({"model": "m", "prompt": "say hello", "max_tokens": 5, "logprobs": 0});
    let reply = server.client.post("/v1/completions", &text).await;
    assert!(reply.error().contains("its answer has no log probabilities"), "{}", reply.body);
    assert_eq!(a.state().asked.len(), 2, "another server might have told them");
}
