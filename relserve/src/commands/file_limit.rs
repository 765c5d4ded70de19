//! Files and connections that the process may have open. Systems begin with few (1,024), for the sake of programs
//! that cannot take more, and let each raise its own limit.

use gateway::config::Config;
use gateway::connections::closable_max;

/// Beside connections: the database, the model, threads' wake-ups, what waits to be closed.
const OTHER_FILES: u64 = 256;

/// Raises the limit to what the configuration may need, and lowers `server.connections_max` where the system does
/// not allow as many: a connection over that waits in the kernel, while one over the limit of files keeps all others
/// from being taken, those that ask for health too. What was lowered is said.
pub(crate) fn settle(config: &mut Config) -> Option<String> {
    let sql = if config.sql.listen.is_some() { config.sql.connections_max as u64 } else { 0 };
    let server = &config.server;
    let workers = server.workers.max(1) as u64;
    let places = server.workers.max(1).saturating_mul(server.connections_max);
    let others = sql + OTHER_FILES + closable_max(places) as u64;
    let open_max = rlimit::increase_nofile_limit(workers * server.connections_max as u64 + others).ok()?;
    lower(config, open_max, fitting(open_max, others, workers))
}

/// Lowers connections to those that fit into the files that are allowed, each worker's; what is said of it.
fn lower(config: &mut Config, open_max: u64, fits: u64) -> Option<String> {
    let server = &mut config.server;
    if fits >= server.connections_max as u64 {
        return None;
    }
    server.connections_max = usize::try_from(fits).unwrap_or(usize::MAX);
    let workers = server.workers.max(1);
    Some(format!(
        "this process may have {open_max} files open (ulimit -n), fewer than server.connections_max needs: each of \
         {workers} workers takes {fits} connections at once"
    ))
}

/// Connections of each worker.
fn fitting(open_max: u64, others: u64, workers: u64) -> u64 {
    (open_max.saturating_sub(others) / workers).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_other_files() {
        assert_eq!(fitting(20_256, 256, 2), 10_000);
        assert_eq!(fitting(1_024, 256, 2), 384);
        assert_eq!(fitting(100, 256, 2), 1, "better one than none");
    }

    #[test]
    fn connections_that_do_not_fit_are_lowered_and_it_is_said() {
        let mut config = Config::default();
        (config.server.workers, config.server.connections_max) = (2, 10_000);
        assert_eq!(lower(&mut config, 20_256, 10_000), None);
        assert_eq!(config.server.connections_max, 10_000);
        let said = lower(&mut config, 1_024, 384).unwrap();
        assert_eq!(config.server.connections_max, 384);
        for part in ["1024 files", "ulimit -n", "server.connections_max", "each of 2 workers takes 384 "] {
            assert!(said.contains(part), "{said}");
        }
    }
}
