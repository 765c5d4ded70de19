//! The race between stand-ins for servers: this test binary itself, started through a script.

#[path = "support/program.rs"]
mod program;
mod support;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use program::{loadgen, stand_in};
use serde_json::{Value, json};
use support::{Reply, Request, serve, sound_stream};

/// Carries the command line to the stand-in: its kind and its port.
const STAND_IN: &str = "LOADGEN_TEST_RACE_STAND_IN";

/// The stand-in. In any other run of the test binary there is nothing to do.
#[test]
fn the_stand_in_for_a_server_of_the_race() {
    let Ok(line) = std::env::var(STAND_IN) else { return };
    let (kind, port) = line.split_once(' ').expect("kind and port");
    let kind = kind.to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let address = format!("127.0.0.1:{port}");
        let listener = tokio::net::TcpListener::bind(address).await.expect("free");
        let answer = move |request: &Request| match request.path.as_str() {
            "/health" => Reply::json(200, json!({})),
            "/v1/models" => Reply::json(200, json!({ "data": [{ "id": "m" }] })),
            "/v1/relqueries" => Reply::events(sound_stream(request, 1.0)),
            _ => {
                assert!(request.head.contains("content-type: application/json"), "{}", request.head);
                Reply::json(200, completion(&kind, &request.body))
            }
        };
        serve(listener, Arc::new(answer)).await;
    });
}

/// One chat completion: `good` keeps to a grammar, `stubborn` does not.
fn completion(kind: &str, body: &Value) -> Value {
    assert_eq!(body["model"], "m");
    let text = match (&body["grammar"], kind) {
        (Value::Null, _) | (_, "stubborn") => "anything",
        (grammar, _) => {
            assert_eq!(*grammar, "root ::= \"yes\" | \"no\"");
            "yes"
        }
    };
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 2 });
    json!({ "choices": [{ "message": { "content": text } }], "usage": usage })
}

/// `loadgen race` with these arguments alone.
fn tool(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_loadgen")).arg("race").args(arguments).output().expect("runs")
}

fn race(dir: &Path, scenario: &str, kinds: &[(&str, &str)]) -> (bool, String) {
    let script = stand_in(dir, STAND_IN, "the_stand_in_for_a_server_of_the_race");
    let server = |(kind, sent): &(&str, &str)| {
        format!(
            "[[servers]]\nname = \"{kind}\"\ncommand = [{:?}, \"{kind}\", \"{{port}}\"]\nsent = \"{sent}\"\n\
             choice = \"gbnf\"\n",
            script.display().to_string()
        )
    };
    let servers: String = kinds.iter().map(server).collect();
    let path = dir.join("servers.toml");
    std::fs::write(&path, servers).expect("written");
    let further = ["--rounds", "2", "--servers", &path.display().to_string()];
    let output = loadgen(dir, "race", scenario, &further);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), said + &String::from_utf8_lossy(&output.stderr))
}

#[test]
fn servers_of_two_kinds_answer_the_same_relqueries_in_rounds() {
    let dir = tempfile::tempdir().expect("a directory");
    let scenario = "relqueries = 3\nrows_min = 4\nrows_max = 4\nlengths = \"limit\"\n";
    let (is_sound, said) = race(dir.path(), scenario, &[("ours", "rel_query"), ("good", "chat")]);
    assert!(is_sound, "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[1].starts_with("ours") && lines[1].contains(" 1.00 "), "{said}");
    assert!(lines[2].starts_with("good") && lines[2].trim_end().ends_with("40        8"), "{said}");
    let laps = std::fs::read_to_string(dir.path().join("out/race.json")).expect("written");
    let laps: Vec<Value> = serde_json::from_str(&laps).expect("JSON");
    assert!(laps.iter().all(|lap| lap["ready_ms"].as_f64().is_some_and(|ms| ms > 0.0)), "{laps:?}");
    let places: Vec<(&str, u64, u64)> = laps
        .iter()
        .map(|lap| (lap["server"].as_str(), lap["round"].as_u64(), lap["index"].as_u64()))
        .map(|(server, round, index)| (server.expect("told"), round.expect("told"), index.expect("told")))
        .collect();
    let round = |n| [("ours", n, 1), ("ours", n, 2), ("good", n, 1), ("good", n, 2)];
    assert_eq!(places, [round(1), round(2)].concat(), "the first relQuery only warms up");
    let kept = dir.path().join("out/race.json").display().to_string();
    let output = tool(&["--table", &kept, &kept]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = table.lines().collect();
    assert!(output.status.success() && lines.len() == 4, "one table of both files: {table}");
    assert!(lines[2].starts_with("| ours |") && lines[3].starts_with("| good |"), "{table}");
}

#[test]
fn a_race_wants_a_scenario_and_servers_or_what_is_kept_of_one() {
    let refused = |arguments: &[&str]| !tool(arguments).status.success();
    assert!(refused(&[]) && refused(&["a.toml"]) && refused(&["a.toml", "--table", "b.json"]));
    assert!(refused(&["--table", "no/such/file.json"]));
}

#[test]
fn an_answer_that_is_none_of_the_choices_fails_the_lap_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let scenario = "relqueries = 2\nrows_min = 1\nrows_max = 1\nlengths = \"free\"\n\
        [[tasks]]\nname = \"t\"\ninstruction = \"Yes?\"\noutput_max = 3\nchoices = [\"yes\", \"no\"]\n";
    let (is_sound, said) = race(dir.path(), scenario, &[("good", "chat"), ("stubborn", "chat")]);
    assert!(!is_sound, "{said}");
    assert!(said.contains("\ngood ") && !said.contains("good                    2 of"), "{said}");
    assert!(said.contains("2 of 2 failed: the answer is none of the choices: \"anything\""), "{said}");
}
