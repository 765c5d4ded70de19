//! Different servers on the same traces, with stand-ins for them: this test binary itself, started through a
//! script.

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};
use support::{Reply, Request, serve, sound_stream};

/// Carries the command line to the stand-in: its kind, its port, and the file of its settings.
const STAND_IN: &str = "LOADGEN_TEST_PEERS_STAND_IN";

/// The stand-in. In any other run of the test binary there is nothing to do.
#[test]
fn the_stand_in_for_a_server_of_the_comparison() {
    let Ok(line) = std::env::var(STAND_IN) else { return };
    let words: Vec<&str> = line.split(' ').collect();
    let kind = words[0].to_owned();
    if let Some(file) = words.get(2) {
        let settings = std::fs::read_to_string(file).expect("written before the start");
        assert!(settings.starts_with("behind = 'http://127.0.0.1:"), "{settings}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let address = format!("127.0.0.1:{}", words[1]);
        let listener = tokio::net::TcpListener::bind(address).await.expect("free");
        let cache = Cache::default();
        serve(listener, Arc::new(move |request: &Request| answer(&kind, &cache, request))).await;
    });
}

/// A prefix cache of one prompt: what was ever asked is found from then on.
#[derive(Default)]
struct Cache {
    is_filled: AtomicBool,
    asked: AtomicU64,
    hit: AtomicU64,
}

fn answer(kind: &str, cache: &Cache, request: &Request) -> Reply {
    match request.path.as_str() {
        "/health" => Reply::json(200, json!({})),
        "/v1/models" => Reply::json(200, json!({ "data": [{ "id": "m" }] })),
        "/v1/relqueries" => Reply::events(sound_stream(request, 1.0)),
        "/forget" => {
            cache.is_filled.store(false, Ordering::Relaxed);
            Reply::json(200, json!({}))
        }
        "/metrics" => {
            let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
            Reply::events(format!(
                "# TYPE vllm:prefix_cache_queries_total counter\n\
                 vllm:prefix_cache_queries_total{{engine=\"0\"}} {}\nvllm:prefix_cache_queries_created 7e9\n\
                 vllm:prefix_cache_hits_total{{engine=\"0\"}} {}\n",
                count(&cache.asked),
                count(&cache.hit)
            ))
        }
        _ => {
            cache.asked.fetch_add(10, Ordering::Relaxed);
            if cache.is_filled.swap(true, Ordering::Relaxed) {
                cache.hit.fetch_add(10, Ordering::Relaxed);
            }
            assert!(request.head.contains("content-type: application/json"), "{}", request.head);
            let warms_up =
                request.body["prompt"].as_str().is_some_and(|prompt| prompt.starts_with("Warm up"));
            assert_eq!(request.body["priority"].is_i64(), kind == "ranked" && !warms_up, "{}", request.body);
            // One that is lazy says less than it is asked for.
            let output = if kind == "lazy" { 1 } else { request.body["max_tokens"].as_u64().expect("told") };
            let usage = json!({ "prompt_tokens": 10, "completion_tokens": output });
            Reply::json(200, json!({ "choices": [{ "text": "x" }], "usage": usage }))
        }
    }
}

/// Runs a comparison of two loads; the servers' file may name the script as `SCRIPT`.
fn compare(dir: &Path, servers: &str) -> (Option<i32>, String) {
    let script = dir.join("server");
    let test = std::env::current_exe().expect("this test");
    let text = format!(
        "#!/bin/sh\n{STAND_IN}=\"$*\" exec '{}' --exact the_stand_in_for_a_server_of_the_comparison --nocapture\n",
        test.display()
    );
    std::fs::write(&script, text).expect("written");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("executable");
    let servers = servers.replace("SCRIPT", &script.display().to_string());
    std::fs::write(dir.join("servers.toml"), servers).expect("written");
    // The stand-in's relQueries have two output tokens a row.
    let tasks = "[[tasks]]\nname = \"t\"\ninstruction = \"Yes?\"\noutput_max = 2\n";
    let scenario = format!("relqueries = 3\nrows_min = 4\nrows_max = 4\nlengths = \"limit\"\n{tasks}");
    std::fs::write(dir.join("s.toml"), scenario).expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_loadgen"))
        .arg("compare")
        .arg(dir.join("s.toml"))
        .args(["--rate", "200,400", "--policies", "fcfs,relserve", "--servers"])
        .arg(dir.join("servers.toml"))
        .arg("--out")
        .arg(dir.join("out"))
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), said + &String::from_utf8_lossy(&output.stderr))
}

