//! Structs and enums of the configuration as their sources have them: names, types and `///` texts.
//!
//! Serde's attributes are read as far as the configuration uses them; what is not known here fails the test.

use std::collections::BTreeMap;
use std::path::Path;

use syn::{Attribute, Expr, Fields, GenericArgument, Item, Lit, Meta, PathArguments, Type};

/// Crates that hold sections of the configuration.
const CRATES: [&str; 5] = ["engine", "gateway", "ir", "scheduler", "serving"];

/// A struct whose unknown fields are refused: a section.
pub struct ConfigSection {
    pub meaning: String,
    pub keys: Vec<Key>,
}

/// A field of a section.
pub struct Key {
    pub name: String,
    pub meaning: String,
    pub is_optional: bool,
    pub kind: KeyKind,
}

/// What a key holds.
pub enum KeyKind {
    /// A type that is written as it is.
    Plain(String),
    /// A section or words, by the name of the struct or enum.
    Named(String),
    /// Sections, `[[so]]`.
    Many(String),
}

/// A word that a key may hold.
pub struct Word {
    pub name: String,
    pub meaning: String,
}

/// All sections and words, by the names of their types.
#[derive(Default)]
pub struct Sources {
    pub sections: BTreeMap<String, ConfigSection>,
    pub words: BTreeMap<String, Vec<Word>>,
}

impl Sources {
    pub fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut sources = Self::default();
        for folder in CRATES {
            for entry in walkdir::WalkDir::new(root.join(folder).join("src")).sort_by_file_name() {
                let path = entry.unwrap().into_path();
                if path.extension().is_some_and(|extension| extension == "rs") {
                    let file = syn::parse_file(&std::fs::read_to_string(&path).unwrap()).unwrap();
                    file.items.iter().for_each(|item| sources.take(item));
                }
            }
        }
        sources
    }

    fn take(&mut self, item: &Item) {
        match item {
            Item::Struct(item) if serde(&item.attrs).contains_key("deny_unknown_fields") => {
                let Fields::Named(fields) = &item.fields else { panic!("{}: fields have names", item.ident) };
                let keys = fields.named.iter().map(key).collect();
                let section = ConfigSection { meaning: meaning(&item.attrs), keys };
                let twin = self.sections.insert(item.ident.to_string(), section);
                assert!(twin.is_none(), "two sections are called {}", item.ident);
            }
            Item::Enum(item) if has_words(item) => {
                let rule = serde(&item.attrs).remove("rename_all");
                let mut words: Vec<Word> =
                    item.variants.iter().map(|variant| word(variant, rule.as_deref())).collect();
                if item.ident == "Policy" {
                    // Its names are read by rules of its own, which know old names too.
                    for (word, policy) in words.iter_mut().zip(scheduler::Policy::WITH_VARIANTS) {
                        word.name = policy.name().to_owned();
                    }
                }
                let twin = self.words.insert(item.ident.to_string(), words);
                assert!(twin.is_none(), "two enums of words are called {}", item.ident);
            }
            _ => {}
        }
    }
}

/// Whether an enum is read from plain words.
fn has_words(item: &syn::ItemEnum) -> bool {
    let is_read = item.attrs.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("derive") && list.tokens.to_string().contains("Deserialize"),
        _ => false,
    });
    let is_plain = item.variants.iter().all(|variant| matches!(variant.fields, Fields::Unit));
    is_read && is_plain
}

fn key(field: &syn::Field) -> Key {
    let own = field.ident.as_ref().unwrap().to_string();
    let (is_optional, of) = match argument(&field.ty, "Option") {
        Some(inner) => (true, inner),
        None => (false, &field.ty),
    };
    let kind = match argument(of, "Vec") {
        Some(inner) if last(inner) == "String" => KeyKind::Plain("list of texts".into()),
        Some(inner) if last(inner) == "SocketAddr" => KeyKind::Plain("list of addresses and ports".into()),
        Some(inner) => KeyKind::Many(last(inner)),
        None => plain(&own, of).map_or_else(|| KeyKind::Named(last(of)), KeyKind::Plain),
    };
    let name = serde(&field.attrs).remove("rename").unwrap_or(own);
    Key { name, meaning: meaning(&field.attrs), is_optional, kind }
}

