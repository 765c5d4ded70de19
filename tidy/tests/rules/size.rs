//! Sizes: lists the largest files and functions; fails only far above what STYLE.md aims at.

use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

use super::report;
use super::tree::{File, rust_files};

const FILE_LINES_MAX: usize = 900;
const FUNCTION_LINES_MAX: usize = 150;
const LISTED: usize = 10;

/// Functions of a file, with their lines.
struct Functions<'a> {
    file: &'a File,
    found: Vec<(usize, String)>,
}

impl Functions<'_> {
    /// Notes a function, from its documentation to its last brace. The span of the whole would be made of all its tokens,
    /// which takes as long as to read them.
    fn add(
        &mut self,
        attributes: &[syn::Attribute],
        visibility: &syn::Visibility,
        signature: &syn::Signature,
        block: &syn::Block,
    ) {
        let first = match (attributes.first(), visibility) {
            (Some(attribute), _) => attribute.pound_token.span(),
            (None, syn::Visibility::Inherited) => signature.span(),
            (None, visibility) => visibility.span(),
        };
        let (start, end) = (first.start().line, block.brace_token.span.close().end().line);
        self.found.push((end + 1 - start, format!("{}:{start} {}", self.file.path, signature.ident)));
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(&function.attrs, &function.vis, &function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(&function.attrs, &function.vis, &function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }
}

/// Prints the largest, and gives those above the limit.
fn list(what: &str, mut sizes: Vec<(usize, String)>, limit: usize) -> Vec<String> {
    sizes.sort_by(|(lines, name), (other, later)| other.cmp(lines).then(name.cmp(later)));
    eprintln!("largest {what} (limit {limit} lines):");
    for (lines, name) in sizes.iter().take(LISTED) {
        eprintln!("  {lines:>5} {name}");
    }
    let above = sizes.into_iter().filter(|(lines, _)| *lines > limit);
    above.map(|(lines, name)| format!("{name}: {lines} lines")).collect()
}

#[test]
fn no_file_or_function_is_far_too_long() {
    let files = rust_files();
    let lines = files.iter().map(|file| (file.text.lines().count(), file.path.clone())).collect();
    let mut findings = list("files", lines, FILE_LINES_MAX);
    let mut functions = Vec::new();
    for file in &files {
        let mut visitor = Functions { file, found: Vec::new() };
        visitor.visit_file(&file.syntax());
        functions.append(&mut visitor.found);
    }
    findings.extend(list("functions", functions, FUNCTION_LINES_MAX));
    report("sizes", &findings);
}
