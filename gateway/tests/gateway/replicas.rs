//! Rows on other servers, which fail in all the ways that servers fail: each row is answered exactly once.

use base::{Millis, TokenCount};
use serde_json::{Value, json};

use crate::common::replica::{Act, FakeReplica, fleet};
use crate::common::words::{answered, assert_answered, expected, table, until_up};
use crate::common::{Server, seen_in_time, serve_fleet};

/// Starts a server on these replicas and waits until all are up.
async fn serve(replicas: &[&FakeReplica]) -> Server {
    let server = serve_fleet(fleet(replicas.iter().map(|replica| replica.executor()).collect())).await;
    until_up(&server, replicas.len()).await;
    server
}

#[actix_web::test]
async fn rows_are_shared_out_as_messages_and_come_back_in_their_order() {
    let (a, b) = (FakeReplica::start().await, FakeReplica::start().await);
    let mut config = fleet(vec![a.executor(), b.executor()]);
    config.replicas.iter_mut().for_each(|executor| executor.rows_max = 4);
    let server = serve_fleet(config).await;
    until_up(&server, 2).await;
    let mut body = table(40);
    body["system"] = json!("be brief");
    let reply = server.relquery(body).await.json();
    assert_answered(&reply, 40);
    assert_eq!(answered(&[&a, &b]), expected(40), "each row ran once");
    assert!(a.state().asked.len() > 4 && b.state().asked.len() > 4, "both have work");
    let asked = a.state().asked[0].clone();
    assert_eq!(
        (&asked["model"], &asked["max_tokens"], &asked["temperature"]),
        (&json!("m"), &json!(8), &json!(0.0))
    );
    assert_eq!(asked["messages"][0], json!({"role": "system", "content": "be brief"}));
    assert_eq!(asked["messages"].as_array().map(Vec::len), Some(2));
    server.until_rows_end().await;
    assert_eq!(
        server.metric("relserve_replica_rows_total{outcome=\"answered\",replica=\"0\"}"),
        a.state().answered.len() as f64
    );
}

#[actix_web::test]
async fn a_row_that_a_server_does_not_answer_is_answered_by_another_once() {
    let failures = [
        Act::Reply(500, "", "{\"error\": {\"message\": \"out of memory\"}}"),
        Act::Reply(200, "", "{\"choices\": [{"),
        Act::Reply(200, "", "<html>hello</html>"),
        Act::Break,
        Act::Reply(503, "Retry-After: 1\r\n", "busy"),
        Act::Reply(429, "Retry-After: 1\r\n", "busy"),
        Act::Reply(408, "", "slow"),
        Act::Reply(404, "", "{\"error\": {\"message\": \"no such model\"}}"),
    ];
    for act in failures {
        let (a, b) = (FakeReplica::start().await, FakeReplica::start().await);
        let server = serve(&[&a, &b]).await;
        a.next([act.clone()]);
        b.next([act.clone()]);
        let reply = server.relquery(table(12)).await.json();
        assert_answered(&reply, 12);
        assert_eq!(answered(&[&a, &b]), expected(12), "{act:?}");
        let error = server.replicas().await["data"][0]["last_error"]["message"].clone();
        assert!(error.as_str().is_some_and(|error| !error.is_empty()), "{act:?}");
    }
}

#[actix_web::test]
async fn a_server_that_hangs_is_given_up_and_its_connection_closed() {
    let (a, b) = (FakeReplica::start().await, FakeReplica::start().await);
    let mut config = fleet(vec![a.executor(), b.executor()]);
    config.replicas.iter_mut().for_each(|executor| executor.try_ms_max = Millis(500));
    let server = serve_fleet(config).await;
    until_up(&server, 2).await;
    a.next([Act::Hang]);
    let reply = server.relquery(table(12)).await.json();
    assert_answered(&reply, 12);
    assert_eq!(answered(&[&a, &b]), expected(12));
    server.until("the connection is closed", |_| a.state().left == 1).await;
}

#[actix_web::test]
async fn what_a_server_says_against_a_row_fails_that_row_alone() {
    let a = FakeReplica::start().await;
    let server = serve(&[&a]).await;
    a.next([Act::Reply(400, "", "{\"error\": {\"message\": \"maximum context length is 9 tokens\"}}")]);
    let reply = server.relquery(table(5)).await.json();
    let rows = reply["rows"].as_array().unwrap();
    let failed: Vec<&Value> = rows.iter().filter(|row| row["error"].is_object()).collect();
    assert_eq!(failed.len(), 1, "{reply}");
    let message = failed[0]["error"]["message"].as_str().unwrap();
    assert!(message.contains("maximum context length is 9 tokens"), "{message}");
    assert_eq!(failed[0]["error"]["code"], "row_refused");
    assert_eq!(a.state().asked.len(), 5, "it was not tried again");
    assert_eq!(a.state().answered.len(), 4);
    assert_eq!(reply["usage"]["completion_tokens"], 8);
}

