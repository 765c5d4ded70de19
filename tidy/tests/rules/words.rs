//! Words that must not be in the tree: paths of somebody's machine, and promises to write it later.

use super::report;
use super::tree::files;

/// Spelled in two halves, so that this file passes its own test.
const MACHINE_PATHS: [(&str, &str); 4] = [("/ro", "ot/"), ("/wo", "rk/"), ("/tmp", "/w/"), ("/ho", "me/")];
const PROMISES: [(&str, &str); 4] = [("todo", "!("), ("unimple", "mented!("), ("FIX", "ME"), ("XX", "X:")];

/// A path starts a word: what ends another word, or follows a host's name, is no machine's.
fn names_a_machine(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + path.len()..].chars().next();
        let starts = before.is_none_or(|c| !(c.is_alphanumeric() || "._-}/".contains(c)));
        starts && after.is_some_and(|c| c.is_alphanumeric() || c == '.' || c == '_')
    })
}

#[test]
fn a_path_of_a_machine_is_told_from_a_part_of_an_address() {
    let path = format!("{}{}", MACHINE_PATHS[3].0, MACHINE_PATHS[3].1);
    assert!(names_a_machine(&format!("see {path}ann/x"), &path));
    assert!(!names_a_machine(&format!("https://example.org{path}ann"), &path));
    assert!(!names_a_machine(&format!("{path}<user>"), &path));
}

#[test]
fn no_file_names_a_machine_or_promises_code() {
    let (paths, words) =
        (MACHINE_PATHS.map(|(a, b)| format!("{a}{b}")), PROMISES.map(|(a, b)| format!("{a}{b}")));
    let mut findings = Vec::new();
    for file in files().iter().filter(|file| file.path != "Cargo.lock") {
        let is_rust = file.path.ends_with(".rs");
        for (line, number) in file.text.lines().zip(1..) {
            for path in &paths {
                if names_a_machine(line, path) {
                    findings.push(format!("{}:{number}: a path of a machine ({path})", file.path));
                }
            }
            for word in &words {
                if is_rust && line.contains(word) {
                    findings.push(format!("{}:{number}: {word}", file.path));
                }
            }
        }
    }
    report("forbidden words", &findings);
}
