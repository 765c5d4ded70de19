//! Metrics of the replicas of a fleet, a series each. Whether one is up and how many rows it has is
//! published by the loop ([`super::published`]).

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};
use scheduler::fleet::Finish;

use super::published::REPLICA;
use super::register::Registrar;

/// What becomes of a row at a replica.
const OUTCOMES: [&str; 5] = ["sent", "answered", "failed", "lost", "cancelled"];

/// The metrics of all replicas; none has a series before it is asked for.
pub(super) struct ReplicaVecs {
    rows: IntCounterVec,
    prompt_tokens: IntCounterVec,
    cached_tokens: IntCounterVec,
    output_tokens: IntCounterVec,
    overstated: IntCounterVec,
    try_seconds: HistogramVec,
    reads: IntCounterVec,
}

/// Handles of the metrics of a source of replicas that is read while the server runs.
#[derive(Clone)]
pub struct DiscoveryMetrics {
    /// Readings that were taken in.
    pub read: IntCounter,
    /// Readings that changed nothing: the source is away or not valid.
    pub failed: IntCounter,
}

/// Handles of one replica's metrics.
#[derive(Clone)]
pub struct ReplicaMetrics {
    /// Rows sent, those that moved here among them.
    pub sent: IntCounter,
    answered: IntCounter,
    /// Rows that failed here for good.
    pub failed: IntCounter,
    /// Rows that it did not answer, which moved.
    pub lost: IntCounter,
    /// Rows that were called back: nobody waited for them any more.
    pub cancelled: IntCounter,
    prompt_tokens: IntCounter,
    cached_tokens: IntCounter,
    output_tokens: IntCounter,
    /// Replies whose usage was more than they can have used.
    pub overstated: IntCounter,
    /// Time of one try.
    pub try_seconds: Histogram,
}

impl ReplicaVecs {
    pub(super) fn register(r: &Registrar<'_>) -> Self {
        Self {
            rows: r.counter_vec("relserve_replica_rows_total", "Rows of a replica", &[REPLICA, "outcome"]),
            prompt_tokens: r.counter_vec(
                "relserve_replica_prompt_tokens_total",
                "Prompt tokens answered",
                &[REPLICA],
            ),
            cached_tokens: r.counter_vec(
                "relserve_replica_cached_tokens_total",
                "Of those, tokens that the replica found in its cache",
                &[REPLICA],
            ),
            output_tokens: r.counter_vec("relserve_replica_output_tokens_total", "Output tokens", &[REPLICA]),
            overstated: r.counter_vec(
                "relserve_replica_overstated_usages_total",
                "Replies whose usage was more than was asked for: no more than that counts",
                &[REPLICA],
            ),
            try_seconds: r.latency_vec(
                "relserve_replica_try_seconds",
                "Time of one try of a row at a server, from when the queue sends it to when it hears of its end",
                &[REPLICA],
            ),
            reads: r.counter_vec(
                "relserve_discovery_reads_total",
                "Readings of a source of replicas that gave its replicas, or failed and changed nothing",
                &["source", "outcome"],
            ),
        }
    }

    /// The handles of a source.
    pub(super) fn discovery(&self, source: &str) -> DiscoveryMetrics {
        let reads = |outcome| self.reads.with_label_values(&[source, outcome]);
        DiscoveryMetrics { read: reads("read"), failed: reads("failed") }
    }

    /// Removes the series of a replica that is no more.
    pub(super) fn forget(&self, replica: &str) {
        // A series that is not there is as good as removed.
        for outcome in OUTCOMES {
            let _ = self.rows.remove_label_values(&[replica, outcome]);
        }
        for vec in [&self.prompt_tokens, &self.cached_tokens, &self.output_tokens, &self.overstated] {
            let _ = vec.remove_label_values(&[replica]);
        }
        let _ = self.try_seconds.remove_label_values(&[replica]);
    }

    /// The handles of one.
    pub(super) fn of(&self, replica: &str) -> ReplicaMetrics {
        let [sent, answered, failed, lost, cancelled] =
            OUTCOMES.map(|outcome| self.rows.with_label_values(&[replica, outcome]));
        ReplicaMetrics {
            sent,
            answered,
            failed,
            lost,
            cancelled,
            prompt_tokens: self.prompt_tokens.with_label_values(&[replica]),
            cached_tokens: self.cached_tokens.with_label_values(&[replica]),
            output_tokens: self.output_tokens.with_label_values(&[replica]),
            overstated: self.overstated.with_label_values(&[replica]),
            try_seconds: self.try_seconds.with_label_values(&[replica]),
        }
    }
}

impl ReplicaMetrics {
    /// A row was answered.
    pub fn answered(&self, finish: &Finish) {
        self.answered.inc();
        self.prompt_tokens.inc_by(finish.prompt.unwrap_or_default().0);
        self.cached_tokens.inc_by(finish.cached.0);
        self.output_tokens.inc_by(finish.output.0);
    }
}
