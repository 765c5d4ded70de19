//! A fleet: relQueries' rows over several replicas, each of which runs whole rows (an OpenAI-compatible
//! server, or an engine of ours behind its own [`crate::Scheduler`]).
//!
//! The queue stays here, where it can be re-ranked; a replica is given what it can run and nothing more. A
//! pure state machine as the scheduler is: no clock, the same calls give the same answers, integers but for the
//! fit of costs. It never knows how a replica is reached.
//!
//! ```text
//! add_replica, submit, extend          what there is to do, and who does it
//! dispatch(now) -> rows to send        after every call below, too
//! text, finished, failed -> events     what replicas report, by request
//! cancel, cancel_row, set_health(Down) -> requests to abort; reports of these are ignored from then on
//! drain_events(now) -> events          after `dispatch`, `cancel_row` and `set_health`
//! demand, set_share                    where several gateways share the replicas
//! ```

mod aside;
mod cache_reports;
pub mod config;
mod cost_fit;
mod demand;
mod departed;
mod dispatch;
pub mod division;
mod hold;
mod in_flight;
mod intake;
mod prefixes;
mod priority;
mod prompt_scale;
mod query;
mod router;
mod row_group;
mod rows_at;
mod settle;
mod stats;

use std::collections::{BTreeMap, BTreeSet};

use base::{RelQueryId, RequestId, Time};

pub use config::{FleetConfig, Health, LeaseConfig, ReplicaConfig, ReplicaId};
pub use demand::ReplicaDemand;
pub use departed::Departed;
pub use dispatch::{Dispatch, Why};
pub use division::{Load, QueueStretch, ReplicaShare};
pub use prompt_scale::PromptScale;
pub use settle::{Failure, Finish, MARKUP_TOKENS_MAX};
pub use stats::{FleetDecision, FleetStats, ReplicaStats};

use crate::config::{ConfigError, SchedulerConfig};
use crate::cost::CostModel;
use crate::event::Event;
use crate::kv::{BlockKey, Hasher};
use crate::policy::marginal_work::lengths::Lengths;
use crate::priority::RelQueryKey;
use crate::tail::TailBound;
use crate::tenants::Tenants;
use crate::timers::Timers;
use aside::Aside;
use cache_reports::CacheReports;
use cost_fit::SentAt;
use query::Query;
use router::Router;

/// A row in flight.
#[derive(Clone, Copy, Debug)]
struct Flying {
    relquery: RelQueryId,
    row: u32,
    replica: ReplicaId,
    /// What it adds to the replica's load.
    tokens: u64,
    /// What it adds to what its memory holds, in the replica's own tokens.
    memory: u64,
    /// Leading prompt tokens that the replica was sent before.
    seen: u64,
    /// What it is alike by.
    group: BlockKey,
    /// Rows that the replica had answered when it was sent.
    answered_before: u64,
    /// What the replica's clock of work showed then.
    sent_at: SentAt,
    /// Whether text of it has gone out.
    has_begun: bool,
}

/// What has been done so far; never falls.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    prompt_tokens: u64,
    cached_tokens: u64,
    output_tokens: u64,
    rows_seen: u64,
    rows_fresh: u64,
    rows_shared: u64,
    seen_tokens: u64,
    retries: u64,
    answered: u64,
}

/// The queue before a set of replicas, and the router to them.
#[derive(Clone, Debug)]
pub struct Fleet {
    config: FleetConfig,
    /// The policy and its settings.
    pub(crate) scheduler: SchedulerConfig,
    /// What a replica's steps cost, as fitted so far, and what was thought at the start.
    pub(crate) cost: CostModel,
    prior: CostModel,
    /// What replies say of caches, and the thousandths of what is remembered that count as kept.
    caches: CacheReports,
    kept_permille: u64,
    hasher: Hasher,
    router: Router,
    /// Boxed: the map moves its values as others come and go, and these are large.
    pub(crate) queries: BTreeMap<RelQueryId, Box<Query>>,
    requests: BTreeMap<RequestId, Flying>,
    /// RelQueries with waiting rows.
    waiting: BTreeSet<RelQueryKey>,
    /// Rows that no replica in service can hold, by the time at which they fail.
    aside: BTreeSet<Aside>,
    /// Whether a replica may hold some of them by now.
    may_readmit: bool,
    /// RelQueries whose waiting rows are all among them.
    only_aside: BTreeSet<RelQueryId>,
    /// What replicas could hold that have left.
    departed: Departed,
    /// Their tenants' shares, in the time of a machine.
    tenants: Tenants,
    lengths: Lengths,
    /// What waits longer than it may.
    pub(crate) tail: TailBound,
    /// When relQueries rise to the first class, or starve.
    timers: Timers,
    /// When rows that wait for those that run go in any case, if nothing happens before.
    held_until: Option<Time>,
    /// When rows that were taken back may be sent again.
    retries: BTreeSet<Time>,
    next_request: u64,
    /// RelQueries that came since it was last idle.
    arrived: u64,
    /// Rows held.
    rows: usize,
    /// Events that no call has returned yet, and relQueries that may be done.
    pending: Vec<Event>,
    emptied: Vec<RelQueryId>,
    counters: Counters,
    decision: FleetDecision,
}

