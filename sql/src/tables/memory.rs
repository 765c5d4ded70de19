//! The memory that queries have, all together.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::disk_manager::{DiskManager, DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, MemoryPool, TrackConsumersPool};

/// Operators that are named where memory has run out.
const NAMED: NonZeroUsize = NonZeroUsize::new(3).expect("3 is not 0");

/// Bounds of the memory of queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Bytes that operators hold, of all queries; sorts, joins and groups that need more use files.
    pub bytes_max: usize,
    /// Bytes in such files.
    pub spill_bytes_max: u64,
    /// Where these files are; `None`: where the system keeps temporary ones.
    pub spill_folder: Option<PathBuf>,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self { bytes_max: 1 << 30, spill_bytes_max: 16 << 30, spill_folder: None }
    }
}

/// The memory of queries: one for a server.
#[derive(Clone, Debug)]
pub struct Memory {
    pub(super) pool: Arc<dyn MemoryPool>,
    pub(super) disk: Arc<DiskManager>,
}

impl Memory {
    /// Memory within these limits; an error where the folder for files cannot be used.
    pub fn new(limits: &MemoryLimits) -> Result<Self> {
        let mode = match &limits.spill_folder {
            Some(folder) => DiskManagerMode::Directories(vec![folder.clone()]),
            None => DiskManagerMode::OsTmpDirectory,
        };
        let disk = DiskManagerBuilder::default()
            .with_mode(mode)
            .with_max_temp_directory_size(limits.spill_bytes_max)
            .build()?;
        let pool = TrackConsumersPool::new(FairSpillPool::new(limits.bytes_max), NAMED);
        Ok(Self { pool: Arc::new(pool), disk: Arc::new(disk) })
    }

    /// Bytes held now.
    pub fn reserved(&self) -> usize {
        self.pool.reserved()
    }
}
