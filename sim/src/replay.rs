//! One trace under one policy.

use base::{RelQueryId, TokenCount};
use scheduler::{ConfigError, CostModel, Policy, Scheduler, SchedulerConfig};
use serde::Serialize;

use crate::course::{Course, Courses};
use crate::executor::SimExecutor;
use crate::summary::{Counts, Iteration, Summary};
use crate::trace::{Trace, TraceError};
use crate::watch::{Unwatched, Watch};
use crate::world::World;

/// Why a replay gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The trace cannot be used.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A relQuery was not taken.
    #[error("relQuery {relquery} was refused: {reason}")]
    Refused {
        /// The relQuery.
        relquery: RelQueryId,
        /// Why.
        reason: scheduler::Refused,
    },
    /// The scheduler broke a promise.
    #[error("the scheduler broke a promise: {0}")]
    Broken(String),
}

/// The machine a trace is replayed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayConfig {
    /// Limits; the policy in it is replaced by the replay's.
    pub scheduler: SchedulerConfig,
    /// How fast the machine is; the scheduler knows it exactly.
    pub cost: CostModel,
}

impl Default for ReplayConfig {
    /// The machine of the reference traces: OPT-13B on one A100-40GB, 10,000 tokens of memory counted
    /// token by token.
    fn default() -> Self {
        let scheduler = SchedulerConfig {
            step_tokens_max: TokenCount(2_048),
            sequences_max: 256,
            kv_blocks: 10_000,
            block_tokens: 1,
            watermark_permille: 10,
            rows_max: u32::MAX,
            relqueries_max: u32::MAX,
            publish_generated: false,
            refit: false,
            ..SchedulerConfig::default()
        };
        Self { scheduler, cost: CostModel::default() }
    }
}

/// What a replay came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replay {
    /// The policy.
    pub policy: Policy,
    /// Latencies.
    pub summary: Summary,
    /// Counts.
    pub counts: Counts,
    /// End of each relQuery in seconds, in file order.
    pub t_done: Vec<f64>,
    /// The steps.
    #[serde(skip)]
    pub iterations: Vec<Iteration>,
    /// How each relQuery went, in file order.
    #[serde(skip)]
    pub courses: Vec<Course>,
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
    watch: &mut dyn Watch,
) -> Result<Replay, SimError> {
    let lowered = trace.lower()?;
    let settings = SchedulerConfig { policy, ..config.scheduler.clone() };
    let mut executor = SimExecutor::new(config.cost);
    for (seed, length) in lowered.lengths {
        executor.set_length(seed, length);
    }
    let mut world = World::new(Scheduler::new(settings, config.cost)?, executor);
    let ids: Vec<RelQueryId> = lowered.submissions.iter().map(|submission| submission.id).collect();
    let courses = Courses::of(&lowered.submissions);
    for submission in lowered.submissions {
        world.submit(submission);
    }
    world.run_watched(watch).map_err(SimError::Broken)?;
    if let Some((relquery, reason)) = world.refused().first().cloned() {
        return Err(SimError::Refused { relquery, reason });
    }
    let lost = |id| SimError::Broken(format!("relQuery {id} never ended"));
    let (mut periods, mut t_done) = (Vec::new(), Vec::new());
    for id in ids {
        let finished = world.finished().get(&id).ok_or_else(|| lost(id))?;
        periods.push(finished.periods);
        t_done.push(finished.at.0 as f64 / 1e9);
    }
    let stats = world.scheduler.stats();
    let counts = Counts::of(world.iterations(), stats.prompt_tokens, stats.preemptions);
    let summary = Summary::of(&periods, world.now(), &counts);
    let courses = courses.follow(world.events(), world.finished());
    Ok(Replay { policy, summary, counts, t_done, iterations: world.iterations().to_vec(), courses })
}
