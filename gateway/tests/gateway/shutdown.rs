//! The end: readiness first, then the work, then the clients that are left.

use base::Millis;
use serde_json::json;

use crate::common::client::finish;
use crate::common::{Server, config, model, serve, serve_with};

#[actix_web::test]
async fn a_drain_refuses_new_work_and_finishes_what_runs() {
    let server = serve().await;
    server.gate.shut();
    let running =
        server.client.begin("/v1/relqueries", &json!({"template": "Say {w}", "rows": [["x"]]})).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    let (gate, client, app) = (server.gate.clone(), server.client.clone(), server.running.app.clone());
    let watch = async {
        let mut looks = tokio::time::interval(std::time::Duration::from_millis(1));
        while !app.runtime.is_draining() {
            looks.tick().await;
        }
        assert_eq!(client.get("/readyz").await.status, 503);
        assert_eq!(client.get("/healthz").await.status, 200);
        let refused = client.post("/v1/relqueries", &json!({"template": "Say {w}", "rows": [["y"]]})).await;
        assert_eq!(refused.status, 503);
        assert_eq!(refused.json()["error"]["code"], "shutting_down");
        gate.release();
        finish(running).await
    };
    let (reply, ()) = tokio::join!(watch, server.running.drain(std::future::pending()));
    assert_eq!(reply.json()["rows"][0]["text"], "x");
}

#[actix_web::test]
async fn after_the_drain_streams_end_with_an_error_and_never_a_done() {
    let mut config = config();
    config.server.drain_ms_max = Millis(0);
    let server = serve_with(config, model()).await;
    server.gate.shut();
    let body =
        |stream| json!({"template": "Say {w}", "rows": [["a"], ["b"]], "cache": false, "stream": stream});
    let stream = server.client.begin("/v1/relqueries", &body(true)).await;
    let plain = server.client.begin("/v1/relqueries", &body(false)).await;
    server.until("both are there", |server| server.running.app.runtime.registry.running().len() == 2).await;
    let gate = server.gate.clone();
    let clients = async {
        let replies = (finish(stream).await, finish(plain).await);
        gate.release();
        replies
    };
    let ((stream, plain), ()) = tokio::join!(clients, server.running.drain(std::future::pending()));
    let events = stream.events();
    assert_eq!(events.last().map(|(name, _)| name.as_str()), Some("error"));
    assert_eq!(events.last().unwrap().1["error"]["code"], "shutting_down");
    assert!(events.iter().all(|(name, _)| name != "done"));
    assert_eq!(plain.status, 503);
}

#[actix_web::test]
async fn a_second_signal_ends_hundreds_of_streams_at_once_each_with_an_error() {
    const STREAMS: usize = 200;
    let mut config = config();
    // Nobody could wait for that.
    config.server.drain_ms_max = Millis(24 * 3_600_000);
    let server = serve_with(config, model()).await;
    server.gate.shut();
    let mut streams = Vec::new();
    for number in 0..STREAMS {
        let rows = [[format!("w{number}")]];
        let body = json!({"template": "Say {w}", "rows": rows, "cache": false, "stream": true});
        streams.push(server.client.begin("/v1/relqueries", &body).await);
    }
    let all_run = |server: &Server| server.running.app.runtime.registry.running().len() == STREAMS;
    server.until("all are there", all_run).await;
    let gate = server.gate.clone();
    let clients = async {
        let mut replies = Vec::new();
        for stream in streams {
            replies.push(finish(stream).await);
        }
        gate.release();
        replies
    };
    let (replies, ()) = tokio::join!(clients, server.running.drain(std::future::ready(())));
    assert_eq!(replies.len(), STREAMS);
    for reply in replies {
        let events = reply.events();
        let (name, data) = events.last().expect("it does not end in silence");
        assert_eq!((name.as_str(), &data["error"]["code"]), ("error", &json!("shutting_down")));
        assert!(events.iter().all(|(name, _)| name != "done"), "{}", reply.body);
    }
}
