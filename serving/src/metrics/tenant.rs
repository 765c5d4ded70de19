//! Metrics of tenants, a series each, by number: names may be nobody else's business, and `/metrics` asks for
//! no key.
//!
//! Bounded: once so many have series, others share the series `other`. A tenant that has gone idle loses its
//! series, and its place goes to the next that does something: places belong to the tenants that were active
//! last, not to the first ones after the start. What was counted in `other` stays there, and a series that
//! comes back begins at 0, which Prometheus takes for a restart. Must not read the clock.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard};

use base::{Nanos, TenantId, Time};
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use super::register::Registrar;
use crate::relquery_state::Usage;

/// The label of all tenants beyond the bound.
const OTHER: &str = "other";

/// Which tenants have series of their own.
#[derive(Clone, Copy, Debug)]
pub struct SeriesLimits {
    /// Most of them; others share one.
    pub tenants_max: usize,
    /// Time without a running relQuery or anything else after which a tenant's series are removed.
    pub idle_max: Nanos,
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

/// Handles of one tenant's metrics. Not to be kept elsewhere: after a removal they count for nobody.
struct TenantMetrics {
    rows: IntCounter,
    prompt_tokens: IntCounter,
    computed_tokens: IntCounter,
    output_tokens: IntCounter,
    refused: IntCounter,
    latency: Histogram,
}

struct TenantSeries {
    metrics: TenantMetrics,
    active: Time,
}

/// All tenants.
pub(super) struct Tenants {
    limits: SeriesLimits,
    vecs: TenantVecs,
    known: Mutex<HashMap<TenantId, TenantSeries>>,
}

impl Tenants {
    pub(super) fn register(r: &Registrar<'_>, limits: SeriesLimits) -> Self {
        Self { limits, vecs: TenantVecs::register(r), known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<TenantId, TenantSeries>> {
        // Handles are whole or not there: a panic between leaves nothing half made.
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Does something with a tenant's metrics.
    fn with(&self, tenant: TenantId, now: Time, act: impl FnOnce(&TenantMetrics)) {
        let mut known = self.known();
        if !known.contains_key(&tenant) && known.len() >= self.limits.tenants_max {
            return act(&self.vecs.of(OTHER));
        }
        let new = || TenantSeries { metrics: self.vecs.of(&tenant.to_string()), active: now };
        let found = known.entry(tenant).or_insert_with(new);
        // Threads may come in another order than their times.
        found.active = found.active.max(now);
        act(&found.metrics);
    }

    /// A row finished, or was called off under way.
    pub(super) fn row_ended(&self, tenant: TenantId, usage: Usage, now: Time) {
        self.with(tenant, now, |metrics| {
            metrics.rows.inc();
            metrics.prompt_tokens.inc_by(usage.prompt.0);
            metrics.computed_tokens.inc_by(usage.computed.0);
            metrics.output_tokens.inc_by(usage.output.0);
        });
    }

    /// A relQuery was completed.
    pub(super) fn relquery_done(&self, tenant: TenantId, latency: Nanos, now: Time) {
        self.with(tenant, now, |metrics| metrics.latency.observe(latency.as_seconds()));
    }

    /// A request was refused for a full queue.
    pub(super) fn refused(&self, tenant: TenantId, now: Time) {
        self.with(tenant, now, |metrics| metrics.refused.inc());
    }

    /// Removes the series of tenants that have been idle for too long. `running` ones are active now.
    pub(super) fn forget_idle(&self, running: &BTreeSet<TenantId>, now: Time) {
        self.known().retain(|tenant, known| {
            if running.contains(tenant) {
                known.active = known.active.max(now);
            }
            let stays = now.since(known.active) < self.limits.idle_max;
            if !stays {
                self.vecs.remove(&tenant.to_string());
            }
            stays
        });
    }
}

impl TenantVecs {
    fn register(r: &Registrar<'_>) -> Self {
        let counter = |name, help| r.counter_vec(name, help, &["tenant"]);
        Self {
            rows: counter(
                "relserve_tenant_rows_total",
                "Rows of a tenant that finished, or were called off under way",
            ),
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

    fn remove(&self, label: &str) {
        let Self { rows, prompt_tokens, computed_tokens, output_tokens, refused, latency } = self;
        let counters = [rows, prompt_tokens, computed_tokens, output_tokens, refused];
        let removed = counters.map(|vec| vec.remove_label_values(&[label]));
        for removal in removed.into_iter().chain([latency.remove_label_values(&[label])]) {
            removal.expect("a known tenant has all series");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{End, TokenCount};

    use super::*;
    use crate::metrics::Metrics;
    use crate::metrics::tests::over;

    fn metrics() -> Metrics {
        let limits = SeriesLimits { tenants_max: 2, idle_max: Nanos(100) };
        over(limits, Arc::default())
    }

    fn row(metrics: &Metrics, tenant: u64, now: u64) {
        let usage = Usage { prompt: TokenCount(7), ..Usage::default() };
        metrics.row_done(TenantId(tenant), End::Stop, usage, Time(now));
    }

    fn forget_idle(metrics: &Metrics, running: &[u64], now: u64) {
        metrics.forget_idle_tenants(&running.iter().map(|id| TenantId(*id)).collect(), Time(now));
    }

    /// The tenants with series, and their rows.
    fn rows(metrics: &Metrics) -> Vec<(String, String)> {
        let text = metrics.render();
        let line = |line: &str| {
            let rest = line.strip_prefix("relserve_tenant_rows_total{tenant=\"")?;
            let (tenant, rows) = rest.split_once("\"} ")?;
            Some((tenant.to_owned(), rows.to_owned()))
        };
        text.lines().filter_map(line).collect()
    }

    fn check(metrics: &Metrics, expected: &[(&str, &str)]) {
        let found = rows(metrics);
        let found: Vec<_> = found.iter().map(|(tenant, rows)| (tenant.as_str(), rows.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn tenants_have_series_of_their_own_up_to_the_bound_and_share_one_beyond_it() {
        let metrics = metrics();
        for tenant in [4, 5, 6, 7, 4] {
            row(&metrics, tenant, 0);
        }
        metrics.overloaded(TenantId(9), Time(0));
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

    #[test]
    fn an_idle_tenant_loses_its_series_and_its_place_goes_to_one_that_is_active() {
        let metrics = metrics();
        row(&metrics, 4, 0);
        row(&metrics, 5, 50);
        row(&metrics, 6, 60);
        check(&metrics, &[("4", "1"), ("5", "1"), ("other", "1")]);
        forget_idle(&metrics, &[], 99);
        check(&metrics, &[("4", "1"), ("5", "1"), ("other", "1")]);

        forget_idle(&metrics, &[], 100);
        assert!(!metrics.render().contains("tenant=\"4\""), "no series of any name is left");
        row(&metrics, 6, 101);
        check(&metrics, &[("5", "1"), ("6", "1"), ("other", "1")]);

        // Nothing moved from the shared series, and who comes back begins anew.
        forget_idle(&metrics, &[], 150);
        row(&metrics, 4, 151);
        check(&metrics, &[("4", "1"), ("6", "1"), ("other", "1")]);
    }

    #[test]
    fn a_tenant_whose_relquery_runs_is_not_idle_however_long_it_is_silent() {
        let metrics = metrics();
        row(&metrics, 4, 0);
        forget_idle(&metrics, &[4], 500);
        check(&metrics, &[("4", "1")]);
        // It is idle from then on.
        forget_idle(&metrics, &[], 599);
        check(&metrics, &[("4", "1")]);
        forget_idle(&metrics, &[], 600);
        check(&metrics, &[]);
    }
}
