//! The OpenAPI document against the real program and its built-in model.
//!
//! `tests/openapi/run.sh` draws requests from it (its examples here, thousands in `cargo xtask nightly open-api`), and
//! `typescript/run.sh` a client. They need the package indexes of Python and Node, unless `./test` has installed what
//! they take.

use std::path::Path;
use std::process::Command;

/// Runs a script on the program; what it said.
fn run(script: &str, arguments: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut command = Command::new(root.join(script));
    let output = command.arg(env!("CARGO_BIN_EXE_relserve")).args(arguments).output();
    let output = output.expect("bash is there");
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn the_examples_of_the_document_get_what_it_says_and_no_fault() {
    let said = run("tests/openapi/run.sh", &["--phases", "examples"]);
    assert!(said.contains("generated") && !said.contains(" 0 generated"), "{said}");
}

#[test]
fn the_typescript_client_is_of_this_document_and_works() {
    let said = run("typescript/run.sh", &[]);
    assert!(said.contains("# fail 0") && !said.contains("# pass 0"), "{said}");
}
