//! Why a fleet, or a replica of it, does not start.

use crate::config::InvalidConfig;

/// Why there is no fleet.
#[derive(Debug, thiserror::Error)]
pub enum FleetStartError {
    /// A setting.
    #[error(transparent)]
    Config(#[from] scheduler::ConfigError),
    /// An entry of a replica.
    #[error(transparent)]
    Members(#[from] InvalidConfig),
    #[error("discovery.file: {0}")]
    File(String),
    #[error("discovery: {0}")]
    Dns(String),
    #[error("model.tokenizer: {0}")]
    Tokenizer(String),
    /// A client.
    #[error("replica `{name}`: {reason}")]
    Replica {
        /// Of which replica.
        name: String,
        /// Why there is none.
        reason: String,
    },
    #[error("cannot start the fleet's threads: {0}")]
    Threads(#[from] std::io::Error),
}
