//! Developer commands: each is a short list of programs to run, so that nobody has to remember flags.
//!
//! It knows no crate of ours; it only starts `cargo` and what `cargo` built.

use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};

/// Developer commands of RelServe.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Format, lints, tests with tidy, licences (where cargo-deny is installed).
    Check,
    /// Every benchmark.
    Bench,
    /// The simulator against recorded traces: `sim DIR`.
    Sim(Arguments),
    /// One trace under several policies, side by side; arguments go to `loadgen compare`.
    Compare(Arguments),
    /// Servers, ours among them, on the same relQueries: arguments go to `loadgen race`.
    Race(Arguments),
    /// A checkpoint with random weights, to measure the server on: `checkpoint llama-125m DIR`.
    Checkpoint(Arguments),
    /// The figures of the RelServe paper from the simulator, its claims beside ours: `[--smoke] [--out DIR]`.
    Reproduce(Arguments),
    /// Ten minutes of random mixed load on a server under AddressSanitizer, after the engine's unit tests under it;
    /// arguments go to `loadgen soak`.
    Soak(Arguments),
    /// The readers of GGUF, safetensors and what stands beside them, of PML and of span queries, on this many damaged files
    /// of each form, under AddressSanitizer.
    Fuzz {
        #[arg(default_value_t = 100_000)]
        cases: u64,
    },
    /// Starts the server with its built-in model; arguments go to `relserve serve`.
    Demo(Arguments),
}

/// Arguments that are passed on.
#[derive(clap::Args)]
struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// A program that did not start or did not succeed.
struct Failed(String);

fn main() -> ExitCode {
    match perform(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(what)) => {
            eprintln!("failed: {what}");
            ExitCode::FAILURE
        }
    }
}

fn perform(task: Task) -> Result<(), Failed> {
    match task {
        Task::Check => check(),
        Task::Bench => cargo("bench --workspace --benches", &[]),
        Task::Sim(with) => cargo("run --release --package sim --example oracle --", &with.rest),
        Task::Compare(with) => {
            cargo("build --release --package gateway --package loadgen", &[])?;
            cargo("run --release --package loadgen -- compare", &with.rest)
        }
        Task::Race(with) => {
            cargo("build --release --package gateway --package loadgen", &[])?;
            cargo("run --release --package loadgen -- race", &with.rest)
        }
        Task::Checkpoint(with) => cargo("run --release --package engine --example checkpoint --", &with.rest),
        Task::Reproduce(with) => cargo("run --release --package loadgen -- reproduce", &with.rest),
        Task::Soak(with) => soak(&with.rest),
        Task::Fuzz { cases } => sanitized(
            &[("DAMAGE_CASES", &cases.to_string())],
            "test --package engine --package ir --test damage",
        ),
        Task::Demo(with) => cargo("run --release --package gateway --bin relserve -- serve", &with.rest),
    }
}

/// The target is named so that build scripts and macros, which run in the compiler, go without the sanitizer.
const SANITIZED_TARGET: &str = "x86_64-unknown-linux-gnu";

/// Runs cargo with everything built under AddressSanitizer.
fn sanitized(settings: &[(&str, &str)], words: &str) -> Result<(), Failed> {
    // The compiler's own sanitizer is not stable; its pinned version has the run-time library all the same.
    let settings = [settings, &[("RUSTC_BOOTSTRAP", "1"), ("RUSTFLAGS", "-Zsanitizer=address")]].concat();
    run(&settings, &format!("{words} --target {SANITIZED_TARGET} --target-dir target/sanitized"), &[])
}

fn soak(rest: &[String]) -> Result<(), Failed> {
    sanitized(&[], "test --package engine --lib")?;
    sanitized(&[], "build --package gateway --bin relserve")?;
    let server = format!("target/sanitized/{SANITIZED_TARGET}/debug/relserve");
    // The server that loadgen starts inherits this.
    let leaks = concat!("suppressions=", env!("CARGO_MANIFEST_DIR"), "/leaks.txt:print_suppressions=0");
    run(&[("LSAN_OPTIONS", leaks)], &format!("run --package loadgen -- soak --server {server}"), rest)
}

fn check() -> Result<(), Failed> {
    cargo("fmt --all --check", &[])?;
    cargo("clippy --workspace --all-targets -- -D warnings", &[])?;
    if has("nextest") {
        cargo("test --workspace --doc --quiet", &[])?;
        cargo("nextest run --workspace", &[])?;
    } else {
        cargo("test --workspace", &[])?;
    }
    if has("deny") {
        cargo("deny --offline check licenses bans sources", &[])
    } else {
        eprintln!("skipped: cargo-deny is not installed (`cargo install cargo-deny`)");
        Ok(())
    }
}

/// Whether a cargo subcommand is installed.
fn has(subcommand: &str) -> bool {
    Command::new("cargo").args([subcommand, "--version"]).output().is_ok_and(|output| output.status.success())
}

fn cargo(words: &str, rest: &[String]) -> Result<(), Failed> {
    run(&[], words, rest)
}

/// Runs cargo with some environment variables set.
fn run(settings: &[(&str, &str)], words: &str, rest: &[String]) -> Result<(), Failed> {
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
