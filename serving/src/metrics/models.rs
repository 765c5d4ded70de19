//! One text of the metrics of several models: each model counts for itself, as the only one would.

use std::collections::BTreeMap;

use prometheus::proto::{LabelPair, MetricFamily};

use super::store::OF_STORE;
use super::traces::OF_TRACES;

/// The label that tells models apart. What vLLM exports too has its own.
const MODEL: &str = "model";
const OF_VLLM: &str = "vllm:";
/// The label of what vLLM exports too.
const MODEL_OF_VLLM: &str = "model_name";
/// What is of the process, or of the store that its models share, is said once.
const OF_ALL: [&str; 3] = ["process_", OF_STORE, OF_TRACES];

/// Families of all models, each with the series of all; of one model they are as they are.
pub(super) fn merged(models: Vec<(&str, Vec<MetricFamily>)>) -> Vec<MetricFamily> {
    let is_one = models.len() == 1;
    let mut merged: BTreeMap<String, MetricFamily> = BTreeMap::new();
    for (model, mut family) in models
        .into_iter()
        .flat_map(|(model, families)| families.into_iter().map(move |family| (model, family)))
    {
        let name = family.name().to_owned();
        if !is_one && !name.starts_with(OF_VLLM) && !is_of_all(&name) {
            for metric in family.mut_metric() {
                let mut label = LabelPair::default();
                label.set_name(MODEL.to_owned());
                label.set_value(model.to_owned());
                let mut labels = metric.take_label();
                labels.push(label);
                metric.set_label(labels);
            }
        }
        match merged.get_mut(&name) {
            None => drop(merged.insert(name, family)),
            Some(_) if is_of_all(&name) => {}
            Some(all) => all.mut_metric().extend(family.take_metric()),
        }
    }
    merged.into_values().collect()
}

/// Whether a series of several models' is this one's.
pub(super) fn is_of(labels: &[LabelPair], model: &str) -> bool {
    let is_name = |pair: &LabelPair| [MODEL, MODEL_OF_VLLM].contains(&pair.name()) && pair.value() == model;
    labels.iter().any(is_name)
}

fn is_of_all(name: &str) -> bool {
    OF_ALL.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::Nanos;

    use crate::config::LiveConfig;
    use crate::live::Live;
    use crate::metrics::{Metrics, ScrapedStates, SeriesLimits};

    fn of(model: &str) -> Metrics {
        let live = Arc::new(Live::new(LiveConfig::default()));
        let limits = SeriesLimits { tenants_max: 1, idle_max: Nanos(1) };
        let (view, store, traces) = Default::default();
        Metrics::new(model, limits, ScrapedStates { view, live, store, traces })
    }

    #[test]
    fn series_of_several_models_are_told_apart_and_the_process_is_said_once() {
        let (m, n) = (of("m"), of("n"));
        n.requests.disconnects.inc_by(3);
        n.replica("a").sent.inc();
        let text = Metrics::render_all(&[&m, &n]);
        let expected = [
            "relserve_disconnects_total{model=\"m\"} 0",
            "relserve_disconnects_total{model=\"n\"} 3",
            "relserve_replica_rows_total{outcome=\"sent\",replica=\"a\",model=\"n\"} 1",
            "vllm:num_preemptions_total{engine=\"0\",model_name=\"m\"} 0",
            "vllm:num_preemptions_total{engine=\"0\",model_name=\"n\"} 0",
        ];
        for line in expected {
            assert_eq!(text.lines().filter(|found| *found == line).count(), 1, "{line}: {text}");
        }
        let headers = text.lines().filter(|line| line.starts_with("# TYPE relserve_disconnects_total"));
        assert_eq!(headers.count(), 1, "one family");
        assert!(text.matches("\nprocess_open_fds ").count() <= 1);
        assert!(m.render().contains("\nrelserve_disconnects_total 0\n"), "one model needs no label");
    }
}
