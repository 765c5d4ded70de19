//! A black-box load generator for relQuery servers.
//!
//! It sends what a client would send and believes what a client would see; it shares no wire types with the
//! server, so a broken wire fails a run. What is sent when is decided purely by a seed ([`arrival`],
//! [`workload`]); [`client`], [`run`], [`interference`], [`edge`], [`soak`] and [`chaos`] are the only modules that touch a
//! network or a clock.

pub mod agreement;
pub mod arrival;
pub mod chaos;
pub mod chart;
pub mod client;
pub mod compare;
pub mod contest;
mod draft_counts;
pub mod dry_run;
pub mod edge;
pub mod fleet_replay;
pub mod html;
pub mod interference;
pub mod peers;
pub mod peers_report;
pub mod plot;
pub mod race;
pub mod random;
pub mod record;
pub mod replay;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod scenario;
pub mod server;
pub mod single;
pub mod soak;
pub mod summary;
pub mod table;
pub mod upstreams;
pub mod workload;

/// Why a run could not be made. What goes wrong with one relQuery is in its record, not here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The scenario is not usable.
    #[error("scenario: `{field}`: {reason}")]
    Scenario {
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("`{path}`: {reason}")]
    File {
        /// The file.
        path: String,
        /// What went wrong.
        reason: String,
    },
    /// A server that was started to be measured is not ready in time, or ended early.
    #[error("server `{name}`: {reason}")]
    Server {
        /// Its name, or the policy it was started with.
        name: String,
        /// What went wrong, with the server's last words.
        reason: String,
    },
    /// A replay in virtual time failed.
    #[error("simulation: {0}")]
    Simulation(String),
    /// The HTTP client cannot be set up.
    #[error("HTTP client: {0}")]
    Client(String),
}

impl Error {
    /// An error about a file.
    pub fn file(path: &std::path::Path, reason: impl std::fmt::Display) -> Self {
        Self::File { path: path.display().to_string(), reason: reason.to_string() }
    }
}
