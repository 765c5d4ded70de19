//! The `relserve` command: parse, start tracing, run.

use std::process::ExitCode;

use clap::Parser;
use relserve::cli::Cli;

fn main() -> ExitCode {
    let filter = gateway::config::log_filter();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match actix_web::rt::System::new().block_on(Cli::parse().run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tracing::error!("{failure}");
            ExitCode::FAILURE
        }
    }
}
