//! Who waits and who runs: relQueries by the order they are served in, rows by their requests, and counts of
//! both.

use std::collections::{BTreeMap, BTreeSet};

use base::{RelQueryId, RequestId};

use crate::priority::RelQueryKey;
use crate::relquery::RelQuery;
use crate::tenants::Tenants;

#[derive(Clone, Debug)]
pub(crate) struct Queues {
    /// RelQueries with waiting rows, and those with rows that hold KV.
    pub(crate) waiting: BTreeSet<RelQueryKey>,
    pub(crate) running: BTreeSet<RelQueryKey>,
    /// Shares of the machine, under a policy that has them.
    pub(crate) tenants: Tenants,
    /// Rows that were admitted at least once and have not ended.
    pub(crate) requests: BTreeMap<RequestId, (RelQueryId, u32)>,
    pub(crate) next_request: u64,
    /// Rows held, and those among them that hold KV.
    pub(crate) rows: u32,
    pub(crate) running_rows: u32,
    /// RelQueries whose last row was cancelled: they are done, and someone must hear it.
    pub(crate) emptied: Vec<RelQueryId>,
}

impl Default for Queues {
    fn default() -> Self {
        Self {
            waiting: BTreeSet::new(),
            running: BTreeSet::new(),
            tenants: Tenants::default(),
            requests: BTreeMap::new(),
            next_request: 1,
            rows: 0,
            running_rows: 0,
            emptied: Vec::new(),
        }
    }
}

impl Queues {
    /// A row is admitted for the first time: the request it runs as.
    pub(crate) fn new_request(&mut self, id: RelQueryId, index: u32) -> RequestId {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        self.requests.insert(request, (id, index));
        request
    }

    /// Each relQuery is in the sets where it belongs and no other, and rows are as many as counted.
    pub(crate) fn check(&self, relqueries: &BTreeMap<RelQueryId, RelQuery>) -> Result<(), String> {
        let (mut rows, mut running, mut started, mut places) = (0, 0, 0, (0, 0));
        for (id, relquery) in relqueries {
            if relquery.open_rows() == 0 && !self.emptied.contains(id) {
                return Err(format!("relQuery {id} has no row and is still held"));
            }
            rows += relquery.open_rows();
            running += relquery.running.len() as u32;
            for index in relquery.open_indices() {
                let Some(request) = relquery.row(index).request else { continue };
                started += 1;
                if self.requests.get(&request) != Some(&(*id, index)) {
                    return Err(format!("request {request} is not that of its row"));
                }
            }
            let is_waiting = relquery.waiting_key.is_some_and(|key| self.waiting.contains(&key));
            let is_running = relquery.running_key.is_some_and(|key| self.running.contains(&key));
            if (is_waiting, is_running) != (relquery.waiting_len() > 0, !relquery.running.is_empty()) {
                return Err(format!("relQuery {id} is not in the sets where it belongs"));
            }
            places.0 += usize::from(relquery.waiting_key.is_some());
            places.1 += usize::from(relquery.running_key.is_some());
        }
        if places != (self.waiting.len(), self.running.len()) {
            return Err("a set names a relQuery that is not there".into());
        }
        if (rows, running, started) != (self.rows, self.running_rows, self.requests.len()) {
            return Err(format!("{rows} rows, {running} running, {started} requests: miscounted"));
        }
        Ok(())
    }
}
