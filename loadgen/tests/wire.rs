//! The client against a server of a few lines: what it sends, what it understands, what it records when
//! things go wrong.

#[path = "wire/interference.rs"]
mod interference;
mod support;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use loadgen::client::ApiTarget;
use loadgen::record::{Periods, Record, TokenUsage};
use loadgen::run::{Mode, run};
use loadgen::scenario::Scenario;
use loadgen::single::{ChoiceField, Endpoint, named_model};
use loadgen::table::SourceTable;
use loadgen::workload::{RelQuery, trace};
use serde_json::json;
use support::{Reply, Request, serve, sound_stream};

/// Rows one by one, as conversations.
fn single(model: &str) -> Mode {
    let (endpoint, choice) = (Endpoint::Chat, ChoiceField::default());
    Mode::Single { endpoint, choice, model: model.into(), tokens_per_char: None }
}

/// Serves on a free port and gives its address.
async fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    tokio::spawn(serve(listener, Arc::new(answer)));
    url
}

/// A dozen small relQueries within a few milliseconds.
fn scenario() -> Scenario {
    Scenario { relqueries: 12, rows_max: 5, rate_per_s: 5_000.0, timeout_ms: 60_000, ..Scenario::default() }
}

fn trace_of(scenario: &Scenario) -> Vec<RelQuery> {
    let table = SourceTable::load(&scenario.tables[0], scenario.seed).expect("generated");
    trace(scenario, &[table])
}

async fn replay(url: &str, scenario: &Scenario, mode: Mode) -> (Vec<Record>, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let lines = dir.path().join("requests.jsonl");
    let target = ApiTarget::new(url, Some("rs-test".into()), Duration::from_secs(60)).expect("a client");
    let records = run(target, scenario, mode, &trace_of(scenario), &lines).await.expect("runs");
    (records, std::fs::read_to_string(&lines).expect("written"))
}

#[tokio::test]
async fn a_sound_server_gives_records_with_periods_and_tokens() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let url = start(move |request: &Request| {
        assert_eq!(request.path, "/v1/relqueries");
        log.lock().expect("sound").push((request.head.clone(), request.body.clone()));
        Reply::events(sound_stream(request, 7.5))
    })
    .await;
    let scenario = scenario();
    let (records, lines) = replay(&url, &scenario, Mode::RelQuery).await;
    let trace = trace_of(&scenario);

    assert_eq!(records.iter().map(|record| record.index).collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
    for (record, relquery) in records.iter().zip(&trace) {
        let rows = relquery.rows.len() as u64;
        assert_eq!((record.error.as_ref(), u64::from(record.rows_done), record.rows_failed), (None, rows, 0));
        assert_eq!(record.periods, Some(Periods { waiting_ms: 7.5, core_ms: 2.0, tail_ms: 1.5 }));
        let told = TokenUsage {
            prompt: Some(rows * 10),
            cached: Some(rows * 4),
            computed: Some(rows * 6),
            output: Some(rows * 2),
        };
        assert_eq!(record.tokens, told);
        assert!(record.first_row_ms.expect("came") <= record.latency_ms.expect("ended"));
    }
    for (head, body) in seen.lock().expect("sound").iter() {
        assert!(head.contains("authorization: bearer rs-test"), "{head}");
        let relquery =
            trace.iter().find(|relquery| json!(relquery.rows) == body["rows"]).expect("one of the trace");
        assert_eq!(body["template"], json!(relquery.template));
        assert_eq!(
            (&body["stream"], &body["cache"], &body["ignore_eos"]),
            (&json!(true), &json!(false), &json!(true))
        );
        assert_eq!(
            (&body["max_tokens"], &body["columns"]),
            (&json!(relquery.max_tokens), &json!(relquery.columns))
        );
    }
    assert_eq!(lines.lines().count(), 12);
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    assert_eq!((&first["waiting_ms"], first["tokens"]["prompt"].is_u64()), (&json!(7.5), true), "{first}");
}

