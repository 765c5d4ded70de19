//! The OpenAPI document, made from the handlers and wire types themselves, and of what is read field by field from
//! its description.

mod described;

use serde_json::Value;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, PathItem, Ref, RefOr, Response};
use utoipa::{Modify, OpenApi};

use crate::error::ErrorBody;
use crate::routes::other_names::other_names;
use crate::routes::{
    admin, batches, cells, corpora, embeddings, files, invocations, known_models, live, messages, openai,
    ops, prompts, query, relqueries, replicas, schemas, sign_ins, sql, tokenize, uploads, workbooks,
};
use crate::wire::budget::BudgetReply;
use crate::wire::query::reply::QueryList;

/// The document.
#[derive(OpenApi)]
#[openapi(
    info(title = "RelServe", description = "A backend for LLM spreadsheet functions and dashboard columns."),
    paths(
        relqueries::create,
        relqueries::read,
        relqueries::delete,
        cells::create,
        cells::read,
        cells::delete,
        cells::prompts,
        corpora::add,
        corpora::list,
        corpora::read,
        corpora::delete,
        corpora::search,
        openai::models,
        openai::model,
        openai::completions,
        openai::chat_completions,
        messages::create_message,
        messages::count_message_tokens,
        openai::responses::create_response,
        openai::websocket::connect_responses,
        openai::responses::count_response_input_tokens,
        openai::responses::response,
        openai::responses::delete_response,
        openai::responses::cancel_response,
        openai::responses::response_input_items,
        embeddings::embeddings,
        embeddings::score,
        embeddings::rerank,
        embeddings::pooling,
        invocations::invocations,
        tokenize::tokenize,
        tokenize::detokenize,
        tokenize::tokenizer_info,
        known_models::list,
        files::upload,
        files::list,
        files::read,
        files::delete,
        files::content,
        uploads::create,
        uploads::add_part,
        uploads::complete,
        uploads::cancel,
        batches::create,
        batches::list,
        batches::read,
        batches::cancel,
        schemas::create,
        schemas::list,
        schemas::read,
        schemas::delete,
        prompts::create,
        query::create,
        sql::run,
        sql::read,
        sql::delete,
        replicas::list,
        replicas::add,
        replicas::remove,
        replicas::drain,
        replicas::resume,
        workbooks::list,
        workbooks::save,
        workbooks::read,
        workbooks::versions,
        workbooks::delete,
        workbooks::share,
        workbooks::shares,
        workbooks::end_share,
        workbooks::shared,
        sign_ins::exchange,
        sign_ins::create,
        admin::me,
        admin::keys,
        admin::create_key,
        admin::revoke_key,
        admin::rotate_key,
        admin::tenants,
        admin::create_tenant,
        admin::change_tenant,
        admin::usage,
        admin::audit,
        live::events,
        live::trace,
        live::what_if,
        ops::healthz,
        ops::health_as_vllm,
        ops::readyz,
        ops::ping,
        ops::version,
        ops::metrics,
        ops::scheduler,
        ops::catalogue,
        ops::usage,
    ),
    components(schemas(ErrorBody, BudgetReply, QueryList)),
    modifiers(&Keys, &OtherNames, &Operations)
)]
pub struct Document;

/// The document as it is served.
pub fn document() -> Value {
    let mut document = serde_json::to_value(Document::openapi()).expect("a document is plain data");
    described::put_into(&mut document);
    document
}

/// Adds how a key is sent.
struct Keys;

impl Modify for Keys {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        let components = document.components.get_or_insert_with(Default::default);
        components.add_security_scheme("key", scheme);
    }
}

/// Adds each route under its other names.
struct OtherNames;

impl Modify for OtherNames {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let paths = &mut document.paths.paths;
        for (route, name) in other_names() {
            let Some(mut item) = paths.get(route).cloned() else { continue };
            for (_, operation) in operations(&mut item) {
                operation.description = Some(format!("Another name of `{route}`."));
            }
            paths.insert(name.to_owned(), item);
        }
    }
}

