//! `Idempotency-Key`: a repeated request is the same run, whether that is over or under way.

use base::{Bytes, Millis};
use serde_json::{Value, json};
use serving::model::Model;
use store::{Store, UnixMillis};

use crate::common::client::{Client, Reply, finish, read_until};
use crate::common::{Parties, Server, config, key_of, model, serve, serve_on, serve_parties, serve_with};

pub(crate) const RELQUERIES: &str = "/v1/relqueries";
pub(crate) const CELLS: &str = "/v1/cells";

/// A good body of a route that runs anew each time it is asked.
pub(crate) fn body(path: &str) -> Value {
    match path {
        RELQUERIES => json!({"template": "Say {w}", "rows": [["a"], ["b"]], "cache": false}),
        _ => json!({"calls": [{"function": "ask", "args": ["yes"]}], "cache": false}),
    }
}

/// The bytes of a request with an idempotency key.
pub(crate) fn keyed(client: &Client, path: &str, key: &str, body: &Value) -> Vec<u8> {
    let bytes = client.request("POST", path, "application/json", body.to_string().as_bytes());
    let text = String::from_utf8(bytes).unwrap();
    text.replacen("\r\n", &format!("\r\nIdempotency-Key: {key}\r\n"), 1).into_bytes()
}

/// Posts with an idempotency key.
pub(crate) async fn post(client: &Client, path: &str, key: &str, body: &Value) -> Reply {
    client.raw(&keyed(client, path, key, body)).await
}

/// Waits until so many repeats have joined.
async fn joined(server: &Server, repeats: f64) {
    server.until("repeats join", |server| server.metric("relserve_repeats_total") == repeats).await;
}

#[actix_web::test]
async fn a_repeated_request_gets_the_first_ones_id_and_answers_without_a_step() {
    let server = serve().await;
    for path in [RELQUERIES, CELLS] {
        let first = post(&server.client, path, path, &body(path)).await;
        assert_eq!(first.status, 200, "{}", first.body);
        let steps = server.gate.passed();
        let second = post(&server.client, path, path, &body(path)).await;
        assert_eq!(second.json(), first.json());
        assert_eq!(server.gate.passed(), steps, "no step ran");
        let another = format!("another of {path}");
        let other = post(&server.client, path, &another, &body(path)).await.json();
        assert_ne!(other["id"], first.json()["id"]);
        assert!(server.gate.passed() > steps, "another key is another run");
    }
}

