//! What if: the recorded minutes once more, in virtual time, under the present policy and under others, with
//! the cost model as it is fitted now (RelServe, Eq. 9). The simulator's own world does the work; this bounds
//! it in time.

use base::{Nanos, Periods, Time, TokenCount};
use scheduler::fleet::{PromptScale, ReplicaConfig};
use scheduler::{FleetConfig, Policy, SchedulerConfig, Speculation};
use sim::auto::Judge;
use sim::fleet::{FleetMachine, ReportedKv, replay_fleet};
use sim::watch::{Mark, Watcher};
use sim::{Fitted, MachineError, Replay, SimError, Trace};
pub use sim::{IterationCounts, LatencySummary, TraceRelQuery, policies};

use super::pace::Pace;
use crate::clock::Clock;
use crate::replicas::ReplicaView;
use crate::view::View;

/// Tokens of a step of the replicas that are imitated: what vLLM computes at once where nothing else is said.
const REPLICA_STEP_TOKENS: u64 = 2_048;
/// Positions of their blocks, of which they are taken to have enough: nobody knows how many.
const REPLICA_BLOCK_TOKENS: u32 = 16;
/// Blocks that they have for a row: 16,384 tokens.
const REPLICA_BLOCKS_PER_ROW: u32 = 1_024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum WhatIfError {
    /// It took too long.
    #[error("the replay took longer than it may")]
    TooLong,
    /// There is nothing to imitate.
    #[error("no replica is in service")]
    NoReplica,
    /// The machine cannot be replayed on.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The trace cannot be replayed.
    #[error(transparent)]
    Replay(SimError),
}

/// The server as the simulator needs it.
#[derive(Clone, Debug)]
pub struct ReplayMachine {
    /// Limits and settings, with the sizes of the model's memory; the policy is the replay's own.
    pub limits: SchedulerConfig,
    /// The settings of a fleet, where rows run on replicas.
    pub fleet: Option<FleetConfig>,
}

impl ReplayMachine {
    /// With the costs as they are fitted now, at the pace of the steps that were measured (a fleet tells none), and as
    /// many replicas as are in service; `None` where there is none.
    pub fn judge(&self, view: &View, pace: Pace) -> Result<Option<Judge>, MachineError> {
        let Some(fleet) = &self.fleet else {
            let cost = view.cost.paced(pace.measured, pace.modelled);
            let mut config = Fitted::of("this server".into(), &self.limits, cost).config()?;
            config.scheduler = like(&self.limits, config.scheduler);
            return Ok(Some(Judge::Engine(Box::new(config))));
        };
        let up = view.replicas.iter().filter(|replica| replica.is_up);
        let Some(rows_max) = up.clone().map(|replica| usable(replica).rows_max).max() else {
            return Ok(None);
        };
        let tokens_max = up.clone().map(|replica| usable(replica).tokens_max);
        let tokens_max = tokens_max.reduce(|one, other| Some(one?.max(other?))).flatten();
        // What bounds rows together where not all are configured: what is known of each, if it is of all.
        let known =
            up.clone().map(memory).collect::<Option<Vec<ReportedKv>>>().filter(|_| tokens_max.is_none());
        let reported = known.into_iter().flatten().max_by_key(|memory| memory.tokens);
        // Of their own schedulers' memory: enough for long rows, and little enough to keep books of.
        let queue = SchedulerConfig {
            kv_blocks: REPLICA_BLOCKS_PER_ROW.saturating_mul(rows_max.clamp(64, 4_096)),
            block_tokens: REPLICA_BLOCK_TOKENS,
            host_kv_blocks: 0,
            ..self.limits.clone()
        };
        let inner = SchedulerConfig {
            policy: Policy::Sarathi,
            fairness: Some(false),
            chunk_tokens: TokenCount(REPLICA_STEP_TOKENS.max(u64::from(rows_max) + 1)),
            sequences_max: rows_max,
            // Tokens of traces are made up; what right guesses save is in the fitted cost.
            speculation: Speculation::Off,
            ..queue.clone()
        };
        Ok(Some(Judge::Fleet(Box::new(FleetMachine {
            replicas: u32::try_from(up.count()).unwrap_or(u32::MAX),
            replica: ReplicaConfig { rows_max, tokens_max },
            reported,
            inner,
            cost: view.cost,
            transport: Nanos(0),
            fleet: fleet.clone(),
            queue,
        }))))
    }
}

