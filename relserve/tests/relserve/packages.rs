//! What `packaging/` holds: the image, the composition, the unit of systemd and the chart, each judged by the tools of its
//! own kind, and their configurations by the real program.
//!
//! `tests/packaging` does the work. What it needs, its `install.sh` installs, which `./test` calls.

use std::path::Path;
use std::process::Command;

#[test]
fn the_packages_are_valid_and_the_program_takes_their_configurations() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/packaging");
    let python = folder.join(".venv/bin/python");
    if !folder.join(".venv/installed.txt").exists() {
        eprintln!("skipped: tests/packaging/install.sh has not run");
        return;
    }
    let output = Command::new(python)
        .args(["-m", "unittest", "discover"])
        .current_dir(&folder)
        .env("RELSERVE_BIN", env!("CARGO_BIN_EXE_relserve"))
        .output()
        .expect("the environment has a python");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("Ran ") && !said.contains("Ran 0 tests"), "{said}");
}