#[actix_web::test]
async fn the_body_of_a_request_with_a_key_is_held_once() {
    let mut config = config();
    // Room for one of them and what it grows by, and not for two.
    config.limits.bodies_bytes_max = Bytes(400 << 10);
    let server = serve_with(config, model()).await;
    let mut large = body(RELQUERIES);
    large["rows"] = json!((0..5_000).map(|row| json!([format!("{row:040}")])).collect::<Vec<_>>());
    large["max_tokens"] = 1.into();
    let bytes = large.to_string().len() as u64;
    assert!((200 << 10..260 << 10).contains(&bytes), "{bytes}");
    for _ in 0..2 {
        let reply = post(&server.client, RELQUERIES, "k", &large).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
    assert_eq!(server.metric("relserve_repeats_total"), 1.0);
}

#[actix_web::test]
async fn a_request_repeated_while_the_first_runs_joins_it() {
    for stream in [false, true] {
        let server = serve().await;
        server.gate.shut();
        let mut body = body(RELQUERIES);
        body["stream"] = json!(stream);
        let request = keyed(&server.client, RELQUERIES, "k", &body);
        let first = server.client.send(&request).await;
        server.until("a step waits", |server| server.gate.passed() == 1).await;
        let second = server.client.send(&request).await;
        joined(&server, 1.0).await;
        assert_eq!(server.running.app.runtime.registry.running().len(), 1);
        server.gate.release();
        let (first, second) = (finish(first).await, finish(second).await);
        if stream {
            assert_eq!(first.events().len(), 3, "two rows and the end");
            let ids = |reply: &Reply| reply.events().last().unwrap().1["id"].clone();
            assert_eq!(ids(&first), ids(&second));
            assert_eq!(first.events()[..2], second.events()[..2]);
        } else {
            assert_eq!(first.json()["id"], second.json()["id"]);
            assert_eq!(first.json()["rows"], second.json()["rows"]);
        }
        assert_eq!(server.gate.computed(), 2 * "Say a".len() as u64, "each row ran once");
        server.until("all is free", |server| server.is_free()).await;
    }
}

#[actix_web::test]
async fn many_equal_requests_at_once_run_once() {
    let server = serve().await;
    let request = keyed(&server.client, RELQUERIES, "k", &body(RELQUERIES));
    let replies = futures_util::future::join_all((0..16).map(|_| server.client.raw(&request))).await;
    let ids: Vec<Value> = replies.iter().map(|reply| reply.json()["id"].clone()).collect();
    assert!(ids.iter().all(|id| *id == ids[0] && id.is_string()), "{ids:?}");
    assert_eq!(server.gate.computed(), 2 * "Say a".len() as u64, "each row ran once");
}

#[actix_web::test]
async fn a_key_used_with_another_request_is_refused_and_the_header_named() {
    let server = serve().await;
    let first = post(&server.client, RELQUERIES, "k", &body(RELQUERIES)).await.json();
    let mut other = body(RELQUERIES);
    other["rows"] = json!([["c"]]);
    for (path, body) in [(RELQUERIES, other), (CELLS, body(CELLS))] {
        let reply = post(&server.client, path, "k", &body).await;
        assert_eq!(reply.status, 422, "{}", reply.body);
        assert!(reply.error().contains("Idempotency-Key"), "{}", reply.body);
        assert_eq!(reply.json()["error"]["param"], "Idempotency-Key");
        assert_eq!(reply.json()["error"]["code"], "idempotency_key_reused");
    }
    assert_eq!(post(&server.client, RELQUERIES, "k", &body(RELQUERIES)).await.json(), first);
}

#[actix_web::test]
async fn a_key_is_one_value_of_bounded_length() {
    let server = serve().await;
    let good = "k".repeat(255);
    assert_eq!(post(&server.client, CELLS, &good, &body(CELLS)).await.status, 200);
    for bad in ["k".repeat(256), String::new(), "ö".into(), "a\r\nIdempotency-Key: b".into()] {
        let reply = post(&server.client, CELLS, &bad, &body(CELLS)).await;
        assert_eq!(reply.status, 400, "{bad:?}: {}", reply.body);
        assert_eq!(reply.json()["error"]["param"], "Idempotency-Key", "{}", reply.error());
    }
}

#[actix_web::test]
async fn a_request_that_could_not_begin_leaves_its_key_free() {
    let mut config = config();
    config.limits.queue_rows_max = 2;
    let server = serve_with(config, model()).await;
    let bad = json!({"template": "Say {w", "rows": [["a"]]});
    let mut large = body(RELQUERIES);
    large["rows"] = json!([["a"], ["b"], ["c"]]);
    for (body, status) in [(bad, 400), (large, 413), (body(RELQUERIES), 200)] {
        assert_eq!(post(&server.client, RELQUERIES, "k", &body).await.status, status);
    }
}

#[actix_web::test]
async fn tenants_share_no_keys() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let server = serve_on(config(), model(), store.clone()).await;
    let tenant = store.create_tenant("other", 1.0, UnixMillis(1)).await.unwrap().id;
    let other = server.client.with_key(&key_of(&store, tenant).await);
    let first = post(&server.client, RELQUERIES, "k", &body(RELQUERIES)).await.json();
    let second = post(&other, RELQUERIES, "k", &body(RELQUERIES)).await.json();
    assert_ne!(first["id"], second["id"]);
    assert_eq!(post(&other, CELLS, "k", &body(CELLS)).await.status, 422);
}