#[actix_web::test]
async fn a_row_without_room_at_any_server_fails_alone_and_an_open_end_gets_the_room_that_there_is() {
    let a = FakeReplica::start().await;
    let mut config = fleet(vec![a.executor()]);
    config.replicas[0].tokens_max = Some(TokenCount(200));
    let server = serve_fleet(config).await;
    until_up(&server, 1).await;
    let mut body = table(3);
    body["rows"][1] = json!(["long ".repeat(60)]);
    let reply = server.relquery(body).await.json();
    let rows = reply["rows"].as_array().unwrap();
    assert_eq!((&rows[0]["text"], &rows[2]["text"]), (&json!("w0"), &json!("w2")), "{reply}");
    let message = rows[1]["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("200"), "{reply}");
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": "say hi"}]});
    let reply = server.client.post("/v1/chat/completions", &chat).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let asked = a.state().asked.last().cloned().unwrap_or_default();
    assert!(asked["max_tokens"].as_u64().is_some_and(|tokens| (1..200).contains(&tokens)), "{asked}");
}

#[actix_web::test]
async fn what_a_server_says_of_its_memory_bounds_its_rows_and_is_listed_with_what_they_cost() {
    let a = FakeReplica::start().await;
    a.state().metrics = Some("vllm:cache_config_info{block_size=\"8\",num_gpu_blocks=\"1\"} 1.0\n".into());
    let server = serve(&[&a]).await;
    until_up(&server, 1).await;
    let listed = async |server: &Server| server.replicas().await["data"][0].clone();
    let shown = listed(&server).await;
    assert_eq!(shown["kv"], json!({"tokens": 8, "source": "reported"}));
    assert_eq!(shown.get("cost"), Some(&Value::Null), "nothing is known of it yet");
    assert_answered(&server.relquery(table(20)).await.json(), 20);
    assert_eq!(a.state().running_max, 1, "two rows have no room together, and each goes alone");
    let is_fitted = |server: &Server| server.running.app.runtime.view().replicas[0].cost.is_some();
    server.until("its cost is fitted", is_fitted).await;
    let cost = listed(&server).await["cost"].clone();
    for part in ["decode_ns", "decode_ns_per_sequence", "prefill_ns_per_token"] {
        assert!(cost[part].as_u64().is_some_and(|ns| ns > 0), "{cost}");
    }
    let address = a.kill().await;
    server.until("it is down", |server| server.running.app.runtime.view().replicas[0].state == "down").await;
    let back = FakeReplica::restart(address).await;
    until_up(&server, 1).await;
    assert_eq!(listed(&server).await.get("kv"), Some(&Value::Null), "whoever is there now does not say");
    assert_answered(&server.relquery(table(20)).await.json(), 20);
    assert_eq!(back.state().answered.len(), 20);
}

#[actix_web::test]
async fn what_is_configured_of_a_servers_memory_counts_before_what_it_says() {
    let a = FakeReplica::start().await;
    a.state().metrics = Some("vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1\"} 1.0\n".into());
    let mut config = fleet(vec![a.executor()]);
    config.replicas[0].tokens_max = Some(TokenCount(2_000));
    let server = serve_fleet(config).await;
    until_up(&server, 1).await;
    let shown = server.replicas().await["data"][0].clone();
    assert_eq!(shown["kv"], json!({"tokens": 2_000, "source": "configured"}));
    let gate = a.shut();
    let (client, body) = (server.client.clone(), table(12));
    let reply = tokio::spawn(async move { client.post("/v1/relqueries", &body).await.json() });
    server.until("all rows are there at once", |_| a.state().running == 12).await;
    gate.add_permits(12);
    assert_answered(&reply.await.unwrap(), 12);
}

#[actix_web::test]
async fn an_answer_that_its_constraint_does_not_allow_is_asked_for_again_and_then_fails_its_row() {
    let (a, b) = (FakeReplica::start().await, FakeReplica::start().await);
    let mut config = fleet(vec![a.executor(), b.executor()]);
    config.fleet.tries_max = 2;
    let server = serve_fleet(config).await;
    until_up(&server, 2).await;
    let unheld = r#"{"choices": [{"text": "I say w0!", "message": {"content": "I say w0!"}, "finish_reason": "stop"}]}"#;
    let mut body = table(1);
    body["constraint"] = json!({"choice": ["w0", "w1"]});
    a.next([Act::Reply(200, "", unheld)]);
    b.next([Act::Reply(200, "", unheld)]);
    let reply = server.relquery(body.clone()).await;
    assert!(reply.body.contains("its answer is none of the choices: I say w0!"), "{}", reply.body);
    assert_eq!(a.state().asked.len() + b.state().asked.len(), 2, "two tries");
    a.next([Act::Reply(200, "", unheld)]);
    for _ in 0..2 {
        assert_eq!(server.relquery(body.clone()).await.json()["rows"][0]["text"], "w0", "another is asked");
    }
    assert!(server.running.app.runtime.view().replicas.iter().all(|one| one.is_up), "both servers work");
}

#[actix_web::test]
async fn a_row_under_which_every_server_fails_fails_and_what_they_said_is_for_operators() {
    let a = FakeReplica::start().await;
    let mut config = fleet(vec![a.executor()]);
    (config.fleet.tries_max, config.fleet.trouble_ms_max, config.fleet.retry_ms) = (2, Millis(0), Millis(1));
    config.replicas[0].failures_max = 10;
    let server = serve_fleet(config).await;
    until_up(&server, 1).await;
    a.next([Act::Reply(500, "", "boom"), Act::Reply(500, "", "boom")]);
    let reply = server.relquery(table(1)).await;
    assert!(reply.body.contains("the server of its model failed"), "{}", reply.body);
    assert!(!reply.body.contains("boom"), "what it said is for operators: {}", reply.body);
    let shown = server.replicas().await["data"][0].clone();
    assert!(shown["last_error"]["message"].as_str().is_some_and(|said| said.contains("boom")), "{shown}");
    let shown = server.client.get("/v1/replicas").await.json()["data"][0].clone();
    assert_eq!((&shown["name"], &shown["last_error"]), (&json!("1"), &json!(null)), "to a tenant");
    assert_eq!(a.state().asked.len(), 2);
    assert_eq!(server.relquery(table(1)).await.json()["rows"][0]["text"], "w0", "the next one is answered");
}

#[actix_web::test]
async fn a_server_that_fails_for_a_while_costs_no_row() {
    let a = FakeReplica::start().await;
    let mut config = fleet(vec![a.executor()]);
    (config.fleet.tries_max, config.fleet.retry_ms, config.fleet.retry_ms_max) = (3, Millis(1), Millis(2));
    config.replicas[0].open_ms = Millis(1);
    let server = serve_fleet(config).await;
    until_up(&server, 1).await;
    // All rows at once, and then one to see, eight times: more than a row has tries.
    a.next(std::iter::repeat_n(Act::Reply(500, "", "boom"), 12 + 8));
    assert_answered(&server.relquery(table(12)).await.json(), 12);
    assert_eq!(a.state().asked.len(), 12 + 8 + 12);
}

#[actix_web::test]
async fn a_server_that_overstates_what_it_used_is_not_believed() {
    let replica = FakeReplica::start().await;
    let server = serve(&[&replica]).await;
    replica.next([Act::Reply(
        200,
        "",
        r#"{"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x"}}],
            "usage": {"prompt_tokens": 4611686018427387904, "completion_tokens": 4611686018427387904,
            "prompt_tokens_details": {"cached_tokens": 18446744073709551615}}}"#,
    )]);
    let mut body = table(2);
    body["max_tokens"] = json!(8);
    let reply = server.relquery(body.clone()).await.json();
    let tokens = |name: &str| reply["usage"][name].as_u64().unwrap();
    assert!(tokens("prompt_tokens") < 10_000, "{reply}");
    assert_eq!(tokens("completion_tokens"), 8 + 2, "no more than was allowed: {reply}");
    assert_eq!(server.metric("relserve_replica_overstated_usages_total{replica=\"0\"}"), 1.0);
    // Usage is written, and goes on.
    server.until_rows_end().await;
    let is_written = async {
        loop {
            let usage = server.client.get("/v1/usage").await.json();
            let row = &usage["data"][0];
            if row["completion_tokens"] == json!(10) {
                break;
            }
        }
    };
    seen_in_time("the usage is written", is_written).await;
}

