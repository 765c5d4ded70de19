//! What constant bulk load does to the latency of interactive relQueries: the same interactive trace with and
//! without it.

use scheduler::{MarginalWorkConfig, Policy, SchedulerConfig};

use crate::paper::{Offline, Workload, generate};
use crate::replay::{SimError, replay};
use crate::replay_config::ReplayConfig;
use crate::trace::Trace;

/// Means over seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Isolation {
    /// Mean latency of interactive relQueries alone, in seconds.
    pub alone: f64,
    /// The same of the same ones beside bulk load.
    pub beside: f64,
    /// Share of the bulk relQueries that had ended when the last interactive one did.
    pub bulk: f64,
}

/// Measures policy `marginal-work` with this share of a step for bulk rows, on a machine that hides so much,
/// at so many interactive relQueries a second.
pub fn measure(share: Option<u32>, hide_permille: u64, rate: f64, seeds: u64) -> Result<Isolation, SimError> {
    let config = ReplayConfig::default();
    let marginal_work = MarginalWorkConfig { bulk_share_permille: share, ..MarginalWorkConfig::default() };
    let config = ReplayConfig {
        scheduler: SchedulerConfig { marginal_work, ..config.scheduler },
        cost: config.cost.hiding(hide_permille),
        ..config
    };
    let mut means = Isolation::default();
    for seed in 0..seeds {
        let both =
            generate(&Workload { rate, seed, offline: Some(Offline::default()), ..Workload::default() });
        let is_interactive = |tenant: &str| tenant != "offline";
        let mut alone = both.clone();
        alone.relqueries.retain(|relquery| is_interactive(&relquery.tenant));
        let (without, _, _) = latencies(&alone, &config)?;
        let (with, end, done) = latencies(&both, &config)?;
        let bulk: Vec<f64> = done.into_iter().collect();
        let early = bulk.iter().filter(|at| **at <= end).count();
        let part = 1.0 / seeds as f64;
        means.alone += part * without;
        means.beside += part * with;
        means.bulk += part * early as f64 / bulk.len().max(1) as f64;
    }
    Ok(means)
}

/// Mean latency of the interactive relQueries, the end of the last, and the ends of the others.
fn latencies(trace: &Trace, config: &ReplayConfig) -> Result<(f64, f64, Vec<f64>), SimError> {
    let ends = replay(trace, Policy::MarginalWork, config)?.t_done;
    let (mut sum, mut count, mut last, mut others) = (0.0, 0.0, 0.0_f64, Vec::new());
    for (relquery, end) in trace.relqueries.iter().zip(ends) {
        if relquery.tenant == "offline" {
            others.push(end);
            continue;
        }
        (sum, count, last) = (sum + end - relquery.arrival, count + 1.0, last.max(end));
    }
    Ok((sum / f64::max(count, 1.0), last, others))
}
