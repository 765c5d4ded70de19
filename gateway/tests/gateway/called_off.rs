//! What is called off before its end, or left by its client, is usage up to there: of every route, once.

use std::sync::Arc;

use base::{Millis, ServiceClass, TokenId, WorkItem};
use gateway::wire::relquery::public_id;
use serde_json::{Value, json};
use serving::caller::{Caller, WeightedTenant};
use serving::column::OpenColumn;
use serving::intake::{PendingRow, TemplateRows};
use serving::relquery_state::RelQueryKind;
use serving::submit::Prepared;
use serving::usage_writer;
use store::{DEFAULT_TENANT, Used};
use tokio::net::TcpStream;

use crate::background;
use crate::common::batch::{line, make, until_over, upload};
use crate::common::client::{finish, read_until};
use crate::common::replica::{Act, FakeReplica, fleet};
use crate::common::words::{table, until_up};
use crate::common::{
    Parties, Server, config, lasting_store, model, serve, serve_fleet, serve_on, serve_parties, serve_with,
};
use crate::embeddings::embedding;

/// Steps that run before something is called off: each gives a row a token.
const STEPS: u64 = 5;

/// A prompt whose answer takes far more steps.
fn long() -> String {
    format!("Repeat: {}", "x".repeat(100))
}

fn completion(stream: bool) -> Value {
    json!({"prompt": long(), "max_tokens": 200, "temperature": 0, "stream": stream, "cache": false})
}

fn rows(stream: bool) -> Value {
    json!({"template": "{w}", "rows": [[long()]], "max_tokens": 200, "stream": stream, "cache": false})
}

/// All that is counted, and stored now: requests, rows, tokens of prompts and of outputs.
async fn usage(server: &Server) -> [u64; 4] {
    usage_writer::store_usage(&server.running.app.runtime).await.unwrap();
    let usage = server.client.get("/v1/usage").await.json();
    let sums = usage["data"].as_array().unwrap();
    let sum = |name: &str| sums.iter().map(|sum| sum[name].as_u64().unwrap()).sum::<u64>();
    ["requests", "rows", "prompt_tokens", "completion_tokens"].map(sum)
}

/// What the store has of that now.
async fn stored_usage(server: &Server) -> [u64; 4] {
    let sums = server.running.app.runtime.store.usage(None, 0..=u64::MAX).await.unwrap();
    let mut all = Used::default();
    sums.iter().for_each(|sum| all += sum.used);
    [all.requests, all.rows, all.prompt.0, all.output.0]
}

/// What the metrics have of the tenant and of all: rows of the tenant, and tokens of prompts and of outputs.
fn in_metrics(server: &Server) -> [u64; 5] {
    let names = [
        "relserve_tenant_rows_total{tenant=\"1\"}",
        "relserve_tenant_prompt_tokens_total{tenant=\"1\"}",
        "relserve_tenant_output_tokens_total{tenant=\"1\"}",
        "relserve_prompt_tokens_total",
        "relserve_output_tokens_total",
    ];
    names.map(|name| server.metric(name) as u64)
}

/// Begins something, lets it run for [`STEPS`] steps, and ends it during the next.
async fn end_midway<T>(server: &Server, begin: impl AsyncFnOnce() -> T, end: impl AsyncFnOnce(T)) {
    let before = server.gate.passed();
    server.gate.shut();
    let begun = begin().await;
    server.gate.allow(STEPS);
    server.until("a step more waits", |server| server.gate.passed() == before + STEPS + 1).await;
    end(begun).await;
    server.gate.allow(2);
    server.until_free().await;
    server.gate.release();
}

/// Closes a connection; returns once its work is called off.
async fn hang_up(server: &Server, connection: TcpStream) {
    drop(connection);
    until_called_off(server).await;
}

async fn until_called_off(server: &Server) {
    server.until("it is called off", |server| server.running.app.runtime.registry.running().is_empty()).await;
}

