//! Files and batches: how much there may be of them, and how their rows run.

use base::{Bytes, Millis};
use ir::bucket::BucketSettings;
use serde::{Deserialize, Serialize};
use serving::config::{InvalidConfig, invalid};

/// Files and batches.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BulkConfig {
    /// Requests of one batch.
    pub requests_max: u64,
    /// Bytes of one uploaded file.
    pub file_bytes_max: Bytes,
    /// Bytes of one line of it.
    pub line_bytes_max: Bytes,
    /// Files of one tenant, those that batches leave included.
    pub tenant_files_max: u64,
    /// Bytes of those, together.
    pub tenant_bytes_max: Bytes,
    /// Unfinished batches of one tenant; more get a 429.
    pub tenant_batches_max: u64,
    /// Batches that this gateway runs at once; others wait.
    pub running_max: usize,
    /// Rows of one batch that are handed to the scheduler and not recorded yet.
    pub rows_in_flight_max: usize,
    /// How long files and batches are kept.
    pub keep_ms_max: Millis,
    /// How rows with a common prefix are put together.
    pub bucket: BucketSettings,
}

impl Default for BulkConfig {
    fn default() -> Self {
        Self {
            requests_max: 50_000,
            file_bytes_max: Bytes(200 << 20),
            line_bytes_max: Bytes(1 << 20),
            tenant_files_max: 10_000,
            tenant_bytes_max: Bytes(10 << 30),
            tenant_batches_max: 100,
            running_max: 4,
            rows_in_flight_max: 256,
            keep_ms_max: Millis(30 * 24 * 3_600_000),
            bucket: BucketSettings::default(),
        }
    }
}

impl BulkConfig {
    /// Refuses what could not work, and names the field.
    pub(super) fn validate(&self) -> Result<(), InvalidConfig> {
        let positive: &[(&str, u64)] = &[
            ("bulk.requests_max", self.requests_max),
            ("bulk.file_bytes_max", self.file_bytes_max.0),
            ("bulk.line_bytes_max", self.line_bytes_max.0),
            ("bulk.tenant_files_max", self.tenant_files_max),
            ("bulk.tenant_bytes_max", self.tenant_bytes_max.0),
            ("bulk.tenant_batches_max", self.tenant_batches_max),
            ("bulk.running_max", self.running_max as u64),
            ("bulk.rows_in_flight_max", self.rows_in_flight_max as u64),
            ("bulk.keep_ms_max", self.keep_ms_max.0),
        ];
        for (field, value) in positive {
            if *value == 0 {
                return Err(invalid(field, "must be positive"));
            }
        }
        // A row's number is 32 bits wide.
        if self.requests_max > 1_000_000_000 {
            return Err(invalid("bulk.requests_max", "must be at most 1000000000"));
        }
        self.bucket.validate().map_err(|error| invalid("bulk.bucket", &error.to_string()))
    }
}
