//! The `relserve` command: parse, start tracing, run.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Parser;
use relserve::cli::Cli;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Codes for colours are for terminals: a log in a file is read by programs.
    let has_color = std::io::stderr().is_terminal() && gateway::config::wants_color();
    let log = tracing_subscriber::fmt().with_env_filter(gateway::config::log_filter(cli.log_level()));
    log.with_writer(std::io::stderr).with_ansi(has_color).init();
    match actix_web::rt::System::new().block_on(cli.run()) {
        Ok(code) => code,
        Err(failure) => {
            // Nobody listens any more: nothing is left to do about it.
            let _ = writeln!(std::io::stderr(), "error: {failure}");
            ExitCode::FAILURE
        }
    }
}
