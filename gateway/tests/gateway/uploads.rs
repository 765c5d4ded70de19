//! Files that come in parts.

use base::{Bytes, Millis};
use serde_json::{Value, json};
use serving::clock::Clock;
use store::{DEFAULT_TENANT, NewFile, UnixMillis};

use crate::common::batch::{
    form, form_of_bytes, form_request, line, lines, make, read, send as send_file, send_form_to, until_over,
    upload,
};
use crate::common::client::{Client, Reply};
use crate::common::{
    Server, config, key_of, lasting_store, model, seen_in_time, serve, serve_on, serve_with,
};
use crate::last_writes::Database;

fn wanted(bytes: usize) -> Value {
    json!({"filename": "in.jsonl", "purpose": "batch", "bytes": bytes, "mime_type": "text/jsonl"})
}

/// Begins an upload; its path.
async fn begin(client: &Client, body: &Value) -> String {
    let reply = client.post("/v1/uploads", body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let upload = reply.json();
    assert_eq!((&upload["object"], &upload["status"]), (&json!("upload"), &json!("pending")));
    assert_eq!((&upload["bytes"], &upload["file"]), (&body["bytes"], &Value::Null));
    format!("/v1/uploads/{}", upload["id"].as_str().unwrap())
}

async fn send(client: &Client, path: &str, data: &[u8]) -> Reply {
    let form = form_of_bytes(&[("data", Some("blob"), data)]);
    send_form_to(client, &format!("{path}/parts"), &form).await
}

/// Adds a part; its id.
async fn add(client: &Client, path: &str, data: &[u8]) -> Value {
    let reply = send(client, path, data).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let part = reply.json();
    assert_eq!(part["object"], "upload.part");
    assert!(path.ends_with(part["upload_id"].as_str().unwrap()));
    part["id"].clone()
}

async fn complete(client: &Client, path: &str, body: Value) -> Reply {
    client.post(&format!("{path}/complete"), &body).await
}

async fn cancel(client: &Client, path: &str) -> Reply {
    client.post(&format!("{path}/cancel"), &json!({})).await
}

async fn other_client(server: &Server) -> Client {
    let store = &server.running.app.runtime.store;
    let zeta = store.create_tenant("zeta", 1.0, UnixMillis(1)).await.unwrap().id;
    server.client.with_key(&key_of(store, zeta).await)
}

#[actix_web::test]
async fn parts_in_any_order_become_a_file_that_a_batch_runs() {
    let server = serve().await;
    let client = &server.client;
    let text = lines((0..3).map(|number| format!("w{number}")));
    let path = begin(client, &wanted(text.len())).await;
    // Cut inside of lines, and the last sent first.
    let (first, rest) = text.as_bytes().split_at(50);
    let (second, third) = rest.split_at(7);
    let last = add(client, &path, third).await;
    let ids = [add(client, &path, first).await, add(client, &path, second).await, last];
    let reply = complete(client, &path, json!({"part_ids": ids})).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let upload = reply.json();
    let file = &upload["file"];
    assert_eq!((&upload["status"], &file["object"]), (&json!("completed"), &json!("file")));
    assert_eq!((&file["bytes"], &file["filename"]), (&json!(text.len()), &json!("in.jsonl")));
    let content = client.get(&format!("/v1/files/{}/content", file["id"].as_str().unwrap())).await;
    assert_eq!(content.body, text);
    // Who has not heard it asks again.
    assert_eq!(complete(client, &path, json!({"part_ids": ids})).await.json(), upload);
    let late = send(client, &path, b"x").await;
    assert_eq!((late.status, &late.json()["error"]["param"]), (400, &json!("upload_id")));
    assert_eq!(cancel(client, &path).await.status, 400);
    let batch = make(client, file["id"].as_str().unwrap()).await;
    let batch = until_over(client, batch["id"].as_str().unwrap()).await;
    assert_eq!(batch["status"], "completed", "{batch}");
    assert_eq!(read(client, &batch["output_file_id"]).await.len(), 3);
}

#[actix_web::test]
async fn what_was_not_announced_is_refused_and_the_upload_goes_on() {
    let server = serve().await;
    let client = &server.client;
    let text = line("a", json!({"prompt": "Say a"})) + "\n";
    let path = begin(client, &wanted(text.len())).await;
    let (start, end) = text.as_bytes().split_at(9);
    let first = add(client, &path, start).await;
    let large = send(client, &path, text.as_bytes()).await;
    assert!(large.status == 413 && large.error().contains("with this part"), "{}", large.body);
    let larger = send(client, &path, &[b'x'; 1_000]).await;
    assert!(larger.status == 413 && larger.error().contains("`bytes` of the upload"), "{}", larger.body);
    for (sent, param) in [
        (form(&[("data", None, "")]), "data"),
        (form(&[]), "data"),
        (form(&[("data", None, "a"), ("data", None, "b")]), "data"),
        (form(&[("file", None, "a")]), "file"),
    ] {
        let reply = send_form_to(client, &format!("{path}/parts"), &sent).await;
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{}", reply.body);
    }
    let plain = client.post(&format!("{path}/parts"), &json!({})).await;
    assert_eq!((plain.status, &plain.json()["error"]["param"]), (400, &json!("data")));

    let second = add(client, &path, end).await;
    let ids = json!([first, second]);
    let zeros = "0".repeat(32);
    for (body, param) in [
        (json!({"part_ids": [first]}), "part_ids"),
        (json!({"part_ids": [first, "part_1"]}), "part_ids[1]"),
        (json!({"part_ids": [first, first]}), "part_ids[1]"),
        (json!({"part_ids": ids, "md5": zeros}), "md5"),
        (json!({"part_ids": ids, "md5": "no"}), "md5"),
        (json!({}), "part_ids"),
    ] {
        let reply = complete(client, &path, body).await;
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{}", reply.body);
    }
    let listed = client.get("/v1/files").await.json();
    assert_eq!(listed["data"], json!([]), "nothing of it is a file");
    // The refusal says which it is, and with that it is taken.
    let refused = complete(client, &path, json!({"part_ids": ids, "md5": zeros})).await.error();
    let md5 = refused.split_whitespace().next_back().unwrap().to_uppercase();
    let taken = complete(client, &path, json!({"part_ids": ids, "md5": md5})).await;
    assert_eq!(taken.status, 200, "{}", taken.body);
    let other = other_client(&server).await;
    assert_eq!(send(&other, &path, b"x").await.status, 404);
    assert_eq!(complete(&other, &path, json!({"part_ids": ids})).await.status, 404);
    assert_eq!(cancel(&other, &path).await.status, 404);
}

#[actix_web::test]
async fn the_md5_of_parts_is_that_of_all_their_bytes() {
    let server = serve().await;
    let client = &server.client;
    // RFC 1321 has it: of `abc`.
    let path = begin(client, &wanted(3)).await;
    let ids = [add(client, &path, b"a").await, add(client, &path, b"bc").await];
    let md5 = "900150983cd24fb0d6963f7d28e17f72";
    let reply = complete(client, &path, json!({"part_ids": ids, "md5": md5})).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
}

#[actix_web::test]
async fn an_upload_that_is_called_off_leaves_nothing() {
    let server = serve().await;
    let client = &server.client;
    let path = begin(client, &wanted(4)).await;
    let part = add(client, &path, b"a\n").await;
    let cancelled = cancel(client, &path).await;
    assert_eq!((cancelled.status, &cancelled.json()["status"]), (200, &json!("cancelled")));
    assert_eq!(cancel(client, &path).await.json(), cancelled.json());
    for reply in
        [send(client, &path, b"b\n").await, complete(client, &path, json!({"part_ids": [part]})).await]
    {
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert!(reply.error().contains("cancelled"), "{}", reply.body);
    }
    let store = &server.running.app.runtime.store;
    assert_eq!(store.file_chunk(part.as_str().unwrap(), 0).await.unwrap(), None);
    for path in ["/v1/uploads/1", "/v1/uploads/upload_1"] {
        assert_eq!(cancel(client, path).await.status, 404);
        assert_eq!(send(client, path, b"x").await.status, 404);
        assert_eq!(complete(client, path, json!({"part_ids": ["x"]})).await.status, 404);
    }
}

#[actix_web::test]
async fn an_upload_that_is_completed_more_than_once_at_a_time_becomes_one_file() {
    let (_folder, store) = lasting_store().await;
    let server = serve_on(config(), model(), store.clone()).await;
    let mut second = config();
    second.store.node = "b".into();
    let second = serve_on(second, model(), store).await;
    let client = &server.client;
    let text = lines((0..3).map(|number| format!("w{number}")));
    let path = begin(client, &wanted(text.len())).await;
    let body = json!({"part_ids": [add(client, &path, text.as_bytes()).await]});
    // One gateway does it once at a time.
    let id = path.rsplit('/').next().unwrap();
    let begun = server.running.app.upload_joins.begin(id);
    let busy = complete(client, &path, body.clone()).await;
    assert_eq!((busy.status, busy.header("retry-after")), (429, Some("1")), "{}", busy.body);
    drop(begun);
    // Two gateways: whoever comes too late tells what the other made.
    let completed = [client, &second.client].map(|client| complete(client, &path, body.clone()));
    let completed = futures_util::future::join_all(completed).await;
    for reply in &completed {
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(reply.json(), completed[0].json());
    }
    let listed = client.get("/v1/files").await.json();
    assert_eq!(listed["data"], json!([completed[0].json()["file"]]));
}

#[actix_web::test]
async fn what_is_announced_counts_among_what_its_tenant_keeps() {
    let mut config = config();
    config.bulk.tenant_bytes_max = Bytes(1_000);
    config.bulk.file_bytes_max = Bytes(900);
    let server = serve_with(config, model()).await;
    let client = &server.client;
    let larger = client.post("/v1/uploads", &wanted(901)).await;
    assert!(larger.status == 413 && larger.error().contains("bulk.file_bytes_max"), "{}", larger.body);
    let kept = upload(client, &(line("a", json!({"prompt": "Say a"})) + "\n")).await;
    let path = begin(client, &wanted(800)).await;
    let full = client.post("/v1/uploads", &wanted(200)).await;
    assert!(full.status == 413 && full.error().contains("1000 bytes in files"), "{}", full.body);
    let large = line("a", json!({"prompt": "x".repeat(100)})) + "\n";
    let full = send_file(client, &[("purpose", None, "batch"), ("file", Some("in.jsonl"), &large)]).await;
    assert!(full.status == 413 && full.error().contains("1000 bytes in files"), "{}", full.body);
    begin(&other_client(&server).await, &wanted(200)).await;
    assert_eq!(cancel(client, &path).await.status, 200);
    begin(client, &wanted(200)).await;
    assert_eq!(client.get(&format!("/v1/files/{kept}")).await.status, 200);
    for (field, value, param) in [
        ("purpose", json!("assistants"), "purpose"),
        ("filename", json!("in.parquet"), "filename"),
        ("bytes", json!(0), "bytes"),
        ("mime_type", Value::Null, "mime_type"),
    ] {
        let mut body = wanted(10);
        body[field] = value;
        let reply = client.post("/v1/uploads", &body).await;
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{}", reply.body);
    }
}

/// Waits until a server has so many chunks of files.
async fn until_chunks(database: &Database, expected: i64) {
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(2));
    let wait = async {
        while database.count("file_chunks").await != expected {
            looks.tick().await;
        }
    };
    seen_in_time("chunks of files", wait).await;
}

