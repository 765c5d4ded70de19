//! Output limits above the operator's, which clients cannot know: OpenAI's and Anthropic's routes lower them, unless what
//! has no effect is to be refused.

use gateway::config::{Config, UnknownFields};
use serde_json::{Value, json};
use serving::model::Model;
use store::DEFAULT_TENANT;

use crate::common::batch::{line, make, read, until_over, upload};
use crate::common::client::finish;
use crate::common::replica::{FakeReplica, fleet};
use crate::common::words::until_up;
use crate::common::{
    Parties, config, lasting_store, model, serve_fleet, serve_on, serve_parties, serve_with,
};

const IGNORED: &str = "x-relserve-ignored-fields";
/// What the operator allows.
const MOST: u64 = 8;

/// Routes of clients: their names of the limit, and where a reply says that it was met, and in which word.
const ROUTES: [(&str, &str, &str, &str); 5] = [
    ("/v1/chat/completions", "max_tokens", "/choices/0/finish_reason", "length"),
    ("/v1/chat/completions", "max_completion_tokens", "/choices/0/finish_reason", "length"),
    ("/v1/completions", "max_tokens", "/choices/0/finish_reason", "length"),
    ("/v1/responses", "max_output_tokens", "/incomplete_details/reason", "max_output_tokens"),
    ("/v1/messages", "max_tokens", "/stop_reason", "max_tokens"),
];

fn limited(unknown_fields: UnknownFields) -> Config {
    let mut config = config();
    config.limits.output_tokens_max = MOST;
    config.openai.unknown_fields = unknown_fields;
    config
}

/// A body for a route whose answer goes on until a limit ends it.
fn endless(path: &str) -> Value {
    let mut body = match path {
        "/v1/completions" => json!({"prompt": "Say yes"}),
        "/v1/responses" => json!({"input": "Say yes"}),
        _ => json!({"messages": [{"role": "user", "content": "Say yes"}]}),
    };
    body["ignore_eos"] = true.into();
    body
}

#[actix_web::test]
async fn a_limit_above_the_operators_is_lowered_and_named_on_the_routes_of_clients() {
    for (unknown_fields, is_named) in [(UnknownFields::Warn, true), (UnknownFields::Ignore, false)] {
        let server = serve_with(limited(unknown_fields), Model { has_chat: true, ..model() }).await;
        for (path, field, place, word) in ROUTES {
            for (tokens, is_above) in [(u64::MAX, true), (32_000, true), (MOST + 1, true), (MOST, false)] {
                let mut body = endless(path);
                body[field] = tokens.into();
                let reply = server.client.post(path, &body).await;
                assert_eq!(reply.status, 200, "{path} {tokens}: {}", reply.body);
                let named = (is_named && is_above).then_some(field);
                assert_eq!(reply.header(IGNORED), named, "{path} {tokens}");
                let reply = reply.json();
                assert_eq!(reply.pointer(place), Some(&json!(word)), "{path} {tokens}: {reply}");
                let usage = &reply["usage"];
                let said = usage["completion_tokens"].as_u64().or(usage["output_tokens"].as_u64());
                assert_eq!(said, Some(MOST), "{path} {tokens}: {reply}");
            }
        }
        // What is in force is told.
        let mut body = endless("/v1/responses");
        body["max_output_tokens"] = 128_000.into();
        let response = server.client.post("/v1/responses", &body).await.json();
        assert_eq!(response["max_output_tokens"], MOST);
        server.until_free().await;
    }
}

#[actix_web::test]
async fn a_stream_that_meets_the_lowered_limit_says_so() {
    let server = serve_with(limited(UnknownFields::Warn), Model { has_chat: true, ..model() }).await;
    let mut body = endless("/v1/chat/completions");
    body["max_tokens"] = 64_000.into();
    body["stream"] = true.into();
    let reply = server.client.post("/v1/chat/completions", &body).await;
    assert_eq!((reply.status, reply.header(IGNORED)), (200, Some("max_tokens")), "{}", reply.body);
    let events = reply.events();
    let ends = events.iter().filter_map(|(_, chunk)| chunk.pointer("/choices/0/finish_reason")?.as_str());
    assert_eq!(ends.collect::<Vec<_>>(), ["length"]);
    server.until_free().await;
}

