//! What a batch tells of its usage is what is counted for it, whatever became of its lines and whichever gateway ends it.

use gateway::wire::relquery::public_id;
use serde_json::{Value, json};
use serving::usage_writer;

use crate::batches::hasty;
use crate::common::batch::{line, make, until, until_over, upload};
use crate::common::client::Client;
use crate::common::replica::{Act, FakeReplica, fleet};
use crate::common::words::until_up;
use crate::common::{Server, lasting_store, model, serve_fleet_on, serve_on};

/// Tokens of prompts and of outputs that a batch tells.
fn told(batch: &Value) -> [u64; 2] {
    ["input_tokens", "output_tokens"].map(|name| batch["usage"][name].as_u64().unwrap())
}

/// What is counted of batches: requests and rows, tokens of prompts and of outputs.
async fn counted(server: &Server, client: &Client) -> ([u64; 2], [u64; 2]) {
    usage_writer::store_usage(&server.running.app.runtime).await.unwrap();
    let usage = client.get("/v1/usage").await.json();
    let sums = usage["data"].as_array().unwrap();
    let sum = |name: &str| {
        let of_batches = sums.iter().filter(|sum| sum["route"] == "batches");
        of_batches.map(|sum| sum[name].as_u64().unwrap()).sum::<u64>()
    };
    (["requests", "rows"].map(sum), ["prompt_tokens", "completion_tokens"].map(sum))
}

/// The body of the reply to the only line that failed.
async fn failure(client: &Client, batch: &Value) -> Value {
    let file = batch["error_file_id"].as_str().unwrap();
    let text = client.get(&format!("/v1/files/{file}/content")).await.body;
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str::<Value>(&text).unwrap()["response"]["body"].clone()
}

#[actix_web::test]
async fn a_line_that_fails_tells_what_its_good_answers_used_and_its_batch_does() {
    let replica = FakeReplica::start().await;
    let (_dir, store) = lasting_store().await;
    let server = serve_fleet_on(fleet(vec![replica.executor()]), store).await;
    until_up(&server, 1).await;
    replica.next([Act::Answer, Act::Reply(400, "", "{\"error\": {\"message\": \"no such word\"}}")]);
    let text = line("two", json!({"prompt": "say hello", "n": 2, "max_tokens": 8}));
    let file = upload(&server.client, &text).await;
    let id = make(&server.client, &file).await["id"].as_str().unwrap().to_owned();
    let batch = until_over(&server.client, &id).await;
    assert_eq!(batch["request_counts"], json!({"total": 1, "completed": 0, "failed": 1}), "{batch}");
    assert_eq!(told(&batch), [10, 2], "{batch}");
    assert_eq!(counted(&server, &server.client).await, ([1, 1], [10, 2]));
    let body = failure(&server.client, &batch).await;
    assert!(body["error"]["message"].as_str().unwrap().contains("no such word"), "{body}");
    let used = &body["usage"];
    assert_eq!((&used["prompt_tokens"], &used["completion_tokens"]), (&json!(10), &json!(2)), "{body}");
}

#[actix_web::test]
async fn a_line_that_is_called_off_alone_is_in_its_batchs_usage_whichever_server_ends_that() {
    const STEPS: u64 = 5;
    let (_dir, store) = lasting_store().await;
    let mut config = hasty();
    config.bulk.rows_in_flight_max = 1;
    let first = serve_on(config, model(), store.clone()).await;
    let key = first.client.key.clone().unwrap();
    let long = |id: &str| {
        let prompt = format!("Repeat: {}", id.repeat(100));
        line(id, json!({"prompt": prompt, "max_tokens": 200, "temperature": 0}))
    };
    first.gate.shut();
    let file = upload(&first.client, &[long("x"), long("y")].join("\n")).await;
    let id = make(&first.client, &file).await["id"].as_str().unwrap().to_owned();
    first.gate.allow(STEPS);
    first.until("a line is under way", |server| server.gate.passed() == STEPS + 1).await;
    let relquery = public_id(&first.running.app.runtime.registry.running()[0]);
    let reply = first.client.delete(&format!("/v1/relqueries/{relquery}")).await.json();
    assert_eq!(reply["cancelled"], true, "{reply}");
    first.gate.allow(2);
    until(&first.client, &id, |batch| batch["request_counts"]["failed"] == 1).await;
    // The other one is under way when the server ends: it runs again.
    first.until("the other is under way", |server| server.gate.passed() >= STEPS + 2).await;
    let (app, gate) = (first.running.app.clone(), first.gate.clone());
    let release = async {
        let mut looks = tokio::time::interval(std::time::Duration::from_millis(1));
        while !app.runtime.is_draining() || !app.runtime.registry.running().is_empty() {
            looks.tick().await;
        }
        gate.release();
    };
    tokio::join!(first.running.drain(std::future::pending()), release);
    let second = serve_on(hasty(), model(), store.clone()).await;
    let client = second.client.with_key(&key);
    let batch = until_over(&client, &id).await;
    assert_eq!(batch["request_counts"], json!({"total": 2, "completed": 1, "failed": 1}), "{batch}");
    let (calls, tokens) = counted(&second, &client).await;
    assert_eq!((calls, tokens), ([1, 2], told(&batch)), "{batch}");
    let body = failure(&client, &batch).await;
    assert_eq!(body["error"]["code"], "cancelled", "{body}");
    assert!(body["usage"]["completion_tokens"].as_u64() >= Some(STEPS), "{body}");
}
