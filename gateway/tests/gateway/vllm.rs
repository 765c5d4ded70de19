//! vLLM itself as a replica, on a small checkpoint that the test writes.
//!
//! `tests/vllm/install.sh` installs it (`cargo xtask nightly vllm` does so first); where it is not, the test
//! says so and is skipped.

mod told;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use engine::checkpoint::Synthetic;
use engine::checkpoint::config::Family;
use scheduler::Policy;
use serde_json::{Value, json};

use crate::common::Server;
use crate::common::client::Client;
use crate::common::program::{Program, free_port, installed, start};
use crate::common::replica::{executor, fleet};
use crate::common::words::until_up;
use crate::common::{seen_in_time, serve_fleet};

/// Rows that vLLM runs at a time here; what it has more waits in its own queue.
const RUNNING_MAX: u32 = 2;
/// What all rows' prompts begin with: more than a block of vLLM's cache.
const BEGINNING: &str = "Name the colour that stands in the row below, in one word. ";

/// A model whose heads are of a size that vLLM's attention has on a processor.
fn checkpoint() -> Synthetic {
    let mut model = Synthetic::tiny(Family::Llama, 7);
    (model.config.hidden, model.config.embedding, model.config.intermediate) = (128, 128, 192);
    (model.config.heads, model.config.kv_heads, model.config.head_dim) = (2, 2, 64);
    model
}

