//! Who may touch the world: the environment is read in one file, the clock in few.

use super::report;
use super::tree::{File, rust_files};

/// Readers of the environment. `xtask` and tests are no part of the product.
const ENVIRONMENT: [&str; 1] = ["gateway/src/config.rs"];

/// Readers of the clock: the loop thread and what waits for it, the stopwatch of a step, the load generator.
const CLOCK: [&str; 5] = [
    "serving/src/clock.rs",
    "gateway/src/stream.rs",
    "engine/src/device/cpu/registers.rs",
    "engine/src/executor",
    "loadgen/src/",
];

fn check(rule: &str, calls: &[&str], allowed: &[&str]) {
    let is_checked = |file: &&File| {
        let path = file.path.as_str();
        let is_product =
            !file.is_beside_the_code() && !path.starts_with("xtask/") && !path.starts_with("tidy/");
        is_product && !allowed.iter().any(|start| path.starts_with(start))
    };
    // Syntax takes most of the time: of files that have a call at all.
    let has_a_call = |file: &&File| calls.iter().any(|call| file.text.contains(*call));
    let files = rust_files();
    let mut findings = Vec::new();
    for file in files.iter().filter(is_checked).filter(has_a_call) {
        for (number, line) in file.code_lines() {
            for call in calls.iter().filter(|call| line.contains(**call)) {
                findings.push(format!("{}:{number}: {call}", file.path));
            }
        }
    }
    report(rule, &findings);
}

#[test]
fn only_the_configuration_reads_the_environment() {
    check("reads of the environment", &["env::var", "env::{var"], &ENVIRONMENT);
}

#[test]
fn only_the_named_files_read_the_clock() {
    check("reads of the clock", &["Instant::now", "SystemTime::now"], &CLOCK);
}
