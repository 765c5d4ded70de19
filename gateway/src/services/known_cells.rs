//! Keys of cells' answers by what was asked. A key is of a prompt's tokens: who asks again for a cell whose answer is in
//! memory would have it tokenised only to learn that. Must not know the answers.

use ir::Cell;
use quick_cache::sync::Cache;
use serving::intake::CellKey;
use store::ResultKey;

/// All that decides a cell's answer, but the model.
pub type CellDigest = [u8; 32];

/// All that decides the answers of a group's cells but their rows.
pub struct GroupDigest([u8; 32]);

impl GroupDigest {
    /// `settings`: the whole of it, as text.
    pub fn of(settings: &str) -> Self {
        Self(ResultKey::of(&[settings.as_bytes()]).0)
    }

    /// That of one row.
    pub fn cell(&self, row: &[Cell]) -> CellDigest {
        ResultKey::of(&[&self.0, format!("{row:?}").as_bytes()]).0
    }
}

/// Keys of a model's cells; what is asked for again stays while what is seen once goes.
#[derive(Debug)]
pub struct KnownCells {
    keys: Cache<CellDigest, CellKey>,
}

impl KnownCells {
    /// None yet, and at most so many.
    pub fn new(entries_max: usize) -> Self {
        Self { keys: Cache::new(entries_max) }
    }

    /// The key of a cell that was asked for before.
    pub fn get(&self, cell: &CellDigest) -> Option<CellKey> {
        self.keys.get(cell)
    }

    /// Keeps a cell's key.
    pub fn keep(&self, cell: CellDigest, key: CellKey) {
        self.keys.insert(cell, key);
    }
}
