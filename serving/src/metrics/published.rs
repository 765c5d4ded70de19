//! What the loop last published, read when somebody scrapes.
//!
//! The scheduler counts for itself, and the loop publishes those counts as one [`View`]. Gauges that mirror
//! them would cost the loop a write each per step, and a scrape between two writes would see rows of one step
//! beside blocks of another. This collector reads one view per scrape instead: all its series, ours and
//! vLLM's, are of the same step.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc, Describer};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use scheduler::Stats;

use super::register::Registrar;
use crate::replicas::view::ReplicaView;
use crate::view::View;

type OfStats = fn(&Stats) -> f64;

/// The series of a metric.
enum SeriesSpec {
    One(OfStats),
    /// One for each of some values of a label.
    By(&'static str, &'static [(&'static str, OfStats)]),
    /// One for each replica of a fleet.
    Replicas(fn(&ReplicaView) -> f64),
}

use SeriesSpec::{By, One, Replicas};

/// A metric: its name, what it says, its series.
struct FamilySpec(&'static str, &'static str, SeriesSpec);

const GAUGES: [FamilySpec; 11] = [
    FamilySpec("relserve_queue_rows", "Rows that wait", One(|stats| stats.rows_waiting.into())),
    FamilySpec("relserve_running_rows", "Rows that hold KV memory", One(|stats| stats.rows_running.into())),
    FamilySpec(
        "relserve_kv_blocks",
        "KV blocks by state",
        By(
            "state",
            &[
                ("used", |stats| stats.kv_used_blocks.into()),
                ("cached", |stats| stats.kv_cached_blocks.into()),
                ("free", |stats| stats.kv_free_blocks.into()),
            ],
        ),
    ),
    FamilySpec(
        "relserve_pinned_kv_blocks",
        "Used KV blocks that pins hold",
        One(|stats| stats.kv_pinned_blocks.into()),
    ),
    FamilySpec(
        "relserve_host_kv_blocks",
        "KV blocks of the host tier by state",
        By(
            "state",
            &[
                ("used", |stats| stats.tier.used.into()),
                ("free", |stats| (stats.tier.total - stats.tier.used).into()),
            ],
        ),
    ),
    FamilySpec(
        "relserve_replica_up",
        "Whether a replica gets rows",
        Replicas(|replica| if replica.is_up { 1.0 } else { 0.0 }),
    ),
    FamilySpec(
        "relserve_replica_in_flight_rows",
        "Rows that a replica has",
        Replicas(|replica| replica.rows.into()),
    ),
    FamilySpec(
        "relserve_replica_lease_rows",
        "Rows that a replica may have from this gateway: all, or what the others that use it leave",
        Replicas(|replica| replica.lease.map_or(replica.rows_max, |lease| lease.rows).into()),
    ),
    FamilySpec(
        "vllm:num_requests_running",
        "Rows that hold KV memory",
        One(|stats| stats.rows_running.into()),
    ),
    FamilySpec("vllm:num_requests_waiting", "Rows that wait", One(|stats| stats.rows_waiting.into())),
    FamilySpec(
        "vllm:kv_cache_usage_perc",
        "Share of KV blocks in use; 1 is all",
        One(|stats| f64::from(stats.kv_used_blocks) / f64::from(stats.kv_total_blocks.max(1))),
    ),
];

const COUNTERS: [FamilySpec; 11] = [
    FamilySpec(
        "relserve_host_moved_blocks_total",
        "KV blocks moved between pool and host tier",
        By(
            "way",
            &[("out", |stats| stats.tier.moved_out as f64), ("back", |stats| stats.tier.moved_back as f64)],
        ),
    ),
    FamilySpec(
        "relserve_restored_tokens_total",
        "Prompt tokens found in the prefix cache that came back from the host tier",
        One(|stats| stats.tier.restored_tokens as f64),
    ),
    FamilySpec(
        "relserve_prefix_query_tokens_total",
        "Prompt tokens looked up",
        One(|stats| stats.prompt_tokens as f64),
    ),
    FamilySpec(
        "relserve_prefix_hit_tokens_total",
        "Prompt tokens found in the prefix cache",
        One(|stats| stats.prefix_hit_tokens as f64),
    ),
    FamilySpec(
        "relserve_forced_tokens_total",
        "Output tokens that constraints forced, unsampled",
        One(|stats| stats.forced_tokens as f64),
    ),
    FamilySpec(
        "relserve_draft_tokens_total",
        "Tokens that decode steps guessed ahead",
        One(|stats| stats.guessed_tokens as f64),
    ),
    FamilySpec(
        "relserve_accepted_tokens_total",
        "Output tokens that were guessed: a step saved each",
        One(|stats| stats.accepted_tokens as f64),
    ),
    FamilySpec(
        "relserve_preemptions_total",
        "Rows preempted for want of blocks",
        One(|stats| stats.preemptions as f64),
    ),
    FamilySpec("vllm:prefix_cache_queries_total", "Prompt tokens looked up", One(|s| s.prompt_tokens as f64)),
    FamilySpec("vllm:prefix_cache_hits_total", "Prompt tokens found", One(|s| s.prefix_hit_tokens as f64)),
    FamilySpec("vllm:num_preemptions_total", "Rows preempted", One(|stats| stats.preemptions as f64)),
];

/// A metric as it is collected.
struct PublishedFamily {
    desc: Desc,
    kind: MetricType,
    series: SeriesSpec,
}

/// The collector.
struct ViewCollector {
    view: Arc<Mutex<View>>,
    families: Vec<PublishedFamily>,
}

/// Registers everything that the loop publishes.
pub(super) fn register(r: &Registrar<'_>, view: Arc<Mutex<View>>) {
    let of = |kind: MetricType| {
        move |FamilySpec(name, help, series): FamilySpec| {
            let opts = match series {
                One(_) => r.opts(name, help),
                By(label, _) => r.opts(name, help).variable_label(label),
                Replicas(_) => r.opts(name, help).variable_label(REPLICA),
            };
            PublishedFamily { desc: opts.describe().expect("names are well formed"), kind, series }
        }
    };
    let gauges = GAUGES.into_iter().map(of(MetricType::GAUGE));
    let families = gauges.chain(COUNTERS.into_iter().map(of(MetricType::COUNTER))).collect();
    r.add(ViewCollector { view, families });
}

/// The label of a replica.
pub(super) const REPLICA: &str = "replica";

impl Collector for ViewCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.families.iter().map(|family| &family.desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // Held for microseconds. A view is replaced whole: a panic between leaves nothing half made.
        let view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        self.families.iter().map(|family| family.read(&view)).collect()
    }
}

impl PublishedFamily {
    fn read(&self, view: &View) -> MetricFamily {
        let metrics = match &self.series {
            One(read) => vec![self.metric(None, read(&view.stats))],
            By(label, series) => series
                .iter()
                .map(|(value, read)| self.metric(Some((label, value)), read(&view.stats)))
                .collect(),
            Replicas(read) => {
                let replicas = view.replicas.iter();
                replicas.map(|one| self.metric(Some((REPLICA, &one.name)), read(one))).collect()
            }
        };
        family(&self.desc, self.kind, metrics)
    }

    fn metric(&self, label: Option<(&str, &str)>, value: f64) -> Metric {
        metric(&self.desc, self.kind, label, value)
    }
}

/// A family as a scrape gets it.
pub(super) fn family(desc: &Desc, kind: MetricType, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(desc.fq_name.clone());
    family.set_help(desc.help.clone());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

/// A series of a family, by a label's value.
pub(super) fn metric(desc: &Desc, kind: MetricType, label: Option<(&str, &str)>, value: f64) -> Metric {
    let mut labels = desc.const_label_pairs.clone();
    labels.extend(label.map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(value.to_owned());
        pair
    }));
    let mut metric = Metric::from_label(labels);
    if kind == MetricType::COUNTER {
        let mut counter = Counter::default();
        counter.set_value(value);
        metric.set_counter(counter);
    } else {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        metric.set_gauge(gauge);
    }
    metric
}

#[cfg(test)]
mod tests {
    use base::{Nanos, TokenCount};

