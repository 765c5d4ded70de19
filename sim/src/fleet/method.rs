//! What a method is to the world: it says which rows go where, and hears of their ends. It must not know how
//! replicas work.

use base::{Time, WorkItem};

use super::replica::EndedRow;

/// A row on its way to a replica.
#[derive(Clone, Debug)]
pub struct RowDispatch {
    /// Place of the replica it goes to.
    pub replica: usize,
    /// What its end is called.
    pub tag: u64,
    pub item: WorkItem,
}

/// A way to bring rows to replicas.
pub trait Method {
    /// Rows to send now.
    fn send(&mut self, now: Time) -> Vec<RowDispatch>;
    /// A row has ended.
    fn ended(&mut self, replica: usize, ended: EndedRow, now: Time);
    /// When to ask again although nothing has happened.
    fn looks_at(&self, now: Time) -> Option<Time>;
    /// Whether the whole input has been read.
    fn has_read_all(&self) -> bool;
}
