//! What requests and replies hold that are read and written field by field: `described.json`, put into the document.
//!
//! No type says it, so tests hold the file to the readers: each field that a reader asks for is described, and each
//! that is described is read.

use serde_json::{Map, Value, json};

use crate::wire::openai::{BodyKind, neutral_fields};

/// What the file is.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiDescription {
    /// Schemas by their names.
    schemas: Map<String, Value>,
    /// The name of the schema of an operation's body.
    requests: Map<String, Value>,
    /// The schema of an operation's reply in JSON.
    replies: Map<String, Value>,
    /// Other types that an operation's reply may have.
    contents: Map<String, Value>,
}

const FILE: &str = include_str!("described.json");

/// Schemas of OpenAI's bodies, which also have the fields that change nothing.
const OF_OPENAI: [(&str, BodyKind); 7] = [
    ("ChatCompletionRequest", BodyKind::Chat),
    ("ResponseRequest", BodyKind::Chat),
    ("CompletionRequest", BodyKind::Completion),
    ("PromptRequest", BodyKind::Completion),
    ("MessageRequest", BodyKind::Chat),
    ("ChatMessage", BodyKind::Message),
    ("TextPart", BodyKind::Part),
];

fn described() -> ApiDescription {
    serde_json::from_str(FILE).expect("the file is in the program, and a test reads it")
}

/// Puts all of it into a document.
pub(super) fn put_into(document: &mut Value) {
    let ApiDescription { mut schemas, requests, replies, contents } = described();
    for (name, kind) in OF_OPENAI {
        if let Some(properties) = schemas.get_mut(name).and_then(own_properties) {
            for (field, schema) in neutral_fields(kind) {
                properties.entry(field).or_insert(schema);
            }
        }
    }
    for operation in operations(document) {
        let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
        if let Some(name) = requests.get(&id).and_then(Value::as_str) {
            describe_request(&mut operation["requestBody"], name);
        }
        // A WebSocket has none. By an index it would be put in.
        let Some(reply) = operation["responses"].get_mut("200") else { continue };
        if let Some(schema) = replies.get(&id) {
            reply["content"] = json!({"application/json": {"schema": schema}});
        }
        if let Some(types) = contents.get(&id).and_then(Value::as_array) {
            let json = reply["content"].get_mut("application/json").map(Value::take);
            let mut content: Map<String, Value> =
                types.iter().filter_map(Value::as_str).map(|kind| (kind.to_owned(), json!({}))).collect();
            content.extend(json.map(|json| ("application/json".to_owned(), json)));
            reply["content"] = content.into();
        }
    }
    if let Some(known) = document["components"]["schemas"].as_object_mut() {
        known.extend(schemas);
    }
}

/// The operations of a document.
fn operations(document: &mut Value) -> impl Iterator<Item = &mut Value> {
    let paths = document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    paths.filter_map(Value::as_object_mut).flat_map(|path| path.values_mut())
}

/// Has a body be the schema of a name, in whichever type it is sent.
fn describe_request(body: &mut Value, name: &str) {
    body["required"] = true.into();
    for (_, content) in body["content"].as_object_mut().into_iter().flatten() {
        *content = json!({"schema": {"$ref": format!("#/components/schemas/{name}")}});
    }
}