#[actix_web::test]
async fn parts_that_are_still_coming_count_and_one_that_breaks_off_does_not() {
    let (folder, store) = lasting_store().await;
    let server = serve_on(config(), model(), store).await;
    let (client, database) = (&server.client, Database::open(folder.path()).await);
    let path = begin(client, &wanted(300_000)).await;
    // More than a chunk of it has come, not all.
    let form = form_of_bytes(&[("data", Some("blob"), &[b'a'; 250_000])]);
    let request = form_request(client, &format!("{path}/parts"), &form);
    let coming = client.send(&request[..request.len() - 1_000]).await;
    until_chunks(&database, 1).await;
    let beside = send(client, &path, &[b'b'; 150_000]).await;
    assert_eq!((beside.status, beside.header("retry-after")), (429, Some("1")), "{}", beside.body);
    assert!(beside.error().contains("300000 bytes in the parts of the upload"), "{}", beside.body);
    drop(coming);
    until_chunks(&database, 0).await;

    add(client, &path, &[b'b'; 150_000]).await;
    add(client, &path, &[b'c'; 150_000]).await;
    let large = send(client, &path, b"d").await;
    assert!(large.status == 413 && large.error().contains("with this part"), "{}", large.body);
}

#[actix_web::test]
async fn files_that_are_still_coming_count_among_what_their_tenant_keeps() {
    let (folder, store) = lasting_store().await;
    let mut config = config();
    config.bulk.tenant_bytes_max = Bytes(500_000);
    let server = serve_on(config, model(), store).await;
    let (client, database) = (&server.client, Database::open(folder.path()).await);
    let text = |lines: usize| ("x".repeat(999) + "\n").repeat(lines);
    let of = |text: &str| form(&[("purpose", None, "batch"), ("file", Some("in.jsonl"), text)]);
    let request = form_request(client, "/v1/files", &of(&text(400)));
    let coming = client.send(&request[..300_000]).await;
    until_chunks(&database, 1).await;
    let beside = send_form_to(client, "/v1/files", &of(&text(240))).await;
    assert_eq!((beside.status, beside.header("retry-after")), (429, Some("1")), "{}", beside.body);
    assert!(beside.error().contains("500000 bytes in what this tenant keeps"), "{}", beside.body);
    let announced = client.post("/v1/uploads", &wanted(400_000)).await;
    assert_eq!((announced.status, announced.header("retry-after")), (429, Some("1")), "{}", announced.body);
    drop(coming);
    until_chunks(&database, 0).await;
    let large = send_form_to(client, "/v1/files", &of(&text(501))).await;
    assert!(large.status == 413 && large.error().contains("500000 bytes in files"), "{}", large.body);
    let alone = send_form_to(client, "/v1/files", &of(&text(240))).await;
    assert_eq!(alone.status, 200, "{}", alone.body);
    let listed = client.get("/v1/files").await.json();
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1), "{listed}");
}

