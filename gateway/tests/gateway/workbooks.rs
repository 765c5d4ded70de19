//! Workbooks on the server: saves that stand on a version, the quota, links for readers, a second server.

use base::Bytes;
use serde_json::{Value, json};
use store::Store;

use crate::common::client::{Client, Reply};
use crate::common::{config, key_of, lasting_store, model, serve, serve_on, serve_with};

async fn save(client: &Client, id: &str, content: &Value, base: u64) -> Reply {
    let body = json!({"name": "Sales", "content": content, "base": base});
    client.post(&format!("/v1/workbooks/{id}"), &body).await
}

#[actix_web::test]
async fn a_workbook_is_saved_read_and_seen_by_a_second_server() {
    let (_dir, store) = lasting_store().await;
    let server = serve_on(config(), model(), store.clone()).await;
    let content = json!({"sheets": [{"rows": [["a", "=1+1"], ["\u{e9}\u{1f600}", ""]]}]});
    let reply = save(&server.client, "w-1", &content, 0).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let saved = reply.json();
    assert_eq!(
        (&saved["id"], &saved["version"], &saved["name"]),
        (&json!("w-1"), &json!(1), &json!("Sales"))
    );

    let second = serve_on(config(), model(), store).await;
    let there = second.client.with_key(server.client.key.as_deref().unwrap());
    let list = there.get("/v1/workbooks").await.json();
    assert_eq!(list["data"], json!([saved]));
    assert_eq!((&list["bytes"], &list["bytes_max"]), (&saved["bytes"], &json!(256 << 20)));
    let read = there.get("/v1/workbooks/w-1").await;
    assert_eq!(read.header("cache-control"), Some("no-store"));
    assert_eq!((&read.json()["content"], &read.json()["version"]), (&content, &json!(1)));
    assert_eq!(save(&there, "w-1", &json!({"sheets": []}), 1).await.json()["version"], 2);

    let stale = save(&server.client, "w-1", &json!({"lost": 1}), 1).await;
    assert_eq!((stale.status, &stale.json()["error"]["code"]), (409, &json!("stale_version")));
    assert!(
        stale.error().contains("is at version 2") && stale.error().contains("stands on 1"),
        "{}",
        stale.body
    );
    let now = server.client.get("/v1/workbooks/w-1").await.json();
    assert_eq!(now["content"], json!({"sheets": []}), "nothing is written over");
    let deleted = there.delete("/v1/workbooks/w-1").await.json();
    assert_eq!(deleted, json!({"id": "w-1", "object": "workbook.deleted", "deleted": true}));
    for reply in [
        save(&server.client, "w-1", &content, 2).await,
        server.client.get("/v1/workbooks/w-1").await,
        server.client.get("/v1/workbooks/w-1/versions").await,
        server.client.delete("/v1/workbooks/w-1").await,
        server.client.get("/v1/workbooks/w-1/shares").await,
        server.client.post("/v1/workbooks/w-1/shares", &json!({})).await,
    ] {
        assert_eq!(reply.status, 404, "{}", reply.body);
        assert!(reply.error().contains("`w-1`"), "{}", reply.body);
    }
}

#[actix_web::test]
async fn versions_can_be_read_again() {
    let mut config = config();
    config.workbooks.version_ms = base::Millis(0);
    config.workbooks.versions_max = 2;
    let server = serve_with(config, model()).await;
    for version in 1..=3 {
        save(&server.client, "w", &json!({"v": version}), version - 1).await;
    }
    let list = server.client.get("/v1/workbooks/w/versions").await.json();
    let numbers: Vec<_> = list["data"].as_array().unwrap().iter().map(|one| one["version"].clone()).collect();
    assert_eq!(numbers, [3, 2]);
    assert_eq!(server.client.get("/v1/workbooks/w?version=2").await.json()["content"], json!({"v": 2}));
    let gone = server.client.get("/v1/workbooks/w?version=1").await;
    assert_eq!(gone.status, 404);
    assert!(gone.error().contains("version 1"), "{}", gone.body);
    assert_eq!(server.client.get("/v1/workbooks/w?version=x").await.status, 400);
}