#[actix_web::test]
async fn work_ends_with_the_last_client_that_waits_and_a_repeat_begins_anew() {
    let server = serve().await;
    server.gate.shut();
    let mut body = body(RELQUERIES);
    body["stream"] = json!(true);
    let request = keyed(&server.client, RELQUERIES, "k", &body);
    let mut first = server.client.send(&request).await;
    read_until(&mut first, "\r\n\r\n").await;
    let mut second = server.client.send(&request).await;
    read_until(&mut second, "\r\n\r\n").await;
    joined(&server, 1.0).await;
    drop(first);
    let relquery = server.running.app.runtime.registry.running()[0].clone();
    // The step that follows shows the first client's leaving to the connection's thread.
    server.gate.allow(1);
    server.until("a step passes", |server| server.gate.passed() == 2).await;
    assert!(!relquery.read().is_over(), "the second still waits");
    drop(second);
    server.until("nobody waits", |_| relquery.read().is_over()).await;
    assert_eq!(server.metric("relserve_disconnects_total"), 1.0);
    server.gate.release();
    let third = server.client.raw(&request).await;
    assert_eq!(third.events().last().unwrap().0, "done");
    assert_eq!(server.metric("relserve_repeats_total"), 1.0, "the third joined nothing");
}

#[actix_web::test]
async fn two_clients_whose_deadlines_pass_share_one_ticket() {
    let server = serve().await;
    server.gate.shut();
    let mut body = body(RELQUERIES);
    body["deadline_ms"] = json!(30);
    let request = keyed(&server.client, RELQUERIES, "k", &body);
    let (first, second) = tokio::join!(server.client.raw(&request), server.client.raw(&request));
    let third = server.client.raw(&request).await;
    for reply in [&first, &second, &third] {
        assert_eq!((reply.status, &reply.json()["status"]), (200, &json!("partial")), "{}", reply.body);
        assert_eq!(reply.json()["ticket"], first.json()["id"]);
    }
    assert_eq!(server.metric("relserve_partial_replies_total"), 1.0);
    server.gate.release();
    server.until("the work goes on", |server| server.is_free()).await;
    let fourth = server.client.raw(&request).await.json();
    assert_eq!((&fourth["status"], &fourth["id"]), (&json!("completed"), &first.json()["id"]));
    assert_eq!(fourth["rows"][1]["text"], "b");
}

#[actix_web::test]
async fn a_relquery_that_was_called_off_stays_called_off() {
    let server = serve().await;
    server.gate.shut();
    let request = keyed(&server.client, RELQUERIES, "k", &body(RELQUERIES));
    let first = server.client.send(&request).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    let id = gateway::wire::relquery::public_id(&server.running.app.runtime.registry.running()[0]);
    server.client.delete(&format!("{RELQUERIES}/{id}")).await;
    server.gate.release();
    let first = finish(first).await.json();
    assert_eq!((&first["status"], &first["id"]), (&json!("cancelled"), &json!(id)));
    assert_eq!(server.client.raw(&request).await.json()["id"], json!(id));
}

#[actix_web::test]
async fn an_answer_outlives_the_memory_of_its_run_and_a_restart() {
    let (_dir, store) = crate::common::lasting_store().await;
    let mut config = config();
    config.limits.finished_max = 1;
    let server = serve_on(config.clone(), model(), store.clone()).await;
    let first = post(&server.client, RELQUERIES, "k", &body(RELQUERIES)).await;
    post(&server.client, CELLS, "other", &body(CELLS)).await;
    let second = post(&server.client, RELQUERIES, "k", &body(RELQUERIES)).await;
    assert_eq!((&second.body, second.header("idempotency-replayed")), (&first.body, Some("true")));
    server.running.drain(std::future::pending()).await;
    let server = serve_on(config, model(), store).await;
    let third = post(&server.client, RELQUERIES, "k", &body(RELQUERIES)).await;
    assert_eq!(third.body, first.body);
    let mut another = body(RELQUERIES);
    another["rows"] = json!([["c"]]);
    assert_eq!(post(&server.client, RELQUERIES, "k", &another).await.status, 422);
    assert_eq!(server.gate.passed(), 0, "no step ran");
}

