//! Clients that leave, dawdle or call off, deadlines that pass, and trouble in the middle of a stream.
//!
//! The gate in front of the executor counts steps, so "within two steps" is a fact here and not a wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix_web::{App, HttpServer, web};
use base::Millis;
use gateway::wire::relquery::public_id;
use scheduler::SchedulerConfig;
use serde_json::{Value, json};
use serving::model::Model;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::common::client::{Reply, finish, read_until};
use crate::common::{Server, config, model, serve, serve_with};

const RELQUERIES: &str = "/v1/relqueries";
const COMPLETIONS: &str = "/v1/completions";

/// A body that generates `tokens` tokens, streaming or not.
fn endless(path: &str, stream: bool, tokens: u64) -> Value {
    let mut body =
        json!({"max_tokens": tokens, "ignore_eos": true, "temperature": 0, "stream": stream, "cache": false});
    if path == RELQUERIES {
        body["template"] = "Say {word}".into();
        body["rows"] = json!([["one"], ["two"]]);
    } else {
        body["prompt"] = json!(["Say one", "Say two"]);
    }
    body
}

/// Every route that generates, streaming and not.
const WAYS: [(&str, bool); 4] =
    [(RELQUERIES, false), (RELQUERIES, true), (COMPLETIONS, false), (COMPLETIONS, true)];

/// Closes a connection; returns once the server has called its work off.
async fn leave(server: &Server, connection: TcpStream) {
    let running = server.running.app.runtime.registry.running().len();
    drop(connection);
    server
        .until("the work is called off", |s| s.running.app.runtime.registry.running().len() < running)
        .await;
}

/// Lets two more steps pass and no third; nothing may be held after them.
async fn free_within_two_steps(server: &Server) {
    server.gate.allow(2);
    server.until("rows and blocks are free", Server::is_free).await;
    server.gate.release();
}

/// The value of a metric.
async fn metric(server: &Server, name: &str) -> u64 {
    let text = server.client.get("/metrics").await.body;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(str::to_owned);
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}"))
}

/// The data of an OpenAI stream's events.
fn data(reply: &Reply) -> Vec<Value> {
    reply.events().into_iter().map(|(_, data)| data).collect()
}

// Case 17.
#[actix_web::test]
async fn a_client_that_leaves_in_the_queue_costs_nothing() {
    for (path, stream) in WAYS {
        let server = serve().await;
        server.gate.shut();
        let first = server.client.begin(COMPLETIONS, &json!({"prompt": "Say yes", "temperature": 0})).await;
        server.until("the first is at the gate", |s| s.gate.passed() == 1).await;
        let second = server.client.begin(path, &endless(path, stream, 500)).await;
        server.until("the second is queued", |s| s.running.app.runtime.registry.running().len() == 2).await;
        leave(&server, second).await;
        server.gate.release();
        assert_eq!(finish(first).await.json()["choices"][0]["text"], "yes");
        server.until("all is free", Server::is_free).await;
        assert_eq!(server.gate.computed(), "Say yes".len() as u64, "{path}: none of it ran");
        assert_eq!(metric(&server, "relserve_disconnects_total").await, 1);
    }
}

// Case 17.
#[actix_web::test]
async fn a_client_that_leaves_in_prefill_frees_its_rows_within_two_steps() {
    for (path, stream) in WAYS {
        let server = serve().await;
        server.gate.shut();
        let connection = server.client.begin(path, &endless(path, stream, 500)).await;
        server.until("its prefill is at the gate", |s| s.gate.passed() == 1).await;
        leave(&server, connection).await;
        free_within_two_steps(&server).await;
        assert_eq!(metric(&server, "relserve_disconnects_total").await, 1);
    }
}

