//! `/v1/files` and `/v1/batches`: every line once, whatever happens in between.

use base::Millis;
use gateway::config::Config;
use serde_json::{Value, json};
use store::UnixMillis;

use crate::common::batch::{line, lines, make, read, send, until, until_over, upload};
use crate::common::client::Client;
use crate::common::left::{LeftTicket, gone};
use crate::common::{Server, config, key_of, lasting_store, model, serve_on};

fn words(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("w{number}"))
}

/// A server on a store in a file: many connections use it at once.
async fn lasting(config: Config) -> (tempfile::TempDir, Server) {
    let (dir, store) = lasting_store().await;
    (dir, serve_on(config, model(), store).await)
}

#[actix_web::test]
async fn a_batch_answers_every_line_in_the_order_of_its_input() {
    let (_dir, server) = lasting(config()).await;
    let file = upload(&server.client, &lines(words(700))).await;
    let batch = make(&server.client, &file).await;
    assert_eq!((batch["object"].as_str(), batch["status"].as_str()), (Some("batch"), Some("validating")));
    let batch = until_over(&server.client, batch["id"].as_str().unwrap()).await;
    assert_eq!(batch["status"], "completed", "{batch}");
    assert_eq!(batch["request_counts"], json!({"total": 700, "completed": 700, "failed": 0}));
    let answers = format!("/v1/files/{}/content", batch["output_file_id"].as_str().unwrap());
    let answers = server.client.get(&answers).await.body;
    let answers: Vec<Value> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sum = |field: &str| -> u64 {
        answers.iter().map(|answer| answer["response"]["body"]["usage"][field].as_u64().unwrap()).sum()
    };
    let usage = &batch["usage"];
    assert_eq!(
        (&usage["input_tokens"], &usage["output_tokens"]),
        (&json!(sum("prompt_tokens")), &json!(sum("completion_tokens")))
    );
    assert_eq!(usage["total_tokens"], sum("total_tokens"));
    assert!(batch["error_file_id"].is_null() && batch["completed_at"].is_number());
    let expected: Vec<_> = words(700).map(|word| (format!("id of {word}"), word)).collect();
    assert_eq!(read(&server.client, &batch["output_file_id"]).await, expected);
    server.until_free().await;
    let files = server.client.get("/v1/files?purpose=batch_output").await.json();
    assert_eq!(files["data"].as_array().unwrap().len(), 1);
    assert!(server.running.app.runtime.registry.running().is_empty());
}

#[actix_web::test]
async fn a_bad_body_fails_its_line_alone() {
    let (_dir, server) = lasting(config()).await;
    let many = json!({"prompt": ["Say x", "Say y"], "temperature": 0});
    let text = [
        line("good", json!({"prompt": "Say yes"})),
        line("hot", json!({"prompt": "Say no", "temperature": 9})),
        line("streams", json!({"prompt": "Say no", "stream": true})),
        line("two", many),
        line("long", json!({"prompt": "x".repeat(4_000)})),
    ];
    let file = upload(&server.client, &text.join("\n")).await;
    let batch = until_over(&server.client, make(&server.client, &file).await["id"].as_str().unwrap()).await;
    assert_eq!(batch["request_counts"], json!({"total": 5, "completed": 2, "failed": 3}), "{batch}");
    let answers = read(&server.client, &batch["output_file_id"]).await;
    assert_eq!(answers, [("good".into(), "yes".into()), ("two".into(), "x".into())]);
    let errors = read(&server.client, &batch["error_file_id"]).await;
    let of = |id: &str| errors.iter().find(|(name, _)| name == id).unwrap().1.clone();
    assert!(of("hot").contains("`temperature`"), "{errors:?}");
    assert!(of("streams").contains("`stream`") && of("long").contains("tokens"), "{errors:?}");
}

