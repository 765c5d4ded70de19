//! Requests and relQueries as spans of one trace: at a collector, at replicas, and from the latencies of `/metrics`.

use std::collections::BTreeMap;

use gateway::config::Config;
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::{Value, json};
use serving::model::Model;

use crate::batches::hasty;
use crate::collector::{Collector, hex, texts};
use crate::common::batch::{lines, until_over, upload};
use crate::common::client::{Client, Reply};
use crate::common::replica::{FakeReplica, fleet};
use crate::common::words::until_up;
use crate::common::{Server, config, lasting_store, model, seen_in_time, serve_fleet, serve_on, serve_with};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// A configuration that sends traces there.
fn traced(mut config: Config, endpoint: Option<String>) -> Config {
    config.traces.endpoint = endpoint;
    config
}

fn parent(flags: &str) -> String {
    format!("traceparent: 00-{TRACE}-{CALLER}-{flags}\r\n")
}

/// Posts with further headers.
async fn post(client: &Client, path: &str, headers: &str, body: &Value) -> Reply {
    let request = client.request("POST", path, "application/json", body.to_string().as_bytes());
    let request = String::from_utf8(request).unwrap();
    let (line, rest) = request.split_once("\r\n").unwrap();
    client.raw(format!("{line}\r\n{headers}{rest}").as_bytes()).await
}

/// What the collector has, once all that has ended is sent.
async fn collected(server: &Server, collector: &Collector) -> Vec<Span> {
    server.until_rows_end().await;
    // The end of a reply is noted when its body is dropped, which may be after its client has it all.
    let traces = &server.running.app.runtime.shared.traces;
    let seen = async {
        while !collector.spans().iter().any(|span| span.name.starts_with("POST ")) {
            traces.flush().await;
            tokio::task::yield_now().await;
        }
    };
    seen_in_time("the request's span", seen).await;
    collector.spans()
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name} among {names:?}"))
}

fn words() -> Value {
    json!({"template": "Say {w}", "rows": [["one"], ["two"], ["two"]], "max_tokens": 4})
}

#[actix_web::test]
async fn a_relquery_is_a_trace_of_its_request_itself_and_its_three_periods() {
    let collector = Collector::start().await;
    let server = serve_with(traced(config(), collector.url()), model()).await;
    let headers = format!("{}X-Request-Id: sheet-7\r\n", parent("01"));
    let reply = post(&server.client, "/v1/relqueries", &headers, &words()).await;
    assert_eq!((reply.status, reply.header("x-request-id")), (200, Some("sheet-7")), "{}", reply.body);
    let spans = collected(&server, &collector).await;
    assert_eq!(spans.len(), 5, "{spans:?}");
    assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE));
    let (request, own) = (named(&spans, "POST /v1/relqueries"), named(&spans, "relquery double"));
    assert_eq!(hex(&request.parent_span_id), CALLER);
    assert_eq!(own.parent_span_id, request.span_id);
    let periods = ["waiting", "core", "tail"].map(|name| named(&spans, name));
    assert!(periods.iter().all(|period| period.parent_span_id == own.span_id));
    let mut at = own.start_time_unix_nano;
    for period in periods {
        assert_eq!(period.start_time_unix_nano, at, "{} begins where the one before ends", period.name);
        assert!(period.end_time_unix_nano >= at);
        at = period.end_time_unix_nano;
    }
    assert_eq!(own.end_time_unix_nano, at, "they add up to the whole");
    let attributes: BTreeMap<String, String> = texts(&own.attributes);
    let usage = &reply.json()["usage"];
    for (name, value) in [
        ("gen_ai.request.model", "double".to_owned()),
        ("gen_ai.operation.name", "relquery".to_owned()),
        ("gen_ai.usage.input_tokens", usage["prompt_tokens"].to_string()),
        ("gen_ai.usage.output_tokens", usage["completion_tokens"].to_string()),
        ("relserve.policy", "marginal-work".to_owned()),
        ("relserve.route", "relqueries".to_owned()),
        ("relserve.rows", "3".to_owned()),
        ("relserve.rows.deduplicated", "1".to_owned()),
        ("relserve.status", "completed".to_owned()),
        ("relserve.request_id", "sheet-7".to_owned()),
        ("relserve.tenant", "1".to_owned()),
    ] {
        assert_eq!(attributes.get(name), Some(&value), "{name}: {attributes:?}");
    }
    assert!(attributes.contains_key("relserve.estimate.total_ms"), "{attributes:?}");
    let attributes = texts(&request.attributes);
    assert_eq!(attributes.get("http.route").map(String::as_str), Some("/v1/relqueries"));
    assert_eq!(attributes.get("http.response.status_code").map(String::as_str), Some("200"));
    assert_eq!(collector.resource().get("service.name").map(String::as_str), Some("relserve"));
    let all = format!("{spans:?}");
    assert!(!all.contains("Say ") && !all.contains(server.client.key.as_deref().unwrap()), "{all}");
}

