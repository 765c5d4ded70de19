//! What runs under AddressSanitizer: damaged files against their readers, random load against the server.

use crate::cargo::{Failed, cargo_with};

/// The target is named so that build scripts and macros, which run in the compiler, go without the sanitizer.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The readers of files and of plans, on this many damaged ones of each form.
pub(crate) fn fuzz(cases: u64) -> Result<(), Failed> {
    sanitized(&[("DAMAGE_CASES", &cases.to_string())], "test --package engine --package ir --test damage")
}

/// The engine's unit tests, then `loadgen soak` with these arguments on a sanitized server.
pub(crate) fn soak(rest: &[String]) -> Result<(), Failed> {
    sanitized(&[], "test --package engine --lib")?;
    sanitized(&[], "build --package relserve")?;
    let server = format!("target/sanitized/{TARGET}/debug/relserve");
    // The server that loadgen starts inherits this.
    let leaks = concat!("suppressions=", env!("CARGO_MANIFEST_DIR"), "/leaks.txt:print_suppressions=0");
    cargo_with(&[("LSAN_OPTIONS", leaks)], &format!("run --package loadgen -- soak --server {server}"), rest)
}

/// Runs cargo with everything built under AddressSanitizer.
fn sanitized(settings: &[(&str, &str)], words: &str) -> Result<(), Failed> {
    // The compiler's own sanitizer is not stable; its pinned version has the run-time library all the same.
    let settings = [settings, &[("RUSTC_BOOTSTRAP", "1"), ("RUSTFLAGS", "-Zsanitizer=address")]].concat();
    cargo_with(&settings, &format!("{words} --target {TARGET} --target-dir target/sanitized"), &[])
}