/// Every answer, and a word that its record's error must hold.
type Failing = (&'static str, fn(&Request) -> Reply);

#[tokio::test]
async fn whatever_goes_wrong_is_recorded_and_the_run_goes_on() {
    let cases: [Failing; 9] = [
        ("HTTP 429: queue is full", |_| Reply::json(429, json!({"error": {"message": "queue is full"}}))),
        ("HTTP 502: bad gateway", |_| Reply { body: "bad gateway".into(), ..Reply::json(502, json!(null)) }),
        ("without a `done`", |_| Reply::events("event: row\ndata: {\"index\":0,\"text\":\"x\"}\n\n".into())),
        ("device lost", |_| {
            Reply::events("event: error\ndata: {\"error\":{\"message\":\"device lost\"}}\n\n".into())
        }),
        ("row 0 came twice", |_| {
            Reply::events("event: row\ndata: {\"index\":0,\"text\":\"x\"}\n\n".repeat(2))
        }),
        ("never asked", |_| Reply::events("event: row\ndata: {\"index\":9000,\"text\":\"x\"}\n\n".into())),
        ("never came", |_| Reply::events("event: done\ndata: {\"status\":\"completed\"}\n\n".into())),
        ("is not JSON", |_| Reply::events("event: row\ndata: {\"index\n\n".into())),
        ("body", |request| Reply {
            broken: true,
            ..Reply::events(sound_stream(request, 0.0).replace("done", "later"))
        }),
    ];
    for (word, answer) in cases {
        let (records, lines) = replay(&start(answer).await, &scenario(), Mode::RelQuery).await;
        assert_eq!((records.len(), lines.lines().count()), (12, 12), "{word}");
        for record in records {
            let error = record.error.expect(word);
            assert!(error.contains(word), "{word}: {error}");
            assert_eq!(record.latency_ms, None, "a failure has no latency");
            assert_eq!(record.rows_twice, u32::from(word.contains("twice")), "{word}");
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_recorded_for_every_relquery() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    drop(listener);
    let (records, _) = replay(&url, &scenario(), Mode::RelQuery).await;
    assert!(
        records.iter().all(|record| record.error.as_ref().is_some_and(|error| error.contains("refused")))
    );
}

#[tokio::test]
async fn rows_that_fail_are_counted_and_do_not_fail_the_relquery() {
    let url = start(|request: &Request| {
        Reply::events(
            sound_stream(request, 0.0).replace("\"text\":\"x\"", "\"error\":{\"message\":\"too long\"}"),
        )
    })
    .await;
    let (records, _) = replay(&url, &scenario(), Mode::RelQuery).await;
    assert!(records.iter().all(|record| record.error.is_none() && record.rows_failed == record.rows));
    assert!(records.iter().all(|record| record.row_error.is_some()), "each says why");
}

#[tokio::test]
async fn arrivals_above_the_stated_limit_are_recorded_and_not_sent() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let url = start(move |request: &Request| {
        count.fetch_add(1, Ordering::Relaxed);
        Reply::events(sound_stream(request, 0.0))
    })
    .await;
    // No relQuery of five rows fits under a limit of four.
    let scenario = Scenario { rows_min: 5, requests_in_flight_max: 4, ..scenario() };
    let mode = single("m");
    let (records, _) = replay(&url, &scenario, mode).await;
    assert!(
        records
            .iter()
            .all(|record| record.error.as_ref().is_some_and(|error| error.contains("(4) is reached")))
    );
    assert_eq!(sent.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn single_mode_sends_each_row_to_any_openai_server() {
    let (prompts, priorities) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let (log, ranks) = (Arc::clone(&prompts), Arc::clone(&priorities));
    let url = start(move |request: &Request| match request.path.as_str() {
        "/v1/models" => Reply::json(200, json!({"object": "list", "data": [{"id": "some-model"}]})),
        "/v1/chat/completions" => {
            assert_eq!(request.body["model"], "some-model");
            log.lock().expect("sound").push(request.body["messages"][0]["content"].clone());
            let usage = json!({"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13});
            Reply::json(200, json!({"choices": [{"message": {"content": "x"}}], "usage": usage}))
        }
        "/v1/completions" => {
            let priority = request.body["priority"].as_i64().expect("told");
            ranks.lock().expect("sound").push(priority);
            Reply::json(200, json!({"choices": [{"text": "x"}], "usage": {}}))
        }
        other => panic!("{other}"),
    })
    .await;
    let target = ApiTarget::new(&url, None, Duration::from_secs(60)).expect("a client");
    let scenario = scenario();
    let model = named_model(&target, &scenario).await.expect("listed");
    let (records, _) = replay(&url, &scenario, single(&model)).await;
    for record in &records {
        assert_eq!((record.error.as_ref(), record.rows_done), (None, record.rows));
        let rows = u64::from(record.rows);
        let told =
            TokenUsage { prompt: Some(rows * 10), cached: None, computed: None, output: Some(rows * 3) };
        assert_eq!((record.tokens, record.periods), (told, None), "what is not told is absent");
    }
    let mut expected: Vec<String> =
        trace_of(&scenario).iter().flat_map(|r| r.rows.iter().map(|row| r.prompt(row))).collect();
    let mut sent: Vec<String> =
        prompts.lock().expect("sound").iter().filter_map(|p| p.as_str().map(str::to_owned)).collect();
    expected.sort();
    sent.sort();
    assert_eq!(sent, expected);

    let (endpoint, choice) = (Endpoint::Completions, ChoiceField::default());
    let mode = Mode::Single { endpoint, choice, model, tokens_per_char: Some(0.5) };
    let (records, _) = replay(&url, &scenario, mode).await;
    assert!(records.iter().all(|record| record.rows_done == record.rows && record.tokens.prompt.is_none()));
    let wanted = |relquery: &RelQuery| relquery.rows.iter().map(|_| relquery.total_tokens(0.5)).collect();
    let mut wanted: Vec<i64> = trace_of(&scenario).iter().flat_map::<Vec<i64>, _>(wanted).collect();
    let mut sent = priorities.lock().expect("sound").clone();
    wanted.sort_unstable();
    sent.sort_unstable();
    assert_eq!(sent, wanted, "every row says how much its relQuery asks");
}

#[tokio::test]
async fn single_rows_that_fail_are_counted_and_a_relquery_without_any_row_fails() {
    let calls = AtomicUsize::new(0);
    let url = start(move |_| match calls.fetch_add(1, Ordering::Relaxed) % 2 {
        0 => Reply::json(500, json!({"error": {"message": "odd one out"}})),
        _ => Reply::json(200, json!({"choices": [{"message": {"content": "x"}}]})),
    })
    .await;
    let mode = single("m");
    let (records, _) = replay(&url, &scenario(), mode).await;
    let (done, failed) = records.iter().fold((0, 0), |sum, r| (sum.0 + r.rows_done, sum.1 + r.rows_failed));
    assert!(done.abs_diff(failed) <= 1 && done + failed == records.iter().map(|r| r.rows).sum::<u32>());
    assert!(records.iter().all(|r| r.error.is_some() == (r.rows_done == 0)));
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_an_error_and_no_panic() {
    let target = ApiTarget::new("http://127.0.0.1:9", None, Duration::from_secs(1)).expect("a client");
    let nowhere = Path::new("no/such/folder/requests.jsonl");
    let error = run(target, &scenario(), Mode::RelQuery, &[], nowhere).await.expect_err("refused");
    assert!(error.to_string().contains("no/such/folder"), "{error}");
}
