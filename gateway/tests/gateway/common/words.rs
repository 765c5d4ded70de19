//! A table whose rows a [`FakeReplica`] answers with their own words, so that each row is seen to be answered
//! once.

use serde_json::{Value, json};

use super::Server;
use super::replica::FakeReplica;

/// The words `w0`, `w1`, ..
fn words(count: usize) -> Vec<Value> {
    (0..count).map(|i| json!([format!("w{i}")])).collect()
}

/// A table of them.
pub fn table(count: usize) -> Value {
    json!({"template": "Say {w}", "columns": ["w"], "rows": words(count), "max_tokens": 8, "cache": false})
}

/// Waits until so many replicas get rows.
pub async fn until_up(server: &Server, count: usize) {
    let is_up = |server: &Server| {
        server.running.app.runtime.view().replicas.iter().filter(|executor| executor.is_up).count() == count
    };
    server.until("the replicas are up", is_up).await;
}

/// All rows of `table(count)` are answered with their own words, and counted once.
pub fn assert_answered(reply: &Value, count: usize) {
    assert_eq!(reply["status"], "completed", "{reply}");
    for (index, row) in reply["rows"].as_array().unwrap().iter().enumerate() {
        assert_eq!(row["text"], format!("w{index}"), "{reply}");
    }
    let usage = &reply["usage"];
    let counts = [
        &usage["prompt_tokens"],
        &usage["completion_tokens"],
        &usage["prompt_tokens_details"]["cached_tokens"],
    ];
    assert_eq!(
        counts.map(|count| count.as_u64().unwrap()),
        [10, 2, 4].map(|each| each * count as u64),
        "{usage}"
    );
}

/// What the replicas answered, together.
pub fn answered(replicas: &[&FakeReplica]) -> Vec<String> {
    let mut words: Vec<String> =
        replicas.iter().flat_map(|replica| replica.state().answered.clone()).collect();
    words.sort_by_key(|word| word[1..].parse::<u32>().unwrap());
    words
}

/// What the rows of `table(count)` are answered with.
pub fn expected(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("w{i}")).collect()
}
