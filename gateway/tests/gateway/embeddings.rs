//! Vectors of texts in OpenAI's shape, scores and rankings in vLLM's, by the embedding model of corpora.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway::config::{Config, UnknownFields};
use retrieval::Embedder;
use retrieval::synthetic::Synthetic;
use serde_json::{Value, json};
use serving::model::Model;

use crate::common::{Server, config, model, serve, serve_with};

const WORDS: [&str; 8] = ["river", "boat", "water", "fish", "money", "loan", "bank", "tax"];

/// A folder with a made embedding model, and a configuration that names it.
pub fn embedding() -> (tempfile::TempDir, Config) {
    let dir = tempfile::tempdir().unwrap();
    Synthetic::tiny(&WORDS, 3).write(dir.path()).unwrap();
    let mut config = config();
    config.retrieval.model = Some(dir.path().to_owned());
    config.retrieval.name = Some("tiny".into());
    (dir, config)
}

async fn post(server: &Server, path: &str, body: Value) -> Value {
    let reply = server.client.post(path, &body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

fn numbers(embedding: &Value) -> Vec<f32> {
    embedding["embedding"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
}

#[actix_web::test]
async fn texts_have_the_vectors_that_the_model_gives_them() {
    let (folder, config) = embedding();
    let server = serve_with(config, model()).await;
    let texts = ["fish in the river", "a loan of the bank"];
    let expected = Embedder::load(folder.path(), 1).unwrap().embed(&texts, &|| false).unwrap();
    let reply = post(&server, "/v1/embeddings", json!({"model": "tiny", "input": texts})).await;
    assert_eq!((&reply["object"], &reply["model"]), (&json!("list"), &json!("tiny")));
    let tokens: usize = expected.iter().map(|vector| vector.tokens).sum();
    assert_eq!(reply["usage"], json!({"prompt_tokens": tokens, "total_tokens": tokens}));
    for (place, vector) in expected.iter().enumerate() {
        assert_eq!(reply["data"][place]["index"], place);
        assert_eq!(numbers(&reply["data"][place]), vector.vector, "text {place}");
    }
    let encoded = post(
        &server,
        "/v1/embeddings",
        json!({"model": "tiny", "input": texts[1], "encoding_format": "base64"}),
    );
    let bytes = STANDARD.decode(encoded.await["data"][0]["embedding"].as_str().unwrap()).unwrap();
    let decoded: Vec<f32> =
        bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
    assert_eq!(decoded, expected[1].vector);
    let short =
        post(&server, "/v1/embeddings", json!({"model": "tiny", "input": texts[0], "dimensions": 4})).await;
    let short = numbers(&short["data"][0]);
    let length: f32 = short.iter().map(|number| number * number).sum();
    assert!(short.len() == 4 && (length - 1.0).abs() < 1e-5, "{short:?}");
    let listed = server.client.get("/v1/models").await.json();
    let names: Vec<&Value> = listed["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(names, ["double", "tiny"]);
    let pooled = post(&server, "/pooling", json!({"model": "tiny", "input": texts, "task": "embed"})).await;
    assert_eq!(pooled["usage"], reply["usage"]);
    for (place, one) in pooled["data"].as_array().unwrap().iter().enumerate() {
        assert_eq!((&one["object"], &one["index"]), (&json!("pooling"), &json!(place)));
        assert_eq!(one["data"], reply["data"][place]["embedding"]);
    }
    let classes = json!({"model": "tiny", "input": texts, "task": "classify"});
    let refused = server.client.post("/pooling", &classes).await;
    assert!(refused.status == 400 && refused.error().contains("`task`"), "{}", refused.body);
    let used = post(&server, "/v1/embeddings", json!({"input": "fish"})).await;
    assert_eq!(used["model"], "tiny", "there is one");
}

#[actix_web::test]
async fn documents_are_ranked_by_their_nearness_to_a_question() {
    let (_folder, config) = embedding();
    let server = serve_with(config, model()).await;
    let documents = ["tax loan money bank", "boat fish water river", "river money"];
    let body = json!({"model": "tiny", "query": "fish boat river", "documents": documents});
    let ranked = post(&server, "/v1/rerank", body.clone()).await;
    let results = ranked["results"].as_array().unwrap();
    assert_eq!(results[0]["index"], 1, "{ranked}");
    assert_eq!(results[0]["document"]["text"], documents[1]);
    let found: Vec<f64> = results.iter().map(|one| one["relevance_score"].as_f64().unwrap()).collect();
    assert!(found.len() == 3 && found.is_sorted_by(|a, b| a >= b), "{found:?}");
    let mut one = body;
    one["top_n"] = 1.into();
    assert_eq!(post(&server, "/v1/rerank", one).await["results"].as_array().unwrap().len(), 1);
    let scored = post(&server, "/v1/score", json!({"text_1": "fish boat river", "text_2": documents})).await;
    for result in results {
        let place = result["index"].as_u64().unwrap() as usize;
        assert_eq!(scored["data"][place]["score"], result["relevance_score"], "the same two texts");
    }
    // Several first texts are each compared with their own.
    let firsts = ["fish boat river", "tax loan", "river money"];
    let paired = post(&server, "/score", json!({"queries": firsts, "documents": documents})).await;
    assert_eq!(paired["data"].as_array().unwrap().len(), 3, "{paired}");
    assert_eq!(paired["data"][0]["score"], scored["data"][0]["score"]);
    assert!((paired["data"][2]["score"].as_f64().unwrap() - 1.0).abs() < 1e-5, "{paired}");
    for (first, other) in [("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2")] {
        let named = post(&server, "/v1/score", json!({first: firsts, other: documents})).await;
        assert_eq!(named["data"], paired["data"], "{first} and {other}");
    }
    let uneven = json!({"queries": firsts, "documents": documents[..2]});
    let reply = server.client.post("/score", &uneven).await;
    assert!(reply.status == 400 && reply.error().contains("`queries`"), "{}", reply.body);
    // The names that vLLM has for them beside.
    let pair = json!({"text_1": "fish boat river", "text_2": documents});
    assert_eq!(post(&server, "/score", pair).await["data"], scored["data"]);
    let question = json!({"model": "tiny", "query": "fish boat river", "documents": documents});
    for path in ["/rerank", "/v2/rerank"] {
        assert_eq!(post(&server, path, question.clone()).await["results"], ranked["results"], "{path}");
        assert_eq!(server.client.get(path).await.status, 405, "{path}");
        let nobody = server.client.with_key("rs-wrong").post(path, &question).await;
        assert_eq!(nobody.status, 401, "{path}: {}", nobody.body);
    }
    let same = post(&server, "/v1/score", json!({"text_1": "tax", "text_2": "tax"})).await;
    assert!((same["data"][0]["score"].as_f64().unwrap() - 1.0).abs() < 1e-5, "{same}");
}

#[actix_web::test]
async fn what_cannot_be_embedded_is_refused_by_name_and_without_a_model_all_of_it() {
    let (_folder, config) = embedding();
    let server = serve_with(config, model()).await;
    let long = "fish ".repeat(600);
    for (body, status, part) in [
        (json!({"model": "gpt", "input": "fish"}), 404, "`tiny`"),
        (json!({"model": "tiny", "input": [1, 2]}), 400, "token ids"),
        (json!({"model": "tiny", "input": ["fish", long]}), 400, "`input[1]`"),
        // vLLM's words.
        (json!({"model": "tiny", "input": long}), 400, "Please reduce the length of the input prompt"),
    ] {
        let reply = server.client.post("/v1/embeddings", &body).await;
        assert_eq!(reply.status, status, "{}", reply.body);
        assert!(reply.error().contains(part), "{}", reply.body);
    }
    let beginning = json!({"model": "tiny", "input": long, "truncate_prompt_tokens": -1});
    assert_eq!(post(&server, "/v1/embeddings", beginning).await["data"].as_array().unwrap().len(), 1);
    let without = serve().await;
    for path in ["/v1/embeddings", "/v1/score", "/v1/rerank", "/score", "/rerank", "/v2/rerank", "/pooling"] {
        let reply = without.client.post(path, &json!({"input": "fish"})).await;
        assert_eq!(reply.status, 501, "{}", reply.body);
        assert!(reply.error().contains("retrieval.model"), "{}", reply.body);
    }
}

#[actix_web::test]
async fn fields_that_no_vector_needs_are_left_out_and_named_unless_they_are_to_be_refused() {
    const IGNORED: &str = "x-relserve-ignored-fields";
    let (_folder, mut config) = embedding();
    for unknown_fields in [UnknownFields::Warn, UnknownFields::Ignore, UnknownFields::Refuse] {
        config.openai.unknown_fields = unknown_fields;
        let server = serve_with(config.clone(), model()).await;
        for (path, mut body) in [
            ("/v1/embeddings", json!({"input": "fish"})),
            ("/pooling", json!({"input": "fish"})),
            ("/v1/score", json!({"text_1": "fish", "text_2": "boat"})),
            ("/v2/rerank", json!({"query": "fish", "documents": ["boat"]})),
            ("/invocations", json!({"input": "fish"})),
        ] {
            body["max_tokens_per_doc"] = 9.into();
            body["priority"] = 0.into();
            body["metadata"] = Value::Null;
            let reply = server.client.post(path, &body).await;
            let found = (reply.status, reply.header(IGNORED));
            match unknown_fields {
                UnknownFields::Warn => {
                    assert_eq!(found, (200, Some("max_tokens_per_doc, priority")), "{path}");
                }
                UnknownFields::Ignore => assert_eq!(found, (200, None), "{path}"),
                UnknownFields::Refuse => {
                    assert_eq!(found, (400, None), "{path}");
                    let param = reply.json()["error"]["param"].clone();
                    assert!(param == "max_tokens_per_doc" || param == "priority", "{}", reply.body);
                }
            }
        }
    }
}

#[actix_web::test]
async fn an_invocation_is_answered_by_the_route_that_its_fields_are_of() {
    let (_folder, config) = embedding();
    let server = serve_with(config, Model { has_chat: true, ..model() }).await;
    let texts = ["boat fish", "tax loan"];
    let messages = json!([{"role": "user", "content": "say one"}]);
    for (path, body) in [
        ("/v1/chat/completions", json!({"messages": messages, "max_tokens": 8, "temperature": 0})),
        ("/v1/completions", json!({"prompt": "say one", "max_tokens": 8, "temperature": 0})),
        ("/v1/embeddings", json!({"model": "tiny", "input": texts, "messages": null})),
        ("/v1/score", json!({"text_1": "fish", "text_2": texts})),
        ("/v1/score", json!({"queries": "fish", "documents": texts})),
        ("/v1/score", json!({"data_1": "fish", "data_2": texts})),
        ("/v1/rerank", json!({"query": "fish", "documents": texts})),
    ] {
        let own = post(&server, path, body.clone()).await;
        let invoked = post(&server, "/invocations", body).await;
        for field in ["object", "model", "choices", "data", "results"] {
            assert_eq!(invoked[field], own[field], "{path}: {invoked}");
        }
    }
    let streamed = server.client.post("/invocations", &json!({"prompt": "say one", "stream": true})).await;
    assert_eq!((streamed.status, streamed.header("content-type")), (200, Some("text/event-stream")));
    for (body, field) in [
        (json!({"model": "double"}), "`messages`"),
        (json!({"prompt": "a", "max_tokens": "b"}), "`max_tokens`"),
    ] {
        let refused = server.client.post("/invocations", &body).await;
        assert!(refused.status == 400 && refused.error().contains(field), "{}", refused.body);
    }
    assert_eq!(server.client.get("/invocations").await.status, 405);
    let nobody = server.client.with_key("rs-wrong").post("/invocations", &json!({"prompt": "a"})).await;
    assert_eq!(nobody.status, 401, "{}", nobody.body);
    server.until_free().await;
}
