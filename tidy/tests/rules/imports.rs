//! Import directions: the table of STYLE.md, checked against manifests and against `use` lines.

use std::collections::BTreeMap;

use super::report;
use super::tree::{root, rust_files};

/// What a crate may import.
struct Directions {
    name: &'static str,
    /// Our crates it may depend on.
    ours: &'static [&'static str],
    /// Foreign crates it must not know (a prefix of the name).
    never: &'static [&'static str],
}

const PURE: &[&str] = &["tokio", "actix", "candle", "rand", "reqwest", "sqlx"];

const TABLE: [Directions; 15] = [
    Directions { name: "base", ours: &[], never: PURE },
    Directions { name: "ir", ours: &["base"], never: PURE },
    Directions { name: "scheduler", ours: &["base"], never: PURE },
    Directions { name: "sim", ours: &["base", "ir", "scheduler"], never: &["actix", "tokio", "candle"] },
    Directions { name: "engine", ours: &["base"], never: &["actix", "sqlx"] },
    Directions { name: "retrieval", ours: &["base"], never: &["actix", "sqlx", "tokio", "reqwest"] },
    Directions { name: "sse", ours: &[], never: PURE },
    Directions { name: "store", ours: &["base"], never: &["actix", "candle"] },
    Directions {
        name: "serving",
        ours: &["base", "ir", "scheduler", "sim", "sse", "engine", "store"],
        never: &["actix", "candle", "http", "hyper", "utoipa"],
    },
    Directions {
        name: "sql",
        ours: &["base", "ir"],
        never: &["actix", "candle", "http", "hyper", "reqwest", "utoipa"],
    },
    Directions {
        name: "gateway",
        ours: &["base", "ir", "scheduler", "retrieval", "store", "serving", "sql", "engine"],
        never: &["candle", "sqlx"],
    },
    Directions {
        name: "relserve",
        ours: &[
            "base",
            "ir",
            "scheduler",
            "sim",
            "engine",
            "retrieval",
            "store",
            "serving",
            "sql",
            "gateway",
        ],
        never: &["candle"],
    },
    Directions { name: "loadgen", ours: &["base", "ir", "sim", "sse"], never: &["actix"] },
    Directions { name: "tidy", ours: &[], never: &[] },
    Directions { name: "xtask", ours: &[], never: &[] },
];

fn manifest(path: &str) -> toml::Table {
    let text = std::fs::read_to_string(root().join(path).join("Cargo.toml")).expect("a manifest can be read");
    text.parse().unwrap_or_else(|error| panic!("{path}/Cargo.toml: {error}"))
}

#[test]
fn every_member_is_in_the_table() {
    let workspace = manifest(".");
    let members = workspace["workspace"]["members"].as_array().expect("members are a list");
    let named = |member: &toml::Value| TABLE.iter().any(|row| Some(row.name) == member.as_str());
    let missing: Vec<String> = members.iter().filter(|m| !named(m)).map(ToString::to_string).collect();
    report("crates without import directions", &missing);
    assert_eq!(members.len(), TABLE.len(), "the table names a crate that is gone");
}

/// Development dependencies are free: a test may build the world around its crate.
#[test]
fn manifests_follow_the_import_directions() {
    let mut findings = Vec::new();
    for row in &TABLE {
        let manifest = manifest(row.name);
        for section in ["dependencies", "build-dependencies"] {
            let table = manifest.get(section).and_then(toml::Value::as_table);
            for dependency in table.into_iter().flat_map(toml::Table::keys) {
                let is_ours = TABLE.iter().any(|other| other.name == dependency);
                let is_never = row.never.iter().any(|prefix| dependency.starts_with(prefix));
                if is_ours && !row.ours.contains(&dependency.as_str()) || is_never {
                    findings.push(format!("{} must not import {dependency}", row.name));
                }
            }
        }
    }
    report("import directions (manifests)", &findings);
}

#[test]
fn use_lines_follow_the_import_directions() {
    let rows: BTreeMap<&str, &Directions> = TABLE.iter().map(|row| (row.name, row)).collect();
    let mut findings = Vec::new();
    for file in rust_files().iter().filter(|file| !file.is_beside_the_code()) {
        let Some(row) = file.path.split('/').next().and_then(|name| rows.get(name)) else { continue };
        let wrong = |line: &str| {
            let path = line.trim_start().trim_start_matches("pub ").strip_prefix("use ")?;
            let first = path.split([':', ';', ' ']).next().unwrap_or_default();
            // A program may use its own library.
            let is_foreign = rows.contains_key(first) && first != row.name;
            (is_foreign && !row.ours.contains(&first)).then(|| first.to_owned())
        };
        // Syntax, which tells tests from code, takes most of the time: of files that have such a line at all.
        if !file.text.lines().any(|line| wrong(line).is_some()) {
            continue;
        }
        for (number, line) in file.code_lines() {
            if let Some(first) = wrong(line) {
                findings.push(format!("{}:{number}: {} must not use {first}", file.path, row.name));
            }
        }
    }
    report("import directions (use)", &findings);
}

/// A module says in its documentation that it knows no HTTP; its `use` lines must agree.
#[test]
fn what_must_not_know_http_does_not() {
    let mut findings = Vec::new();
    for file in rust_files().iter().filter(|file| !file.is_beside_the_code()) {
        let head: Vec<&str> = file.text.lines().take_while(|line| line.starts_with("//!")).collect();
        let head = head.join(" ").replace("//! ", "").to_lowercase();
        if !["must not know http", "must not know tensors, http"].iter().any(|words| head.contains(words)) {
            continue;
        }
        for (number, line) in file.code_lines() {
            if ["actix", "StatusCode", "HttpRe", "HeaderMap"].iter().any(|word| line.contains(word)) {
                findings.push(format!("{}:{number}: {}", file.path, line.trim()));
            }
        }
    }
    report("HTTP where it must not be known", &findings);
}
