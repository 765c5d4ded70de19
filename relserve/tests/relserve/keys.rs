//! `relserve key`: which database is meant, and whether one is made.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::terminal;

fn relserve(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Where a command in this folder looks for its database.
fn database(folder: &Path) -> PathBuf {
    folder.canonicalize().unwrap().join("relserve-data/relserve.db")
}

#[test]
fn without_a_terminal_a_key_command_names_its_database_and_makes_none_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let shown = database(folder.path()).display().to_string();
    for command in [&["key", "list"][..], &["key", "create", "mine"], &["key", "revoke", "1"], &["sign-in"]] {
        let output = relserve(folder.path(), command);
        let (out, error) = said(&output);
        assert_eq!(output.status.code(), Some(1), "{error}");
        let expected = format!("error: there is no database of RelServe at {shown}: ");
        assert!(error.contains(&expected), "{error}");
        assert!(["--data-dir", "--database", "--yes"].iter().all(|flag| error.contains(flag)), "{error}");
        assert_eq!(out, "");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made");
    }
}

#[test]
fn that_an_empty_file_becomes_a_new_database_is_told_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("relserve-data");
    std::fs::create_dir(&data).unwrap();
    let told = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
        command.args(words).current_dir(folder.path()).stdin(Stdio::null()).env("RELSERVE_LOG", "warn");
        let output = command.output().unwrap();
        let (_, error) = said(&output);
        assert!(output.status.success(), "{error}");
        error.lines().find(|line| line.contains("the file is empty")).map(str::to_owned)
    };
    let list = ["key", "list", "--yes"];
    std::fs::write(data.join("relserve.db"), "").unwrap();
    let line = told(&list).expect("a line of the log");
    let shown = database(folder.path()).display().to_string();
    assert!(line.contains("WARN") && line.contains("a new database is made in it"), "{line}");
    assert!(line.contains(&shown), "{line} does not name {shown}");
    assert_eq!(told(&list), None, "it is one now");
    std::fs::remove_dir_all(&data).unwrap();
    assert_eq!(told(&list), None, "a file that is not there is none that was emptied");
}

#[test]
fn keys_are_listed_with_the_names_of_their_tenants_from_any_folder() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let shown = format!("database: {}\n", database(folder.path()).display());
    let made = relserve(folder.path(), &["key", "create", "mine", "--tenant", "acme", "--yes"]);
    let (out, error) = said(&made);
    assert!(
        made.status.success() && out.contains("API key: rs-") && out.contains("tenant acme (2)"),
        "{out}{error}"
    );
    assert!(error.contains(&shown), "{error}");
    for hidden in [&["key", "create", "a\u{202e}b"][..], &["key", "create", "a", "--tenant", "b\u{200b}"]] {
        let refused = relserve(folder.path(), hidden);
        assert!(
            !refused.status.success() && said(&refused).1.contains("has the character U+20"),
            "{hidden:?}"
        );
    }
    let long = "x".repeat(101);
    for name in ["", " ", &long] {
        let commands =
            [("name", &["key", "create", name][..]), ("tenant", &["key", "create", "a", "--tenant", name])];
        for (field, command) in commands {
            let refused = relserve(folder.path(), command);
            let reason = format!("`{field}`: must be 1 to 100 letters on one line");
            assert!(!refused.status.success() && said(&refused).1.contains(&reason), "{refused:?}");
        }
    }
    let refused = relserve(folder.path(), &["key", "create", "a", "--tenant", ".."]);
    assert!(
        !refused.status.success() && said(&refused).1.contains("`tenant`: must not be `..`"),
        "{refused:?}"
    );
    // A database that is there is not asked about.
    assert!(relserve(folder.path(), &["key", "create", "gone", "--days", "0"]).status.success());
    assert!(relserve(folder.path(), &["key", "create", "lost"]).status.success());
    assert!(relserve(folder.path(), &["key", "revoke", "3"]).status.success());
    let data = folder.path().join("relserve-data");
    let list = relserve(elsewhere.path(), &["key", "list", "--data-dir", data.to_str().unwrap()]);
    let (out, error) = said(&list);
    assert!(list.status.success() && error.contains(&shown), "{error}");
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split('\t').collect()).collect();
    let shown: Vec<_> = lines.iter().map(|line| (line[0], line[2], line[3], line[4])).collect();
    let expected = [
        ("1", "tenant acme (2)", "valid", "mine"),
        ("2", "tenant default (1)", "expired", "gone"),
        ("3", "tenant default (1)", "revoked", "lost"),
    ];
    assert_eq!(shown, expected, "{out}");
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0, "nothing was made there");
}

#[test]
fn on_a_terminal_a_new_database_is_asked_about() {
    let folder = tempfile::tempdir().unwrap();
    let command = format!("{} key create mine", terminal::program());
    let question =
        format!("There is no database of RelServe at {}. Make one? [y/N]", database(folder.path()).display());
    for no in ["n\n", "\n", "nonsense\n"] {
        let seen = terminal::run(folder.path(), &command, no, |_| ());
        assert!(seen.text.contains(&question), "{}", seen.text);
        assert_eq!(seen.code, Some(1), "{}", seen.text);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made");
    }
    let seen = terminal::run(folder.path(), &command, "y\n", |_| ());
    assert!(seen.code == Some(0) && seen.text.contains("API key: rs-"), "{}", seen.text);
    let again = terminal::run(folder.path(), &command, "", |_| ());
    assert!(again.code == Some(0) && !again.text.contains("Make one?"), "{}", again.text);
}
