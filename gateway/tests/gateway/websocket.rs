//! `/v1/responses` over a WebSocket: the same events as messages, one response after the other on one connection.

use base::{Bytes, Millis};
use gateway::config::{AuthMode, UnknownFields};
use gateway::services::reload::reload;
use serde_json::{Value, json};
use serving::config::Secret;
use store::{DEFAULT_TENANT, KeyScope, NewKey, UnixMillis};

use crate::background::{chatty, serve};
use crate::common::client::Client;
use crate::common::websocket::{CLOSE, FINAL, MORE, PING, PONG, Socket, TEXT};
use crate::common::{config, serve_with};

const PATH: &str = "/v1/responses";
/// What nothing comes behind.
const ENDS: [&str; 4] = ["response.completed", "response.incomplete", "response.failed", "error"];

/// A request whose answer is its last word.
fn ask(input: &str) -> Value {
    json!({"type": "response.create", "model": "double", "input": input, "max_output_tokens": 8})
}

/// The events of the next response, or the error in its place.
async fn events(socket: &mut Socket) -> Vec<Value> {
    let mut events = Vec::new();
    loop {
        let event = socket.message().await;
        let is_last = ENDS.iter().any(|end| event["type"] == *end);
        events.push(event);
        if is_last {
            return events;
        }
    }
}

/// The next response.
async fn response(socket: &mut Socket) -> Value {
    let mut last = events(socket).await.pop().unwrap();
    assert_eq!(last["type"], "response.completed", "{last}");
    last["response"].take()
}

/// The error that comes next.
async fn refused(socket: &mut Socket, message: &Value) -> Value {
    socket.ask(message).await;
    let error = socket.message().await;
    assert_eq!(error["type"], "error", "{error}");
    assert!(error["error"]["message"].is_string() && error["error"]["type"].is_string(), "{error}");
    error
}

fn text(response: &Value) -> &str {
    response["output"][0]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {response}"))
}

fn going_on(input: &str, from: &Value) -> Value {
    let mut body = ask(input);
    body["previous_response_id"] = from["id"].clone();
    body
}

#[actix_web::test]
async fn a_connection_has_several_responses_and_goes_on_from_its_last_kept_or_not() {
    let server = serve().await;
    let client = &server.client;
    let mut socket = Socket::open(client, PATH).await;
    socket.ask(&ask("say one")).await;
    let told = events(&mut socket).await;
    let names: Vec<&str> = told.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!((names[0], names[1]), ("response.created", "response.in_progress"));
    let numbers: Vec<u64> = told.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..told.len() as u64).collect::<Vec<_>>());
    let deltas: String = told.iter().filter_map(|event| event["delta"].as_str()).collect();
    let first = &told.last().unwrap()["response"];
    assert_eq!((deltas.as_str(), text(first)), ("one", "one"));

    let unkept = |mut body: Value| {
        body["store"] = false.into();
        body
    };
    socket.ask(&unkept(going_on("say two", first))).await;
    let second = response(&mut socket).await;
    assert_eq!((text(&second), &second["store"]), ("two", &json!(false)));
    socket.ask(&unkept(going_on("say three", &second))).await;
    let third = response(&mut socket).await;
    // The prompt is that of a chat with all that was said.
    let said = json!([{"role": "user", "content": "say one"}, {"role": "assistant", "content": "one"},
        {"role": "user", "content": "say two"}, {"role": "assistant", "content": "two"},
        {"role": "user", "content": "say three"}]);
    let chat = json!({"model": "double", "max_tokens": 8, "messages": said});
    let chat = client.post("/v1/chat/completions", &chat).await.json();
    assert_eq!(third["usage"]["input_tokens"], chat["usage"]["prompt_tokens"]);
    let path = |response: &Value| format!("{PATH}/{}", response["id"].as_str().unwrap());
    assert_eq!(client.get(&path(first)).await.json()["status"], "completed", "it is kept");
    assert_eq!(client.get(&path(&third)).await.status, 404, "it is not");
    // Who goes on from what is no more there is told, and the connection has forgotten its last one then.
    let error = refused(&mut socket, &going_on("and?", &second)).await;
    assert_eq!(error["status"], 404, "{error}");
    assert_eq!(refused(&mut socket, &going_on("and?", &third)).await["status"], 404);
    // Another connection goes on from one that is kept, and not from another's.
    let mut other = Socket::open(client, PATH).await;
    other.ask(&going_on("say four", first)).await;
    let fourth = response(&mut other).await;
    assert_eq!((text(&fourth), &fourth["previous_response_id"]), ("four", &first["id"]));
    assert_eq!(refused(&mut other, &going_on("and?", &third)).await["status"], 404);
    drop((socket, other));
    server.until_free().await;
}

