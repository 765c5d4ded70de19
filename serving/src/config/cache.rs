//! Answers kept in memory and in the store, and cell calls that share one open relQuery.

use base::{Bytes, Millis};
use serde::{Deserialize, Serialize};

/// Answers kept for the next recalculation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// Whether answers are kept at all.
    pub enabled: bool,
    /// Answers in memory, in front of the database.
    pub memory_entries_max: usize,
    /// Answers of one tenant in the database.
    pub tenant_entries_max: u64,
    /// Bytes of one tenant's answers in the database; beyond it the ones unused for longest go.
    pub tenant_bytes_max: Bytes,
    /// Answers of all tenants in the database.
    pub entries_max: u64,
    /// An answer's lifetime.
    pub lifetime_ms: Millis,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            memory_entries_max: 50_000,
            tenant_entries_max: 50_000,
            tenant_bytes_max: Bytes(256 << 20),
            entries_max: 200_000,
            lifetime_ms: Millis(30 * 24 * 3_600_000),
        }
    }
}

/// When single calls join an open relQuery: it has the same tenant and template, is unfinished, young
/// and small enough. Bounds keep an endless stream of calls from riding on the first one's place in the
/// queue. Chats and completions that begin alike join as cells do: an SDK's loop over a column is one relQuery.
/// None waits for another.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CoalesceConfig {
    /// Age of a relQuery after which no cell joins it; 0 switches the coalescing of cells off.
    pub age_ms_max: Millis,
    /// Time in which no row of a relQuery came or ended after which no chat and no completion joins it; 0 leaves
    /// each a relQuery of its own.
    pub idle_ms_max: Millis,
    /// Rows of a relQuery above which nothing joins it.
    pub rows_max: usize,
}

impl Default for CoalesceConfig {
    fn default() -> Self {
        Self { age_ms_max: Millis(2_000), idle_ms_max: Millis(2_000), rows_max: 1_000 }
    }
}
