//! Every metric, named once.
//!
//! One `prometheus` registry per server, with handles in a struct instead of the process-wide default: two
//! servers in one process (tests) do not share counts, and a name that is not here does not exist. What the
//! scheduler counts is not counted again: a collector reads it at each scrape ([`published`]). `vllm:` names
//! stand for what both servers have, so dashboards made for vLLM work. Must not know HTTP.

mod exemplar;
mod models;
mod open_metrics;
mod published;
mod register;
mod relquery;
mod replica;
mod request;
mod row;
mod step;
mod store;
mod tenant;
mod traces;
mod vllm;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use ::store::StoreHealth;
use base::{End, Nanos, TenantId, Time};
pub use exemplar::TracedAt;
use exemplar::{ExemplarIndex, Exemplars};
use prometheus::proto::{LabelPair, MetricFamily};
use prometheus::{IntCounter, Registry, TextEncoder};
use register::Registrar;
use relquery::RelQueryMetrics;
use replica::ReplicaVecs;
pub use replica::{DiscoveryMetrics, ReplicaMetrics};
pub use request::{LiveMetrics, ReloadMetrics, RequestMetrics, RetrievalMetrics};
pub use row::RowMetrics;
pub use step::StepMetrics;
pub use tenant::SeriesLimits;
use tenant::Tenants;
use vllm::Vllm;

use crate::live::Live;
use crate::relquery_state::{State, Status, Usage};
use crate::traces::TraceCounts;
use crate::view::View;

/// Handles of every metric, by topic.
pub struct Metrics {
    registry: Registry,
    /// The model's name.
    model: String,
    /// Steps and what goes wrong with them.
    pub steps: StepMetrics,
    /// How rows end and what they cost.
    pub rows: RowMetrics,
    relqueries: RelQueryMetrics,
    /// What happens at the doors.
    pub requests: RequestMetrics,
    /// The configuration that is read again.
    pub reloads: ReloadMetrics,
    /// Corpora.
    pub retrieval: RetrievalMetrics,
    /// Live views.
    pub live: LiveMetrics,
    replicas: ReplicaVecs,
    /// Reports to the gateways that share the replicas which did not reach the database.
    pub lease_failures: IntCounter,
    /// Writes of the journal of usage that failed or took too long.
    pub usage_journal_failures: IntCounter,
    tenants: Tenants,
    vllm: Vllm,
    exemplars: ExemplarIndex,
}

/// What counts for itself and is read at each scrape.
pub struct ScrapedStates {
    /// What the loop published.
    pub view: Arc<Mutex<View>>,
    /// Who looks.
    pub live: Arc<Live>,
    /// How the store's calls fared.
    pub store: Arc<StoreHealth>,
    /// What has become of spans.
    pub traces: Arc<TraceCounts>,
}

impl Metrics {
    /// Registers everything.
    pub fn new(
        model: &str,
        tenants: SeriesLimits,
        ScrapedStates { view, live, store, traces }: ScrapedStates,
    ) -> Self {
        let (registry, exemplars) = (Registry::new(), RefCell::default());
        let r = Registrar { registry: &registry, model, exemplars: &exemplars };
        published::register(&r, view);
        store::register(&r, store);
        traces::register(&r, traces);
        // What Prometheus' own clients export of the process; read from /proc at each scrape.
        #[cfg(target_os = "linux")]
        r.add(prometheus::process_collector::ProcessCollector::for_self());
        Self {
            steps: StepMetrics::register(&r),
            rows: RowMetrics::register(&r),
            relqueries: RelQueryMetrics::register(&r),
            requests: RequestMetrics::register(&r),
            reloads: ReloadMetrics::register(&r),
            retrieval: RetrievalMetrics::register(&r),
            live: LiveMetrics::register(&r, live),
            replicas: ReplicaVecs::register(&r),
            lease_failures: r.counter(
                "relserve_lease_failures_total",
                "Renewals of leases of replicas that the database did not take",
            ),
            usage_journal_failures: r.counter(
                "relserve_usage_journal_failures_total",
                "Writes of the journal of usage that failed or took too long: a kill may lose usage that the database does not have",
            ),
            tenants: Tenants::register(&r, tenants),
            vllm: Vllm::register(&r),
            model: model.to_owned(),
            exemplars: exemplars.into_inner(),
            registry,
        }
    }

    /// The model's name.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The metrics of a replica of a fleet.
    pub fn replica(&self, name: &str) -> ReplicaMetrics {
        self.replicas.of(name)
    }