#[actix_web::test]
async fn a_wrong_frame_fails_the_batch_and_names_the_line() {
    let (_dir, server) = lasting(config()).await;
    let good = line("a", json!({"prompt": "Say a"}));
    let text = format!("{good}\n{{\n{good}\n");
    let batch = make(&server.client, &upload(&server.client, &text).await).await;
    let batch = until_over(&server.client, batch["id"].as_str().unwrap()).await;
    assert_eq!((batch["status"].as_str(), batch["output_file_id"].is_null()), (Some("failed"), true));
    let errors = batch["errors"]["data"].as_array().unwrap();
    let found: Vec<_> = errors.iter().map(|error| (error["line"].as_u64(), error["code"].as_str())).collect();
    assert_eq!(found, [(Some(2), Some("invalid_json_line")), (Some(3), Some("duplicate_custom_id"))]);
    assert_eq!(server.gate.passed(), 0, "nothing ran");
}

#[actix_web::test]
async fn what_cannot_be_a_batch_is_refused_by_field() {
    let mut config = config();
    config.bulk.file_bytes_max = base::Bytes(100);
    config.bulk.tenant_files_max = 1;
    let (_dir, server) = lasting(config).await;
    let client = &server.client;
    let file = ("file", Some("f"), "x\n");
    for (parts, status, part) in [
        (&[file][..], 400, "`purpose`"),
        (&[("purpose", None, "fine-tune"), file], 400, "`purpose`"),
        (&[("purpose", None, "batch")], 400, "`file`"),
        (&[("purpose", None, "batch"), ("file", Some("f"), "")], 400, "empty"),
        (&[("purpose", None, "batch"), ("file", Some("f"), &"x\n".repeat(51))], 413, "file_bytes_max"),
        (&[("purpose", None, "batch"), ("x", None, "y"), file], 400, "`x`"),
        (&[("file", Some("f"), "x\n\0"), ("purpose", None, "batch")], 400, "line 2"),
    ] {
        let reply = send(client, parts).await;
        assert_eq!(reply.status, status, "{}", reply.body);
        assert!(reply.error().contains(part), "{} lacks {part}", reply.body);
    }
    assert_eq!(client.post("/v1/files", &json!({})).await.status, 400);
    let file = upload(client, "x\n").await;
    let reply = send(client, &[("purpose", None, "batch"), ("file", Some("f"), "x")]).await;
    assert_eq!(reply.status, 413, "one file is the limit: {}", reply.body);
    for (name, value) in [
        ("input_file_id", json!("file-none")),
        ("endpoint", json!("/v1/embeddings")),
        ("completion_window", json!("0h")),
        ("metadata", json!({"a": 1})),
        ("output_expires_after", json!(3_600)),
        ("output_expires_after.anchor", json!({"anchor": "completed_at", "seconds": 3_600})),
        ("output_expires_after.seconds", json!({"anchor": "created_at", "seconds": 60})),
        ("output_expires_after.seconds", json!({"anchor": "created_at"})),
        ("output_expires_after.x", json!({"anchor": "created_at", "seconds": 3_600, "x": 1})),
        ("x", json!(1)),
    ] {
        let mut body =
            json!({"input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h"});
        body[name.split('.').next().unwrap()] = value;
        let reply = client.post("/v1/batches", &body).await;
        assert_eq!(
            (reply.status, reply.json()["error"]["param"].as_str()),
            (400, Some(name)),
            "{}",
            reply.body
        );
    }
    assert_eq!(client.get("/v1/batches/batch_none").await.status, 404);
    for (path, most) in [("/v1/batches", "100"), ("/v1/files", "10000")] {
        for limit in ["0", "abc", "", "-1", "4294967296", "1.5"] {
            let reply = client.get(&format!("{path}?limit={limit}")).await;
            assert_eq!((reply.status, reply.json()["error"]["param"].as_str()), (400, Some("limit")));
            assert!(reply.error().ends_with(&format!("an integer from 1 to {most}")), "{}", reply.body);
        }
    }
}

