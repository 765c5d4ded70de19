//! Every metric, named once.
//!
//! The `metrics` crate with its Prometheus recorder, held as handles in a struct instead of installed
//! globally: two servers in one process (tests) do not share counts, and a name that is not here does not
//! exist. `vllm:` names stand for what both servers have, so dashboards made for vLLM work.

mod replica;
mod tenant;
mod vllm;

use std::sync::Arc;

use base::{BatchKind, BatchPlan, End, Nanos, TenantId};
use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
pub use replica::ReplicaMetrics;
use scheduler::Stats;
use tenant::Tenants;
use vllm::Vllm;

use crate::relquery_state::{State, Status, Usage};

/// Upper bounds of latency buckets, seconds. Finer at the low end than vLLM's, whose smallest is 0.3 s.
const LATENCY_SECONDS: [f64; 18] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];
/// Upper bounds of scheduler time per step, seconds.
const SCHEDULER_SECONDS: [f64; 10] = [1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 1e-2, 1e-1];
/// Upper bounds of step time, seconds.
const STEP_SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// Handles of every metric.
pub struct Metrics {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
    /// Steps by kind: prefill, decode, mixed.
    steps: [Counter; 3],
    /// Steps that failed whole.
    pub step_failures: Counter,
    /// Executors of the local engine that were lost.
    pub engine_losses: Counter,
    /// Fresh ones that took over.
    pub engine_restarts: Counter,
    /// Attempts to make one that failed.
    pub engine_restart_failures: Counter,
    /// Rows that failed because steps with them fail.
    pub rows_quarantined: Counter,
    /// Reading, rewriting and tokenising a request, off the connection's thread.
    pub prepare_seconds: Histogram,
    scheduler_seconds: Histogram,
    gap_seconds: Histogram,
    step_seconds: Histogram,
    latency: Histogram,
    waiting: Histogram,
    core: Histogram,
    tail: Histogram,
    relqueries_completed: Counter,
    relqueries_cancelled: Counter,
    relqueries_failed: Counter,
    rows_stop: Counter,
    rows_length: Counter,
    /// Rows that failed.
    pub rows_failed: Counter,
    /// Rows that nobody wanted any more.
    pub rows_cancelled: Counter,
    /// Rows that got their answer from a row in flight.
    pub rows_shared: Counter,
    /// Rows that joined an open relQuery.
    pub rows_coalesced: Counter,
    /// Rows answered from the result cache.
    pub cache_hits: Counter,
    /// Rows looked up there in vain.
    pub cache_misses: Counter,
    /// Clients that went away before their answer.
    pub disconnects: Counter,
    /// Requests that joined what their idempotency key had begun.
    pub repeats: Counter,
    overloaded: Counter,
    /// Replies cut short by their deadline.
    pub partial: Counter,
    /// Texts embedded for corpora and searches.
    pub embedded_texts: Counter,
    /// Their tokens.
    pub embedded_tokens: Counter,
    /// Searches of corpora.
    pub retrieval_searches: Counter,
    /// Graphs made for large corpora.
    pub retrieval_graphs: Counter,
    /// Live views that are open.
    pub live_readers: Gauge,
    /// Steps that live views were too slow to see.
    pub live_lost_steps: Counter,
    /// Replays of the last minutes.
    pub what_ifs: Counter,
    prompt_tokens: Counter,
    computed_tokens: Counter,
    exact_tokens: Counter,
    shifted_tokens: Counter,
    output_tokens: Counter,
    forced_tokens: Counter,
    guessed_tokens: Counter,
    accepted_tokens: Counter,
    queue_rows: Gauge,
    running_rows: Gauge,
    kv_blocks: [Gauge; 3],
    pinned_blocks: Gauge,
    host_blocks: [Gauge; 2],
    moved_blocks: [Counter; 2],
    restored_tokens: Counter,
    prefix_queries: Counter,
    prefix_hits: Counter,
    preemptions: Counter,
    tenants: Tenants,
    vllm: Vllm,
}

/// Registers metrics with one recorder.
struct Registry<'a> {
    recorder: &'a PrometheusRecorder,
    model: String,
}

