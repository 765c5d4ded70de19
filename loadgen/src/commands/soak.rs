//! `loadgen soak`: minutes of random load on a server that is started for it.

use std::time::Duration;

use loadgen::Error;
use loadgen::server::ServerProcess;
use loadgen::soak::{Soak, soak};

use super::print;
use crate::cli::SoakArguments;

const SPAN_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How long one answer is waited for.
const REQUEST_MAX: Duration = Duration::from_secs(300);

pub(super) async fn perform(arguments: SoakArguments) -> Result<bool, Error> {
    let SoakArguments { server, minutes, seed, clients } = arguments;
    let span = Duration::try_from_secs_f64(minutes * 60.0).unwrap_or(SPAN_MAX).min(SPAN_MAX);
    let server =
        ServerProcess::start(&server.program, &server.further(), "marginal-work", REQUEST_MAX).await?;
    let tally = soak(&server.target, Soak { span, seed, clients }).await;
    print(&tally.text());
    server.stop_well().await?;
    print("the server ended well\n");
    Ok(tally.is_sound())
}
