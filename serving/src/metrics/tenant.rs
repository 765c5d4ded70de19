//! Metrics of tenants, a series each, by number: names may be nobody else's business, and `/metrics` asks for
//! no key.
//!
//! Bounded: tenants beyond the first so many to be seen share the series `other`.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use base::{Nanos, TenantId};
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use super::register::Registrar;
use crate::board::Usage;

/// The label of all tenants beyond the bound.
const OTHER: &str = "other";

/// Which tenants have series of their own.
#[derive(Clone, Copy, Debug)]
pub struct SeriesLimits {
    /// Most of them; others share one.
    pub tenants_max: usize,
}

/// The metrics of all tenants.
struct TenantVecs {
    rows: IntCounterVec,
    prompt_tokens: IntCounterVec,
    computed_tokens: IntCounterVec,
    output_tokens: IntCounterVec,
    refused: IntCounterVec,
    latency: HistogramVec,
}

/// Handles of one tenant's metrics.
struct TenantMetrics {
    rows: IntCounter,
    prompt_tokens: IntCounter,
    computed_tokens: IntCounter,
    output_tokens: IntCounter,
    refused: IntCounter,
    latency: Histogram,
}

/// All tenants.
pub(super) struct Tenants {
    limits: SeriesLimits,
    vecs: TenantVecs,
    known: Mutex<HashMap<TenantId, TenantMetrics>>,
}

impl Tenants {
    pub(super) fn register(r: &Registrar<'_>, limits: SeriesLimits) -> Self {
        Self { limits, vecs: TenantVecs::register(r), known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<TenantId, TenantMetrics>> {
        // Handles are whole or not there: a panic between leaves nothing half made.
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Does something with a tenant's metrics.
    fn with(&self, tenant: TenantId, act: impl FnOnce(&TenantMetrics)) {
        let mut known = self.known();
        if !known.contains_key(&tenant) && known.len() >= self.limits.tenants_max {
            return act(&self.vecs.of(OTHER));
        }
        act(known.entry(tenant).or_insert_with(|| self.vecs.of(&tenant.to_string())));
    }

    /// A row finished.
    pub(super) fn row_done(&self, tenant: TenantId, usage: Usage) {
        self.with(tenant, |metrics| {
            metrics.rows.inc();
            metrics.prompt_tokens.inc_by(usage.prompt.0);
            metrics.computed_tokens.inc_by(usage.computed.0);
            metrics.output_tokens.inc_by(usage.output.0);
        });
    }

    /// A relQuery was completed.
    pub(super) fn relquery_done(&self, tenant: TenantId, latency: Nanos) {
        self.with(tenant, |metrics| metrics.latency.observe(latency.as_seconds()));
    }

    /// A request was refused for a full queue.
    pub(super) fn refused(&self, tenant: TenantId) {
        self.with(tenant, |metrics| metrics.refused.inc());
    }
}

impl TenantVecs {
    fn register(r: &Registrar<'_>) -> Self {
        let counter = |name, help| r.counter_vec(name, help, &["tenant"]);
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
            latency: r.latency_vec(
                "relserve_tenant_relquery_seconds",
                "Latency of a tenant's relQueries",
                &["tenant"],
            ),
        }
    }

    /// A label's series, all of them, at 0 where they are new.
    fn of(&self, label: &str) -> TenantMetrics {
        TenantMetrics {
            rows: self.rows.with_label_values(&[label]),
            prompt_tokens: self.prompt_tokens.with_label_values(&[label]),
            computed_tokens: self.computed_tokens.with_label_values(&[label]),
            output_tokens: self.output_tokens.with_label_values(&[label]),
            refused: self.refused.with_label_values(&[label]),
            latency: self.latency.with_label_values(&[label]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{End, TokenCount};

    use super::*;
    use crate::metrics::tests::over;

    #[test]
    fn tenants_have_series_of_their_own_up_to_the_bound_and_share_one_beyond_it() {
        let metrics = over(SeriesLimits { tenants_max: 2 }, Arc::default());
        let usage = Usage { prompt: TokenCount(7), ..Usage::default() };
        for tenant in [4, 5, 6, 7, 4] {
            metrics.row_done(TenantId(tenant), End::Stop, usage);
        }
        metrics.overloaded(TenantId(9));
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