/// One row of one request is counted, with its whole prompt and what it had put out.
fn assert_row_is_counted(server: &Server, counted: [u64; 4], told: &str) {
    let [requests, rows, prompt, output] = counted;
    assert_eq!((requests, rows, prompt), (1, 1, server.gate.computed()), "{told}");
    assert!((STEPS..STEPS + 3).contains(&output), "{told}: {output}");
}

#[actix_web::test]
async fn a_request_whose_client_leaves_is_counted_with_its_prompt_and_what_was_put_out() {
    for (path, body) in [
        ("/v1/completions", completion(true)),
        ("/v1/completions", completion(false)),
        ("/v1/relqueries", rows(true)),
        ("/v1/relqueries", rows(false)),
    ] {
        let mut config = config();
        (config.model.prompt_price, config.model.output_price) = (Some(1.0), Some(10.0));
        let server = serve_with(config, model()).await;
        let begin = async || server.client.begin(path, &body).await;
        end_midway(&server, begin, async |connection: TcpStream| hang_up(&server, connection).await).await;
        let counted = usage(&server).await;
        assert_row_is_counted(&server, counted, &format!("{path} {body}"));
        let cost = server.client.get("/v1/usage").await.json()["data"][0]["cost"].as_f64().unwrap();
        let [_, _, prompt, output] = counted;
        assert_eq!((cost * 1e6).round() as u64, prompt + 10 * output, "{path} {body}");
        assert_eq!(in_metrics(&server), [1, prompt, output, prompt, output], "{path} {body}");
    }
}

#[actix_web::test]
async fn a_statement_whose_client_leaves_is_counted_with_what_its_rows_had_used() {
    let server = serve().await;
    let query = format!(
        "SELECT ai_complete(prompt('Repeat: {{0}}', w), max_tokens => 200) AS t FROM (VALUES ('{}')) AS v(w)",
        "x".repeat(100)
    );
    let begin = async || {
        let mut connection = server.client.begin("/v1/sql", &json!({ "query": query })).await;
        read_until(&mut connection, "\r\n\r\n").await;
        connection
    };
    end_midway(&server, begin, async |connection: TcpStream| hang_up(&server, connection).await).await;
    assert_row_is_counted(&server, usage(&server).await, "a statement");
}

#[actix_web::test]
async fn a_row_that_never_began_is_not_counted() {
    let server = serve().await;
    server.gate.shut();
    let first = server.client.begin("/v1/completions", &json!({"prompt": "Say yes", "temperature": 0})).await;
    server.until("the first is at the gate", |server| server.gate.passed() == 1).await;
    let second = server.client.begin("/v1/completions", &completion(true)).await;
    let running =
        |count: usize| move |server: &Server| server.running.app.runtime.registry.running().len() == count;
    server.until("the second is queued", running(2)).await;
    drop(second);
    server.until("the second is called off", running(1)).await;
    server.gate.release();
    assert_eq!(finish(first).await.json()["choices"][0]["text"], "yes");
    server.until_free().await;
    let [requests, rows, prompt, _] = usage(&server).await;
    assert_eq!((requests, rows, prompt), (2, 1, "Say yes".len() as u64));
}

#[actix_web::test]
async fn a_ticket_that_is_deleted_is_counted_with_what_its_row_had_used() {
    let server = serve().await;
    let mut body = rows(false);
    body["deadline_ms"] = json!(30);
    let begin = async || {
        let reply = server.relquery(body).await.json();
        format!("/v1/relqueries/{}", reply["ticket"].as_str().expect("a ticket"))
    };
    let delete = async |path: String| {
        assert_eq!(server.client.delete(&path).await.json()["cancelled"], true);
    };
    end_midway(&server, begin, delete).await;
    assert_row_is_counted(&server, usage(&server).await, "a ticket");
}

