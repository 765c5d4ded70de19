//! The comparison against a stand-in for the server: this test binary itself, started through a script.

#[path = "support/program.rs"]
mod program;
mod support;

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use program::{loadgen, stand_in};
use support::{Reply, Request, serve, sound_stream};

/// Carries the command line to the stand-in.
const FAKE_ARGUMENTS: &str = "LOADGEN_TEST_FAKE_ARGUMENTS";

/// The stand-in: serves what it was told to, until it is signalled. In any other run of the test binary there
/// is nothing to do.
#[test]
fn the_stand_in_for_the_server() {
    let Ok(line) = std::env::var(FAKE_ARGUMENTS) else { return };
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |flag: &str| words.iter().position(|word| *word == flag).map(|at| words[at + 1].to_owned());
    assert_eq!(words[0], "serve");
    let policy = after("--policy").expect("told");
    assert!(after("--data-dir").is_some());
    assert!(words.contains(&"--extra"), "the further arguments came: {line}");
    if policy == "broken" {
        eprintln!("no such policy");
        std::process::exit(3);
    }
    let waiting_ms = if policy == "fcfs" { 40.0 } else { 10.0 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(after("--listen").expect("told")).await.expect("free");
        std::io::stdout().write_all(b"\nAPI key: rs-secret (shown once)\n").expect("a reader");
        let answer = move |request: &Request| {
            assert!(request.head.contains("authorization: bearer rs-secret"), "{}", request.head);
            match request.path.as_str() {
                "/readyz" => Reply::json(200, serde_json::json!({})),
                "/metrics" => Reply::events(
                    "# TYPE relserve_step_seconds histogram\nrelserve_step_seconds_sum 2\n\
                     relserve_scheduler_seconds_sum 0.002\n"
                        .into(),
                ),
                "/v1/scheduler" => {
                    let cost = serde_json::json!({
                        "prefill_ns_per_token": 100_000, "prefill_ns": 1_000_000,
                        "decode_ns_per_sequence": 100_000, "decode_ns": 2_000_000,
                    });
                    Reply::json(200, serde_json::json!({ "cost": cost }))
                }
                _ => Reply::events(sound_stream(request, waiting_ms)),
            }
        };
        serve(listener, Arc::new(answer)).await;
    });
}

fn compare(dir: &Path, policies: &str) -> std::process::Output {
    let program = stand_in(dir, FAKE_ARGUMENTS, "the_stand_in_for_the_server").display().to_string();
    let further = ["--policies", policies, "--server-args", "--extra yes", "--server", &program];
    loadgen(dir, "compare", "relqueries = 8\nrate_per_s = 500.0\nrows_max = 4\n", &further)
}

#[test]
fn one_command_compares_policies_on_one_trace_in_one_table() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = compare(dir.path(), "fcfs,relserve");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines[1].starts_with("fcfs") && lines[1].contains(" 40.0 ") && lines[1].contains("1.000"),
        "{said}"
    );
    assert!(lines[2].starts_with("relserve") && lines[2].contains(" 10.0 "), "{said}");

    let out = dir.path().join("out");
    let read = |name: &str| std::fs::read_to_string(out.join(name)).expect(name);
    let told: serde_json::Value = serde_json::from_str(&read("comparison.json")).expect("JSON");
    assert_eq!(told["schedulers"][0]["cost"]["prefill_ns"], 1_000_000);
    assert!(lines[0].contains("simulated"), "{said}");
    for run in 0..2 {
        assert!(told["runs"][run]["simulated"]["mean_ms"].is_number(), "{told}");
        assert_eq!(told["runs"][run]["scheduler_share"], 0.001, "{told}");
    }
    assert!(said.contains("ranking: "), "{said}");
    assert_eq!(told["runs"][1]["completed"], 8);
    assert!(read("report.html").contains("relserve"));
    let rows = |policy: &str| {
        let lines = read(&format!("{policy}/requests.jsonl"));
        let mut rows: Vec<(u64, u64)> = lines
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
            .map(|record| (record["index"].as_u64().expect("told"), record["rows"].as_u64().expect("told")))
            .collect();
        rows.sort_unstable();
        rows
    };
    assert_eq!(rows("fcfs"), rows("relserve"), "the same trace");
}

#[test]
fn a_server_that_does_not_start_is_named_with_its_last_words() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = compare(dir.path(), "broken");
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("`broken`") && errors.contains("no such policy"), "{errors}");
}

#[test]
fn a_run_against_nothing_leaves_its_records_and_says_so_by_its_exit_code() {
    let dir = tempfile::tempdir().expect("a directory");
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let url = format!("http://{}", port.expect("a free port"));
    let scenario = "relqueries = 3\nrate_per_s = 500.0\n";
    let output = loadgen(dir.path(), "run", scenario, &["--url", &url]);
    let out = dir.path().join("out");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("0 of 3 relQueries"));
    for (name, word) in
        [("requests.jsonl", "refused"), ("summary.json", "\"completed\": 0"), ("report.html", "<svg")]
    {
        let text = std::fs::read_to_string(out.join(name)).expect(name);
        assert!(text.contains(word), "{name}: {text}");
    }
}
