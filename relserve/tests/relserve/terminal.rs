//! The program on a terminal of its own, as a person has it: `script` of util-linux makes one.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// What a person would have seen, and how the command ended.
pub struct TerminalOutput {
    pub text: String,
    /// The command's exit code, where it came to one.
    pub code: Option<i32>,
}

/// Begins the line behind all that the command said; its code follows.
const ENDED: &str = "the command ended with ";

/// The program's path, for a shell.
pub fn program() -> String {
    format!("'{}'", env!("CARGO_BIN_EXE_relserve"))
}

/// Runs a shell's command in a folder, on a terminal into which `typed` is typed; `change` may set variables.
pub fn run(folder: &Path, command: &str, typed: &str, change: impl FnOnce(&mut Command)) -> TerminalOutput {
    // Once its command is over, `script` looks at its terminal no more and may lose the last that was said. So the
    // shell waits for a line until all was read.
    let held = format!("{command}; echo \"{ENDED}$?\"; read -r _");
    let mut script = Command::new("script");
    script
        .args(["-qefc", &held, "/dev/null"])
        .current_dir(folder)
        .env_remove("NO_COLOR")
        .env("TERM", "xterm");
    change(&mut script);
    let piped = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = piped.spawn().expect("util-linux is there");
    let mut keyboard = child.stdin.take().unwrap();
    keyboard.write_all(typed.as_bytes()).unwrap();
    let (mut text, mut code) = (String::new(), None::<i32>);
    let mut screen = BufReader::new(child.stdout.take().unwrap());
    let mut line = Vec::new();
    while code.is_none() && screen.read_until(b'\n', &mut line).unwrap() > 0 {
        let shown = String::from_utf8_lossy(&line);
        match shown.split_once(ENDED) {
            None => text.push_str(&shown),
            Some((before, said)) => {
                text.push_str(before);
                code = said.trim().parse().ok();
            }
        }
        line.clear();
    }
    // The shell may have gone by itself.
    let _ = keyboard.write_all(b"\n");
    child.wait().unwrap();
    TerminalOutput { text, code }
}
