//! What a run came to, in figures: percentiles, periods, tokens. Pure.

use serde::Serialize;

use crate::record::{Periods, Record, TokenUsage};
use crate::replay::Simulated;

/// A distribution of milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stats {
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// 95 of 100 are not above it.
    pub p95: f64,
    /// 99 of 100 are not above it.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Stats {
    /// The distribution of `values`; `None` where there are none. Percentiles by nearest rank: each is a
    /// value that was measured.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let max = *sorted.last()?;
        let rank =
            |share: f64| sorted[((share * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len()) - 1];
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        Some(Self { mean, p50: rank(0.50), p95: rank(0.95), p99: rank(0.99), max })
    }
}

/// Mean periods over the relQueries that told them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MeanPeriods {
    /// Arrival to first prefill, ms.
    pub waiting_ms: f64,
    /// First prefill to the end of the last, ms.
    pub core_ms: f64,
    /// End of the last prefill to the end of the last decode, ms.
    pub tail_ms: f64,
}

/// A run in figures: summary.json.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunSummary {
    /// What was run: the policy, or the mode.
    pub name: String,
    /// RelQueries of the trace.
    pub relqueries: usize,
    /// Those that ended without an error of the whole.
    pub completed: usize,
    /// Rows answered.
    pub rows_done: u64,
    /// Rows that ended in an error.
    pub rows_failed: u64,
    /// Rows without an answer, whatever became of them.
    pub rows_lost: u64,
    /// Answers beyond the first of a row.
    pub rows_twice: u64,
    /// Latency of the completed relQueries, ms.
    pub latency_ms: Option<Stats>,
    /// Time to the first row, ms.
    pub first_row_ms: Option<Stats>,
    /// The server's periods.
    pub periods: Option<MeanPeriods>,
    /// Tokens of the completed relQueries.
    pub tokens: TokenUsage,
    /// First arrival to last answer, s.
    pub span_s: f64,
    /// Prompt and output tokens per second of the span.
    pub tokens_per_s: Option<f64>,
    /// The first few different errors.
    pub errors: Vec<String>,
    /// Plan and apply as a share of the time of steps, by the server's count.
    pub scheduler_share: Option<f64>,
    /// What the simulator makes of the same run.
    pub simulated: Option<Simulated>,
    /// Mean latency of each repetition, ms, in the order they ran, where there were several; this is the
    /// median one.
    pub repeated_ms: Vec<f64>,
}

/// Most different errors that a summary lists.
const ERRORS_MAX: usize = 5;

impl RunSummary {
    /// The figures of a run's records.
    pub fn of(name: &str, records: &[Record]) -> Self {
        let done: Vec<&Record> = records.iter().filter(|record| record.error.is_none()).collect();
        let tokens = done.iter().fold(TokenUsage::NONE_YET, |sum, record| sum.plus(record.tokens));
        let periods: Vec<_> = done.iter().filter_map(|record| record.periods).collect();
        let mean = |part: fn(&Periods) -> f64| periods.iter().map(part).sum::<f64>() / periods.len() as f64;
        let start = records.iter().map(|record| record.arrival_ms).fold(f64::INFINITY, f64::min);
        let ends = done.iter().filter_map(|record| Some(record.arrival_ms + record.latency_ms?));
        let span_s = ((ends.fold(start, f64::max) - start) / 1e3).max(0.0);
        let total = tokens.prompt.zip(tokens.output).map(|(prompt, output)| (prompt + output) as f64);
        let mut errors = Vec::new();
        for error in records.iter().flat_map(|record| record.error.iter().chain(&record.row_error)) {
            if !errors.contains(error) && errors.len() < ERRORS_MAX {
                errors.push(error.clone());
            }
        }
        let sum = |of: fn(&Record) -> u32| records.iter().map(|record| u64::from(of(record))).sum();
        Self {
            name: name.to_owned(),
            relqueries: records.len(),
            completed: done.len(),
            rows_done: sum(|record| record.rows_done),
            rows_failed: sum(|record| record.rows_failed),
            rows_lost: sum(|record| record.rows.saturating_sub(record.rows_done)),
            rows_twice: sum(|record| record.rows_twice),
            latency_ms: Stats::of(done.iter().filter_map(|record| record.latency_ms)),
            first_row_ms: Stats::of(done.iter().filter_map(|record| record.first_row_ms)),
            periods: (!periods.is_empty()).then(|| MeanPeriods {
                waiting_ms: mean(|periods| periods.waiting_ms),
                core_ms: mean(|periods| periods.core_ms),
                tail_ms: mean(|periods| periods.tail_ms),
            }),
            tokens,
            span_s: if span_s.is_finite() { span_s } else { 0.0 },
            tokens_per_s: total.filter(|_| span_s.is_finite() && span_s > 0.0).map(|total| total / span_s),
            errors,
            scheduler_share: None,
            simulated: None,
            repeated_ms: Vec::new(),
        }
    }

    /// Mean latency, ms.
    pub fn mean_ms(&self) -> Option<f64> {
        self.latency_ms.map(|stats| stats.mean)
    }

