//! RelQueries by id, for `GET` and `DELETE`: the running ones, and a bounded number of ended ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use base::{RelQueryId, TenantId};

use crate::relquery_state::RelQueryState;

/// Bounds of what is kept after its end.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    pub relqueries: usize,
    /// Their rows, together.
    pub rows: usize,
}

#[derive(Debug)]
struct Inner {
    kept: Retention,
    relqueries: BTreeMap<RelQueryId, Arc<RelQueryState>>,
    ended: VecDeque<(RelQueryId, usize)>,
    /// The same ids: a relQuery may be said to have ended by a `DELETE` and by its last reader.
    ended_ids: BTreeSet<RelQueryId>,
    ended_rows: usize,
}

/// The relQueries.
#[derive(Debug)]
pub struct Registry {
    inner: Mutex<Inner>,
}

impl Registry {
    /// An empty registry.
    pub fn new(kept: Retention) -> Self {
        let inner = Inner {
            kept,
            relqueries: BTreeMap::new(),
            ended: VecDeque::new(),
            ended_ids: BTreeSet::new(),
            ended_rows: 0,
        };
        Self { inner: Mutex::new(inner) }
    }

    /// Other bounds; what is beyond them leaves when the next relQuery has ended.
    pub fn set_retention(&self, kept: Retention) {
        self.inner().kept = kept;
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A relQuery begins.
    pub fn insert(&self, relquery: &Arc<RelQueryState>) {
        self.inner().relqueries.insert(relquery.id, Arc::clone(relquery));
    }

    /// A relQuery that is over joins the ended ones, of which the oldest leave.
    pub fn ended(&self, relquery: &RelQueryState) {
        let rows = relquery.forget_scores();
        let mut inner = self.inner();
        if !inner.relqueries.contains_key(&relquery.id) || !inner.ended_ids.insert(relquery.id) {
            return;
        }
        inner.ended.push_back((relquery.id, rows));
        inner.ended_rows += rows;
        let Retention { relqueries, rows } = inner.kept;
        while inner.ended.len() > relqueries || inner.ended_rows > rows {
            let Some((id, rows)) = inner.ended.pop_front() else { break };
            inner.ended_rows -= rows;
            inner.ended_ids.remove(&id);
            inner.relqueries.remove(&id);
        }
    }

    /// Forgets a relQuery.
    pub fn remove(&self, id: RelQueryId) {
        self.inner().relqueries.remove(&id);
    }

    /// A tenant's relQuery.
    pub fn get(&self, tenant: TenantId, id: RelQueryId) -> Option<Arc<RelQueryState>> {
        self.inner().relqueries.get(&id).filter(|relquery| relquery.tenant == tenant).cloned()
    }

    /// All relQueries that still run.
    pub fn running(&self) -> Vec<Arc<RelQueryState>> {
        let all: Vec<Arc<RelQueryState>> = self.inner().relqueries.values().cloned().collect();
        all.into_iter().filter(|relquery| !relquery.read().is_over()).collect()
    }
}

#[cfg(test)]
mod tests {
    use base::{PromptToken, Time, TokenId};

    use super::*;
    use crate::relquery_state::{Arrival, RelQueryKind, Status};

    const NOW: Arrival = Arrival { unix_ms: 0, time: Time(0) };

    #[test]
    fn ended_relqueries_are_bounded_and_belong_to_their_tenant() {
        let registry = Registry::new(Retention { relqueries: 2, rows: 100 });
        let relqueries: Vec<_> = (1..=3)
            .map(|id| RelQueryState::new(RelQueryId(id), TenantId(1), RelQueryKind::RelQuery, 10, NOW))
            .collect();
        for relquery in &relqueries {
            registry.insert(relquery);
        }
        assert_eq!(registry.running().len(), 3);
        let token = PromptToken { id: TokenId(1), text: "a".into(), bytes: None, likelihood: None };
        let tokens: Arc<[PromptToken]> = [token].into();
        relqueries[2].keep_prompt(0, Arc::clone(&tokens));
        for relquery in &relqueries {
            relquery.end(Status::Completed, Time(1));
            registry.ended(relquery);
            registry.ended(relquery);
        }
        assert!(registry.get(TenantId(1), RelQueryId(1)).is_none(), "the oldest has left");
        assert!(relqueries[2].read().rows[0].prompt.is_empty(), "nobody asks for that again");
        relqueries[2].keep_prompt(0, tokens);
        assert!(relqueries[2].read().rows[0].prompt.is_empty(), "a step that it left was still under way");
        assert!(registry.get(TenantId(1), RelQueryId(2)).is_some(), "said twice, counted once");
        assert!(registry.get(TenantId(1), RelQueryId(3)).is_some());
        assert!(registry.get(TenantId(2), RelQueryId(3)).is_none(), "another tenant's");
        registry.set_retention(Retention { relqueries: 3, rows: 15 });
        assert!(registry.get(TenantId(1), RelQueryId(2)).is_some());
        let next = RelQueryState::new(RelQueryId(4), TenantId(1), RelQueryKind::RelQuery, 10, NOW);
        registry.insert(&next);
        registry.ended(&next);
        let left = |id| registry.get(TenantId(1), RelQueryId(id)).is_some();
        assert_eq!([2, 3, 4].map(left), [false, false, true], "20 rows are more than are kept now");
    }
}