#[actix_web::test]
async fn a_response_in_the_background_belongs_to_the_trace_of_its_request() {
    let collector = Collector::start().await;
    let server = serve_with(traced(config(), collector.url()), Model { has_chat: true, ..model() }).await;
    let headers = format!("{}X-Request-Id: sheet-7\r\n", parent("01"));
    let body = json!({"model": "double", "input": "say one", "background": true, "max_output_tokens": 8});
    let reply = post(&server.client, "/v1/responses", &headers, &body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let of_work = |span: &Span| texts(&span.attributes).contains_key("relserve.rows");
    let sent = async {
        loop {
            let spans = collected(&server, &collector).await;
            if let Some(work) = spans.iter().find(|span| of_work(span)) {
                return (named(&spans, "POST /v1/responses").clone(), work.clone());
            }
            server.running.app.runtime.shared.traces.flush().await;
        }
    };
    let (request, work) = seen_in_time("the span of its work", sent).await;
    assert_eq!((hex(&work.trace_id), &work.parent_span_id), (TRACE.to_owned(), &request.span_id));
    assert_eq!(texts(&work.attributes).get("relserve.request_id").map(String::as_str), Some("sheet-7"));
}

#[actix_web::test]
async fn a_caller_that_records_nothing_is_not_recorded_and_one_that_names_no_trace_begins_one() {
    let collector = Collector::start().await;
    let server = serve_with(traced(config(), collector.url()), model()).await;
    assert_eq!(post(&server.client, "/v1/relqueries", &parent("00"), &words()).await.status, 200);
    assert_eq!(server.client.get("/healthz").await.status, 200);
    assert_eq!(server.relquery(json!({"template": "Say {w}", "rows": [["three"]]})).await.status, 200);
    let spans = collected(&server, &collector).await;
    assert_eq!(spans.len(), 5, "of the last alone: {spans:?}");
    let request = named(&spans, "POST /v1/relqueries");
    assert!(request.parent_span_id.is_empty() && hex(&request.trace_id) != TRACE);
    assert!(spans.iter().all(|span| span.trace_id == request.trace_id));
}

#[actix_web::test]
async fn a_collector_that_is_away_fails_no_request_and_its_spans_are_counted() {
    // Nobody listens on a port that was just given back.
    let away = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut config = traced(config(), Some(format!("http://{away}")));
    config.traces.queue_max = 1;
    config.traces.batch_spans_max = 1;
    let server = serve_with(config, model()).await;
    for row in 0..20 {
        let body = json!({"template": "Say {w}", "rows": [[format!("w{row}")]]});
        assert_eq!(server.relquery(body).await.status, 200);
    }
    server.until_rows_end().await;
    server.running.app.runtime.shared.traces.flush().await;
    let spans =
        |outcome: &str| server.metric(&format!("relserve_trace_spans_total{{outcome=\"{outcome}\"}}"));
    assert_eq!(spans("exported"), 0.0);
    assert!(spans("failed") > 0.0, "those that were tried");
    assert!(spans("dropped") > 0.0, "those that there was no room for");
}

#[actix_web::test]
async fn replicas_are_told_the_trace_and_an_id_for_each_row() {
    let (replica, collector) = (FakeReplica::start().await, Collector::start().await);
    let server = serve_fleet(traced(fleet(vec![replica.executor()]), collector.url())).await;
    until_up(&server, 1).await;
    let headers = format!("{}X-Request-Id: sheet-8\r\n", parent("01"));
    let reply = post(&server.client, "/v1/relqueries", &headers, &words()).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let spans = collected(&server, &collector).await;
    let own = spans.iter().find(|span| span.name.starts_with("relquery ")).unwrap();
    let heads = replica.state().heads.clone();
    assert_eq!(heads.len(), 2, "equal rows run once");
    let told = |head: &str, name: &str| {
        let value = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.unwrap_or_else(|| panic!("no {name} in {head}")).to_owned()
    };
    let mut ids: Vec<String> = heads.iter().map(|head| told(head, "x-request-id")).collect();
    assert!(ids.iter().all(|id| id.starts_with("sheet-8-")), "{ids:?}");
    ids.dedup();
    assert_eq!(ids.len(), 2, "servers take ids for unique");
    for head in &heads {
        assert_eq!(told(head, "traceparent"), format!("00-{TRACE}-{}-01", hex(&own.span_id)));
    }
}

#[actix_web::test]
async fn without_a_collector_a_trace_is_passed_on_to_replicas_as_it_came() {
    let replica = FakeReplica::start().await;
    let server = serve_fleet(fleet(vec![replica.executor()])).await;
    until_up(&server, 1).await;
    assert_eq!(post(&server.client, "/v1/relqueries", &parent("00"), &words()).await.status, 200);
    let heads = replica.state().heads.clone();
    let passed = format!("traceparent: 00-{TRACE}-{CALLER}-00");
    assert!(!heads.is_empty() && heads.iter().all(|head| head.contains(&passed)), "{heads:?}");
}

/// A server that has answered a relQuery of a caller's trace, and a client of the listener that is for its metrics.
async fn measured() -> (Collector, Server, Client) {
    let collector = Collector::start().await;
    let mut config = traced(config(), collector.url());
    config.server.health_listen = Some(([127, 0, 0, 1], 0).into());
    let server = serve_with(config, model()).await;
    assert_eq!(post(&server.client, "/v1/relqueries", &parent("01"), &words()).await.status, 200);
    server.until_rows_end().await;
    let scraper = Client { address: server.running.health_address.unwrap(), key: None };
    (collector, server, scraper)
}

#[actix_web::test]
async fn latencies_lead_to_traces_where_open_metrics_is_asked_for_by_who_sees_single_tenants() {
    let (_collector, server, scraper) = measured().await;
    let scrape = async |client: &Client, accept: &str| {
        let head =
            format!("GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\nAccept: {accept}\r\n\r\n");
        client.raw(head.as_bytes()).await
    };
    let prometheus =
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    let exemplar = format!("# {{trace_id=\"{TRACE}\"}} ");
    let open = scrape(&scraper, prometheus).await;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(open.header("content-type"), Some(kind));
    for name in
        ["relserve_relquery_seconds", "relserve_relquery_waiting_seconds", "vllm:e2e_request_latency_seconds"]
    {
        let leads = |line: &str| line.starts_with(&format!("{name}_bucket{{")) && line.contains(&exemplar);
        assert_eq!(open.body.lines().filter(|line| leads(line)).count(), 1, "{name}: {}", open.body);
    }
    assert!(open.body.ends_with("\n# EOF\n"));
    for accept in ["text/plain;version=0.0.4", "*/*", "text/plain, application/openmetrics-text;q=0.1"] {
        let plain = scrape(&scraper, accept).await;
        assert_eq!(
            plain.header("content-type"),
            Some("text/plain; version=0.0.4; charset=utf-8"),
            "{accept}"
        );
        assert!(!plain.body.contains("trace_id") && !plain.body.contains("# EOF"), "{accept}");
    }
    let everybody = scrape(&server.client.with_key("none"), prometheus).await;
    assert_eq!(everybody.header("content-type"), Some(kind));
    assert!(!everybody.body.contains("trace_id") && everybody.body.ends_with("\n# EOF\n"));
}

#[actix_web::test]
async fn each_panel_with_exemplars_asks_for_latencies_that_have_them_and_a_click_opens_their_trace() {
    let grafana = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboards/grafana");
    let sources = std::fs::read_to_string(grafana.join("provisioning/datasources/prometheus.yml")).unwrap();
    let of = |line: &str, name: &str| Some(line.trim().strip_prefix(name)?.trim().to_owned());
    // The label whose value leads on, and the data source that it leads to.
    let mut behind = sources.lines().skip_while(|line| line.trim() != "exemplarTraceIdDestinations:").skip(1);
    let label = behind.next().and_then(|line| of(line, "- name:")).unwrap();
    let traces = behind.next().and_then(|line| of(line, "datasourceUid:")).unwrap();
    let named: Vec<&str> = sources.split("  - name: ").filter(|one| one.contains("uid: ")).collect();
    let kind = |uid: &str| {
        let one =
            named.iter().find(|one| one.lines().any(|line| of(line, "uid:").as_deref() == Some(uid)))?;
        one.lines().find_map(|line| of(line, "type:"))
    };
    assert_eq!(kind(&traces).as_deref(), Some("jaeger"), "{sources}");

    let (_collector, _server, scraper) = measured().await;
    let scrape = "GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\
                  Accept: application/openmetrics-text\r\n\r\n";
    let metrics = scraper.raw(scrape.as_bytes()).await.body;
    let exemplar = format!(" # {{{label}=\"{TRACE}\"}} ");
    let mut panels = 0;
    for file in ["gateway", "tenants", "scheduler", "engine", "fleet"] {
        let text = std::fs::read_to_string(grafana.join(format!("{file}.json"))).unwrap();
        let dashboard: Value = serde_json::from_str(&text).unwrap();
        let targets = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| {
            panel["targets"].as_array().unwrap().iter().map(move |target| (&panel["title"], target))
        });
        for (title, target) in targets.filter(|(_, target)| target["exemplar"] == true) {
            assert_eq!(target["datasource"]["type"], "prometheus", "{file}: {title}");
            let expression = target["expr"].as_str().unwrap();
            let name = expression.split_once("rate(").and_then(|(_, rest)| rest.split('{').next()).unwrap();
            assert!(name.ends_with("_bucket"), "{file}: {title}: exemplars are of buckets, not of {name}");
            let has = |line: &str| line.starts_with(&format!("{name}{{")) && line.contains(&exemplar);
            assert!(metrics.lines().any(has), "{file}: {title}: {name} has no {exemplar}: {metrics}");
            panels += 1;
        }
    }
    assert!(panels >= 5, "{panels} targets show exemplars");
}