impl Fleet {
    /// A fleet at rest, which orders relQueries as `scheduler` says. Replicas may be added and removed later.
    pub fn new(
        config: FleetConfig,
        scheduler: SchedulerConfig,
        replicas: impl IntoIterator<Item = (ReplicaId, ReplicaConfig)>,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        let scheduler = scheduler.resolved(&CostModel::default());
        scheduler.validate()?;
        let mut fleet = Self {
            hasher: Hasher::new(config.prefix_hash_key),
            router: Router::new(config.load_slack_tokens.0, config.prefixes_max),
            config,
            scheduler,
            cost: CostModel::default(),
            prior: CostModel::default(),
            caches: CacheReports::default(),
            kept_permille: cache_reports::ALL,
            queries: BTreeMap::new(),
            requests: BTreeMap::new(),
            waiting: BTreeSet::new(),
            aside: BTreeSet::new(),
            may_readmit: false,
            only_aside: BTreeSet::new(),
            departed: Departed::default(),
            tenants: Tenants::default(),
            lengths: Lengths::default(),
            tail: TailBound::default(),
            timers: Timers::default(),
            held_until: None,
            retries: BTreeSet::new(),
            next_request: 1,
            arrived: 0,
            rows: 0,
            pending: Vec::new(),
            emptied: Vec::new(),
            counters: Counters::default(),
            decision: FleetDecision::default(),
        };
        for (id, replica) in replicas {
            fleet.add_replica(id, replica)?;
        }
        Ok(fleet)
    }

    /// The configuration it was made with.
    pub fn config(&self) -> &FleetConfig {
        &self.config
    }

    /// The policy in force and its settings.
    pub fn scheduler(&self) -> &SchedulerConfig {
        &self.scheduler
    }

    /// What a replica's steps cost in the mean, as fitted to the rows that were answered.
    pub fn cost(&self) -> CostModel {
        self.cost
    }

    /// Whether that was measured at one replica at least, or is not to be.
    pub fn knows_costs(&self) -> bool {
        !self.scheduler.refit || self.router.lanes.values().any(|lane| lane.cost.is_some())
    }

    /// Whether no row is held and nothing is left to be told.
    pub fn is_idle(&self) -> bool {
        self.rows == 0 && self.pending.is_empty() && self.emptied.is_empty()
    }

    /// A relQuery that has not ended.
    fn query(&self, id: RelQueryId) -> Option<&Query> {
        self.queries.get(&id).map(|query| &**query)
    }

    /// Whose row a request is; `None` once it has ended, moved or been cancelled.
    pub fn row_of(&self, request: RequestId) -> Option<(RelQueryId, u32)> {
        self.requests.get(&request).map(|flying| (flying.relquery, flying.row))
    }

    /// The rows of a relQuery that were sent to a replica and have not ended.
    pub fn sent(&self, id: RelQueryId) -> Vec<u32> {
        let own = self.requests.values().filter(|flying| flying.relquery == id);
        own.map(|flying| flying.row).collect()
    }

    /// When to call [`Fleet::dispatch`] next although nothing has happened: a relQuery rises to the first
    /// class, a row has waited since its replica failed, one for others that should have ended, or one long enough
    /// for a replica that could hold it.
    pub fn next_timer(&self) -> Option<Time> {
        let aside = self.aside.first().map(|(until, ..)| *until);
        let others = [self.retries.first().copied(), self.held_until, aside];
        self.timers.next().into_iter().chain(others.into_iter().flatten()).min()
    }
}
