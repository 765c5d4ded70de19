//! What a key may: looks alone or changes too, and which groups of routes. Every request with a key comes by here.
//!
//! Must not know how keys are looked up. What its SQL may read is held to where statements are planned (`sql::access`).

use actix_web::http::Method;
use serving::error::RequestError;
use store::KeyScope;

/// The scope of what is no look.
pub const WRITE: &str = "write";
/// The group of SQL, over HTTP and the Postgres protocol.
pub const SQL: &str = "sql";

/// The groups of routes that a key may be limited to.
pub const ROUTES: [&str; 12] = [
    "admin",
    "batches",
    "cells",
    "completions",
    "corpora",
    "files",
    "prompts",
    "queries",
    "relqueries",
    "scheduler",
    SQL,
    "workbooks",
];

/// The scope that a route takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RouteScope {
    /// None: every key may look at what is served, at its own usage and at who it is.
    Open,
    Group(&'static str),
    /// A route that is in no group is for keys of all routes.
    All,
}

/// The scope that the route of a pattern takes.
fn scope_of(pattern: &str) -> RouteScope {
    let mut parts = pattern.trim_matches('/').split('/');
    let (version, first, second) = (parts.next(), parts.next().unwrap_or_default(), parts.next());
    match version {
        Some("v1") => {}
        // vLLM's routes without a version.
        Some("pooling" | "invocations" | "tokenize" | "detokenize" | "tokenizer_info") => {
            return RouteScope::Group("completions");
        }
        // Pages, documents and metrics ask for no key, or show more to who has one.
        Some("metrics") => return RouteScope::Group("admin"),
        _ => return RouteScope::All,
    }
    match (first, second) {
        ("models" | "known-models" | "catalogue" | "me", _) | ("usage", None) => RouteScope::Open,
        ("keys" | "tenants" | "usage" | "audit" | "replicas" | "sign-in", _) => RouteScope::Group("admin"),
        ("chat" | "responses" | "messages" | "embeddings" | "score" | "rerank", _) => {
            RouteScope::Group("completions")
        }
        ("uploads", _) => RouteScope::Group("files"),
        ("schemas", _) => RouteScope::Group("prompts"),
        ("query", _) => RouteScope::Group("queries"),
        (first, _) => match ROUTES.into_iter().find(|group| *group == first) {
            Some(group) => RouteScope::Group(group),
            None => RouteScope::All,
        },
    }
}

/// Refuses a request that a key may not make; `pattern`: of its route.
pub(super) fn check(scope: &KeyScope, method: &Method, pattern: &str) -> Result<(), RequestError> {
    if ![Method::GET, Method::HEAD].contains(method) {
        check_write(scope)?;
    }
    match scope_of(pattern) {
        RouteScope::Open => Ok(()),
        RouteScope::Group(group) => check_group(scope, group),
        RouteScope::All if scope.routes.is_none() => Ok(()),
        RouteScope::All => Err(RequestError::OutOfScope("all routes".to_owned())),
    }
}

/// Refuses what is no look.
pub(crate) fn check_write(scope: &KeyScope) -> Result<(), RequestError> {
    if scope.is_read_only { Err(RequestError::OutOfScope(WRITE.to_owned())) } else { Ok(()) }
}

/// Refuses a group of routes that a key may not use.
pub(crate) fn check_group(scope: &KeyScope, group: &str) -> Result<(), RequestError> {
    match &scope.routes {
        Some(routes) if routes.iter().all(|route| route != group) => {
            Err(RequestError::OutOfScope(group.to_owned()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_routes(routes: &[&str]) -> KeyScope {
        KeyScope { routes: Some(routes.iter().map(|&route| route.to_owned()).collect()), ..KeyScope::ALL }
    }

    fn lacks(scope: &KeyScope, method: &Method, pattern: &str) -> Option<String> {
        match check(scope, method, pattern) {
            Ok(()) => None,
            Err(RequestError::OutOfScope(scope)) => Some(scope),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_key_of_some_routes_uses_those_and_what_is_open() {
        let scope = of_routes(&["cells", "sql"]);
        for pattern in
            ["/v1/cells", "/v1/cells/{id}", "/v1/sql/{id}", "/v1/models/{id:.+}", "/v1/usage", "/v1/me"]
        {
            assert_eq!(lacks(&scope, &Method::POST, pattern), None, "{pattern}");
        }
        for (pattern, group) in [
            ("/v1/chat/completions", "completions"),
            ("/v1/completions", "completions"),
            ("/v1/responses", "completions"),
            ("/v1/messages/count_tokens", "completions"),
            ("/v1/rerank", "completions"),
            ("/pooling", "completions"),
            ("/invocations", "completions"),
            ("/tokenize", "completions"),
            ("/detokenize", "completions"),
            ("/tokenizer_info", "completions"),
            ("/v1/batches/{id}/cancel", "batches"),
            ("/v1/uploads/{id}/parts", "files"),
            ("/v1/usage/tenants", "admin"),
            ("/v1/sign-in/links", "admin"),
            ("/v1/replicas/{name}", "admin"),
            ("/v1/query", "queries"),
            ("/v1/schemas/{name}", "prompts"),
            ("/v1/scheduler/what-if", "scheduler"),
            ("/metrics", "admin"),
            ("/v1/new", "all routes"),
            ("/", "all routes"),
        ] {
            assert_eq!(lacks(&scope, &Method::GET, pattern).as_deref(), Some(group), "{pattern}");
            assert_eq!(lacks(&KeyScope::ALL, &Method::GET, pattern), None, "{pattern}");
        }
        assert_eq!(lacks(&of_routes(&[]), &Method::GET, "/v1/cells").as_deref(), Some("cells"));
    }

    #[test]
    fn a_key_that_only_looks_changes_nothing() {
        let scope = KeyScope { is_read_only: true, ..KeyScope::ALL };
        for method in [Method::GET, Method::HEAD] {
            assert_eq!(lacks(&scope, &method, "/v1/relqueries/{id}"), None);
        }
        for method in [Method::POST, Method::DELETE, Method::PUT, Method::PATCH] {
            assert_eq!(lacks(&scope, &method, "/v1/relqueries/{id}").as_deref(), Some(WRITE), "{method}");
            assert_eq!(lacks(&scope, &method, "/v1/models").as_deref(), Some(WRITE), "{method}");
        }
    }
}