/// Sends the request that makes a batch of these words, as part of the caller's trace; the batch's id.
async fn make_batch(client: &Client, words: &[&str]) -> String {
    let file = upload(client, &lines(words.iter().map(|word| (*word).to_owned()))).await;
    let body = json!({"input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h"});
    let reply = post(client, "/v1/batches", &parent("01"), &body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()["id"].as_str().unwrap().to_owned()
}

/// The relQueries among spans, each with the trace and the span that it links to.
fn linked(spans: &[Span]) -> Vec<(String, String)> {
    let relqueries = spans.iter().filter(|span| span.name.starts_with("relquery "));
    let link = |span: &Span| {
        let [link] = &span.links[..] else { panic!("one link: {span:?}") };
        assert!(span.parent_span_id.is_empty() && hex(&span.trace_id) != TRACE, "a trace of its own");
        (hex(&link.trace_id), hex(&link.span_id))
    };
    relqueries.map(link).collect()
}

#[actix_web::test]
async fn relqueries_of_a_batch_link_to_the_request_that_made_it_also_after_a_restart() {
    let collector = Collector::start().await;
    let (_dir, store) = lasting_store().await;
    let first = serve_on(traced(hasty(), collector.url()), model(), store.clone()).await;
    let id = make_batch(&first.client, &["a", "b", "c"]).await;
    until_over(&first.client, &id).await;
    let spans = collected(&first, &collector).await;
    let maker = named(&spans, "POST /v1/batches");
    assert_eq!((hex(&maker.trace_id), hex(&maker.parent_span_id)), (TRACE.to_owned(), CALLER.to_owned()));
    let links = linked(&spans);
    assert!(!links.is_empty());
    let to_maker = (TRACE.to_owned(), hex(&maker.span_id));
    assert!(links.iter().all(|link| *link == to_maker), "{links:?}");

    first.gate.shut();
    let words: Vec<String> = (0..40).map(|number| format!("w{number}")).collect();
    let id = make_batch(&first.client, &words.iter().map(String::as_str).collect::<Vec<_>>()).await;
    first.until("rows wait", |server| server.running.app.runtime.shared.intake.unfinished() > 0).await;
    let key = first.client.key.clone().unwrap();
    let (app, gate) = (first.running.app.clone(), first.gate.clone());
    let release = async {
        let mut looks = tokio::time::interval(std::time::Duration::from_millis(1));
        while !app.runtime.is_draining() || !app.runtime.registry.running().is_empty() {
            looks.tick().await;
        }
        gate.release();
    };
    tokio::join!(first.running.drain(std::future::pending()), release);
    let spans = collector.spans();
    let makers: Vec<String> = spans
        .iter()
        .filter(|span| span.name == "POST /v1/batches" && span.span_id != maker.span_id)
        .map(|span| hex(&span.span_id))
        .collect();
    let [maker] = &makers[..] else { panic!("one more: {makers:?}") };

    let collector = Collector::start().await;
    let second = serve_on(traced(hasty(), collector.url()), model(), store).await;
    until_over(&second.client.with_key(&key), &id).await;
    second.until_rows_end().await;
    second.running.app.runtime.shared.traces.flush().await;
    let links = linked(&collector.spans());
    assert!(!links.is_empty());
    assert!(links.iter().all(|link| *link == (TRACE.to_owned(), maker.clone())), "{links:?}");
}
