//! RelQueries: how they end, and the periods of their latency.

use base::Periods;
use prometheus::IntCounter;

use super::exemplar::{TracedAt, TracedLatency};
use super::register::Registrar;
use crate::relquery_state::Status;

/// Handles.
pub(super) struct RelQueryMetrics {
    completed: IntCounter,
    cancelled: IntCounter,
    failed: IntCounter,
    latency: TracedLatency,
    waiting: TracedLatency,
    core: TracedLatency,
    tail: TracedLatency,
}

impl RelQueryMetrics {
    pub(super) fn register(r: &Registrar<'_>) -> Self {
        let statuses = ("status", ["completed", "cancelled", "failed"]);
        let [completed, cancelled, failed] =
            r.counters("relserve_relqueries_total", "RelQueries that ended", statuses);
        Self {
            completed,
            cancelled,
            failed,
            latency: r.traced_latency("relserve_relquery_seconds", "Latency of relQueries"),
            waiting: r.traced_latency(
                "relserve_relquery_waiting_seconds",
                "Arrival to the start of the first prefill",
            ),
            core: r.traced_latency(
                "relserve_relquery_core_seconds",
                "Start of the first to the end of the last prefill",
            ),
            tail: r.traced_latency(
                "relserve_relquery_tail_seconds",
                "End of the last prefill to the last token",
            ),
        }
    }

    /// One ended.
    pub(super) fn ended(&self, status: &Status) {
        match status {
            Status::Running => {}
            Status::Cancelled => self.cancelled.inc(),
            Status::Failed(_) => self.failed.inc(),
            Status::Completed => self.completed.inc(),
        }
    }

    /// One was completed.
    pub(super) fn took(&self, periods: Periods, trace: Option<TracedAt>) {
        self.latency.observe(periods.total().as_seconds(), trace);
        self.waiting.observe(periods.waiting.as_seconds(), trace);
        self.core.observe(periods.core.as_seconds(), trace);
        self.tail.observe(periods.tail.as_seconds(), trace);
    }
}
