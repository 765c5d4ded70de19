//! How rows are held back and put together, and which settings cannot work.

use serde::{Deserialize, Serialize};

/// How rows are held back and put together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BucketSettings {
    /// Rows held; at this many, the largest bucket has to go. At least 1.
    pub rows_max: usize,
    /// Bytes held, likewise: rows may be long.
    pub bytes_max: u64,
    /// A bucket of fewer rows stays, in the hope of more, until the buffer is full or nothing else is left to
    /// run.
    pub bucket_min: usize,
    /// Neighbours are in one bucket if their common prefix is at least this share of one of them; 0 to 1.
    pub match_min: f64,
}

impl Default for BucketSettings {
    /// The published values, and 64 MiB.
    fn default() -> Self {
        Self { rows_max: 5_000, bytes_max: 64 << 20, bucket_min: 16, match_min: 0.33 }
    }
}

impl BucketSettings {
    /// Whether they can work; the error names the field.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let wrong = |field, reason| Err(SettingsError { field, reason });
        if self.rows_max == 0 {
            return wrong("rows_max", "must be at least 1");
        }
        if self.bytes_max == 0 {
            return wrong("bytes_max", "must be at least 1");
        }
        if !(0.0..=1.0).contains(&self.match_min) {
            return wrong("match_min", "must be between 0 and 1");
        }
        Ok(())
    }
}

/// A setting that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {reason}")]
pub struct SettingsError {
    /// The field.
    pub field: &'static str,
    /// What is wrong with it.
    pub reason: &'static str,
}
