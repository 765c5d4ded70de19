//! Registers metrics with one registry, each visible at 0 from the start: a rate over a counter that appears
//! with its first event misses that event. Must not know which metrics there are.

use std::cell::RefCell;
use std::sync::Arc;

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, PullingGauge, Registry,
};

use super::exemplar::{ExemplarIndex, Exemplars, TracedLatency};

/// Upper bounds of latency buckets, seconds. Finer at the low end than vLLM's, whose smallest is 0.3 s.
pub(super) const LATENCY_SECONDS: [f64; 18] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];

/// Where metrics of one server are registered.
pub(super) struct Registrar<'a> {
    pub(super) registry: &'a Registry,
    /// The model's name, a label of what vLLM exports too.
    pub(super) model: &'a str,
    /// What keeps exemplars, by the names of metrics.
    pub(super) exemplars: &'a RefCell<ExemplarIndex>,
}

/// Why registering cannot fail: names and helps are constants, and one test registers them all.
const SOUND: &str = "names are well formed and registered once";

impl Registrar<'_> {
    /// Name, help and constant labels: vLLM's metrics carry the model and the engine.
    pub(super) fn opts(&self, name: &str, help: &str) -> Opts {
        let opts = Opts::new(name, help);
        if name.starts_with("vllm:") {
            opts.const_label("model_name", self.model).const_label("engine", "0")
        } else {
            opts
        }
    }

    /// Registers a collector.
    pub(super) fn add(&self, collector: impl Collector + 'static) {
        self.registry.register(Box::new(collector)).expect(SOUND);
    }

    fn added<M: Collector + Clone + 'static>(&self, made: prometheus::Result<M>) -> M {
        let metric = made.expect(SOUND);
        self.add(metric.clone());
        metric
    }

    pub(super) fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.added(IntCounter::with_opts(self.opts(name, help)))
    }

    /// A counter for each of some values of a label.
    pub(super) fn counters<const N: usize>(
        &self,
        name: &str,
        help: &str,
        (label, values): (&str, [&str; N]),
    ) -> [IntCounter; N] {
        let vec = self.counter_vec(name, help, &[label]);
        values.map(|value| vec.with_label_values(&[value]))
    }

    /// Counters whose labels' values come and go.
    pub(super) fn counter_vec(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.added(IntCounterVec::new(self.opts(name, help), labels))
    }

    /// A gauge that is read at each scrape.
    pub(super) fn pulled(&self, name: &str, help: &str, read: impl Fn() -> f64 + Send + Sync + 'static) {
        self.added(PullingGauge::new(name, help, Box::new(read)));
    }

    pub(super) fn histogram(&self, name: &str, help: &str, bounds: &[f64]) -> Histogram {
        let opts = HistogramOpts::from(self.opts(name, help)).buckets(bounds.to_vec());
        self.added(Histogram::with_opts(opts))
    }

    /// Latencies whose labels' values come and go.
    pub(super) fn latency_vec(&self, name: &str, help: &str, labels: &[&str]) -> HistogramVec {
        let opts = HistogramOpts::from(self.opts(name, help)).buckets(LATENCY_SECONDS.to_vec());
        self.added(HistogramVec::new(opts, labels))
    }

    /// A histogram of latencies.
    pub(super) fn latency(&self, name: &str, help: &str) -> Histogram {
        self.histogram(name, help, &LATENCY_SECONDS)
    }

    /// A histogram of latencies that leads to traces.
    pub(super) fn traced_latency(&self, name: &str, help: &str) -> TracedLatency {
        let exemplars = Arc::new(Exemplars::new(&LATENCY_SECONDS));
        self.exemplars.borrow_mut().insert(name.to_owned(), Arc::clone(&exemplars));
        TracedLatency::new(self.latency(name, help), exemplars)
    }
}
