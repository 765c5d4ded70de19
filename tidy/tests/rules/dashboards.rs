//! Dashboards ask for metrics that exist.

use std::collections::BTreeSet;

use super::report;
use super::tree::{File, files};

/// Names of our metrics in a text, without the suffixes that the exposition format adds.
fn metrics(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = text.split(|c: char| !is_name(c));
    let ours = words.filter(|word| ["relserve_", "vllm:"].iter().any(|lead| word.starts_with(lead)));
    let base = |word: &str| {
        let suffixes = ["_bucket", "_sum", "_count"];
        suffixes.iter().find_map(|suffix| word.strip_suffix(suffix)).unwrap_or(word).to_owned()
    };
    ours.map(base).collect()
}

#[test]
fn names_are_found_without_their_suffixes() {
    let found = metrics("rate(relserve_step_seconds_bucket{le=\"1\"}[5m]) + vllm:num_requests_running - up");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["relserve_step_seconds", "vllm:num_requests_running"]);
}

#[test]
fn dashboards_name_real_metrics() {
    let files = files();
    let is_source = |file: &&File| file.path.starts_with("gateway/src/metrics");
    let known: BTreeSet<String> =
        files.iter().filter(is_source).flat_map(|file| metrics(&file.text)).collect();
    let is_dashboard =
        |file: &&File| file.path.starts_with("dashboards/") && !file.path.starts_with("dashboards/web/");
    let mut findings = Vec::new();
    for file in files.iter().filter(is_dashboard).filter(|_| !known.is_empty()) {
        let unknown = metrics(&file.text).into_iter().filter(|name| !known.contains(name));
        findings.extend(unknown.map(|name| format!("{}: {name}", file.path)));
    }
    report("dashboards with unknown metrics", &findings);
}
