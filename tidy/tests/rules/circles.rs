//! No import circles between the files of a crate, read from `use` lines and paths.
//!
//! A file imports another where it names something by `crate::`, `super::` or a child module's name. Between
//! a module and its own ancestors nothing is counted: a folder's `mod` shares its words with what lies in it.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;

use super::report;
use super::tree::{File, rust_files};

/// A module's path inside its crate; empty for `lib.rs`.
type Module = Vec<String>;

/// The module that a file of `CRATE/src` is.
fn module_of(path: &str) -> Option<(String, Module)> {
    let (name, rest) = path.split_once("/src/")?;
    let mut module: Module = rest.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
        module.pop();
    }
    (!name.contains('/') && module != ["main"]).then(|| (name.to_owned(), module))
}

/// Every path that a file names outside its tests, as its segments.
#[derive(Default)]
struct Paths(BTreeSet<Vec<String>>);

impl Paths {
    fn of_use(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |ident: &syn::Ident| [before, &[ident.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.of_use(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => drop(self.0.insert(with(&name.ident))),
            syn::UseTree::Rename(name) => drop(self.0.insert(with(&name.ident))),
            syn::UseTree::Glob(_) => drop(self.0.insert(before.to_vec())),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.of_use(before, item)),
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !super::tree::is_test(item) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.of_use(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.first().is_some_and(|first| first == "crate" || first == "super") {
            self.0.insert(segments);
        }
        syn::visit::visit_path(self, path);
    }
}

/// The module among `modules` that a path written in `from` leads to.
fn target(from: &Module, path: &[String], modules: &BTreeSet<Module>) -> Option<Module> {
    let mut place = from.clone();
    let mut rest = path;
    match rest.first()?.as_str() {
        "crate" => place.clear(),
        "self" | "super" => {}
        child => {
            let own = [&from[..], &[child.to_owned()]].concat();
            if !modules.contains(&own) {
                return None;
            }
        }
    }
    if matches!(rest[0].as_str(), "crate" | "self") {
        rest = &rest[1..];
    }
    while rest.first().is_some_and(|segment| segment == "super") {
        place.pop();
        rest = &rest[1..];
    }
    let whole = [&place[..], rest].concat();
    (0..=whole.len()).rev().map(|length| whole[..length].to_vec()).find(|module| modules.contains(module))
}

/// The imports of a crate's files.
fn imports(files: &[&File]) -> BTreeMap<Module, BTreeSet<Module>> {
    let modules: BTreeMap<Module, &File> =
        files.iter().filter_map(|file| Some((module_of(&file.path)?.1, *file))).collect();
    let names: BTreeSet<Module> = modules.keys().cloned().collect();
    let edges = modules.iter().map(|(from, file)| {
        let mut paths = Paths::default();
        paths.visit_file(&file.syntax());
        let is_own = |to: &Module| to.starts_with(from) || from.starts_with(to);
        let to = paths.0.iter().filter_map(|path| target(from, path, &names)).filter(|to| !is_own(to));
        (from.clone(), to.collect())
    });
    edges.collect()
}

/// The modules on each circle: those that reach one another.
fn circles(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<BTreeSet<Module>> {
    let reached = |from: &Module| {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&Module> = imports[from].iter().collect();
        while let Some(module) = open.pop() {
            if seen.insert(module.clone()) {
                open.extend(&imports[module]);
            }
        }
        seen
    };
    let reach: BTreeMap<&Module, BTreeSet<Module>> =
        imports.keys().map(|from| (from, reached(from))).collect();
    let mut found: Vec<BTreeSet<Module>> = Vec::new();
    for (from, others) in &reach {
        let back = others.iter().filter(|other| reach[other].contains(*from)).cloned();
        let circle: BTreeSet<Module> = back.collect();
        if circle.len() > 1 && !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}

#[test]
fn files_import_each_other_in_no_circle() {
    let files = rust_files();
    let mut crates: BTreeMap<String, Vec<&File>> = BTreeMap::new();
    for file in files.iter().filter(|file| !file.is_beside_the_code()) {
        if let Some((name, _)) = module_of(&file.path) {
            crates.entry(name).or_default().push(file);
        }
    }
    let mut findings = Vec::new();
    for (name, files) in &crates {
        for circle in circles(&imports(files)) {
            let modules: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            findings.push(format!("{name}: {}", modules.join(", ")));
        }
    }
    report("import circles", &findings);
}

#[test]
fn a_circle_is_found_across_folders_and_none_between_parent_and_child() {
    let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
    let files = [
        file("x/src/lib.rs", "mod a;\nmod b;\nuse a::A;\n"),
        file("x/src/a.rs", "mod inner;\nuse inner::I;\npub struct A;\n"),
        file("x/src/a/inner.rs", "use super::A;\nfn f() { crate::b::go() }\n"),
        file("x/src/b.rs", "#[cfg(test)]\nuse crate::a::A;\npub fn go() {}\n"),
    ];
    let all: Vec<&File> = files.iter().collect();
    assert!(circles(&imports(&all)).is_empty());
    let tied = file("x/src/b.rs", "use crate::a::inner::I;\npub fn go() {}\n");
    let all = [&files[0], &files[1], &files[2], &tied];
    let circle = circles(&imports(&all));
    assert_eq!(circle.len(), 1);
    assert!(circle[0].contains(&vec!["a".to_owned(), "inner".to_owned()]));
}
