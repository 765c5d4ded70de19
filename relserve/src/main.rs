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
    // The system would make one itself, and panic where no file may be opened any more.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(cause) => return failed(&format!("the program cannot start: {cause}")),
    };
    let system = actix_web::rt::System::with_tokio_rt(|| runtime);
    system.block_on(cli.run()).unwrap_or_else(|failure| failed(&failure))
}

/// Says why it ends.
fn failed(reason: &dyn std::fmt::Display) -> ExitCode {
    // Nobody listens any more: nothing is left to do about it.
    let _ = writeln!(std::io::stderr(), "error: {reason}");
    ExitCode::FAILURE
}
