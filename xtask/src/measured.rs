//! Servers built in release and measured by loadgen.

use crate::cargo::{Failed, cargo};

/// One trace under several policies: arguments of `loadgen compare`.
pub(crate) fn compare(rest: &[String]) -> Result<(), Failed> {
    build()?;
    cargo("run --release --package loadgen -- compare", rest)
}

/// Servers on the same relQueries: arguments of `loadgen race`.
pub(crate) fn race(rest: &[String]) -> Result<(), Failed> {
    build()?;
    cargo("run --release --package loadgen -- race", rest)
}

/// A checkpoint with random weights: its kind and its folder.
pub(crate) fn checkpoint(rest: &[String]) -> Result<(), Failed> {
    cargo("run --release --package engine --example checkpoint --", rest)
}

fn build() -> Result<(), Failed> {
    cargo("build --release --package relserve --package loadgen", &[])
}