#[actix_web::test]
async fn a_cancelled_batch_keeps_what_is_done() {
    let mut config = config();
    config.bulk.rows_in_flight_max = 2;
    let (_dir, server) = lasting(config).await;
    server.gate.shut();
    let file = upload(&server.client, &lines(words(50))).await;
    let id = make(&server.client, &file).await["id"].as_str().unwrap().to_owned();
    server.gate.allow(12);
    until(&server.client, &id, |batch| batch["request_counts"]["completed"].as_u64() > Some(1)).await;
    let reply = server.client.post(&format!("/v1/batches/{id}/cancel"), &json!({})).await.json();
    assert_eq!(reply["status"], "cancelling", "{reply}");
    // Not before its rows are called off: all of them could run in the time of one look.
    server.until("no row is wanted", |server| server.running.app.runtime.registry.running().is_empty()).await;
    server.gate.release();
    let batch = until_over(&server.client, &id).await;
    let done = batch["request_counts"]["completed"].as_u64().unwrap();
    assert_eq!(batch["status"], "cancelled", "{batch}");
    assert!((2..50).contains(&done), "{batch}");
    assert_eq!(read(&server.client, &batch["output_file_id"]).await.len() as u64, done);
    server.until_free().await;
    let again = server.client.post(&format!("/v1/batches/{id}/cancel"), &json!({})).await.json();
    assert_eq!(again["status"], "cancelled");
}

/// Rows of batches that usage has, and the tokens of their prompts, computed and in all.
async fn used_by_batches(server: &Server) -> [u64; 3] {
    let usage = server.client.get("/v1/usage").await.json();
    let sums = usage["data"].as_array().unwrap().iter().filter(|sum| sum["route"] == "batches");
    let sums: Vec<&Value> = sums.collect();
    let sum = |name: &str| sums.iter().map(|sum| sum[name].as_u64().unwrap()).sum::<u64>();
    ["rows", "computed_tokens", "prompt_tokens"].map(sum)
}

#[actix_web::test]
async fn a_line_whose_answer_is_known_uses_nothing() {
    let (_dir, server) = lasting(config()).await;
    let text = line("a", json!({"prompt": "Say yes", "temperature": 0, "cache": true}));
    for round in ["it runs", "its answer is known"] {
        let batch = make(&server.client, &upload(&server.client, &text).await).await;
        let batch = until_over(&server.client, batch["id"].as_str().unwrap()).await;
        assert_eq!(read(&server.client, &batch["output_file_id"]).await, [("a".into(), "yes".into())]);
        assert_eq!(used_by_batches(&server).await, [1, 7, 7], "{round}");
    }
    assert_eq!(server.gate.computed(), 7, "it ran once");
}

#[actix_web::test]
async fn a_row_that_goes_on_for_another_batch_is_counted_with_that() {
    let (_dir, server) = lasting(config()).await;
    let prompt = format!("Repeat: {}", "x".repeat(50));
    let text = line("a", json!({"prompt": prompt, "max_tokens": 60, "temperature": 0, "cache": true}));
    let running =
        |count: usize| move |server: &Server| server.running.app.runtime.registry.running().len() == count;
    server.gate.shut();
    let make_one = async || {
        let batch = make(&server.client, &upload(&server.client, &text).await).await;
        batch["id"].as_str().unwrap().to_owned()
    };
    let first = make_one().await;
    server.until("its row is at the gate", |server| server.gate.passed() == 1).await;
    let second = make_one().await;
    let handed_over = |server: &Server| server.running.app.runtime.shared.intake.unfinished() == 2;
    server.until("the other's row is handed over", handed_over).await;
    server.gate.allow(1);
    server.until("it joins", |server| server.metric("relserve_rows_shared_total") as u64 == 1).await;
    server.client.post(&format!("/v1/batches/{first}/cancel"), &json!({})).await;
    server.until("the first is called off", running(1)).await;
    server.gate.release();
    assert_eq!(until_over(&server.client, &second).await["status"], "completed");
    assert_eq!(until_over(&server.client, &first).await["status"], "cancelled");
    let computed = server.gate.computed();
    assert_eq!(used_by_batches(&server).await, [1, computed, computed]);
}

