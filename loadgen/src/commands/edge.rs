//! `loadgen edge`: requests whose answers are known, on a server that is started for it.

use std::net::SocketAddr;
use std::time::Duration;

use loadgen::Error;
use loadgen::edge::{EdgeLoad, EdgeReport, measure};
use loadgen::server::ServerProcess;

use super::{Ending, print};
use crate::cli::EdgeArguments;

/// How long the server's start is waited for in one question.
const REQUEST_MAX: Duration = Duration::from_secs(60);
/// Files of this process beside connections.
const OTHER_FILES: u64 = 128;

pub(super) async fn perform(arguments: EdgeArguments) -> Result<Ending, Error> {
    let EdgeArguments { server: started, rate, seconds, connections, cells, idle, slow, pieces, report_only } =
        arguments;
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
    Ok(ending(&report, report_only))
}

/// What a report comes to. An answer that is missing is a failure however fast the others were.
fn ending(report: &EdgeReport, report_only: bool) -> Ending {
    match (report.is_sound(), report.meets_goals() || report_only) {
        (false, _) => Ending::Failed,
        (true, false) => Ending::GoalMissed,
        (true, true) => Ending::Good,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_that_is_missed_has_a_code_of_its_own_unless_only_a_report_is_wanted() {
        let report = |loaded: f64, failed: u64| EdgeReport {
            alone: vec![0.2],
            bare: vec![0.1],
            loaded: vec![loaded],
            sent: 1,
            failed,
            seconds: 1.0,
            ..EdgeReport::default()
        };
        for (loaded, failed, report_only, expected) in [
            (5.0, 0, false, 0),
            (5.0, 0, true, 0),
            (5.1, 0, false, 3),
            (5.1, 0, true, 0),
            (5.0, 1, false, 2),
            (5.1, 1, true, 2),
        ] {
            let code = ending(&report(loaded, failed), report_only).code();
            assert_eq!(code, expected, "{loaded} ms, {failed} failed, report only: {report_only}");
        }
    }
}
