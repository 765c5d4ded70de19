//! Replicas that are found while the server runs: by a file that is read again when it changes, by DNS.
//!
//! What cannot be read changes nothing: the replicas that were found last stay, and log, metric and
//! `/v1/replicas` say why. Must not know what becomes of a replica that is no longer named.

pub(super) mod dns;
pub(super) mod file;

use std::sync::Arc;

use super::members::ReplicaMembers;
use super::source::ReplicaSource;
use crate::config::ReplicaSettings;
use crate::metrics::DiscoveryMetrics;

/// Where a source tells what it found.
pub(super) struct Findings {
    pub(super) members: Arc<ReplicaMembers>,
    pub(super) source: ReplicaSource,
    pub(super) metrics: DiscoveryMetrics,
}

impl Findings {
    /// All replicas that the source names now, or why it could not be read. False: nothing was taken in.
    pub(super) fn tell(&self, found: Result<Vec<ReplicaSettings>, String>) -> bool {
        let taken = found
            .and_then(|replicas| self.members.set(self.source, replicas).map_err(|error| error.to_string()));
        match taken {
            Ok(()) => {
                self.metrics.read.inc();
                true
            }
            Err(reason) => {
                self.members.failed(self.source, reason);
                self.metrics.failed.inc();
                false
            }
        }
    }
}