/// Has a server record some rows of a batch, and ends the server. The batch.
pub async fn leave_half_done(server: Server, count: usize) -> String {
    server.gate.shut();
    let file = upload(&server.client, &lines(words(count))).await;
    let id = make(&server.client, &file).await["id"].as_str().unwrap().to_owned();
    server.gate.allow(12);
    until(&server.client, &id, |batch| batch["request_counts"]["completed"].as_u64() > Some(1)).await;
    let app = server.running.app.clone();
    let gate = server.gate.clone();
    let release = async {
        let mut looks = tokio::time::interval(std::time::Duration::from_millis(1));
        while !app.runtime.is_draining() || !app.runtime.registry.running().is_empty() {
            looks.tick().await;
        }
        gate.release();
    };
    tokio::join!(server.running.drain(std::future::pending()), release);
    id
}

/// Ends at once and keeps few rows in flight.
pub fn hasty() -> Config {
    let mut config = config();
    config.server.drain_ms_max = Millis(0);
    config.bulk.rows_in_flight_max = 2;
    config.cache.enabled = false;
    config
}

#[actix_web::test]
async fn a_restart_runs_the_rows_that_are_not_recorded_and_no_others() {
    let (_dir, store) = lasting_store().await;
    let first = serve_on(hasty(), model(), store.clone()).await;
    let id = leave_half_done(first, 40).await;
    let recorded = store.row_numbers(&id).await.unwrap().len();
    assert!((2..40).contains(&recorded), "{recorded}");
    let second = serve_on(hasty(), model(), store.clone()).await;
    let batch = until_over(&second.client, &id).await;
    assert_eq!(batch["status"], "completed", "{batch}");
    let expected: Vec<_> = words(40).map(|word| (format!("id of {word}"), word)).collect();
    assert_eq!(read(&second.client, &batch["output_file_id"]).await, expected);
    second.until_free().await;
    assert_eq!(
        second.metric("relserve_rows_total{outcome=\"stop\"}") as usize,
        40 - recorded,
        "finished rows are not run again"
    );
}

#[actix_web::test]
async fn a_key_makes_one_batch_restarts_included() {
    let (_dir, store) = lasting_store().await;
    let first = serve_on(config(), model(), store.clone()).await;
    let file = upload(&first.client, &lines(words(3))).await;
    let body = json!({"input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h",
        "metadata": {"job": "nightly"}});
    let post = async |client: &Client, body: &Value| {
        let bytes = client.request("POST", "/v1/batches", "application/json", body.to_string().as_bytes());
        let text = String::from_utf8(bytes).unwrap().replacen("\r\n", "\r\nIdempotency-Key: k\r\n", 1);
        client.raw(text.as_bytes()).await
    };
    let made = post(&first.client, &body).await.json();
    assert_eq!(made["metadata"], json!({"job": "nightly"}));
    until_over(&first.client, made["id"].as_str().unwrap()).await;
    let key = first.client.key.clone().unwrap();
    first.running.drain(std::future::ready(())).await;
    let second = serve_on(config(), model(), store.clone()).await;
    let client = second.client.with_key(&key);
    let again = post(&client, &body).await.json();
    assert_eq!((&again["id"], again["status"].as_str()), (&made["id"], Some("completed")));
    let mut other = body.clone();
    other["metadata"] = json!({});
    assert_eq!(post(&client, &other).await.status, 422);
    assert_eq!(client.get("/v1/batches").await.json()["data"].as_array().unwrap().len(), 1);
    assert_eq!(second.gate.passed(), 0, "nothing ran again");
}