/// How operations can be refused by what they take: status, name in the document, and why.
const REFUSALS: [(&str, &str, &str); 11] = [
    ("400", "BadRequest", "A field or a parameter has a value that cannot be served."),
    ("401", "Unauthorized", "No valid key."),
    ("403", "Forbidden", "The key may not do this."),
    ("404", "NotFound", "What is named is not there."),
    ("408", "RequestTimeout", "The body took too long to arrive."),
    ("413", "PayloadTooLarge", "The body is too large."),
    ("415", "UnsupportedMediaType", "The body is of another type."),
    ("429", "TooManyRequests", "Too much is asked already."),
    ("500", "InternalError", "A fault of the server's."),
    ("501", "NotConfigured", "The server is not set up for this."),
    ("503", "Unavailable", "The server ends, or what it needs is away."),
];

/// Gives operations ids of their own, which clients are generated by, and adds how each can be refused beside what its
/// route says itself.
struct Operations;

impl Modify for Operations {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        for (path, item) in &mut document.paths.paths {
            for (method, operation) in operations(item) {
                operation.operation_id = Some(operation_id(method, path));
                for (status, name, _) in REFUSALS {
                    let is_wanted = match operation.responses.responses.get(status) {
                        None => can_be_refused(status, path, operation),
                        Some(RefOr::T(own)) => own.description.is_empty() && !own.content.is_empty(),
                        Some(RefOr::Ref(_)) => false,
                    };
                    if is_wanted {
                        let shared = Ref::from_response_name(name);
                        operation.responses.responses.insert(status.to_owned(), RefOr::Ref(shared));
                    }
                }
            }
        }
        let components = document.components.get_or_insert_with(Default::default);
        for (_, name, why) in REFUSALS {
            let error = Content::new(Some(Ref::from_schema_name("ErrorBody")));
            let mut refusal = Response::new(why);
            refusal.content.insert("application/json".into(), error);
            components.responses.insert(name.to_owned(), RefOr::T(refusal));
        }
    }
}

/// Whether an operation can be refused with a status, by what it takes.
fn can_be_refused(status: &str, path: &str, operation: &Operation) -> bool {
    let takes_body = operation.request_body.is_some();
    let takes_parameters = operation.parameters.as_ref().is_some_and(|parameters| !parameters.is_empty());
    match status {
        "400" | "404" => takes_body || takes_parameters,
        "408" | "413" | "415" => takes_body,
        "401" | "403" | "429" => operation.security.is_some(),
        _ => operation.security.is_some() || path.starts_with("/v1/"),
    }
}

/// The operations of a path, by their methods.
fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let PathItem { get, post, put, patch, delete, head, .. } = item;
    [("get", get), ("post", post), ("put", put), ("patch", patch), ("delete", delete), ("head", head)]
        .into_iter()
        .filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// The name of an operation: `get_cells_by_id` of `GET /v1/cells/{id}`.
fn operation_id(method: &str, path: &str) -> String {
    // Without its version such a name would have the id of the route that it is of.
    let is_bare = |(route, name): (&str, &str)| name == path && route.strip_prefix("/v1") == Some(name);
    let suffix = other_names().any(is_bare).then(|| "as_vllm".to_owned());
    let path = path.strip_prefix("/v1").unwrap_or(path);
    let parts = path.split('/').filter(|part| !part.is_empty()).map(|part| {
        let named = part.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
        named.map_or_else(
            || part.replace('-', "_"),
            |name| format!("by_{}", name.split(':').next().unwrap_or(name)),
        )
    });
    std::iter::once(method.to_owned()).chain(parts).chain(suffix).collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_operation_has_an_id_of_its_own_and_says_what_comes_without_a_key() {
        let mut document = Document::openapi();
        let mut ids = BTreeSet::new();
        for (path, item) in &mut document.paths.paths {
            for (method, operation) in operations(item) {
                let id = operation.operation_id.clone().unwrap_or_default();
                assert!(ids.insert(id.clone()), "{id} is {method} {path} and another");
                let is_open = operation.security.is_none();
                assert!(is_open || operation.responses.responses.contains_key("401"), "{method} {path}");
            }
        }
        for (route, name) in other_names() {
            assert!(document.paths.paths.contains_key(route), "{route} is no route");
            assert!(document.paths.paths.contains_key(name), "{name} is in the document");
        }
        assert!(ids.contains("get_cells_by_id") && ids.contains("post_chat_completions"), "{ids:?}");
    }
}
