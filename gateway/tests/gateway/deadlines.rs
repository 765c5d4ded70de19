//! One deadline, counted from a request's head: a body that arrives slowly and text that takes long to
//! tokenize do not move it. Replies come while the body is still unsent, or the tokenizer still stands:
//! nothing here measures time.

use std::sync::{Arc, Condvar, Mutex};

use base::text::ByteText;
use base::{After, ChatTemplate, MarkupPart, Piece, Role, TextError, TokenId, Tokenizer};
use serde_json::{Value, json};
use serving::model::Model;
use store::{TicketState, UnixMillis};

use crate::common::client::{Client, Reply, finish, read_until};
use crate::common::{Server, config, model, serve, serve_with};

/// Where a tokenizer stands while it is shut.
#[derive(Debug, Default)]
struct Pause {
    is_shut: Mutex<bool>,
    changed: Condvar,
}

impl Pause {
    fn set(&self, shut: bool) {
        *self.is_shut.lock().unwrap() = shut;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let shut = self.is_shut.lock().unwrap();
        drop(self.changed.wait_while(shut, |shut| *shut).unwrap());
    }
}

/// Bytes, tokenized when the test allows it.
struct Slow(Arc<Pause>);

impl Tokenizer for Slow {
    fn split_markup(&self, text: &str) -> Vec<MarkupPart> {
        ByteText.split_markup(text)
    }

    fn encode_stretch(&self, _: After, text: &str) -> Vec<TokenId> {
        self.encode_data(text)
    }

    fn encode_data(&self, text: &str) -> Vec<TokenId> {
        self.0.pass();
        ByteText.encode_data(text)
    }

    fn decode(&self, tokens: &[TokenId]) -> String {
        ByteText.decode(tokens)
    }

    fn vocab_size(&self) -> u32 {
        ByteText.vocab_size()
    }

    fn prompt_start(&self) -> Vec<TokenId> {
        ByteText.prompt_start()
    }
}

impl ChatTemplate for Slow {
    fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError> {
        ByteText.frame(roles)
    }
}

/// A server whose tokenizer stands still.
async fn paused() -> (Server, Arc<Pause>) {
    let pause = Arc::new(Pause::default());
    let model = Model { text: Arc::new(Slow(Arc::clone(&pause))), has_chat: true, ..model() };
    let server = serve_with(config(), model).await;
    pause.set(true);
    (server, pause)
}

/// A ticket as it stands.
async fn look(client: &Client, path: &str, reply: &Value) -> Value {
    client.get(&format!("{path}/{}", reply["ticket"].as_str().unwrap())).await.json()
}

/// A ticket once it is over.
async fn look_until_stored(client: &Client, path: &str, reply: &Value) -> Value {
    client.until_over(&format!("{path}/{}", reply["ticket"].as_str().unwrap())).await
}

/// Refuses a reply that is not that of a deadline before any token.
fn assert_too_late(reply: &Reply, told: &str) {
    assert_eq!(reply.status, 504, "{told}: {}", reply.body);
    let error = reply.json();
    assert_eq!(error["error"]["code"], "deadline_exceeded", "{told}");
    assert_eq!(error["usage"]["total_tokens"], 0, "{told}");
}

#[actix_web::test]
async fn a_body_that_arrives_slowly_is_given_up_when_its_deadline_passes() {
    let server = serve().await;
    let begun = r#"{"deadline_ms": 30, "stream": false, "template": "Say {w}", "rows": [["a"], ["#;
    for path in ["/v1/relqueries", "/v1/cells", "/v1/completions", "/v1/chat/completions", "/v1/prompts"] {
        let whole = server.client.request("POST", path, "application/json", &[b' '; 1_000]);
        let head = &whole[..whole.len() - 1_000];
        // The rest never comes: a server that waited for it would answer in half a minute, with another
        // status.
        let reply = finish(server.client.send(&[head, begun.as_bytes()].concat()).await).await;
        assert_too_late(&reply, path);
        assert_eq!(reply.header("connection"), Some("close"), "{path}");
    }
    // Where no deadline is taken, none is looked for.
    let asked =
        json!({"schema": "<schema name=\"s\"><module name=\"m\">x</module></schema>", "deadline_ms": 1});
    assert_eq!(server.client.post("/v1/schemas", &asked).await.status, 400);
}

