//! Different servers on the same traces, with stand-ins for them: this test binary itself, started through a
//! script.

#[path = "support/program.rs"]
mod program;
mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use program::{loadgen, stand_in};
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
    let settings = words.get(2).map(|file| {
        let text = std::fs::read_to_string(file).expect("written before the start");
        assert!(text.starts_with("behind = 'http://127.0.0.1:"), "{text}");
        toml::from_str(&text).expect("TOML")
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let address = format!("127.0.0.1:{}", words[1]);
        let listener = tokio::net::TcpListener::bind(address).await.expect("free");
        let cache = Cache::default();
        let answer = move |request: &Request| match (request.path.as_str(), &settings) {
            ("/v1/replicas", Some(settings)) => added(settings, request),
            ("/v1/relqueries", Some(settings)) if kind == "listed" => {
                assert_eq!(names(settings), ["v-1", "v-2"], "{settings}");
                Reply::events(sound_stream(request, 1.0))
            }
            _ => answer(&kind, &cache, request),
        };
        serve(listener, Arc::new(answer)).await;
    });
}

/// The names of the replicas in a front's settings.
fn names(settings: &toml::Table) -> Vec<&str> {
    let replicas = settings["replicas"].as_array().expect("a list");
    replicas.iter().map(|replica| replica["name"].as_str().expect("a name")).collect()
}

/// A replica is added: refused unless the first one of the settings is dead and the new one lives.
fn added(settings: &toml::Table, request: &Request) -> Reply {
    let lives = |url: &str| std::net::TcpStream::connect(url.trim_start_matches("http://")).is_ok();
    let is_right = request.head.contains("authorization: bearer secret")
        && request.body["name"] == "v-3"
        && request.body["dialect"] == "vllm"
        && lives(request.body["url"].as_str().expect("an address"))
        && !lives(settings["replicas"][0]["url"].as_str().expect("an address"));
    Reply::json(if is_right { 200 } else { 500 }, json!({}))
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
    let script = stand_in(dir, STAND_IN, "the_stand_in_for_a_server_of_the_comparison");
    let servers = servers.replace("SCRIPT", &script.display().to_string());
    // The stand-in's relQueries have two output tokens a row.
    let tasks = "[[tasks]]\nname = \"t\"\ninstruction = \"Yes?\"\noutput_max = 2\n";
    let scenario = format!("relqueries = 3\nrows_min = 4\nrows_max = 4\nlengths = \"limit\"\n{tasks}");
    let path = dir.join("servers.toml");
    std::fs::write(&path, &servers).expect("written");
    let path = path.display().to_string();
    let mut further = vec!["--policies", "fcfs,relserve", "--servers", &path];
    if !servers.contains("[[loads]]") {
        further.extend(["--rate", "200,400"]);
    }
    let output = loadgen(dir, "compare", &scenario, &further);
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
         [[servers]]\nname = \"alone\"\nupstreams = [\"plain\"]\nsent = \"completions\"\n\
         [[servers]]\nname = \"again\"\nupstreams = [\"plain\"]\nsent = \"completions\"\n\
         [[servers]]\nname = \"front: {policy}\"\nupstreams = [\"ranked\"]\nsent = \"rel_query\"\n\
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
         [[servers]]\nname = \"lazy\"\nupstreams = [\"u\"]\nsent = \"completions\"\n",
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
         [[servers]]\nname = \"ranked\"\nupstreams = [\"u\"]\nsent = \"completions\"\npriority = \"total_tokens\"\n",
    );
    assert_eq!(code, Some(0), "the stand-in takes no row without: {said}");
}

/// Two upstreams of three, which are asked in turn and through a front; `front` is added to the front's table.
fn replicas(front: &str) -> String {
    format!(
        "[[loads]]\nrate_per_s = 200\nonly = [\"in turn\"]\n[[loads]]\nrate_per_s = 400\n\
         [[upstreams]]\nname = \"v\"\ncount = 3\ncommand = [\"SCRIPT\", \"plain\", \"{{port}}\"]\n\
         reset = \"/forget\"\n\
         [[servers]]\nname = \"in turn\"\nupstreams = [\"v-1\", \"v-2\"]\nsent = \"completions\"\n\
         [[servers]]\nname = \"front\"\nupstreams = [\"v-1\", \"v-2\"]\nsent = \"rel_query\"\n\
         command = [\"SCRIPT\", \"listed\", \"{{port}}\", \"{{config}}\"]\nconfig = \"behind = '{{upstream}}'\"\n\
         replica = {{ dialect = \"vllm\" }}\n{front}"
    )
}

#[test]
fn several_upstreams_are_asked_in_turn_or_listed_in_the_settings_of_the_server_before_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let (code, said) = compare(dir.path(), &replicas(""));
    assert_eq!(code, Some(0), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    // Of 12 rows the first finds nothing on each of both.
    assert!(lines[2].starts_with("in turn") && lines[2].trim_end().ends_with(" 83.3"), "{said}");
    assert_eq!(said.matches("\nfront ").count(), 1, "the file names who runs at which load: {said}");
    let csv = std::fs::read_to_string(dir.path().join("out/latency.csv")).expect("written");
    assert!(csv.lines().skip(1).all(|line| line.ends_with(",12,0,0,")), "each row once: {csv}");
    assert_eq!(csv.lines().count(), 4, "{csv}");
}

#[test]
fn an_upstream_is_killed_and_one_is_added_in_a_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let events = "events = [{ at_s = 0, kill = \"v-1\" }, { at_s = 0, add = \"v-3\" }]\n";
    let (code, said) = compare(dir.path(), &replicas(&format!("admin_key = \"secret\"\n{events}")));
    assert_eq!(code, Some(0), "{said}");
    // The front's own count of its cache: what died counts no more.
    assert!(
        said.lines().any(|line| line.starts_with("front") && line.trim_end().ends_with(" 40.0")),
        "{said}"
    );
    let (code, said) = compare(dir.path(), &replicas(&format!("admin_key = \"other\"\n{events}")));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("/v1/replicas: HTTP 500"), "{said}");
}
