//! Span queries: golden rewritings, and the reference implementation's own cases.
//!
//! `span/golden/<case>.json` is a query and what rewriting goes by, `<case>.plan` the tree before, the tree
//! after, what each rule did, and the calls. `RELSERVE_BLESS=1 cargo test -p ir` writes the plans anew; read
//! the difference first.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ir::Rules;
use ir::span::{
    Found, Params, Plan, RULES, Retrieval, Rewriting, SpanError, SpanLimits, SpanQuery, explain,
    explain_rules, rewrite,
};
use serde::Deserialize;
use serde_json::Value;

/// A query, what was found for it, and the rules that are on.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpanQueryCase {
    query: Value,
    #[serde(default)]
    found: Vec<Search>,
    judges: Option<u32>,
    #[serde(default)]
    off: Vec<String>,
    only: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Search {
    corpus: String,
    query: String,
    k: u32,
    fragments: Vec<String>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/span")
}

fn text(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).expect("the case is there")
}

fn found(searches: Vec<Search>) -> Found {
    let found = searches.into_iter().map(|Search { corpus, query, k, fragments }| {
        let retrieval = Retrieval { corpus: corpus.into(), query: query.into(), k };
        (retrieval, fragments.into_iter().map(Arc::from).collect())
    });
    found.collect()
}

fn explained(case: SpanQueryCase) -> String {
    let query = SpanQuery::read(&case.query, &SpanLimits::default()).expect("a valid query");
    let found = found(case.found);
    let is_on = |name: &str| case.only.as_ref().is_none_or(|only| only.iter().any(|on| on == name));
    let off = RULES.iter().map(|rule| rule.name).filter(|name| !is_on(name));
    let off = off.chain(case.off.iter().map(String::as_str));
    let rules = off.fold(Rules::all(), |rules, name| rules.without(name));
    let with = Rewriting { rules, judges: case.judges, found: &found, limits: SpanLimits::default() };
    let before = explain(&query, &[]);
    let (rewritten, log) = rewrite(query, &with).expect("it can be rewritten");
    let (again, _) = rewrite(rewritten.clone(), &with).expect("and again");
    assert_eq!(again, rewritten, "a fixed point stays");
    let plan = match Plan::new(&rewritten) {
        Ok(plan) => plan.explain(),
        Err(error) => format!("{error}\n"),
    };
    format!("{before}\n{}\n{plan}", explain(&rewritten, &log))
}

#[test]
fn every_golden_rewriting_is_as_it_was() {
    let bless = std::env::var_os("RELSERVE_BLESS").is_some();
    let mut cases = 0;
    for entry in folder().join("golden").read_dir().expect("the golden folder is there") {
        let path = entry.expect("it can be listed").path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a case can be read");
        let found = explained(serde_json::from_str(&text).expect("a case is JSON"));
        check_golden(&path.with_extension("plan"), &found, bless);
        cases += 1;
    }
    assert!(cases >= 15, "only {cases} golden cases were found");
    check_golden(&folder().join("golden/rules.txt"), &explain_rules(), bless);
}

fn check_golden(golden: &Path, found: &str, bless: bool) {
    if bless {
        std::fs::write(golden, found).expect("a plan can be written");
    }
    let expected = std::fs::read_to_string(golden).unwrap_or_default();
    assert_eq!(found, expected, "{}", golden.display());
}

fn read(text: &str) -> Result<SpanQuery, SpanError> {
    SpanQuery::read(&serde_json::from_str(text).expect("it is JSON"), &SpanLimits::default())
}

/// Where and why a query is refused.
fn refused(text: &str) -> String {
    read(text).expect_err("it is refused").to_string()
}

fn parsed(text: &str) -> SpanQuery {
    read(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn the_reference_implementations_literals_are_read() {
    let mut cases = 0;
    for line in text("cases-serde.jsonl").lines().chain(text("cases-hlo.jsonl").lines()) {
        let case: Value = serde_json::from_str(line).expect("a case is JSON");
        let query = parsed(&case["input"].to_string());
        // An expected value is the same query with all defaults written out.
        match &case["expect"] {
            expected @ Value::Object(_) => assert_eq!(parsed(&expected.to_string()), query, "{line}"),
            _ => assert!(!explain(&query, &[]).is_empty()),
        }
        cases += 1;
    }
    assert_eq!(cases, 9);
}

#[test]
fn a_literal_is_what_its_test_says() {
    let messages = |text: &str| explain(&parsed(text), &[]);
    assert_eq!(
        messages(r#"{"plus":[{"user":"hello"},{"system":"world"}]}"#),
        "plus\n  user \"hello\" ~2\n  system \"world\" ~2\n"
    );
    let g = parsed(r#"{"g":{"model":"ollama/granite3.2:2b","input":{"user":"hello"}}}"#);
    let SpanQuery::Generate(g) = g else { panic!("a g is a generate") };
    let expected =
        Params { model: Some("ollama/granite3.2:2b".into()), temperature: 0.6, ..Params::default() };
    assert_eq!(*g.params, expected);
    assert_eq!(g.params.max_tokens, None, "0 and absent are the server's default");
}

#[test]
fn the_built_in_queries_are_refused_until_their_values_are_put_in() {
    for (name, calls) in [("email.json", 4), ("email2.json", 4), ("email3.json", 4)] {
        let text = text(name);
        let error = refused(&text);
        assert!(
            error.ends_with(".repeat.n`: must be a whole number from 1 to 255, not `{n}`"),
            "{name}: {error}"
        );
        let mut filled = text;
        for (field, value) in
            [("model", "m"), ("n", "3"), ("max_tokens", "100"), ("temperature", "0.3"), ("guidelines", "")]
        {
            filled = filled.replace(&format!("{{{field}}}"), value);
        }
        let found = Found::new();
        let with =
            Rewriting { rules: Rules::all(), judges: None, found: &found, limits: SpanLimits::default() };
        let (query, _) = rewrite(parsed(&filled), &with).expect("it can be rewritten");
        let plan = Plan::new(&query).expect("it can be planned");
        assert_eq!(plan.calls.len(), calls, "{name}: {}", plan.explain());
        assert_eq!(plan.calls[0].params.max_tokens, Some(100));
        assert_eq!(plan.calls[0].params.temperature, 0.3);
        let batches: Vec<u32> = plan.calls.iter().map(|call| call.batch).collect();
        assert_eq!(batches, [0, 0, 0, 1], "{name}: the candidates are one relQuery");
    }
}

/// The reference's documents show queries that its own parser does not take either.
#[test]
fn what_the_documents_show_and_the_reference_does_not_read_is_refused_by_name() {
    let bare = refused(r#"{"g":{"model":"m","input":[{"user":"a"}]}}"#);
    assert!(bare.starts_with("`$.g.input`: must be an object with one of the keys"), "{bare}");
    assert!(
        refused(r#"{"g":{"model":"m","input":{"ask":"Who?"}}}"#)
            .starts_with("`$.g.input`: `ask` is no node;")
    );
    assert!(refused(r#"{"seq":[{"file":"x.txt"}]}"#).starts_with("`$.seq[0]`: `file` is no node;"));
}
