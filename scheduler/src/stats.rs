//! Counts for metrics. Nothing is counted here that is not counted anyway.

use crate::Scheduler;
use crate::event::Stats;

impl Scheduler {
    /// How full it is, and what it has done.
    pub fn stats(&self) -> Stats {
        let ledger = &self.kv.ledger;
        Stats {
            relqueries: self.relqueries.len() as u32,
            relqueries_waiting: self.queues.waiting.len() as u32,
            relqueries_running: self.queues.running.len() as u32,
            rows_waiting: self.queues.rows - self.queues.running_rows,
            rows_running: self.queues.running_rows,
            kv_total_blocks: ledger.total(),
            kv_used_blocks: ledger.total() - ledger.available(),
            kv_cached_blocks: ledger.cached(),
            kv_free_blocks: ledger.free(),
            kv_pinned_blocks: self.kv.pins.len(),
            tier: ledger.tier(),
            prompt_tokens: self.telemetry.counters.prompt_tokens,
            prefix_hit_tokens: self.telemetry.counters.prefix_hit_tokens,
            output_tokens: self.telemetry.counters.output_tokens,
            forced_tokens: self.telemetry.counters.forced_tokens,
            guessed_tokens: self.telemetry.counters.guessed_tokens,
            accepted_tokens: self.telemetry.counters.accepted_tokens,
            steps: self.steps.next_step - 1,
            preemptions: self.telemetry.counters.preemptions,
        }
    }
}
