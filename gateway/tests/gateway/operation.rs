//! What operators see.

use base::{Bytes, Millis, Nanos};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::client::{Client, read_reply};
use crate::common::{Parties, config, model, serve, serve_parties, serve_with};

#[actix_web::test]
async fn a_panic_of_the_executor_turns_health_red_and_answers_everyone() {
    let server = serve().await;
    server.gate.panic();
    let body = json!({"template": "Say {w}", "rows": [["x"]]});
    let reply = server.relquery(body.clone()).await;
    assert_eq!(reply.status, 503);
    assert_eq!(reply.json()["error"]["code"], "executor_dead");
    assert_eq!(server.client.get("/healthz").await.status, 503);
    assert_eq!(server.client.get("/readyz").await.status, 503);
    let ping = server.client.get("/ping").await;
    assert_eq!((ping.status, ping.body.as_str()), (503, ""), "SageMaker's probe says no more");
    assert_eq!(server.relquery(body).await.status, 503);
}

#[actix_web::test]
async fn sagemakers_probe_gets_an_empty_body_without_a_key() {
    let mut config = config();
    config.server.health_listen = Some(([127, 0, 0, 1], 0).into());
    let server = serve_with(config, model()).await;
    for address in [server.running.address, server.running.health_address.unwrap()] {
        let reply = Client { address, key: None }.get("/ping").await;
        assert_eq!((reply.status, reply.body.as_str()), (200, ""));
    }
    assert_eq!(server.client.post("/ping", &json!({})).await.status, 405);
    server.running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn health_is_progress_and_not_presence() {
    let mut config = config();
    config.server.stuck_ms_max = Millis(1);
    let server = serve_with(config, model()).await;
    assert_eq!(server.client.get("/healthz").await.json()["status"], "ok");
    assert_eq!(server.client.get("/health").await.json()["status"], "ok", "as vLLM calls it");
    server.gate.shut();
    let _stuck =
        server.client.begin("/v1/relqueries", &json!({"template": "Say {w}", "rows": [["x"]]})).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    let app = server.running.app.clone();
    let since = app.runtime.shared.clock.now();
    server.until("time passes", |_| app.runtime.shared.clock.now().since(since) > Nanos(2_000_000)).await;
    let reply = server.client.get("/healthz").await;
    assert_eq!((reply.status, reply.json()["status"].as_str()), (503, Some("stuck")));
    assert_eq!(server.client.get("/readyz").await.json()["status"], "stuck");
    server.gate.release();
    server.until("it ends", |server| server.is_free()).await;
    assert_eq!(server.client.get("/healthz").await.status, 200);
}

#[actix_web::test]
async fn health_is_answered_where_no_connection_is_taken_any_more() {
    let mut config = config();
    config.server.connections_max = 4;
    config.server.health_listen = Some(([127, 0, 0, 1], 0).into());
    let server = serve_with(config, model()).await;
    let mut idle = Vec::new();
    for _ in 0..4 {
        idle.push(kept_open(&server.client, 200).await);
    }
    let address = server.running.address;
    let waiting: Vec<_> = (0..60).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    let health = Client { address: server.running.health_address.unwrap(), key: None };
    assert_eq!(health.get("/healthz").await.json()["status"], "ok");
    assert_eq!(health.get("/readyz").await.json()["status"], "ready");
    assert!(health.get("/metrics").await.body.contains("relserve_queue_rows"));
    assert_eq!(health.get("/v1/scheduler").await.status, 404, "nothing else");
    drop((idle, waiting));
    assert_eq!(server.client.get("/healthz").await.status, 200);
    server.running.drain(std::future::pending()).await;
}

/// Bytes of a request whose connection stays open.
fn keeping(client: &Client) -> Vec<u8> {
    let request = client.request("GET", "/v1/models", "application/json", b"");
    String::from_utf8(request).unwrap().replacen("Connection: close\r\n", "", 1).into_bytes()
}

/// A connection on which such a request was answered.
async fn kept_open(client: &Client, status: u16) -> TcpStream {
    let mut connection = client.send(&keeping(client)).await;
    assert_eq!(read_reply(&mut connection).await.status, status);
    connection
}

#[actix_web::test]
async fn whoever_has_a_key_finds_a_place_among_connections_that_show_none() {
    let mut config = config();
    config.server.connections_max = 8;
    // They stay for as long as this takes.
    (config.server.header_ms_max, config.server.idle_ms_max) = (Millis(3_600_000), Millis(3_600_000));
    let server = serve_with(config, model()).await;
    let mut known = kept_open(&server.client, 200).await;
    let mut wrong = kept_open(&server.client.with_key("rs-wrong"), 401).await;
    let address = server.running.address;
    let silent: Vec<_> = (0..40).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    assert_eq!(server.client.get("/v1/models").await.status, 200);
    let mut rest = Vec::new();
    // Closed by its end or by a reset, as the system has it.
    let _ = wrong.read_to_end(&mut rest).await;
    assert!(rest.is_empty(), "nothing more is said");
    known.write_all(&keeping(&server.client)).await.unwrap();
    assert_eq!(read_reply(&mut known).await.status, 200, "it came with a key");
    drop(silent);
}

#[actix_web::test]
async fn bodies_have_one_bound_for_all_who_send_them() {
    let mut config = config();
    config.limits.bodies_bytes_max = Bytes(1 << 20);
    let server = serve_with(config, model()).await;
    let body = json!({"template": "Say {w}", "rows": [["x"]], "padding": "x".repeat(700_000)}).to_string();
    let head = |length: usize| {
        format!(
            "POST /v1/relqueries HTTP/1.1\r\nHost: t\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n",
            server.client.key.as_deref().unwrap()
        )
    };
    // One that does not end.
    let mut slow = TcpStream::connect(server.running.address).await.unwrap();
    slow.write_all(format!("{}{body}", head(body.len() + 1)).as_bytes()).await.unwrap();
    let bodies = &server.running.app.bodies;
    server.until("it has arrived", |_| bodies.held() >= body.len() as u64).await;
    let refused = server.client.raw(format!("{}{body}", head(body.len())).as_bytes()).await;
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert!(refused.error().contains("limits.bodies_bytes_max"), "{}", refused.body);
    let small = json!({"template": "Say {w}", "rows": [["x"]]});
    assert_eq!(server.relquery(small).await.status, 200, "a small one has room");
    drop(slow);
    server.until("its bytes are given back", |_| bodies.held() == 0).await;
}

#[actix_web::test]
async fn metrics_have_our_names_and_vllms() {
    let server = serve().await;
    server.relquery(json!({"template": "Say {w}", "rows": [["x"], ["y"]]})).await;
    server.until("it is counted", |server| server.metric("relserve_relquery_seconds_count") == 1.0).await;
    assert_eq!(server.metric("relserve_rows_total{outcome=\"stop\"}"), 2.0);
    assert_eq!(server.metric("relserve_cache_rows_total{result=\"miss\"}"), 2.0);
    assert_eq!(server.metric("relserve_prepare_seconds_count"), 1.0);
    server.relquery(json!({"template": "Say {w}", "rows": []})).await;
    server.client.post("/v1/completions", &json!({})).await;
    assert_eq!(server.metric("relserve_prepare_seconds_count"), 3.0, "what is refused took its time too");
    let steps = server.metric("relserve_step_seconds_count");
    assert_eq!(
        server.metric("relserve_step_gap_seconds_count"),
        steps - 1.0,
        "one relQuery, step after step"
    );
    let text = server.client.get("/metrics").await.body;
    for name in [
        "relserve_relquery_waiting_seconds_bucket",
        "relserve_relquery_core_seconds_bucket",
        "relserve_relquery_tail_seconds_bucket",
        "relserve_scheduler_seconds_bucket",
        "relserve_steps_total{kind=\"decode\"}",
        "relserve_kv_blocks{state=\"free\"}",
        "relserve_host_kv_blocks{state=\"free\"}",
        "relserve_host_moved_blocks_total{way=\"back\"}",
        "relserve_restored_tokens_total",
        "vllm:num_requests_running{engine=\"0\",model_name=\"double\"}",
        "vllm:kv_cache_usage_perc",
        "vllm:prefix_cache_hits_total",
        "vllm:request_success_total{engine=\"0\",finished_reason=\"stop\"",
    ] {
        assert!(text.contains(name), "{name} is missing");
    }
}

#[actix_web::test]
async fn the_scheduler_says_what_it_thinks() {
    let server = serve().await;
    server.relquery(json!({"template": "Say {w}", "rows": [["x"]]})).await;
    let live = &server.running.app.runtime.shared.live;
    let is_kept = || live.pace(base::Time(0), &server.running.app.runtime.view().cost).steps > 0;
    server.until("a step is kept", |_| is_kept()).await;
    let reply = server.client.get("/v1/scheduler").await.json();
    assert_eq!(reply["policy"], "marginal-work");
    assert!(reply["cost"]["prefill_ns_per_token"].is_u64());
    let pace = &reply["pace"];
    assert!(pace["steps"].as_u64() > Some(0) && pace["modelled_ns"].as_u64() > Some(0), "{pace}");
    assert!(pace["measured_ns"].is_u64() && reply["limits"]["refit"] == true, "{reply}");
    let limits = &reply["limits"];
    assert_eq!((&limits["step_tokens_max"], &limits["sequences_max"]), (&json!(2_048), &json!(256)));
    assert_eq!(limits["kv_blocks"], reply["kv_blocks"]["total"]);
    assert!(limits["marginal_work"].is_object() && limits["block_tokens"].is_u64());
    let decision = reply["last_decision"].as_str().unwrap();
    assert!(
        decision.starts_with("step ") && !decision.contains("relQuery"),
        "it may be another tenant's: {decision}"
    );
}

#[actix_web::test]
async fn the_document_comes_with_the_program() {
    let server = serve().await;
    let document = server.client.get("/openapi.json").await.json();
    assert!(document["paths"]["/v1/relqueries"]["post"].is_object());
    assert!(document["paths"]["/v1/cells"]["post"].is_object());
}

#[actix_web::test]
async fn only_named_origins_get_cross_origin_answers() {
    let mut config = config();
    config.server.cors_origins = vec!["https://addin.example".into()];
    let server = serve_with(config, model()).await;
    let preflight = |origin: &str| {
        format!(
            "OPTIONS /v1/cells HTTP/1.1\r\nHost: t\r\nConnection: close\r\nOrigin: {origin}\r\n\
             Access-Control-Request-Method: POST\r\n\r\n"
        )
    };
    let allowed = server.client.raw(preflight("https://addin.example").as_bytes()).await;
    assert_eq!(allowed.status, 200);
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://addin.example"));
    assert_eq!(allowed.header("access-control-max-age"), Some("600"));
    let among = |header: &str, word: &str| allowed.header(header).unwrap().split(", ").any(|one| one == word);
    assert!(["get", "post", "delete"].iter().all(|method| among("access-control-allow-methods", method)));
    for header in ["authorization", "content-type", "idempotency-key"] {
        assert!(among("access-control-allow-headers", header), "{}", allowed.head);
    }
    let foreign = server.client.raw(preflight("https://evil.example").as_bytes()).await;
    assert_eq!((foreign.status, foreign.header("access-control-allow-origin")), (400, None));
    let ask = |origin: &str| {
        format!("GET /healthz HTTP/1.1\r\nHost: t\r\nConnection: close\r\nOrigin: {origin}\r\n\r\n")
    };
    let read = server.client.raw(ask("https://addin.example").as_bytes()).await;
    let exposed = read.header("access-control-expose-headers").unwrap();
    for header in ["retry-after", "x-request-id"] {
        assert!(exposed.split(", ").any(|one| one == header), "{exposed}");
    }
    assert_eq!(read.status, 200);
    assert_eq!(read.header("access-control-allow-origin"), Some("https://addin.example"));
    let unread = server.client.raw(ask("https://evil.example").as_bytes()).await;
    assert_eq!((unread.status, unread.header("access-control-allow-origin")), (200, None));
    for reply in [&allowed, &foreign, &read, &unread] {
        assert_eq!(reply.header("access-control-allow-credentials"), None);
    }
}

#[actix_web::test]
async fn openais_and_anthropics_clients_may_send_their_headers_from_a_page() {
    let mut config = config();
    config.server.cors_origins = vec!["https://addin.example".into()];
    let server = serve_with(config, model()).await;
    let ask = async |path: &str, headers: &str| {
        let preflight = format!(
            "OPTIONS {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\nOrigin: https://addin.example\r\n\
             Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: {headers}\r\n\r\n"
        );
        server.client.raw(preflight.as_bytes()).await.status
    };
    let of_both = "content-type,x-stainless-arch,x-stainless-helper-method,x-stainless-lang,x-stainless-os,\
        x-stainless-package-version,x-stainless-retry-count,x-stainless-runtime,x-stainless-runtime-version,\
        x-stainless-timeout";
    let openai = format!("authorization,openai-beta,openai-organization,openai-project,{of_both}");
    let anthropic =
        format!("anthropic-dangerous-direct-browser-access,anthropic-version,{of_both},x-api-key");
    assert_eq!(ask("/v1/chat/completions", &openai).await, 200);
    assert_eq!(ask("/v1/messages", &anthropic).await, 200);
    assert_eq!(ask("/v1/messages", "x-of-nobody").await, 400);
}

#[actix_web::test]
async fn a_server_that_names_no_origin_says_nothing_of_origins() {
    let server = serve().await;
    let ask =
        "GET /healthz HTTP/1.1\r\nHost: t\r\nConnection: close\r\nOrigin: https://addin.example\r\n\r\n";
    let reply = server.client.raw(ask.as_bytes()).await;
    assert!(reply.status == 200 && !reply.head.contains("access-control"), "{}", reply.head);
}

#[actix_web::test]
async fn head_gets_the_head_of_what_get_gets() {
    let server = serve().await;
    for path in ["/", "/healthz", "/readyz", "/ping", "/metrics", "/openapi.json", "/icon.svg"] {
        let reply = server.client.raw(&server.client.request("HEAD", path, "application/json", b"")).await;
        let whole = server.client.get(path).await;
        assert_eq!((reply.status, reply.body.as_str()), (whole.status, ""), "{path}");
        assert_eq!(reply.header("content-type"), whole.header("content-type"), "{path}");
    }
}

#[actix_web::test]
async fn series_of_one_tenant_or_replica_are_shown_to_operators_alone() {
    let mut config = config();
    config.server.health_listen = Some(([127, 0, 0, 1], 0).into());
    let Parties { server, theirs, operators } = serve_parties(config).await;
    server.relquery(json!({"template": "Say {w}", "rows": [["x"]]})).await;
    let of_tenant = "relserve_tenant_rows_total{tenant=\"1\"} 1";
    let all = operators.get("/metrics").await.body;
    assert!(all.contains(of_tenant), "{all}");
    for client in [&server.client, &theirs, &server.client.with_key("none")] {
        let shown = client.get("/metrics").await.body;
        assert!(!shown.contains("tenant=\"") && !shown.contains("replica=\""), "{shown}");
        assert!(shown.contains("relserve_requests") || shown.contains("vllm:"), "{shown}");
    }
    let scraped = Client { address: server.running.health_address.unwrap(), key: None };
    let scraped = scraped.get("/metrics").await.body;
    assert!(scraped.contains(of_tenant), "{scraped}");
}
