//! Starting cargo. It must not know what for.

use std::process::Command;

/// A program that did not start or did not succeed.
pub(crate) struct Failed(pub(crate) String);

/// Whether a cargo subcommand is installed.
pub(crate) fn has(subcommand: &str) -> bool {
    Command::new("cargo").args([subcommand, "--version"]).output().is_ok_and(|output| output.status.success())
}

/// Runs cargo with `words`, which are split at spaces, and then `rest`.
pub(crate) fn cargo(words: &str, rest: &[String]) -> Result<(), Failed> {
    cargo_with(&[], words, rest)
}

/// The same with some environment variables set.
pub(crate) fn cargo_with(settings: &[(&str, &str)], words: &str, rest: &[String]) -> Result<(), Failed> {
    let shown = format!("cargo {words} {}", rest.join(" "));
    eprintln!("+ {shown}");
    let status =
        Command::new("cargo").envs(settings.iter().copied()).args(words.split(' ')).args(rest).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failed(format!("{shown} ({status})"))),
        Err(error) => Err(Failed(format!("{shown} ({error})"))),
    }
}