#[actix_web::test]
async fn rows_that_take_long_to_tokenize_are_promised_in_time_and_come_later() {
    let (server, pause) = paused().await;
    let calls = json!([{"function": "ask", "args": ["Say a"]}, {"function": "ask", "args": ["Say b"]}]);
    let rows = json!({"template": "Say {w}", "rows": [["a"], ["b"]], "deadline_ms": 30});
    let mut tickets = Vec::new();
    for (path, list, mut body) in
        [("/v1/relqueries", "rows", rows), ("/v1/cells", "cells", json!({"calls": calls, "deadline_ms": 30}))]
    {
        let reply = server.client.post(path, &body).await.json();
        assert_eq!((&reply["status"], &reply["ticket"]), (&json!("partial"), &reply["id"]), "{reply}");
        assert_eq!(reply[list][1]["pending"], true, "{reply}");
        assert_eq!(look(&server.client, path, &reply).await["status"], "running");
        tickets.push((path, list, reply));
        body["stream"] = json!(true);
        let streamed = server.client.post(path, &body).await;
        let (name, done) = streamed.events().pop().unwrap();
        assert_eq!((name.as_str(), &done["status"]), ("done", &json!("partial")), "{}", streamed.body);
        tickets.push((path, list, done));
    }
    assert_eq!(server.gate.passed(), 0, "no row is ready");
    assert_eq!(server.running.app.runtime.shared.intake.unfinished(), 8, "and each has its room");
    pause.set(false);
    let running = |server: &Server| server.running.app.runtime.registry.running().is_empty();
    server.until("all have run", running).await;
    for (path, list, ticket) in tickets {
        let whole = look_until_stored(&server.client, path, &ticket).await;
        assert_eq!(whole["status"], "completed", "{whole}");
        assert!(whole[list][1].get("pending").is_none(), "{whole}");
    }
    server.until_free().await;
    // Each request was counted when its ticket was made, and none again when it started.
    let usage = server.client.get("/v1/usage").await.json();
    let requests = usage["data"].as_array().unwrap().iter().map(|sum| sum["requests"].as_u64().unwrap());
    assert_eq!(requests.sum::<u64>(), 4, "{usage}");
}

#[actix_web::test]
async fn what_is_called_off_while_it_is_tokenized_never_runs() {
    let (server, pause) = paused().await;
    let body = json!({"template": "Say {w}", "rows": [["a"]], "deadline_ms": 30});
    let ticket = server.relquery(body).await.json();
    let path = format!("/v1/relqueries/{}", ticket["ticket"].as_str().unwrap());
    assert_eq!(server.client.delete(&path).await.json()["cancelled"], true);
    pause.set(false);
    server.client.post("/v1/relqueries", &json!({"template": "Tell {w}", "rows": [["b"]]})).await;
    assert_eq!(server.client.get(&path).await.json()["status"], "cancelled");
    server.until_free().await;
    assert_eq!(server.metric("relserve_partial_replies_total"), 1.0);
}

#[actix_web::test]
async fn a_ticket_tells_what_was_wrong_with_rows_that_were_tokenized_too_late() {
    let (server, pause) = paused().await;
    let long = "word ".repeat(1_000);
    let body = json!({"template": "Say {w}", "rows": [[long]], "deadline_ms": 30});
    let reply = server.relquery(body).await.json();
    assert_eq!(reply["status"], "partial", "{reply}");
    pause.set(false);
    let ended = |server: &Server| server.running.app.runtime.registry.running().is_empty();
    server.until("the ticket is over", ended).await;
    assert_eq!(look_until_stored(&server.client, "/v1/relqueries", &reply).await["status"], "failed");
    server.until_free().await;
}

#[actix_web::test]
async fn a_ticket_ends_where_the_cache_answers_all_rows_that_were_tokenized_too_late() {
    let (server, pause) = paused().await;
    pause.set(false);
    let mut body = json!({"template": "Say {w}", "rows": [["a"]]});
    assert_eq!(server.relquery(body.clone()).await.json()["status"], "completed");
    pause.set(true);
    body["deadline_ms"] = json!(30);
    let reply = server.relquery(body).await.json();
    assert_eq!(reply["status"], "partial", "{reply}");
    pause.set(false);
    let store = &server.running.app.runtime.store;
    let ended = async {
        let mut looks = tokio::time::interval(std::time::Duration::from_millis(1));
        let id = reply["ticket"].as_str().unwrap();
        loop {
            let ticket = store.ticket(store::DEFAULT_TENANT, id, UnixMillis(1)).await.unwrap().unwrap();
            if ticket.state != TicketState::Running {
                return ticket.state;
            }
            looks.tick().await;
        }
    };
    let state = tokio::time::timeout(std::time::Duration::from_secs(20), ended).await;
    assert_eq!(state.expect("who follows it is told of its end"), TicketState::Completed);
    server.until_free().await;
}

#[actix_web::test]
async fn a_prompt_that_takes_long_to_tokenize_is_given_up_when_its_deadline_passes() {
    let (server, pause) = paused().await;
    let messages = json!([{"role": "user", "content": "Say a"}]);
    let query = json!({"g": {"max_tokens": 2, "input": {"user": "Say a"}}});
    for (path, mut body) in [
        ("/v1/completions", json!({"model": "double", "prompt": "Say a"})),
        ("/v1/chat/completions", json!({"model": "double", "messages": messages})),
        ("/v1/query", json!({ "query": query })),
    ] {
        body["deadline_ms"] = json!(30);
        assert_too_late(&server.client.post(path, &body).await, path);
        body["stream"] = json!(true);
        let mut stream = server.client.begin(path, &body).await;
        let told = read_until(&mut stream, "deadline_exceeded").await;
        assert!(told.starts_with("HTTP/1.1 200") && !told.contains("[DONE]"), "{path}: {told}");
    }
    pause.set(false);
    let known = server.client.post("/v1/completions", &json!({"model": "double", "prompt": "Say b"})).await;
    assert_eq!(known.status, 200, "{}", known.body);
    server.until_free().await;
    assert_eq!(server.gate.computed(), 5, "what was given up was never submitted");
}
