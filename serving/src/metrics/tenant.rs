//! Metrics of tenants, a series each, by number: names may be nobody else's business, and `/metrics` asks for no key.
//!
//! Bounded: tenants beyond the first so many to be seen share the series `other`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use base::{Nanos, TenantId};
use metrics::{Counter, Histogram, Key, Label, Recorder};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::METADATA;
use crate::relquery_state::Usage;

/// The label of all tenants beyond the bound.
const OTHER: &str = "other";

/// Handles of one tenant's metrics.
#[derive(Clone)]
struct TenantMetrics {
    rows: Counter,
    prompt_tokens: Counter,
    computed_tokens: Counter,
    output_tokens: Counter,
    refused: Counter,
    latency: Histogram,
}

/// All tenants'.
pub(super) struct Tenants {
    recorder: Arc<PrometheusRecorder>,
    tenants_max: usize,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    tenants: HashMap<TenantId, TenantMetrics>,
    other: Option<TenantMetrics>,
}

impl Tenants {
    pub(super) fn new(recorder: Arc<PrometheusRecorder>, tenants_max: usize) -> Self {
        Self { recorder, tenants_max, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Handles are whole or not there: a panic between leaves nothing half made.
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Does something with a tenant's metrics.
    fn of(&self, tenant: TenantId, act: impl FnOnce(&TenantMetrics)) {
        let Known { tenants, other } = &mut *self.known();
        if let Some(known) = tenants.get(&tenant) {
            return act(known);
        }
        let metrics = if tenants.len() < self.tenants_max {
            tenants.entry(tenant).or_insert_with(|| TenantMetrics::new(&self.recorder, &tenant.to_string()))
        } else {
            other.get_or_insert_with(|| TenantMetrics::new(&self.recorder, OTHER))
        };
        act(metrics);
    }

    /// A row finished.
    pub(super) fn row_done(&self, tenant: TenantId, usage: Usage) {
        self.of(tenant, |metrics| {
            metrics.rows.increment(1);
            metrics.prompt_tokens.increment(usage.prompt.0);
            metrics.computed_tokens.increment(usage.computed.0);
            metrics.output_tokens.increment(usage.output.0);
        });
    }

    /// A relQuery was completed.
    pub(super) fn relquery_done(&self, tenant: TenantId, latency: Nanos) {
        self.of(tenant, |metrics| metrics.latency.record(latency.as_seconds()));
    }

    /// A request was refused for a full queue.
    pub(super) fn refused(&self, tenant: TenantId) {
        self.of(tenant, |metrics| metrics.refused.increment(1));
    }
}

impl TenantMetrics {
    fn new(recorder: &PrometheusRecorder, tenant: &str) -> Self {
        let key = |name: &'static str| Key::from_parts(name, vec![Label::new("tenant", tenant.to_owned())]);
        let counter = |name: &'static str, help: &'static str| {
            recorder.describe_counter(name.into(), None, help.into());
            let counter = recorder.register_counter(&key(name), &METADATA);
            counter.absolute(0);
            counter
        };
        let latency = "relserve_tenant_relquery_seconds";
        recorder.describe_histogram(latency.into(), None, "Latency of a tenant's relQueries".into());
        Self {
            rows: counter("relserve_tenant_rows_total", "Rows of a tenant that finished"),
            prompt_tokens: counter("relserve_tenant_prompt_tokens_total", "Their prompt tokens"),
            computed_tokens: counter(
                "relserve_tenant_computed_tokens_total",
                "Of those, tokens that were computed, not found in the prefix cache",
            ),
            output_tokens: counter("relserve_tenant_output_tokens_total", "Their output tokens"),
            refused: counter(
                "relserve_tenant_refused_total",
                "Requests of a tenant refused for a full queue",
            ),
            latency: recorder.register_histogram(&key(latency), &METADATA),
        }
    }
}

#[cfg(test)]
mod tests {
    use base::TokenCount;

    use crate::metrics::Metrics;
    use crate::relquery_state::Usage;

    #[test]
    fn tenants_have_series_of_their_own_up_to_the_bound_and_share_one_beyond_it() {
        let metrics = Metrics::new("demo", 2);
        let usage = Usage { prompt: TokenCount(7), ..Usage::default() };
        for tenant in [4, 5, 6, 7, 4] {
            metrics.row_done(base::TenantId(tenant), base::End::Stop, usage);
        }
        metrics.overloaded(base::TenantId(9));
        let text = metrics.render();
        for line in [
            "relserve_tenant_prompt_tokens_total{tenant=\"4\"} 14",
            "relserve_tenant_prompt_tokens_total{tenant=\"5\"} 7",
            "relserve_tenant_prompt_tokens_total{tenant=\"other\"} 14",
            "relserve_tenant_refused_total{tenant=\"other\"} 1",
            "relserve_tenant_refused_total{tenant=\"4\"} 0",
            "relserve_overloaded_total 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(!text.contains("tenant=\"6\""));
    }
}
