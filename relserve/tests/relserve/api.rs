//! `docs/API.md` has every route, and its commands and those of the README are answered as they say.

use std::collections::BTreeSet;
use std::path::Path;

use utoipa::OpenApi as _;

use crate::{document, examples};

const NAME: &str = "docs/API.md";

/// Routes that are registered: the texts of `configure` in each file of routes that begin like paths.
fn registered() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gateway/src/routes");
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        let Some((_, rest)) = text.split_once("fn configure(") else { continue };
        let body = rest.split("\n}").next().unwrap_or_default();
        let texts = body.split('"').skip(1).step_by(2).filter(|text| text.starts_with('/'));
        // Patterns of parameters are the server's own business.
        found.extend(texts.map(|text| text.replace(":.+}", "}")));
    }
    found
}

/// Every route, as `METHOD /path`: those of the OpenAPI document, and GET of those that only pages ask for.
fn routes() -> BTreeSet<String> {
    let document = serde_json::to_value(gateway::openapi::Document::openapi()).unwrap();
    let mut routes = BTreeSet::new();
    let paths = document["paths"].as_object().unwrap();
    for (path, methods) in paths {
        routes.extend(
            methods.as_object().unwrap().keys().map(|method| format!("{} {path}", method.to_uppercase())),
        );
    }
    let others = registered().into_iter().filter(|path| !paths.contains_key(path));
    routes.extend(others.map(|path| format!("GET {path}")));
    routes
}

#[test]
fn every_route_has_a_heading_and_an_example() {
    let text = document::read(NAME);
    let mut headed = BTreeSet::new();
    for part in text.split("\n### ").skip(1) {
        let (heading, rest) = part.split_once('\n').unwrap_or((part, ""));
        let (method, paths) = heading.split_once(' ').unwrap_or((heading, ""));
        let own = rest.split("\n## ").next().unwrap_or_default();
        assert!(!examples::blocks(own, "console").is_empty(), "{heading} has no example");
        for path in paths.split(", ") {
            assert!(headed.insert(format!("{method} {path}")), "{heading} stands twice");
        }
    }
    let routes = routes();
    let missing: Vec<_> = routes.difference(&headed).collect();
    let unknown: Vec<_> = headed.difference(&routes).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "{NAME}: missing {missing:?}, unknown {unknown:?}");
}

#[test]
fn the_commands_of_the_api_are_answered_as_it_says() {
    examples::check(NAME);
}

#[test]
fn the_quick_start_is_answered_as_it_says() {
    examples::check("README.md");
}
