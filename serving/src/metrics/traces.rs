//! What has become of spans, read when somebody scrapes: what sends them counts for itself.

use std::sync::Arc;

use prometheus::core::{Collector, Desc, Describer};
use prometheus::proto::{MetricFamily, MetricType};

use super::published::{family, metric};
use super::register::Registrar;
use crate::traces::TraceCounts;

/// What names of these begin with: all models of a process send together.
pub(super) const OF_TRACES: &str = "relserve_trace_";

const OUTCOME: &str = "outcome";

struct TraceCollector {
    counts: Arc<TraceCounts>,
    spans: Desc,
}

/// Registers what is counted of spans.
pub(super) fn register(r: &Registrar<'_>, counts: Arc<TraceCounts>) {
    let opts = r.opts(
        "relserve_trace_spans_total",
        "Spans that were sent to the collector, dropped because too many waited, or not taken by it",
    );
    let spans = opts.variable_label(OUTCOME).describe().expect("names are well formed");
    r.add(TraceCollector { counts, spans });
}

impl Collector for TraceCollector {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.spans]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let outcomes = [
            ("exported", self.counts.exported()),
            ("dropped", self.counts.dropped()),
            ("failed", self.counts.failed()),
        ];
        let counter = MetricType::COUNTER;
        let series = outcomes
            .map(|(outcome, count)| metric(&self.spans, counter, Some((OUTCOME, outcome)), count as f64));
        vec![family(&self.spans, counter, series.into())]
    }
}