/// A body of every other route that takes a key and needs nothing but what the server is made with.
pub(crate) fn bodies() -> Vec<(&'static str, Value)> {
    let messages = json!([{"role": "user", "content": "Say yes"}]);
    vec![
        ("/v1/chat/completions", json!({"model": "double", "messages": messages, "max_tokens": 3})),
        ("/v1/completions", json!({"model": "double", "prompt": "Say yes", "max_tokens": 3})),
        ("/v1/query", json!({"query": {"g": {"max_tokens": 3, "input": {"user": "Say yes"}}}})),
        ("/v1/schemas", json!({"schema": "<schema name=\"s\"><module name=\"m\">a text</module></schema>"})),
    ]
}

/// A model that can chat.
pub(crate) fn chatting() -> Model {
    Model { has_chat: true, ..model() }
}

#[actix_web::test]
async fn every_post_is_answered_once_also_after_a_restart_and_by_another_gateway() {
    let (_dir, store) = crate::common::lasting_store().await;
    let server = serve_on(config(), chatting(), store.clone()).await;
    let mut first = Vec::new();
    for (path, body) in bodies() {
        let reply = post(&server.client, path, path, &body).await;
        assert_eq!(
            (reply.status, reply.header("idempotency-replayed")),
            (200, None),
            "{path}: {}",
            reply.body
        );
        first.push(reply);
    }
    let steps = server.gate.passed();
    for ((path, mut body), first) in bodies().into_iter().zip(&first) {
        let again = post(&server.client, path, path, &body).await;
        assert_eq!((again.status, &again.body), (200, &first.body), "{path}");
        assert_eq!(again.header("idempotency-replayed"), Some("true"), "{path}");
        assert_eq!(again.header("content-type"), first.header("content-type"), "{path}");
        body["max_tokens"] = json!(2);
        let other = post(&server.client, path, path, &body).await;
        assert_eq!(
            (other.status, &other.json()["error"]["param"]),
            (422, &json!("Idempotency-Key")),
            "{path}"
        );
    }
    assert_eq!(server.gate.passed(), steps, "no step ran");
    server.running.drain(std::future::pending()).await;
    let server = serve_on(config(), chatting(), store).await;
    for ((path, body), first) in bodies().into_iter().zip(&first) {
        assert_eq!(post(&server.client, path, path, &body).await.body, first.body, "{path}");
    }
    assert_eq!(server.gate.passed(), 0, "no step ran after the restart");
}

/// Two bodies each of further routes: one that is sent twice, and another.
fn further_bodies() -> Vec<(&'static str, Value, Value)> {
    let messages = json!([{"role": "user", "content": "Say yes"}]);
    let message = |most: u64| json!({"model": "double", "messages": messages, "max_tokens": most});
    let response = |most: u64| json!({"model": "double", "input": "Say yes", "max_output_tokens": most});
    let statement = |word: &str| {
        let query =
            format!("SELECT ai_complete(prompt('Say {{0}}', w)) AS x FROM (VALUES ('{word}')) AS t(w)");
        json!({ "query": query })
    };
    vec![
        ("/v1/responses", response(3), response(2)),
        ("/v1/messages", message(3), message(2)),
        ("/v1/sql", statement("yes"), statement("no")),
        ("/v1/embeddings", json!({"input": "fish"}), json!({"input": "boat"})),
    ]
}