// Case 17.
#[actix_web::test]
async fn a_client_that_leaves_in_decode_frees_its_rows_within_two_steps() {
    for (path, stream) in WAYS {
        let server = serve().await;
        server.gate.shut();
        let connection = server.client.begin(path, &endless(path, stream, 500)).await;
        server.gate.allow(5);
        server.until("a decode is at the gate", |s| s.gate.passed() == 6).await;
        leave(&server, connection).await;
        free_within_two_steps(&server).await;
        assert_eq!(metric(&server, "relserve_disconnects_total").await, 1);
    }
}

// Case 17.
#[actix_web::test]
async fn a_client_that_leaves_as_its_answer_comes_frees_everything_once() {
    let server = serve().await;
    for (path, stream) in WAYS.repeat(5) {
        let before = server.gate.passed();
        server.gate.shut();
        let connection = server.client.begin(path, &endless(path, stream, 1)).await;
        server.until("its only step is at the gate", |s| s.gate.passed() > before).await;
        server.gate.release();
        drop(connection);
        server.until("all is free", Server::is_free).await;
    }
    let reply = server.client.post(COMPLETIONS, &json!({"prompt": "Say yes", "temperature": 0})).await;
    assert_eq!(reply.json()["choices"][0]["text"], "yes");
}

// Case 18.
#[actix_web::test]
async fn a_client_that_reads_late_gets_every_row_once_and_holds_nobody_up() {
    let server = serve().await;
    let rows: Vec<_> = (0..3_000).map(|row| json!([format!("w{row}")])).collect();
    let body = json!({"template": "{word}", "rows": rows, "stream": true, "max_tokens": 8});
    let late = server.client.begin(RELQUERIES, &body).await;
    server.until("it is taken", |s| !s.running.app.runtime.registry.running().is_empty()).await;
    // Nobody reads, yet the work ends and others are served.
    let other = server.client.post(COMPLETIONS, &json!({"prompt": "Say yes", "temperature": 0})).await;
    assert_eq!(other.json()["choices"][0]["text"], "yes");
    server.until("all rows ran", Server::is_free).await;
    let events = finish(late).await.events();
    let mut seen: Vec<u64> = events.iter().filter_map(|(_, data)| data["index"].as_u64()).collect();
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(0..3_000), "every row once");
    assert_eq!(events.last().map(|(name, _)| name.as_str()), Some("done"));
}

// Case 18.
#[actix_web::test]
async fn for_a_client_that_reads_a_byte_at_a_time_events_are_made_as_it_takes_them() {
    let server = serve().await;
    // One row runs; its long answer goes to every row of the table, far more than any socket takes.
    let body = json!({"template": "w".repeat(1_000), "rows": vec![json!([]); 20_000], "stream": true, "max_tokens": 1_000});
    let request = server.client.request("POST", RELQUERIES, "application/json", body.to_string().as_bytes());
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let mut slow = socket.connect(server.client.address).await.unwrap();
    server.gate.shut();
    slow.write_all(&request).await.unwrap();
    server.until("it is taken", |s| s.gate.passed() == 1).await;
    let relquery = server.running.app.runtime.registry.running().remove(0);
    server.gate.release();
    server.until("its one row ran", Server::is_free).await;
    let mut bytes = Vec::new();
    for _ in 0..5_000 {
        bytes.push(slow.read_u8().await.unwrap());
        // Its stream holds the relQuery until the last event is made; so do the registry and this test.
        assert!(Arc::strong_count(&relquery) > 2, "all was made, and the client has {} bytes", bytes.len());
    }
    assert!(String::from_utf8_lossy(&bytes).contains("event: row"));
    slow.read_to_end(&mut bytes).await.unwrap();
    assert!(bytes.len() > 20_000_000, "{} bytes are not much", bytes.len());
    let events = Reply::parse(&bytes).events();
    assert!(events.iter().filter_map(|(_, data)| data["index"].as_u64()).count() == 20_000);
    assert_eq!(events.last().map(|(name, _)| name.as_str()), Some("done"));
}

