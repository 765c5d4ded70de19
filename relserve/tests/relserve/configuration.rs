//! `docs/CONFIGURATION.md` is what the structs of the configuration say, with the defaults that the program
//! prints.
//!
//! `cargo xtask docs` writes it anew.

use std::collections::BTreeMap;
use std::process::Command;

use gateway::config::{Config, is_reloadable};
use toml::{Table, Value};

use crate::document;
use crate::sources::{Key, KeyKind, Sources, Word};

/// What stands above the first section.
const HEAD: &str = "\
# Configuration

Every section and key of the TOML file of `relserve --config FILE serve`. All have a default; unknown ones are
refused by name. `${NAME}` in a text takes an environment variable's value. `relserve config` prints what is
in force; [OPERATIONS.md](OPERATIONS.md#configuration) has an example.

A server that runs takes other values of some keys when SIGHUP comes: what stands below a section's table names them. Other keys
wait for the next start ([OPERATIONS.md](OPERATIONS.md#what-sighup-takes)).

Keys that end in `_max` are bounds, those in `_permille` thousandths. Where the default is empty the key is
absent unless it is set. What a word may be stands below its table.

The code makes this file from its configuration structs: `cargo xtask docs` writes it anew, a test compares.
";

/// A place in the configuration: its section as a file has it, and what the program prints there.
struct SectionPlace<'a> {
    path: String,
    is_list: bool,
    printed: Option<&'a Table>,
}

impl SectionPlace<'_> {
    /// The section's title, as a file has it.
    fn title(&self) -> String {
        if self.is_list { format!("[[{}]]", self.path) } else { format!("[{}]", self.path) }
    }
}

/// A document that grows.
struct Page<'a> {
    sources: &'a Sources,
    text: String,
    /// The titles of structs that stand somewhere already.
    titles: BTreeMap<String, String>,
}

impl Page<'_> {
    /// A section and those in it.
    fn section(&mut self, name: &str, at: &SectionPlace<'_>) {
        let section =
            self.sources.sections.get(name).unwrap_or_else(|| panic!("no section is called {name}"));
        if let Some(printed) = at.printed {
            for key in printed.keys() {
                let is_known = section.keys.iter().any(|known| known.name == *key);
                assert!(is_known, "`{}.{key}` is printed and in no struct", at.path);
            }
        }
        let (inner, keys): (Vec<&Key>, Vec<&Key>) =
            section.keys.iter().partition(|key| self.section_of(key).is_some());
        if !at.path.is_empty() {
            let title = at.title();
            self.titles.entry(name.to_owned()).or_insert_with(|| title.clone());
            self.text += &format!("\n## `{title}`\n\n{}\n", document::wrapped(&section.meaning, ""));
            self.keys(&keys, at);
        }
        for key in inner {
            let path =
                if at.path.is_empty() { key.name.clone() } else { format!("{}.{}", at.path, key.name) };
            let is_list = matches!(key.kind, KeyKind::Many(_));
            if at.is_list
                && let Some(known) = self.titles.get(self.section_of(key).unwrap_or_default())
            {
                // In a list of sections nothing of it has another default.
                let title = SectionPlace { path, is_list, printed: None }.title();
                let link = known.trim_matches(['[', ']']).replace('.', "");
                let text = format!("{} Keys are those of [`{known}`](#{link}).", key.meaning);
                self.text += &format!("\n## `{title}`\n\n{}\n", document::wrapped(&text, ""));
                continue;
            }
            let one = is_list.then(|| one_of(&path));
            let printed = match &one {
                Some(table) => Some(table),
                None => at.printed.and_then(|table| table.get(&key.name)).and_then(Value::as_table),
            };
            let name = self.section_of(key).expect("it is a section").to_owned();
            self.section(&name, &SectionPlace { path, is_list, printed });
        }
    }

    /// The struct of a key that is a section of its own.
    fn section_of<'k>(&self, key: &'k Key) -> Option<&'k str> {
        match &key.kind {
            KeyKind::Many(name) => Some(name),
            KeyKind::Named(name) => self.sources.sections.contains_key(name).then_some(name),
            KeyKind::Plain(_) => None,
        }
    }

    /// The table of a section's keys, and what their words mean.
    fn keys(&mut self, keys: &[&Key], at: &SectionPlace<'_>) {
        let mut words: Vec<(&str, &[Word])> = Vec::new();
        self.text += "\n| key | type | default | meaning |\n| --- | --- | --- | --- |\n";
        for key in keys {
            let kind = match &key.kind {
                KeyKind::Plain(kind) => kind.clone(),
                KeyKind::Named(name) | KeyKind::Many(name) => {
                    let known = self.sources.words.get(name);
                    let known =
                        known.unwrap_or_else(|| panic!("`{}.{}`: what is a {name}?", at.path, key.name));
                    words.push((&key.name, known));
                    "word".to_owned()
                }
            };
            let printed = at.printed.and_then(|table| table.get(&key.name));
            let is_there = printed.is_some() || key.is_optional || at.printed.is_none();
            assert!(is_there, "`{}.{}` has a default and is not printed", at.path, key.name);
            let default = printed.map_or(String::new(), |value| shown(value, &kind));
            let meaning = key.meaning.replace('|', "\\|");
            self.text += &format!("| `{}` | {kind} | {default} | {meaning} |\n", key.name);
        }
        if let Some(taken) = taken_while_it_runs(keys, at) {
            self.text += &format!("\n{}\n", document::wrapped(&taken, ""));
        }
        for (key, words) in words {
            self.text += &format!("\n`{key}`:\n\n");
            for word in words {
                self.text += &document::wrapped(&format!("- `{}`: {}", word.name, word.meaning), "  ");
                self.text.push('\n');
                check_word(at, key, &word.name);
            }
        }
    }
}