/// What this gateway has of a replica: all of it, or where others use it too its even part, or more where it has more
/// now. What others run there is in the fitted cost.
fn usable(replica: &ReplicaView) -> ReplicaConfig {
    let all = ReplicaConfig { rows_max: replica.rows_max, tokens_max: replica.tokens_max };
    let Some(lease) = replica.lease else { return all };
    let gateways = lease.gateways.max(1);
    let tokens = |all: TokenCount| {
        let part = TokenCount(all.0 / u64::from(gateways));
        lease.tokens.unwrap_or_default().max(part).min(all)
    };
    ReplicaConfig {
        rows_max: lease.rows.max(all.rows_max / gateways).clamp(1, all.rows_max.max(1)),
        tokens_max: all.tokens_max.map(tokens),
    }
}

/// What this gateway has of a replica's KV memory: what is configured, else of what it reports the part that its rows
/// are, as the queue counts it. None where nobody says.
fn memory(replica: &ReplicaView) -> Option<ReportedKv> {
    let part = usable(replica);
    if let Some(tokens) = part.tokens_max {
        return Some(ReportedKv { tokens, scale: PromptScale::default() });
    }
    let all = u128::from(replica.kv_reported?.0);
    let tokens = all * u128::from(part.rows_max) / u128::from(replica.rows_max.max(1));
    let tokens = TokenCount(u64::try_from(tokens).unwrap_or(u64::MAX));
    Some(ReportedKv { tokens, scale: replica.prompt_scale })
}