/// The properties that an object has beside those of the schemas that it is made of.
fn own_properties(schema: &mut Value) -> Option<&mut Map<String, Value>> {
    let own = match schema.get("allOf") {
        Some(_) => schema["allOf"].as_array_mut()?.last_mut()?,
        None => schema,
    };
    own["properties"].as_object_mut()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serving::error::RequestError;

    use super::*;
    use crate::config::{
        BulkConfig, CellsConfig, LimitsConfig, RetrievalConfig, UnknownFields, WorkbooksConfig,
    };
    use crate::json::{self, JsonFields, asked};
    use crate::wire::anthropic;
    use crate::wire::embeddings::{CompareRequest, EmbeddingLimits, EmbeddingsRequest};
    use crate::wire::openai::tests::with_context;
    use crate::wire::openai::{
        ChatRequest, CompletionRequest, DetokenizeRequest, ResponseRequest, TokenizeRequest,
    };
    use crate::wire::pml::{PromptRequest, SchemaRequest};
    use crate::wire::query::QueryRequest;
    use crate::wire::relquery::RelQueryRequest;
    use crate::wire::what_if::WhatIfRequest;
    use crate::wire::{ValidationContext, admin, batches, cells, corpora, keys, sql, uploads, workbooks};

    type BodyReader = fn(JsonFields, ValidationContext<'_>) -> Result<(), RequestError>;

    fn embedding<'a>(limits: &'a LimitsConfig, retrieval: &'a RetrievalConfig) -> EmbeddingLimits<'a> {
        EmbeddingLimits { limits, retrieval, dims: 8, unknown_fields: UnknownFields::Refuse }
    }

    /// Each schema of a body with what reads it, and fields that it asks for and that are none of the body's.
    const READERS: [(&str, BodyReader, &[&str]); 27] = [
        ("RelQueryRequest", |f, c| RelQueryRequest::read(f, c).map(drop), &[]),
        ("CellsRequest", |f, c| cells::CellsRequest::read(f, c, CellsConfig::default()).map(drop), &[]),
        ("CompletionRequest", |f, c| CompletionRequest::read(f, c).map(drop), &[]),
        ("ChatCompletionRequest", |f, c| ChatRequest::read(f, c).map(drop), &["tool_choice."]),
        // What its reader puts in is asked for when it is read as a chat.
        (
            "ResponseRequest",
            |f, c| ResponseRequest::read(f, (None, false), c).map(drop),
            &[
                "input[].",
                "conversation",
                "prompt",
                "messages",
                "max_completion_tokens",
                "max_tokens",
                "logprobs",
                "response_format",
            ],
        ),
        // The same; and blocks are read by their types.
        (
            "MessageRequest",
            |f, c| anthropic::chat_of(f, true, c).map(drop),
            &[
                "messages[]",
                "system[]",
                "tools[]",
                "tool_choice.",
                "thinking.",
                "output_",
                "max_completion_tokens",
                "parallel_tool_calls",
                "response_format",
                "logprobs",
                "top_logprobs",
                "mcp_servers",
                "container",
                "inference_geo",
                "speed",
            ],
        ),
        ("PromptRequest", |f, c| PromptRequest::read(f, c, 10_000).map(drop), &[]),
        ("SchemaRequest", |f, c| SchemaRequest::read(f, c).map(drop), &[]),
        ("SpanQueryRequest", |f, c| QueryRequest::read(f, c).map(drop), &[]),
        ("BatchRequest", |f, _| batches::request(f, &BulkConfig::default()).map(drop), &[]),
        ("UploadRequest", |f, _| uploads::request(f, &BulkConfig::default()).map(drop), &[]),
        ("UploadCompletion", |f, _| uploads::completion(f).map(drop), &[]),
        ("CorpusRequest", |f, _| corpora::addition(f, &RetrievalConfig::default()).map(drop), &[]),
        ("SearchRequest", |f, _| corpora::question(f, &RetrievalConfig::default()).map(drop), &[]),
        (
            "EmbeddingsRequest",
            |f, c| EmbeddingsRequest::read(f, embedding(c.limits, &RetrievalConfig::default())).map(drop),
            &[],
        ),
        ("TokenizeRequest", |f, c| TokenizeRequest::read(f, c).map(drop), &["tool_choice."]),
        ("DetokenizeRequest", |f, c| DetokenizeRequest::read(f, c).map(drop), &[]),
        (
            "PoolingRequest",
            |f, c| {
                EmbeddingsRequest::read_pooling(f, embedding(c.limits, &RetrievalConfig::default())).map(drop)
            },
            &[],
        ),
        (
            "ScoreRequest",
            |f, c| CompareRequest::read_score(f, embedding(c.limits, &RetrievalConfig::default())).map(drop),
            &[],
        ),
        (
            "RerankRequest",
            |f, c| CompareRequest::read_rerank(f, embedding(c.limits, &RetrievalConfig::default())).map(drop),
            &[],
        ),
        ("SqlRequest", |f, _| sql::SqlRequest::read(f).map(drop), &[]),
        ("WorkbookRequest", |f, _| workbooks::save(f).map(drop), &[]),
        ("ShareRequest", |f, _| workbooks::share(f, &WorkbooksConfig::default()).map(drop), &[]),
        ("KeyRequest", |f, _| keys::key(f).map(drop), &[]),
        ("TenantRequest", |f, _| admin::tenant(f).map(drop), &[]),
        ("TenantChangeRequest", |f, _| admin::tenant_change(f).map(drop), &[]),
        (
            "WhatIfRequest",
            |f, _| WhatIfRequest::read(f, scheduler::Policy::MarginalWork, false).map(drop),
            &[],
        ),
    ];

    /// Fields of OpenAI's and vLLM's that are refused whatever they hold, on all routes or some: there is nothing to
    /// describe.
    const REFUSED: [&str; 10] = [
        "prompt_logprobs",
        "logprob_token_ids",
        "truncate_prompt_tokens",
        "truncation_side",
        "return_tokens_as_token_ids",
        "audio",
        "web_search_options",
        "moderation",
        "chat_template",
        "documents",
    ];

    /// What clients send and nobody reads, for there is one kind of it.
    const UNREAD: &str = "messages[].tool_calls[].type";

    /// The names of a schema's fields, and of those in them.
    fn names(schema: &Value, schemas: &Value, path: &str, found: &mut BTreeSet<String>) {
        if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
            // A query stands in queries, and has a reader of its own.
            if !name.starts_with("Span") {
                names(&schemas[name], schemas, path, found);
            }
        }
        for parts in ["allOf", "anyOf"] {
            schema[parts].as_array().into_iter().flatten().for_each(|part| names(part, schemas, path, found));
        }
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            let name = format!("{path}{name}");
            names(inner, schemas, &format!("{name}."), found);
            names(&inner["items"], schemas, &format!("{name}[]."), found);
            if let Some(reference) = inner["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
                for schema in std::iter::once(&schemas[reference])
                    .chain(schemas[reference]["anyOf"].as_array().into_iter().flatten())
                {
                    names(&schema["items"], schemas, &format!("{name}[]."), found);
                }
            }
            found.insert(name);
        }
    }

    #[test]
    fn what_readers_ask_for_is_described_and_what_is_described_is_read() {
        let document = crate::openapi::document();
        let schemas = &document["components"]["schemas"];
        for (name, read, others) in READERS {
            let mut described = BTreeSet::new();
            names(&schemas[name], schemas, "", &mut described);
            let mut asked = BTreeSet::new();
            for (place, example) in
                schemas[name]["examples"].as_array().expect("there are some").iter().enumerate()
            {
                let fields = json::object(example.to_string().as_bytes()).expect("an object");
                asked.extend(asked::asked_by(|| {
                    let read = with_context(&LimitsConfig::default(), |context| read(fields, context));
                    assert!(place > 0 || read.is_ok(), "{name}: {:?}", read.err());
                }));
            }
            let is_left_out = |field: &&String| {
                let last = field.rsplit('.').next().unwrap_or_default();
                REFUSED.contains(&last) || others.iter().any(|other| field.starts_with(other))
            };
            let undescribed: Vec<_> =
                asked.difference(&described).filter(|field| !is_left_out(field)).collect();
            assert!(
                undescribed.is_empty(),
                "{name} is asked for {undescribed:?}, which it does not describe"
            );
            // Of what no example has, nobody asks for the parts.
            let is_looked_into = |field: &&String| match field.rfind('.') {
                Some(end) => asked.iter().any(|asked| asked.starts_with(&field[..=end])),
                None => true,
            };
            described.remove(UNREAD);
            let unread: Vec<_> = described.difference(&asked).filter(is_looked_into).collect();
            assert!(unread.is_empty(), "{name} describes {unread:?}, which nobody asks for");
        }
    }

    #[test]
    fn no_operation_has_a_response_that_says_nothing() {
        let mut document = crate::openapi::document();
        for operation in operations(&mut document) {
            let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
            let responses = operation["responses"].as_object().unwrap_or_else(|| panic!("{id} has none"));
            assert!(responses.values().all(Value::is_object), "{id}: {responses:?}");
        }
    }

    #[test]
    fn every_body_and_reply_that_is_described_is_an_operations_and_every_body_is_described() {
        let ApiDescription { schemas, requests, replies, contents } = described();
        let mut document = crate::openapi::document();
        let mut ids = BTreeSet::new();
        for operation in operations(&mut document) {
            let id = operation["operationId"].as_str().expect("it has one").to_owned();
            let has_body = !operation["requestBody"].is_null();
            assert_eq!(has_body, requests.contains_key(&id), "{id}");
            ids.insert(id);
        }
        for id in requests.keys().chain(replies.keys()).chain(contents.keys()) {
            assert!(ids.contains(id), "there is no operation {id}");
        }
        for name in requests.values().filter_map(Value::as_str) {
            assert!(schemas.contains_key(name), "there is no schema {name}");
        }
    }
}
