//! The program `loadgen`: reads the command line, does what it says, and ends with a code that a script
//! notices.

mod cli;
mod commands;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    let cli = cli::CommandLine::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match commands::perform(cli.command).await {
        Ok(ending) => ExitCode::from(ending.code()),
        Err(error) => {
            eprintln!("loadgen: {error}");
            ExitCode::FAILURE
        }
    }
}