/// What a policy would have made of them.
#[derive(Clone, Debug)]
pub struct PolicyReplay {
    pub policy: Policy,
    /// The latency of each relQuery in three parts, in the trace's order.
    pub periods: Vec<Periods>,
    /// Share of prompt tokens that the prefix cache supplied.
    pub hit: f64,
    /// Steps of the engine, or of all replicas together.
    pub steps: u64,
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
    judge: &Judge,
    mut deadline: ReplayDeadline,
) -> Result<Vec<PolicyReplay>, WhatIfError> {
    let one = |policy: &Policy| match judge {
        Judge::Engine(config) => {
            let Replay { policy, summary, counts, progress, .. } =
                sim::replay_watched(trace, *policy, config, &mut deadline)?;
            let periods = progress.iter().map(|one| one.periods).collect();
            Ok(PolicyReplay { policy, periods, hit: summary.hit, steps: counts.iters })
        }
        Judge::Fleet(machine) => {
            let replay = replay_fleet(trace, *policy, machine, &mut deadline)?;
            let (periods, hit) = (replay.periods, replay.summary.hit);
            Ok(PolicyReplay { policy: *policy, periods, hit, steps: replay.steps })
        }
    };
    let failed = |error| match error {
        SimError::Stopped => WhatIfError::TooLong,
        error => WhatIfError::Replay(error),
    };
    policies.iter().map(one).collect::<Result<_, _>>().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicas::{LeaseView, ReplicaSource};

    fn replica(is_up: bool, rows_max: u32, tokens_max: Option<u64>) -> ReplicaView {
        ReplicaView {
            name: "a".into(),
            source: ReplicaSource::Config,
            is_local: false,
            is_up,
            state: "up",
            breaker: "closed",
            rows: 0,
            rows_max,
            tokens: TokenCount(0),
            tokens_max: tokens_max.map(TokenCount),
            kv_reported: None,
            prompt_scale: PromptScale::default(),
            cost: None,
            lease: None,
            gateways: Default::default(),
            last_error: None,
        }
    }

    #[test]
    fn of_a_replica_that_others_use_too_the_part_counts_that_there_is_here() {
        let leased = |rows, tokens: Option<u64>| {
            let lease = LeaseView { rows, tokens: tokens.map(TokenCount), gateways: 4, is_held: true };
            let ReplicaConfig { rows_max, tokens_max } =
                usable(&ReplicaView { lease: Some(lease), ..replica(true, 64, Some(8_000)) });
            (rows_max, tokens_max.map(|tokens| tokens.0))
        };
        assert_eq!(leased(1, Some(100)), (16, Some(2_000)), "it had little to do: its even part");
        assert_eq!(leased(40, Some(5_000)), (40, Some(5_000)), "the others have little to do");
        assert_eq!(leased(90, None), (64, Some(2_000)));
        let new = LeaseView { rows: 0, tokens: None, gateways: 0, is_held: true };
        assert_eq!(usable(&ReplicaView { lease: Some(new), ..replica(true, 64, None) }).rows_max, 64);
    }

    #[test]
    fn replicas_are_imitated_with_the_limits_of_the_largest_that_is_up() {
        let machine =
            ReplayMachine { limits: SchedulerConfig::default(), fleet: Some(FleetConfig::default()) };
        let imitated = |replicas: Vec<ReplicaView>| {
            let view = View { replicas, ..View::default() };
            match machine.judge(&view, Pace::default()).expect("a machine") {
                Some(Judge::Fleet(fleet)) => Some((fleet.replicas, fleet.replica)),
                Some(Judge::Engine(_)) | None => None,
            }
        };
        let (small, large) = (replica(true, 8, Some(900)), replica(true, 4, Some(2_000)));
        let size =
            |tokens_max: Option<u64>| ReplicaConfig { rows_max: 8, tokens_max: tokens_max.map(TokenCount) };
        let both = imitated(vec![small.clone(), large, replica(false, 99, None)]);
        assert_eq!(both, Some((2, size(Some(2_000)))));
        assert_eq!(imitated(vec![small, replica(true, 4, None)]), Some((2, size(None))));
        assert_eq!(imitated(vec![replica(false, 9, None)]), None);
    }

    #[test]
    fn what_replicas_report_of_their_memory_is_imitated_where_nothing_is_configured() {
        let machine =
            ReplayMachine { limits: SchedulerConfig::default(), fleet: Some(FleetConfig::default()) };
        let imitated = |replicas: Vec<ReplicaView>| {
            let view = View { replicas, ..View::default() };
            match machine.judge(&view, Pace::default()).expect("a machine") {
                Some(Judge::Fleet(fleet)) => {
                    assert_eq!(fleet.inner.speculation, Speculation::Off, "tokens of traces are made up");
                    fleet.reported
                }
                Some(Judge::Engine(_)) | None => panic!("replicas are up"),
            }
        };
        let scale = PromptScale::of(4, 1);
        let reports = |tokens: u64| ReplicaView {
            kv_reported: Some(TokenCount(tokens)),
            prompt_scale: scale,
            ..replica(true, 8, None)
        };
        let kv = |tokens, scale| Some(ReportedKv { tokens: TokenCount(tokens), scale });
        assert_eq!(imitated(vec![reports(500), reports(900)]), kv(900, scale), "the largest");
        assert_eq!(imitated(vec![reports(500), replica(true, 8, None)]), None, "one has no limit");
        let configured = || replica(true, 8, Some(2_000));
        assert_eq!(imitated(vec![reports(500), configured()]), kv(2_000, PromptScale::default()));
        assert_eq!(imitated(vec![configured(), configured()]), None, "that is the limit of each row too");
        let lease = LeaseView { rows: 2, tokens: None, gateways: 4, is_held: true };
        let shared = ReplicaView { lease: Some(lease), ..reports(800) };
        assert_eq!(imitated(vec![shared]), kv(200, scale), "the part that there is here");
        let both = ReplicaView { tokens_max: Some(TokenCount(70)), ..reports(800) };
        assert_eq!(imitated(vec![both]), None, "what is configured counts before what is reported");
    }
}
