//! The priority of a relQuery whose rows are sent to replicas: the policies' own, over what a gateway knows.
//!
//! | a policy asks | a fleet answers |
//! | --- | --- |
//! | what a step is divided among | the rows and tokens that the replicas in service hold together |
//! | the share that no cache supplies (Eq. 11) | tokens that neither the router's memory nor an earlier row supplies, and of those that they do the share that replies say is not there |
//! | the batches left (Algorithm 1) | rows at replicas count as running, with all of their output to come |
//! | the work left | lengths as rows that ended had them |

use std::cell::OnceCell;

use base::{Nanos, TenantId, Time, TokenCount};

use super::Fleet;
use super::cache_reports::uncached;
use super::cost_fit::{differ, mean};
use super::query::Query;
use super::router::Router;
use crate::config::SchedulerConfig;
use crate::cost::CostModel;
use crate::decompose::{Batches, Limits, Remaining, Running, decompose};
use crate::miss_ratio::MissRatio;
use crate::paper_variant::{DecompositionReading, PriorityReading};
use crate::policy::marginal_work::config::MarginalWorkConfig;
use crate::policy::marginal_work::lengths::Lengths;
use crate::policy::marginal_work::work::{Capacity, Work};
use crate::policy::view::RelQueryView;
use crate::priority::RelQueryKey;

/// Thousandths of what is remembered by which the share that caches have must change to count.
const KEPT_CHANGE: u64 = 100;
/// Rows after which costs are fitted anew.
const REFIT_ROWS: u64 = 16;

/// A relQuery of a fleet, as its policy sees it.
struct DispatchedRelQuery<'a> {
    query: &'a Query,
    pricing: &'a Pricing<'a>,
}

impl RelQueryView for DispatchedRelQuery<'_> {
    fn cost(&self) -> &CostModel {
        self.pricing.cost
    }

    fn capacity(&self) -> Capacity {
        self.pricing.capacity().0
    }

    fn settings(&self) -> &MarginalWorkConfig {
        &self.pricing.scheduler.marginal_work
    }

    fn half_life(&self) -> Option<Nanos> {
        let config = self.pricing.scheduler;
        let half = config.marginal_work.age_half_ms.map(Nanos::from);
        half.map(|half| Nanos(half.0.saturating_mul(config.policy.age_times())))
    }

    fn arrival(&self) -> Time {
        self.query.arrival
    }

    fn is_promoted(&self) -> bool {
        self.query.is_promoted
    }

    fn submitted(&self) -> (u64, u64) {
        (self.query.prompt_submitted, self.query.output_submitted)
    }

    fn miss_ratio(&mut self) -> MissRatio {
        let prompts = self.query.waiting_prompts();
        MissRatio::of(std::iter::once((TokenCount(self.uncached()), TokenCount(prompts))))
    }

    fn batches(&self, ratio: MissRatio) -> Batches {
        let output_max = self.query.output_max();
        let rows = (self.query.open() - self.query.waiting()) as u64;
        // What they have said so far comes with their ends.
        let running = Running {
            rows,
            steps_max: if rows > 0 { output_max } else { 0 },
            steps_sum: rows * output_max,
            held: self.query.running_prompts(),
        };
        let remaining = Remaining { running, requeued: &[], fresh: self.query.waiting_sums(), output_max };
        let config = self.pricing.scheduler;
        let (capacity, replicas) = self.pricing.capacity();
        let limits = Limits {
            kv_tokens: capacity.kv_tokens,
            sequences: capacity.sequences,
            step_tokens: config.step_tokens_max.0.saturating_mul(replicas),
        };
        let reading = match config.policy.reads_the_paper() {
            true => config.paper_variant.decomposition,
            false => DecompositionReading::Corrected,
        };
        decompose(remaining, ratio, limits, reading)
    }

    fn work(&mut self) -> Work {
        let rows = self.query.open() as u64;
        let output = self.query.expected(self.pricing.lengths).remaining(0, self.query.output_max());
        let prompts = self.query.novel() + self.query.running_prompts();
        Work {
            prompt: self.uncached(),
            output: rows * output,
            held_output: u128::from(output) * (u128::from(prompts) + u128::from(rows * output / 2)),
        }
    }
}

impl DispatchedRelQuery<'_> {
    /// Prompt tokens of waiting rows that no cache supplies.
    fn uncached(&self) -> u64 {
        uncached(self.query.novel(), self.query.waiting_prompts(), self.pricing.kept_permille)
    }
}

/// What replicas in service hold together, and how many they are; where none is, one row.
fn capacity(router: &Router) -> (Capacity, u64) {
    let (mut sequences, mut kv_tokens, mut replicas) = (0_u64, Some(0_u64), 0);
    for lane in router.lanes.values().filter(|lane| lane.is_up()) {
        replicas += 1;
        sequences += u64::from(lane.config.rows_max);
        kv_tokens = kv_tokens.zip(lane.kv_tokens()).map(|(sum, tokens)| sum.saturating_add(tokens));
    }
    // Without a limit in tokens, rows are what is divided.
    let kv_tokens = kv_tokens.filter(|_| replicas > 0).unwrap_or(u64::MAX);
    (Capacity { kv_tokens, sequences: sequences.max(1) }, replicas.max(1))
}