#[actix_web::test]
async fn a_response_in_the_background_that_is_called_off_is_counted_with_what_it_had_used() {
    let server = background::serve().await;
    let client = &server.client;
    let body = json!({"model": "double", "input": long(), "background": true, "max_output_tokens": 200});
    let begin = async || client.post("/v1/responses", &body).await.json();
    let cancel = async |response: Value| {
        assert_eq!(background::cancel(client, &response).await["status"], "cancelled");
        until_called_off(&server).await;
    };
    end_midway(&server, begin, cancel).await;
    assert_row_is_counted(&server, usage(&server).await, "a response");
}

#[actix_web::test]
async fn a_batch_that_is_called_off_counts_what_its_unfinished_line_had_used() {
    let (_dir, store) = lasting_store().await;
    let mut config = config();
    // Nothing is stored but with the batch.
    config.store.flush_ms = Millis(20_000);
    let server = serve_on(config, model(), store).await;
    // Of the line's two rows the first ends.
    let prompts = json!({"prompt": ["Say a", long()], "max_tokens": 200, "temperature": 0});
    let file = upload(&server.client, &line("two", prompts)).await;
    let begin = async || make(&server.client, &file).await["id"].as_str().unwrap().to_owned();
    let cancel = async |id: String| {
        let reply = server.client.post(&format!("/v1/batches/{id}/cancel"), &json!({})).await.json();
        assert_eq!(reply["status"], "cancelling", "{reply}");
        until_called_off(&server).await;
    };
    end_midway(&server, begin, cancel).await;
    let list = server.client.get("/v1/batches").await.json();
    let id = list["data"][0]["id"].as_str().unwrap();
    let batch = until_over(&server.client, id).await;
    assert_eq!(batch["status"], "cancelled");
    let stored = stored_usage(&server).await;
    assert_eq!(stored, usage(&server).await, "with the batch, and once");
    let [requests, rows, prompt, output] = stored;
    assert_eq!((requests, rows, prompt), (1, 2, server.gate.computed()));
    let told = &batch["usage"];
    assert_eq!((&told["input_tokens"], &told["output_tokens"]), (&json!(prompt), &json!(output)), "{batch}");
    assert!(output >= STEPS, "{output}");
}

#[actix_web::test]
async fn what_ends_as_it_is_called_off_is_counted_once() {
    let server = serve().await;
    let body = json!({"template": "Say {w}", "rows": [["a"]], "max_tokens": 1, "cache": false});
    for round in 1..=20 {
        let before = server.gate.passed();
        server.gate.shut();
        let connection = server.client.begin("/v1/relqueries", &body).await;
        server.until("its only step is at the gate", |server| server.gate.passed() > before).await;
        let id = public_id(&server.running.app.runtime.registry.running()[0]);
        let path = format!("/v1/relqueries/{id}");
        tokio::join!(server.client.delete(&path), async { server.gate.release() });
        finish(connection).await;
        server.until_free().await;
        assert_eq!(usage(&server).await, [round, round, 5 * round, round]);
        assert_eq!(in_metrics(&server), [round, 5 * round, round, 5 * round, round]);
    }
}

#[actix_web::test]
async fn a_row_that_ends_after_its_ticket_was_deleted_is_counted_once() {
    let server = serve().await;
    server.gate.shut();
    let body = json!({"template": "Say {w}", "rows": [["a"]], "max_tokens": 1, "deadline_ms": 30});
    let reply = server.relquery(body).await.json();
    let path = format!("/v1/relqueries/{}", reply["ticket"].as_str().expect("a ticket"));
    server.until("its only step is at the gate", |server| server.gate.passed() == 1).await;
    assert_eq!(server.client.delete(&path).await.json()["cancelled"], true);
    server.gate.release();
    server.until_free().await;
    assert_eq!(server.client.until_over(&path).await["status"], "cancelled");
    assert_eq!(usage(&server).await, [1, 1, 5, 1]);
}

