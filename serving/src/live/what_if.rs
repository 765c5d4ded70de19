//! What if: the recorded minutes once more, in virtual time, under the present policy and under others, with
//! the cost model as it is fitted now (RelServe, Eq. 9). The simulator's own world does the work; this bounds
//! it in time.

use base::Time;
use scheduler::{CostModel, Policy, SchedulerConfig};
use sim::watch::{Mark, Watcher};
use sim::{Fitted, SimError, Trace};
pub use sim::{IterationCounts, LatencySummary, Replay, policies};

use crate::clock::Clock;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum WhatIfError {
    /// It took too long.
    #[error("the replay took longer than it may")]
    TooLong,
    /// The machine cannot be replayed on.
    #[error(transparent)]
    Machine(#[from] sim::MachineError),
    /// The trace cannot be replayed.
    #[error(transparent)]
    Replay(SimError),
}

/// The machine that is imitated.
#[derive(Clone, Copy, Debug)]
pub struct ReplayMachine<'a> {
    /// Its scheduler's settings; the policy is the replay's own.
    pub limits: &'a SchedulerConfig,
    /// What its steps take.
    pub cost: CostModel,
}

/// When replays give up: the clock is read between steps.
pub struct ReplayDeadline {
    /// The clock that is read.
    pub clock: Clock,
    /// The instant.
    pub end: Time,
}

impl Watcher for ReplayDeadline {
    fn mark(&mut self, _: Mark) {}

    fn is_over(&mut self) -> bool {
        self.clock.now() >= self.end
    }
}

/// The settings of a replay that orders as a scheduler with these settings does.
pub(crate) fn like(settings: &SchedulerConfig, replay: SchedulerConfig) -> SchedulerConfig {
    SchedulerConfig {
        host_kv_reused_only: settings.host_kv_reused_only,
        sample_rows: settings.sample_rows,
        unit_waiting_ms_max: settings.unit_waiting_ms_max,
        paper_variant: settings.paper_variant,
        fairness: settings.fairness,
        auto: settings.auto.clone(),
        marginal_work: settings.marginal_work.clone(),
        ..replay
    }
}

/// Replays a trace under each policy on a machine like this one.
pub fn replay(
    trace: &Trace,
    policies: &[Policy],
    ReplayMachine { limits, cost }: ReplayMachine<'_>,
    mut deadline: ReplayDeadline,
) -> Result<Vec<Replay>, WhatIfError> {
    let mut config = Fitted::of("this server".into(), limits, cost).config()?;
    config.scheduler = like(limits, config.scheduler);
    let replays = policies.iter().map(|policy| {
        sim::replay_watched(trace, *policy, &config, &mut deadline).map_err(|error| match error {
            SimError::Stopped => WhatIfError::TooLong,
            error => WhatIfError::Replay(error),
        })
    });
    replays.collect()
}
