//! What stands in the log at its most talkative: nothing of what clients send or get.

use std::process::Command;

use serde_json::{Value, json};

use crate::common::client::Client;
use crate::program::Program;

/// A word that stands in every prompt, and nowhere else.
const MARK: &str = "quillonberry";
/// Characters of an answer that nothing else has by chance.
const OWN_CHARS: usize = 16;

#[actix_web::test]
async fn no_prompt_answer_or_key_is_in_the_log_at_the_level_of_trace() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" 2>\"$LOG\"", env!("CARGO_BIN_EXE_relserve")]);
    command.args(["serve", "--listen", "127.0.0.1:0", "--show-key", "--data-dir"]).arg(folder.path());
    let mut server = Program::of(command.env("LOG", &log).env("RELSERVE_LOG", "trace"));
    let address = server.address.strip_prefix("http://").unwrap().parse().unwrap();
    let client = Client { address, key: Some(server.key.clone()) };

    let free = json!({"max_tokens": 24, "ignore_eos": true});
    let with = |fields: Value| {
        let mut body = free.clone();
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        body
    };
    let mut answers = Vec::new();
    let table = with(json!({"template": format!("Tell of {MARK} and {{w}}"), "rows": [[MARK], ["b"]]}));
    let reply = client.post("/v1/relqueries", &table).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let rows = reply.json()["rows"].clone();
    answers.extend(rows.as_array().unwrap().iter().map(|row| row["text"].as_str().unwrap().to_owned()));
    let chat = with(json!({"messages": [{"role": "user", "content": format!("Tell of {MARK}")}]}));
    let reply = client.post("/v1/chat/completions", &chat).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    answers.push(reply.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned());
    let stream = with(json!({"prompt": format!("Tell of {MARK}"), "stream": true}));
    assert_eq!(client.post("/v1/completions", &stream).await.status, 200);
    let call = json!({"function": "classify", "args": [MARK, ["good", "bad"]]});
    assert_eq!(client.post("/v1/cells", &json!({"calls": [call]})).await.status, 200);
    let query =
        format!("SELECT ai_sentiment(t) AS mood FROM (VALUES ('{MARK}')) AS v(t) WHERE t <> 'x{MARK}'");
    let reply = client.post("/v1/sql", &json!({ "query": query })).await;
    assert!(reply.status == 200 && reply.body.contains("mood"), "{}", reply.body);
    // What is refused is not told either.
    let broken = format!("{{\"template\": \"{MARK}\"");
    assert_eq!(client.post_bytes("/v1/relqueries", "application/json", broken.as_bytes()).await.status, 400);
    let query = format!("SELECT nothing FROM {MARK}");
    assert_ne!(client.post("/v1/sql", &json!({ "query": query })).await.status, 200);
    let wrong = format!("rs-{MARK}");
    assert_eq!(client.with_key(&wrong).get("/v1/usage").await.status, 401);
    server.terminate();
    assert!(server.ended().success());

    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "it says much: {log}");
    answers.retain(|answer| answer.chars().count() >= OWN_CHARS);
    assert!(!answers.is_empty(), "answers that are told from all else");
    let secrets = answers.iter().map(String::as_str).chain([MARK, server.key.as_str()]);
    for secret in secrets {
        let line = log.lines().find(|line| line.contains(secret));
        assert!(!log.contains(secret), "{secret:?} is in the log: {line:?}");
    }
}
