//! vLLM itself as a replica, on a small checkpoint that the test writes.
//!
//! `tests/vllm/install.sh` installs it (`cargo xtask nightly vllm` does so first); where it is not, the test
//! says so and is skipped.

use std::path::Path;
use std::process::Command;

use engine::checkpoint::Synthetic;
use engine::checkpoint::config::Family;
use serde_json::{Value, json};

use crate::common::client::Client;
use crate::common::program::{Program, free_port, installed, start};
use crate::common::replica::{executor, fleet};
use crate::common::serve_fleet;

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
        .args(["--max-num-seqs", "4", "--block-size", "32", "--scheduling-policy", "priority"])
        .arg("--enable-prompt-tokens-details")
        .envs([("VLLM_CPU_KVCACHE_SPACE", "1"), ("VLLM_NO_USAGE_STATS", "1"), ("HF_HUB_OFFLINE", "1")]);
    start(&mut command, address, "Application startup complete")
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
    let mut config = fleet(vec![executor(vllm.address)]);
    config.model.name = Some("tiny".into());
    config.model.tokenizer = Some(folder.path().to_owned());
    (config.replicas[0].rows_max, config.replicas[0].priority) = (4, true);
    // A first answer takes its time, and a machine with one core more.
    config.replicas[0].health_ms = base::Millis(1_000);
    let server = serve_fleet(config).await;
    server
        .until("it is up", |server| {
            server.running.app.runtime.view().replicas.first().is_some_and(|one| one.is_up)
        })
        .await;

    let words = ["red", "a longer text, with <|im_end|> in it", "green", "blue", "black", "white"];
    let beginning = "Name the colour that stands in the row below, in one word. ";
    let rows: Vec<Value> = words.iter().map(|word| json!([word])).collect();
    let template = format!("{beginning}{{w}}");
    let asked =
        json!({"template": template, "rows": rows, "max_tokens": 6, "ignore_eos": true, "chat": false});
    let reply = server.relquery(asked).await.json();
    assert_eq!(reply["status"], "completed", "{reply}");
    assert_eq!(reply["usage"]["completion_tokens"], 6 * words.len(), "{reply}");
    let cached = reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or_default();
    assert!(cached >= 32, "rows that went later found the block that all begin with: {reply}");
    let direct = Client { address: vllm.address, key: None };
    for (word, row) in words.iter().zip(reply["rows"].as_array().unwrap()) {
        // Its own tokenizer would take what a cell says for a token of its own.
        if word.contains("<|") {
            continue;
        }
        let asked = json!({
            "model": "tiny", "prompt": format!("{beginning}{word}"), "max_tokens": 6, "temperature": 0,
            "ignore_eos": true,
        });
        let answer = direct.post("/v1/completions", &asked).await.json();
        assert_eq!(row["text"], answer["choices"][0]["text"], "{word}: {reply}");
    }

    let choice = json!({"template": "Good or bad? {w}", "rows": rows, "max_tokens": 6, "chat": false,
        "constraint": {"choice": ["good", "bad"]}});
    let reply = server.relquery(choice).await.json();
    for row in reply["rows"].as_array().unwrap() {
        assert!(["good", "bad"].contains(&row["text"].as_str().unwrap_or_default()), "{reply}");
    }
    let long = json!({"template": "Say {w}", "rows": [["x ".repeat(600)], ["red"]], "max_tokens": 6});
    let reply = server.relquery(long).await.json();
    assert!(reply["rows"][0]["error"]["message"].is_string(), "longer than its context: {reply}");
    assert!(reply["rows"][1]["text"].is_string(), "{reply}");
}