    /// Removes the series of a replica that has left.
    pub fn forget_replica(&self, name: &str) {
        self.replicas.forget(name);
    }

    /// The metrics of a source of replicas that is read while the server runs.
    pub fn discovery(&self, source: &str) -> DiscoveryMetrics {
        self.replicas.discovery(source)
    }

    /// The text of `/metrics` of one model.
    pub fn render(&self) -> String {
        Self::render_all(&[self])
    }

    /// The text of `/metrics` of all models that are served, the default one first. Of several, series carry
    /// the label `model`.
    pub fn render_all(models: &[&Self]) -> String {
        TextEncoder
            .encode_to_string(&Self::gather(models))
            .expect("a gathered family has a name and a series")
    }

    /// The same as OpenMetrics; latencies have exemplars where these are shown.
    pub fn render_open(models: &[&Self], shows_exemplars: bool) -> String {
        let exemplars = |name: &str, labels: &[LabelPair]| -> Option<&Exemplars> {
            let of = |one: &&&Self| models.len() == 1 || models::is_of(labels, &one.model);
            let model = models.iter().filter(|_| shows_exemplars).find(of)?;
            model.exemplars.get(name).map(|exemplars| &**exemplars)
        };
        open_metrics::render(&Self::gather(models), exemplars)
    }

    fn gather(models: &[&Self]) -> Vec<MetricFamily> {
        let gathered = models.iter().map(|one| (one.model.as_str(), one.registry.gather()));
        models::merged(gathered.collect())
    }

    /// A row of a tenant finished.
    pub fn row_done(&self, tenant: TenantId, end: End, usage: Usage, now: Time) {
        self.rows.done(end, usage);
        self.tenants.row_ended(tenant, usage, now);
        self.vllm.row_done(end, usage);
    }

    /// A row of a tenant was called off that had used so much.
    pub fn row_called_off(&self, tenant: TenantId, usage: Usage, now: Time) {
        self.rows.used(usage);
        self.tenants.row_ended(tenant, usage, now);
    }

    /// A row went on this long after its last token.
    pub fn token_after(&self, gap: Nanos) {
        self.vllm.token_after(gap);
    }

    /// A request of a tenant was refused for a full queue.
    pub fn overloaded(&self, tenant: TenantId, now: Time) {
        self.requests.overloaded.inc();
        self.tenants.refused(tenant, now);
    }

    /// A relQuery of a tenant ended, which may be in a trace.
    pub fn relquery_done(&self, tenant: TenantId, state: &State, trace: Option<TracedAt>, now: Time) {
        self.relqueries.ended(&state.status);
        let (Status::Completed, Some(periods)) = (&state.status, state.periods) else { return };
        self.relqueries.took(periods, trace);
        self.tenants.relquery_done(tenant, periods.total(), now);
        self.vllm.relquery_done(periods, state.first_token, trace);
    }

    /// Removes the series of tenants that have gone idle, so that others get series of their own; `running`:
    /// tenants with a relQuery that runs.
    pub fn forget_idle_tenants(&self, running: &BTreeSet<TenantId>, now: Time) {
        self.tenants.forget_idle(running, now);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::LiveConfig;

    /// Metrics of a server of which nobody has seen anything.
    pub(crate) fn fresh() -> Metrics {
        over(SeriesLimits { tenants_max: 1, idle_max: Nanos(1) }, Arc::default())
    }

    /// Metrics that read this view.
    pub(crate) fn over(tenants: SeriesLimits, view: Arc<Mutex<View>>) -> Metrics {
        let live = Arc::new(Live::new(LiveConfig::default()));
        let states = ScrapedStates { view, live, store: Arc::default(), traces: Arc::default() };
        Metrics::new("demo", tenants, states)
    }

    #[test]
    fn a_metric_is_visible_before_its_first_event_and_two_servers_do_not_share_it() {
        let (first, second) = (fresh(), fresh());
        first.requests.disconnects.inc_by(3);
        assert!(first.render().contains("relserve_disconnects_total 3"));
        assert!(second.render().contains("relserve_disconnects_total 0"));
        assert!(second.render().contains("vllm:num_preemptions_total{engine=\"0\",model_name=\"demo\"} 0"));
        assert!(second.render().contains("relserve_step_seconds_count 0"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_process_is_measured_too() {
        let text = fresh().render();
        for name in ["cpu_seconds_total", "resident_memory_bytes", "open_fds", "start_time_seconds"] {
            assert!(text.contains(&format!("\nprocess_{name} ")), "{name}: {text}");
        }
    }
}