/// How values of a plain type are written, with their unit.
fn plain(name: &str, of: &Type) -> Option<String> {
    if matches!(of, Type::Array(_)) {
        return Some("list of numbers".into());
    }
    let units = [("tokens", "tokens"), ("bytes", "bytes"), ("permille", "thousandths"), ("blocks", "blocks")];
    let unit = units.iter().find(|(part, _)| name.split('_').any(|word| word == *part));
    let text = match last(of).as_str() {
        "Millis" => "ms",
        "Bytes" => "bytes",
        "TokenCount" => "tokens",
        "f64" if name.ends_with("_price") => "number",
        "u16" | "u32" | "u64" | "usize" => unit.map_or("number", |(_, unit)| unit),
        "f64" => "fraction",
        "bool" => "boolean",
        "BTreeMap" => "table of texts",
        "String" => "text",
        "PathBuf" => "path",
        "SocketAddr" => "address and port",
        "Secret" => "secret text",
        // Enums that are read from a text by rules of their own.
        "Device" => "text",
        _ => return None,
    };
    Some(text.into())
}

/// `T` of `Option<T>`, where `outer` is `Option`.
fn argument<'a>(of: &'a Type, outer: &str) -> Option<&'a Type> {
    let Type::Path(path) = of else { return None };
    let segment = path.path.segments.last().filter(|segment| segment.ident == outer)?;
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(inner)) => Some(inner),
        _ => None,
    }
}

/// A type's name without its path.
fn last(of: &Type) -> String {
    match of {
        Type::Path(path) => path.path.segments.last().unwrap().ident.to_string(),
        _ => "type without a name".to_owned(),
    }
}

fn word(variant: &syn::Variant, rule: Option<&str>) -> Word {
    let own = variant.ident.to_string();
    let cut = |between: &str| {
        let parts = own.char_indices().map(|(at, c)| match c.is_uppercase() && at > 0 {
            true => format!("{between}{}", c.to_ascii_lowercase()),
            false => c.to_ascii_lowercase().to_string(),
        });
        parts.collect::<String>()
    };
    let name = serde(&variant.attrs).remove("rename").unwrap_or_else(|| match rule {
        Some("snake_case") => cut("_"),
        Some("kebab-case") => cut("-"),
        Some("lowercase") => cut(""),
        Some(other) => panic!("rename_all = {other:?} is not known here"),
        None => own.clone(),
    });
    Word { name, meaning: meaning(&variant.attrs) }
}

/// The `#[serde(..)]` of something: names, and values where they have one.
fn serde(attributes: &[Attribute]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        let read = attribute.parse_nested_meta(|meta| {
            let name = meta.path.require_ident()?.to_string();
            let value = match meta.value() {
                Ok(value) => value.parse::<syn::LitStr>()?.value(),
                Err(_) => String::new(),
            };
            found.insert(name, value);
            Ok(())
        });
        read.unwrap();
    }
    found
}

/// The `///` text in one line, its links to code as code.
fn meaning(attributes: &[Attribute]) -> String {
    let mut lines = Vec::new();
    for attribute in attributes {
        if let Meta::NameValue(pair) = &attribute.meta
            && pair.path.is_ident("doc")
            && let Expr::Lit(text) = &pair.value
            && let Lit::Str(text) = &text.lit
        {
            lines.push(text.value().trim().to_owned());
        }
    }
    let mut text = lines.join(" ").trim().replace("[`crate::", "[`");
    while let Some(start) = text.find("[`") {
        let end = start + text[start..].find("`]").expect("a link ends");
        let mut rest = &text[end + 2..];
        if let Some(target) = rest.strip_prefix('(') {
            rest = target.split_once(')').expect("a link's target ends").1;
        }
        text = format!("{}{}`{rest}", &text[..start], &text[start + 1..end]);
    }
    text
}