impl Registry<'_> {
    fn key(&self, name: &'static str, labels: &[(&'static str, &'static str)]) -> Key {
        let mut labels: Vec<Label> =
            labels.iter().map(|(key, value)| Label::from_static_parts(key, value)).collect();
        if name.starts_with("vllm:") {
            labels.push(Label::new("model_name", self.model.clone()));
            labels.push(Label::from_static_parts("engine", "0"));
        }
        Key::from_parts(name, labels)
    }

    fn counter(&self, name: &'static str, help: &'static str) -> Counter {
        self.counter_of(name, &[], help)
    }

    fn counter_of(
        &self,
        name: &'static str,
        labels: &[(&'static str, &'static str)],
        help: &'static str,
    ) -> Counter {
        self.recorder.describe_counter(name.into(), None, help.into());
        let counter = self.recorder.register_counter(&self.key(name, labels), &METADATA);
        // Shows the series at 0: a rate over a counter that appears with its first event misses that event.
        counter.absolute(0);
        counter
    }

    fn gauge(
        &self,
        name: &'static str,
        labels: &[(&'static str, &'static str)],
        help: &'static str,
    ) -> Gauge {
        self.recorder.describe_gauge(name.into(), None, help.into());
        self.recorder.register_gauge(&self.key(name, labels), &METADATA)
    }

    fn histogram(&self, name: &'static str, help: &'static str) -> Histogram {
        self.recorder.describe_histogram(name.into(), None, help.into());
        self.recorder.register_histogram(&self.key(name, &[]), &METADATA)
    }
}

const METADATA: Metadata<'static> = Metadata::new("relserve", Level::INFO, None);

impl Metrics {
    /// Registers everything. Tenants beyond the first `tenants_max` share one series.
    pub fn new(model: &str, tenants_max: usize) -> Self {
        let recorder = PrometheusBuilder::new()
            .set_buckets(&LATENCY_SECONDS)
            .and_then(|builder| {
                let name = Matcher::Full("relserve_scheduler_seconds".into());
                builder.set_buckets_for_metric(name, &SCHEDULER_SECONDS)
            })
            .and_then(|builder| {
                let name = Matcher::Full("relserve_step_gap_seconds".into());
                builder.set_buckets_for_metric(name, &SCHEDULER_SECONDS)
            })
            .and_then(|builder| {
                builder.set_buckets_for_metric(Matcher::Full("relserve_step_seconds".into()), &STEP_SECONDS)
            })
            .and_then(vllm::buckets)
            .expect("the bucket lists are not empty")
            .build_recorder();
        let recorder = Arc::new(recorder);
        Self::register(&recorder, &Registry { recorder: &recorder, model: model.to_owned() }, tenants_max)
    }

    /// The metrics of an executor of a fleet.
    pub fn executor(&self, name: &str) -> ReplicaMetrics {
        ReplicaMetrics::new(&self.recorder, name)
    }