#[actix_web::test]
async fn what_a_killed_gateway_was_receiving_ends_as_one_of_its_name_begins() {
    let (folder, store) = lasting_store().await;
    let database = Database::open(folder.path()).await;
    let begun = UnixMillis(Clock::start().unix_ms());
    let receive = async |id: &'static str, node: &'static str| {
        let (tenant, name, node) = (DEFAULT_TENANT, "in.jsonl", Some(node));
        let expires = begun.after(Millis(3_600_000));
        let new = NewFile { id, tenant, purpose: "batch", name, is_encoded: false, expires, node };
        store.begin_file(new, begun).await.unwrap();
        store.append_chunk(id, 0, "{}").await.unwrap();
    };
    let mut config = config();
    config.store.node = "a".into();
    receive("file-killed", "a").await;
    receive("file-other", "b").await;
    let server = serve_on(config, model(), store.clone()).await;
    assert_eq!(store.file_chunk("file-killed", 0).await.unwrap(), None);
    assert!(store.file_chunk("file-other", 0).await.unwrap().is_some(), "another gateway receives it");
    // What is still coming as it ends, too.
    let text = "{}\n".repeat(200_000);
    let form = form(&[("purpose", None, "batch"), ("file", Some("in.jsonl"), text.as_str())]);
    let request = form_request(&server.client, "/v1/files", &form);
    let coming = server.client.send(&request[..400_000]).await;
    until_chunks(&database, 2).await;
    server.running.drain(std::future::ready(())).await;
    assert_eq!(database.count("file_chunks").await, 1, "the other's");
    drop(coming);
}