/// Which keys of a section a server takes while it runs.
fn taken_while_it_runs(keys: &[&Key], at: &SectionPlace<'_>) -> Option<String> {
    if at.is_list && is_reloadable(&at.path) {
        return Some("SIGHUP takes the list.".to_owned());
    }
    let taken = keys.iter().filter(|key| is_reloadable(&format!("{}.{}", at.path, key.name)));
    let taken: Vec<String> = taken.map(|key| format!("`{}`", key.name)).collect();
    match taken.len() {
        0 => None,
        all if all == keys.len() => Some("SIGHUP takes all of these.".to_owned()),
        _ => Some(format!("SIGHUP takes {}.", taken.join(", "))),
    }
}

/// Whether the program reads a word where the document offers it.
fn check_word(at: &SectionPlace<'_>, key: &str, word: &str) {
    let title = at.title();
    let read = Config::parse(&format!("{title}\n{key} = \"{word}\"\n"), &|_| None);
    assert!(read.is_ok(), "{title} {key} = {word:?}: {:?}", read.err());
}

/// A default, and what it comes to where it is long.
fn shown(value: &Value, kind: &str) -> String {
    let scales: &[(i64, &str)] = match kind {
        "bytes" => &[(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")],
        "ms" => &[(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")],
        _ => &[],
    };
    let number = value.as_integer().filter(|number| *number > 0);
    let scale = scales.iter().find(|(unit, _)| number.is_some_and(|number| number % unit == 0));
    match (number, scale) {
        (Some(number), Some((unit, name))) => format!("`{number}` ({} {name})", number / unit),
        _ => format!("`{value}`"),
    }
}

/// What one of a list of sections is when nothing is set.
fn one_of(list: &str) -> Table {
    let config = Config::parse(&format!("[[{list}]]\n"), &|_| None).unwrap();
    let whole = Value::try_from(&config).unwrap();
    let sections = list.split('.').fold(&whole, |section, key| &section[key]);
    sections[0].as_table().unwrap().clone()
}

/// What `relserve config` prints.
fn printed() -> Table {
    let output = Command::new(env!("CARGO_BIN_EXE_relserve")).arg("config").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    toml::from_str(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

#[test]
fn the_document_of_the_configuration_is_what_the_code_says() {
    let (sources, printed) = (Sources::read(), printed());
    let mut page = Page { sources: &sources, text: HEAD.to_owned(), titles: BTreeMap::new() };
    page.section("Config", &SectionPlace { path: String::new(), is_list: false, printed: Some(&printed) });
    document::same("docs/CONFIGURATION.md", &page.text);
}
