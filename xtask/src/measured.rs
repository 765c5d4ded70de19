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

fn build() -> Result<(), Failed> {
    cargo("build --release --package relserve --package loadgen", &[])
}
