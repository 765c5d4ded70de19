//! The relQuery scheduler: a pure state machine with every policy.
//!
//! `submit` and `cancel` change what is wanted, `plan(now)` decides one model step, `apply` takes its
//! outcome in. Time is an argument; there is no clock, thread, float or hash order in here, so the
//! same calls give the same plans. It knows block numbers, not memory, and token counts, not text.
//!
//! Every formula of the RelServe paper is a function of its own:
//!
//! | equation | function |
//! | --- | --- |
//! | Eq. 2, the three periods of a latency | `RelQuery::periods` |
//! | Eq. 6-7, a priority that never changes | [`priority::static_priority`] |
//! | Eq. 8 and 12, which priorities are computed anew | `policy::relserve` |
//! | Eq. 9, the time of a batch | [`CostModel`] |
//! | Algorithm 1, the batches of what is left | [`decompose`](mod@decompose) |
//! | Eq. 10, the time of these | [`priority::estimate`] |
//! | Eq. 11, the cache miss ratio | [`miss_ratio`] |
//! | Eq. 13, when a relQuery has waited too long | [`starvation`] |
//! | Eq. 14, which candidate runs | `policy::relserve` |
//! | Eq. 15-17, the trade-off in the transitional case | [`arrange`] |
//!
//! Where a step comes from: `plan` asks the policy (a file of [`policy`], which says how to add one) to bring
//! priorities up to date and to choose, and `grant` carries the choice out. A row's priority is that of its
//! relQuery: function `priority` of the policy's file computes the number, `update` keeps it, and
//! [`priority::RelQueryKey`] is the whole key. `choose` has what choices are built from, `remaining` what
//! priorities are. [`fleet`] orders rows over several replicas, which run whole rows.

use std::collections::BTreeMap;

use base::{RelQueryId, RequestId, StepId};

mod admit;
pub mod arrange;
pub mod breakdown;
mod cache_view;
mod choice;
mod choose;
pub mod config;
pub mod cost;
pub mod decision;
pub mod decompose;
mod draft;
pub mod event;
pub mod explain;
pub mod fleet;
mod flight;
mod grant;
mod intake;
mod invariants;
mod isolation;
pub mod kv;
pub mod miss_ratio;
pub mod paper_variant;
mod pins;
mod plan;
pub mod policy;
pub mod priority;
mod queues;
mod refit;
mod relquery;
mod remaining;
mod row;
mod runs;
mod sections;
mod settle;
pub mod snapshot;
pub mod speculate;
pub mod starvation;
mod stats;
mod switch;
mod tail;
mod tenants;
mod timers;
mod trial;
pub mod truncated;
mod update;

pub use config::{ConfigError, SchedulerConfig};
pub use cost::{CostModel, FEW_SEQUENCES, Sample};
pub use decision::{Decision, Phase, Reason};
pub use event::{Event, Refused, Stats, Usage};
pub use explain::Explanation;
pub use fleet::{Fleet, FleetConfig, ReplicaConfig, ReplicaId};
pub use paper_variant::{DecompositionReading, DeltaReading, PaperVariant, PriorityReading};
pub use policy::auto::AutoConfig;
pub use policy::marginal_work::{Gain, MarginalWorkConfig, Steps};
pub use policy::{Policy, UnknownPolicy};
pub use snapshot::SchedulerSnapshot;
pub use speculate::Speculation;
pub use truncated::Truncated;

use flight::Flight;
use isolation::FaultIsolation;
use kv::{Hasher, Ledger};
use pins::Pins;
use policy::marginal_work::age::HalfLife;
use policy::marginal_work::lengths::Lengths;
use queues::Queues;
use refit::Refit;
use relquery::RelQuery;
use tail::TailBound;
use timers::Timers;

/// The scheduler of one executor.
#[derive(Clone, Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    /// Whether `auto` names the policy in force: what holds under `auto` does whichever that is.
    serves_auto: bool,
    relqueries: BTreeMap<RelQueryId, RelQuery>,
    queues: Queues,
    kv: KvState,
    estimates: Estimates,
    /// When time alone changes a relQuery's place next.
    timers: Timers,
    /// Rows of steps that failed whole.
    isolation: FaultIsolation,
    steps: StepState,
    telemetry: Telemetry,
}

/// Blocks of KV memory: which hold what, and who holds them.
#[derive(Clone, Debug)]
struct KvState {
    hasher: Hasher,
    ledger: Ledger,
    /// What is held for nobody in particular.
    pins: Pins,
}

