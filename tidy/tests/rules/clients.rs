//! The table of docs/CLIENTS.md and the clients that are tried agree: the last column of each line names families of
//! tests/clients/openai, and each family has a line.

use std::collections::BTreeSet;

use super::report;
use super::tree::files;

const DOCUMENT: &str = "docs/CLIENTS.md";
/// The table's head. A line of dashes follows, then the clients.
const HEAD: &str = "| client | set | works | does not | test |";
const FOLDER: &str = "tests/clients/openai/";

/// The last column of a table's row.
fn last_column(line: &str) -> Option<&str> {
    line.strip_prefix("| ")?.strip_suffix(" |")?.rsplit(" | ").next()
}

/// The last columns of the table, each with the number of its line.
fn last_columns(document: &str) -> Vec<(usize, &str)> {
    let lines = document.lines().zip(1..).skip_while(|(line, _)| *line != HEAD).skip(2);
    lines.map_while(|(line, number)| Some((number, last_column(line)?))).collect()
}

/// What is wrong with the document, beside the names of the folder's files.
fn check(document: &str, names: &[&str]) -> Vec<String> {
    // Clients in Node are one family, in a folder of its own.
    let families = |start: &str, end: &str, in_node: &str| -> BTreeSet<String> {
        let family = |name: &&str| {
            let own = name.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
            own.or((*name == in_node).then_some("node")).map(str::to_owned)
        };
        names.iter().filter_map(family).collect()
    };
    let lists = families("requirements-", ".txt", "node/package.json");
    let tests = families("test_", ".py", "node/attempts.mjs");
    let halves = lists.symmetric_difference(&tests);
    let mut findings: Vec<String> =
        halves.map(|family| format!("{FOLDER}: {family}: a list of packages or a test, not both")).collect();
    let mut told = BTreeSet::new();
    for (number, column) in last_columns(document) {
        let named: Vec<&str> = column.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            findings.push(format!("{DOCUMENT}:{number}: no family"));
        }
        for family in named {
            if !tests.contains(family) {
                findings.push(format!("{DOCUMENT}:{number}: {family} is not tried"));
            }
            told.insert(family.to_owned());
        }
    }
    findings.extend(tests.difference(&told).map(|family| format!("{DOCUMENT}: no line for {family}")));
    findings
}

#[test]
fn each_client_of_the_table_is_tried_and_each_that_is_tried_has_a_line() {
    let all = files();
    let document = all.iter().find(|file| file.path == DOCUMENT).expect("the document is there");
    let names: Vec<&str> = all.iter().filter_map(|file| file.path.strip_prefix(FOLDER)).collect();
    assert!(last_columns(&document.text).len() >= 30, "the table was not found");
    report("clients that are told and not tried, or tried and not told", &check(&document.text, &names));
}

#[test]
fn lines_and_families_that_lack_each_other_are_found() {
    let table =
        |rows: &str| format!("text\n\n{HEAD}\n| --- | --- | --- | --- | --- |\n{rows}\nend\n| x | `y` |\n");
    let names = ["requirements-a.txt", "test_a.py", "node/package.json", "node/attempts.mjs", "run.sh"];
    let rows = "| A 1 | - | chats | - | `a` |\n| B 2 | - | chats | - | `node` |";
    assert_eq!(check(&table(rows), &names), [""; 0]);
    let untested = [&names[..], &["requirements-b.txt"]].concat();
    assert_eq!(
        check(&table(rows), &untested),
        [format!("{FOLDER}: b: a list of packages or a test, not both")]
    );
    let wrong = "| A 1 | - | chats | - | `a` |\n| C 3 | - | chats | - | `c` |\n| D 4 | - | chats | - | - |";
    let findings = [
        "docs/CLIENTS.md:6: c is not tried",
        "docs/CLIENTS.md:7: no family",
        "docs/CLIENTS.md: no line for node",
    ];
    assert_eq!(check(&table(wrong), &names), findings);
}