/// What a tenant was counted through each route: requests, rows, and tokens of prompts and answers.
async fn counted(store: &Store) -> std::collections::BTreeMap<String, [u64; 4]> {
    let mut sums = std::collections::BTreeMap::new();
    for row in store.usage(Some(store::DEFAULT_TENANT), 0..=u64::MAX).await.unwrap() {
        let sum: &mut [u64; 4] = sums.entry(row.key.route).or_default();
        let used = [row.used.requests, row.used.rows, row.used.prompt.0, row.used.output.0];
        sum.iter_mut().zip(used).for_each(|(sum, used)| *sum += used);
    }
    sums
}

#[actix_web::test]
async fn responses_messages_statements_and_embeddings_are_answered_and_counted_once() {
    let (_folder, config) = crate::embeddings::embedding();
    let mut counts = Vec::new();
    for times in [1, 3] {
        let (_dir, store) = crate::common::lasting_store().await;
        let server = serve_on(config.clone(), chatting(), store.clone()).await;
        for (path, body, other) in further_bodies() {
            let first = post(&server.client, path, path, &body).await;
            assert_eq!(
                (first.status, first.header("idempotency-replayed")),
                (200, None),
                "{path}: {}",
                first.body
            );
            let steps = server.gate.passed();
            for _ in 1..times {
                let again = post(&server.client, path, path, &body).await;
                assert_eq!((again.status, &again.body), (200, &first.body), "{path}");
                assert_eq!(again.header("idempotency-replayed"), Some("true"), "{path}");
                assert_eq!(again.header("content-type"), first.header("content-type"), "{path}");
                let refused = post(&server.client, path, path, &other).await;
                assert_eq!(refused.status, 422, "{path}: {}", refused.body);
                assert!(refused.body.contains("`Idempotency-Key` was used with another"), "{}", refused.body);
                // Anthropic's errors say so at their top.
                assert_eq!(refused.json()["type"] == "error", path == "/v1/messages", "{}", refused.body);
            }
            assert_eq!(server.gate.passed(), steps, "no step ran: {path}");
        }
        server.until_free().await;
        server.running.drain(std::future::pending()).await;
        counts.push(counted(&store).await);
    }
    assert_eq!(counts[0], counts[1], "asked once, and three times");
    let requests: u64 = counts[0].values().map(|sum| sum[0]).sum();
    assert!(requests >= further_bodies().len() as u64, "each was counted: {counts:?}");
}

#[actix_web::test]
async fn a_statement_that_ends_with_a_ticket_is_not_kept_as_its_answer() {
    let server = serve().await;
    server.gate.shut();
    let (path, mut body, _) = further_bodies().remove(2);
    body["deadline_ms"] = json!(60);
    let mut tickets = Vec::new();
    for _ in 0..2 {
        let reply = post(&server.client, path, "k", &body).await;
        assert_eq!((reply.status, reply.header("idempotency-replayed")), (200, None), "{}", reply.body);
        let last: Value = serde_json::from_str(reply.body.lines().last().unwrap()).unwrap();
        assert_eq!(last["status"], "partial", "{}", reply.body);
        tickets.push(last["ticket"].clone());
    }
    assert_ne!(tickets[0], tickets[1], "it ran again");
    server.gate.release();
}

#[actix_web::test]
async fn answers_that_hold_secrets_are_kept_by_no_key() {
    let Parties { server, operators, .. } = serve_parties(config()).await;
    let asked = json!({"name": "ops", "tenant": "default", "operator": true});
    let key = operators.post("/v1/keys", &asked).await.json()["key"].as_str().unwrap().to_owned();
    let operator = server.client.with_key(&key);
    let workbook = json!({"name": "Sales", "content": {"sheets": []}, "base": 0});
    assert_eq!(operator.post("/v1/workbooks/w", &workbook).await.status, 200);
    for (path, body, secret) in [
        ("/v1/keys", json!({"name": "desk", "tenant": "default"}), "key"),
        ("/v1/%6beys", json!({"name": "desk", "tenant": "default"}), "key"),
        ("/v1/workbooks/w/shares", json!({"days": 2}), "token"),
    ] {
        let [first, second] =
            [post(&operator, path, "k", &body).await, post(&operator, path, "k", &body).await];
        assert_eq!((first.status, second.status), (200, 200), "{path}: {}", second.body);
        assert_eq!(second.header("idempotency-replayed"), None, "{path}");
        assert!(first.json()[secret].is_string(), "{path}: {}", first.body);
        assert_ne!(first.json()[secret], second.json()[secret], "{path}");
    }
}