#[actix_web::test]
async fn a_tenant_has_no_part_in_anothers_files_and_batches() {
    let (_dir, server) = lasting(config()).await;
    let store = &server.running.app.runtime.store;
    let zeta = store.create_tenant("zeta", 1.0, UnixMillis(1)).await.unwrap().id;
    let other = server.client.with_key(&key_of(store, zeta).await);
    let file = upload(&server.client, &lines(words(1))).await;
    let id = make(&server.client, &file).await["id"].as_str().unwrap().to_owned();
    for path in
        [format!("/v1/files/{file}"), format!("/v1/files/{file}/content"), format!("/v1/batches/{id}")]
    {
        assert_eq!(other.get(&path).await.status, 404, "{path}");
        assert_eq!(server.client.get(&path).await.status, 200, "{path}");
    }
    assert_eq!(other.delete(&format!("/v1/files/{file}")).await.status, 404);
    assert_eq!(other.post(&format!("/v1/batches/{id}/cancel"), &json!({})).await.status, 404);
    assert!(other.get("/v1/batches").await.json()["data"].as_array().unwrap().is_empty());
    assert_eq!(
        server.client.get(&format!("/v1/relqueries/{id}")).await.status,
        404,
        "a batch is no relQuery"
    );
    until_over(&server.client, &id).await;
    assert_eq!(server.client.delete(&format!("/v1/files/{file}")).await.json()["deleted"], true);
    assert_eq!(server.client.get(&format!("/v1/files/{file}")).await.status, 404);
}

#[actix_web::test]
async fn rows_that_did_not_run_in_the_window_are_errors() {
    let (_dir, store) = lasting_store().await;
    let first = serve_on(config(), model(), store.clone()).await;
    let file = upload(&first.client, &lines(words(3))).await;
    let key = first.client.key.clone().unwrap();
    first.running.drain(std::future::ready(())).await;
    LeftTicket::batch("batch_1", &file, 1).put(&store, &gone()).await;
    let second = serve_on(config(), model(), store.clone()).await;
    let client = second.client.with_key(&key);
    let batch = until_over(&client, "batch_1").await;
    assert_eq!(batch["status"], "expired", "{batch}");
    let errors = read(&client, &batch["error_file_id"]).await;
    assert_eq!(errors.len(), 3);
    assert!(errors.iter().all(|(_, error)| error == "batch_expired"), "{errors:?}");
}

#[actix_web::test]
async fn what_a_batch_leaves_is_kept_as_long_as_its_client_says() {
    let (_dir, server) = lasting(config()).await;
    let file = upload(&server.client, &lines(words(2))).await;
    let body = json!({"input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h",
        "output_expires_after": {"anchor": "created_at", "seconds": 7_200}});
    let reply = server.client.post("/v1/batches", &body).await;
    let batch = until_over(&server.client, reply.json()["id"].as_str().unwrap()).await;
    let path = format!("/v1/files/{}", batch["output_file_id"].as_str().unwrap());
    let left = server.client.get(&path).await.json();
    let kept = left["expires_at"].as_u64().unwrap() - left["created_at"].as_u64().unwrap();
    assert!((7_200..=7_201).contains(&kept), "{left}");
}

#[actix_web::test]
async fn of_batches_that_are_resumed_the_oldest_goes_on_first() {
    let (_dir, store) = lasting_store().await;
    let first = serve_on(config(), model(), store.clone()).await;
    // The older one takes longer to read.
    let older = "\n".repeat(4 << 20) + &lines(words(3));
    let inputs = [upload(&first.client, &older).await, upload(&first.client, &lines(words(2))).await];
    let now = first.running.app.runtime.shared.clock.unix_ms();
    let key = first.client.key.clone().unwrap();
    first.running.drain(std::future::ready(())).await;
    for (id, (file, created)) in ["batch_b", "batch_a"].into_iter().zip(inputs.iter().zip(now - 10..)) {
        let created = UnixMillis(created);
        LeftTicket { created, ..LeftTicket::batch(id, file, 24) }.put(&store, &gone()).await;
    }
    let mut settings = config();
    settings.cache.enabled = false;
    let second = serve_on(settings, model(), store.clone()).await;
    let client = second.client.with_key(&key);
    for id in ["batch_a", "batch_b"] {
        assert_eq!(until_over(&client, id).await["status"], "completed");
    }
    let mut records = second.running.app.runtime.shared.live.records(base::Time(0));
    records.sort_by_key(|record| record.id);
    let rows: Vec<usize> = records.iter().map(|record| record.rows.len()).collect();
    assert_eq!(rows, [3, 2], "in the order in which the scheduler got them");
}
