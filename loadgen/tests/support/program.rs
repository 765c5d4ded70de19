//! Starts loadgen, and this test binary itself in the role of a server.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A program in `dir` that is this test binary in the role of one of its tests; what it is called with comes
/// in the variable.
pub(crate) fn stand_in(dir: &Path, variable: &str, role: &str) -> PathBuf {
    let path = dir.join("server");
    let test = std::env::current_exe().expect("this test");
    let script =
        format!("#!/bin/sh\n{variable}=\"$*\" exec '{}' --exact {role} --nocapture\n", test.display());
    std::fs::write(&path, script).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("executable");
    path
}

/// Runs a command of loadgen on the scenario of this text; what it writes goes to `dir/out`.
pub(crate) fn loadgen(dir: &Path, command: &str, scenario: &str, further: &[&str]) -> Output {
    let path = dir.join("s.toml");
    std::fs::write(&path, scenario).expect("written");
    Command::new(env!("CARGO_BIN_EXE_loadgen"))
        .arg(command)
        .arg(path)
        .arg("--out")
        .arg(dir.join("out"))
        .args(further)
        .output()
        .expect("runs")
}
