//! The text of `/metrics` as OpenMetrics has it (1.0), which has a place for exemplars. The `prometheus` crate writes
//! the older text alone; this walks the same families.

use std::fmt::Write as _;

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

use super::exemplar::{Exemplar, Exemplars};

/// What counters are called by.
const TOTAL: &str = "_total";

/// Families as text. `exemplars`: those of a series of a histogram, by its family's name and its labels.
pub(super) fn render<'a>(
    families: &[MetricFamily],
    exemplars: impl Fn(&str, &[LabelPair]) -> Option<&'a Exemplars>,
) -> String {
    let mut text = String::new();
    for family in families {
        self::family(&mut text, family, &exemplars);
    }
    text.push_str("# EOF\n");
    text
}

fn family<'a>(
    text: &mut String,
    family: &MetricFamily,
    exemplars: &impl Fn(&str, &[LabelPair]) -> Option<&'a Exemplars>,
) {
    let name = family.name();
    let (named, kind) = match family.get_field_type() {
        MetricType::COUNTER => match name.strip_suffix(TOTAL) {
            Some(base) => (base, "counter"),
            // Here the suffix is part of a counter's name.
            None => (name, "unknown"),
        },
        MetricType::GAUGE => (name, "gauge"),
        MetricType::HISTOGRAM => (name, "histogram"),
        // None is registered.
        MetricType::SUMMARY | MetricType::UNTYPED => return,
    };
    line(text, format_args!("# TYPE {named} {kind}"));
    line(text, format_args!("# HELP {named} {}", escaped(family.help())));
    for metric in family.get_metric() {
        match family.get_field_type() {
            MetricType::COUNTER => sample(text, name, metric, metric.get_counter().get_value()),
            MetricType::GAUGE => sample(text, name, metric, metric.get_gauge().get_value()),
            _ => histogram(text, name, metric, exemplars(name, metric.get_label())),
        }
    }
}

fn sample(text: &mut String, name: &str, metric: &Metric, value: f64) {
    line(text, format_args!("{name}{} {value}", labels(metric, None)));
}

fn histogram(text: &mut String, name: &str, metric: &Metric, exemplars: Option<&Exemplars>) {
    let histogram = metric.get_histogram();
    let (count, buckets) = (histogram.get_sample_count(), histogram.get_bucket());
    let finite = buckets.iter().filter(|bucket| bucket.upper_bound().is_finite());
    let finite = finite.map(|bucket| (bound(bucket.upper_bound()), bucket.cumulative_count()));
    for (place, (bound, count)) in finite.chain([("+Inf".to_owned(), count)]).enumerate() {
        let exemplar = exemplars.and_then(|exemplars| exemplars.of_bucket(place));
        let exemplar = exemplar.map(|exemplar| of_trace(&exemplar)).unwrap_or_default();
        line(text, format_args!("{name}_bucket{} {count}{exemplar}", labels(metric, Some(&bound))));
    }
    line(text, format_args!("{name}_count{} {count}", labels(metric, None)));
    line(text, format_args!("{name}_sum{} {}", labels(metric, None), histogram.get_sample_sum()));
}

/// An exemplar, as it stands behind a sample.
fn of_trace(Exemplar { of, seconds }: &Exemplar) -> String {
    let (at, ms) = (of.unix_ms / 1_000, of.unix_ms % 1_000);
    format!(" # {{trace_id=\"{}\"}} {seconds} {at}.{ms:03}", of.trace)
}

/// A bound in its canonical form, which has a point.
fn bound(bound: f64) -> String {
    format!("{bound:?}")
}

fn labels(metric: &Metric, bound: Option<&str>) -> String {
    let own = metric.get_label().iter().map(|pair| (pair.name(), pair.value()));
    let all = own.chain(bound.map(|bound| ("le", bound)));
    let all: Vec<String> = all.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    writeln!(text, "{words}").expect("a text takes whatever is written");
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TraceId;
    use prometheus::{HistogramOpts, HistogramVec, IntCounter, Registry};

    use super::*;
    use crate::metrics::exemplar::{TracedAt, TracedLatency};

    #[test]
    fn families_are_written_as_open_metrics_has_them() {
        let registry = Registry::new();
        let counter = IntCounter::new("rows_total", "Rows, \"all\"").unwrap();
        counter.inc_by(3);
        registry.register(Box::new(counter)).unwrap();
        let opts = HistogramOpts::new("took_seconds", "Time").buckets(vec![0.5, 1.0]);
        let vec = HistogramVec::new(opts, &["model"]).unwrap();
        registry.register(Box::new(vec.clone())).unwrap();
        let exemplars = std::sync::Arc::new(Exemplars::new(&[0.5, 1.0]));
        let latency = TracedLatency::new(vec.with_label_values(&["m\\"]), exemplars.clone());
        latency.observe(0.75, Some(TracedAt { trace: TraceId::from(10), unix_ms: 1_700_000_000_042 }));
        latency.observe(2.0, None);
        let text = render(&registry.gather(), |name, _| (name == "took_seconds").then_some(&*exemplars));
        let expected = [
            "# TYPE rows counter",
            "# HELP rows Rows, \\\"all\\\"",
            "rows_total 3",
            "# TYPE took_seconds histogram",
            "# HELP took_seconds Time",
            "took_seconds_bucket{model=\"m\\\\\",le=\"0.5\"} 0",
            "took_seconds_bucket{model=\"m\\\\\",le=\"1.0\"} 1 # {trace_id=\"0000000000000000000000000000000a\"} 0.75 \
             1700000000.042",
            "took_seconds_bucket{model=\"m\\\\\",le=\"+Inf\"} 2",
            "took_seconds_count{model=\"m\\\\\"} 2",
            "took_seconds_sum{model=\"m\\\\\"} 2.75",
            "# EOF",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}
