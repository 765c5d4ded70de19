//! The bodies that the OpenAPI document describes are those that the routes take.

use serde_json::{Value, json};

use crate::common::client::Reply;
use crate::common::{Parties, config, serve_parties};

/// A route that takes JSON, with its schema.
struct DescribedBody<'a> {
    path: String,
    schema: &'a Value,
}

fn described(document: &Value) -> Vec<DescribedBody<'_>> {
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let schema = &methods["post"]["requestBody"]["content"]["application/json"]["schema"];
        if let Some(name) = schema["$ref"].as_str() {
            let path = path.replace("{id}", "1").replace("{name}", "other");
            found.push(DescribedBody { path, schema: resolved(document, name) });
        }
    }
    found
}

fn resolved<'a>(document: &'a Value, reference: &str) -> &'a Value {
    &document["components"]["schemas"][reference.rsplit('/').next().unwrap()]
}

/// The properties of a schema, those of its parts included.
fn properties<'a>(document: &'a Value, schema: &'a Value) -> Vec<(&'a str, &'a Value)> {
    if let Some(name) = schema["$ref"].as_str() {
        return properties(document, resolved(document, name));
    }
    let parts = schema["allOf"].as_array().into_iter().flatten();
    let own = schema["properties"].as_object().into_iter().flatten().map(|(name, one)| (name.as_str(), one));
    own.chain(parts.flat_map(|part| properties(document, part))).collect()
}

/// The types that a schema says, and whether it says any.
fn types(document: &Value, schema: &Value) -> Vec<String> {
    if let Some(name) = schema["$ref"].as_str() {
        return types(document, resolved(document, name));
    }
    let kind_of = |value: &Value| match value {
        Value::Bool(_) => "boolean".to_owned(),
        Value::Number(_) => "number".to_owned(),
        _ => "string".to_owned(),
    };
    let constant = schema.get("const").map(kind_of);
    let parts = schema["anyOf"].as_array().into_iter().chain(schema["allOf"].as_array()).flatten();
    let own = match &schema["type"] {
        Value::String(one) => vec![one.clone()],
        Value::Array(several) => several.iter().map(|one| one.as_str().unwrap().to_owned()).collect(),
        _ => Vec::new(),
    };
    let is_object = schema.get("properties").map(|_| "object".to_owned());
    own.into_iter()
        .chain(constant)
        .chain(is_object)
        .chain(parts.flat_map(|part| types(document, part)))
        .collect()
}

/// A value of a type that is none of these.
fn other_than(types: &[String]) -> Option<Value> {
    let values = [("object", json!({"?": 1})), ("string", json!("?")), ("boolean", json!(true))];
    let wrong = values.into_iter().find(|(kind, _)| !types.iter().any(|one| one == kind));
    wrong.map(|(_, value)| value).filter(|_| !types.is_empty())
}

async fn post(parties: &Parties, path: &str, body: &Value) -> Reply {
    let reply = parties.server.client.post(path, body).await;
    if reply.status == 403 { parties.operators.post(path, body).await } else { reply }
}

#[actix_web::test]
async fn each_described_field_of_another_type_is_refused_by_its_name() {
    let parties = serve_parties(config()).await;
    let document = parties.server.client.get("/openapi.json").await.json();
    let mut tried = 0;
    for DescribedBody { path, schema } in described(&document) {
        let example = &schema["examples"][0];
        // What is not set up here says so before it looks.
        let nothing = json!({});
        let reply = post(&parties, &path, if example.is_null() { &nothing } else { example }).await;
        if reply.status == 501 {
            continue;
        }
        assert!(example.is_object(), "{path} has no example");
        for (name, field) in properties(&document, schema) {
            let Some(wrong) = other_than(&types(&document, field)) else { continue };
            let mut body = example.clone();
            body[name] = wrong;
            let reply = post(&parties, &path, &body).await;
            let param = reply.json()["error"]["param"].as_str().unwrap_or_default().to_owned();
            assert!(reply.status == 400 && param.starts_with(name), "{path} with {body}: {}", reply.body);
            tried += 1;
        }
    }
    assert!(tried > 200, "{tried} fields");
}

#[actix_web::test]
async fn the_examples_of_bodies_are_taken() {
    let parties = serve_parties(config()).await;
    let document = parties.server.client.get("/openapi.json").await.json();
    for DescribedBody { path, schema } in described(&document) {
        // These name what is not there: a file, an upload, a schema, a link; and this model has no chat template.
        let is_refused_here = [
            "/v1/batches",
            "/v1/uploads/1/complete",
            "/v1/prompts",
            "/v1/query",
            "/v1/sign-in",
            "/v1/chat/completions",
            "/v1/responses",
            "/v1/responses/input_tokens",
            "/v1/messages",
            "/v1/messages/count_tokens",
            "/tokenize",
        ];
        let Some(example) = schema["examples"].as_array().and_then(|examples| examples.first()) else {
            continue;
        };
        let reply = post(&parties, &path, example).await;
        let is_taken = [200, 501].contains(&reply.status) || is_refused_here.contains(&path.as_str());
        assert!(is_taken, "{path} with {example}: {} {}", reply.status, reply.body);
    }
}
