//! Usage that a server could not write to the database before its end.

use serde_json::{Value, json};
use store::Store;

use crate::common::client::Client;
use crate::common::{config, lasting_store, model, serve_on};
use crate::last_writes::Database;

/// Requests, rows, and tokens of prompts and of answers that usage shows.
async fn counted(client: &Client) -> [u64; 4] {
    let usage = client.get("/v1/usage").await.json();
    let days = usage["data"].as_array().unwrap();
    ["requests", "rows", "prompt_tokens", "completion_tokens"]
        .map(|name| days.iter().map(|day| day[name].as_u64().unwrap()).sum())
}

/// What a folder of the journal has.
fn files(data: &std::path::Path, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(data.join("usage-journal").join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| !name.ends_with(".draft")).collect();
    names.sort();
    names
}

#[actix_web::test]
async fn what_a_server_has_not_written_is_counted_once_by_the_next_one_of_its_database() {
    let (folder, store) = lasting_store().await;
    let database = Database::open(folder.path()).await;
    let mut config = config();
    config.store.data_dir = folder.path().to_owned();
    let first = serve_on(config.clone(), model(), store.clone()).await;
    // Whose key it is is known from now on.
    assert_eq!(counted(&first.client).await, [0; 4]);
    database.allow(0).await;
    let mut expected = [0; 4];
    for word in ["a", "bb", "ccc"] {
        let reply = first.relquery(json!({"template": "Say {w}", "rows": [[word]]})).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let usage: Value = reply.json()["usage"].clone();
        let tokens = ["prompt_tokens", "completion_tokens"].map(|name| usage[name].as_u64().unwrap());
        expected = [expected[0] + 1, expected[1] + 1, expected[2] + tokens[0], expected[3] + tokens[1]];
    }
    first.running.drain(std::future::ready(())).await;
    database.release().await;
    store.close().await;

    let (_other_folder, other_store) = lasting_store().await;
    let other = serve_on(config.clone(), model(), other_store).await;
    assert_eq!(counted(&other.client).await, [0; 4], "it is another database's");
    assert!(!files(folder.path(), "foreign").is_empty(), "it is left to whose it is");

    let url = format!("sqlite://{}", folder.path().join("test.db").display());
    for _ in 0..2 {
        let next = serve_on(config.clone(), model(), Store::open(&url).await.unwrap()).await;
        assert_eq!(counted(&next.client).await, expected);
        next.running.drain(std::future::ready(())).await;
        assert_eq!(files(folder.path(), "1"), ["lock"], "the first folder is the other's");
        assert!(files(folder.path(), "foreign").is_empty());
    }
    other.running.drain(std::future::ready(())).await;
}