#[actix_web::test]
async fn what_is_wrong_is_an_error_and_the_connection_goes_on() {
    let server = serve().await;
    let mut socket = Socket::open(&server.client, PATH).await;
    for (field, value, status) in [
        ("type", json!("response.cancel"), 400),
        ("background", json!(true), 400),
        ("generate", json!(false), 400),
        ("stream_id", json!("a b"), 400),
        ("temperature", json!(9), 400),
        ("model", json!("other"), 404),
    ] {
        let mut body = ask("say x");
        body[field] = value;
        let error = refused(&mut socket, &body).await;
        assert_eq!(error["status"], status, "{error}");
        if status == 400 {
            assert_eq!(error["error"]["param"], field, "{error}");
        }
    }
    assert_eq!(refused(&mut socket, &json!("no object")).await["status"], 400);
    // What belongs to a stream says so: events, and errors too.
    let mut body = ask("say one");
    body["stream_id"] = "lane-1.a".into();
    socket.ask(&body).await;
    let told = events(&mut socket).await;
    assert!(told.iter().all(|event| event["stream_id"] == "lane-1.a"), "{told:?}");
    body["temperature"] = json!(9);
    assert_eq!(refused(&mut socket, &body).await["stream_id"], "lane-1.a");
    // A client that asks whether the server is there is told.
    socket.send(PING, b"x").await;
    assert_eq!(socket.frame().await, (PONG, b"x".to_vec()));
    socket.ask(&ask("say two")).await;
    assert_eq!(text(&response(&mut socket).await), "two");
    socket.send(CLOSE, &1_000_u16.to_be_bytes()).await;
    assert_eq!(socket.closed().await, 1_000);
    server.until_free().await;
}

#[actix_web::test]
async fn what_is_asked_for_meanwhile_waits_and_too_much_is_refused() {
    let server = serve().await;
    let mut socket = Socket::open(&server.client, PATH).await;
    server.gate.shut();
    socket.ask(&ask("say 0")).await;
    while socket.message().await["type"] != "response.in_progress" {}
    for number in 1..=9 {
        let mut body = ask(&format!("say {number}"));
        body["stream_id"] = format!("s{number}").into();
        socket.ask(&body).await;
    }
    let error = socket.message().await;
    assert_eq!((&error["type"], &error["status"]), (&json!("error"), &json!(429)), "{error}");
    assert_eq!(error["stream_id"], "s9");
    server.gate.release();
    for number in 0..=8 {
        assert_eq!(text(&response(&mut socket).await), number.to_string());
    }
    drop(socket);
    server.until_free().await;
}

#[actix_web::test]
async fn what_waits_has_together_no_more_than_one_message_may_have() {
    let mut config = config();
    config.limits.body_bytes_max = Bytes(1_000);
    let server = serve_with(config, chatty()).await;
    let mut socket = Socket::open(&server.client, PATH).await;
    server.gate.shut();
    socket.ask(&ask("say 0")).await;
    while socket.message().await["type"] != "response.in_progress" {}
    let bodies = &server.running.app.bodies;
    assert_eq!(bodies.held(), 0, "what runs has no room of those that wait");
    let mut long = ask("say 1");
    long["metadata"] = json!({"k": "x".repeat(500)});
    long["stream_id"] = "a".into();
    socket.ask(&long).await;
    long["stream_id"] = "b".into();
    let error = refused(&mut socket, &long).await;
    assert_eq!((&error["status"], &error["stream_id"]), (&json!(429), &json!("b")), "{error}");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("1000 (limits.body_bytes_max)"), "{message}");
    socket.ask(&ask("say 2")).await;
    server.gate.release();
    for number in 0..=2 {
        assert_eq!(text(&response(&mut socket).await), number.to_string());
    }
    drop(socket);
    server.until_free().await;
}

#[actix_web::test]
async fn the_work_ends_with_its_connection() {
    let server = serve().await;
    server.gate.shut();
    let mut socket = Socket::open(&server.client, PATH).await;
    socket.ask(&ask("say one")).await;
    while socket.message().await["type"] != "response.in_progress" {}
    drop(socket);
    server.until("it is noticed", |server| server.metric("relserve_disconnects_total") == 1.0).await;
    server.gate.release();
    server.until_free().await;
}

