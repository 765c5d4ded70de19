//! The files of the repository, and which of their lines are tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use syn::spanned::Spanned as _;

/// A text file of the repository.
pub(crate) struct File {
    /// Its path from the root, with `/`.
    pub(crate) path: String,
    /// What it holds.
    pub(crate) text: String,
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tidy lies in the root").to_owned()
}

/// All text files that git knows or would take; without git, all outside build folders.
pub(crate) fn files() -> Vec<File> {
    let root = root();
    let paths = listed_by_git(&root).unwrap_or_else(|| walked(&root));
    let read = |path: String| std::fs::read_to_string(root.join(&path)).ok().map(|text| File { path, text });
    let files: Vec<File> = paths.into_iter().filter_map(read).collect();
    assert!(files.iter().any(|file| file.path == "Cargo.toml"), "the repository's files were not found");
    files
}

/// The Rust files.
pub(crate) fn rust_files() -> Vec<File> {
    files().into_iter().filter(|file| file.path.ends_with(".rs")).collect()
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = output.status.success().then(|| String::from_utf8(output.stdout).ok())??;
    Some(text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

fn walked(root: &Path) -> Vec<String> {
    let skipped = ["target", ".git", ".venv", "node_modules", "artifacts", "dist"];
    let enter = |entry: &walkdir::DirEntry| !skipped.iter().any(|name| entry.file_name() == *name);
    let entries = walkdir::WalkDir::new(root).into_iter().filter_entry(enter).filter_map(Result::ok);
    let files = entries.filter(|entry| entry.file_type().is_file());
    files.filter_map(|entry| Some(entry.path().strip_prefix(root).ok()?.to_str()?.to_owned())).collect()
}

impl File {
    /// Whether the whole file is a test, a benchmark, an example or a build script.
    pub(crate) fn is_beside_the_code(&self) -> bool {
        ["/tests/", "/benches/", "/examples/"].iter().any(|folder| self.path.contains(folder))
            || ["tests.rs", "build.rs"].iter().any(|name| self.path.ends_with(&format!("/{name}")))
    }

    /// The file as syntax.
    pub(crate) fn syntax(&self) -> syn::File {
        syn::parse_file(&self.text).unwrap_or_else(|error| panic!("{}: {error}", self.path))
    }

    /// Lines (from 1) that are neither comments nor in test items.
    pub(crate) fn code_lines(&self) -> Vec<(usize, &str)> {
        let tests: Vec<_> = self.syntax().items.iter().filter(|item| is_test(item)).map(lines_of).collect();
        let is_code = |(number, line): &(usize, &str)| {
            !line.trim_start().starts_with("//") && !tests.iter().any(|lines| lines.contains(number))
        };
        self.text.lines().enumerate().map(|(i, line)| (i + 1, line)).filter(is_code).collect()
    }
}

fn lines_of(item: &syn::Item) -> std::ops::RangeInclusive<usize> {
    item.span().start().line..=item.span().end().line
}

/// Whether an item is compiled for tests alone.
pub(crate) fn is_test(item: &syn::Item) -> bool {
    let attributes = match item {
        syn::Item::Mod(module) => &module.attrs,
        syn::Item::Fn(function) => &function.attrs,
        syn::Item::Impl(block) => &block.attrs,
        syn::Item::Use(import) => &import.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| {
        let is_cfg_test = |list: &syn::MetaList| list.tokens.to_string() == "test";
        attribute.path().is_ident("cfg") && attribute.meta.require_list().is_ok_and(is_cfg_test)
    })
}

#[test]
fn code_lines_leave_out_comments_and_test_modules() {
    let text = "//! a\nfn f() {}\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\nfn h() {}\n";
    let file = File { path: "x/src/y.rs".into(), text: text.into() };
    assert_eq!(file.code_lines(), [(2, "fn f() {}"), (7, "fn h() {}")]);
}