#[actix_web::test]
async fn a_version_that_is_closed_is_not_written_over_by_the_next_save() {
    let server = serve().await;
    let save = |text: &'static str, base: u64, closes: bool| {
        let body = json!({"name": "W", "content": {"v": text}, "base": base, "close_version": closes});
        let client = server.client.clone();
        async move { assert_eq!(client.post("/v1/workbooks/w", &body).await.status, 200) }
    };
    save("typed", 0, false).await;
    save("typed on", 1, true).await;
    save("gone back", 2, false).await;
    let list = server.client.get("/v1/workbooks/w/versions").await.json();
    let numbers: Vec<_> = list["data"].as_array().unwrap().iter().map(|one| one["version"].clone()).collect();
    assert_eq!(numbers, [3, 2], "the saves of five minutes are one version but for what was closed");
    assert_eq!(
        server.client.get("/v1/workbooks/w?version=2").await.json()["content"],
        json!({"v": "typed on"})
    );
}

#[actix_web::test]
async fn a_full_quota_is_named_and_loses_nothing() {
    let mut config = config();
    config.workbooks.tenant_bytes_max = Bytes(100);
    config.workbooks.tenant_workbooks_max = 1;
    let server = serve_with(config, model()).await;
    assert_eq!(save(&server.client, "w", &json!({"v": 1}), 0).await.status, 200);
    let full = save(&server.client, "w", &json!({"v": "x".repeat(100)}), 1).await;
    assert_eq!((full.status, &full.json()["error"]["code"]), (413, &json!("too_large")));
    assert!(full.error().contains("100 bytes (workbooks.tenant_bytes_max)"), "{}", full.body);
    assert_eq!(server.client.get("/v1/workbooks/w").await.json()["content"], json!({"v": 1}));
    let more = save(&server.client, "other", &json!({}), 0).await;
    assert_eq!(more.status, 413);
    assert!(more.error().contains("1 (workbooks.tenant_workbooks_max)"), "{}", more.body);
}

#[actix_web::test]
async fn a_tenant_neither_sees_nor_changes_anothers_workbooks() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let other = store.create_tenant("other", 1.0, store::UnixMillis(1)).await.unwrap().id;
    let key = key_of(&store, other).await;
    let server = serve_on(config(), model(), store).await;
    let theirs = server.client.with_key(&key);
    save(&server.client, "w", &json!({"secret": 1}), 0).await;
    assert_eq!(theirs.get("/v1/workbooks").await.json()["data"], json!([]));
    for path in ["/v1/workbooks/w", "/v1/workbooks/w/versions", "/v1/workbooks/w/shares"] {
        assert_eq!(theirs.get(path).await.status, 404, "{path}");
    }
    assert_eq!(theirs.delete("/v1/workbooks/w").await.status, 404);
    assert_eq!(save(&theirs, "w", &json!({"theirs": 1}), 0).await.status, 200, "the name is free to each");
    assert_eq!(server.client.get("/v1/workbooks/w").await.json()["content"], json!({"secret": 1}));
    let mut nobody = server.client.clone();
    nobody.key = None;
    assert_eq!(nobody.get("/v1/workbooks").await.status, 401);
    assert_eq!(save(&nobody, "w", &json!({}), 1).await.status, 401);
}

