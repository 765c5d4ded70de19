//! Servers built in release, and measured or put to the test by loadgen.

use crate::cargo::{Failed, built, cargo};

/// One trace under several policies: arguments of `loadgen compare`.
pub(crate) fn compare(rest: &[String]) -> Result<(), Failed> {
    build()?;
    cargo("run --release --package loadgen -- compare", rest)
}

/// Servers on the same relQueries: arguments of `loadgen race`, of which `--table` starts none.
pub(crate) fn race(rest: &[String]) -> Result<(), Failed> {
    if !rest.iter().any(|argument| argument == "--table") {
        build()?;
    }
    cargo("run --release --package loadgen -- race", rest)
}

/// Processes under load and faults: arguments of `loadgen chaos`.
pub(crate) fn chaos(rest: &[String]) -> Result<(), Failed> {
    build()?;
    let server = ["--server".to_owned(), built("release", "relserve")];
    cargo("run --release --package loadgen -- chaos", &[&server[..], rest].concat())
}

/// Known cells beside idle and slow connections: arguments of `loadgen edge`.
pub(crate) fn edge(rest: &[String]) -> Result<(), Failed> {
    build()?;
    let server = ["--server".to_owned(), built("release", "relserve")];
    cargo("run --release --package loadgen -- edge", &[&server[..], rest].concat())
}

/// A checkpoint with random weights: its kind and its folder.
pub(crate) fn checkpoint(rest: &[String]) -> Result<(), Failed> {
    cargo("run --release --package engine --example checkpoint --", rest)
}

fn build() -> Result<(), Failed> {
    cargo("build --release --package relserve --package loadgen", &[])
}