#[actix_web::test]
async fn where_what_has_no_effect_is_refused_so_is_a_limit_above_the_operators() {
    let server = serve_with(limited(UnknownFields::Refuse), Model { has_chat: true, ..model() }).await;
    for (path, field, ..) in ROUTES {
        let mut body = endless(path);
        body[field] = (MOST + 1).into();
        let reply = server.client.post(path, &body).await;
        assert_eq!((reply.status, reply.header(IGNORED)), (400, None), "{path}: {}", reply.body);
        assert_eq!(reply.json()["error"]["param"], field, "{path}: {}", reply.body);
        body[field] = MOST.into();
        let reply = server.client.post(path, &body).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    }
    server.until_free().await;
}

#[actix_web::test]
async fn a_limit_of_no_token_is_told_the_operators_most_on_every_route() {
    let server = serve_with(limited(UnknownFields::Warn), Model { has_chat: true, ..model() }).await;
    let table = json!({"template": "Say {w}", "rows": [["a"]]});
    let asked = ROUTES.map(|(path, field, ..)| (path, field, endless(path)));
    for (path, field, mut body) in asked.into_iter().chain([("/v1/relqueries", "max_tokens", table)]) {
        body[field] = 0.into();
        let reply = server.client.post(path, &body).await;
        assert_eq!(
            (reply.status, &reply.json()["error"]["param"]),
            (400, &json!(field)),
            "{path}: {}",
            reply.body
        );
        let told = format!("at least 1 and at most {MOST} (limits.output_tokens_max)");
        // Anthropic's errors have no code.
        let message = reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(&told), "{path}: {}", reply.body);
    }
}

#[actix_web::test]
async fn a_relquery_is_refused_a_limit_above_the_operators_whatever_the_setting() {
    let server = serve_with(limited(UnknownFields::Warn), model()).await;
    let table = json!({"template": "Say {w}", "rows": [["a"]], "max_tokens": MOST + 1});
    let reply = server.relquery(table).await;
    let param = reply.json()["error"]["param"].clone();
    assert_eq!((reply.status, param), (400, json!("max_tokens")), "{}", reply.body);
}

#[actix_web::test]
async fn a_budget_sets_the_lowered_limit_aside() {
    let Parties { server, operators, .. } = serve_parties(limited(UnknownFields::Warn)).await;
    let limits = json!({"limits": {"day_tokens": 120}});
    assert_eq!(operators.post("/v1/tenants/default", &limits).await.status, 200);
    server.gate.shut();
    let body = json!({"prompt": "Say yes", "max_tokens": 1_000});
    let running = server.client.begin("/v1/completions", &body).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    let reserved = server.running.app.runtime.shared.budgets.status(DEFAULT_TENANT).reserved;
    assert_eq!(reserved.tokens, "Say yes".len() as u64 + MOST);
    server.gate.release();
    let done = finish(running).await;
    assert_eq!((done.status, done.header(IGNORED)), (200, Some("max_tokens")), "{}", done.body);
}

#[actix_web::test]
async fn a_replica_is_told_a_limit_that_is_named_and_none_where_none_is() {
    let replica = FakeReplica::start().await;
    let mut config = fleet(vec![replica.executor()]);
    config.limits.output_tokens_max = MOST;
    let server = serve_fleet(config).await;
    until_up(&server, 1).await;
    for (named, told) in
        [(json!(64_000), json!(MOST)), (json!(MOST), json!(MOST)), (Value::Null, Value::Null)]
    {
        let body =
            json!({"model": "m", "max_tokens": named, "messages": [{"role": "user", "content": "say hi"}]});
        let reply = server.client.post("/v1/chat/completions", &body).await;
        assert_eq!(reply.status, 200, "{named}: {}", reply.body);
        let asked = replica.state().asked.last().cloned().unwrap_or_default();
        assert_eq!(asked["max_tokens"], told, "{named}: {asked}");
    }
}

#[actix_web::test]
async fn lines_of_a_batch_go_by_the_limits_of_their_route() {
    for unknown_fields in [UnknownFields::Warn, UnknownFields::Refuse] {
        let (_dir, store) = lasting_store().await;
        let server = serve_on(limited(unknown_fields), model(), store).await;
        let text = line("long", json!({"prompt": "Say yes", "max_tokens": 128_000}));
        let batch = make(&server.client, &upload(&server.client, &text).await).await;
        let batch = until_over(&server.client, batch["id"].as_str().unwrap()).await;
        if unknown_fields == UnknownFields::Warn {
            let answers = read(&server.client, &batch["output_file_id"]).await;
            assert_eq!(answers, [("long".to_owned(), "yes".to_owned())], "{batch}");
        } else {
            let errors = read(&server.client, &batch["error_file_id"]).await;
            assert!(matches!(&errors[..], [(_, error)] if error.contains("`max_tokens`")), "{errors:?}");
        }
        server.until_free().await;
    }
}