#[actix_web::test]
async fn a_server_that_dies_with_work_in_flight_loses_none_and_is_used_again_when_it_is_back() {
    let (a, b) = (FakeReplica::start().await, FakeReplica::start().await);
    let server = serve(&[&a, &b]).await;
    a.next(std::iter::repeat_n(Act::Hang, 64));
    let (client, body) = (server.client.clone(), table(40));
    let asking = tokio::spawn(async move { client.post("/v1/relqueries", &body).await.json() });
    server.until("both have work", |_| !a.state().asked.is_empty() && !b.state().answered.is_empty()).await;
    let address = a.kill().await;
    let reply = asking.await.unwrap();
    assert_answered(&reply, 40);
    assert_eq!(answered(&[&b]), expected(40), "the other one did it all");
    server
        .until("it is seen to be gone", |server| {
            server.running.app.runtime.view().replicas[0].state == "down"
        })
        .await;
    let a = FakeReplica::restart(address).await;
    until_up(&server, 2).await;
    assert_answered(&server.relquery(table(40)).await.json(), 40);
    assert!(!a.state().answered.is_empty(), "it has work again");
}

#[actix_web::test]
async fn with_its_only_server_away_a_table_waits_and_goes_on() {
    let a = FakeReplica::start().await;
    let server = serve(&[&a]).await;
    let address = a.kill().await;
    let (client, body) = (server.client.clone(), table(6));
    let asking = tokio::spawn(async move { client.post("/v1/relqueries", &body).await.json() });
    server
        .until("it is seen to be gone", |server| {
            server.running.app.runtime.view().replicas[0].state == "down"
        })
        .await;
    // A look that was under way as it went may still find it there, once.
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(2));
    while server.client.get("/readyz").await.status != 503 {
        looks.tick().await;
    }
    assert_eq!(server.client.get("/healthz").await.status, 200, "the gateway itself works");
    let _a = FakeReplica::restart(address).await;
    assert_answered(&asking.await.unwrap(), 6);
    assert_eq!(server.client.get("/readyz").await.status, 200);
}

