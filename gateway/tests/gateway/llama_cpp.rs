//! llama.cpp's own Python server as a replica, on a small GGUF file that the test writes.
//!
//! `tests/llama/install.sh` installs it (`./test` does so first); where it cannot, the test says so and is
//! skipped.

use std::path::Path;
use std::process::Command;

use engine::checkpoint::Synthetic;
use engine::checkpoint::config::Family;
use engine::checkpoint::ggml::BlockFormat;
use serde_json::{Value, json};
use serving::config::Dialect;

use crate::common::client::Client;
use crate::common::program::{Program, free_port, installed, start};
use crate::common::replica::{executor, fleet};
use crate::common::serve_fleet;

/// Starts the server on a port that is free.
fn start_llama(python: &Path, model: &Path) -> Program {
    let address = free_port();
    let mut command = Command::new(python);
    command
        .args(["-m", "llama_cpp.server", "--host", "127.0.0.1", "--n_ctx", "256", "--n_threads", "1"])
        .args(["--model_alias", "tiny", "--chat_format", "chatml", "--port", &address.port().to_string()])
        .arg("--model")
        .arg(model);
    start(&mut command, address, "Uvicorn running on")
}

#[actix_web::test]
async fn llama_cpps_server_answers_rows_as_it_answers_when_it_is_asked_directly() {
    let python = match installed("tests/llama/install.sh", &[], ".venv-llama/bin/python") {
        Ok(python) => python,
        Err(reason) => return eprintln!("skipped: llama.cpp's server cannot be installed: {reason}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tiny.gguf");
    let gguf = Synthetic::tiny(Family::Llama, 7).gguf(BlockFormat::F32).unwrap();
    std::fs::write(&file, gguf.finish()).unwrap();
    let llama = start_llama(&python, &file);
    let mut config = fleet(vec![executor(llama.address)]);
    config.model.name = Some("tiny".into());
    config.replicas[0].dialect = Dialect::LlamaCpp;
    // It answers one request at a time, and knows nothing of slow neighbours.
    config.replicas[0].rows_max = 2;
    config.replicas[0].health_ms = base::Millis(200);
    let server = serve_fleet(config).await;
    server
        .until("it is up", |server| {
            server.running.app.runtime.view().replicas.first().is_some_and(|one| one.is_up)
        })
        .await;

    let words = ["red", "a longer text, with <|im_end|> in it", "green"];
    let rows: Vec<Value> = words.iter().map(|word| json!([word])).collect();
    let reply = server.relquery(json!({"template": "Say {w}", "rows": rows, "max_tokens": 6})).await.json();
    assert_eq!(reply["status"], "completed", "{reply}");
    let direct = Client { address: llama.address, key: None };
    let mut prompt_tokens = 0;
    for (word, row) in words.iter().zip(reply["rows"].as_array().unwrap()) {
        let messages = json!([{"role": "user", "content": format!("Say {word}")}]);
        let asked = json!({
            "model": "tiny", "messages": messages, "max_tokens": 6, "temperature": 0, "top_k": 0, "min_p": 0,
            "repeat_penalty": 1,
        });
        let answer = direct.post("/v1/chat/completions", &asked).await.json();
        assert_eq!(row["text"], answer["choices"][0]["message"]["content"], "{word}: {reply}");
        prompt_tokens += answer["usage"]["prompt_tokens"].as_u64().unwrap();
    }
    assert_eq!(reply["usage"]["prompt_tokens"], prompt_tokens, "as the server counts them");

    let choice = json!({"template": "Good or bad? {w}", "rows": rows, "max_tokens": 6,
        "constraint": {"choice": ["good", "bad"]}});
    let reply = server.relquery(choice).await.json();
    for row in reply["rows"].as_array().unwrap() {
        assert!(["good", "bad"].contains(&row["text"].as_str().unwrap_or_default()), "{reply}");
    }
    let long = json!({"template": "Say {w}", "rows": [["x ".repeat(600)], ["red"]], "max_tokens": 6});
    let reply = server.relquery(long).await.json();
    let error = reply["rows"][0]["error"]["message"].as_str().unwrap_or_default();
    assert!(error.contains("256 tokens"), "its own limit, in its own words: {reply}");
    assert!(reply["rows"][1]["text"].is_string(), "{reply}");
}
