//! Corpora: what is put in is found, by its tenant alone, also after a restart.

use base::{Bytes, TokenCount};
use gateway::config::Config;
use retrieval::synthetic::Synthetic;
use serde_json::{Value, json};
use store::{Store, UnixMillis};

use crate::common::{Server, config, key_of, lasting_store, model, serve, serve_on, serve_with};

const WORDS: [&str; 10] = ["river", "boat", "water", "fish", "money", "loan", "bank", "tax", "the", "of"];

/// A folder with a made embedding model, and a configuration that names it.
pub(crate) fn retrieving() -> (tempfile::TempDir, Config) {
    retrieving_with(&Synthetic::tiny(&WORDS, 3))
}

fn retrieving_with(embedder: &Synthetic) -> (tempfile::TempDir, Config) {
    let dir = tempfile::tempdir().unwrap();
    embedder.write(dir.path()).unwrap();
    let mut config = config();
    config.retrieval.model = Some(dir.path().to_owned());
    (dir, config)
}

pub(crate) fn documents(texts: &[(&str, &str)]) -> Value {
    let document = |(id, text): &(&str, &str)| json!({"id": id, "text": text});
    Value::Array(texts.iter().map(document).collect())
}

fn two() -> Value {
    documents(&[
        ("sea", "the boat of the river. fish water boat"),
        ("law", "the tax of the bank. money loan tax"),
    ])
}