/// What priorities are made of, beside the relQuery.
pub(super) struct Pricing<'a> {
    scheduler: &'a SchedulerConfig,
    cost: &'a CostModel,
    lengths: &'a Lengths,
    /// Thousandths of what is remembered that caches have.
    kept_permille: u64,
    router: &'a Router,
    /// What the router's replicas hold, and how many they are: a pass over all of them, so made once, and only for a
    /// policy that asks.
    capacity: OnceCell<(Capacity, u64)>,
}

impl<'a> Pricing<'a> {
    pub(super) fn new(
        scheduler: &'a SchedulerConfig,
        cost: &'a CostModel,
        lengths: &'a Lengths,
        kept_permille: u64,
        router: &'a Router,
    ) -> Self {
        Self { scheduler, cost, lengths, kept_permille, router, capacity: OnceCell::new() }
    }

    fn capacity(&self) -> (Capacity, u64) {
        *self.capacity.get_or_init(|| capacity(self.router))
    }

    /// Computes the priority of a relQuery of which something has changed, unless it has one for good.
    pub(super) fn update(&self, query: &mut Query) {
        let policy = self.scheduler.policy;
        let is_frozen =
            policy.reads_the_paper() && self.scheduler.paper_variant.priorities == PriorityReading::Frozen;
        if is_frozen && query.priced_rows == query.submitted && !query.is_promoted {
            return;
        }
        let mut seen = DispatchedRelQuery { query, pricing: self };
        (query.priority, query.breakdown) = (policy.rules().priority)(&mut seen);
        query.priced_rows = query.submitted;
    }

    /// The time of a machine that a row is thought to take: what its tenant is charged.
    pub(super) fn time_of(&self, computed: u64, output: u64) -> Nanos {
        let (Capacity { sequences, .. }, replicas) = self.capacity();
        // Each replica's rows share its own steps.
        let rows = (sequences / replicas).max(1);
        let prompt = u128::from(self.cost.prefill_per_token.0) * u128::from(computed);
        let step = u128::from(self.cost.decode_per_sequence.0) + u128::from(self.cost.decode_base.0 / rows);
        Nanos(u64::try_from(prompt + step * u128::from(output)).unwrap_or(u64::MAX))
    }
}

impl Fleet {
    /// Follows what replicas cost, and what their caches have. Where that has changed much every waiting relQuery
    /// gets its priority anew, so that all are compared by one model.
    pub(super) fn refit(&mut self) {
        if !self.scheduler.refit || !self.counters.answered.is_multiple_of(REFIT_ROWS) {
            return;
        }
        let fits = self.router.lanes.values().filter_map(|lane| lane.cost);
        let cost = mean(fits).filter(|cost| differ(cost, &self.cost));
        let kept = self.caches.kept_permille();
        let has_other_caches = kept.abs_diff(self.kept_permille) > KEPT_CHANGE;
        if cost.is_none() && !has_other_caches {
            return;
        }
        self.cost = cost.unwrap_or(self.cost);
        self.kept_permille = kept;
        self.reprice_waiting();
    }

    /// Gives each waiting relQuery the priority that it has now. Its place in the order is not looked for: the order is
    /// built anew, from all of them at once.
    fn reprice_waiting(&mut self) {
        // Without priorities the order is that of arrival, whatever rows cost.
        if !self.scheduler.policy.is_prioritised() {
            return;
        }
        let scheduler = &self.scheduler;
        let pricing = Pricing::new(scheduler, &self.cost, &self.lengths, self.kept_permille, &self.router);
        let mut keys: Vec<(TenantId, RelQueryKey)> = Vec::with_capacity(self.waiting.len());
        let mut running = Vec::new();
        for query in self.queries.values_mut().filter(|query| query.key.is_some()) {
            pricing.update(query);
            query.breakdown.is_late = self.tail.is_late(query.class, query.id);
            let key = query.key_under(scheduler);
            query.key = Some(key);
            keys.push((query.tenant, key));
            if query.open() > query.waiting() {
                running.push((query.id, query.running_view(scheduler)));
            }
        }
        for (id, view) in running {
            self.router.in_flight.set(id, || view);
        }
        self.waiting = keys.iter().map(|(_, key)| *key).collect();
        self.tenants.place_all(keys);
    }

    pub(super) fn pricing(&self) -> Pricing<'_> {
        let Self { scheduler, cost, lengths, kept_permille, router, .. } = self;
        Pricing::new(scheduler, cost, lengths, *kept_permille, router)
    }
}