#[actix_web::test]
async fn equal_chats_at_once_are_one_and_their_stream_is_kept_whole() {
    let server = serve_with(config(), chatting()).await;
    for stream in [false, true] {
        let (path, mut body) = bodies().remove(0);
        body["stream"] = json!(stream);
        let request = keyed(&server.client, path, &format!("k-{stream}"), &body);
        let replies = futures_util::future::join_all((0..8).map(|_| server.client.raw(&request))).await;
        assert!(replies.iter().all(|reply| reply.status == 200 && reply.body == replies[0].body));
        // Each run has an id of its own, which is in the body.
        let another = keyed(&server.client, path, &format!("another-{stream}"), &body);
        assert_ne!(server.client.raw(&another).await.body, replies[0].body);
    }
}

#[actix_web::test]
async fn what_failed_or_is_too_long_is_not_kept() {
    let mut config = config();
    config.limits.idempotency_reply_bytes_max = Bytes(64);
    let server = serve_with(config, chatting()).await;
    let (path, body) = bodies().remove(0);
    let wrong = json!({"model": "double", "messages": []});
    assert_eq!(post(&server.client, path, "k", &wrong).await.status, 400);
    let first = post(&server.client, path, "k", &body).await.json();
    let second = post(&server.client, path, "k", &body).await.json();
    assert_ne!(first["id"], second["id"], "more than 64 bytes");
}

#[actix_web::test]
async fn of_a_tenants_replies_the_oldest_leave_room_for_the_newest_within_its_bytes() {
    let (path, body) = bodies().remove(0);
    let one = post(&serve_with(config(), chatting()).await.client, path, "k", &body).await.body.len();
    let mut config = config();
    // Room for one and a half: their ids differ, their lengths hardly.
    config.limits.tenant_idempotency_bytes_max = Bytes(one as u64 * 3 / 2);
    let server = serve_with(config, chatting()).await;
    // Where both are kept in one millisecond, the first by name is the newest.
    for (key, replayed) in [("b", None), ("b", Some("true")), ("a", None), ("a", Some("true")), ("b", None)] {
        let reply = post(&server.client, path, key, &body).await;
        assert_eq!((reply.status, reply.header("idempotency-replayed")), (200, replayed), "{key}");
    }
}

#[actix_web::test]
async fn a_key_lives_as_long_as_a_ticket() {
    let mut config = config();
    config.store.ticket_ms_max = Millis(0);
    let server = serve_with(config, model()).await;
    let first = post(&server.client, RELQUERIES, "k", &body(RELQUERIES)).await.json();
    let second = post(&server.client, RELQUERIES, "k", &body(RELQUERIES)).await.json();
    assert_ne!(first["id"], second["id"]);
}

/// A request whose deadline passes at once, and its reply: what there is, and a ticket.
async fn promised(server: &Server, path: &str) -> (Value, Value) {
    let mut body = body(path);
    body["deadline_ms"] = json!(1);
    let reply = post(&server.client, path, "k", &body).await.json();
    assert_eq!((&reply["status"], &reply["ticket"]), (&json!("partial"), &reply["id"]), "{reply}");
    (body, reply["id"].clone())
}

