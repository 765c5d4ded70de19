//! Tenants' limits hold wherever something is computed: rows of all routes, on replicas too, and texts that are embedded.

use base::Money;
use serde_json::{Value, json};
use serving::budgets::{BudgetAmount, BudgetStatus};
use serving::config::Secret;
use store::{DEFAULT_TENANT, Store};

use crate::common::checkpoint::serve_checkpoint;
use crate::common::client::{Client, finish};
use crate::common::replica::{FakeReplica, fleet};
use crate::common::words::{table, until_up};
use crate::common::{Parties, Server, serve_fleet, serve_parties};
use crate::embeddings::embedding;
use crate::pml::{llama, register, roomy};

pub const SCHEMA: &str = r#"<schema name="travel"><user><module name="rome">Rome is where all roads lead to.</module></user></schema>"#;
const OTHER_SCHEMA: &str =
    r#"<schema name="other"><user><module name="oslo">Oslo has cold, clear water.</module></user></schema>"#;
const PROMPT: &str = r#"<prompt schema="travel"><rome/><user>Where do I eat?</user></prompt>"#;

/// Sets what the default tenant may.
async fn set(operators: &Client, limits: Value) {
    let reply = operators.post("/v1/tenants/default", &json!({ "limits": limits })).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
}

/// How the default tenant stands.
fn status(server: &Server) -> BudgetStatus {
    server.running.app.runtime.shared.budgets.status(DEFAULT_TENANT)
}

fn statement(call: &str) -> Value {
    json!({"query": format!("SELECT {call} AS x FROM (VALUES ('fish')) AS t(w)")})
}

/// A body for a route that computes.
pub fn billed(path: &str) -> Option<Value> {
    let texts = ["boat fish", "tax loan"];
    Some(match path {
        "/v1/relqueries" => json!({"template": "Say {w}", "rows": [["a"]], "max_tokens": 4}),
        "/v1/cells" => json!({"calls": [{"function": "ask", "args": ["Say hello"]}]}),
        "/v1/completions" | "/invocations" => json!({"prompt": "Say a", "max_tokens": 4}),
        "/v1/chat/completions" | "/v1/messages" => {
            json!({"model": "random", "messages": [{"role": "user", "content": "And Oslo?"}], "max_tokens": 4})
        }
        "/v1/responses" => json!({"input": "And Oslo?", "max_output_tokens": 4}),
        "/v1/prompts" => json!({"prompt": PROMPT, "max_tokens": 4}),
        "/v1/schemas" => json!({"schema": OTHER_SCHEMA}),
        "/v1/query" => json!({"query": {"g": {"max_tokens": 4, "input": {"seq": [{"user": "And Oslo?"}]}}}}),
        "/v1/sql" => statement("ai_complete(prompt('Say {0}', w))"),
        "/v1/embeddings" => json!({"input": texts}),
        "/pooling" => json!({"input": texts, "task": "embed"}),
        "/v1/score" | "/score" => json!({"text_1": texts[0], "text_2": texts}),
        "/v1/rerank" | "/rerank" | "/v2/rerank" => json!({"query": texts[0], "documents": texts}),
        "/v1/corpora" => json!({"name": "c", "documents": [{"id": "new", "text": "boat"}]}),
        "/v1/corpora/{name}/search" => json!({"query": "fish"}),
        _ => return None,
    })
}

/// Routes that compute nothing; and batches, which are taken, and wait for room in the budget.
const FREE: &[&str] = &[
    "/detokenize",
    "/tokenize",
    "/v1/batches",
    "/v1/batches/{id}/cancel",
    "/v1/cells/prompts",
    "/v1/files",
    "/v1/keys",
    "/v1/keys/{id}/rotate",
    "/v1/messages/count_tokens",
    "/v1/replicas",
    "/v1/replicas/{name}/drain",
    "/v1/replicas/{name}/resume",
    "/v1/responses/input_tokens",
    "/v1/responses/{id}/cancel",
    "/v1/scheduler/what-if",
    "/v1/sign-in",
    "/v1/sign-in/links",
    "/v1/tenants",
    "/v1/tenants/{name}",
    "/v1/uploads",
    "/v1/uploads/{id}/cancel",
    "/v1/uploads/{id}/complete",
    "/v1/uploads/{id}/parts",
    "/v1/workbooks/{id}",
    "/v1/workbooks/{id}/shares",
];

