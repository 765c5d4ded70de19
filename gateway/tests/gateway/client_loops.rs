//! Loops of clients that send a column's rows one by one: they run as one relQuery, and are scheduled as one.

use base::{Millis, Nanos};
use scheduler::Policy;
use serde_json::{Value, json};
use serving::model::Model;
use store::{Store, UnixMillis};
use tokio::net::TcpStream;

use crate::common::client::{Client, finish};
use crate::common::{Server, config, key_of, model, serve_on, serve_with};

/// Requests of the longer loop.
const LONG: usize = 40;
/// Requests of the shorter one.
const SHORT: usize = 4;

fn chat_model() -> Model {
    Model { has_chat: true, ..model() }
}

fn chat(text: &str) -> Value {
    json!({"model": "double", "temperature": 0, "max_tokens": 8, "messages": [
        {"role": "system", "content": "Say the last word."}, {"role": "user", "content": text}]})
}

/// The same chat with other fields.
fn with(text: &str, fields: Value) -> Value {
    let mut body = chat(text);
    let Value::Object(fields) = fields else { panic!("fields are an object") };
    body.as_object_mut().unwrap().extend(fields);
    body
}

/// The replies of all requests that are under way, in the order of their beginning.
async fn contents(streams: Vec<TcpStream>) -> Vec<String> {
    let mut contents = Vec::new();
    for stream in streams {
        let reply = finish(stream).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        contents.push(reply.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned());
    }
    contents
}

/// A request with further lines of its head.
struct Request {
    client: Client,
    path: &'static str,
    head: &'static str,
    body: Value,
}

impl Request {
    fn new(client: &Client, body: Value) -> Self {
        Self { client: client.clone(), path: "/v1/chat/completions", head: "", body }
    }

    fn bytes(&self) -> Vec<u8> {
        let body = self.body.to_string();
        let bytes = self.client.request("POST", self.path, "application/json", body.as_bytes());
        let text = String::from_utf8(bytes).unwrap();
        text.replacen("Host: test\r\n", &format!("Host: test\r\n{}", self.head), 1).into_bytes()
    }
}

/// Begins requests of which the first is under way when the others come; how many of these joined it, or each
/// other.
async fn joined(server: &Server, requests: Vec<Request>) -> f64 {
    let before = server.metric("relserve_rows_coalesced_total");
    server.gate.shut();
    let passed = server.gate.passed();
    let mut streams = Vec::new();
    for (number, request) in requests.into_iter().enumerate() {
        streams.push(request.client.send(&request.bytes()).await);
        let come = number + 1;
        server.until("it came", |server| server.running.app.runtime.registry.running().len() == come).await;
        server.until("a step waits", |server| server.gate.passed() > passed).await;
    }
    server.gate.release();
    for stream in streams {
        assert_eq!(finish(stream).await.status, 200);
    }
    server.until_free().await;
    server.metric("relserve_rows_coalesced_total") - before
}

#[actix_web::test]
async fn thirty_chats_of_one_loop_are_one_relquery_and_each_has_its_own_answer() {
    let server = serve_with(config(), chat_model()).await;
    server.gate.shut();
    let mut streams = vec![server.client.begin("/v1/chat/completions", &chat("row w0")).await];
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    for row in 1..30 {
        let body = chat(&format!("row w{row}"));
        streams.push(server.client.begin("/v1/chat/completions", &body).await);
    }
    server.until("all came", |server| server.running.app.runtime.registry.running().len() == 30).await;
    server.gate.release();
    let expected: Vec<String> = (0..30).map(|row| format!("w{row}")).collect();
    assert_eq!(contents(streams).await, expected);
    assert_eq!(server.metric("relserve_rows_coalesced_total"), 29.0);
    server.until_free().await;
}

#[actix_web::test]
async fn only_requests_of_one_loop_join() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let other = store.create_tenant("other", 1.0, UnixMillis(1)).await.unwrap().id;
    let server = serve_on(config(), chat_model(), store.clone()).await;
    let ours = &server.client;
    let theirs = ours.with_key(&key_of(&store, other).await);
    let theirs = &theirs;
    let messages = |messages: Value| with("b", json!({"messages": messages}));
    let said = json!({"role": "user", "content": "b"});
    let system = json!({"role": "system", "content": "Say nothing."});
    for (what, client, second, joins) in [
        ("the same beginning", ours, chat("b"), 1.0),
        ("another system message", ours, messages(json!([system, said])), 0.0),
        ("no system message", ours, messages(json!([said])), 0.0),
        ("another temperature", ours, with("b", json!({"temperature": 0.5})), 0.0),
        ("another limit", ours, with("b", json!({"max_tokens": 9})), 0.0),
        ("another class", ours, with("b", json!({"class": "bulk"})), 0.0),
        ("another user of the client", ours, with("b", json!({"user": "u"})), 0.0),
        ("a stream, which somebody reads", ours, with("b", json!({"stream": true})), 0.0),
        ("a deadline of its own", ours, with("b", json!({"deadline_ms": 60_000})), 0.0),
        ("another tenant", theirs, chat("b"), 0.0),
    ] {
        let requests = vec![Request::new(ours, chat("a")), Request::new(client, second)];
        assert_eq!(joined(&server, requests).await, joins, "{what}");
    }
}

