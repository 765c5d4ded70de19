//! Dashboards and rules ask for metrics that exist, by labels that exist, and no panel asks for nothing.

use std::collections::BTreeSet;

use super::report;
use super::tree::{File, files};

/// Labels that Prometheus itself gives, and the bounds of histograms.
const GIVEN: [&str; 3] = ["le", "instance", "job"];

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

fn is_ours(word: &str) -> bool {
    ["relserve_", "vllm:"].iter().any(|lead| word.starts_with(lead))
}

/// Names of our metrics in a text, without the suffixes that the exposition format adds.
fn metrics(text: &str) -> BTreeSet<String> {
    let base = |word: &str| {
        let suffixes = ["_bucket", "_sum", "_count"];
        suffixes.iter().find_map(|suffix| word.strip_suffix(suffix)).unwrap_or(word).to_owned()
    };
    text.split(|c: char| !is_name(c)).filter(|word| is_ours(word)).map(base).collect()
}

/// Labels by which a PromQL text chooses or groups.
fn labels(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut rest = text;
    while let Some(open) = rest.find(['{', '(']) {
        let (before, inner) = (rest[..open].trim_end(), &rest[open + 1..]);
        let word = before.rsplit(|c: char| !is_name(c)).next().unwrap_or_default();
        let close = inner.find(['}', ')']).unwrap_or(inner.len());
        let is_choice = rest[open..].starts_with('{');
        if is_choice && before.len() == open && (is_ours(word) || word == "up") {
            let names = inner[..close].split(',').filter_map(|matcher| matcher.split(['=', '!']).next());
            found.extend(names.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()));
        } else if !is_choice && ["by", "without", "ignoring", "on", "group_left"].contains(&word) {
            let names = inner[..close].split(',').map(|name| name.trim().to_owned());
            found.extend(names.filter(|name| !name.is_empty()));
        }
        rest = inner;
    }
    found
}

/// Names of recorded series in a text: words with colons that are no metric's.
fn recorded(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !is_name(c)).map(|word| word.trim_end_matches(':'));
    words.filter(|word| word.contains(':') && word.contains("relserve_")).map(str::to_owned).collect()
}

/// Title and expressions of the panels of a dashboard.
fn panels(file: &File) -> Vec<(String, Vec<String>)> {
    let board: serde_json::Value =
        serde_json::from_str(&file.text).unwrap_or_else(|error| panic!("{}: {error}", file.path));
    let panel = |panel: &serde_json::Value| {
        let targets = panel["targets"].as_array().map(Vec::as_slice).unwrap_or_default();
        let expressions = targets.iter().map(|target| target["expr"].as_str().unwrap_or_default().to_owned());
        (panel["title"].as_str().unwrap_or_default().to_owned(), expressions.collect())
    };
    board["panels"].as_array().map(Vec::as_slice).unwrap_or_default().iter().map(panel).collect()
}

/// What asks for metrics: dashboards, rules and lists, not the texts about them.
fn asking(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| {
        let is_asked = [".json", ".yml", ".toml"].iter().any(|end| file.path.ends_with(end));
        file.path.starts_with("dashboards/") && !file.path.starts_with("dashboards/web/") && is_asked
    })
}

fn sources(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.path.starts_with("serving/src/metrics"))
}

#[test]
fn names_are_found_without_their_suffixes() {
    let found = metrics("rate(relserve_step_seconds_bucket{le=\"1\"}[5m]) + vllm:num_requests_running - up");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["relserve_step_seconds", "vllm:num_requests_running"]);
}

#[test]
fn labels_are_found_where_series_are_chosen_and_grouped() {
    let text = "sum by (a, b) (rate(relserve_x{c=\"1\", d!~\"{e}\"}[5m])) / ignoring (f) group_left () up{job=\"g\"}";
    let found = labels(text);
    assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), ["a", "b", "c", "d", "f", "job"]);
    assert!(labels("labels: {severity: critical} on {{ $labels.z }} sum(relserve_x)").is_empty());
    let text = "record: instance:relserve_x:p95\nexpr: instance:relserve_x:p95 > vllm:y";
    assert_eq!(recorded(text).into_iter().collect::<Vec<_>>(), ["instance:relserve_x:p95"]);
}

#[test]
fn dashboards_name_real_metrics() {
    let files = files();
    let known: BTreeSet<String> = sources(&files).flat_map(|file| metrics(&file.text)).collect();
    let mut findings = Vec::new();
    for file in asking(&files) {
        let unknown = metrics(&file.text).into_iter().filter(|name| !known.contains(name));
        findings.extend(unknown.map(|name| format!("{}: {name}", file.path)));
    }
    report("dashboards with unknown metrics", &findings);
}

#[test]
fn every_panel_asks_for_a_metric_by_labels_that_exist() {
    let files = files();
    let source: String = sources(&files).map(|file| file.text.as_str()).collect();
    let is_known =
        |label: &String| GIVEN.contains(&label.as_str()) || source.contains(&format!("\"{label}\""));
    let mut findings = Vec::new();
    let mut seen = 0;
    for file in asking(&files).filter(|file| file.path.ends_with(".json")) {
        for (title, expressions) in panels(file) {
            seen += 1;
            let place = format!("{}: {title:?}", file.path);
            if title.is_empty() || expressions.is_empty() {
                findings.push(format!("{place} has no title or asks for nothing"));
            }
            for expression in expressions {
                if metrics(&expression).is_empty() && !expression.contains("up{") {
                    findings.push(format!("{place} names no metric: {expression:?}"));
                }
                let unknown = labels(&expression).into_iter().filter(|label| !is_known(label));
                findings.extend(unknown.map(|label| format!("{place}: label {label}")));
            }
        }
    }
    assert!(seen > 20, "{seen} panels were found");
    report("panels", &findings);
}

#[test]
fn rules_choose_by_labels_that_exist_and_name_only_what_is_recorded() {
    let files = files();
    let source: String = sources(&files).map(|file| file.text.as_str()).collect();
    let is_known =
        |label: &String| GIVEN.contains(&label.as_str()) || source.contains(&format!("\"{label}\""));
    let rules = files.iter().find(|file| file.path == "dashboards/prometheus/rules.yml").expect("the rules");
    let made: BTreeSet<&str> =
        rules.text.lines().filter_map(|line| line.trim().strip_prefix("- record: ")).collect();
    let mut findings: Vec<String> =
        recorded(&rules.text).into_iter().filter(|name| !made.contains(name.as_str())).collect();
    findings.extend(labels(&rules.text).into_iter().filter(|label| !is_known(label)));
    assert!(made.len() > 3, "{} recorded", made.len());
    report("rules with unknown names or labels", &findings);
}