#[actix_web::test]
async fn a_tenant_with_a_spent_budget_is_refused_on_every_route_that_computes() {
    let (_folder, embedding) = embedding();
    let mut config = roomy();
    config.retrieval = embedding.retrieval;
    config.retrieval.prompt_price = Some(1.0);
    config.model.prompt_price = Some(1.0);
    config.auth.admin_key = Some(Secret("op".into()));
    let server = serve_checkpoint(config, &llama(), Store::open("sqlite::memory:").await.unwrap()).await;
    register(&server.client, SCHEMA).await;
    let corpus = json!({"name": "c", "documents": [{"id": "old", "text": "fish"}]});
    assert_eq!(server.client.post("/v1/corpora", &corpus).await.status, 200);
    let operators = server.client.with_key("op");
    let most = BudgetAmount { tokens: 1_000_000, cost: Money::of_units(1.0).unwrap() };
    server.running.app.runtime.shared.budgets.charge(DEFAULT_TENANT, most);
    let document = server.client.get("/openapi.json").await.json();
    for (limit, max) in [("day_tokens", json!(1_000_000)), ("month_cost", json!(1))] {
        set(&operators, json!({ limit: max })).await;
        let before = status(&server).month;
        let refuses = async |path: &str, body: &Value| {
            let reply = server.client.post(path, body).await;
            assert!(reply.body.contains(&format!("(`limits.{limit}`)")), "{path}: {}", reply.body);
            assert!(!reply.body.contains("\"completed\""), "{path}: {}", reply.body);
        };
        let mut refused = 0;
        for (path, methods) in document["paths"].as_object().unwrap() {
            match billed(path) {
                _ if methods["post"].is_null() => {}
                None => assert!(FREE.contains(&path.as_str()), "{path} is neither billed nor free"),
                Some(body) => {
                    refuses(&path.replace("{name}", "c"), &body).await;
                    refused += 1;
                }
            }
        }
        assert_eq!(refused, 20);
        for call in ["ai_similarity(w, 'boat')", "ai_embed(w)", "ai_retrieve(w, 'c')"] {
            refuses("/v1/sql", &statement(call)).await;
        }
        let after = status(&server);
        assert_eq!((after.month, after.reserved), (before, BudgetAmount::default()), "nothing was computed");
    }
    set(&operators, json!({})).await;
    let search = server.client.post("/v1/corpora/c/search", &json!({"query": "fish"})).await;
    assert_eq!(search.json()["data"].as_array().unwrap().len(), 1, "{}", search.body);
}

#[actix_web::test]
async fn texts_are_set_aside_before_they_are_embedded_and_charged_at_their_price_after() {
    let (_folder, mut config) = embedding();
    config.retrieval.prompt_price = Some(2.0);
    let Parties { server, theirs, operators } = serve_parties(config).await;
    let text = json!({"input": "fish boat"});
    let embed = async |client: &Client, body: &Value| client.post("/v1/embeddings", body).await;
    let first = embed(&server.client, &text).await.json();
    let tokens = first["usage"]["prompt_tokens"].as_u64().unwrap();
    set(&operators, json!({"day_tokens": 2 * tokens})).await;
    assert_eq!(embed(&server.client, &text).await.status, 200);
    let refused = embed(&server.client, &text).await;
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert_eq!(refused.json()["error"]["code"], "budget_spent");
    assert!(refused.header("retry-after").is_some(), "{}", refused.head);
    let three = json!({"input": ["fish boat", "fish boat", "fish boat"]});
    assert_eq!(embed(&server.client, &three).await.status, 413, "it never fits");
    assert_eq!(embed(&theirs, &three).await.status, 200, "another tenant has no bound");
    let now = status(&server);
    // A million for 2: a token for 2,000 billionths.
    let spent = BudgetAmount { tokens: 2 * tokens, cost: Money(2 * tokens * 2_000) };
    assert_eq!((now.day, now.reserved), (spent, BudgetAmount::default()));

    // Two groups of fragments: the first would have room.
    let documents: Vec<Value> =
        (0..300).map(|id| json!({"id": id.to_string(), "text": "fish boat"})).collect();
    let addition = json!({"name": "c", "documents": documents});
    set(&operators, json!({"day_tokens": 301 * tokens})).await;
    let embedded = server.metric("relserve_embedded_texts_total");
    let refused = server.client.post("/v1/corpora", &addition).await;
    assert_eq!(refused.status, 429, "2 and 300 of 301 texts: {}", refused.body);
    assert_eq!(server.metric("relserve_embedded_texts_total"), embedded, "none of it");
    set(&operators, json!({"day_tokens": 302 * tokens})).await;
    let added = server.client.post("/v1/corpora", &addition).await;
    assert_eq!(added.status, 200, "{}", added.body);
    let now = status(&server);
    assert_eq!((now.day.tokens, now.reserved), (302 * tokens, BudgetAmount::default()));
    let again = server.client.post("/v1/corpora", &addition).await;
    assert_eq!(again.status, 200, "what is there already costs nothing: {}", again.body);
}

