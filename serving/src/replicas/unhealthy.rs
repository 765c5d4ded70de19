//! What a look at a server's health found.

use crate::gateway_ids::GatewayPaths;

/// What a look at a server found: the gateways that it leads to, or why it is not well.
pub type FoundHealth = Result<GatewayPaths, Unhealthy>;

/// Why a server is not well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unhealthy {
    /// In words.
    pub reason: String,
    /// Whether it is certain that it answers no row: nobody is there, or somebody else.
    pub is_gone: bool,
}
