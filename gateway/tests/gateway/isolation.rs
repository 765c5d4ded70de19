//! Few cells beside a long column of another tenant: in steps, not in seconds.

use scheduler::Policy;
use serde_json::{Value, json};
use store::{Store, UnixMillis};

use crate::common::client::{finish, read_until};
use crate::common::{Server, config, key_of, model, serve_on};

/// Rows of the column.
const ROWS: usize = 1_500;
/// Steps in which five cells must come: the one that is running, their prefill, and a few for what they say.
const STEPS: u64 = 6;

fn calls(count: usize, word: &str) -> Value {
    let call = |number: usize| json!({"function": "ask", "args": [format!("say {word}{number}")]});
    let calls: Vec<Value> = (0..count).map(call).collect();
    json!({"calls": calls, "cache": false, "stream": true})
}

/// Whether five cells that are asked in the midst of the column's steps have come after so few more.
async fn come_soon(policy: Policy) -> (bool, Server) {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let other = store.create_tenant("column", 1.0, UnixMillis(1)).await.unwrap().id;
    let mut config = config();
    config.scheduler.policy = policy;
    let server = serve_on(config, model(), store.clone()).await;
    let theirs = server.client.with_key(&key_of(&store, other).await);
    server.gate.shut();
    let column = theirs.begin("/v1/cells", &calls(ROWS, "c")).await;
    server.until("a step of the column waits", |server| server.gate.passed() == 1).await;
    step(&server, 3).await;
    let before = server.running.app.runtime.shared.intake.unfinished();
    let mut few = server.client.begin("/v1/cells", &calls(5, "f")).await;
    let all_in = |server: &Server| server.running.app.runtime.shared.intake.unfinished() == before + 5;
    server.until("the cells are in", all_in).await;
    step(&server, STEPS).await;
    let is_done = server.running.app.runtime.registry.running().len() == 1;
    if is_done {
        let said = read_until(&mut few, "event: done").await;
        assert!(said.contains("\"f4\""), "{said}");
        assert!(server.running.app.runtime.shared.intake.unfinished() > 0, "the column goes on");
    }
    server.gate.release();
    let reply = finish(column).await;
    assert_eq!(reply.events().len(), ROWS + 1, "and loses no row");
    (is_done, server)
}

/// Lets so many steps through and waits until the next one stands at the gate, so that all they did is
/// written down.
async fn step(server: &Server, steps: u64) {
    let passed = server.gate.passed();
    server.gate.allow(steps);
    server.until("the steps are through", |server| server.gate.passed() >= passed + steps).await;
}

#[actix_web::test]
async fn five_cells_come_within_a_few_steps_of_another_tenants_column_of_1500_rows() {
    let (soon, server) = come_soon(Policy::default()).await;
    assert!(soon, "five cells wait for a column of {ROWS} rows");
    server.until_free().await;
}

#[actix_web::test]
async fn a_queue_in_order_of_arrival_lets_them_wait() {
    let (soon, server) = come_soon(Policy::Fcfs).await;
    assert!(!soon, "then the test above says nothing");
    server.until_free().await;
}
