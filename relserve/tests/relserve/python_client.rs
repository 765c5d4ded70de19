//! The official Python client against the real program and its built-in model.
//!
//! `tests/python/run.sh` does the work. It needs `python3` and, unless `.venv` is there already (`./test`
//! makes it), the package index.

use std::path::Path;
use std::process::Command;

#[test]
fn the_official_python_client_is_served() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(root.join("tests/python/run.sh"))
        .arg(env!("CARGO_BIN_EXE_relserve"))
        .output()
        .expect("bash is there");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("Ran ") && !said.contains("Ran 0 tests"), "{said}");
}