// Case 18.
#[actix_web::test]
async fn no_more_of_a_stream_is_made_than_its_client_takes_and_the_sockets_hold() {
    /// Bytes of an event.
    const EVENT: usize = 16 << 10;
    /// Bytes that the client takes.
    const TAKEN: usize = 128 << 20;
    /// Bytes that the sockets of both sides hold at most, and what the server has in hand.
    const AHEAD_MAX: usize = 32 << 20;
    let made = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&made);
    let server = HttpServer::new(move || {
        let made = Arc::clone(&counted);
        let endless = move || {
            let made = Arc::clone(&made);
            let events = futures_util::stream::repeat_with(move || {
                made.fetch_add(EVENT, Ordering::Relaxed);
                Ok(web::Bytes::from_static(&[b' '; EVENT]))
            });
            std::future::ready(gateway::stream::reply(events))
        };
        App::new().default_service(web::to(endless))
    });
    let server = server.workers(1).disable_signals().bind(("127.0.0.1", 0)).unwrap();
    let mut client = TcpStream::connect(server.addrs()[0]).await.unwrap();
    let server = server.run();
    let handle = server.handle();
    actix_web::rt::spawn(server);
    client.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").await.unwrap();
    let (mut taken, mut buffer) = (0, vec![0; 64 << 10]);
    while taken < TAKEN {
        taken += client.read(&mut buffer).await.unwrap();
        let ahead = made.load(Ordering::Relaxed).saturating_sub(taken);
        assert!(ahead <= AHEAD_MAX, "{ahead} bytes are made that nobody has taken");
    }
    drop(client);
    handle.stop(false).await;
}

// Case 18.
#[actix_web::test]
async fn a_client_that_never_reads_is_given_up() {
    let mut hasty = config();
    hasty.server.write_ms_max = Millis(200);
    let server = serve_with(hasty, model()).await;
    // One row runs; its long answer goes to every row of the table, far more than any socket takes.
    let body = json!({"template": "w".repeat(1_500), "rows": vec![json!([]); 20_000], "stream": true, "max_tokens": 500});
    server.gate.shut();
    let mut silent = server.client.begin(RELQUERIES, &body).await;
    server.until("it is taken", |s| s.gate.passed() == 1).await;
    let relquery = server.running.app.runtime.registry.running().remove(0);
    server.gate.release();
    server.until("its one row ran", Server::is_free).await;
    // The registry and this test hold the relQuery; the stream holds it no more.
    server.until("its stream is dropped", |_| Arc::strong_count(&relquery) <= 2).await;
    // What the sockets held can be read; then the connection is broken, without a last event.
    let mut bytes = Vec::new();
    let _ = silent.read_to_end(&mut bytes).await;
    assert!(!String::from_utf8_lossy(&bytes).contains("event: done"));
}

// Case 20.
#[actix_web::test]
async fn calling_off_twice_or_what_never_was_is_harmless() {
    let server = serve().await;
    for id in ["rq-1", "rq-", "rq-x", "rq--1", "rq-99999999999999999999999", "%00", "cl-1"] {
        let path = format!("{RELQUERIES}/{id}");
        assert_eq!(server.client.delete(&path).await.status, 404, "{id}");
        assert_eq!(server.client.get(&path).await.status, 404, "{id}");
    }
    server.gate.shut();
    let stream = server.client.begin(RELQUERIES, &endless(RELQUERIES, true, 500)).await;
    server.gate.allow(3);
    server.until("a decode is at the gate", |s| s.gate.passed() == 4).await;
    let id = public_id(&server.running.app.runtime.registry.running()[0]);
    let path = format!("{RELQUERIES}/{id}");
    let first = server.client.delete(&path).await;
    assert_eq!((first.status, &first.json()["cancelled"]), (200, &json!(true)));
    let second = server.client.delete(&path).await;
    assert_eq!((second.status, &second.json()["cancelled"]), (200, &json!(false)));
    free_within_two_steps(&server).await;
    let events = finish(stream).await.events();
    let (name, data) = events.last().unwrap();
    assert_eq!((name.as_str(), &data["error"]["code"]), ("error", &json!("cancelled")));
    assert_eq!(server.client.get(&path).await.json()["status"], "cancelled");
}