    use super::*;
    use crate::metrics::tests::over;
    use crate::metrics::{Metrics, SeriesLimits};
    use crate::replicas::LeaseView;
    use crate::replicas::ReplicaSource;

    fn metrics_over(view: &Arc<Mutex<View>>) -> Metrics {
        over(SeriesLimits { tenants_max: 1, idle_max: Nanos(1) }, Arc::clone(view))
    }

    fn stats(step: u32) -> Stats {
        Stats {
            rows_waiting: step,
            rows_running: 2 * step,
            kv_total_blocks: 1_000,
            kv_used_blocks: step,
            kv_cached_blocks: 5,
            kv_free_blocks: 995 - step,
            preemptions: u64::from(step),
            ..Stats::default()
        }
    }

    fn check(metrics: &Metrics, expected: &[&str]) {
        let text = metrics.render();
        for line in expected {
            assert!(text.lines().any(|found| found == *line), "{line}: {text}");
        }
    }

    #[test]
    fn a_scrape_sees_what_was_published_last_and_all_of_one_step() {
        let view = Arc::new(Mutex::new(View::default()));
        let metrics = metrics_over(&view);
        check(&metrics, &["relserve_queue_rows 0", "relserve_host_moved_blocks_total{way=\"out\"} 0"]);
        for step in [250, 100] {
            view.lock().unwrap().stats = stats(step);
            check(
                &metrics,
                &[
                    &format!("relserve_queue_rows {step}"),
                    &format!("vllm:num_requests_waiting{{engine=\"0\",model_name=\"demo\"}} {step}"),
                    &format!("relserve_running_rows {}", 2 * step),
                    &format!("relserve_kv_blocks{{state=\"used\"}} {step}"),
                    &format!("relserve_kv_blocks{{state=\"free\"}} {}", 995 - step),
                    &format!(
                        "vllm:kv_cache_usage_perc{{engine=\"0\",model_name=\"demo\"}} {}",
                        f64::from(step) / 1_000.0
                    ),
                    &format!("relserve_preemptions_total {step}"),
                ],
            );
        }
    }

    #[test]
    fn a_replica_has_series_from_when_it_is_shown() {
        let view = Arc::new(Mutex::new(View::default()));
        let metrics = metrics_over(&view);
        assert!(!metrics.render().contains("relserve_replica_up"));
        view.lock().unwrap().replicas.push(ReplicaView {
            name: "a".into(),
            source: ReplicaSource::Config,
            is_local: false,
            is_up: true,
            state: "up",
            breaker: "closed",
            rows: 3,
            rows_max: 8,
            tokens: TokenCount(0),
            tokens_max: None,
            kv_reported: None,
            prompt_scale: Default::default(),
            cost: None,
            lease: Some(LeaseView { rows: 5, tokens: None, gateways: 2, is_held: true }),
            gateways: Arc::default(),
            last_error: None,
        });
        let expected = [
            "relserve_replica_up{replica=\"a\"} 1",
            "relserve_replica_in_flight_rows{replica=\"a\"} 3",
            "relserve_replica_lease_rows{replica=\"a\"} 5",
        ];
        check(&metrics, &expected);
    }
}
