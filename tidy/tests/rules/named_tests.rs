//! Tests that documents name are there: the last column of the tables of faults and of threats has files, and
//! behind each the tests in it.

use super::report;
use super::tree::files;

/// Documents whose tables name tests.
const DOCUMENTS: [&str; 2] = ["docs/FAULTS.md", "docs/SECURITY.md"];
/// What stands in the last column of a row that has none.
const NONE: &str = "no test";

/// The last column of a row; nothing of what is no row, or the head of a table.
fn last_column(line: &str) -> Option<&str> {
    let cell = line.strip_prefix("| ")?.strip_suffix(" |")?.rsplit(" | ").next()?;
    (!["tests", "---"].contains(&cell)).then_some(cell)
}

/// The tests that a column names, each with the file before it.
fn named(column: &str) -> Vec<(&str, &str)> {
    let (mut file, mut tests) = ("", Vec::new());
    for text in column.split('`').skip(1).step_by(2) {
        match text.ends_with(".rs") {
            true => file = text,
            false => tests.push((file, text)),
        }
    }
    tests
}

/// Whether a file has this test. Macros make some, of a name and a number.
fn has_test(text: &str, name: &str) -> bool {
    text.contains(&format!("fn {name}(")) || text.contains(&format!(" {name} = "))
}

#[test]
fn every_test_that_a_document_names_is_in_its_file() {
    let all = files();
    let text_of = |path: &str| all.iter().find(|file| file.path == path).map(|file| file.text.as_str());
    let mut findings = Vec::new();
    for document in DOCUMENTS {
        let text = text_of(document).expect("the document is there");
        for (line, number) in text.lines().zip(1..) {
            let Some(column) = last_column(line) else { continue };
            let tests = named(column);
            if tests.is_empty() && column != NONE {
                findings.push(format!("{document}:{number}: neither a test nor `{NONE}`"));
            }
            for (path, name) in tests {
                if !text_of(path).is_some_and(|text| has_test(text, name)) {
                    findings.push(format!("{document}:{number}: {path}: {name}"));
                }
            }
        }
    }
    report("tests that documents name and files do not have", &findings);
}

#[test]
fn files_and_tests_are_read_from_the_last_column() {
    let line = "| a `word` | does it | `x/y.rs`: `one`, `two`; `z.rs`: `three` |";
    let column = last_column(line).expect("a row");
    assert_eq!(named(column), [("x/y.rs", "one"), ("x/y.rs", "two"), ("z.rs", "three")]);
    assert!(["| threat | tests |", "| --- | --- |", "prose"].iter().all(|line| last_column(line).is_none()));
    assert_eq!(last_column("| a | no test |").map(named), Some(Vec::new()));
    assert!(has_test("async fn one() {}", "one") && has_test("    one = 3;", "one"));
    assert!(!has_test("fn one_more() {}", "one"));
}
