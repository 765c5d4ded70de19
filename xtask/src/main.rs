//! Developer commands: each is a short list of programs to run, so that nobody has to remember flags.
//!
//! It knows no crate of ours; it only starts `cargo` and what `cargo` built.

mod arm;
mod cargo;
mod measured;
mod nightly;
mod sanitized;

use std::process::ExitCode;

use arm::arm;
use cargo::{Failed, cargo, cargo_with, has, program_or_skip};
use clap::{Parser, Subcommand};
use measured::{chaos, checkpoint, compare, race};
use nightly::{Nightly, nightly};
use sanitized::{fuzz, soak};

/// Developer commands of RelServe.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Format, lints, tests with tidy, licences, bans and sources.
    Check,
    /// Writes what tests keep of documents: docs/CONFIGURATION.md, and answers in docs/API.md and the README
    /// that are others now.
    Docs,
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
    /// Ten minutes of random mixed load on a server under AddressSanitizer, after the engine's unit tests
    /// under it; arguments go to `loadgen soak`.
    Soak(Arguments),
    /// Gateways, replicas and a Postgres, all real processes, under load while faults of a seeded plan come and go;
    /// then all that was promised is checked. Arguments go to `loadgen chaos`: `--minutes M --seed S`.
    Chaos(Arguments),
    /// The readers of GGUF, safetensors and what stands beside them, of PML and of span queries, on this many
    /// damaged files of each form, under AddressSanitizer.
    Fuzz {
        #[arg(default_value_t = 100_000)]
        cases: u64,
    },
    /// The engine's kernels for ARM, cross-compiled and tested in an emulator (qemu), where there is one.
    Arm,
    /// What takes too long for every change: fuzz, chaos in simulated worlds and of processes, soak, the server's edge, race, a real vLLM, replicas,
    /// the heavy clients of SQL, those of OpenAI's API, the Python package, a year's rows, dependencies, dashboards, the image and the
    /// kernels for ARM, one after another. All of them run, and all that failed are named at the end.
    Nightly(Nightly),
    /// Starts the server with its built-in model; arguments go to `relserve serve`.
    Demo(Arguments),
}

/// Arguments that are passed on.
#[derive(clap::Args)]
struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

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
        Task::Docs => docs(),
        Task::Bench => cargo("bench --workspace --benches", &[]),
        Task::Sim(with) => cargo("run --release --package sim --example oracle --", &with.rest),
        Task::Compare(with) => compare(&with.rest),
        Task::Race(with) => race(&with.rest),
        Task::Checkpoint(with) => checkpoint(&with.rest),
        Task::Reproduce(with) => cargo("run --release --package loadgen -- reproduce", &with.rest),
        Task::Soak(with) => soak(&with.rest),
        Task::Chaos(with) => chaos(&with.rest),
        Task::Fuzz { cases } => fuzz(cases),
        Task::Arm => arm(),
        Task::Nightly(with) => nightly(&with),
        Task::Demo(with) => cargo("run --release --package relserve -- serve", &with.rest),
    }
}

fn docs() -> Result<(), Failed> {
    let filters = ["--", "configuration::", "api::"].map(str::to_owned);
    cargo_with(&[("UPDATE_DOCS", "1")], "test --package relserve --test relserve", &filters)
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
        program_or_skip("tests/advisories/run.sh", &[])
    }
}
