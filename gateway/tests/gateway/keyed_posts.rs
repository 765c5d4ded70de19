//! `Idempotency-Key` on every POST that the OpenAPI document has: the same request gets the first one's reply, another
//! request is refused; and the routes that take no keys, each by its name.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use store::{DEFAULT_TENANT, KeyScope, NewKey, UnixMillis};

use crate::common::batch::{lines, make, upload};
use crate::common::checkpoint::serve_checkpoint;
use crate::common::client::{Client, Reply};
use crate::common::replica::{FakeReplica, fleet};
use crate::common::words::until_up;
use crate::common::{Server, lasting_store, serve, serve_fleet};
use crate::embeddings::embedding;
use crate::idempotency::post;
use crate::pml::{llama, register, roomy};
use crate::spent_budgets::{SCHEMA, billed};

/// Routes that take no keys: `WITHOUT_KEYS` of the gateway's `kept_replies`, path by path. Their answers hold secrets, or
/// their bodies are files.
const WITHOUT_KEYS: [&str; 10] = [
    "/v1/files",
    "/v1/keys",
    "/v1/keys/{id}/rotate",
    "/v1/sign-in",
    "/v1/sign-in/links",
    "/v1/uploads",
    "/v1/uploads/{id}/cancel",
    "/v1/uploads/{id}/complete",
    "/v1/uploads/{id}/parts",
    "/v1/workbooks/{id}/shares",
];
/// Its keys are those of its batches alone, and it answers with the batch as it stands.
const BATCHES: &str = "/v1/batches";

/// The paths of the document that take a POST.
async fn posts(client: &Client) -> Vec<String> {
    let document = client.get("/openapi.json").await.json();
    let paths = document["paths"].as_object().unwrap().iter();
    paths.filter(|(_, methods)| !methods["post"].is_null()).map(|(path, _)| path.clone()).collect()
}

/// Whether a reply says that another request has the key, by the header's name.
fn is_reused(reply: &Reply) -> bool {
    reply.status == 422 && reply.body.contains("`Idempotency-Key` was used with another request")
}

#[actix_web::test]
async fn a_key_that_is_used_is_refused_on_every_post_but_those_that_take_none() {
    let server = serve().await;
    let first = post(&server.client, "/tokenize", "k", &json!({"prompt": "Say yes"})).await;
    assert_eq!(first.status, 200, "{}", first.body);
    let mut others = BTreeSet::new();
    for path in posts(&server.client).await {
        let address = path.replace(['{', '}'], "");
        let reply = post(&server.client, &address, "k", &json!({})).await;
        if !is_reused(&reply) {
            others.insert(path);
        }
    }
    let expected: BTreeSet<String> = WITHOUT_KEYS.into_iter().chain([BATCHES]).map(str::to_owned).collect();
    assert_eq!(others, expected);
}

/// What requests name that was made before.
struct Made {
    file: String,
    batch: String,
    response: String,
    /// The address of a server that is added as a replica.
    replica: String,
}

impl Made {
    async fn at(server: &Server, replica: &FakeReplica) -> Self {
        let client = &server.client;
        register(client, SCHEMA).await;
        let corpus = json!({"name": "c", "documents": [{"id": "old", "text": "fish"}]});
        assert_eq!(client.post("/v1/corpora", &corpus).await.status, 200);
        let file = upload(client, &lines(["a".to_owned(), "b".to_owned()])).await;
        let batch = make(client, &file).await["id"].as_str().unwrap().to_owned();
        let asked = json!({"input": "And Oslo?", "background": true, "max_output_tokens": 4});
        let response = client.post("/v1/responses", &asked).await;
        assert_eq!(response.status, 200, "{}", response.body);
        let response = response.json()["id"].as_str().unwrap().to_owned();
        Self { file, batch, response, replica: format!("http://{}", replica.address) }
    }
}