#[actix_web::test]
async fn a_row_that_ends_after_its_batch_was_called_off_is_in_the_usage_of_both_once() {
    let (_dir, store) = lasting_store().await;
    let server = serve_on(config(), model(), store).await;
    server.gate.shut();
    let text = line("one", json!({"prompt": "Say a", "max_tokens": 1, "temperature": 0}));
    let file = upload(&server.client, &text).await;
    let id = make(&server.client, &file).await["id"].as_str().unwrap().to_owned();
    server.until("its only step is at the gate", |server| server.gate.passed() == 1).await;
    server.client.post(&format!("/v1/batches/{id}/cancel"), &json!({})).await;
    until_called_off(&server).await;
    server.gate.release();
    let batch = until_over(&server.client, &id).await;
    assert_eq!((&batch["status"], &batch["request_counts"]["completed"]), (&json!("cancelled"), &json!(0)));
    assert_eq!(usage(&server).await, [1, 1, 5, 1]);
    let told = &batch["usage"];
    assert_eq!((&told["input_tokens"], &told["output_tokens"]), (&json!(5), &json!(1)), "{batch}");
}

/// A window of a column: one row, of this prompt.
fn window(prompt: &str) -> Prepared {
    let item = WorkItem {
        row: 0,
        prompt: prompt.bytes().map(|byte| TokenId(byte.into())).collect(),
        spans: Arc::from([]),
        sections: Arc::from([]),
        generation: Arc::default(),
        seed: 0,
    };
    let rows = vec![PendingRow { targets: vec![0], item, key: None }];
    Prepared {
        kind: RelQueryKind::Column,
        route: "sql",
        class: ServiceClass::Dashboard,
        rows: 1,
        failed: Vec::new(),
        answered: Vec::new(),
        deadline: None,
        pin: None,
        parts: vec![TemplateRows { open: None, label: None, rows }],
    }
}

#[actix_web::test]
async fn an_answer_that_nobody_took_is_counted_here_unless_its_row_runs_again_elsewhere() {
    for (runs_again, counted) in [(false, [0, 1, 5, 2]), (true, [0; 4])] {
        let server = serve().await;
        let caller = Caller::of(WeightedTenant::usual(DEFAULT_TENANT));
        let (column, _answers) = OpenColumn::open(&server.running.app.runtime, caller, "sql").unwrap();
        column.withhold();
        let room = column.reserve(1).unwrap();
        column.extend(&[0], window("Say a"), (room, None)).await.unwrap();
        server.until_free().await;
        if runs_again {
            column.run_again();
        }
        drop(column);
        assert_eq!(usage(&server).await, counted);
    }
}

#[actix_web::test]
async fn a_tenant_that_hangs_up_each_time_has_spent_its_budget_in_the_end() {
    let Parties { server, operators, .. } = serve_parties(config()).await;
    // Each has a prompt of 110 that no other begins like, sets aside 200 more, and puts out 5 to 7.
    let body = |round: u32| {
        let mut body = completion(true);
        body["prompt"] = json!(format!("{round} {}", long()));
        body
    };
    let limits = json!({"limits": {"day_tokens": 700}});
    assert_eq!(operators.post("/v1/tenants/default", &limits).await.status, 200);
    for round in 0..4 {
        let begin = async || server.client.begin("/v1/completions", &body(round)).await;
        end_midway(&server, begin, async |connection: TcpStream| hang_up(&server, connection).await).await;
    }
    let refused = server.client.post("/v1/completions", &body(4)).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!("budget_spent")));
}

