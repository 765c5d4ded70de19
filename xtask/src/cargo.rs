//! Starting cargo and programs of this repository. It must not know what for.

use std::process::{Command, ExitStatus};

/// What a program of this repository ends with where something that it needs cannot be had on this machine.
const SKIPPED: i32 = 3;

/// A program that did not start or did not succeed.
pub(crate) struct Failed(pub(crate) String);

/// Whether a cargo subcommand is installed.
pub(crate) fn has(subcommand: &str) -> bool {
    runs("cargo", &[subcommand, "--version"])
}

/// Whether a program is installed and succeeds with these arguments.
pub(crate) fn runs(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// Runs cargo with `words`, which are split at spaces, and then `rest`.
pub(crate) fn cargo(words: &str, rest: &[String]) -> Result<(), Failed> {
    cargo_with(&[], words, rest)
}

/// The same with some environment variables set.
pub(crate) fn cargo_with(settings: &[(&str, &str)], words: &str, rest: &[String]) -> Result<(), Failed> {
    let shown = format!("cargo {words} {}", rest.join(" "));
    run(&shown, Command::new("cargo").envs(settings.iter().copied()).args(words.split(' ')).args(rest))
}

/// Where cargo puts a program of the workspace that is built in a profile, by the profile's folder.
pub(crate) fn built(profile: &str, program: &str) -> String {
    let metadata = Command::new("cargo").args(["metadata", "--no-deps", "--format-version=1"]).output();
    let text =
        metadata.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    // One field of a document that is not worth a reader of its own.
    let folder = text.split_once("\"target_directory\":\"").and_then(|(_, rest)| rest.split_once('"'));
    format!("{}/{profile}/{program}", folder.map_or("target", |(folder, _)| folder))
}

/// Runs a program of this repository.
pub(crate) fn program(path: &str, arguments: &[String]) -> Result<(), Failed> {
    run(&format!("{path} {}", arguments.join(" ")), Command::new(path).args(arguments))
}

/// The same of one that may end with [`SKIPPED`], which is no failure.
pub(crate) fn program_or_skip(path: &str, arguments: &[String]) -> Result<(), Failed> {
    let shown = format!("{path} {}", arguments.join(" "));
    let status = status(&shown, Command::new(path).args(arguments))?;
    if status.code() == Some(SKIPPED) {
        eprintln!("skipped: {shown}: it says what cannot be had here");
        return Ok(());
    }
    succeeded(&shown, status)
}

fn run(shown: &str, command: &mut Command) -> Result<(), Failed> {
    succeeded(shown, status(shown, command)?)
}

fn status(shown: &str, command: &mut Command) -> Result<ExitStatus, Failed> {
    eprintln!("+ {shown}");
    command.status().map_err(|error| Failed(format!("{shown} ({error})")))
}

fn succeeded(shown: &str, status: ExitStatus) -> Result<(), Failed> {
    if status.success() { Ok(()) } else { Err(Failed(format!("{shown} ({status})"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_skipped_and_what_fails_is_told() {
        let ends_with = |code: u8| program_or_skip("sh", &["-c".to_owned(), format!("exit {code}")]);
        assert!(ends_with(0).is_ok() && ends_with(3).is_ok());
        assert!(ends_with(1).is_err_and(|Failed(what)| what.contains("exit 1")));
    }
}
