//! Metrics of the replicas of a fleet, a series each.

use metrics::{Counter, Gauge, Histogram, Key, Label, Recorder};
use metrics_exporter_prometheus::PrometheusRecorder;
use scheduler::fleet::Finish;

use super::METADATA;

/// Handles of one executor's metrics.
#[derive(Clone)]
pub struct ReplicaMetrics {
    /// Rows sent, those that moved here among them.
    pub sent: Counter,
    answered: Counter,
    /// Rows that failed here for good.
    pub failed: Counter,
    /// Rows that it did not answer, which moved.
    pub lost: Counter,
    /// Rows that were called back: nobody waited for them any more.
    pub cancelled: Counter,
    prompt_tokens: Counter,
    cached_tokens: Counter,
    output_tokens: Counter,
    /// Time of one try.
    pub try_seconds: Histogram,
    up: Gauge,
    in_flight: Gauge,
}

impl ReplicaMetrics {
    pub(super) fn new(recorder: &PrometheusRecorder, executor: &str) -> Self {
        let key = |name: &'static str, outcome: Option<&'static str>| {
            let mut labels = vec![Label::new("executor", executor.to_owned())];
            labels.extend(outcome.map(|outcome| Label::from_static_parts("outcome", outcome)));
            Key::from_parts(name, labels)
        };
        let counter = |name: &'static str, outcome, help: &'static str| {
            recorder.describe_counter(name.into(), None, help.into());
            let counter = recorder.register_counter(&key(name, outcome), &METADATA);
            counter.absolute(0);
            counter
        };
        let gauge = |name: &'static str, help: &'static str| {
            recorder.describe_gauge(name.into(), None, help.into());
            recorder.register_gauge(&key(name, None), &METADATA)
        };
        let rows = |outcome| counter("relserve_executor_rows_total", Some(outcome), "Rows of an executor");
        let seconds = "relserve_executor_try_seconds";
        recorder.describe_histogram(seconds.into(), None, "Time of one try of a row at a server".into());
        Self {
            sent: rows("sent"),
            answered: rows("answered"),
            failed: rows("failed"),
            lost: rows("lost"),
            cancelled: rows("cancelled"),
            prompt_tokens: counter("relserve_executor_prompt_tokens_total", None, "Prompt tokens answered"),
            cached_tokens: counter(
                "relserve_executor_cached_tokens_total",
                None,
                "Of those, tokens that the executor found in its cache",
            ),
            output_tokens: counter("relserve_executor_output_tokens_total", None, "Output tokens"),
            try_seconds: recorder.register_histogram(&key(seconds, None), &METADATA),
            up: gauge("relserve_executor_up", "Whether an executor gets rows"),
            in_flight: gauge("relserve_executor_in_flight_rows", "Rows that an executor has"),
        }
    }

    /// A row was answered.
    pub fn answered(&self, finish: &Finish) {
        self.answered.increment(1);
        self.prompt_tokens.increment(finish.prompt.unwrap_or_default().0);
        self.cached_tokens.increment(finish.cached.0);
        self.output_tokens.increment(finish.output.0);
    }

    /// How it is.
    pub fn look(&self, is_up: bool, rows: u32) {
        self.up.set(if is_up { 1.0 } else { 0.0 });
        self.in_flight.set(f64::from(rows));
    }
}