#[actix_web::test]
async fn a_server_of_another_model_gets_nothing_and_says_why() {
    let (a, b) = (FakeReplica::start().await, FakeReplica::start().await);
    a.state().model = "other".into();
    let server = serve_fleet(fleet(vec![a.executor(), b.executor()])).await;
    until_up(&server, 1).await;
    let told = |server: &Server| server.running.app.runtime.view().replicas[0].last_error.is_some();
    server.until("it was looked at", told).await;
    assert_answered(&server.relquery(table(6)).await.json(), 6);
    assert!(a.state().asked.is_empty());
    let shown = server.replicas().await;
    assert_eq!(shown["data"][0]["state"], "down");
    assert_eq!(shown["data"][0]["last_error"]["message"], "it serves other, not `m`");
    a.state().model = "m".into();
    until_up(&server, 2).await;
}

#[actix_web::test]
async fn a_deadline_ends_a_chat_that_its_server_holds_or_fails() {
    let a = FakeReplica::start().await;
    let server = serve(&[&a]).await;
    let mut chat = json!({"model": "m", "messages": [{"role": "user", "content": "say hi"}]});
    chat["deadline_ms"] = json!(200);
    let mut asked = Vec::new();
    for act in [Act::Hang, Act::Reply(500, "", "boom")] {
        a.next(std::iter::repeat_n(act.clone(), 64));
        let reply = server.client.post("/v1/chat/completions", &chat).await;
        assert_eq!(reply.status, 504, "{act:?}: {}", reply.body);
        assert_eq!(reply.json()["error"]["code"], "deadline_exceeded", "{act:?}");
        let mut state = a.state();
        state.acts.clear();
        asked.push(state.asked.len());
    }
    server.until("the held request is closed", |_| a.state().left == asked[0]).await;
    server.until_rows_end().await;
    assert_answered(&server.relquery(table(3)).await.json(), 3);
}

#[actix_web::test]
async fn a_cancelled_relquery_frees_its_place_at_the_server() {
    let a = FakeReplica::start().await;
    let server = serve(&[&a]).await;
    a.next([Act::Hang, Act::Hang]);
    let stream = server.client.begin("/v1/relqueries", &table(2)).await;
    server.until("both rows are there", |_| a.state().asked.len() == 2).await;
    drop(stream);
    server.until("the requests are gone", |_| a.state().left == 2).await;
    server.until_rows_end().await;
    assert_answered(&server.relquery(table(3)).await.json(), 3);
}
