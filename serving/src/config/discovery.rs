//! Settings of replicas that are found while the server runs: by a file that is re-read, by DNS.

use std::net::SocketAddr;
use std::path::PathBuf;

use base::Millis;
use serde::{Deserialize, Serialize};

use super::{InvalidConfig, ReplicaKind, ReplicaSettings, invalid};

/// Where replicas are found while the server runs, beside those of `[[replicas]]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiscoveryConfig {
    /// A file of `[[replicas]]` entries, read at the start and again when its content changes. A file that
    /// cannot be read or is not valid changes nothing.
    pub file: Option<PathBuf>,
    /// Time between two looks at the file.
    pub file_ms: Millis,
    /// A name whose addresses are replicas, each at `port`: a headless service. IPv6 where it has no IPv4.
    pub dns: Option<String>,
    /// The port of the servers that `dns` finds.
    pub port: u16,
    /// A name whose SRV records are replicas, each at its own port; instead of `dns`.
    pub srv: Option<String>,
    /// Name servers, `address:port`; by default the system's.
    pub name_servers: Vec<SocketAddr>,
    /// Least time for which an answer of DNS is taken as true, whatever its time to live, and time until DNS
    /// is asked again that failed.
    pub ttl_ms_min: Millis,
    /// Longest time for which an answer of DNS is taken as true.
    pub ttl_ms_max: Millis,
    /// What each server that DNS finds is, beyond its address.
    pub replica: ReplicaSettings,
}

impl Default for DiscoveryConfig {
    fn default() -> Self {
        Self {
            file: None,
            file_ms: Millis(2_000),
            dns: None,
            port: 8_000,
            srv: None,
            name_servers: Vec::new(),
            ttl_ms_min: Millis(1_000),
            ttl_ms_max: Millis(30_000),
            replica: ReplicaSettings::default(),
        }
    }
}

impl DiscoveryConfig {
    /// Whether anything is looked for.
    pub fn is_on(&self) -> bool {
        self.file.is_some() || self.asks_dns()
    }

    /// Whether DNS is asked.
    pub fn asks_dns(&self) -> bool {
        self.dns.is_some() || self.srv.is_some()
    }

    /// A server that DNS found.
    pub fn found(&self, address: SocketAddr) -> ReplicaSettings {
        ReplicaSettings { url: Some(format!("http://{address}")), ..self.replica.clone() }
    }

    /// Refuses what could find nothing.
    pub(super) fn validate(&self) -> Result<(), InvalidConfig> {
        let bad = |field: &str, reason: &str| Err(invalid(&format!("discovery.{field}"), reason));
        if self.dns.is_some() && self.srv.is_some() {
            return bad("srv", "is instead of dns: name one of them");
        }
        let positive =
            [("file_ms", self.file_ms.0), ("port", u64::from(self.port)), ("ttl_ms_min", self.ttl_ms_min.0)];
        if let Some((field, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return bad(field, "must be positive");
        }
        if self.ttl_ms_max < self.ttl_ms_min {
            return bad("ttl_ms_max", "must not be below ttl_ms_min");
        }
        let replica = &self.replica;
        match (&replica.name, &replica.url, replica.kind) {
            (Some(_), ..) => bad("replica.name", "is each server's own: its address and port"),
            (_, Some(_), _) => bad("replica.url", "is each server's own: what DNS says"),
            (.., ReplicaKind::Local) => bad("replica.kind", "is of [[replicas]]: DNS finds servers"),
            _ => Ok(()),
        }
    }
}
