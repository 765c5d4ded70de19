//! `loadgen edge`: requests whose answers are known, on a server that is started for it.

use std::net::SocketAddr;
use std::time::Duration;

use loadgen::Error;
use loadgen::edge::{EdgeLoad, measure};
use loadgen::server::ServerProcess;

use super::print;
use crate::cli::EdgeArguments;

/// How long the server's start is waited for in one question.
const REQUEST_MAX: Duration = Duration::from_secs(60);
/// Files of this process beside connections.
const OTHER_FILES: u64 = 128;

pub(super) async fn perform(arguments: EdgeArguments) -> Result<bool, Error> {
    let EdgeArguments { server: started, rate, seconds, connections, cells, idle, slow, pieces } = arguments;
    let load = EdgeLoad { rate, span: Duration::from_secs(seconds), connections, cells, idle, slow, pieces };
    let files = u64::from(connections) + u64::from(idle) + u64::from(slow) + OTHER_FILES;
    let open_max = rlimit::increase_nofile_limit(files).map_err(|error| Error::Client(error.to_string()))?;
    if open_max < files {
        let reason =
            format!("{files} files must be open at once, and the system allows {open_max} (ulimit -n)");
        return Err(Error::Client(reason));
    }
    let server =
        ServerProcess::start(&started.program, &started.further(), "marginal-work", REQUEST_MAX).await?;
    let address: SocketAddr = server
        .target
        .url
        .trim_start_matches("http://")
        .parse()
        .map_err(|error| Error::Client(format!("{}: {error}", server.target.url)))?;
    let report = measure(address, server.target.key.as_deref(), load).await?;
    print(&report.text());
    server.stop().await?;
    Ok(report.is_sound())
}
