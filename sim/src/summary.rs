//! What a replay comes to: latencies, their parts, counts. Floating point lives here, in reports only.

use std::collections::{BTreeMap, BTreeSet};

use base::{Nanos, Periods, RelQueryId, Time};
use scheduler::Event;
use serde::Serialize;

use crate::record::{Finished, Iteration};

/// Latencies of relQueries, in seconds. Percentiles interpolate between order statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// How many relQueries.
    pub n: usize,
    pub mean: f64,
    /// Median latency.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
    /// End of the last one.
    pub makespan: f64,
    /// Mean waiting time (RelServe, Eq. 2).
    pub waiting: f64,
    /// Mean core running time.
    pub core: f64,
    /// Mean tail running time.
    pub tail: f64,
    /// Share of prompt tokens that the prefix cache supplied.
    pub hit: f64,
    /// Mean rows of an iteration that decodes.
    pub dbatch: f64,
}

/// What was done, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IterationCounts {
    pub iters: u64,
    /// Of those, prefills only.
    pub prefill_iters: u64,
    /// Decodes only.
    pub decode_iters: u64,
    /// Both.
    pub mixed_iters: u64,
    /// Rows that lost their memory.
    pub preempts: u64,
    /// Prompt tokens computed.
    pub uncached: u64,
    /// Prompt tokens asked for.
    pub prompt: u64,
    pub decode_tokens: u64,
}

impl IterationCounts {
    /// Adds iterations up; `prompt` and `preempts` come from the scheduler.
    pub fn of(iterations: &[Iteration], prompt: u64, preempts: u64) -> Self {
        let mut counts = Self { prompt, preempts, ..Self::default() };
        for iteration in iterations {
            counts.iters += 1;
            match (iteration.uncached.0, iteration.decoding) {
                (_, 0) => counts.prefill_iters += 1,
                (0, _) => counts.decode_iters += 1,
                _ => counts.mixed_iters += 1,
            }
            counts.uncached += iteration.uncached.0;
            counts.decode_tokens += iteration.decoding;
        }
        counts
    }
}

impl LatencySummary {
    /// Of these latencies; `makespan` is the end of the last one.
    pub fn of(periods: &[Periods], makespan: Time, counts: &IterationCounts) -> Self {
        let mut latencies: Vec<f64> = periods.iter().map(|periods| periods.total().as_seconds()).collect();
        let part = |part: fn(&Periods) -> Nanos| mean(periods.iter().map(|one| part(one).as_seconds()));
        let decodes = counts.decode_iters + counts.mixed_iters;
        Self {
            makespan: makespan.since(Time(0)).as_seconds(),
            waiting: part(|periods| periods.waiting),
            core: part(|periods| periods.core),
            tail: part(|periods| periods.tail),
            hit: 1.0 - counts.uncached as f64 / counts.prompt.max(1) as f64,
            dbatch: counts.decode_tokens as f64 / decodes.max(1) as f64,
            ..Self::of_latencies(&mut latencies)
        }
    }

    /// The mean of several, number by number; `n` counts the relQueries of all.
    pub fn mean_of(all: &[Self]) -> Self {
        let of = |number: fn(&Self) -> f64| mean(all.iter().map(number));
        Self {
            n: all.iter().map(|one| one.n).sum(),
            mean: of(|one| one.mean),
            p50: of(|one| one.p50),
            p95: of(|one| one.p95),
            p99: of(|one| one.p99),
            max: of(|one| one.max),
            makespan: of(|one| one.makespan),
            waiting: of(|one| one.waiting),
            core: of(|one| one.core),
            tail: of(|one| one.tail),
            hit: of(|one| one.hit),
            dbatch: of(|one| one.dbatch),
        }
    }

    /// Mean and percentiles alone, of latencies in seconds, which are sorted.
    pub fn of_latencies(latencies: &mut [f64]) -> Self {
        latencies.sort_by(f64::total_cmp);
        Self {
            n: latencies.len(),
            mean: mean(latencies.iter().copied()),
            p50: percentile(latencies, 0.50),
            p95: percentile(latencies, 0.95),
            p99: percentile(latencies, 0.99),
            max: percentile(latencies, 1.0),
            ..Self::default()
        }
    }
}

/// A summary of each tenant's relQueries.
///
/// What the machine does for several at once is counted as far as it is theirs: `hit` by what their rows
/// were charged, `dbatch` by the tokens they got per step in which they got one, first tokens aside.
pub fn by_tenant(
    finished: &[(&str, Finished)],
    events: &[(Time, Event)],
) -> BTreeMap<String, LatencySummary> {
    let mut ends: BTreeMap<&str, Vec<Finished>> = BTreeMap::new();
    for (tenant, end) in finished {
        ends.entry(tenant).or_default().push(*end);
    }
    let tenants: BTreeMap<RelQueryId, &str> =
        finished.iter().map(|(tenant, end)| (end.relquery, *tenant)).collect();
    let mut decodes: BTreeMap<&str, (u64, BTreeSet<Time>)> = BTreeMap::new();
    let mut begun = BTreeSet::new();
    for (at, event) in events {
        let Event::Token { relquery, row, .. } = event else { continue };
        let Some(tenant) = tenants.get(relquery) else { continue };
        if !begun.insert((*relquery, *row)) {
            let (tokens, steps) = decodes.entry(tenant).or_default();
            *tokens += 1;
            steps.insert(*at);
        }
    }
    let summary = |(tenant, ends): (&str, Vec<Finished>)| {
        let (decode_tokens, steps) = decodes.remove(tenant).unwrap_or_default();
        let counts = IterationCounts {
            prompt: ends.iter().map(|end| end.usage.prompt.0).sum(),
            uncached: ends.iter().map(|end| end.usage.computed.0).sum(),
            decode_tokens,
            decode_iters: steps.len() as u64,
            ..IterationCounts::default()
        };
        let periods: Vec<Periods> = ends.iter().map(|end| end.periods).collect();
        let last = ends.iter().map(|end| end.at).max().unwrap_or_default();
        (tenant.to_owned(), LatencySummary::of(&periods, last, &counts))
    };
    ends.into_iter().map(summary).collect()
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len();
    if n == 0 { 0.0 } else { values.sum::<f64>() / n as f64 }
}

/// The value at position `q * (n - 1)` of a sorted list, interpolated.
fn percentile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let position = q * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_interpolate() {
        let sorted = [1.0, 2.0, 4.0];
        assert_eq!(percentile(&sorted, 0.5), 2.0);
        assert_eq!(percentile(&sorted, 0.75), 3.0);
        assert_eq!(percentile(&sorted, 1.0), 4.0);
        assert_eq!(percentile(&[], 0.5), 0.0);
    }
}
