//! `loadgen interference`: a few cells beside a long column, on a server that is started for it.

use std::time::Duration;

use loadgen::Error;
use loadgen::client::ApiTarget;
use loadgen::interference::{Interference, measure};
use loadgen::server::ServerProcess;

use super::print;
use crate::cli::InterferenceArguments;

/// How long a column may take.
const REQUEST_MAX: Duration = Duration::from_secs(60 * 60);

pub(super) async fn perform(arguments: InterferenceArguments) -> Result<bool, Error> {
    let InterferenceArguments { server: started, policy, rows, cells, rounds, seed } = arguments;
    let server = ServerProcess::start(&started.program, &started.further(), &policy, REQUEST_MAX).await?;
    let key = server.key_of(&started.program, "column").await?;
    let column = ApiTarget { key: Some(key), ..server.target.clone() };
    let outcome = measure(&server.target, &column, Interference { rows, cells, rounds, seed }).await?;
    print(&outcome.text());
    server.stop().await?;
    Ok(outcome.is_sound())
}
