//! What vLLM exports too, under its names, so that dashboards made for it work.
//!
//! Counts are of rows, each of which is a request to vLLM. Times are of relQueries, whose last row is what
//! somebody waits for; only the time between tokens is a row's own. Gauges and what the scheduler counts:
//! [`super::published`].

use base::{End, Nanos, Periods};
use prometheus::{Histogram, IntCounter};

use super::exemplar::{TracedAt, TracedLatency};
use super::register::Registrar;
use crate::relquery_state::Usage;

/// Upper bounds of tokens of a row.
const TOKENS: [f64; 17] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5];
/// Upper bounds of the time between two tokens of a row, seconds.
const GAP_SECONDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 5.0];

/// The metrics.
pub(super) struct Vllm {
    prompt_tokens: IntCounter,
    generation_tokens: IntCounter,
    stop: IntCounter,
    length: IntCounter,
    row_prompt: Histogram,
    row_generation: Histogram,
    row_generation_max: Histogram,
    e2e: TracedLatency,
    queue_time: TracedLatency,
    prefill_time: TracedLatency,
    decode_time: TracedLatency,
    first_token: TracedLatency,
    gap: Histogram,
}

impl Vllm {
    pub(super) fn register(r: &Registrar<'_>) -> Self {
        let reasons = ("finished_reason", ["stop", "length"]);
        let [stop, length] = r.counters("vllm:request_success_total", "Rows finished", reasons);
        let tokens = |name, help| r.histogram(name, help, &TOKENS);
        Self {
            prompt_tokens: r.counter("vllm:prompt_tokens_total", "Prompt tokens"),
            generation_tokens: r.counter("vllm:generation_tokens_total", "Output tokens"),
            stop,
            length,
            row_prompt: tokens("vllm:request_prompt_tokens", "Prompt tokens of a row"),
            row_generation: tokens("vllm:request_generation_tokens", "Output tokens of a row"),
            row_generation_max: tokens(
                "vllm:request_max_num_generation_tokens",
                "Output tokens of a row: it is asked for one output",
            ),
            e2e: r.traced_latency("vllm:e2e_request_latency_seconds", "Latency of relQueries"),
            queue_time: r.traced_latency("vllm:request_queue_time_seconds", "Arrival to the first prefill"),
            prefill_time: r.traced_latency(
                "vllm:request_prefill_time_seconds",
                "Start of the first to the end of the last prefill",
            ),
            decode_time: r.traced_latency(
                "vllm:request_decode_time_seconds",
                "End of the last prefill to the last token",
            ),
            first_token: r.traced_latency(
                "vllm:time_to_first_token_seconds",
                "Arrival of a relQuery to its first token",
            ),
            gap: r.histogram(
                "vllm:inter_token_latency_seconds",
                "Time between two steps that gave a row tokens",
                &GAP_SECONDS,
            ),
        }
    }

    /// A row finished.
    pub(super) fn row_done(&self, end: End, usage: Usage) {
        let ended = if end.is_stop() { &self.stop } else { &self.length };
        ended.inc();
        self.prompt_tokens.inc_by(usage.prompt.0);
        self.generation_tokens.inc_by(usage.output.0);
        self.row_prompt.observe(usage.prompt.0 as f64);
        self.row_generation.observe(usage.output.0 as f64);
        self.row_generation_max.observe(usage.output.0 as f64);
    }

    /// A row went on.
    pub(super) fn token_after(&self, gap: Nanos) {
        self.gap.observe(gap.as_seconds());
    }

    /// A relQuery was completed; its first token came so long after it, where a row of it ran.
    pub(super) fn relquery_done(
        &self,
        periods: Periods,
        first_token: Option<Nanos>,
        trace: Option<TracedAt>,
    ) {
        self.e2e.observe(periods.total().as_seconds(), trace);
        self.queue_time.observe(periods.waiting.as_seconds(), trace);
        self.prefill_time.observe(periods.core.as_seconds(), trace);
        self.decode_time.observe(periods.tail.as_seconds(), trace);
        if let Some(first) = first_token {
            self.first_token.observe(first.as_seconds(), trace);
        }
    }
}