// Case 20.
#[actix_web::test]
async fn calling_off_as_the_answer_comes_is_one_or_the_other() {
    let server = serve().await;
    for _ in 0..20 {
        server.gate.shut();
        let connection = server.client.begin(RELQUERIES, &endless(RELQUERIES, false, 1)).await;
        server.until("it is taken", |s| !s.running.app.runtime.registry.running().is_empty()).await;
        let id = public_id(&server.running.app.runtime.registry.running()[0]);
        let path = format!("{RELQUERIES}/{id}");
        let (deleted, ()) = tokio::join!(server.client.delete(&path), async { server.gate.release() });
        let cancelled = deleted.json()["cancelled"] == true;
        let reply = finish(connection).await.json();
        let expected = if cancelled { "cancelled" } else { "completed" };
        assert_eq!(reply["status"], expected, "{reply}");
        server.until("all is free", Server::is_free).await;
    }
}

// Case 20.
#[actix_web::test]
async fn calling_off_under_memory_pressure_frees_exactly_once() {
    // Two rows of 7 prompt and 100 output tokens each need 14 blocks of 8; there are 9: one preempts the
    // other.
    let mut tight = config();
    tight.scheduler = SchedulerConfig { watermark_permille: 0, ..SchedulerConfig::default() };
    let server = serve_with(tight, Model { kv_blocks: 9, ..model() }).await;
    for steps in [20, 60, 80] {
        let before = server.gate.passed();
        server.gate.shut();
        let mut connections = Vec::new();
        for prompt in ["Say one", "Say two", "Say six"] {
            let body = json!({"prompt": prompt, "max_tokens": 100, "ignore_eos": true, "stream": true});
            connections.push(server.client.begin(COMPLETIONS, &body).await);
        }
        server.until("all three are taken", |s| s.running.app.runtime.registry.running().len() == 3).await;
        server.gate.allow(steps);
        server.until("the steps are done", |s| s.gate.passed() > before + steps).await;
        leave(&server, connections.remove(1)).await;
        server.gate.release();
        for connection in connections {
            assert_eq!(data(&finish(connection).await).last(), Some(&json!("[DONE]")), "the others end well");
        }
        server.until("all is free", Server::is_free).await;
    }
}

// Case 21.
#[actix_web::test]
async fn an_error_after_the_first_byte_is_an_event_and_then_the_end() {
    for path in [RELQUERIES, COMPLETIONS] {
        let server = serve().await;
        server.gate.shut();
        // The second row outlives the first, whose event goes out before the trouble.
        let mut body = endless(path, true, 500);
        body["ignore_eos"] = json!(false);
        body["max_tokens"] = json!(50);
        if path == RELQUERIES {
            body["rows"] = json!([["a"], ["bbbbbbbb"]]);
        } else {
            body["prompt"] = json!(["Say a", "Say bbbbbbbb"]);
        }
        let mut stream = server.client.begin(path, &body).await;
        server.gate.allow(4);
        let first = read_until(&mut stream, "stop").await;
        assert!(first.starts_with("HTTP/1.1 200"));
        server.gate.panic();
        server.gate.release();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).await.unwrap();
        assert!(rest.contains("executor_dead"), "{path}: {rest}");
        assert!(!rest.contains("[DONE]") && !rest.contains("event: done"), "{path}: {rest}");
        let after = server.client.post(path, &body).await;
        assert_eq!(after.status, 503, "{path}: {}", after.body);
        assert_eq!(server.client.get("/healthz").await.status, 503);
    }
}