/// Starts the server on a port that is free.
fn start_vllm(program: &Path, model: &Path) -> Program {
    let address = free_port();
    let mut command = Command::new(program);
    command
        .args(["serve", &model.display().to_string(), "--served-model-name", "tiny", "--dtype", "float32"])
        .args(["--host", "127.0.0.1", "--port", &address.port().to_string(), "--enforce-eager"])
        .args(["--max-num-seqs", &RUNNING_MAX.to_string(), "--block-size", "32"])
        .args(["--scheduling-policy", "priority", "--enable-prompt-tokens-details"])
        // JSON between whose parts any blanks may stand is blanks without an end of a model that was not trained.
        .args(["--structured-outputs-config", r#"{"backend": "xgrammar", "disable_any_whitespace": true}"#])
        .envs([("VLLM_CPU_KVCACHE_SPACE", "1"), ("VLLM_NO_USAGE_STATS", "1"), ("HF_HUB_OFFLINE", "1")]);
    start(&mut command, address, "Application startup complete")
}

/// Gateways in front of it, and itself.
struct Both {
    server: Server,
    /// It has no tokenizer, and sends texts and messages.
    by_text: Server,
    vllm: Client,
}

impl Both {
    async fn start(vllm: &Program, model: &Path) -> Self {
        let mut config = fleet(vec![executor(vllm.address)]);
        config.model.name = Some("tiny".into());
        config.scheduler.policy = Policy::RelServe;
        // More than it runs, so that rows wait in its own queue, which `priority` orders.
        (config.replicas[0].rows_max, config.replicas[0].priority) = (64, true);
        // A first answer takes its time, and a machine with one core more.
        config.replicas[0].health_ms = base::Millis(1_000);
        let by_text = serve_fleet(config.clone()).await;
        config.model.tokenizer = Some(model.to_owned());
        let server = serve_fleet(config).await;
        for gateway in [&server, &by_text] {
            until_up(gateway, 1).await;
        }
        Self { server, by_text, vllm: Client { address: vllm.address, key: None } }
    }

    /// What is sent tokens' ids, and what is sent texts.
    fn gateways(&self) -> [&Client; 2] {
        [&self.server.client, &self.by_text.client]
    }

    /// Waits until the sum of a metric of vLLM over its label sets with `label` is as expected.
    async fn until_counted(&self, name: &str, label: &str, is_right: impl Fn(f64) -> bool) {
        let wait = async {
            let mut looks = tokio::time::interval(Duration::from_millis(20));
            while !is_right(self.counted(name, label).await) {
                looks.tick().await;
            }
        };
        seen_in_time(name, wait).await;
    }

    async fn counted(&self, name: &str, label: &str) -> f64 {
        let text = self.vllm.get("/metrics").await.body;
        let of = |line: &str| {
            let (labels, value) = line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} ")?;
            labels.contains(label).then(|| value.parse::<f64>().ok()).flatten()
        };
        text.lines().filter_map(of).sum()
    }
}

/// Prompts of so many rows, each of which decodes for so many steps.
fn table(rows: u32, max_tokens: u32) -> Value {
    let rows: Vec<Value> = (0..rows).map(|row| json!([row.to_string()])).collect();
    json!({"template": format!("{BEGINNING}{{w}}"), "rows": rows, "max_tokens": max_tokens,
        "ignore_eos": true, "chat": false})
}

#[actix_web::test]
async fn vllm_answers_rows_as_it_answers_when_it_is_asked_directly() {
    let program = match installed("tests/vllm/install.sh", &["--check"], ".venv-vllm/bin/vllm") {
        Ok(program) => program,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let folder = tempfile::tempdir().unwrap();
    checkpoint().write(folder.path()).unwrap();
    let vllm = start_vllm(&program, folder.path());
    let both = Both::start(&vllm, folder.path()).await;
    // One after another on the one process: it takes a minute to start.
    rows_are_its_own_and_find_their_beginning(&both).await;
    constraints_and_limits_hold(&both).await;
    told::echoed_prompts_are_scored_as_it_scores_them(&both).await;
    told::scores_of_prompts_are_its_own(&both).await;
    told::answers_tokens_are_told_as_it_tells_them(&both).await;
    told::answers_have_the_form_that_is_asked_for(&both).await;
    told::usage_is_its_own(&both).await;
    rows_of_a_shorter_relquery_go_first_in_its_own_queue(&both).await;
    rows_of_a_client_that_went_away_are_aborted(&both).await;
}

async fn rows_are_its_own_and_find_their_beginning(both: &Both) {
    let words = ["red", "a longer text, with <|im_end|> in it", "green", "blue", "black", "white"];
    let rows: Vec<Value> = words.iter().map(|word| json!([word])).collect();
    let mut asked = table(0, 6);
    asked["rows"] = json!(rows);
    let reply = both.server.relquery(asked).await.json();
    assert_eq!(reply["status"], "completed", "{reply}");
    assert_eq!(reply["usage"]["completion_tokens"], 6 * words.len(), "{reply}");
    let cached = reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or_default();
    assert!(cached >= 32, "rows that went later found the block that all begin with: {reply}");
    for (word, row) in words.iter().zip(reply["rows"].as_array().unwrap()) {
        // Its own tokenizer would take what a cell says for a token of its own.
        if word.contains("<|") {
            continue;
        }
        let asked = json!({"model": "tiny", "prompt": format!("{BEGINNING}{word}"), "max_tokens": 6,
            "temperature": 0, "ignore_eos": true});
        let answer = both.vllm.post("/v1/completions", &asked).await.json();
        assert_eq!(row["text"], answer["choices"][0]["text"], "{word}: {reply}");
    }
}

async fn constraints_and_limits_hold(both: &Both) {
    let choice = json!({"template": "Good or bad? {w}", "rows": [["red"], ["blue"]], "max_tokens": 6,
        "chat": false, "constraint": {"choice": ["good", "bad"]}});
    let reply = both.server.relquery(choice).await.json();
    for row in reply["rows"].as_array().unwrap() {
        assert!(["good", "bad"].contains(&row["text"].as_str().unwrap_or_default()), "{reply}");
    }
    let long = json!({"template": "Say {w}", "rows": [["x ".repeat(600)], ["red"]], "max_tokens": 6});
    let reply = both.server.relquery(long).await.json();
    assert!(reply["rows"][0]["error"]["message"].is_string(), "longer than its context: {reply}");
    assert!(reply["rows"][1]["text"].is_string(), "{reply}");
}

/// All rows of the long one are at vLLM before the short one comes.
async fn rows_of_a_shorter_relquery_go_first_in_its_own_queue(both: &Both) {
    let long = both.server.client.begin("/v1/relqueries", &table(40, 60)).await;
    both.until_counted("vllm:num_requests_waiting", "", |rows| rows > 20.0).await;
    let short = json!({"template": "Say {w}", "rows": [["red"]], "max_tokens": 2, "ignore_eos": true,
        "chat": false});
    let reply = both.server.relquery(short).await.json();
    assert_eq!(reply["status"], "completed", "{reply}");
    let waiting = both.counted("vllm:num_requests_waiting", "").await;
    assert!(waiting > 0.0, "it did not wait for those that came before it");
    let reply = crate::common::client::finish(long).await.json();
    assert_eq!(reply["progress"]["done"], 40, "{reply}");
}

async fn rows_of_a_client_that_went_away_are_aborted(both: &Both) {
    let name = "vllm:generation_tokens_total";
    let before = both.counted(name, "").await;
    let stream = both.server.client.begin("/v1/relqueries", &table(30, 150)).await;
    both.until_counted("vllm:num_requests_running", "", |rows| rows >= f64::from(RUNNING_MAX)).await;
    drop(stream);
    both.server.until_rows_end().await;
    both.until_counted("vllm:num_requests_running", "", |rows| rows == 0.0).await;
    both.until_counted("vllm:num_requests_waiting", "", |rows| rows == 0.0).await;
    // vLLM counts no end of what its client gave up, but it counts tokens: not all were generated.
    let generated = both.counted(name, "").await - before;
    assert!(generated < 30.0 * 150.0, "{generated} tokens");
}
