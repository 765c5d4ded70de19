//! The program's help: every flag says what is without it; and the documents' commands are ones it knows.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory as _, Parser as _};
use relserve::cli::Cli;

fn output(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
    let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn help_shows_the_defaults_that_are_in_force() {
    let config: toml::Table = output(&["config"]).parse().unwrap();
    let help = output(&["serve", "--help"]);
    let cases = [
        ("listen", "server", "listen"),
        ("data-dir", "store", "data_dir"),
        ("device", "engine", "device"),
        ("tp", "engine", "tensor_parallel"),
        ("policy", "scheduler", "policy"),
    ];
    for (flag, section, key) in cases {
        let (_, rest) =
            help.split_once(&format!("--{flag} <")).unwrap_or_else(|| panic!("no {flag}: {help}"));
        let own = rest.split("\n      --").next().unwrap();
        let value = config[section][key].to_string();
        let expected = format!("[default: {}]", value.trim_matches('"'));
        assert!(own.contains(&expected), "--{flag} lacks {expected}: {own}");
    }
}

#[test]
fn the_printed_configuration_says_how_the_memory_of_replicas_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fleet.toml");
    let text = "[model]\nname = \"m\"\n[[replicas]]\nname = \"a\"\nurl = \"http://h\"\ndialect = \"vllm\"\n";
    std::fs::write(&file, text).unwrap();
    let printed = output(&["--config", file.to_str().unwrap(), "config"]);
    assert!(printed.contains("# replica a: KV memory as the server reports it (GET /metrics)"), "{printed}");
    assert!(printed.parse::<toml::Table>().is_ok(), "{printed}");
}

#[test]
fn the_printed_configuration_says_what_the_policy_cannot_do_in_front_of_replicas() {
    let said = [
        "# scheduler.policy = relserve orders the queue in front of the replicas",
        "# no effect there: step_tokens_max beyond Eq. 10, chunk_tokens, ",
        "# a row that was sent runs to its end: nothing that comes before it calls it back",
        "# the transitional case is weighed when a row could be sent, by the replica's fitted cost",
    ];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("relserve.toml");
    let printed = |text: &str| {
        std::fs::write(&file, text).unwrap();
        output(&["--config", file.to_str().unwrap(), "config"])
    };
    let alone = "[scheduler]\npolicy = \"relserve\"\n";
    let servers =
        "[model]\nname = \"m\"\n[[replicas]]\nname = \"a\"\nurl = \"http://h\"\ndialect = \"vllm\"\n";
    let (engine, fleet) = (printed(alone), printed(&format!("{alone}{servers}")));
    for line in said {
        assert!(fleet.contains(line), "no `{line}`: {fleet}");
        assert!(!engine.contains(line), "an engine of ours plans its own steps: {engine}");
    }
    assert!(!fleet.contains("# no effect there: marginal_work"), "it reads none of these: {fleet}");
    assert!(fleet.parse::<toml::Table>().is_ok(), "{fleet}");
}

/// Flags and places of a command and of those below it that take a value, may be left out, and do not say
/// what is then.
fn silent(command: &clap::Command, path: &str, found: &mut Vec<String>) {
    for argument in command.get_arguments() {
        let is_optional = argument.get_action().takes_values() && !argument.is_required_set();
        let says = |help: String| ["[default: ", "ithout it"].iter().any(|words| help.contains(words));
        let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string);
        let shows = !argument.get_default_values().is_empty() && !argument.is_hide_default_value_set();
        let is_list = matches!(argument.get_action(), ArgAction::Append);
        if is_optional && !is_list && !shows && !help.is_some_and(says) {
            found.push(format!("{path} {}", argument.get_id()));
        }
    }
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        silent(inner, &format!("{path} {}", inner.get_name()), found);
    }
}

#[test]
fn every_flag_says_what_is_without_it() {
    let mut command = Cli::command();
    command.build();
    let mut found = Vec::new();
    silent(&command, "relserve", &mut found);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn batch_reorder_and_sim_name_their_files_alike() {
    let mut command = Cli::command();
    command.build();
    for name in ["batch", "reorder", "sim"] {
        let command = command.find_subcommand(name).unwrap();
        let places: Vec<_> = command.get_positionals().map(clap::Arg::get_id).collect();
        assert!(places.is_empty(), "{name} takes {places:?}");
        for flag in ["input", "output"] {
            assert!(command.get_arguments().any(|known| known.get_long() == Some(flag)), "{name} --{flag}");
        }
    }
}

/// A shell's words, as far as the documents' commands need it: quotes hide spaces, `#` begins a comment.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match quote {
            Some(open) if letter == open => quote = None,
            Some(_) => word.get_or_insert_default().push(letter),
            None if letter == '#' && word.is_none() => break,
            None if letter == '\'' || letter == '"' => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            None if letter.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// The commands of a document that run the program: lines of code, continued behind a backslash. A line with
/// brackets or dots says a form and no command, and `N` is a number.
fn commands(text: &str) -> Vec<Vec<String>> {
    let joined = text.replace("\\\n", " ");
    let starts = ["relserve ", "target/quick/relserve ", "target/release/relserve "];
    let is_form = |line: &str| ["[", "...", "|", "<"].iter().any(|mark| line.contains(mark));
    let mut is_fenced = false;
    let code = joined.lines().filter(|line| {
        is_fenced ^= line.starts_with("```");
        is_fenced || line.starts_with("    ")
    });
    let lines = code.map(|line| line.trim_start().trim_start_matches("$ "));
    let lines = lines.filter(|line| starts.iter().any(|start| line.starts_with(start)) && !is_form(line));
    let number = |word: String| if word == "N" { "1".to_owned() } else { word };
    lines.map(|line| words(line).into_iter().map(number).collect()).collect()
}

#[test]
fn the_commands_of_the_documents_are_ones_that_the_program_knows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let documents = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let documents = documents.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let (mut known, mut wrong) = (BTreeSet::new(), Vec::new());
    for path in documents.chain([root.join("README.md")]) {
        for words in commands(&std::fs::read_to_string(&path).unwrap()) {
            // Tables of figures have the name in their first column too.
            let is_command = |word: &String| Cli::command().find_subcommand(word).is_some();
            if !words.get(1).is_some_and(|word| word.starts_with("--") || is_command(word)) {
                continue;
            }
            match Cli::try_parse_from(&words) {
                Ok(_) => drop(known.insert(words[1].clone())),
                Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {}
                Err(error) => wrong.push(format!("{}: {}\n{error}", path.display(), words.join(" "))),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(["batch", "sim", "serve", "pull"].iter().all(|name| known.contains(*name)), "{known:?}");
}

#[test]
fn words_are_those_of_a_shell() {
    let line = r#"relserve batch --template 'Say "{a}"' --key "$KEY" x\"#;
    assert_eq!(words(line)[3..], ["Say \"{a}\"", "--key", "$KEY", "x\\"]);
    assert_eq!(commands("    relserve a \\\n  b  # why\n    relserve c [d]\n"), [["relserve", "a", "b"]]);
}
