//! What holds between any two calls.

use crate::Scheduler;

impl Scheduler {
    /// Says what is wrong, if anything: blocks are conserved and each is held as often as rows and pins say,
    /// each row is in one place, each relQuery in the sets where it belongs. Walks everything: for
    /// tests and for a debug endpoint, not for every step.
    pub fn check_invariants(&self) -> Result<(), String> {
        for relquery in self.relqueries.values() {
            relquery.check()?;
        }
        self.check_rows()?;
        self.queues.check(&self.relqueries)?;
        if self.queues.running_rows > self.config.sequences_max {
            return Err(format!("{} rows run at a time", self.queues.running_rows));
        }
        if self.config.is_fair() {
            self.queues.tenants.check(self.queues.waiting.len())?;
        }
        self.isolation.check(|row| self.queues.requests.values().any(|open| *open == row))?;
        self.timers.check(|id| self.relqueries.contains_key(&id))?;
        self.check_blocks()
    }

    /// Rows that run have something to compute, and between steps hold no more than they need.
    fn check_rows(&self) -> Result<(), String> {
        for (id, relquery) in &self.relqueries {
            for row in relquery.open_indices().map(|index| relquery.row(index)) {
                let needed = row.own_total().div_ceil(self.config.block_tokens) as usize;
                if row.own.blocks.len() > needed && self.steps.flight.is_none() {
                    return Err(format!("relQuery {id} row {}: it holds blocks for guesses", row.item.row));
                }
                if row.is_running() && row.computed >= row.total() {
                    return Err(format!("relQuery {id} row {}: its next slot has no input", row.item.row));
                }
            }
        }
        Ok(())
    }

    /// Each block is held as often as rows and pins say.
    fn check_blocks(&self) -> Result<(), String> {
        let pins = &self.kv.pins;
        let pinned = pins.blocks().count() as u32;
        if pinned != pins.len() || pinned > self.config.pinned_blocks_max() {
            return Err(format!("{pinned} blocks are pinned, {} counted", pins.len()));
        }
        let mut held = vec![0; self.kv.ledger.total() as usize];
        let rows = self
            .relqueries
            .values()
            .flat_map(|relquery| relquery.open_indices().flat_map(|index| relquery.row(index).blocks()));
        for block in pins.blocks().chain(rows) {
            held[block.0 as usize] += 1;
        }
        self.kv.ledger.check(&held)
    }
}