/// What another gateway of the database says to a request that the first gave a ticket, while that runs and once it is
/// over.
pub(crate) async fn another_gateway_knows_the_ticket(store: &Store, path: &str) {
    let mut settings = config();
    let first = serve_on(settings.clone(), model(), store.clone()).await;
    settings.store.node = "another".into();
    let second = serve_on(settings, model(), store.clone()).await;
    first.gate.shut();
    let (asked, id) = promised(&first, path).await;
    let again = post(&second.client, path, "k", &asked).await;
    assert_eq!((again.status, &again.json()["status"]), (200, &json!("partial")), "{}", again.body);
    assert_eq!((&again.json()["id"], &again.json()["ticket"]), (&id, &id));
    let mut changed = asked.clone();
    changed["deadline_ms"] = json!(2);
    let elsewhere = if path == CELLS { RELQUERIES } else { CELLS };
    for (path, body) in [(path, changed), (elsewhere, body(elsewhere)), bodies().remove(0)] {
        let other = post(&second.client, path, "k", &body).await;
        assert_eq!(
            (other.status, &other.json()["error"]["param"]),
            (422, &json!("Idempotency-Key")),
            "{path}"
        );
    }
    let mut streamed = asked.clone();
    streamed["stream"] = json!(true);
    let key = "another key";
    assert_eq!(post(&first.client, path, key, &streamed).await.events().last().unwrap().0, "done");
    let events = post(&second.client, path, key, &streamed).await;
    let (name, done) = &events.events()[0];
    assert_eq!((name.as_str(), &done["status"]), ("done", &json!("partial")), "{}", events.body);
    assert_eq!(second.gate.passed(), 0, "it began nothing");
    assert_eq!(second.metric("relserve_repeats_total"), 2.0);
    first.gate.release();
    let mut whole = again;
    while whole.json()["status"] == "partial" {
        whole = post(&second.client, path, "k", &asked).await;
    }
    assert_eq!((&whole.json()["status"], &whole.json()["id"]), (&json!("completed"), &id), "{}", whole.body);
    assert_eq!(post(&second.client, path, "k", &asked).await.header("idempotency-replayed"), Some("true"));
    assert_eq!(second.gate.passed(), 0, "it began nothing");
}

#[actix_web::test]
async fn a_ticket_is_known_by_its_key_to_another_gateway() {
    for path in [RELQUERIES, CELLS] {
        let (_dir, store) = crate::common::lasting_store().await;
        another_gateway_knows_the_ticket(&store, path).await;
    }
}

#[actix_web::test]
async fn a_ticket_is_known_by_its_key_after_a_restart() {
    let (_dir, store) = crate::common::lasting_store().await;
    let mut settings = config();
    settings.server.drain_ms_max = Millis(0);
    let server = serve_on(settings.clone(), model(), store.clone()).await;
    server.gate.shut();
    let (asked, id) = promised(&server, RELQUERIES).await;
    let (app, gate) = (server.running.app.clone(), server.gate.clone());
    let release = async {
        let mut looks = tokio::time::interval(std::time::Duration::from_millis(1));
        while app.runtime.registry.running().len() == 1 {
            looks.tick().await;
        }
        gate.release();
    };
    tokio::join!(server.running.drain(std::future::pending()), release);
    let server = serve_on(settings, model(), store).await;
    // It may be over by now, or not begun again.
    let mut again = post(&server.client, RELQUERIES, "k", &asked).await.json();
    while again["status"] == "partial" {
        assert_eq!((&again["id"], &again["ticket"]), (&id, &id));
        again = post(&server.client, RELQUERIES, "k", &asked).await.json();
    }
    assert_eq!((&again["status"], &again["id"]), (&json!("completed"), &id), "{again}");
    assert_eq!(server.gate.computed(), 2 * "Say a".len() as u64, "each row ran once");
    let mut changed = asked;
    changed["rows"] = json!([["c"]]);
    assert_eq!(post(&server.client, RELQUERIES, "k", &changed).await.status, 422);
}