#[actix_web::test]
async fn a_link_shows_a_workbook_and_nothing_else() {
    let server = serve().await;
    save(&server.client, "w", &json!({"v": 1}), 0).await;
    let made = server.client.post("/v1/workbooks/w/shares", &json!({"days": 2})).await;
    assert_eq!((made.status, made.header("cache-control")), (200, Some("no-store")));
    let made = made.json();
    let token = made["token"].as_str().unwrap();
    assert_eq!(made["path"], json!(format!("/#shared={token}")));
    assert_eq!(made["expires"].as_u64().unwrap() - made["created"].as_u64().unwrap(), 2 * 86_400);
    save(&server.client, "w", &json!({"v": 2}), 1).await;

    let reader = server.client.with_key(token);
    let shown = reader.get("/v1/shared").await.json();
    assert_eq!((&shown["content"], &shown["name"]), (&json!({"v": 2}), &json!("Sales")), "the newest");
    for reply in [
        reader.get("/v1/workbooks").await,
        save(&reader, "w", &json!({}), 2).await,
        reader.get("/v1/usage").await,
        reader.delete("/v1/workbooks/w").await,
    ] {
        assert_eq!(reply.status, 401, "{}", reply.body);
    }
    let list = server.client.get("/v1/workbooks/w/shares").await.json();
    assert_eq!(list["data"][0]["id"], made["id"]);
    assert!(
        list["data"][0].get("token").is_none() && list["data"][0].get("path").is_none(),
        "told once: {list}"
    );
    let path = format!("/v1/workbooks/w/shares/{}", made["id"]);
    assert_eq!(server.client.delete(&path).await.status, 200);
    assert_eq!(server.client.delete(&path).await.status, 404);
    assert!(server.client.delete("/v1/workbooks/w/shares/x").await.error().contains("link x"));
    let ended = reader.get("/v1/shared").await;
    assert_eq!((ended.status, &ended.json()["error"]["code"]), (401, &json!("invalid_link")));
    let long = server.client.post("/v1/workbooks/w/shares", &json!({"days": 999})).await;
    assert_eq!(long.status, 400);
    assert!(long.error().contains("365 (workbooks.share_ms_max)"), "{}", long.body);
}

#[actix_web::test]
async fn what_is_no_workbook_is_refused_by_its_field() {
    let server = serve().await;
    let bad =
        server.client.post("/v1/workbooks/a%20b", &json!({"name": "n", "content": {}, "base": 0})).await;
    assert_eq!((bad.status, &bad.json()["error"]["param"]), (400, &json!("id")));
    let bad = server.client.post("/v1/workbooks/w", &json!({"name": "n", "content": "x", "base": 0})).await;
    assert_eq!((bad.status, &bad.json()["error"]["param"]), (400, &json!("content")));
    let wrong = server.client.post("/v1/workbooks", &json!({})).await;
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("get")));
    let wrong =
        server.client.raw(&server.client.request("PUT", "/v1/workbooks/w", "application/json", b"{}")).await;
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("get, post, delete")));
}

#[actix_web::test]
async fn what_was_saved_meanwhile_is_not_deleted() {
    let server = serve().await;
    save(&server.client, "w", &json!({"v": 1}), 0).await;
    save(&server.client, "w", &json!({"v": 2}), 1).await;
    let stale = server.client.delete("/v1/workbooks/w?version=1").await;
    assert_eq!((stale.status, &stale.json()["error"]["code"]), (409, &json!("stale_version")));
    assert!(stale.error().contains("is at version 2"), "{}", stale.body);
    assert_eq!(server.client.get("/v1/workbooks/w").await.json()["content"], json!({"v": 2}));
    assert_eq!(server.client.delete("/v1/workbooks/w?version=2").await.status, 200);
    assert_eq!(server.client.delete("/v1/workbooks/w?version=2").await.status, 404);
}

#[actix_web::test]
async fn what_can_be_no_identity_is_named() {
    let server = serve().await;
    let client = &server.client;
    let replies = [
        client.get("/v1/workbooks/%01").await,
        client.post("/v1/workbooks/a%01", &json!({"name": "n", "content": {}, "base": 0})).await,
        client.delete("/v1/workbooks/a%20b").await,
        client.get("/v1/workbooks/%01/versions").await,
        client.get("/v1/workbooks/%01/shares").await,
        client.post("/v1/workbooks/%01/shares", &json!({})).await,
        client.delete("/v1/workbooks/%01/shares/1").await,
    ];
    for reply in replies {
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("id")), "{}", reply.body);
    }
}
