//! One trace under one policy.

pub mod auto;

use std::collections::BTreeMap;

use auto::Switch;
use base::{RelQueryId, Time};
use scheduler::{ConfigError, Event, Policy, Refused, Scheduler, SchedulerConfig};
use serde::Serialize;

use crate::executor::SimExecutor;
use crate::faults::{FaultError, FaultPlan, UserAction};
use crate::progress::{ProgressTracker, RelQueryProgress};
use crate::record::Iteration;
use crate::replay_config::ReplayConfig;
use crate::summary::{IterationCounts, LatencySummary, by_tenant};
use crate::trace::{Lowered, Trace, TraceError};
use crate::watch::{Unwatched, Watcher};
use crate::world::World;

/// Why a replay gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The trace cannot be used.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The faults cannot be used with the trace.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A relQuery was not taken.
    #[error("relQuery {relquery} was refused: {reason}")]
    Refused { relquery: RelQueryId, reason: Refused },
    /// The scheduler broke a promise.
    #[error("the scheduler broke a promise: {0}")]
    Broken(String),
    /// The watcher had enough.
    #[error("the replay was stopped")]
    Stopped,
}

/// What a replay came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replay {
    pub policy: Policy,
    /// Latencies of the relQueries that were not called off.
    pub summary: LatencySummary,
    /// The same for each tenant, by name.
    pub tenants: BTreeMap<String, LatencySummary>,
    pub counts: IterationCounts,
    /// End of each relQuery in seconds, in file order; of one that was called off, when that was.
    pub t_done: Vec<f64>,
    /// Those that were called off.
    pub cancelled: Vec<RelQueryId>,
    pub failed_rows: u64,
    /// Changes of policy, under `auto`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<Switch>,
    /// The steps.
    #[serde(skip)]
    pub iterations: Vec<Iteration>,
    /// How each relQuery went, in file order.
    #[serde(skip)]
    pub progress: Vec<RelQueryProgress>,
}

/// Replays a trace under a policy.
pub fn replay(trace: &Trace, policy: Policy, config: &ReplayConfig) -> Result<Replay, SimError> {
    replay_watched(trace, policy, config, &mut Unwatched)
}

/// [`replay`] before a watcher.
pub fn replay_watched(
    trace: &Trace,
    policy: Policy,
    config: &ReplayConfig,
    watch: &mut dyn Watcher,
) -> Result<Replay, SimError> {
    replay_with_faults(trace, policy, config, &FaultPlan::default(), watch)
}

/// Iterations list their relQueries up to this many of them; beyond, the lists say little and weigh much.
const LISTED_MAX: usize = 20;

/// [`replay_watched`] while things go wrong.
pub fn replay_with_faults(
    trace: &Trace,
    policy: Policy,
    config: &ReplayConfig,
    faults: &FaultPlan,
    watch: &mut dyn Watcher,
) -> Result<Replay, SimError> {
    faults.check(trace)?;
    let (lowered, actions) = faults.lower(trace)?;
    let mut world = world(&lowered, policy, config)?;
    world.set_faults(faults.step_faults());
    if trace.relqueries.len() <= LISTED_MAX {
        world.list_members();
    }
    let ids: Vec<RelQueryId> = lowered.submissions.iter().map(|submission| submission.id).collect();
    let late = actions.iter().filter_map(|(_, action)| match action {
        UserAction::Extend(id, items) => Some((*id, items.as_slice())),
        UserAction::Cancel(_) | UserAction::CancelRow(..) => None,
    });
    let progress = ProgressTracker::of(&lowered.submissions).and(late);
    for submission in lowered.submissions {
        world.submit(submission);
    }
    for (at, action) in actions {
        match action {
            UserAction::Cancel(id) => world.cancel_at(at, id),
            UserAction::CancelRow(id, row) => world.cancel_row_at(at, id, row),
            UserAction::Extend(id, items) => world.extend_at(at, id, items),
        }
    }
    let switches = match policy {
        Policy::Auto => auto::run(&mut world, trace, config, watch)?,
        _ => {
            world.run_watched(watch).map_err(SimError::Broken)?;
            Vec::new()
        }
    };
    if world.is_stopped() {
        return Err(SimError::Stopped);
    }
    let tenants: Vec<&str> = trace.relqueries.iter().map(|relquery| relquery.tenant.as_str()).collect();
    Ok(Replay { switches, ..outcome(&ids, &tenants, policy, &world, progress)? })
}

