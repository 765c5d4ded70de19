//! TypeScript and JavaScript: a package imports its own files by path and other packages by name, and no
//! files of a package import each other in a circle. Reads the `from "./..."` of the import lines; knows no
//! syntax beyond them.

use std::collections::{BTreeMap, BTreeSet};

use super::report;
use super::tree::{File, files};

const ENDINGS: [&str; 5] = [".ts", ".tsx", ".mts", ".mjs", ".js"];
/// What stands before the quoted path of an import.
const IMPORTS: [&str; 4] = ["from \"", "import \"", "import(\"", "require(\""];

/// The scripts of the tree.
fn scripts() -> Vec<File> {
    let is_script = |file: &File| ENDINGS.iter().any(|ending| file.path.ends_with(ending));
    files().into_iter().filter(is_script).collect()
}

/// The folders that are packages.
fn packages() -> BTreeSet<String> {
    let manifests = files().into_iter().map(|file| file.path);
    manifests.filter_map(|path| Some(path.strip_suffix("/package.json")?.to_owned())).collect()
}

/// The innermost package that a path lies in.
fn package_of<'a>(packages: &'a BTreeSet<String>, path: &str) -> Option<&'a str> {
    let is_around =
        |folder: &&String| path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'));
    packages.iter().filter(is_around).map(String::as_str).max_by_key(|folder| folder.len())
}

/// The relative paths that a file imports, from the root, with the numbers of their lines.
fn relative_imports(file: &File) -> Vec<(usize, String)> {
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut found = Vec::new();
    for (line, number) in file.text.lines().zip(1..) {
        if line.trim_start().starts_with("//") {
            continue;
        }
        let paths = IMPORTS.iter().flat_map(|start| line.split(start).skip(1));
        let paths = paths.filter_map(|rest| rest.split('"').next()).filter(|path| path.starts_with('.'));
        found.extend(paths.map(|path| (number, joined(folder, path))));
    }
    found
}

/// A relative path from a folder; one that leaves the tree keeps its `..`.
fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            other => parts.push(other),
        }
    }
    parts.join("/")
}

/// The files on a way from `start` back to itself, if there is one.
fn circle<'a>(imports: &'a BTreeMap<String, Vec<String>>, start: &'a str) -> Option<Vec<&'a str>> {
    let mut ways = vec![vec![start]];
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop() {
        let last = way.last().expect("a way has a start");
        for next in imports.get(*last).into_iter().flatten() {
            if next == start {
                return Some(way);
            }
            if seen.insert(next) {
                ways.push([way.as_slice(), &[next]].concat());
            }
        }
    }
    None
}

#[test]
fn paths_are_joined_from_the_importing_file() {
    assert_eq!(joined("a/b/src", "../../c/x"), "a/c/x");
    assert_eq!(joined("a", "./x"), "a/x");
    assert_eq!(joined("a", "../../x"), "../x");
}

#[test]
fn relative_imports_stay_in_their_package() {
    let packages = packages();
    assert!(packages.contains("client"), "the packages were not found");
    let mut findings = Vec::new();
    for file in scripts() {
        let Some(package) = package_of(&packages, &file.path) else { continue };
        for (number, path) in relative_imports(&file) {
            if package_of(&packages, &path) != Some(package) {
                findings.push(format!(
                    "{}:{number}: imports {path}, outside of the package {package}",
                    file.path
                ));
            }
        }
    }
    report("imports by path across packages", &findings);
}

#[test]
fn no_scripts_import_each_other_in_a_circle() {
    let scripts = scripts();
    let named = |path: &str| {
        let with = |ending: &str| scripts.iter().find(|file| file.path == format!("{path}{ending}"));
        std::iter::once("").chain(ENDINGS).find_map(with).map(|file| file.path.clone())
    };
    let imported = |file: &File| relative_imports(file).iter().filter_map(|(_, path)| named(path)).collect();
    let imports: BTreeMap<String, Vec<String>> =
        scripts.iter().map(|file| (file.path.clone(), imported(file))).collect();
    assert!(imports.values().flatten().count() > 100, "the imports were not found");
    let findings: Vec<String> =
        imports.keys().filter_map(|file| Some(circle(&imports, file)?.join(" -> "))).collect();
    report("circles of imports", &findings);
}
