//! Names that are gone stay gone: those of the glossary's last table, as identifiers and as keys.
//!
//! Names alone are read, never sentences: nobody stops a comment from saying "keep" or "room".

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Literal, TokenStream, TokenTree};

use super::report;
use super::tree::{File, files};

const GLOSSARY: &str = "docs/GLOSSARY.md";
const HEADING: &str = "## Names that are gone";
/// Words in a name from which on it is a sentence, as tests have for names.
const SENTENCE: usize = 5;
/// What tells old names from new ones, so has to know both.
const EXEMPT: [&str; 1] = ["/renamed.rs"];

/// A row of the table.
struct Gone {
    old: String,
    /// What it is called now.
    now: String,
    /// The crates that it is gone from; none: all.
    crates: Vec<String>,
}

/// Old names of the table: in back-ticks in its first column. A capital says that a type or variant is meant.
fn gone_names(glossary: &str) -> Vec<Gone> {
    let table = glossary.split_once(HEADING).expect("the glossary has the table").1;
    let rows = table.lines().filter(|line| line.starts_with("| ")).filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [old, now, crates] = cells[..] else { panic!("{GLOSSARY}: not three columns: {line}") };
        (!["was", "---"].contains(&old)).then_some((old, now, crates))
    });
    let gone = |(old, now, crates): (&str, &str, &str)| {
        let (now, crates) = (now.replace('`', ""), quoted(crates));
        quoted(old).into_iter().map(move |old| Gone { old, now: now.clone(), crates: crates.clone() })
    };
    rows.flat_map(gone).collect()
}

impl Gone {
    /// Whether names of this crate must not be this one, nor have it among their words.
    fn is_from(&self, home: &str) -> bool {
        self.crates.is_empty() || self.crates.iter().any(|one| one == home)
    }
}

/// The texts in back-ticks.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The words of a name: `LiveShelf` and `live_shelf` have `live` and `shelf`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for letter in name.chars() {
        if letter == '_' || letter.is_uppercase() && !name.chars().all(|c| !c.is_lowercase()) {
            words.push(String::new());
        }
        if letter != '_' {
            words.last_mut().expect("one is there").extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether an identifier is an old name, or has it among its words.
fn has(identifier: &str, old: &str) -> bool {
    if !identifier.to_lowercase().contains(&words(old)[0]) {
        return false; // most of them, cheaply
    }
    let [own, old_words] = [words(identifier), words(old)];
    let is_type = |name: &str| name.starts_with(|first: char| first.is_uppercase());
    own.len() < SENTENCE
        && (!is_type(old) || is_type(identifier))
        && own.windows(old_words.len()).any(|some| some == old_words)
}

/// Names, each with the line where it stands first.
type Names = BTreeMap<String, usize>;

fn note(found: &mut Names, name: String, line: usize) {
    found.entry(name).or_insert(line);
}

/// Identifiers, and texts that are a key: one word between quotes.
fn names_of(tokens: TokenStream, found: &mut Names) {
    for token in tokens {
        let line = token.span().start().line;
        match token {
            TokenTree::Group(group) => names_of(group.stream(), found),
            TokenTree::Ident(ident) => note(found, ident.to_string(), line),
            TokenTree::Literal(literal) => {
                key(&literal).into_iter().for_each(|key| note(found, key, line));
            }
            TokenTree::Punct(_) => {}
        }
    }
}

/// A text that can be a field's name with more than one word. Texts of one word may as well be prose.
fn key(literal: &Literal) -> Option<String> {
    let text = literal.to_string();
    let text = text.strip_prefix('"')?.strip_suffix('"')?;
    let is_name = text.contains('_') && text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    is_name.then(|| text.to_owned())
}

/// Keys of a TOML file, of all its tables.
fn keys_of(table: &toml::Table, found: &mut Names) {
    for (key, value) in table {
        note(found, key.clone(), 0);
        let inner = match value {
            toml::Value::Table(inner) => vec![inner],
            toml::Value::Array(list) => list.iter().filter_map(toml::Value::as_table).collect(),
            _ => Vec::new(),
        };
        inner.into_iter().for_each(|inner| keys_of(inner, found));
    }
}

fn names_in(file: &File) -> Names {
    let mut found = Names::new();
    if let Some(path) = file.path.strip_suffix(".rs") {
        path.split('/').for_each(|part| note(&mut found, part.to_owned(), 0));
        let tokens = file.text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.path));
        names_of(tokens, &mut found);
    } else if file.path.ends_with(".toml") {
        keys_of(&file.text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.path)), &mut found);
    } else if file.path.ends_with(".ts") {
        // No syntax is known here: fields of more than one word are told from prose by their underscore.
        for (line, number) in file.text.lines().zip(1..) {
            let names = line.split(|c: char| c != '_' && !c.is_alphanumeric());
            names.filter(|name| name.contains('_')).for_each(|name| note(&mut found, name.into(), number));
        }
    }
    found
}

#[test]
fn no_name_that_is_gone_comes_back() {
    let files = files();
    let glossary = files.iter().find(|file| file.path == GLOSSARY).expect("the glossary is there");
    let gone = gone_names(&glossary.text);
    // What each name has of them: most names stand in many files.
    let mut known: BTreeMap<String, Vec<&Gone>> = BTreeMap::new();
    let mut findings = BTreeSet::new();
    for file in files.iter().filter(|file| !EXEMPT.iter().any(|name| file.path.ends_with(name))) {
        let home = file.path.split('/').next().unwrap_or_default();
        for (name, line) in names_in(file) {
            let had = known
                .entry(name.clone())
                .or_insert_with(|| gone.iter().filter(|gone| has(&name, &gone.old)).collect());
            for Gone { old, now, .. } in had.iter().filter(|gone| gone.is_from(home)) {
                findings.insert(format!("{}:{line}: `{name}` has `{old}`, which is now: {now}", file.path));
            }
        }
    }
    report("names that are gone", &findings.into_iter().collect::<Vec<_>>());
}

#[test]
fn a_name_is_told_from_a_sentence_and_a_type_from_a_word() {
    let yes = [("live_shelf", "shelf"), ("LiveShelf", "shelf"), ("SHELF_MAX", "shelf"), ("Shelf", "Shelf")];
    assert!(yes.iter().all(|(name, old)| has(name, old)));
    assert!(has("cut_of", "cut_of") && has("cut_of_all", "cut_of") && !has("cut", "cut_of"));
    assert!(!has("desk", "Desk"), "a type is gone, not the word");
    assert!(!has("a_reader_is_at_the_shelf", "shelf"), "a sentence");
    assert!(!has("bookshelf", "shelf"), "another word");
}

#[test]
fn the_table_and_names_are_read() {
    let head = "| was | is | in |\n| --- | --- | --- |\n";
    let gone = gone_names(&format!("{HEADING}\n\n{head}| `shelf`, a book's | `buffer` | `serving` |\n"));
    let [shelf] = &gone[..] else { panic!("one name") };
    assert_eq!((shelf.old.as_str(), shelf.now.as_str()), ("shelf", "buffer"));
    assert!(shelf.is_from("serving") && !shelf.is_from("gateway"));
    let mut found = Names::new();
    let text = "fn f() { json!({\"scan_ms\": \"the shelf\"}) }";
    names_of(text.parse().expect("Rust"), &mut found);
    assert_eq!(found.into_keys().collect::<Vec<_>>(), ["f", "fn", "json", "scan_ms"]);
}