#[actix_web::test]
async fn a_beginning_of_two_words_is_shared_where_nothing_stands_before_it() {
    let server = serve_with(config(), chat_model()).await;
    let alone = |text: &str| {
        let body = with("", json!({"messages": [{"role": "user", "content": text}]}));
        Request::new(&server.client, body)
    };
    let requests = |first: &str, second: &str| vec![alone(first), alone(second)];
    assert_eq!(joined(&server, requests("Is this good: a", "Is this bad: b")).await, 1.0);
    assert_eq!(joined(&server, requests("Is this good: a", "Is that good: b")).await, 0.0);
    assert_eq!(joined(&server, requests("Is this", "Is this")).await, 0.0, "all of it is the row's own");
}

#[actix_web::test]
async fn a_name_joins_what_begins_differently_and_the_last_request_shuts_it() {
    const NAMED: &str = "x-relserve-relquery: column C\r\n";
    const LAST: &str = "x-relserve-relquery: column C\r\nx-relserve-last: true\r\n";
    let server = serve_with(config(), chat_model()).await;
    let named = |text: &str, fields: Value| {
        let mut body = with(text, fields);
        body["messages"][0]["content"] = format!("Say the last word of {text}.").into();
        Request::new(&server.client, body)
    };
    let key = || json!({"prompt_cache_key": "reviews"});
    assert_eq!(joined(&server, vec![named("a", key()), named("b", key())]).await, 1.0);
    let metadata = |name: &str| json!({"metadata": {"relquery": name}});
    assert_eq!(joined(&server, vec![named("a", metadata("x")), named("b", metadata("x"))]).await, 1.0);
    assert_eq!(joined(&server, vec![named("a", metadata("x")), named("b", metadata("y"))]).await, 0.0);
    let headed = |head: &'static str, text: &str, fields: Value| Request { head, ..named(text, fields) };
    let none = || json!({});
    let three = vec![headed(NAMED, "a", none()), headed(LAST, "b", none()), headed(NAMED, "c", none())];
    assert_eq!(joined(&server, three).await, 1.0, "what comes behind the last is another loop");
    let stream = json!({"stream": true});
    let both = vec![headed(NAMED, "a", none()), headed(NAMED, "b", stream)];
    assert_eq!(joined(&server, both).await, 1.0, "a named stream joins");
    let wrong = headed("x-relserve-last: yes\r\n", "a", none());
    let reply = server.client.raw(&wrong.bytes()).await;
    assert_eq!((reply.status, reply.json()["error"]["param"].as_str()), (400, Some("x-relserve-last")));
}

#[actix_web::test]
async fn a_user_keeps_loops_apart_and_names_none() {
    let server = serve_with(config(), chat_model()).await;
    let row = |system: &str, fields: Value| {
        let mut body = with("row", fields);
        body["messages"][0]["content"] = system.into();
        Request::new(&server.client, body)
    };
    let user = |name: &str| json!({"user": name});
    let named = |user: &str| json!({"user": user, "prompt_cache_key": "reviews"});
    for (what, requests, joins) in [
        ("one user's loop", vec![row("One.", user("u")), row("One.", user("u"))], 1.0),
        ("two loops of one user", vec![row("One.", user("u")), row("Other.", user("u"))], 0.0),
        ("loops of two users", vec![row("One.", user("u")), row("One.", user("v"))], 0.0),
        ("a loop with a name, of two users", vec![row("One.", named("u")), row("Other.", named("v"))], 1.0),
    ] {
        assert_eq!(joined(&server, requests).await, joins, "{what}");
    }
}

#[actix_web::test]
async fn completions_join_too_and_a_setting_leaves_each_alone() {
    let mut config = config();
    let body =
        |text: &str| json!({"model": "double", "prompt": format!("Say again: {text}"), "max_tokens": 4});
    for (idle_ms_max, joins) in [(Millis(60_000), 2.0), (Millis(0), 0.0)] {
        config.coalesce.idle_ms_max = idle_ms_max;
        let server = serve_with(config.clone(), chat_model()).await;
        server.gate.shut();
        let mut streams = vec![server.client.begin("/v1/completions", &body("a")).await];
        server.until("a step waits", |server| server.gate.passed() == 1).await;
        for word in ["b", "c"] {
            streams.push(server.client.begin("/v1/completions", &body(word)).await);
        }
        server.until("all came", |server| server.running.app.runtime.registry.running().len() == 3).await;
        server.gate.release();
        for stream in streams {
            assert_eq!(finish(stream).await.status, 200);
        }
        assert_eq!(server.metric("relserve_rows_coalesced_total"), joins, "{idle_ms_max:?}");
    }
}