/// What steps and rows are expected to take, as measured so far.
#[derive(Clone, Debug)]
struct Estimates {
    cost: CostModel,
    refit: Refit,
    /// Output lengths by kind of relQuery.
    lengths: Lengths,
    /// RelQueries that have come since the machine was idle; counted for policy `marginal-work` only.
    arrived: u64,
    /// How fast age counts, for the same policy.
    half_life: HalfLife,
    /// What waits longer than it may, for the same policy.
    tail: TailBound,
}

/// Steps: the next one's number, the one that is out, and what to tell with the next one.
#[derive(Clone, Debug)]
struct StepState {
    next_step: u64,
    /// The step that has been planned and not settled.
    flight: Option<Flight>,
    /// Requests that ended since the last plan.
    retired: Vec<RequestId>,
}

/// What it tells of itself; no decision reads it.
#[derive(Clone, Debug, Default)]
struct Telemetry {
    counters: Counters,
    decision: Decision,
}

/// What has been done so far; never falls.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    prompt_tokens: u64,
    prefix_hit_tokens: u64,
    output_tokens: u64,
    forced_tokens: u64,
    guessed_tokens: u64,
    accepted_tokens: u64,
    preemptions: u64,
}

impl Scheduler {
    /// An idle scheduler.
    pub fn new(config: SchedulerConfig, cost: CostModel) -> Result<Self, ConfigError> {
        let serves_auto = config.policy == Policy::Auto;
        let config = config.resolved(&cost);
        config.validate()?;
        Ok(Self {
            serves_auto,
            kv: KvState {
                hasher: Hasher::new(config.prefix_hash_key),
                ledger: Ledger::new(config.kv_blocks, config.host_kv_blocks, config.host_kv_reused_only),
                pins: Pins::default(),
            },
            estimates: Estimates {
                refit: Refit::new(&cost),
                cost,
                lengths: Lengths::default(),
                arrived: 0,
                half_life: HalfLife::default(),
                tail: TailBound::default(),
            },
            steps: StepState { next_step: 1, flight: None, retired: Vec::new() },
            config,
            relqueries: BTreeMap::new(),
            queues: Queues::default(),
            timers: Timers::default(),
            isolation: FaultIsolation::default(),
            telemetry: Telemetry::default(),
        })
    }

    /// The configuration it was made with, and the policy in force.
    pub fn config(&self) -> &SchedulerConfig {
        &self.config
    }

    /// The cost model as it stands, refitted or not.
    pub fn cost(&self) -> CostModel {
        self.estimates.cost
    }

    /// Whether a step has been planned and not settled yet.
    pub fn in_flight(&self) -> Option<StepId> {
        self.steps.flight.as_ref().map(|flight| flight.step)
    }

    /// Whose row a request of a plan is, and its number; `None` once it has ended.
    pub fn row_of(&self, request: RequestId) -> Option<(RelQueryId, u32)> {
        let (id, index) = *self.queues.requests.get(&request)?;
        Some((id, self.relqueries.get(&id)?.row(index).item.row))
    }

    /// Whether no row is held.
    pub fn is_idle(&self) -> bool {
        self.queues.rows == 0
    }

    /// Why the last step is what it is.
    pub fn last_decision(&self) -> &Decision {
        &self.telemetry.decision
    }
}

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;

#[cfg(test)]
mod tests {
    use base::Time;

    use super::common::{Memory, item, submission};
    use super::*;

    /// With a hash of two bits nearly all blocks collide: sharing suffers, answers do not.
    #[test]
    fn forced_collisions_never_mix_contents_or_scopes() {
        for policy in Policy::ALL {
            let config =
                SchedulerConfig { policy, kv_blocks: 60, block_tokens: 2, ..SchedulerConfig::default() };
            let mut scheduler = Scheduler::new(config, CostModel::default()).expect("a valid configuration");
            scheduler.kv.hasher = Hasher::truncated([1, 2], 2);
            let mut memory = Memory::new(2);
            for id in 1..=30 {
                let prompt = |row: u32| (0..9).map(|i| (id as u32 * i + row * (i / 5)) % 4).collect();
                let items: Vec<_> =
                    (0..4).map(|row| item(row, prompt(row), 6, id * 10 + u64::from(row))).collect();
                memory.know(&items);
                let scope = u128::from(id % 2);
                let taken = scheduler.submit(base::Submission { scope, ..submission(id, id, items) });
                assert_eq!(taken, Ok(()));
            }
            let mut steps = 0;
            while let Some(plan) = scheduler.plan(Time(steps)) {
                scheduler.apply(&memory.step(&plan), Time(steps));
                assert_eq!(scheduler.check_invariants(), Ok(()));
                steps += 1;
                assert!(steps < 5_000, "no end in sight");
            }
            assert!(scheduler.is_idle(), "{policy}: rows wait and nothing is planned");
        }
    }
}
