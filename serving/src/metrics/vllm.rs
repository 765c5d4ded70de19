//! What vLLM exports too, under its names, so that dashboards made for it work.
//!
//! Counts are of rows, each of which is a request to vLLM. Times are of relQueries, whose last row is what somebody waits for;
//! only the time between tokens is a row's own.

use base::{End, Nanos, Periods};
use metrics::{Counter, Gauge, Histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};
use scheduler::Stats;

use super::Registry;
use crate::relquery_state::Usage;

/// Upper bounds of tokens of a row.
const TOKENS: [f64; 17] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5];
/// Upper bounds of the time between two tokens of a row, seconds.
const GAP_SECONDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 5.0];

/// Histograms of tokens.
const OF_TOKENS: [&str; 3] = [
    "vllm:request_prompt_tokens",
    "vllm:request_generation_tokens",
    "vllm:request_max_num_generation_tokens",
];
/// The histogram of times between tokens.
const GAP: &str = "vllm:inter_token_latency_seconds";

/// The metrics.
pub(super) struct Vllm {
    running: Gauge,
    waiting: Gauge,
    kv_usage: Gauge,
    prefix_queries: Counter,
    prefix_hits: Counter,
    preemptions: Counter,
    prompt_tokens: Counter,
    generation_tokens: Counter,
    success: [Counter; 2],
    row_prompt: Histogram,
    row_generation: Histogram,
    row_generation_max: Histogram,
    e2e: Histogram,
    queue_time: Histogram,
    prefill_time: Histogram,
    decode_time: Histogram,
    first_token: Histogram,
    gap: Histogram,
}

/// Gives those histograms bounds of their own whose values are no latencies.
pub(super) fn buckets(builder: PrometheusBuilder) -> Result<PrometheusBuilder, BuildError> {
    let builder = OF_TOKENS.iter().try_fold(builder, |builder, name| {
        builder.set_buckets_for_metric(Matcher::Full((*name).into()), &TOKENS)
    })?;
    builder.set_buckets_for_metric(Matcher::Full(GAP.into()), &GAP_SECONDS)
}

impl Vllm {
    pub(super) fn register(r: &Registry<'_>) -> Self {
        let success = |reason| {
            let labels = [("finished_reason", reason)];
            r.counter_of("vllm:request_success_total", &labels, "Rows finished")
        };
        let [prompt, generation, generation_max] = OF_TOKENS;
        Self {
            running: r.gauge("vllm:num_requests_running", &[], "Rows that hold KV memory"),
            waiting: r.gauge("vllm:num_requests_waiting", &[], "Rows that wait"),
            kv_usage: r.gauge("vllm:kv_cache_usage_perc", &[], "Share of KV blocks in use; 1 is all"),
            prefix_queries: r.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up"),
            prefix_hits: r.counter("vllm:prefix_cache_hits_total", "Prompt tokens found"),
            preemptions: r.counter("vllm:num_preemptions_total", "Rows preempted"),
            prompt_tokens: r.counter("vllm:prompt_tokens_total", "Prompt tokens"),
            generation_tokens: r.counter("vllm:generation_tokens_total", "Output tokens"),
            success: [success("stop"), success("length")],
            row_prompt: r.histogram(prompt, "Prompt tokens of a row"),
            row_generation: r.histogram(generation, "Output tokens of a row"),
            row_generation_max: r
                .histogram(generation_max, "Output tokens of a row: it is asked for one output"),
            e2e: r.histogram("vllm:e2e_request_latency_seconds", "Latency of relQueries"),
            queue_time: r.histogram("vllm:request_queue_time_seconds", "Arrival to the first prefill"),
            prefill_time: r.histogram(
                "vllm:request_prefill_time_seconds",
                "Start of the first to the end of the last prefill",
            ),
            decode_time: r
                .histogram("vllm:request_decode_time_seconds", "End of the last prefill to the last token"),
            first_token: r
                .histogram("vllm:time_to_first_token_seconds", "Arrival of a relQuery to its first token"),
            gap: r.histogram(GAP, "Time between two steps that gave a row tokens"),
        }
    }

    /// A row finished.
    pub(super) fn row_done(&self, end: End, usage: Usage) {
        match end {
            End::Stop => self.success[0].increment(1),
            End::Length => self.success[1].increment(1),
        }
        self.prompt_tokens.increment(usage.prompt.0);
        self.generation_tokens.increment(usage.output.0);
        self.row_prompt.record(usage.prompt.0 as f64);
        self.row_generation.record(usage.output.0 as f64);
        self.row_generation_max.record(usage.output.0 as f64);
    }

    /// A row went on.
    pub(super) fn token_after(&self, gap: Nanos) {
        self.gap.record(gap.as_seconds());
    }

    /// A relQuery was completed; its first token came so long after it, where a row of it ran.
    pub(super) fn relquery_done(&self, periods: Periods, first_token: Option<Nanos>) {
        self.e2e.record(periods.total().as_seconds());
        self.queue_time.record(periods.waiting.as_seconds());
        self.prefill_time.record(periods.core.as_seconds());
        self.decode_time.record(periods.tail.as_seconds());
        if let Some(first) = first_token {
            self.first_token.record(first.as_seconds());
        }
    }

    /// The scheduler's counts.
    pub(super) fn look(&self, stats: &Stats) {
        self.running.set(f64::from(stats.rows_running));
        self.waiting.set(f64::from(stats.rows_waiting));
        self.kv_usage.set(f64::from(stats.kv_used_blocks) / f64::from(stats.kv_total_blocks.max(1)));
        self.prefix_queries.absolute(stats.prompt_tokens);
        self.prefix_hits.absolute(stats.prefix_hit_tokens);
        self.preemptions.absolute(stats.preemptions);
    }
}