// Case 21.
#[actix_web::test]
async fn a_row_that_fails_is_an_error_where_rows_have_none_of_their_own() {
    let server = serve().await;
    // One step of all rows fails, then those of the first row alone.
    let attempts = 1 + u64::from(SchedulerConfig::default().attempts_max);
    for stream in [false, true] {
        server.gate.fail(attempts);
        let reply = server.client.post(COMPLETIONS, &endless(COMPLETIONS, stream, 5)).await;
        if stream {
            let events = data(&reply);
            assert_eq!((reply.status, &events.last().unwrap()["error"]["code"]), (200, &json!("row_failed")));
        } else {
            assert_eq!((reply.status, &reply.json()["error"]["code"]), (500, &json!("row_failed")));
        }
        server.until("all is free", Server::is_free).await;
    }
    server.gate.fail(attempts);
    let reply = server.client.post(RELQUERIES, &endless(RELQUERIES, false, 5)).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.json()["rows"][0]["error"]["code"], "row_failed");
    // The executor is well again and nobody carries a grudge.
    let reply = server.client.post(COMPLETIONS, &endless(COMPLETIONS, false, 5)).await;
    assert_eq!(reply.json()["choices"][1]["text"], "two..");
}

// Case 22.
#[actix_web::test]
async fn a_deadline_that_passes_in_the_queue_stops_the_work() {
    for stream in [false, true] {
        let server = serve().await;
        server.gate.shut();
        let mut body = endless(COMPLETIONS, stream, 500);
        body["deadline_ms"] = json!(1);
        let reply = server.client.post(COMPLETIONS, &body).await;
        let error = if stream { data(&reply).pop().unwrap() } else { reply.json() };
        assert_eq!(reply.status, if stream { 200 } else { 504 }, "{}", reply.body);
        assert_eq!(error["error"]["code"], "deadline_exceeded");
        assert_eq!(error["usage"]["completion_tokens"], 0);
        free_within_two_steps(&server).await;
    }
}

// Case 22.
#[actix_web::test]
async fn a_deadline_that_passes_mid_run_stops_the_work_and_tells_what_was_spent() {
    let server = serve().await;
    server.gate.shut();
    let mut body = endless(COMPLETIONS, true, 500);
    body["deadline_ms"] = json!(1_500);
    server.gate.allow(3);
    let mut stream = server.client.begin(COMPLETIONS, &body).await;
    read_until(&mut stream, "\"text\":").await;
    server.until("a decode is at the gate", |s| s.gate.passed() == 4).await;
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    let error = rest.split("data: ").last().unwrap().split("\n\n").next().unwrap();
    let error: Value = serde_json::from_str(error).unwrap();
    assert_eq!(error["error"]["code"], "deadline_exceeded");
    assert_eq!(error["usage"]["completion_tokens"], 2 * 3, "two rows, three steps each");
    assert!(!rest.contains("[DONE]"));
    free_within_two_steps(&server).await;
}

// Case 22. A relQuery goes on for a ticket: its deadline is the reply's, not the work's.
#[actix_web::test]
async fn a_relquerys_deadline_gives_what_there_is_and_a_ticket_for_the_rest() {
    let server = serve().await;
    server.gate.shut();
    let body = json!({"template": "Say {word}", "rows": [["one"], ["two"]], "deadline_ms": 1});
    let reply = server.relquery(body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let reply = reply.json();
    assert_eq!((&reply["status"], &reply["rows"][1]["pending"]), (&json!("partial"), &json!(true)));
    let path = format!("{RELQUERIES}/{}", reply["ticket"].as_str().unwrap());
    assert_eq!(server.client.get(&path).await.json()["status"], "running");
    server.gate.release();
    server.until("all is free", Server::is_free).await;
    let later = server.client.until_over(&path).await;
    assert_eq!((&later["status"], &later["rows"][1]["text"]), (&json!("completed"), &json!("two")));
    // Called off instead, the work stops.
    server.gate.shut();
    let body = json!({"template": "Tell {word}", "rows": [["one"], ["two"]], "deadline_ms": 1});
    let ticket = server.relquery(body).await.json()["ticket"].as_str().unwrap().to_owned();
    assert_eq!(server.client.delete(&format!("{RELQUERIES}/{ticket}")).await.json()["cancelled"], true);
    free_within_two_steps(&server).await;
}