    fn register(recorder: &Arc<PrometheusRecorder>, r: &Registry<'_>, tenants_max: usize) -> Self {
        let steps = |kind| r.counter_of("relserve_steps_total", &[("kind", kind)], "Model steps by kind");
        let ended =
            |how| r.counter_of("relserve_relqueries_total", &[("status", how)], "RelQueries that ended");
        let rows = |how| r.counter_of("relserve_rows_total", &[("outcome", how)], "Rows by outcome");
        let lookups =
            |how| r.counter_of("relserve_cache_rows_total", &[("result", how)], "Result cache lookups");
        let kv = |state| r.gauge("relserve_kv_blocks", &[("state", state)], "KV blocks by state");
        let host = |state| {
            r.gauge("relserve_host_kv_blocks", &[("state", state)], "KV blocks of the host tier by state")
        };
        let moved = |way| {
            r.counter_of(
                "relserve_host_moved_blocks_total",
                &[("way", way)],
                "KV blocks moved between pool and host tier",
            )
        };
        Self {
            recorder: Arc::clone(recorder),
            handle: recorder.handle(),
            steps: [steps("prefill"), steps("decode"), steps("mixed")],
            step_failures: r.counter("relserve_step_failures_total", "Steps that failed whole"),
            engine_losses: r.counter("relserve_engine_losses_total", "Times the engine lost its device"),
            engine_restarts: r
                .counter("relserve_engine_restarts_total", "Fresh executors in place of lost ones"),
            engine_restart_failures: r.counter(
                "relserve_engine_restart_failures_total",
                "Attempts to make a fresh executor that failed",
            ),
            rows_quarantined: r
                .counter("relserve_rows_quarantined_total", "Rows that failed because steps with them fail"),
            scheduler_seconds: r.histogram("relserve_scheduler_seconds", "Time to plan and apply one step"),
            prepare_seconds: r
                .histogram("relserve_prepare_seconds", "Time to read, rewrite and tokenise a request"),
            gap_seconds: r.histogram(
                "relserve_step_gap_seconds",
                "Time from a step's end to the start of the step that follows it: what compute threads wait",
            ),
            step_seconds: r.histogram("relserve_step_seconds", "Time the executor took for one step"),
            latency: r.histogram("relserve_relquery_seconds", "Latency of relQueries"),
            waiting: r
                .histogram("relserve_relquery_waiting_seconds", "Arrival to the start of the first prefill"),
            core: r.histogram(
                "relserve_relquery_core_seconds",
                "Start of the first to the end of the last prefill",
            ),
            tail: r.histogram("relserve_relquery_tail_seconds", "End of the last prefill to the last token"),
            relqueries_completed: ended("completed"),
            relqueries_cancelled: ended("cancelled"),
            relqueries_failed: ended("failed"),
            rows_stop: rows("stop"),
            rows_length: rows("length"),
            rows_failed: rows("failed"),
            rows_cancelled: rows("cancelled"),
            rows_shared: r.counter("relserve_rows_shared_total", "Rows answered by a row in flight"),
            rows_coalesced: r.counter("relserve_rows_coalesced_total", "Rows that joined an open relQuery"),
            cache_hits: lookups("hit"),
            cache_misses: lookups("miss"),
            disconnects: r.counter("relserve_disconnects_total", "Clients gone before their answer"),
            repeats: r.counter("relserve_repeats_total", "Requests that joined an earlier one by their key"),
            overloaded: r.counter("relserve_overloaded_total", "Requests refused for a full queue"),
            partial: r.counter("relserve_partial_replies_total", "Replies cut short by their deadline"),
            embedded_texts: r
                .counter("relserve_embedded_texts_total", "Texts embedded for corpora and searches"),
            embedded_tokens: r.counter("relserve_embedded_tokens_total", "Tokens of embedded texts"),
            retrieval_searches: r.counter("relserve_retrieval_searches_total", "Searches of corpora"),
            retrieval_graphs: r
                .counter("relserve_retrieval_graphs_total", "Graphs made for the indexes of large corpora"),
            live_readers: r.gauge("relserve_live_readers", &[], "Live views that are open"),
            live_lost_steps: r
                .counter("relserve_live_lost_steps_total", "Steps that live views were too slow to see"),
            what_ifs: r.counter("relserve_what_ifs_total", "Replays of the last minutes that were asked for"),
            prompt_tokens: r.counter("relserve_prompt_tokens_total", "Prompt tokens of finished rows"),
            computed_tokens: r.counter("relserve_computed_tokens_total", "Prompt tokens computed"),
            exact_tokens: r.counter(
                "relserve_exact_tokens_total",
                "Prompt tokens of finished rows that were cached after all that stands before them",
            ),
            shifted_tokens: r.counter(
                "relserve_shifted_tokens_total",
                "Prompt tokens of finished rows that were cached in modules of their own",
            ),
            output_tokens: r.counter("relserve_output_tokens_total", "Output tokens of finished rows"),
            forced_tokens: r
                .counter("relserve_forced_tokens_total", "Output tokens that constraints forced, unsampled"),
            guessed_tokens: r
                .counter("relserve_guessed_tokens_total", "Tokens that decode steps guessed ahead"),
            accepted_tokens: r.counter(
                "relserve_accepted_tokens_total",
                "Output tokens that were guessed: a step saved each",
            ),
            queue_rows: r.gauge("relserve_queue_rows", &[], "Rows that wait"),
            running_rows: r.gauge("relserve_running_rows", &[], "Rows that hold KV memory"),
            kv_blocks: [kv("used"), kv("cached"), kv("free")],
            pinned_blocks: r.gauge("relserve_pinned_kv_blocks", &[], "Used KV blocks that pins hold"),
            prefix_queries: r.counter("relserve_prefix_query_tokens_total", "Prompt tokens looked up"),
            prefix_hits: r
                .counter("relserve_prefix_hit_tokens_total", "Prompt tokens found in the prefix cache"),
            host_blocks: [host("used"), host("free")],
            moved_blocks: [moved("out"), moved("back")],
            restored_tokens: r.counter(
                "relserve_restored_tokens_total",
                "Prompt tokens found in the prefix cache that came back from the host tier",
            ),
            preemptions: r.counter("relserve_preemptions_total", "Rows preempted for want of blocks"),
            tenants: Tenants::new(Arc::clone(recorder), tenants_max),
            vllm: Vllm::register(r),
        }
    }

