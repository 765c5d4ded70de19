//! `relserve sim` as a person at a terminal runs it.

use std::path::Path;
use std::process::{Command, Output};

/// Two relQueries whose steps under first-come service can be followed by hand.
const TRACE: &str = r#"{"schema": "relserve-trace/1", "name": "two", "templates": [{"id": 0, "tokens": 40}],
    "relqueries": [
        {"rel_id": 0, "tenant": "a", "arrival": 0.0, "template_id": 0, "ol": 5, "groups": [],
         "rows": [[-1, 100, 3], [-1, 100, 3], [-1, 100, 3]]},
        {"rel_id": 1, "tenant": "b", "arrival": 0.01, "template_id": 0, "ol": 10, "groups": [],
         "rows": [[-1, 60, 2], [-1, 60, 2]]}]}"#;

/// Runs `relserve sim` in a folder that holds the trace.
fn sim(folder: &Path, arguments: &[&str]) -> Output {
    std::fs::write(folder.join("two.json"), TRACE).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
    command.current_dir(folder).arg("sim").args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn complaint(folder: &Path, arguments: &[&str]) -> String {
    let output = sim(folder, arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_trace_is_replayed_under_the_policies_and_its_results_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let asked =
        ["--input", "two.json", "--policy", "vllm,relserve-dp", "--explain", "2..3", "--output", "out.json"];
    let text = said(&sim(folder.path(), &asked));
    assert!(
        text.starts_with("two: 2 relQueries, 5 rows; opt-13b-a100, 10000 tokens of KV, hide 1.00"),
        "{text}"
    );
    assert!(text.contains("step 2: prefill first"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("fcfs  ") && line.contains("0.101")), "{text}");
    assert!(text.lines().any(|line| line.starts_with("b  ") && line.contains("relserve-dp")), "{text}");
    let out = std::fs::read_to_string(folder.path().join("out.json")).unwrap();
    let out: serde_json::Value = serde_json::from_str(&out).unwrap();
    let vllm = &out["policies"]["vllm"];
    assert_eq!(vllm["t_done"], serde_json::json!([0.1196, 0.09325]));
    assert_eq!(vllm["iterations"][2], serde_json::json!([0.066, 0.02725, 0, 5, [], [0, 1]]));
    assert_eq!(vllm["tenants"]["b"]["n"], 1);
    assert_eq!(out["policies"]["relserve-dp"]["t_done"], serde_json::json!([0.0967, 0.1446]));
}

#[test]
fn a_workload_is_drawn_saved_and_replayed_from_its_file_alike() {
    let folder = tempfile::tempdir().unwrap();
    let drawn = [
        "--workload",
        "paper",
        "--dataset",
        "beer",
        "--relqueries",
        "4",
        "--offline",
        "--save-trace",
        "drawn.json",
    ];
    let more =
        ["--policy", "relserve", "--machine", "llama2-70b-4xa100", "--hide", "0", "--faults", "seed:3"];
    let text = said(&sim(folder.path(), &[&drawn[..], &more[..]].concat()));
    assert!(text.contains("llama2-70b-4xa100 (an estimate)"), "{text}");
    assert!(text.contains("hide 0.00; 20 faults"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("offline  ")), "a second tenant: {text}");
    let again = said(&sim(folder.path(), &[&["--input", "drawn.json"][..], &more[..]].concat()));
    assert_eq!(again, text);
}

#[test]
fn several_seeds_are_averaged() {
    let folder = tempfile::tempdir().unwrap();
    let drawn = ["--workload", "paper", "--relqueries", "3", "--policy", "fcfs"];
    let mean = |more: &[&str]| -> f64 {
        let text = said(&sim(folder.path(), &[&drawn[..], more].concat()));
        let line = text.lines().find(|line| line.starts_with("fcfs ")).expect(&text);
        line.split_whitespace().nth(1).and_then(|mean| mean.parse().ok()).expect(line)
    };
    let (one, other) = (mean(&["--seed", "4"]), mean(&["--seed", "5"]));
    let both = mean(&["--seed", "4", "--seeds", "2"]);
    assert!((both - (one + other) / 2.0).abs() < 2e-3, "{one} and {other}, together {both}");
    let complain = |arguments: &[&str]| complaint(folder.path(), arguments);
    assert!(complain(&["--workload", "paper", "--seeds", "0"]).contains("is not in 1..=1000"));
    assert!(complain(&["--input", "two.json", "--seeds", "2"]).contains("cannot be used with"));
    assert!(
        complain(&["--workload", "paper", "--seeds", "2", "--output", "x"]).contains("cannot be used with")
    );
    let wrong = complain(&["--workload", "paper", "--dataset", "imdb"]);
    assert!(wrong.contains("dataset `imdb` is not one of amazon, rotten, beer, pdmx"), "{wrong}");
}

#[test]
fn a_measured_machine_and_any_setting_can_be_given_and_a_wrong_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let machine = r#"{"name": "mine", "cost": {"prefill_per_token": 1000, "prefill_base": 1000, "decode_per_sequence": 1000,
        "decode_base": 2000}, "kv_tokens": 640, "block_tokens": 16, "step_tokens_max": 256, "chunk_tokens": 128,
        "sequences_max": 8, "watermark_permille": 0, "publish_generated": true}"#;
    std::fs::write(folder.path().join("mine.json"), machine).unwrap();
    let asked = [
        "--input",
        "two.json",
        "--machine",
        "mine.json",
        "--set",
        "marginal_work.marginal_key=false",
        "--set",
        "kv_blocks=50",
    ];
    assert!(said(&sim(folder.path(), &asked)).contains("mine.json, 800 tokens of KV, hide 0.00"));
    let complain =
        |arguments: &[&str]| complaint(folder.path(), &[&["--input", "two.json"], arguments].concat());
    assert!(complain(&["--set", "kv_block=1"]).contains("`kv_block` is no setting"));
    assert!(complain(&["--set", "kv_blocks=0"]).contains("must be positive"));
    assert!(complain(&["--set", "kv_blocks=9"]).contains("needs"));
    assert!(complain(&["--hide", "2"]).contains("must be from 0 to 1"));
    assert!(
        complain(&["--machine", "tpu"]).contains("machine `tpu` is neither a file nor one of opt-13b-a100")
    );
    assert!(complain(&["--policy", "best"]).contains("policy `best` is not one of"));
    assert!(complaint(folder.path(), &["--input", "none.json"]).contains("cannot read none.json"));
    assert!(complaint(folder.path(), &[]).contains("required"));
    assert!(complain(&["--seed", "4"]).contains("cannot be used with"));
    std::fs::write(folder.path().join("f.json"), r#"{"faults": [{"kind": "cancel", "at": 1, "rel_id": 7}]}"#)
        .unwrap();
    let wrong = complain(&["--faults", "f.json"]);
    assert!(wrong.contains("f.json: faults[0].rel_id is no relQuery of the trace"), "{wrong}");
}
