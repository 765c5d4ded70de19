//! Every module says what it does, first of all.

use super::report;
use super::tree::{is_test, rust_files};

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

/// What a caller can name says what it does. Fields, variants and private items need no sentence of their
/// own: one that only repeats the name is noise.
#[test]
fn every_public_item_is_documented() {
    let mut findings = Vec::new();
    for file in rust_files().iter().filter(|file| !file.is_beside_the_code() && file.path.contains("/src/")) {
        for item in file.syntax().items.iter().filter(|item| !is_test(item)) {
            check(&file.path, item, &mut findings);
        }
    }
    report("public items without ///", &findings);
}

fn check(path: &str, item: &syn::Item, findings: &mut Vec<String>) {
    let found = match item {
        syn::Item::Struct(item) => Some((&item.vis, &item.attrs, &item.ident)),
        syn::Item::Enum(item) => Some((&item.vis, &item.attrs, &item.ident)),
        syn::Item::Trait(item) => Some((&item.vis, &item.attrs, &item.ident)),
        syn::Item::Fn(item) => Some((&item.vis, &item.attrs, &item.sig.ident)),
        syn::Item::Const(item) => Some((&item.vis, &item.attrs, &item.ident)),
        syn::Item::Type(item) => Some((&item.vis, &item.attrs, &item.ident)),
        syn::Item::Impl(block) if block.trait_.is_none() => {
            for item in &block.items {
                if let syn::ImplItem::Fn(method) = item {
                    note(path, (&method.vis, &method.attrs, &method.sig.ident), findings);
                }
            }
            None
        }
        _ => None,
    };
    if let Some(item) = found {
        note(path, item, findings);
    }
}

fn note(
    path: &str,
    (visibility, attributes, name): (&syn::Visibility, &Vec<syn::Attribute>, &syn::Ident),
    findings: &mut Vec<String>,
) {
    let is_public = matches!(visibility, syn::Visibility::Public(_));
    let is_documented = attributes.iter().any(|attribute| attribute.path().is_ident("doc"));
    if is_public && !is_documented {
        findings.push(format!("{path}:{}: {name}", name.span().start().line));
    }
}