#[actix_web::test]
async fn a_loop_ends_once_nothing_of_it_came_for_its_idle_time() {
    let mut config = config();
    config.coalesce.idle_ms_max = Millis(1);
    let server = serve_with(config, chat_model()).await;
    server.gate.shut();
    let mut streams = vec![server.client.begin("/v1/chat/completions", &chat("row w0")).await];
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    let clock = server.running.app.runtime.shared.clock;
    let since = clock.now();
    server.until("time passes", |_| clock.now().since(since) > Nanos(2_000_000)).await;
    streams.push(server.client.begin("/v1/chat/completions", &chat("row w1")).await);
    server.until("both came", |server| server.running.app.runtime.registry.running().len() == 2).await;
    server.gate.release();
    assert_eq!(contents(streams).await, ["w0", "w1"]);
    assert_eq!(server.metric("relserve_rows_coalesced_total"), 0.0);
    server.until_free().await;
}

#[actix_web::test]
async fn a_loop_with_the_most_rows_is_full_and_the_next_request_opens_another() {
    let mut config = config();
    config.coalesce.idle_ms_max = Millis(60_000);
    config.coalesce.rows_max = 2;
    let server = serve_with(config, chat_model()).await;
    for (count, joins) in [(2, 1.0), (3, 1.0), (4, 2.0)] {
        let row = |row: usize| Request::new(&server.client, chat(&format!("row w{row}")));
        let requests = (0..count).map(row).collect();
        assert_eq!(joined(&server, requests).await, joins, "of {count} requests");
    }
}

#[actix_web::test]
async fn responses_and_messages_join_too() {
    let server = serve_with(config(), chat_model()).await;
    let response = |instructions: &str, text: &str| Request {
        path: "/v1/responses",
        ..Request::new(
            &server.client,
            json!({"model": "double", "temperature": 0, "max_output_tokens": 8, "instructions": instructions,
                "input": text}),
        )
    };
    let message = |system: &str, text: &str| Request {
        path: "/v1/messages",
        ..Request::new(
            &server.client,
            json!({"model": "double", "temperature": 0, "max_tokens": 8, "system": system,
                "messages": [{"role": "user", "content": text}]}),
        )
    };
    let (same, other) = ("Say the last word.", "Say nothing.");
    for (what, requests, joins) in [
        ("responses", vec![response(same, "row a"), response(same, "row b")], 1.0),
        ("responses with other instructions", vec![response(same, "row a"), response(other, "row b")], 0.0),
        ("messages", vec![message(same, "row a"), message(same, "row b")], 1.0),
        ("messages with another system text", vec![message(same, "row a"), message(other, "row b")], 0.0),
    ] {
        assert_eq!(joined(&server, requests).await, joins, "{what}");
    }
}

/// Rows of a long loop that are left when a short one of another tenant, which came behind it, has its last
/// answer.
async fn left_behind_a_short_loop(idle_ms_max: Millis) -> u64 {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let other = store.create_tenant("other", 1.0, UnixMillis(1)).await.unwrap().id;
    let mut config = config();
    config.coalesce.idle_ms_max = idle_ms_max;
    config.scheduler.policy = Policy::RelServe;
    config.scheduler.sequences_max = 2;
    let server = serve_on(config, chat_model(), store.clone()).await;
    let theirs = server.client.with_key(&key_of(&store, other).await);
    server.gate.shut();
    let unfinished = |server: &Server| server.running.app.runtime.shared.intake.unfinished();
    let mut long = Vec::new();
    for row in 0..LONG {
        let body = chat(&format!("row w{row}"));
        long.push(server.client.begin("/v1/chat/completions", &body).await);
        server.until("it came", |server| unfinished(server) == row as u64 + 1).await;
        server.until("a step waits", |server| server.gate.passed() >= 1).await;
    }
    let mut short = Vec::new();
    for row in 0..SHORT {
        short.push(theirs.begin("/v1/chat/completions", &chat(&format!("row s{row}"))).await);
        server.until("it came", |server| unfinished(server) == (LONG + row) as u64 + 1).await;
    }
    let is_theirs = |server: &Server| {
        let running = server.running.app.runtime.registry.running();
        running.iter().any(|relquery| relquery.tenant == other)
    };
    while is_theirs(&server) {
        let passed = server.gate.passed();
        server.gate.allow(1);
        server.until("a step", |server| server.gate.passed() > passed || unfinished(server) == 0).await;
    }
    let left = unfinished(&server);
    server.gate.release();
    let expected: Vec<String> = (0..LONG).map(|row| format!("w{row}")).collect();
    assert_eq!(contents(long).await, expected);
    let expected: Vec<String> = (0..SHORT).map(|row| format!("s{row}")).collect();
    assert_eq!(contents(short).await, expected);
    left
}

#[actix_web::test]
async fn a_short_loop_does_not_wait_behind_a_long_one_of_another_tenant() {
    let (together, apart) =
        (left_behind_a_short_loop(Millis(60_000)).await, left_behind_a_short_loop(Millis(0)).await);
    assert!(together >= (LONG - 2 * SHORT) as u64, "{together} of {LONG} rows are left");
    assert!(
        apart < together / 2,
        "row by row the short loop waits behind the long one: {apart} and {together}"
    );
}
