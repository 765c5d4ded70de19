//! When a relQuery that has a machine for itself shows its first row, and when its last, with and without
//! `first_rows_permille`.

use scheduler::{MarginalWorkConfig, Policy, SchedulerConfig};

use crate::replay::{SimError, replay};
use crate::replay_config::ReplayConfig;
use crate::trace::{Trace, TraceRelQuery, TraceTemplate};

/// When rows of a relQuery end, in seconds after its arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowEnds {
    /// The first.
    pub first: f64,
    /// The last.
    pub last: f64,
}

/// One relQuery of so many rows of 200 prompt tokens, 40 of them its template's, and `output` output tokens.
pub fn alone(rows: usize, output: u64) -> Trace {
    of_rows(40, std::iter::repeat_n(160, rows), output)
}

/// The relQuery of the race (loadgen/scenarios/race.toml): 50 rows of 60 to 100 tokens beside 150 of its template, and 10
/// output tokens.
pub fn race() -> Trace {
    of_rows(150, (0..50).map(|row| 60 + row * 17 % 41), 10)
}

/// One relQuery whose rows have so many tokens beside those of their template.
fn of_rows(template: u64, own: impl Iterator<Item = i64>, output: u64) -> Trace {
    let relquery = TraceRelQuery {
        rel_id: 0,
        tenant: "one".into(),
        ol: output,
        rows: own.map(|own| [-1, own, output as i64]).collect(),
        ..TraceRelQuery::default()
    };
    Trace {
        schema: "relserve-trace/1".into(),
        name: "alone".into(),
        templates: vec![TraceTemplate { id: 0, tokens: template }],
        relqueries: vec![relquery],
        ..Trace::default()
    }
}

/// Replays it under `marginal-work`, whose last row may end so many thousandths later.
pub fn measure(trace: &Trace, config: &ReplayConfig, permille: u32) -> Result<RowEnds, SimError> {
    measure_under(Policy::MarginalWork, trace, config, permille)
}

/// The same under another policy.
pub fn measure_under(
    policy: Policy,
    trace: &Trace,
    config: &ReplayConfig,
    permille: u32,
) -> Result<RowEnds, SimError> {
    let marginal_work =
        MarginalWorkConfig { first_rows_permille: permille, ..config.scheduler.marginal_work.clone() };
    let scheduler = SchedulerConfig { marginal_work, ..config.scheduler.clone() };
    let replay = replay(trace, policy, &ReplayConfig { scheduler, ..config.clone() })?;
    let ended = replay.progress.first();
    let first = ended.and_then(|one| one.first_row()).unwrap_or_default();
    Ok(RowEnds { first: first.0 as f64 / 1e9, last: replay.summary.makespan })
}