    /// The text of `/metrics`.
    pub fn render(&self) -> String {
        self.handle.render()
    }

    /// Folds recorded samples into buckets, so that they do not pile up between scrapes.
    pub fn fold(&self) {
        self.handle.run_upkeep();
    }

    /// A step was planned, run and applied; `gap` after the one before, where it followed at once.
    pub fn step(&self, plan: &BatchPlan, gap: Option<Nanos>, scheduling: Nanos, running: Nanos) {
        let kind = match plan.kind() {
            BatchKind::Prefill => 0,
            BatchKind::Decode => 1,
            BatchKind::Mixed => 2,
        };
        self.steps[kind].increment(1);
        if let Some(gap) = gap {
            self.gap_seconds.record(gap.as_seconds());
        }
        self.scheduler_seconds.record(scheduling.as_seconds());
        self.step_seconds.record(running.as_seconds());
    }

    /// A row of a tenant finished.
    pub fn row_done(&self, tenant: TenantId, end: End, usage: Usage) {
        match end {
            End::Stop => self.rows_stop.increment(1),
            End::Length => self.rows_length.increment(1),
        }
        self.prompt_tokens.increment(usage.prompt.0);
        self.computed_tokens.increment(usage.computed.0);
        self.exact_tokens.increment(usage.exact().0);
        self.shifted_tokens.increment(usage.shifted.0);
        self.output_tokens.increment(usage.output.0);
        self.tenants.row_done(tenant, usage);
        self.vllm.row_done(end, usage);
    }

    /// A row went on this long after its last token.
    pub fn token_after(&self, gap: Nanos) {
        self.vllm.token_after(gap);
    }

    /// A request of a tenant was refused for a full queue.
    pub fn overloaded(&self, tenant: TenantId) {
        self.overloaded.increment(1);
        self.tenants.refused(tenant);
    }

    /// A relQuery of a tenant ended.
    pub fn relquery_done(&self, tenant: TenantId, state: &State) {
        match &state.status {
            Status::Running => return,
            Status::Cancelled => return self.relqueries_cancelled.increment(1),
            Status::Failed(_) => return self.relqueries_failed.increment(1),
            Status::Completed => self.relqueries_completed.increment(1),
        }
        let Some(periods) = state.periods else { return };
        self.latency.record(periods.total().as_seconds());
        self.waiting.record(periods.waiting.as_seconds());
        self.core.record(periods.core.as_seconds());
        self.tail.record(periods.tail.as_seconds());
        self.tenants.relquery_done(tenant, periods.total());
        self.vllm.relquery_done(periods, state.first_token);
    }

    /// The scheduler's counts.
    pub fn look(&self, stats: &Stats) {
        self.queue_rows.set(f64::from(stats.rows_waiting));
        self.running_rows.set(f64::from(stats.rows_running));
        let blocks = [stats.kv_used_blocks, stats.kv_cached_blocks, stats.kv_free_blocks];
        for (gauge, count) in self.kv_blocks.iter().zip(blocks) {
            gauge.set(f64::from(count));
        }
        self.pinned_blocks.set(f64::from(stats.kv_pinned_blocks));
        self.prefix_queries.absolute(stats.prompt_tokens);
        self.prefix_hits.absolute(stats.prefix_hit_tokens);
        for (gauge, count) in
            self.host_blocks.iter().zip([stats.tier.used, stats.tier.total - stats.tier.used])
        {
            gauge.set(f64::from(count));
        }
        for (counter, count) in self.moved_blocks.iter().zip([stats.tier.moved_out, stats.tier.moved_back]) {
            counter.absolute(count);
        }
        self.restored_tokens.absolute(stats.tier.restored_tokens);
        self.preemptions.absolute(stats.preemptions);
        self.forced_tokens.absolute(stats.forced_tokens);
        self.guessed_tokens.absolute(stats.guessed_tokens);
        self.accepted_tokens.absolute(stats.accepted_tokens);
        self.vllm.look(stats);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_visible_before_its_first_event_and_two_servers_do_not_share_it() {
        let (first, second) = (Metrics::new("demo", 1), Metrics::new("demo", 1));
        first.disconnects.increment(3);
        assert!(first.render().contains("relserve_disconnects_total 3"));
        assert!(second.render().contains("relserve_disconnects_total 0"));
        assert!(second.render().contains("vllm:num_preemptions_total{model_name=\"demo\",engine=\"0\"} 0"));
    }
}
