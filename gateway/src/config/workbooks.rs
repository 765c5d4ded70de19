//! Workbooks: how much tenants may keep, and how long links to them last.

use base::{Bytes, Millis};
use serde::{Deserialize, Serialize};
use serving::config::{InvalidConfig, invalid};
use store::WorkbookLimits;

/// Workbooks that the page keeps on the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkbooksConfig {
    /// Workbooks of one tenant.
    pub tenant_workbooks_max: u64,
    /// Bytes of those, their older versions included.
    pub tenant_bytes_max: Bytes,
    /// Versions that are kept of one workbook.
    pub versions_max: u64,
    /// Saves within this time of a version's first are one version, the last of them.
    pub version_ms: Millis,
    /// Links that show one workbook to readers.
    pub shares_max: u64,
    /// How long such a link works at most.
    pub share_ms_max: Millis,
}

impl Default for WorkbooksConfig {
    fn default() -> Self {
        Self {
            tenant_workbooks_max: 1_000,
            tenant_bytes_max: Bytes(256 << 20),
            versions_max: 50,
            version_ms: Millis(5 * 60_000),
            shares_max: 100,
            share_ms_max: Millis(365 * 86_400_000),
        }
    }
}

impl WorkbooksConfig {
    /// Refuses what could not work, and names the field.
    pub(super) fn validate(&self) -> Result<(), InvalidConfig> {
        let positive: &[(&str, u64)] =
            &[("workbooks.versions_max", self.versions_max), ("workbooks.share_ms_max", self.share_ms_max.0)];
        match positive.iter().find(|(_, value)| *value == 0) {
            Some((field, _)) => Err(invalid(field, "must be positive")),
            None => Ok(()),
        }
    }

    /// What the store is told.
    pub fn limits(&self) -> WorkbookLimits {
        WorkbookLimits {
            workbooks: self.tenant_workbooks_max,
            bytes: self.tenant_bytes_max,
            versions: self.versions_max,
            version_span: self.version_ms,
        }
    }
}
