//! The access log and the ids of requests.

use serde_json::{Value, json};

use crate::common::{config, model, serve, serve_with};

#[actix_web::test]
async fn a_reply_carries_the_id_that_its_request_was_given_or_a_new_one() {
    let server = serve().await;
    let ask = async |path: &str, id: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{id}\r\n");
        let reply = server.client.raw(head.as_bytes()).await;
        (reply.status, reply.header("x-request-id").unwrap_or_default().to_owned())
    };
    assert_eq!(ask("/healthz", "X-Request-Id: mine-1\r\n").await, (200, "mine-1".into()));
    assert_eq!(ask("/nowhere", "X-Request-Id: mine-2\r\n").await, (404, "mine-2".into()));
    assert_eq!(
        ask("/v1/files/%00", "X-Request-Id: mine-3\r\n").await,
        (404, "mine-3".into()),
        "before any route"
    );
    let (one, other) = (ask("/healthz", "").await.1, ask("/v1/usage", "").await.1);
    assert!(one.len() == 32 && other.len() == 32 && one != other, "{one} {other}");
    let (_, made) = ask("/healthz", "X-Request-Id: not one\r\n").await;
    assert_eq!(made.len(), 32, "what cannot stand in a log is replaced");
}

#[actix_web::test]
async fn each_request_is_a_line_of_json_without_its_key_its_query_or_the_names_in_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let mut config = config();
    config.server.access_log = Some(path.clone());
    let server = serve_with(config, model()).await;
    let key = server.client.key.clone().unwrap();
    let reply = server.relquery(json!({"template": "Say {w}", "rows": [["hello"]], "stream": true})).await;
    assert_eq!(reply.status, 200);
    let sent = reply.body.len();
    server.client.get("/v1/relqueries/rq-secret?token=hidden").await;
    server.client.with_key("rs-wrong").get("/v1/usage").await;
    server.client.get("/no/such/place").await;
    server.client.get("/v1/files/%00").await;
    // Under a route's other name.
    server.client.post("/score", &json!({"text_1": "a", "text_2": "b"})).await;
    let id = reply.header("x-request-id").unwrap().to_owned();
    // Writes what is left.
    server.running.drain(std::future::pending()).await;
    let text = std::fs::read_to_string(&path).unwrap();
    for hidden in [key.as_str(), "rs-wrong", "rq-secret", "hidden", "hello", "/no/such"] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said = |line: &Value| {
        let path = line["path"].as_str().unwrap_or("-").to_owned();
        (
            line["method"].as_str().unwrap().to_owned(),
            path,
            line["status"].as_u64().unwrap(),
            line["tenant"].clone(),
        )
    };
    let line =
        |method: &str, path: &str, status, tenant| (method.to_owned(), path.to_owned(), status, tenant);
    let expected = [
        line("POST", "/v1/relqueries", 200, json!(1)),
        line("GET", "/v1/relqueries/{id}", 404, json!(1)),
        line("GET", "/v1/usage", 401, Value::Null),
        line("GET", "-", 404, Value::Null),
        line("GET", "-", 404, Value::Null),
        line("POST", "/v1/score", 501, json!(1)),
    ];
    assert_eq!(lines.iter().map(said).collect::<Vec<_>>(), expected, "{text}");
    assert_eq!(
        (lines[0]["request_id"].as_str(), lines[0]["bytes"].as_u64()),
        (Some(id.as_str()), Some(sent as u64))
    );
    assert!(lines.iter().all(|line| line["duration_ms"].as_f64().is_some() && line["trace_id"].is_null()));
    let time = lines[0]["time"].as_str().unwrap();
    assert!(time.len() == 24 && time.ends_with('Z') && time.contains('T'), "{time}");
}

#[actix_web::test]
async fn a_log_that_cannot_be_opened_stops_the_start_and_names_the_key() {
    let mut config = config();
    config.server.access_log = Some("/nowhere/at/all/access.log".into());
    let store = store::Store::open("sqlite::memory:").await.unwrap();
    let error = crate::common::start_on(config, model(), store).await.err().expect("it does not start");
    assert!(error.to_string().contains("server.access_log"), "{error}");
}
