//! The program on a terminal of its own, as a person has it: `script` of util-linux makes one.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// What a person would have seen, and how the command ended.
pub struct TerminalOutput {
    pub text: String,
    pub status: ExitStatus,
}

/// The program's path, for a shell.
pub fn program() -> String {
    format!("'{}'", env!("CARGO_BIN_EXE_relserve"))
}

/// Runs a shell's command in a folder, on a terminal into which `typed` is typed; `change` may set variables.
pub fn run(folder: &Path, command: &str, typed: &str, change: impl FnOnce(&mut Command)) -> TerminalOutput {
    let mut script = Command::new("script");
    script
        .args(["-qefc", command, "/dev/null"])
        .current_dir(folder)
        .env_remove("NO_COLOR")
        .env("TERM", "xterm");
    change(&mut script);
    let piped = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = piped.spawn().expect("util-linux is there");
    let mut keyboard = child.stdin.take().unwrap();
    keyboard.write_all(typed.as_bytes()).unwrap();
    // The keyboard stays until the command has ended.
    let output = child.wait_with_output().unwrap();
    drop(keyboard);
    TerminalOutput { text: String::from_utf8_lossy(&output.stdout).into_owned(), status: output.status }
}
