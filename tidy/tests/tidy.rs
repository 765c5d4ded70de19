//! Style as tests: import directions, module documentation, forbidden words, links of documents, tests and
//! clients that they name, who may read the clock and the environment, sizes. STYLE.md says why; a rule that is
//! wrong is changed in the commit that breaks it.

#[path = "rules/circles.rs"]
mod circles;
#[path = "rules/clients.rs"]
mod clients;
#[path = "rules/dashboards.rs"]
mod dashboards;
#[path = "rules/docs.rs"]
mod docs;
#[path = "rules/edges.rs"]
mod edges;
#[path = "rules/imports.rs"]
mod imports;
#[path = "rules/links.rs"]
mod links;
#[path = "rules/named_tests.rs"]
mod named_tests;
#[path = "rules/packages.rs"]
mod packages;
#[path = "rules/size.rs"]
mod size;
#[path = "rules/tree.rs"]
mod tree;
#[path = "rules/vocabulary.rs"]
mod vocabulary;
#[path = "rules/words.rs"]
mod words;

/// Fails with all findings at once.
fn report(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}
