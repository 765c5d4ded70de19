//! Counts for metrics, and the invariants that hold between any two calls.

use std::collections::BTreeSet;

use base::{Nanos, TenantId};

use crate::Scheduler;
use crate::event::Stats;

impl Scheduler {
    /// How far a tenant is served ahead of the least served one that waits: machine time at its weight.
    pub fn tenant_lead(&self, tenant: TenantId) -> Nanos {
        self.tenants.lead(tenant)
    }

    /// How full it is, and what it has done.
    pub fn stats(&self) -> Stats {
        let ledger = &self.ledger;
        Stats {
            relqueries: self.relqueries.len() as u32,
            relqueries_waiting: self.waiting.len() as u32,
            relqueries_running: self.running.len() as u32,
            rows_waiting: self.rows - self.running_rows,
            rows_running: self.running_rows,
            kv_total_blocks: ledger.total(),
            kv_used_blocks: ledger.total() - ledger.available(),
            kv_cached_blocks: ledger.cached(),
            kv_free_blocks: ledger.free(),
            kv_pinned_blocks: self.pins.len(),
            tier: ledger.tier(),
            prompt_tokens: self.counters.prompt_tokens,
            prefix_hit_tokens: self.counters.prefix_hit_tokens,
            output_tokens: self.counters.output_tokens,
            forced_tokens: self.counters.forced_tokens,
            guessed_tokens: self.counters.guessed_tokens,
            accepted_tokens: self.counters.accepted_tokens,
            steps: self.next_step - 1,
            preemptions: self.counters.preemptions,
        }
    }

    /// Says what is wrong, if anything: blocks are conserved and each is held as often as rows and pins say,
    /// each row is in one place, each relQuery in the sets where it belongs. Walks everything: for
    /// tests and for a debug endpoint, not for every step.
    pub fn check_invariants(&self) -> Result<(), String> {
        let mut held = vec![0; self.ledger.total() as usize];
        let mut pinned = 0;
        for block in self.pins.blocks() {
            held[block.0 as usize] += 1;
            pinned += 1;
        }
        if pinned != self.pins.len() || pinned > self.config.pinned_blocks_max() {
            return Err(format!("{pinned} blocks are pinned, {} counted", self.pins.len()));
        }
        let (mut rows, mut running, mut started) = (0, 0, 0);
        for (id, relquery) in &self.relqueries {
            relquery.check()?;
            if relquery.open_rows() == 0 && !self.emptied.contains(id) {
                return Err(format!("relQuery {id} has no row and is still held"));
            }
            rows += relquery.open_rows();
            running += relquery.running.len() as u32;
            for index in relquery.open_indices() {
                let row = relquery.row(index);
                for block in row.blocks() {
                    held[block.0 as usize] += 1;
                }
                let needed = row.own_total().div_ceil(self.config.block_tokens) as usize;
                if row.own.blocks.len() > needed && self.flight.is_none() {
                    return Err(format!("relQuery {id} row {}: it holds blocks for guesses", row.item.row));
                }
                if row.is_running() && row.computed >= row.total() {
                    return Err(format!("relQuery {id} row {}: its next slot has no input", row.item.row));
                }
                if let Some(request) = row.request {
                    started += 1;
                    if self.requests.get(&request) != Some(&(*id, index)) {
                        return Err(format!("request {request} is not that of its row"));
                    }
                }
            }
            let is_waiting = relquery.waiting_key.is_some_and(|key| self.waiting.contains(&key));
            let is_running = relquery.running_key.is_some_and(|key| self.running.contains(&key));
            let belongs = (relquery.waiting_len() > 0, !relquery.running.is_empty());
            if (is_waiting, is_running) != belongs {
                return Err(format!("relQuery {id} is not in the sets where it belongs"));
            }
        }
        let sets = self.relqueries.values().map(|relquery| {
            (usize::from(relquery.waiting_key.is_some()), usize::from(relquery.running_key.is_some()))
        });
        let (waiting, places) = sets.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        if (waiting, places) != (self.waiting.len(), self.running.len()) {
            return Err("a set names a relQuery that is not there".into());
        }
        if (rows, running, started) != (self.rows, self.running_rows, self.requests.len()) {
            return Err(format!("{rows} rows, {running} running, {started} requests: miscounted"));
        }
        if running > self.config.sequences_max {
            return Err(format!("{running} rows run at a time"));
        }
        if !self.suspects.is_empty() {
            let open: BTreeSet<_> = self.requests.values().copied().collect();
            if self.suspects.rows().any(|row| !open.contains(&row)) {
                return Err("a row under suspicion has ended".into());
            }
        }
        if self.config.policy.shares_by_tenant() {
            self.tenants.check(self.waiting.len())?;
        }
        self.timers.check(|id| self.relqueries.contains_key(&id))?;
        self.ledger.check(&held)
    }
}