async fn add(server: &Server, body: Value) -> Value {
    let reply = server.client.post("/v1/corpora", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

/// The documents of what a search finds, in order, and the whole reply.
async fn search(server: &Server, query: &str, k: u64) -> (Vec<String>, Value) {
    let reply = server.client.post("/v1/corpora/c/search", &json!({"query": query, "k": k})).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let reply = reply.json();
    let hits = reply["data"].as_array().unwrap();
    (hits.iter().map(|hit| hit["document"].as_str().unwrap().to_owned()).collect(), reply)
}

#[actix_web::test]
async fn what_is_put_in_is_found_also_by_the_next_server() {
    let (_folder, config) = retrieving();
    let (_dir, store) = lasting_store().await;
    let server = serve_on(config.clone(), model(), store.clone()).await;
    let made = add(&server, json!({"name": "c", "documents": two(), "fragment_tokens": 6})).await;
    assert_eq!((&made["documents"], &made["fragments"], &made["dims"]), (&json!(2), &json!(4), &json!(32)));
    assert_eq!(made["written"]["documents"], 2);
    // Each fragment has two special tokens around it.
    assert_eq!(made["written"]["tokens"], made["tokens"].as_u64().unwrap() + 2 * 4);
    let (found, first) = search(&server, "boat of fish", 4).await;
    assert_eq!(found[0], "sea");
    let hit = &first["data"][0];
    assert!(["the boat of the river.", "fish water boat"].contains(&hit["text"].as_str().unwrap()), "{hit}");
    assert!(hit["score"].as_f64().unwrap() > first["data"][3]["score"].as_f64().unwrap());
    assert_eq!(search(&server, "loan of the bank", 1).await.0, ["law"]);
    let texts = gateway::services::corpora::retrieve(
        &server.running.app,
        store::DEFAULT_TENANT,
        "c",
        "boat of fish",
        4,
    )
    .await;
    let wanted: Vec<_> =
        first["data"].as_array().unwrap().iter().map(|hit| hit["text"].as_str().unwrap()).collect();
    assert_eq!(texts.unwrap().iter().map(|text| &**text).collect::<Vec<_>>(), wanted);

    server.running.drain(std::future::ready(())).await;
    let server = serve_on(config, model(), store).await;
    let (_, again) = search(&server, "boat of fish", 4).await;
    assert_eq!(again, first);
    assert_eq!(server.client.get("/v1/corpora").await.json()["data"][0]["fragments"], 4);
}

#[actix_web::test]
async fn a_document_is_replaced_left_as_it_is_or_deleted_with_its_corpus() {
    let (_folder, config) = retrieving();
    let server = serve_with(config, model()).await;
    add(&server, json!({"name": "c", "documents": two()})).await;
    assert_eq!(search(&server, "fish", 1).await.0, ["sea"]);
    // The index is in memory now, and has to follow.
    let changed = documents(&[
        ("sea", "tax tax tax"),
        ("law", "the tax of the bank. money loan tax"),
        ("new", "fish boat"),
    ]);
    let reply = add(&server, json!({"name": "c", "documents": changed})).await;
    assert_eq!((&reply["written"]["documents"], &reply["written"]["unchanged"]), (&json!(2), &json!(1)));
    assert_eq!(reply["documents"], 3);
    assert_eq!(search(&server, "fish", 3).await.0[0], "new");
    assert_eq!(search(&server, "tax tax", 3).await.0[0], "sea");

    let reply = server.client.delete("/v1/corpora/c").await;
    assert_eq!(reply.json(), json!({"name": "c", "object": "corpus.deleted", "deleted": true}));
    for reply in [
        server.client.delete("/v1/corpora/c").await,
        server.client.get("/v1/corpora/c").await,
        server.client.post("/v1/corpora/c/search", &json!({"query": "fish"})).await,
    ] {
        assert_eq!(reply.status, 404);
        assert!(reply.error().contains("`c`"));
    }
    add(&server, json!({"name": "c", "documents": documents(&[("only", "money")])})).await;
    assert_eq!(search(&server, "fish", 5).await.0, ["only"]);
}

#[actix_web::test]
async fn tenants_share_no_corpus() {
    let (_folder, config) = retrieving();
    let store = Store::open("sqlite::memory:").await.unwrap();
    let other = store.create_tenant("other", 1.0, UnixMillis(1)).await.unwrap().id;
    let server = serve_on(config, model(), store.clone()).await;
    let theirs = server.client.with_key(&key_of(&store, other).await);
    add(&server, json!({"name": "c", "documents": two()})).await;
    let question = json!({"query": "fish"});
    assert_eq!(theirs.post("/v1/corpora/c/search", &question).await.status, 404);
    assert_eq!(theirs.get("/v1/corpora/c").await.status, 404);
    assert_eq!(theirs.delete("/v1/corpora/c").await.status, 404);
    assert_eq!(theirs.get("/v1/corpora").await.json()["data"], json!([]));
    let own = json!({"name": "c", "documents": documents(&[("mine", "tax")])});
    assert_eq!(theirs.post("/v1/corpora", &own).await.json()["documents"], 1);
    assert_eq!(theirs.post("/v1/corpora/c/search", &question).await.json()["data"][0]["document"], "mine");
    assert_eq!(search(&server, "fish", 1).await.0, ["sea"]);
    let mut nobody = server.client.clone();
    nobody.key = None;
    assert_eq!(nobody.post("/v1/corpora/c/search", &question).await.status, 401);
}

#[actix_web::test]
async fn without_an_embedding_model_the_setting_is_named() {
    let server = serve().await;
    for (path, body) in [
        ("/v1/corpora", json!({"name": "c", "documents": two()})),
        ("/v1/corpora/c/search", json!({"query": "fish"})),
    ] {
        let reply = server.client.post(path, &body).await;
        assert_eq!(reply.status, 501);
        assert!(reply.error().contains("retrieval.model"));
        assert_eq!(reply.json()["error"]["code"], "not_configured");
    }
    assert_eq!(server.client.get("/v1/corpora").await.json()["data"], json!([]));
}

#[actix_web::test]
async fn what_a_tenant_has_in_all_its_corpora_is_bounded_in_bytes() {
    let (_folder, mut config) = retrieving();
    // A document of nine bytes and a vector of 32 numbers are 137 bytes.
    config.retrieval.tenant_bytes_max = Bytes(300);
    let server = serve_with(config, model()).await;
    let addition = |corpus: &str, ids: &[&str]| {
        let texts: Vec<_> = ids.iter().map(|id| (*id, "fish boat")).collect();
        json!({"name": corpus, "documents": documents(&texts)})
    };
    add(&server, addition("c", &["x"])).await;
    add(&server, addition("d", &["x"])).await;
    let refused = async |body: Value| {
        let reply = server.client.post("/v1/corpora", &body).await;
        assert_eq!(reply.status, 413, "{}", reply.body);
        for part in ["`documents`", "300 bytes (retrieval.tenant_bytes_max)"] {
            assert!(reply.error().contains(part), "{}", reply.body);
        }
    };
    refused(addition("c", &["y"])).await;
    assert_eq!(server.client.get("/v1/corpora/c").await.json()["documents"], 1);
    let embedded = server.metric("relserve_embedded_texts_total");
    refused(addition("e", &["x", "y"])).await;
    assert_eq!(server.metric("relserve_embedded_texts_total"), embedded, "nothing is embedded in vain");
    assert_eq!(server.client.delete("/v1/corpora/d").await.status, 200);
    assert_eq!(add(&server, addition("c", &["y"])).await["documents"], 2);
}

#[actix_web::test]
async fn a_limit_that_is_passed_is_named_with_the_field() {
    let (_folder, mut config) = retrieving();
    config.retrieval.corpora_max = 1;
    config.retrieval.documents_max = 3;
    config.retrieval.fragments_max = 5;
    config.retrieval.bytes_max = Bytes(400);
    config.retrieval.document_bytes_max = Bytes(300);
    config.retrieval.query_bytes_max = Bytes(10);
    config.retrieval.results_max = 4;
    let server = serve_with(config, model()).await;
    add(&server, json!({"name": "c", "documents": two()})).await;
    let one = documents(&[("x", "tax")]);
    let long = "fish ".repeat(50);
    let cases = [
        (json!({"name": "d", "documents": one}), "name", "corpora_max"),
        (json!({"name": "a/b", "documents": one}), "name", "letters"),
        (
            json!({"name": "c", "documents": documents(&[("x", "a"), ("y", "b")])}),
            "documents",
            "documents_max",
        ),
        (
            json!({"name": "c", "documents": documents(&[("sea", "a"), ("law", "b"), ("y", "b"), ("z", "b")])}),
            "documents",
            "documents_max",
        ),
        (json!({"name": "c", "documents": documents(&[("x", &long)])}), "documents", "fragments_max"),
        (
            json!({"name": "c", "documents": documents(&[("x", &"a".repeat(301))])}),
            "documents[0].text",
            "document_bytes_max",
        ),
        (
            json!({"name": "c", "documents": documents(&[("x", &long), ("y", &long)])}),
            "documents",
            "bytes_max",
        ),
        (json!({"name": "c", "documents": documents(&[("x", "a"), ("x", "b")])}), "documents", "twice"),
        (json!({"name": "c", "documents": documents(&[("x", " \n")])}), "documents[0].text", "empty"),
        (json!({"name": "c", "documents": documents(&[("", "a")])}), "documents[0].id", "1 to"),
        (json!({"name": "c", "documents": one, "fragment_tokens": 9}), "fragment_tokens", "62"),
        (json!({"name": "c", "documents": one, "overlap": 9}), "overlap", "was made with 0"),
        (json!({"name": "c", "documents": one, "extra": 1}), "extra", "not a field"),
        (json!({"name": "c"}), "documents", "required"),
    ];
    // With six tokens to a fragment the long text has more than five.
    server.client.delete("/v1/corpora/c").await;
    add(&server, json!({"name": "c", "documents": two(), "fragment_tokens": 12})).await;
    for (body, field, part) in cases {
        let part = if part == "62" { "12" } else { part };
        let reply = server.client.post("/v1/corpora", &body).await;
        let message = reply.error();
        assert_eq!((reply.status, reply.json()["error"]["param"].as_str()), (400, Some(field)), "{message}");
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
    let after = server.client.get("/v1/corpora/c").await.json();
    assert_eq!(after["documents"], 2, "nothing of a refused request is kept");
    for (body, field) in [
        (json!({"query": "fish", "k": 5}), "k"),
        (json!({"query": "fish", "k": 0}), "k"),
        (json!({"query": "fish fish fish"}), "query"),
        (json!({"query": " "}), "query"),
    ] {
        let reply = server.client.post("/v1/corpora/c/search", &body).await;
        assert_eq!((reply.status, reply.json()["error"]["param"].as_str()), (400, Some(field)));
    }
    for body in [json!({"fragment_tokens": 63}), json!({"fragment_tokens": 8, "overlap": 5})] {
        server.client.delete("/v1/corpora/c").await;
        let mut body = body;
        body["name"] = json!("c");
        body["documents"] = one.clone();
        assert_eq!(server.client.post("/v1/corpora", &body).await.status, 400);
        assert_eq!(server.client.get("/v1/corpora/c").await.status, 404, "no corpus is left behind");
    }
}

#[actix_web::test]
async fn vectors_of_another_model_are_not_compared() {
    let (_dir, store) = lasting_store().await;
    let (_folder, config) = retrieving();
    let server = serve_on(config, model(), store.clone()).await;
    add(&server, json!({"name": "c", "documents": two()})).await;
    server.running.drain(std::future::ready(())).await;
    let (_other, config) = retrieving_with(&Synthetic::tiny(&WORDS, 4));
    let server = serve_on(config, model(), store).await;
    let replies = [
        server.client.post("/v1/corpora/c/search", &json!({"query": "fish"})).await,
        server.client.post("/v1/corpora", &json!({"name": "c", "documents": two()})).await,
    ];
    for reply in replies {
        assert_eq!(reply.status, 400);
        assert!(reply.error().contains("another embedding model"));
    }
    assert_eq!(server.client.delete("/v1/corpora/c").await.status, 200);
}

#[actix_web::test]
async fn a_damaged_embedding_model_stops_the_start_and_its_file_is_named() {
    let (folder, config) = retrieving();
    std::fs::write(folder.path().join("config.json"), "{}").unwrap();
    let error =
        gateway::services::corpora::loaded::Corpora::open(&config.retrieval).err().unwrap().to_string();
    assert!(error.contains("config.json") && error.contains("model_type"), "{error}");
}

#[actix_web::test]
async fn a_client_that_leaves_ends_the_embedding_and_leaves_whole_documents() {
    let (_folder, mut config) = retrieving();
    config.retrieval.tasks_max = 1;
    let (dir, store) = lasting_store().await;
    let server = serve_on(config, model(), store).await;
    let small = json!({"name": "c", "documents": documents(&[("small", "fish")]), "fragment_tokens": 12});
    add(&server, small).await;
    // Somebody else writes: the first group of fragments is embedded and waits to be kept.
    let url = format!("sqlite://{}", dir.path().join("test.db").display());
    let other = sqlx::AnyPool::connect(&url).await.unwrap();
    let writing = other.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let text = "the boat of the river. ".repeat(350);
    let three: Vec<(&str, &str)> = ["a", "b", "c"].map(|id| (id, text.as_str())).into();
    let connection =
        server.client.begin("/v1/corpora", &json!({"name": "c", "documents": documents(&three)})).await;
    let embedded = |server: &Server| server.metric("relserve_embedded_texts_total");
    server.until("a group is embedded", |server| embedded(server) > 1.0).await;
    let after_first = embedded(&server);
    drop(connection);
    server.until("it is noticed", |server| server.metric("relserve_disconnects_total") == 1.0).await;
    writing.rollback().await.unwrap();

    let (found, _) = search(&server, "fish", 1).await;
    assert_eq!(found, ["small"]);
    assert_eq!(embedded(&server), after_first + 1.0, "only the question");
    let left = server.client.get("/v1/corpora/c").await.json();
    let (documents, fragments) = (left["documents"].as_u64().unwrap(), left["fragments"].as_f64().unwrap());
    assert!((documents, fragments) == (1, 1.0) || (documents, fragments) == (2, after_first), "{left}");
}

#[actix_web::test]
async fn a_large_corpus_is_searched_while_its_graph_is_made_and_answers_alike_after() {
    let (_folder, config) = retrieving();
    let server = serve_with(config, model()).await;
    // Each pair of numbers is spelt otherwise.
    let text: String = (0..2_200).map(|i| format!("{} {}. ", i * 7_919 % 10_007, i)).collect();
    let body = json!({"name": "c", "documents": documents(&[("numbers", &text), ("words", "boat fish")]), "fragment_tokens": 12});
    let made = add(&server, body).await;
    assert!(made["fragments"].as_u64().unwrap() > 2_048, "{made}");
    let (_, before) = search(&server, "boat fish", 3).await;
    assert_eq!(before["data"][0]["document"], "words");
    server.until("a graph is made", |server| server.metric("relserve_retrieval_graphs_total") == 1.0).await;
    let (_, after) = search(&server, "boat fish", 3).await;
    assert_eq!(after["data"][0], before["data"][0]);
    let reply =
        add(&server, json!({"name": "c", "documents": documents(&[("later", "tax of the tax")])})).await;
    assert_eq!(reply["written"]["fragments"], 1);
    assert_eq!(search(&server, "tax of the tax", 1).await.0, ["later"]);
}

#[actix_web::test]
async fn embedded_tokens_are_the_tenants_usage() {
    let (_folder, config) = retrieving();
    let (_dir, store) = lasting_store().await;
    let server = serve_on(config, model(), store.clone()).await;
    let made = add(&server, json!({"name": "c", "documents": two()})).await;
    let (_, reply) = search(&server, "fish", 1).await;
    let tokens = made["written"]["tokens"].as_u64().unwrap() + reply["query_tokens"].as_u64().unwrap();
    server.running.drain(std::future::ready(())).await;
    let rows = store.usage(Some(store::DEFAULT_TENANT), 0..=u64::MAX).await.unwrap();
    let row = rows.iter().find(|row| row.key.route == "corpora").unwrap();
    assert_eq!(
        (row.used.requests, row.used.prompt, row.used.computed),
        (2, TokenCount(tokens), TokenCount(tokens))
    );
}

#[actix_web::test]
async fn the_openapi_document_has_the_routes() {
    let server = serve().await;
    let paths = server.client.get("/openapi.json").await.json()["paths"].clone();
    for (path, methods) in [
        ("/v1/corpora", &["get", "post"][..]),
        ("/v1/corpora/{name}", &["get", "delete"]),
        ("/v1/corpora/{name}/search", &["post"]),
    ] {
        for method in methods {
            assert!(paths[path][method].is_object(), "{method} {path}");
        }
    }
    let wrong = server.client.delete("/v1/corpora").await;
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("get, post")));
}