#[actix_web::test]
async fn a_message_that_is_too_long_or_no_text_closes_the_connection() {
    let mut config = config();
    config.limits.body_bytes_max = Bytes(1_000);
    let server = serve_with(config, chatty()).await;
    let mut socket = Socket::open(&server.client, PATH).await;
    socket.ask(&ask("say one")).await;
    assert_eq!(text(&response(&mut socket).await), "one");
    socket.ask(&ask(&"x".repeat(1_000))).await;
    assert_eq!(socket.closed().await, 1_009);
    let mut socket = Socket::open(&server.client, PATH).await;
    socket.send(2, b"{}").await;
    assert_eq!(socket.closed().await, 1_003);
    // By its head, whatever comes of it; and all parts together.
    for length in [1_001, 1 << 40] {
        let mut socket = Socket::open(&server.client, PATH).await;
        socket.send_head(FINAL | TEXT, length).await;
        assert_eq!(socket.closed().await, 1_009, "{length} bytes");
    }
    let mut socket = Socket::open(&server.client, PATH).await;
    socket.send_part(TEXT, &[b'x'; 600]).await;
    socket.send_head(MORE, 401).await;
    assert_eq!(socket.closed().await, 1_009);
    let mut socket = Socket::open(&server.client, PATH).await;
    socket.send_head(FINAL | PING, 1 << 20).await;
    assert_eq!(socket.closed().await, 1_002);
    for parts in [vec![&b"\xff"[..]], vec![&b"a"[..], b"\xff"]] {
        let mut socket = Socket::open(&server.client, PATH).await;
        for (place, part) in parts.iter().enumerate() {
            let last = if place + 1 == parts.len() { FINAL } else { 0 };
            socket.send_part(last | if place == 0 { TEXT } else { MORE }, part).await;
        }
        assert_eq!(socket.closed().await, 1_007, "{parts:?}");
    }
    let bodies = &server.running.app.bodies;
    server.until("nothing is held of them", |_| bodies.held() == 0).await;
}

#[actix_web::test]
async fn a_message_may_come_in_parts_whose_bytes_count_before_it_is_whole() {
    let server = serve().await;
    let bodies = &server.running.app.bodies;
    let mut socket = Socket::open(&server.client, PATH).await;
    let message = ask("say one").to_string();
    let (first, rest) = message.as_bytes().split_at(20);
    socket.send_part(TEXT, first).await;
    socket.send(PING, b"x").await;
    assert_eq!(socket.frame().await, (PONG, b"x".to_vec()), "a ping may come between them");
    assert!(bodies.held() >= 20, "{} bytes", bodies.held());
    socket.send_part(MORE, b"").await;
    socket.send_part(MORE, &rest[..5]).await;
    socket.send_head(FINAL | MORE, rest.len() as u64 - 5).await;
    server.until("its last part has begun", |_| bodies.held() > 30).await;
    socket.send_bytes(&rest[5..]).await;
    assert_eq!(text(&response(&mut socket).await), "one");
    assert_eq!(bodies.held(), 0);
    // Where there is no room for it the connection ends, and others go on.
    let mut config = config();
    config.limits.bodies_bytes_max = Bytes(1_000);
    config.limits.body_bytes_max = Bytes(1_000);
    let server = serve_with(config, chatty()).await;
    let mut first = Socket::open(&server.client, PATH).await;
    first.send_part(TEXT, &[b'x'; 600]).await;
    server.until("it is held", |server| server.running.app.bodies.held() >= 600).await;
    let mut second = Socket::open(&server.client, PATH).await;
    second.send_part(TEXT, &[b'x'; 600]).await;
    assert_eq!(second.closed().await, 1_013);
    drop(first);
    server.until("nothing is held", |server| server.running.app.bodies.held() == 0).await;
}

#[actix_web::test]
async fn a_message_has_as_long_to_arrive_as_a_body() {
    let mut config = config();
    config.server.body_ms_max = Millis(50);
    let server = serve_with(config, chatty()).await;
    let mut socket = Socket::open(&server.client, PATH).await;
    socket.send_head(FINAL | TEXT, 100).await;
    assert_eq!(socket.closed().await, 1_008);
    let mut socket = Socket::open(&server.client, PATH).await;
    socket.send_part(TEXT, b"{").await;
    assert_eq!(socket.closed().await, 1_008);
}

#[actix_web::test]
async fn each_stream_goes_on_from_its_last_response_and_from_anothers() {
    let server = serve().await;
    let mut socket = Socket::open(&server.client, PATH).await;
    let of = |mut body: Value, stream: &str| {
        body["stream_id"] = stream.into();
        body["store"] = false.into();
        body
    };
    let mut last = Vec::new();
    for stream in ["a", "b"] {
        socket.ask(&of(ask("say one"), stream)).await;
        last.push(response(&mut socket).await);
    }
    // Another's is there afterwards, too.
    for (stream, from) in [("c", &last[0]), ("a", &last[0]), ("b", &last[1])] {
        socket.ask(&of(going_on("say two", from), stream)).await;
        let next = response(&mut socket).await;
        assert_eq!((text(&next), &next["previous_response_id"]), ("two", &from["id"]));
    }
    assert_eq!(refused(&mut socket, &of(going_on("and?", &last[0]), "a")).await["status"], 404);
    drop(socket);
    server.until_free().await;
}

