//! The same server over the real engine: a small random checkpoint, measured at the start.

use std::path::{Path, PathBuf};

use engine::checkpoint::config::Family;
use engine::checkpoint::ggml::BlockFormat;
use engine::checkpoint::gguf::convert::Conversion;
use engine::checkpoint::synthetic::Synthetic;
use engine::checkpoint_reader::Checkpoint;
use gateway::app::start;
use serde_json::{Value, json};
use serving::clock::Clock;
use serving::load;
use store::{DEFAULT_TENANT, Store};

use crate::common::client::Client;
use crate::common::{config, key_of};

#[actix_web::test]
async fn a_checkpoint_is_measured_once_and_serves_rows() {
    let folder = tempfile::tempdir().unwrap();
    Synthetic::tiny(Family::Llama, 7).write(folder.path()).unwrap();
    let mut config = config();
    config.model.dir = Some(folder.path().to_owned());
    config.engine.threads = Some(1);
    config.engine.kv_bytes = Some(base::Bytes(4 << 20));
    let store = Store::open("sqlite::memory:").await.unwrap();
    let clock = Clock::start();
    let first =
        load::ready(load::load(config.backend()).unwrap(), config.backend(), &store, clock).await.unwrap();
    let second =
        load::ready(load::load(config.backend()).unwrap(), config.backend(), &store, clock).await.unwrap();
    assert_eq!(first.cost, second.cost, "the second start takes what the first has measured");
    let key = key_of(&store, DEFAULT_TENANT).await;
    let running = start(config, first, store).await.unwrap();
    let client = Client { address: running.address, key: Some(key) };
    let body = json!({"template": "Say {w}", "rows": [["a"], ["b"], ["a"]], "max_tokens": 4, "ignore_eos": true, "chat": false});
    let reply = client.post("/v1/relqueries", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let reply = reply.json();
    assert_eq!(reply["progress"]["done"], 3, "{reply}");
    assert_eq!(reply["rows"][0]["text"], reply["rows"][2]["text"]);
    assert_eq!(reply["rows"][1]["usage"]["completion_tokens"], 4);
    running.drain(std::future::pending()).await;
}

#[actix_web::test]
async fn a_model_on_two_ranks_serves_the_answers_of_one() {
    let folder = tempfile::tempdir().unwrap();
    Synthetic::tiny(Family::Qwen2, 7).write(folder.path()).unwrap();
    let rows: Vec<_> = (0..12).map(|row| json!([format!("row {row}")])).collect();
    let body = json!({"template": "Say {w}", "rows": rows, "max_tokens": 9, "chat": false});
    let choice = json!({"template": "Say {w}", "rows": rows, "chat": false,
        "constraint": {"choice": ["good", "bad", "neither"]}});
    let mut answers = Vec::new();
    for ranks in [1, 2] {
        let mut config = config();
        config.model.dir = Some(folder.path().to_owned());
        config.engine.tensor_parallel = ranks;
        config.engine.threads = Some(2);
        config.engine.kv_bytes = Some(base::Bytes(4 << 20));
        let store = Store::open("sqlite::memory:").await.unwrap();
        let engine = load::load(config.backend()).unwrap();
        let backend = load::ready(engine, config.backend(), &store, Clock::start()).await.unwrap();
        let key = key_of(&store, DEFAULT_TENANT).await;
        let running = start(config, backend, store).await.unwrap();
        let client = Client { address: running.address, key: Some(key) };
        let mut texts = Vec::new();
        for body in [&body, &choice] {
            let reply = client.post("/v1/relqueries", body).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
            let reply = reply.json();
            texts.extend(reply["rows"].as_array().unwrap().iter().map(|row| row["text"].clone()));
        }
        answers.push(texts);
        running.drain(std::future::pending()).await;
    }
    assert_eq!(answers[0].len(), 24);
    assert_eq!(answers[0], answers[1]);
}

/// The demo model's folder, and a GGUF file made of it with its matrices as `format`.
fn demo_file(folder: &Path, format: BlockFormat) -> (PathBuf, PathBuf) {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    let checkpoint = Checkpoint::folder(&demo, None).unwrap();
    let text = |name: &str| std::fs::read_to_string(demo.join(name)).unwrap();
    let settings: Value = serde_json::from_str(&text("tokenizer_config.json")).unwrap();
    let conversion = Conversion {
        config: &checkpoint.config,
        weights: &checkpoint.weights,
        format,
        tokenizer: &text("tokenizer.json"),
        pre: "smollm",
        end: 0,
        template: settings["chat_template"].as_str(),
    };
    let file = folder.join(format!("demo-{}.gguf", format.name()));
    std::fs::write(&file, conversion.writer().unwrap().finish()).unwrap();
    (demo, file)
}

/// What the model at `path` answers to three reviews, and what it is called.
async fn answers(path: &Path) -> (Vec<String>, String) {
    let mut config = config();
    config.model.dir = Some(path.to_owned());
    config.engine.threads = Some(1);
    let store = Store::open("sqlite::memory:").await.unwrap();
    let backend =
        load::ready(load::load(config.backend()).unwrap(), config.backend(), &store, Clock::start()).await;
    let key = key_of(&store, DEFAULT_TENANT).await;
    let running = start(config, backend.unwrap(), store).await.unwrap();
    let client = Client { address: running.address, key: Some(key) };
    let template = "Classify the text. Answer with one of these labels: positive, negative.\n\nText: {text}";
    let rows =
        [["A wonderful, moving film."], ["Two lost hours of my life."], ["I loved every minute of it."]];
    let reply =
        client.post("/v1/relqueries", &json!({"template": template, "rows": rows, "max_tokens": 4})).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let reply = reply.json();
    running.drain(std::future::pending()).await;
    let rows = reply["rows"].as_array().unwrap();
    // A GGUF has no word for the demo tokenizer's stripping of the first space.
    let texts = rows.iter().map(|row| row["text"].as_str().unwrap().trim_start().to_owned()).collect();
    (texts, reply["model"].as_str().unwrap().to_owned())
}

#[actix_web::test]
async fn a_gguf_file_is_served_as_its_folder_is() {
    let folder = tempfile::tempdir().unwrap();
    for format in [BlockFormat::Bf16, BlockFormat::Q8_0] {
        let (demo, file) = demo_file(folder.path(), format);
        let (expected, _) = answers(&demo).await;
        let (found, name) = answers(&file).await;
        assert_eq!(found, expected, "{format:?}");
        assert_eq!(name, format!("demo-{}", format.name()));
        assert!(found.contains(&"positive".to_owned()), "{found:?}");
    }
}

#[test]
fn a_file_that_cannot_be_served_is_refused_by_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broken.gguf");
    let mut config = config();
    config.model.dir = Some(file.clone());
    let error = || load::load(config.backend()).err().unwrap().to_string();
    assert!(error().starts_with("cannot read ") && error().contains("broken.gguf"), "{}", error());
    std::fs::write(&file, b"GGUF\x03\0\0\0").unwrap();
    assert_eq!(error(), "broken.gguf: field `tensor_count`: needs 8 bytes, 0 are left: truncated");
}
