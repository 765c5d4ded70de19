//! Commands in documents, run in a shell against the program with the built-in model, and their answers
//! compared.
//!
//! `cargo xtask docs` writes anew those answers that are not what the document says.

use std::path::Path;
use std::process::Command;

use retrieval::synthetic::Synthetic;
use serde_json::Value;

use crate::answers::{self, Ids};
use crate::document;
use crate::program::Program;

/// Words that the embedding model of the document knows, as docs/CORPORA.md makes it.
const WORDS: [&str; 14] = [
    "refund", "parcel", "delivery", "invoice", "tax", "price", "paid", "sent", "shows", "the", "of", "a",
    "is", "an",
];

/// A command of the document, and its answer as it stands there.
struct Example {
    command: String,
    answer: String,
}

/// The blocks of one language.
pub fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let starts = format!("```{language}\n");
    text.split(starts.as_str()).skip(1).map(|rest| rest.split("\n```").next().unwrap_or_default()).collect()
}

/// The commands of a block: each begins with `$ ` and ends where its quotes do.
fn examples(block: &str) -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    let mut is_open = false;
    for line in block.lines() {
        let begins = (!is_open).then(|| line.strip_prefix("$ ")).flatten();
        if let Some(command) = begins {
            found.push(Example { command: command.into(), answer: String::new() });
        } else {
            let last = found.last_mut().expect("a block begins with a command");
            let into = if is_open { &mut last.command } else { &mut last.answer };
            if is_open || !into.is_empty() {
                into.push('\n');
            }
            into.push_str(line);
        }
        let command = &found.last().expect("there is one").command;
        is_open = begins.is_some() || is_open;
        is_open = is_open && (command.ends_with('\\') || command.matches('\'').count() % 2 == 1);
    }
    found
}

/// A server for each of the document's configurations, or one that is told nothing: the first is at port
/// 8080, the next at 8081.
fn servers(folder: &Path, text: &str) -> Vec<Program> {
    let embedder = folder.join("embedder");
    std::fs::create_dir(&embedder).unwrap();
    Synthetic { hidden: 128, positions: 512, ..Synthetic::tiny(&WORDS, 1) }.write(&embedder).unwrap();
    let mut configurations = blocks(text, "toml");
    if configurations.is_empty() {
        configurations.push("");
    }
    let start = |(at, toml)| {
        let file = folder.join(format!("relserve-{at}.toml"));
        std::fs::write(&file, toml).unwrap();
        let data = folder.join(format!("data-{at}"));
        Program::configured(&data, |command| {
            command.arg("--config").arg(file).current_dir(folder).env("RELSERVE_ADMIN_KEY", "operators");
        })
    };
    configurations.into_iter().enumerate().map(start).collect()
}

/// Runs a command against the servers and gives what it said.
fn answer(command: &str, servers: &[Program], folder: &Path, ids: &Ids) -> String {
    let mut command = command.to_owned();
    let mut key = &servers[0].key;
    for (at, server) in servers.iter().enumerate() {
        let named = format!("localhost:{}", 8080 + at);
        if command.contains(&named) {
            key = &server.key;
            command = command.replace(&named, server.address.trim_start_matches("http://"));
        }
    }
    for (written, real) in ids {
        command = command.replace(written, real);
    }
    let mut shell = Command::new("bash");
    shell
        .args(["-c", &command])
        .current_dir(folder)
        .env("RELSERVE_KEY", key)
        .env("RELSERVE_ADMIN_KEY", "operators");
    String::from_utf8(shell.output().unwrap().stdout).unwrap()
}

/// The documents of a stream of events.
fn events(text: &str) -> Vec<Value> {
    let joined = text.replace("\n  ", " ");
    joined.lines().filter_map(|line| answers::parse(line.strip_prefix("data: ")?)).collect()
}

/// A text without its numbers.
fn masked(text: &str) -> String {
    text.trim().chars().filter(|c| !c.is_ascii_digit() && *c != '.').collect()
}

/// How an answer differs from the document; ids of this run are learnt on the way.
fn difference(written: &str, real: &str, ids: &mut Ids) -> Option<String> {
    if let Some(written) = answers::parse(written) {
        let Ok(real) = serde_json::from_str(real) else { return Some("it is no JSON".into()) };
        return answers::difference(&written, &real, ids);
    }
    let shown = events(written);
    if shown.is_empty() {
        return (masked(written) != masked(real)).then(|| "the text is another".into());
    }
    let real = events(real);
    let is_there =
        |shown: &Value| real.iter().any(|real| answers::difference(shown, real, &mut Ids::new()).is_none());
    let strange = shown.iter().find(|shown| !is_there(shown));
    strange.map(|event| format!("no event is like {event}"))
}

/// An answer of this run as the document has it.
fn rewritten(written: &str, real: &str) -> String {
    if let Ok(value) = serde_json::from_str(real) {
        return answers::lines("", &answers::shortened(answers::parse(written).as_ref(), &value));
    }
    let line = |line: &str| match line.strip_prefix("data: ").and_then(answers::parse) {
        Some(value) => answers::lines("data: ", &value),
        None => line.to_owned(),
    };
    real.trim_end().lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The document with an answer of this run in place of the old one; ids stay as they stand there.
fn rewrite(text: &str, example: &Example, real: &str, ids: &mut Ids) -> String {
    ids.extend(answers::id(&example.answer).zip(answers::id(real)));
    let real = ids.iter().fold(real.to_owned(), |text, (written, real)| text.replace(real, written));
    let was = format!("$ {}\n{}", example.command, example.answer);
    let is = format!("$ {}\n{}", example.command, rewritten(&example.answer, &real));
    text.replacen(was.trim_end(), &is, 1)
}

/// Runs a document's commands one after another, and compares or writes what they answer.
pub fn check(name: &str) {
    if Command::new("curl").arg("--version").output().is_err() {
        eprintln!("skipped: there is no curl");
        return;
    }
    let mut text = document::read(name);
    let folder = tempfile::tempdir().unwrap();
    let servers = servers(folder.path(), &text);
    let (mut ids, mut wrong) = (Ids::new(), Vec::new());
    for example in blocks(&text.clone(), "console").into_iter().flat_map(examples) {
        let real = answer(&example.command, &servers, folder.path(), &ids);
        let mut own = Ids::new();
        let Some(found) = difference(&example.answer, &real, &mut own) else {
            ids.append(&mut own);
            continue;
        };
        if document::is_written() {
            text = rewrite(&text, &example, &real, &mut ids);
        }
        wrong.push(format!("$ {}\n{real}\n{found}", example.command));
    }
    if document::is_written() {
        document::same(name, &text);
    } else {
        assert!(wrong.is_empty(), "{name}: `cargo xtask docs` writes these anew:\n{}", wrong.join("\n\n"));
    }
}
