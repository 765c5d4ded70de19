//! The Python package `relserve` against the real program and its built-in model.
//!
//! `python/test.sh` does the work. It needs `python3` and, unless `python/.venv-core` is there already (`./test`
//! makes it), the package index.

use std::path::Path;
use std::process::Command;

#[test]
fn the_python_package_is_served() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(root.join("python/test.sh"))
        .arg(env!("CARGO_BIN_EXE_relserve"))
        .output()
        .expect("bash is there");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(" passed"), "{said}\n{errors}");
}