#[test]
fn servers_alone_and_behind_ours_answer_the_same_traces_with_empty_caches() {
    let dir = tempfile::tempdir().expect("a directory");
    let (code, said) = compare(
        dir.path(),
        "baselines = [\"alone\"]\n\
         [[upstreams]]\nname = \"plain\"\ncommand = [\"SCRIPT\", \"plain\", \"{port}\"]\nreset = \"/forget\"\n\
         [[upstreams]]\nname = \"ranked\"\ncommand = [\"SCRIPT\", \"ranked\", \"{port}\"]\n\
         [[servers]]\nname = \"alone\"\nupstream = \"plain\"\nsent = \"completions\"\n\
         [[servers]]\nname = \"again\"\nupstream = \"plain\"\nsent = \"completions\"\n\
         [[servers]]\nname = \"front: {policy}\"\nupstream = \"ranked\"\nsent = \"rel_query\"\n\
         command = [\"SCRIPT\", \"front\", \"{port}\", \"{config}\"]\nconfig = \"behind = '{upstream}'\"\n\
         [[servers]]\nname = \"own\"\nsent = \"rel_query\"\ncommand = [\"SCRIPT\", \"own\", \"{port}\"]\n",
    );
    assert_eq!(code, Some(0), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("200 relQueries per s: 3 relQueries, 12 rows, output tokens: 24"), "{said}");
    let names = ["alone", "again", "front: fcfs", "front: relserve", "own"];
    for (line, name) in lines[2..].iter().zip(names) {
        assert!(line.starts_with(name), "{said}");
    }
    // Of 12 rows the first finds nothing, in every run: what runs before it is forgotten.
    for line in [lines[2], lines[3]] {
        assert!(line.contains(" 91.7"), "{said}");
    }
    assert!(lines[2].trim_end().ends_with("1.00") && lines[6].contains(" 40.0"), "{said}");
    let out = dir.path().join("out");
    let read = |name: &str| std::fs::read_to_string(out.join(name)).expect(name);
    let told: Value = serde_json::from_str(&read("comparison.json")).expect("JSON");
    assert_eq!(told.as_array().map(Vec::len), Some(10));
    assert_eq!(told[0]["summary"]["name"], "alone");
    assert!(read("latency.svg").contains("front: relserve") && read("report.html").contains("<svg"));
    for name in ["200/report.html", "400/front-relserve/requests.jsonl", "400/own/requests.jsonl"] {
        assert!(!read(name).is_empty(), "{name}");
    }
}

#[test]
fn rows_that_are_shorter_than_asked_fail_the_comparison_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let (code, said) = compare(
        dir.path(),
        "[[upstreams]]\nname = \"u\"\ncommand = [\"SCRIPT\", \"lazy\", \"{port}\"]\nreset = \"/forget\"\n\
         [[servers]]\nname = \"lazy\"\nupstream = \"u\"\nsent = \"completions\"\n",
    );
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("! output tokens: Some(12), and 24 were asked for"), "{said}");
}

#[test]
fn a_ranked_server_is_told_what_a_relquery_asks_in_all() {
    let dir = tempfile::tempdir().expect("a directory");
    let (code, said) = compare(
        dir.path(),
        "[[upstreams]]\nname = \"u\"\ncommand = [\"SCRIPT\", \"ranked\", \"{port}\"]\n\
         [[servers]]\nname = \"ranked\"\nupstream = \"u\"\nsent = \"completions\"\npriority = \"total_tokens\"\n",
    );
    assert_eq!(code, Some(0), "the stand-in takes no row without: {said}");
}
