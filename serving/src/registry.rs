//! Boards by id, for `GET` and `DELETE`: the running ones, and a bounded number of ended ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use base::{RelQueryId, TenantId};

use crate::board::Board;

/// Bounds of what is kept after its end.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// Boards.
    pub boards: usize,
    /// Their rows, together.
    pub rows: usize,
}

#[derive(Debug, Default)]
struct Inner {
    boards: BTreeMap<RelQueryId, Arc<Board>>,
    ended: VecDeque<(RelQueryId, usize)>,
    /// The same ids: a board may be said to have ended by a `DELETE` and by its last reader.
    ended_ids: BTreeSet<RelQueryId>,
    ended_rows: usize,
}

/// The boards.
#[derive(Debug)]
pub struct Registry {
    kept: Kept,
    inner: Mutex<Inner>,
}

impl Registry {
    /// An empty registry.
    pub fn new(kept: Kept) -> Self {
        Self { kept, inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A board begins.
    pub fn insert(&self, board: &Arc<Board>) {
        self.inner().boards.insert(board.id, Arc::clone(board));
    }

    /// A board that is over joins the ended ones, of which the oldest leave.
    pub fn ended(&self, board: &Board) {
        let rows = board.read().rows.len();
        let mut inner = self.inner();
        if !inner.boards.contains_key(&board.id) || !inner.ended_ids.insert(board.id) {
            return;
        }
        inner.ended.push_back((board.id, rows));
        inner.ended_rows += rows;
        while inner.ended.len() > self.kept.boards || inner.ended_rows > self.kept.rows {
            let Some((id, rows)) = inner.ended.pop_front() else { break };
            inner.ended_rows -= rows;
            inner.ended_ids.remove(&id);
            inner.boards.remove(&id);
        }
    }

    /// Forgets a board.
    pub fn remove(&self, id: RelQueryId) {
        self.inner().boards.remove(&id);
    }

    /// A tenant's board.
    pub fn get(&self, tenant: TenantId, id: RelQueryId) -> Option<Arc<Board>> {
        self.inner().boards.get(&id).filter(|board| board.tenant == tenant).cloned()
    }

    /// All boards that still run.
    pub fn running(&self) -> Vec<Arc<Board>> {
        let all: Vec<Arc<Board>> = self.inner().boards.values().cloned().collect();
        all.into_iter().filter(|board| !board.read().is_over()).collect()
    }
}

#[cfg(test)]
mod tests {
    use base::Time;

    use super::*;
    use crate::board::{Kind, Status};

    #[test]
    fn ended_boards_are_bounded_and_belong_to_their_tenant() {
        let registry = Registry::new(Kept { boards: 2, rows: 100 });
        let boards: Vec<_> = (1..=3)
            .map(|id| Board::new(RelQueryId(id), TenantId(1), Kind::RelQuery, 10, (0, Time(0))))
            .collect();
        for board in &boards {
            registry.insert(board);
        }
        assert_eq!(registry.running().len(), 3);
        for board in &boards {
            board.end(Status::Completed, Time(1));
            registry.ended(board);
            registry.ended(board);
        }
        assert!(registry.get(TenantId(1), RelQueryId(1)).is_none(), "the oldest has left");
        assert!(registry.get(TenantId(1), RelQueryId(2)).is_some(), "said twice, counted once");
        assert!(registry.get(TenantId(1), RelQueryId(3)).is_some());
        assert!(registry.get(TenantId(2), RelQueryId(3)).is_none(), "another tenant's");
    }
}
