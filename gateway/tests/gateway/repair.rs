//! Spans and modules whose first tokens are computed again where they stand: over real sockets, on the real
//! engine with a small random checkpoint.

use engine::checkpoint::Dtype;
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use serde_json::{Value, json};
use store::Store;

use crate::common::checkpoint::{prompt_tokens, serve_checkpoint};
use crate::common::{Server, config};

/// A server whose configuration repairs so many first tokens.
async fn server(repair_tokens: u32) -> Server {
    let mut synthetic = Synthetic::tiny(Family::Llama, 7);
    synthetic.config.context_max = 4_096;
    let mut config = config();
    config.engine.kv_bytes = Some(base::Bytes(16 << 20));
    // In single precision, so that what is equal but for the order of sums says the same.
    config.engine.dtype = Some(Dtype::F32);
    config.reuse.repair_tokens = repair_tokens;
    serve_checkpoint(config, &synthetic, Store::open("sqlite::memory:").await.unwrap()).await
}

/// A question about documents, which stand in a `join`.
fn question(join: &str, documents: &[usize]) -> Value {
    let document = |number: &usize| {
        let words: Vec<String> =
            (0..20).map(|word| format!("d{}w{}", number * 7, word * word + number)).collect();
        json!({ "user": words.join(" ") })
    };
    let documents: Vec<Value> = documents.iter().map(document).collect();
    json!({"g": {"max_tokens": 12, "temperature": 0, "input": {"seq": [
        {"system": "Answer from the documents."}, { join: documents }, {"user": "What is said?"},
    ]}}})
}

async fn ask(server: &Server, query: Value, repair_tokens: Option<u64>) -> Value {
    let mut body = json!({ "query": query });
    if let Some(tokens) = repair_tokens {
        body["repair_tokens"] = tokens.into();
    }
    let reply = server.client.post("/v1/query", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

fn said(reply: &Value) -> &Value {
    &reply["result"][0]["content"]
}

/// Tokens that a reply says were repaired; absent where there are none.
fn repaired(reply: &Value) -> Option<u64> {
    reply["usage"]["prompt_tokens_details"]["repaired_tokens"].as_u64()
}

#[actix_web::test]
async fn spans_repaired_to_their_ends_are_the_undivided_prompt_and_none_is_changed_for_others() {
    let server = server(0).await;
    let documents = [1, 2, 3];
    let apart = ask(&server, question("plus", &documents), None).await;
    let undivided = ask(&server, question("cross", &documents), None).await;
    let whole = ask(&server, question("plus", &documents), Some(4_096)).await;
    assert_eq!(said(&whole), said(&undivided));
    assert_eq!(prompt_tokens(&whole)[0], prompt_tokens(&undivided)[0]);
    assert_eq!(prompt_tokens(&whole)[2], 0, "nothing saw only itself");

    let first = ask(&server, question("plus", &documents), Some(5)).await;
    assert_eq!(repaired(&first), Some(3 * 5), "{first}");
    let [all, _, shifted, computed] = prompt_tokens(&first);
    assert_eq!(all, prompt_tokens(&apart)[0], "a token that is computed twice is one of the prompt's");
    // The spans were there; computed are their first tokens, and what follows them.
    assert!(shifted > all / 2 && (15..60).contains(&computed), "{first}");

    let again = ask(&server, question("plus", &documents), Some(0)).await;
    assert_eq!(said(&again), said(&apart), "the spans are what they were");
    assert_eq!((repaired(&again), prompt_tokens(&again)[2]), (None, shifted), "{again}");
    server.until_free().await;
}

#[actix_web::test]
async fn requests_repair_what_the_configuration_says_unless_they_say_otherwise() {
    let server = server(4).await;
    let by_default = ask(&server, question("plus", &[1, 2]), None).await;
    assert_eq!(repaired(&by_default), Some(2 * 4), "{by_default}");
    assert_eq!(repaired(&ask(&server, question("plus", &[1, 2]), Some(7)).await), Some(2 * 7));
    assert_eq!(repaired(&ask(&server, question("plus", &[1, 2]), Some(0)).await), None);
    assert_eq!(repaired(&ask(&server, question("cross", &[1, 2]), None).await), None, "it has no spans");
}

const SCHEMA: &str = r#"<schema name="trip" repair="3"><system>You plan journeys with care.</system><user>
<module name="rome">Rome is where all roads lead to.</module><module name="oslo" repair="1">Oslo has cold water.
</module></user></schema>"#;

async fn complete(server: &Server, repair_tokens: Option<u64>) -> Value {
    let mut body = json!({"model": "random", "max_tokens": 12, "temperature": 0, "ignore_eos": true, "cache": false,
        "prompt": r#"<prompt schema="trip"><rome/><oslo/><user>Where do I eat?</user></prompt>"#});
    if let Some(tokens) = repair_tokens {
        body["repair_tokens"] = tokens.into();
    }
    let reply = server.client.post("/v1/prompts", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

#[actix_web::test]
async fn modules_repair_what_their_schema_says_and_keep_their_place_in_memory() {
    let server = server(9).await;
    let registered = server.client.post("/v1/schemas", &json!({"model": "random", "schema": SCHEMA})).await;
    assert_eq!(registered.status, 200, "{}", registered.body);
    let by_schema = complete(&server, None).await;
    assert_eq!(repaired(&by_schema), Some(3 + 1), "{by_schema}");
    let modules: u64 = registered.json()["tokens"].as_u64().unwrap();
    assert_eq!(prompt_tokens(&by_schema)[2], modules, "all that was registered is read: {by_schema}");
    let none = complete(&server, Some(0)).await;
    assert_eq!((repaired(&none), prompt_tokens(&none)[2]), (None, modules), "{none}");
    assert_eq!(repaired(&complete(&server, Some(2)).await), Some(2 + 2));
}

#[actix_web::test]
async fn a_number_of_tokens_that_no_prompt_has_is_refused() {
    let server = server(0).await;
    let refused = |body: Value, route: &'static str| {
        let client = &server.client;
        async move {
            let reply = client.post(route, &body).await;
            assert_eq!(reply.status, 400, "{}", reply.body);
            reply.json()["error"]["message"].as_str().unwrap().to_owned()
        }
    };
    let query = |tokens: Value| json!({"query": question("plus", &[1, 2]), "repair_tokens": tokens});
    for wrong in [json!(-1), json!(4_097), json!(1.5), json!("16")] {
        let message = refused(query(wrong), "/v1/query").await;
        assert_eq!(message, "invalid `repair_tokens`: must be an integer from 0 to 4096");
    }
    let schema = |repair: &str| SCHEMA.replace(r#"repair="3""#, &format!(r#"repair="{repair}""#));
    for wrong in ["-1", "many", "65537"] {
        let message = refused(json!({"model": "random", "schema": schema(wrong)}), "/v1/schemas").await;
        let expected = format!("`repair` must be from 0 to 65536 tokens, not `{wrong}`");
        assert!(message.contains("line 1, column 1") && message.contains(&expected), "{message}");
    }
}