#[actix_web::test]
async fn texts_whose_client_leaves_are_counted_as_far_as_they_were_embedded() {
    let (_folder, config) = embedding();
    let Parties { server, operators, .. } = serve_parties(config).await;
    let limits = json!({"limits": {"day_tokens": 1_000_000_000}});
    assert_eq!(operators.post("/v1/tenants/default", &limits).await.status, 200);
    let text = "fish ".repeat(50);
    let one = server.client.post("/v1/embeddings", &json!({"input": text})).await.json();
    let each = one["usage"]["prompt_tokens"].as_u64().unwrap();
    let set_aside = |server: &Server| {
        server.running.app.runtime.shared.budgets.status(DEFAULT_TENANT).reserved.tokens > 0
    };
    let many = json!({"input": vec![text; 4_000]});
    let mut counted = usage(&server).await;
    assert_eq!(counted, [1, 1, each, 0]);
    // They are computed some forty at a time. Who leaves before the first of them pays for nothing: then once more.
    for _ in 0..50 {
        if counted[1] > 1 {
            break;
        }
        let connection = server.client.begin("/v1/embeddings", &many).await;
        server.until("they are being embedded", set_aside).await;
        drop(connection);
        server.until("that ends", |server| !set_aside(server)).await;
        counted = usage(&server).await;
    }
    let [requests, rows, prompt, output] = counted;
    assert!(requests == 2 && rows > 1, "{requests} requests, {rows} texts");
    assert_eq!((prompt, output), (each * rows, 0));
    assert_eq!(server.metric("relserve_embedded_texts_total") as u64, rows);
}

#[actix_web::test]
async fn a_call_that_a_replica_was_sent_is_counted_with_all_it_may_until_costs_are_known() {
    let replica = FakeReplica::start().await;
    let server = serve_fleet(fleet(vec![replica.executor()])).await;
    until_up(&server, 1).await;
    let chat = |word: &str| {
        json!({"model": "m", "stream": true, "temperature": 0, "max_tokens": 50,
            "messages": [{"role": "user", "content": format!("say {word}")}]})
    };
    // The first reply tells how long such prompts are there.
    assert_eq!(server.client.post("/v1/chat/completions", &chat("greetings")).await.status, 200);
    server.until_rows_end().await;
    assert_eq!(usage(&server).await, [1, 1, 10, 2]);
    replica.next([Act::StreamHalf(Default::default())]);
    let mut stream = server.client.begin("/v1/chat/completions", &chat("goodnight")).await;
    read_until(&mut stream, "good").await;
    drop(stream);
    server.until("the request is gone", |_| replica.state().left == 1).await;
    server.until_rows_end().await;
    assert_eq!(usage(&server).await, [2, 2, 20, 2 + 50], "nobody knows what it made unheard");
    // One that does not stream says nothing before its end.
    replica.next([Act::Hang]);
    let asked = replica.state().asked.len();
    let connection = server.client.begin("/v1/relqueries", &table(1)).await;
    server.until("the replica has it", |_| replica.state().asked.len() > asked).await;
    hang_up(&server, connection).await;
    server.until_rows_end().await;
    let [requests, rows, prompt, output] = usage(&server).await;
    assert_eq!((requests, rows, output), (3, 3, 2 + 50 + 8));
    assert!((21..30).contains(&prompt), "a shorter prompt: {prompt}");
}

#[actix_web::test]
async fn rows_that_no_reply_has_told_of_are_counted_with_the_prompts_that_were_set_aside() {
    let replica = FakeReplica::start().await;
    let server = serve_fleet(fleet(vec![replica.executor()])).await;
    until_up(&server, 1).await;
    replica.next([Act::Hang, Act::Hang]);
    let body = json!({"model": "m", "stream": true, "n": 2, "max_tokens": 50,
        "messages": [{"role": "user", "content": "say goodnight"}]});
    let connection = server.client.begin("/v1/chat/completions", &body).await;
    server.until("the replica has both", |_| replica.state().asked.len() == 2).await;
    hang_up(&server, connection).await;
    server.until_rows_end().await;
    let [requests, rows, prompt, output] = usage(&server).await;
    assert_eq!((requests, rows, output), (1, 2, 2 * 50));
    // Its bytes, and the marks of a message.
    let bytes = "say goodnight".len() as u64;
    assert!((2 * bytes..=2 * (bytes + 8)).contains(&prompt), "{prompt}");
    assert_eq!(in_metrics(&server), [rows, prompt, output, prompt, output]);
}
