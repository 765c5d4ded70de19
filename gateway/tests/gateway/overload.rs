//! More work than the queue takes.

use base::Millis;
use serde_json::json;
use tokio::io::AsyncReadExt;

use crate::common::client::finish;
use crate::common::{Parties, Server, config, model, serve_parties, serve_with};

#[actix_web::test]
async fn a_full_queue_is_a_429_that_says_when_and_recovers() {
    let mut config = config();
    config.limits.queue_rows_max = 4;
    let server = serve_with(config, model()).await;
    server.gate.shut();
    let rows = |count: usize| (0..count).map(|i| json!([format!("{count}-{i}")])).collect::<Vec<_>>();
    let admitted =
        server.client.begin("/v1/relqueries", &json!({"template": "Say {w}", "rows": rows(4)})).await;
    server.until("it is in", |server| server.running.app.runtime.shared.intake.unfinished() == 4).await;
    let refused = server.relquery(json!({"template": "Say {w}", "rows": rows(1)})).await;
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(refused.json()["error"]["code"], "queue_full");
    assert!(refused.error().contains('4'));
    assert_eq!(server.metric("relserve_overloaded_total"), 1.0);
    server.gate.release();
    assert_eq!(finish(admitted).await.json()["progress"]["done"], 4);
    let again = server.relquery(json!({"template": "Say {w}", "rows": rows(1)})).await;
    assert_eq!(again.status, 200, "no restart is needed");
    let never = server.relquery(json!({"template": "Say {w}", "rows": rows(5)})).await;
    assert_eq!(never.status, 413, "what never fits is not told to come back");
}

#[actix_web::test]
async fn a_tenant_that_fills_the_queue_leaves_room_for_anothers_cells() {
    let mut config = config();
    config.limits.queue_rows_max = 100;
    let Parties { server, theirs, .. } = serve_parties(config).await;
    server.gate.shut();
    let table = |name: &str, count: usize| {
        let rows: Vec<_> = (0..count).map(|row| json!([format!("{name}-{row}")])).collect();
        json!({"template": "Say {w}", "rows": rows})
    };
    let flood = server.client.begin("/v1/relqueries", &table("flood", 90)).await;
    server.until("it is in", |server| server.running.app.runtime.shared.intake.unfinished() == 90).await;
    let refused = server.relquery(table("more", 1)).await;
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (429, Some("queue_full")));
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    let said = refused.error();
    assert!(said.contains("90 rows of this tenant") && said.contains("limits.queue_rows_max"), "{said}");
    let small = theirs.begin("/v1/relqueries", &table("small", 5)).await;
    server
        .until("another is let in", |server| server.running.app.runtime.shared.intake.unfinished() == 95)
        .await;
    server.gate.release();
    assert_eq!(finish(small).await.json()["progress"]["done"], 5);
    assert_eq!(finish(flood).await.json()["progress"]["done"], 90);
    server.until_free().await;
    let never = server.relquery(table("never", 91)).await;
    assert_eq!(never.status, 413, "not even an empty queue takes it: {}", never.body);
    assert_eq!(server.relquery(table("again", 90)).await.status, 200, "all that was held is free again");
}

#[actix_web::test]
async fn of_a_burst_of_a_hundred_queues_one_is_served_in_its_own_steps_and_the_rest_never_runs() {
    const ROWS: usize = 4;
    let mut config = config();
    config.limits.queue_rows_max = ROWS as u64;
    let server = serve_with(config, model()).await;
    server.gate.shut();
    let body = |number: usize| json!({"template": "Say {w}", "rows": [[format!("w{number:03}")]]});
    let mut admitted = Vec::new();
    for number in 0..ROWS {
        admitted.push(server.client.begin("/v1/relqueries", &body(number)).await);
    }
    let is_full = |server: &Server| server.running.app.runtime.shared.intake.unfinished() == ROWS as u64;
    server.until("the queue is full", is_full).await;
    for number in ROWS..100 * ROWS {
        let refused = server.relquery(body(number)).await;
        assert_eq!(refused.status, 429, "{}", refused.body);
        assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    }
    assert_eq!(server.metric("relserve_overloaded_total"), (99 * ROWS) as f64);
    server.gate.release();
    for connection in admitted {
        let reply = finish(connection).await.json();
        assert_eq!(reply["status"], "completed", "{reply}");
    }
    // A prefill, its four letters and its end for each, even where each went alone.
    assert!(server.gate.passed() <= 6 * ROWS as u64, "{} steps", server.gate.passed());
    assert_eq!(server.gate.computed(), (ROWS * "Say w000".len()) as u64, "what was refused was not computed");
    assert_eq!(server.relquery(body(0)).await.status, 200, "no restart is needed");
}

#[actix_web::test]
async fn connections_that_say_nothing_or_dawdle_are_closed() {
    let mut config = config();
    config.server.header_ms_max = Millis(1_000);
    let server = serve_with(config, model()).await;
    for bytes in [&b""[..], b"POST /v1/relqueries HTTP/1.1\r\nHost: te"] {
        let mut connection = server.client.send(bytes).await;
        let mut reply = Vec::new();
        connection.read_to_end(&mut reply).await.unwrap();
        assert!(reply.is_empty() || reply.starts_with(b"HTTP/1.1 408"));
    }
    assert_eq!(server.client.get("/healthz").await.status, 200);
}

#[actix_web::test]
async fn a_body_that_does_not_arrive_is_given_up() {
    let mut config = config();
    config.server.body_ms_max = Millis(50);
    let server = serve_with(config, model()).await;
    let mut slow = server.client.request("POST", "/v1/relqueries", "application/json", &[b' '; 1_000]);
    slow.truncate(slow.len() - 500);
    let reply = server.client.raw(&slow).await;
    assert_eq!(reply.status, 408);
    assert!(reply.error().contains("in time"));
    assert_eq!(server.client.get("/healthz").await.status, 200);
}