#[actix_web::test]
async fn a_key_that_is_revoked_ends_its_connections() {
    let mut config = config();
    config.auth.remember_ms = Millis(0);
    let server = serve_with(config, chatty()).await;
    let store = &server.running.app.runtime.store;
    let scope = KeyScope::ALL;
    let new = NewKey { tenant: DEFAULT_TENANT, name: "short", expires: None, is_operator: false, scope };
    let made = store.create_key(new, UnixMillis(1)).await.unwrap();
    let client = server.client.with_key(&made.plaintext);
    let mut socket = Socket::open(&client, PATH).await;
    socket.ask(&ask("say one")).await;
    assert_eq!(text(&response(&mut socket).await), "one");
    assert!(store.revoke_key(made.info.id, UnixMillis(2)).await.unwrap());
    // Whatever is asked for.
    let error = refused(&mut socket, &json!({"type": "other", "stream_id": "a"})).await;
    assert_eq!((&error["status"], &error["stream_id"]), (&json!(401), &json!("a")), "{error}");
    assert_eq!(socket.closed().await, 1_008);
    let mut other = Socket::open(&server.client, PATH).await;
    other.ask(&ask("say two")).await;
    assert_eq!(text(&response(&mut other).await), "two");
    drop(other);
    server.until_free().await;
}

#[actix_web::test]
async fn a_page_of_another_origin_opens_no_connection_where_there_are_no_keys() {
    let mut config = config();
    config.auth.mode = AuthMode::None;
    let server = serve_with(config, chatty()).await;
    let client = Client { key: None, ..server.client.clone() };
    let request = String::from_utf8(Socket::request(&client, PATH)).unwrap();
    let head = format!("Host: {}\r\nOrigin: http://pages.example", client.address);
    let reply = client.raw(request.replace("Host: test", &head).as_bytes()).await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (403, &json!("foreign_origin")));
}

#[actix_web::test]
async fn another_configuration_is_seen_by_what_is_asked_for_next_on_an_open_connection() {
    let asked = config();
    let server = serve_with(asked.clone(), chatty()).await;
    let mut socket = Socket::open(&server.client, PATH).await;
    let mut body = ask("say one");
    body["no_field_of_ours"] = 1.into();
    socket.ask(&body).await;
    assert_eq!(text(&response(&mut socket).await), "one");
    let mut found = asked.clone();
    found.openai.unknown_fields = UnknownFields::Refuse;
    found.limits.body_bytes_max = Bytes(1_000);
    assert!(reload(&server.running.current, &asked, Ok::<_, String>(found)).await.is_some());
    let error = refused(&mut socket, &body).await;
    assert_eq!((&error["status"], &error["error"]["param"]), (&json!(400), &json!("no_field_of_ours")));
    socket.send_head(FINAL | TEXT, 1_001).await;
    assert_eq!(socket.closed().await, 1_009);
}

#[actix_web::test]
async fn a_connection_takes_a_key_that_may_ask_and_each_response_counts() {
    let mut config = config();
    config.auth.admin_key = Some(Secret("the operator's".into()));
    let server = serve_with(config, chatty()).await;
    let client = &server.client;
    let open = async |client: &Client| client.raw(&Socket::request(client, PATH)).await;
    assert_eq!(open(&Client { key: None, ..client.clone() }).await.status, 401);
    let store = &server.running.app.runtime.store;
    let scope = KeyScope { is_read_only: true, ..KeyScope::ALL };
    let new = NewKey { tenant: DEFAULT_TENANT, name: "looks", expires: None, is_operator: false, scope };
    let looks = store.create_key(new, UnixMillis(1)).await.unwrap().plaintext;
    let reply = open(&client.with_key(&looks)).await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (403, &json!("insufficient_scope")));
    let reply = client.get(PATH).await;
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("Upgrade")), "{}", reply.body);
    assert_eq!(client.delete(PATH).await.status, 405);

    let operators = client.with_key("the operator's");
    let limits = json!({"limits": {"minute_requests": 2}});
    assert_eq!(operators.post("/v1/tenants/default", &limits).await.status, 200);
    let mut socket = Socket::open(client, PATH).await;
    let mut taken = 0;
    let error = loop {
        socket.ask(&ask("say one")).await;
        let last = events(&mut socket).await.pop().unwrap();
        if last["type"] == "error" {
            break last;
        }
        taken += 1;
    };
    assert_eq!((taken, &error["status"]), (2, &json!(429)), "{error}");
    drop(socket);
    server.until_free().await;
}

#[actix_web::test]
async fn a_server_that_ends_closes_connections() {
    let server = serve().await;
    let mut socket = Socket::open(&server.client, PATH).await;
    socket.ask(&ask("say one")).await;
    assert_eq!(text(&response(&mut socket).await), "one");
    let drained = server.running.drain(std::future::pending());
    let (code, ()) = tokio::join!(socket.closed(), drained);
    assert_eq!(code, 1_001);
}
