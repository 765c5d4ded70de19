//! SQL: where its clients connect, what they can read, and what a statement may take.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use base::Bytes;
use serde::{Deserialize, Serialize};
use serving::config::{InvalidConfig, invalid};

use super::Secret;

/// SQL for BI tools, over the Postgres protocol. `/v1/sql` needs none of its addresses.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SqlConfig {
    /// Address and port of the Postgres protocol; without it `/v1/sql` is the only way in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Where tenants' tables are, a folder for each by its number; `tables` in `store.data_dir` without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Databases whose tables are a schema of this name, for every tenant: `postgres://..` or `sqlite://..`.
    pub sources: BTreeMap<String, Secret>,
    /// Connections at a time; more are refused.
    pub connections_max: usize,
    /// Bytes that sorts, joins and groups of all statements hold; what needs more uses files.
    pub memory_bytes_max: Bytes,
    /// Bytes in such files.
    pub spill_bytes_max: Bytes,
    /// Bytes of a file that one `CREATE TABLE .. AS` makes.
    pub created_bytes_max: Bytes,
    /// The certificates of TLS (PEM), the server's own first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// The key of the certificate (PEM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_key: Option<PathBuf>,
}

impl Default for SqlConfig {
    fn default() -> Self {
        Self {
            listen: None,
            folder: None,
            sources: BTreeMap::new(),
            connections_max: 100,
            memory_bytes_max: Bytes(1 << 30),
            spill_bytes_max: Bytes(16 << 30),
            created_bytes_max: Bytes(4 << 30),
            certificate: None,
            certificate_key: None,
        }
    }
}

impl SqlConfig {
    /// Refuses what could not work, and names the field.
    pub(super) fn validate(&self) -> Result<(), InvalidConfig> {
        let positive: &[(&str, u64)] = &[
            ("sql.connections_max", self.connections_max as u64),
            ("sql.memory_bytes_max", self.memory_bytes_max.0),
            ("sql.created_bytes_max", self.created_bytes_max.0),
        ];
        for (field, value) in positive {
            if *value == 0 {
                return Err(invalid(field, "must be positive"));
            }
        }
        match (&self.certificate, &self.certificate_key) {
            (Some(_), None) => Err(invalid("sql.certificate_key", "is required with sql.certificate")),
            (None, Some(_)) => Err(invalid("sql.certificate", "is required with sql.certificate_key")),
            _ => Ok(()),
        }
    }
}
