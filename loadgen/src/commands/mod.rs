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

/// How a command ended that could do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Good,
    /// A relQuery or a row failed: the records say which.
    Failed,
    /// All was answered, and later than it should be.
    GoalMissed,
}

impl Ending {
    /// The code that the program ends with, by which a script notices.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Good => 0,
            Self::Failed => 2,
            Self::GoalMissed => 3,
        }
    }

    fn of(is_sound: bool) -> Self {
        if is_sound { Self::Good } else { Self::Failed }
    }
}

/// Does what was asked.
pub(crate) async fn perform(command: Command) -> Result<Ending, Error> {
    let is_sound = match command {
        Command::Edge(arguments) => return edge::perform(arguments).await,
        Command::Run(arguments) => run::perform(arguments).await,
        Command::Compare(arguments) => compare::perform(arguments).await,
        Command::Race(arguments) => race::perform(arguments).await,
        Command::Chaos(arguments) => chaos::perform(arguments).await,
        Command::Soak(arguments) => soak::perform(arguments).await,
        Command::Interference(arguments) => interference::perform(arguments).await,
        Command::Reproduce(arguments) => reproduce::perform(&arguments),
    };
    is_sound.map(Ending::of)
}

/// Prints; a reader that has gone (a closed pipe) is no error.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