/// The latency of each relQuery alone, in seconds, in file order; nothing else of the replay is kept.
pub fn replay_latencies(
    trace: &Trace,
    policy: Policy,
    config: &ReplayConfig,
    watch: &mut dyn Watcher,
) -> Result<Vec<f64>, SimError> {
    let lowered = trace.lower()?;
    let mut world = world(&lowered, policy, config)?;
    world.keep_ends_alone();
    let begun: Vec<(RelQueryId, Time)> =
        lowered.submissions.iter().map(|submission| (submission.id, submission.arrival)).collect();
    for submission in lowered.submissions {
        world.submit(submission);
    }
    world.run_watched(watch).map_err(SimError::Broken)?;
    if world.is_stopped() {
        return Err(SimError::Stopped);
    }
    if let Some((relquery, reason)) = world.refused().first().cloned() {
        return Err(SimError::Refused { relquery, reason });
    }
    let latency = |(id, arrival): &(RelQueryId, Time)| {
        let end = world.finished().get(id).map(|end| end.at.since(*arrival).as_seconds());
        end.ok_or_else(|| SimError::Broken(format!("relQuery {id} never ended")))
    };
    begun.iter().map(latency).collect()
}

/// Replays submissions that come from elsewhere than a trace, all of one tenant.
pub fn replay_lowered(lowered: Lowered, policy: Policy, config: &ReplayConfig) -> Result<Replay, SimError> {
    let mut world = world(&lowered, policy, config)?;
    let ids: Vec<RelQueryId> = lowered.submissions.iter().map(|submission| submission.id).collect();
    let progress = ProgressTracker::of(&lowered.submissions);
    for submission in lowered.submissions {
        world.submit(submission);
    }
    world.run_until_idle().map_err(SimError::Broken)?;
    outcome(&ids, &vec!["all"; ids.len()], policy, &world, progress)
}

/// A world at rest whose executor knows the rows' true lengths.
fn world(lowered: &Lowered, policy: Policy, config: &ReplayConfig) -> Result<World<SimExecutor>, SimError> {
    let settings = SchedulerConfig { policy, ..config.scheduler.clone() };
    let mut executor = SimExecutor::new(config.cost);
    // Nobody reads a trace's texts.
    executor.mute();
    executor.set_move(config.move_per_token * u64::from(settings.block_tokens));
    executor.set_outputs(lowered);
    Ok(World::new(Scheduler::new(settings, config.cost)?, executor))
}

/// What a world that has come to rest came to, for relQueries and the tenants whose they are.
fn outcome(
    ids: &[RelQueryId],
    tenants: &[&str],
    policy: Policy,
    world: &World<SimExecutor>,
    progress: ProgressTracker,
) -> Result<Replay, SimError> {
    // Rows that come too late for their relQuery are nobody's fault.
    let refused = world.refused().iter().find(|(_, reason)| !matches!(reason, Refused::Unknown(_)));
    if let Some((relquery, reason)) = refused.cloned() {
        return Err(SimError::Refused { relquery, reason });
    }
    let (mut finished, mut t_done, mut cancelled) = (Vec::new(), Vec::new(), Vec::new());
    for (id, tenant) in ids.iter().zip(tenants) {
        let end = if let Some(end) = world.finished().get(id) {
            finished.push((*tenant, *end));
            end.at
        } else if let Some(at) = world.cancelled().get(id) {
            cancelled.push(*id);
            *at
        } else {
            return Err(SimError::Broken(format!("relQuery {id} never ended")));
        };
        t_done.push(end.0 as f64 / 1e9);
    }
    let stats = world.scheduler.stats();
    let counts = IterationCounts::of(world.iterations(), stats.prompt_tokens, stats.preemptions);
    let last = finished.iter().map(|(_, end)| end.at).max().unwrap_or_default();
    let periods: Vec<_> = finished.iter().map(|(_, end)| end.periods).collect();
    let failed = world.events().iter().filter(|(_, event)| matches!(event, Event::RowFailed { .. }));
    Ok(Replay {
        policy,
        summary: LatencySummary::of(&periods, last, &counts),
        tenants: by_tenant(&finished, world.events()),
        counts,
        t_done,
        cancelled,
        failed_rows: failed.count() as u64,
        switches: Vec::new(),
        iterations: world.iterations().to_vec(),
        progress: progress.follow(world.events(), world.finished()),
    })
}