    /// The share of prompt tokens that the prefix cache supplied, by the server's count.
    pub fn hit(&self) -> Option<f64> {
        let prompt = self.tokens.prompt.filter(|prompt| *prompt > 0)?;
        Some(self.tokens.cached? as f64 / prompt as f64)
    }

    /// Whether every relQuery ended well and every row was answered once.
    pub fn is_sound(&self) -> bool {
        self.completed == self.relqueries && self.rows_lost == 0 && self.rows_twice == 0
    }

    /// A few lines for a terminal.
    pub fn text(&self) -> String {
        let count = |tokens: Option<u64>| tokens.map_or("?".into(), |tokens| tokens.to_string());
        let mut text = format!(
            "{}: {} of {} relQueries, {} rows done, {} rows failed, {:.2} s\n",
            self.name, self.completed, self.relqueries, self.rows_done, self.rows_failed, self.span_s
        );
        for (what, stats) in [("latency", self.latency_ms), ("first row", self.first_row_ms)] {
            if let Some(Stats { mean, p50, p95, p99, max }) = stats {
                text += &format!(
                    "{what:>10} ms  mean {mean:.1}  p50 {p50:.1}  p95 {p95:.1}  p99 {p99:.1}  max {max:.1}\n"
                );
            }
        }
        if let Some(MeanPeriods { waiting_ms, core_ms, tail_ms }) = self.periods {
            text += &format!(
                "{:>10} ms  waiting {waiting_ms:.1}  core {core_ms:.1}  tail {tail_ms:.1}\n",
                "periods"
            );
        }
        let TokenUsage { prompt, cached, computed, output } = self.tokens;
        text += &format!(
            "{:>10}     prompt {}  cached {}  computed {}  output {}",
            "tokens",
            count(prompt),
            count(cached),
            count(computed),
            count(output)
        );
        if let Some(rate) = self.tokens_per_s {
            text += &format!("  ({rate:.1} per s)");
        }
        text.push('\n');
        for error in &self.errors {
            text += &format!("{:>10}     {error}\n", "error");
        }
        text
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn record(index: u32, latency_ms: Option<f64>) -> Record {
        Record {
            index,
            task: "rate".into(),
            table: "t".into(),
            rows: 2,
            max_tokens: 5,
            arrival_ms: f64::from(index) * 1_000.0,
            first_row_ms: latency_ms,
            latency_ms,
            periods: latency_ms.map(|_| Periods { waiting_ms: 1.0, core_ms: 2.0, tail_ms: 3.0 }),
            tokens: TokenUsage { prompt: Some(10), cached: Some(4), computed: Some(6), output: Some(2) },
            row_tokens: Vec::new(),
            rows_done: if latency_ms.is_some() { 2 } else { 0 },
            rows_failed: 0,
            rows_twice: 0,
            row_error: None,
            error: latency_ms.is_none().then(|| "HTTP 429: full".into()),
        }
    }

    #[test]
    fn percentiles_are_measured_values_by_nearest_rank() {
        let stats = Stats::of((1..=200).rev().map(f64::from)).expect("values");
        assert_eq!(
            (stats.p50, stats.p95, stats.p99, stats.max, stats.mean),
            (100.0, 190.0, 198.0, 200.0, 100.5)
        );
        let one = Stats::of([7.0]).expect("a value");
        assert_eq!((one.p50, one.p99, one.max), (7.0, 7.0, 7.0));
        assert_eq!(Stats::of([]), None);
    }

    #[test]
    fn a_summary_counts_failures_apart_and_leaves_them_out_of_latency() {
        let of_a_row = Record { row_error: Some("too long".into()), ..record(2, Some(300.0)) };
        let records = [record(0, Some(100.0)), record(1, None), of_a_row];
        let summary = RunSummary::of("fcfs", &records);
        assert_eq!((summary.completed, summary.relqueries, summary.rows_done), (2, 3, 4));
        assert_eq!((summary.rows_lost, summary.rows_twice), (2, 0));
        assert_eq!(summary.latency_ms.map(|stats| stats.mean), Some(200.0));
        assert_eq!(summary.tokens.prompt, Some(20));
        assert_eq!((summary.span_s, summary.tokens_per_s), (2.3, Some(24.0 / 2.3)));
        assert_eq!(summary.errors, ["HTTP 429: full", "too long"]);
        let nothing = RunSummary::of("fcfs", &[record(0, None)]);
        assert_eq!((nothing.latency_ms, nothing.periods, nothing.tokens_per_s), (None, None, None));
        assert!(nothing.text().contains("0 of 1"), "{}", nothing.text());
        assert_eq!(RunSummary::of("fcfs", &[]).span_s, 0.0);
        assert!(RunSummary::of("fcfs", &[record(0, Some(1.0))]).is_sound() && !summary.is_sound());
        let twice = Record { rows_twice: 1, ..record(0, Some(1.0)) };
        assert!(!RunSummary::of("fcfs", &[twice]).is_sound());
    }
}
