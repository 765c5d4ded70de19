//! Uploaded files as tables of SQL: named, typed, its tenant's alone, gone when they are deleted.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::batch::{form_of_bytes, make, send, send_form};
use crate::common::client::Client;
use crate::common::{Parties, model, serve_parties, serve_with};
use crate::postgres_client::{config, connect_as_default};

/// Two tenants, and where their server keeps files.
async fn parties() -> (TempDir, Parties) {
    let folder = tempfile::tempdir().unwrap();
    let parties = serve_parties(config(folder.path())).await;
    (folder, parties)
}

/// Uploads a table; its id.
async fn upload(client: &Client, name: &str, content: impl AsRef<[u8]>) -> String {
    // The purpose comes behind the file, as forms may have it.
    let form = form_of_bytes(&[("file", Some(name), content.as_ref()), ("purpose", None, b"user_data")]);
    let reply = send_form(client, &form).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.json()["purpose"], "user_data");
    reply.json()["id"].as_str().unwrap().to_owned()
}

/// The lines of a statement's result.
async fn lines(client: &Client, query: &str) -> Vec<Value> {
    let reply = client.post("/v1/sql", &json!({ "query": query })).await;
    assert_eq!(reply.status, 200, "{query}: {}", reply.body);
    reply.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[actix_web::test]
async fn uploads_are_tables_by_the_names_of_their_files() {
    let (folder, parties) = parties().await;
    let client = &parties.server.client;
    upload(client, "My Reviews.csv", "id,text\n1,fine yes\n2,poor no\n").await;
    upload(client, "2024.jsonl", "{\"id\": 7, \"text\": \"fine yes\"}\n").await;
    upload(client, "tabs.tsv", "a\tb\n1\t2\n").await;
    let judged = lines(client, "SELECT id, ai_if(text) AS good FROM files.my_reviews ORDER BY id").await;
    assert_eq!(judged, [json!({"id": 1, "good": true}), json!({"id": 2, "good": false})]);
    let joined = "SELECT count(*) AS n FROM files._2024 l JOIN files.my_reviews r ON l.text = r.text";
    assert_eq!(lines(client, joined).await, [json!({"n": 1})]);
    assert_eq!(lines(client, "SELECT * FROM files.tabs").await, [json!({"a": 1, "b": 2})]);

    // Parquet, as a table of the folder has it.
    lines(client, "CREATE TABLE made AS SELECT value AS id FROM generate_series(1, 50000)").await;
    let parquet = std::fs::read(folder.path().join("tables/1/made.parquet")).unwrap();
    let id = upload(client, "numbers.parquet", &parquet).await;
    let sums = lines(client, "SELECT count(*) AS n, sum(id) AS s FROM files.numbers").await;
    assert_eq!(sums, [json!({"n": 50_000, "s": 1_250_025_000})]);
    let content = client.get(&format!("/v1/files/{id}/content")).await;
    assert_eq!(content.header("content-length"), Some(parquet.len().to_string().as_str()));
    let copy = std::fs::read(folder.path().join(format!("sql-files/1/{id}"))).unwrap();
    assert_eq!(copy, parquet);

    let clients = connect_as_default(&parties.server).await;
    let listed = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'files' ORDER BY 1";
    assert_eq!(clients.rows(listed).await, ["_2024", "my_reviews", "numbers", "tabs"]);
}

#[actix_web::test]
async fn another_tenants_uploads_are_not_there() {
    let (_folder, parties) = parties().await;
    upload(&parties.server.client, "secret.csv", "text\nours\n").await;
    assert_eq!(
        lines(&parties.server.client, "SELECT text FROM files.secret").await,
        [json!({"text": "ours"})]
    );
    let query = json!({ "query": "SELECT text FROM files.secret" });
    let reply = parties.theirs.post("/v1/sql", &query).await;
    assert!(reply.status == 400 && reply.body.contains("files.secret"), "{} {}", reply.status, reply.body);
    upload(&parties.theirs, "secret.csv", "text\ntheirs\n").await;
    assert_eq!(lines(&parties.theirs, "SELECT text FROM files.secret").await, [json!({"text": "theirs"})]);
    assert_eq!(
        lines(&parties.server.client, "SELECT text FROM files.secret").await,
        [json!({"text": "ours"})]
    );
}

#[actix_web::test]
async fn the_newest_file_of_a_name_is_the_table_and_a_deleted_one_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve_with(config(folder.path()), model()).await;
    let query = "SELECT text FROM files.notes";
    let old = upload(&server.client, "notes.csv", "text\nold\n").await;
    assert_eq!(lines(&server.client, query).await, [json!({"text": "old"})]);
    // A later instant, by which files are ordered.
    let made = server.running.app.runtime.shared.unix_now();
    server.until("time goes on", |server| server.running.app.runtime.shared.unix_now() > made).await;
    let new = upload(&server.client, "Notes.CSV", "text\nnew\n").await;
    assert_eq!(lines(&server.client, query).await, [json!({"text": "new"})]);
    assert_eq!(server.client.delete(&format!("/v1/files/{new}")).await.status, 200);
    assert_eq!(lines(&server.client, query).await, [json!({"text": "old"})]);
    assert_eq!(server.client.delete(&format!("/v1/files/{old}")).await.status, 200);
    let reply = server.client.post("/v1/sql", &json!({ "query": query })).await;
    assert!(reply.status == 400 && reply.body.contains("files.notes"), "{}", reply.body);
    let left = std::fs::read_dir(folder.path().join("sql-files/1")).unwrap().count();
    assert_eq!(left, 0, "no copy is left");
}

#[actix_web::test]
async fn what_cannot_be_a_table_is_refused_and_batches_take_no_tables() {
    let (_folder, parties) = parties().await;
    let client = &parties.server.client;
    for (purpose, name, said) in [
        ("user_data", "notes.txt", "a name that ends in .csv"),
        ("user_data", ".csv", "a name that ends in .csv"),
        ("batch", "in.parquet", "must be JSONL for the purpose `batch`"),
        ("assistants", "a.csv", "must be `batch` or `user_data`"),
    ] {
        let reply = send(client, &[("purpose", None, purpose), ("file", Some(name), "a\n1\n")]).await;
        assert!(reply.status == 400 && reply.error().contains(said), "{purpose} {name}: {}", reply.body);
    }
    let table = upload(client, "a.jsonl", "{}\n").await;
    let body = json!({"input_file_id": table, "endpoint": "/v1/completions", "completion_window": "24h"});
    let refused = client.post("/v1/batches", &body).await;
    assert!(refused.error().contains("must be a file of purpose `batch`"), "{}", refused.body);
    let batch = crate::common::batch::upload(client, &crate::common::batch::lines(["a".into()])).await;
    make(client, &batch).await;
    let reply = client.post("/v1/sql", &json!({ "query": "SELECT * FROM files.\"in\"" })).await;
    assert_eq!(reply.status, 400, "a file of a batch is no table: {}", reply.body);
}
