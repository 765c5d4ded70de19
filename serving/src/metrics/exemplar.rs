//! Exemplars: of each bucket of a latency the last observation that is in a trace, so that a dashboard's point leads
//! to what it is made of.
//!
//! The `prometheus` crate's histograms keep none, and its text format has no place for them. They are kept here,
//! beside the histogram, and shown by [`super::open_metrics`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opentelemetry::trace::TraceId;
use prometheus::Histogram;

/// A trace, and when something of it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedAt {
    pub trace: TraceId,
    /// Unix milliseconds.
    pub unix_ms: u64,
}

/// An observation that is in a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Exemplar {
    pub(super) of: TracedAt,
    pub(super) seconds: f64,
}

/// The last one of each bucket, the open-ended one last.
#[derive(Debug)]
pub(super) struct Exemplars {
    bounds: Vec<f64>,
    last: Mutex<Vec<Option<Exemplar>>>,
}

/// Those of a server's latencies, by the names of their metrics.
pub(super) type ExemplarIndex = BTreeMap<String, Arc<Exemplars>>;

/// A histogram of latencies that keeps exemplars.
pub(super) struct TracedLatency {
    histogram: Histogram,
    exemplars: Arc<Exemplars>,
}

impl Exemplars {
    pub(super) fn new(bounds: &[f64]) -> Self {
        Self { bounds: bounds.to_vec(), last: Mutex::new(vec![None; bounds.len() + 1]) }
    }

    fn last(&self) -> MutexGuard<'_, Vec<Option<Exemplar>>> {
        // One is written whole: a panic between leaves nothing half made.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, exemplar: Exemplar) {
        let bucket = self.bounds.partition_point(|bound| *bound < exemplar.seconds);
        self.last()[bucket] = Some(exemplar);
    }

    /// That of a bucket, by its place.
    pub(super) fn of_bucket(&self, bucket: usize) -> Option<Exemplar> {
        self.last().get(bucket).copied().flatten()
    }
}

impl TracedLatency {
    pub(super) fn new(histogram: Histogram, exemplars: Arc<Exemplars>) -> Self {
        Self { histogram, exemplars }
    }

    /// Something took so long.
    pub(super) fn observe(&self, seconds: f64, trace: Option<TracedAt>) {
        self.histogram.observe(seconds);
        if let Some(of) = trace {
            self.exemplars.keep(Exemplar { of, seconds });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_keeps_its_last() {
        let exemplars = Exemplars::new(&[0.1, 1.0]);
        let kept = |trace: u128, seconds| {
            let of = TracedAt { trace: TraceId::from(trace), unix_ms: 5 };
            exemplars.keep(Exemplar { of, seconds });
        };
        [(1, 0.05), (2, 0.1), (3, 7.0)].into_iter().for_each(|(trace, seconds)| kept(trace, seconds));
        let trace = |bucket| exemplars.of_bucket(bucket).map(|exemplar| exemplar.of.trace);
        assert_eq!(trace(0), Some(TraceId::from(2)), "a bound is in its bucket");
        assert_eq!(trace(1), None);
        assert_eq!(trace(2), Some(TraceId::from(3)));
        assert_eq!(trace(3), None);
    }
}
