//! Every module says what it does, first of all.

use super::report;
use super::tree::rust_files;

#[test]
fn every_module_starts_with_its_documentation() {
    let is_missing = |text: &str| {
        let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("#!["));
        !first.is_some_and(|line| line.starts_with("//!"))
    };
    let missing: Vec<String> =
        rust_files().into_iter().filter(|file| is_missing(&file.text)).map(|file| file.path).collect();
    report("modules without //!", &missing);
}