#[actix_web::test]
async fn models_and_requests_of_a_tenant_are_bounded_where_texts_are_embedded() {
    let (_folder, config) = embedding();
    let Parties { server, operators, .. } = serve_parties(config).await;
    let documents = ["fish", "tax"];
    let asked = [
        ("/v1/embeddings", json!({"input": "fish"})),
        ("/pooling", json!({"input": "fish", "task": "embed"})),
        ("/v1/score", json!({"text_1": "fish", "text_2": documents})),
        ("/v1/rerank", json!({"query": "fish", "documents": documents})),
        ("/v1/corpora", json!({"name": "c", "documents": [{"id": "a", "text": "fish"}]})),
        ("/v1/corpora/c/search", json!({"query": "fish"})),
    ];
    let similarity = statement("ai_similarity(w, 'boat')");
    set(&operators, json!({"models": ["double", "tiny"]})).await;
    for (path, body) in &asked {
        let reply = server.client.post(path, body).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    }
    set(&operators, json!({"models": ["double"]})).await;
    for (path, body) in &asked {
        let refused = server.client.post(path, body).await;
        assert_eq!(refused.status, 404, "{path}: {}", refused.body);
        assert_eq!(refused.json()["error"]["code"], "model_not_found", "{path}");
    }
    let refused = server.client.post("/v1/sql", &similarity).await;
    assert!(refused.body.contains("the model `tiny` does not exist"), "{}", refused.body);
    set(&operators, json!({"minute_requests": 1})).await;
    assert_eq!(server.client.post("/v1/sql", &similarity).await.status, 200);
    for (path, body) in &asked {
        let refused = server.client.post(path, body).await;
        assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!("rate_limit")), "{path}");
    }
}

#[actix_web::test]
async fn tokens_are_set_aside_and_settled_where_replicas_run_the_rows() {
    let replica = FakeReplica::start().await;
    let mut config = fleet(vec![replica.executor()]);
    config.auth.admin_key = Some(Secret("op".into()));
    let server = serve_fleet(config).await;
    until_up(&server, 1).await;
    let operators = server.client.with_key("op");
    set(&operators, json!({"day_tokens": 1_000})).await;
    let gate = replica.shut();
    let running = server.client.begin("/v1/relqueries", &table(1)).await;
    server.until("the replica has the row", |_| replica.state().running == 1).await;
    let held = status(&server).reserved.tokens;
    assert!(held >= 8, "the answer at its longest, and the prompt: {held}");
    set(&operators, json!({"day_tokens": held + 1})).await;
    let refused = server.relquery(table(1)).await;
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert_eq!(refused.json()["error"]["code"], "budget_spent");
    gate.add_permits(10);
    let done = finish(running).await;
    assert_eq!(done.status, 200, "{}", done.body);
    server.until_rows_end().await;
    let now = status(&server);
    // Of 10 tokens of a prompt 4 were in the replica's cache; 2 are the answer.
    assert_eq!((now.day.tokens, now.reserved), (8, BudgetAmount::default()));
    assert_eq!(server.relquery(table(1)).await.status, 429, "8 are spent");
    assert_eq!(replica.state().answered.len(), 1, "the replica ran what was let in");
    set(&operators, json!({"day_tokens": held + 8})).await;
    assert_eq!(server.relquery(table(1)).await.status, 200);
}
