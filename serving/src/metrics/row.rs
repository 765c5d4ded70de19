//! Rows: how they end, and their tokens.

use base::End;
use prometheus::IntCounter;

use super::register::Registrar;
use crate::relquery_state::Usage;

/// Handles.
pub struct RowMetrics {
    stop: IntCounter,
    length: IntCounter,
    pub failed: IntCounter,
    /// Rows that nobody wanted any more.
    pub cancelled: IntCounter,
    /// Rows that got their answer from a row in flight.
    pub shared: IntCounter,
    /// Rows that joined an open relQuery.
    pub coalesced: IntCounter,
    /// Rows answered from the result cache.
    pub cache_hits: IntCounter,
    /// Rows looked up there in vain.
    pub cache_misses: IntCounter,
    prompt_tokens: IntCounter,
    computed_tokens: IntCounter,
    exact_tokens: IntCounter,
    shifted_tokens: IntCounter,
    output_tokens: IntCounter,
}

impl RowMetrics {
    pub(super) fn register(r: &Registrar<'_>) -> Self {
        let outcomes = ("outcome", ["stop", "length", "failed", "cancelled"]);
        let [stop, length, failed, cancelled] =
            r.counters("relserve_rows_total", "Rows by outcome", outcomes);
        let lookups = ("result", ["hit", "miss"]);
        let [cache_hits, cache_misses] =
            r.counters("relserve_cache_rows_total", "Result cache lookups", lookups);
        Self {
            stop,
            length,
            failed,
            cancelled,
            shared: r.counter("relserve_rows_shared_total", "Rows answered by a row in flight"),
            coalesced: r.counter("relserve_rows_coalesced_total", "Rows that joined an open relQuery"),
            cache_hits,
            cache_misses,
            prompt_tokens: r.counter(
                "relserve_prompt_tokens_total",
                "Prompt tokens of rows that finished, or were called off under way",
            ),
            computed_tokens: r.counter("relserve_computed_tokens_total", "Prompt tokens computed"),
            exact_tokens: r.counter(
                "relserve_exact_tokens_total",
                "Prompt tokens that were cached after all that stands before them",
            ),
            shifted_tokens: r.counter(
                "relserve_shifted_tokens_total",
                "Prompt tokens that were cached in modules of their own",
            ),
            output_tokens: r.counter(
                "relserve_output_tokens_total",
                "Output tokens of rows that finished, or were called off under way",
            ),
        }
    }

    /// A row finished.
    pub(super) fn done(&self, end: End, usage: Usage) {
        let ended = if end.is_stop() { &self.stop } else { &self.length };
        ended.inc();
        self.used(usage);
    }

    /// What a row used that finished, or was called off under way.
    pub(super) fn used(&self, usage: Usage) {
        self.prompt_tokens.inc_by(usage.prompt.0);
        self.computed_tokens.inc_by(usage.computed.0);
        self.exact_tokens.inc_by(usage.exact().0);
        self.shifted_tokens.inc_by(usage.shifted.0);
        self.output_tokens.inc_by(usage.output.0);
    }
}
