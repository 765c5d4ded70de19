//! Replays what the figures ask for, each setting and seed once, on all cores. Figures read the outcomes
//! only.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use sim::{LatencySummary, Replay, SimError, replay};

use crate::Error;
use crate::reproduce::setting::{Setting, TraceSize};

/// What is kept of one relQuery.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// Its latency, s.
    pub latency: f64,
    /// First prefill to the end of the last, s.
    pub core: f64,
    /// End of the last prefill to the end, s.
    pub tail: f64,
    /// Prompt tokens.
    pub prompt: f64,
    /// Of those, from the prefix cache.
    pub cached: f64,
    /// Output tokens.
    pub output: f64,
    /// Of those, after its last prefill.
    pub output_in_tail: f64,
}

/// How much of a relQuery that runs is still to do when another one arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Remaining {
    /// Its place in the trace.
    pub relquery: usize,
    /// Its share of work left, as the static priority weighs tokens (RelServe, Eq. 6).
    pub work: f64,
    /// Its share of prompt and output tokens left.
    pub tokens: f64,
    /// Whether the arrival is the first after its own start.
    pub is_first: bool,
}

/// What is kept of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayOutcome {
    pub summary: LatencySummary,
    /// Its relQueries, in the order of arrival.
    pub served: Vec<Served>,
    /// What was left of what ran at each arrival.
    pub remaining: Vec<Remaining>,
}

impl ReplayOutcome {
    fn of(case: &Setting, replay: &Replay) -> Self {
        let served = replay.progress.iter().map(|progress| {
            let (_, by_then) = progress.done_by(progress.prefilled());
            Served {
                latency: progress.periods.total().as_seconds(),
                core: progress.periods.core.as_seconds(),
                tail: progress.periods.tail.as_seconds(),
                prompt: progress.usage.prompt.0 as f64,
                cached: progress.usage.cached.0 as f64,
                output: progress.usage.output.0 as f64,
                output_in_tail: progress.usage.output.0.saturating_sub(by_then.0) as f64,
            }
        });
        Self { summary: replay.summary, served: served.collect(), remaining: remaining(case, replay) }
    }
}

/// What is left of each relQuery that runs when another arrives.
fn remaining(case: &Setting, replay: &Replay) -> Vec<Remaining> {
    let cost = case.config().cost;
    let prompt_weight = cost.prefill_per_token.as_seconds();
    // Eq. 6 as this project reads it: a decode step is shared by 64 rows.
    let output_weight = cost.decode_per_sequence.as_seconds() + cost.decode_base.as_seconds() / 64.0;
    let mut found = Vec::new();
    for (relquery, progress) in replay.progress.iter().enumerate() {
        let arrivals = replay.progress.iter().map(|other| other.arrival);
        let while_running = arrivals.filter(|at| progress.started() < *at && *at < progress.ended());
        for (nth, at) in while_running.enumerate() {
            let (prompt, output) = progress.done_by(at);
            let left = |prompt_weight: f64, output_weight: f64| {
                let done = prompt.0 as f64 * prompt_weight + output.0 as f64 * output_weight;
                let (prompt, output) = (progress.usage.prompt.0 as f64, progress.usage.output.0 as f64);
                1.0 - done / (prompt * prompt_weight + output * output_weight).max(f64::MIN_POSITIVE)
            };
            let (work, tokens) = (left(prompt_weight, output_weight), left(1.0, 1.0));
            found.push(Remaining { relquery, work, tokens, is_first: nth == 0 });
        }
    }
    found
}

/// The outcomes of all settings and seeds.
#[derive(Clone, Debug, Default)]
pub struct Results {
    seeds: u64,
    outcomes: HashMap<(Setting, u64), ReplayOutcome>,
}

impl Results {
    /// Replays each of `cases` (once, however often it is named) with seeds `1..=seeds`.
    pub fn of(cases: &[Setting], seeds: u64, size: TraceSize) -> Result<Self, Error> {
        let mut known = HashSet::new();
        let wanted: Vec<(Setting, u64)> = cases
            .iter()
            .filter(|case| known.insert(**case))
            .flat_map(|case| (1..=seeds).map(|seed| (*case, seed)))
            .collect();
        let next = AtomicUsize::new(0);
        let outcomes = Mutex::new(HashMap::new());
        let failed = Mutex::new(None);
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let work = || {
            while let Some((case, seed)) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                match once(case, *seed, size) {
                    Ok(outcome) => lock(&outcomes).insert((*case, *seed), outcome),
                    Err(error) => {
                        lock(&failed).get_or_insert(error);
                        return;
                    }
                };
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(Error::Simulation(error.to_string())),
            None => {
                Ok(Self { seeds, outcomes: outcomes.into_inner().unwrap_or_else(PoisonError::into_inner) })
            }
        }
    }

    /// How many replays there are.
    pub fn len(&self) -> usize {
        self.outcomes.len()
    }

    /// Whether nothing was asked for.
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// The outcomes of a setting, one per seed.
    ///
    /// # Panics
    ///
    /// Where a figure draws what it has not asked for: a defect of the figure.
    pub fn seeds<'a>(&'a self, case: &'a Setting) -> impl Iterator<Item = &'a ReplayOutcome> {
        (1..=self.seeds).map(|seed| &self.outcomes[&(*case, seed)])
    }

    /// The mean of something over the seeds, as in the paper.
    pub fn mean(&self, case: &Setting, what: impl Fn(&ReplayOutcome) -> f64) -> f64 {
        mean(self.seeds(case).map(what))
    }

    /// The mean latency over the seeds, s.
    pub fn latency(&self, case: &Setting) -> f64 {
        self.mean(case, |outcome| outcome.summary.mean)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn once(case: &Setting, seed: u64, size: TraceSize) -> Result<ReplayOutcome, SimError> {
    let replay = replay(&case.trace(size, seed), case.line.policy, &case.config())?;
    Ok(ReplayOutcome::of(case, &replay))
}

/// The mean; zero of nothing.
pub fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, n) = values.into_iter().fold((0.0, 0.0), |(sum, n), value| (sum + value, n + 1.0));
    if n == 0.0 { 0.0 } else { sum / n }
}