/// A request that a route answers with success: its address and its body. None of a route that nobody has listed.
fn request(path: &str, made: &Made) -> Option<(String, Value)> {
    let (named, body) = match path {
        "/tokenize" => ("", json!({"prompt": "Say a"})),
        "/detokenize" => ("", json!({"tokens": [65, 66]})),
        BATCHES => (
            "",
            json!({"input_file_id": made.file, "endpoint": "/v1/completions", "completion_window": "24h"}),
        ),
        "/v1/batches/{id}/cancel" => (made.batch.as_str(), json!({})),
        "/v1/cells/prompts" => ("", billed("/v1/cells")?),
        "/v1/messages/count_tokens" => ("", billed("/v1/messages")?),
        "/v1/replicas" => ("", json!({"name": "b", "url": made.replica, "dialect": "vllm"})),
        "/v1/replicas/{name}/drain" | "/v1/replicas/{name}/resume" => ("0", json!({})),
        "/v1/responses/input_tokens" => ("", billed("/v1/responses")?),
        "/v1/responses/{id}/cancel" => (made.response.as_str(), json!({})),
        "/v1/scheduler/what-if" => ("", json!({"policy": "fcfs"})),
        "/v1/tenants" => ("", json!({"name": "third"})),
        "/v1/tenants/{name}" => ("default", json!({"weight": 2})),
        "/v1/workbooks/{id}" => ("w", json!({"name": "Sales", "content": {"sheets": []}, "base": 0})),
        _ => ("c", billed(path)?),
    };
    Some((path.replace("{id}", named).replace("{name}", named), body))
}

/// A client with a key of the default tenant that is an operator's: `auth.admin_key` is no tenant's and has no keys.
async fn operator_of(server: &Server) -> Client {
    let new = NewKey {
        tenant: DEFAULT_TENANT,
        name: "operator",
        expires: None,
        is_operator: true,
        scope: KeyScope::ALL,
    };
    let key = server.running.app.runtime.store.create_key(new, UnixMillis(1)).await.unwrap();
    server.client.with_key(&key.plaintext)
}

#[actix_web::test]
async fn every_post_that_takes_keys_is_answered_once_and_refused_with_another_body() {
    let (_folder, embedding) = embedding();
    let mut config = roomy();
    config.retrieval = embedding.retrieval;
    let (_dir, store) = lasting_store().await;
    let server = serve_checkpoint(config, &llama(), store).await;
    let (one, other) = (FakeReplica::start().await, FakeReplica::start().await);
    let front = serve_fleet(fleet(vec![one.executor()])).await;
    until_up(&front, 1).await;
    let made = Made::at(&server, &other).await;
    let (operator, operator_of_front) = (operator_of(&server).await, operator_of(&front).await);
    let mut answered = 0;
    for path in posts(&server.client).await {
        let Some((address, body)) = request(&path, &made) else {
            assert!(WITHOUT_KEYS.contains(&path.as_str()), "{path} has neither a request here nor a reason");
            continue;
        };
        assert!(!WITHOUT_KEYS.contains(&path.as_str()), "{path} is in both lists");
        // Replicas are a fleet's; and of a server that has run nothing there is nothing to replay.
        let is_fronts = path.starts_with("/v1/replicas") || path == "/v1/scheduler/what-if";
        let client = if is_fronts { &operator_of_front } else { &operator };
        let first = post(client, &address, &path, &body).await;
        let told = (first.status, first.header("idempotency-replayed"));
        assert_eq!(told, (200, None), "{path}: {}", first.body);
        let again = post(client, &address, &path, &body).await;
        assert_eq!(again.status, 200, "{path}: {}", again.body);
        if path == BATCHES {
            assert_eq!(again.json()["id"], first.json()["id"], "as it stands by then");
        } else {
            assert_eq!(again.body, first.body, "{path}");
            assert_eq!(again.header("idempotency-replayed"), Some("true"), "{path}");
            assert_eq!(again.header("content-type"), first.header("content-type"), "{path}");
        }
        let mut another = body;
        another["metadata"] = json!({"of": "another"});
        let refused = post(client, &address, &path, &another).await;
        assert!(is_reused(&refused), "{path}: {} {}", refused.status, refused.body);
        answered += 1;
    }
    assert_eq!(answered, 35);
}
