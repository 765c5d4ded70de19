//! What an operator may set about a fleet and its replicas: a default per field, unknown fields refused, one
//! validation at start.

use base::{Millis, TokenCount};
use serde::{Deserialize, Serialize};

use crate::config::ConfigError;

/// A replica: one engine that runs whole rows. Given by the caller; an id may come back after its replica was
/// removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReplicaId(pub u32);

impl std::fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a replica can run at a time. It is never given more, so that what waits, waits where it can be
/// re-ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReplicaConfig {
    /// Most rows in flight.
    pub rows_max: u32,
    /// Most unfinished tokens in flight, prompts and expected outputs: what its KV memory holds. Absent: no
    /// limit but rows.
    pub tokens_max: Option<TokenCount>,
}

impl Default for ReplicaConfig {
    fn default() -> Self {
        Self { rows_max: 64, tokens_max: None }
    }
}

impl ReplicaConfig {
    /// Rejects values under which nothing would ever run.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let error = |field| Err(ConfigError { field, reason: "must be positive" });
        if self.rows_max == 0 {
            return error("fleet.replica.rows_max");
        }
        if self.tokens_max == Some(TokenCount(0)) {
            return error("fleet.replica.tokens_max");
        }
        Ok(())
    }
}

/// Whether a replica may be given rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It takes rows.
    #[default]
    Up,
    /// It finishes what it has and takes nothing new.
    Draining,
    /// It has nothing: its rows went back.
    Down,
}

/// How gateways that share a database divide the servers that all of them use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LeaseConfig {
    /// Time between two reports of a gateway to the others; a tenth of it while it gives or takes.
    pub every_ms: Millis,
    /// Time after which the others take what a gateway had of which nothing is heard. After half of it, that
    /// gateway itself sends no more than one row at a time to a server.
    pub expire_ms: Millis,
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self { every_ms: Millis(500), expire_ms: Millis(10_000) }
    }
}

impl LeaseConfig {
    fn validate(self) -> Result<(), ConfigError> {
        if self.every_ms.0 == 0 {
            return Err(ConfigError { field: "fleet.leases.every_ms", reason: "must be positive" });
        }
        if self.expire_ms.0 / 4 < self.every_ms.0 {
            let reason = "must be four times fleet.leases.every_ms or more";
            return Err(ConfigError { field: "fleet.leases.expire_ms", reason });
        }
        Ok(())
    }
}

/// Settings of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FleetConfig {
    /// How far above the least load, in unfinished tokens, a replica still counts as least loaded.
    pub load_slack_tokens: TokenCount,
    /// Tokens that prefixes are hashed in steps of.
    pub prefix_block: u32,
    /// Prefix blocks remembered per replica, the least recently sent ones give way: about its KV memory in
    /// tokens over `prefix_block`. More of them remember what the replica has forgotten.
    pub prefixes_max: u32,
    /// Of the first so many bulk relQueries a replica takes one whose beginning it has seen, before their
    /// order.
    pub bulk_window: u32,
    /// The first bulk relQuery, once it is so old, is not passed over for the sake of a prefix any more.
    pub bulk_overtaken_ms_max: Millis,
    /// The longest latency that is borne, in thousandths of the longest that first come, first served would have
    /// had lately, under a policy that bounds it (`marginal-work`). 0: any.
    pub tail_permille_max: u32,
    /// Thousandths of the relQueries that may be later than that: 10 bounds the 99th percentile and lets one in a hundred,
    /// the largest, wait for as long as without a bound. 0: none.
    pub late_permille_max: u32,
    /// Most rows held, waiting and in flight.
    pub rows_max: u32,
    /// Most relQueries held.
    pub relqueries_max: u32,
    /// Failed tries that end a row: those under which its replica answered other rows, and answers that are
    /// not what was asked for. Where a replica answers nobody, the row is not to blame.
    pub tries_max: u32,
    /// Wait before a row whose replica failed is sent again, unless it is the first time and another replica
    /// is up; each further failure doubles it.
    pub retry_ms: Millis,
    /// Longest such wait.
    pub retry_ms_max: Millis,
    /// How long, from its first failure on, a row is sent again to replicas that answer nobody; and how long it waits
    /// where only a replica out of service, or one that has left, could hold it. Its caller's deadline may end it
    /// before.
    pub trouble_ms_max: Millis,
    /// Key of the prefix hash. Any value is right; a secret one keeps outsiders from making collisions.
    pub prefix_hash_key: [u64; 2],
    /// How gateways that share a database divide the servers that all of them use.
    pub leases: LeaseConfig,
}

impl Default for FleetConfig {
    fn default() -> Self {
        Self {
            load_slack_tokens: TokenCount(8_192),
            prefix_block: 64,
            prefixes_max: 4_096,
            bulk_window: 256,
            bulk_overtaken_ms_max: Millis(60_000),
            tail_permille_max: 1_500,
            late_permille_max: 0,
            rows_max: 100_000,
            relqueries_max: 10_000,
            tries_max: 8,
            retry_ms: Millis(250),
            retry_ms_max: Millis(10_000),
            trouble_ms_max: Millis(300_000),
            prefix_hash_key: [0x7265_6c53_6572_7665, 0x666c_6565_742d_7078],
            leases: LeaseConfig::default(),
        }
    }
}

impl FleetConfig {
    /// Rejects values under which the fleet would stall.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let positive = [
            ("fleet.prefix_block", self.prefix_block),
            ("fleet.prefixes_max", self.prefixes_max),
            ("fleet.bulk_window", self.bulk_window),
            ("fleet.rows_max", self.rows_max),
            ("fleet.relqueries_max", self.relqueries_max),
            ("fleet.tries_max", self.tries_max),
        ];
        match positive.iter().find(|(_, value)| *value == 0) {
            Some((field, _)) => Err(ConfigError { field, reason: "must be positive" }),
            None => self.leases.validate(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_a_zero_is_named() {
        assert_eq!(FleetConfig::default().validate(), Ok(()));
        assert_eq!(ReplicaConfig::default().validate(), Ok(()));
        let bad = FleetConfig { prefix_block: 0, ..FleetConfig::default() };
        assert_eq!(bad.validate().map_err(|error| error.field), Err("fleet.prefix_block"));
        let leases = LeaseConfig { every_ms: Millis(500), expire_ms: Millis(1_999) };
        let bad = FleetConfig { leases, ..FleetConfig::default() };
        assert_eq!(bad.validate().map_err(|error| error.field), Err("fleet.leases.expire_ms"));
        let bad = ReplicaConfig { tokens_max: Some(TokenCount(0)), ..ReplicaConfig::default() };
        assert_eq!(bad.validate().map_err(|error| error.field), Err("fleet.replica.tokens_max"));
    }
}
