//! What each command does: a file per command, joining modules of the library. The command line's form is
//! [`crate::cli`]'s.

mod chaos;
mod compare;
mod edge;
mod files;
mod interference;
mod race;
mod reproduce;
mod run;
mod soak;

use std::io::Write as _;

use loadgen::Error;

use crate::cli::Command;

/// Does what was asked; `false` where a relQuery or a row failed.
pub(crate) async fn perform(command: Command) -> Result<bool, Error> {
    match command {
        Command::Run(arguments) => run::perform(arguments).await,
        Command::Compare(arguments) => compare::perform(arguments).await,
        Command::Race(arguments) => race::perform(arguments).await,
        Command::Chaos(arguments) => chaos::perform(arguments).await,
        Command::Soak(arguments) => soak::perform(arguments).await,
        Command::Interference(arguments) => interference::perform(arguments).await,
        Command::Edge(arguments) => edge::perform(arguments).await,
        Command::Reproduce(arguments) => reproduce::perform(&arguments),
    }
}

/// Prints; a reader that has gone (a closed pipe) is no error.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
