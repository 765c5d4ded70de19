//! Which replica gets a row: of those within the slack of the least load, the one that most recently was sent
//! the longest beginning of it; where none was, the least loaded.
//!
//! Daft's prefix-aware routing (the blog "Dynamic Prefix Bucketing at Scale"), with its errata: load is
//! unfinished tokens and falls when work ends, not a count of all that was ever sent; a row nobody knows goes
//! to the least loaded, not to the last; what is remembered is the blocks of a hash chain, which finds the
//! longest match, not whole prompts.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use base::{RelQueryId, Time, TokenCount};

use super::Flying;
use super::config::{Health, ReplicaConfig, ReplicaId};
use super::cost_fit::{CostFit, SentAt, WorkClock};
use super::division::ReplicaShare;
use super::in_flight::{RelQueriesInFlight, RunningView};
use super::prefixes::Prefixes;
use super::prompt_scale::PromptScale;
use super::query::RowLoad;
use super::rows_at::RowsAtReplica;
use crate::cost::CostModel;
use crate::kv::BlockKey;
use crate::kv::prefix::KeyMap;

/// A replica as the router sees it.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) config: ReplicaConfig,
    /// The part of it that may be used, where other gateways use it too.
    pub(crate) share: Option<ReplicaShare>,
    pub(crate) health: Health,
    /// It weighs itself what runs beside what.
    pub(crate) plans_itself: bool,
    /// Rows of the first waiting relQuery wait for those that run here.
    pub(crate) is_held: bool,
    /// Rows in flight.
    pub(crate) rows: u32,
    /// Their unfinished tokens: the load.
    pub(crate) tokens: u64,
    /// What they take of its memory, in its own tokens: what they share with others it was sent counts once.
    pub(crate) memory: u64,
    /// Rows that it has answered.
    pub(crate) answered: u64,
    /// What it had to do so far, and what that cost.
    pub(crate) clock: WorkClock,
    pub(crate) fit: CostFit,
    /// The model that is fitted so far, once there were rows enough.
    pub(crate) cost: Option<CostModel>,
    /// Tokens that its KV memory holds, as it says itself.
    pub(crate) reported: Option<TokenCount>,
    /// How its prompts are counted here and there.
    pub(crate) scale: PromptScale,
    /// Rows in flight by group.
    running: KeyMap<BlockKey, u32>,
    /// The same by relQuery.
    at: BTreeMap<RelQueryId, RowsAtReplica>,
}

impl Lane {
    /// A replica at rest, in service.
    pub(crate) fn new(config: ReplicaConfig) -> Self {
        Self {
            config,
            share: None,
            health: Health::Up,
            plans_itself: false,
            is_held: false,
            rows: 0,
            tokens: 0,
            memory: 0,
            answered: 0,
            clock: WorkClock::default(),
            fit: CostFit::default(),
            cost: None,
            reported: None,
            scale: PromptScale::default(),
            running: KeyMap::default(),
            at: BTreeMap::new(),
        }
    }

    /// Whether a row may be sent now.
    pub(crate) fn takes(&self, load: RowLoad) -> bool {
        let tokens = self.tokens + load.tokens;
        let is_free = self.rows < self.config.rows_max && self.holds(tokens);
        let may =
            |share: ReplicaShare| self.rows < share.rows && share.tokens.is_none_or(|most| tokens <= most.0);
        let fits = |most: u64| self.memory + self.memory_of(load.prompt, load.output) <= most;
        let has_memory = || self.rows == 0 || self.reported_room().is_none_or(fits);
        self.is_up() && !self.is_held && is_free && self.share.is_none_or(may) && has_memory()
    }

    /// Tokens that its KV memory holds, as tokens are counted here: what is configured, else what it reports.
    pub(crate) fn kv_tokens(&self) -> Option<u64> {
        let reported = || self.reported.map(|tokens| self.scale.here(tokens.0));
        self.config.tokens_max.map(|tokens| tokens.0).or_else(reported)
    }

    /// Its own tokens that rows in flight may hold together by what it reports, where nothing is configured: of one
    /// that other gateways use too the part that its rows are. No row is refused for it, for one alone always goes.
    fn reported_room(&self) -> Option<u64> {
        let all = self.reported.filter(|_| self.config.tokens_max.is_none())?;
        let Some(share) = self.share else { return Some(all.0) };
        let part = share.rows.min(self.config.rows_max);
        let room = u128::from(all.0) * u128::from(part) / u128::from(self.config.rows_max.max(1));
        Some(u64::try_from(room).unwrap_or(u64::MAX))
    }

    /// What prompt tokens and output take of its memory, in its own tokens.
    fn memory_of(&self, prompt: u64, output: u64) -> u64 {
        self.scale.there(prompt).saturating_add(output)
    }

    /// Whether it has room for a row that this gateway may not use.
    pub(crate) fn is_held_back(&self) -> bool {
        let is_less = |share: ReplicaShare| {
            let tokens = share.tokens.zip(self.config.tokens_max);
            share.rows < self.config.rows_max || tokens.is_some_and(|(share, all)| share < all)
        };
        self.is_up() && self.rows < self.config.rows_max && self.share.is_some_and(is_less)
    }

    /// RelQueries with rows in flight here.
    pub(crate) fn at(&self) -> impl Iterator<Item = (RelQueryId, &RowsAtReplica)> {
        self.at.iter().map(|(relquery, rows)| (*relquery, rows))
    }

    /// Whether it is in service.
    pub(crate) fn is_up(&self) -> bool {
        self.health == Health::Up
    }

    /// Whether so many tokens are within its limit.
    pub(crate) fn holds(&self, tokens: u64) -> bool {
        self.config.tokens_max.is_none_or(|most| tokens <= most.0)
    }
}

/// All replicas.
#[derive(Clone, Debug)]
pub(crate) struct Router {
    slack: u64,
    pub(crate) lanes: BTreeMap<ReplicaId, Lane>,
    pub(crate) prefixes: Prefixes,
    /// RelQueries with rows in flight at any replica: how many they are, and how a choice sees each.
    pub(crate) in_flight: RelQueriesInFlight,
    /// The latest time that was told.
    pub(crate) now: Time,
}

/// How sure it is that a replica still has a beginning: the greater, the better it is taken next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kept {
    /// It was sent then.
    Sent(u64),
    /// It is in use there, and was sent then.
    InUse(Reverse<u64>),
}

impl Router {
    pub(crate) fn new(slack: u64, prefixes_max: u32) -> Self {
        Self {
            slack,
            lanes: BTreeMap::new(),
            prefixes: Prefixes::new(prefixes_max),
            in_flight: RelQueriesInFlight::default(),
            now: Time(0),
        }
    }

    /// Whether some replica takes a row.
    pub(crate) fn has_room(&self) -> bool {
        self.lanes.values().any(|lane| lane.takes(RowLoad::default()))
    }

    /// Replicas that take a row of this load and are within the slack of the least loaded of them, in the
    /// order of load. One that is to be avoided counts only where no other is up that could hold the row.
    pub(crate) fn eligible(&self, load: RowLoad, avoid: Option<ReplicaId>) -> Vec<ReplicaId> {
        let avoid = avoid.filter(|avoid| self.has_other_up(*avoid, load.tokens));
        let open = self.lanes.iter().filter(|(id, lane)| Some(**id) != avoid && lane.takes(load));
        let mut loads: Vec<(u64, ReplicaId)> = open.map(|(id, lane)| (lane.tokens, *id)).collect();
        loads.sort_unstable();
        let bound = loads.first().map_or(0, |(least, _)| least.saturating_add(self.slack));
        loads.into_iter().take_while(|(load, _)| *load <= bound).map(|(_, id)| id).collect()
    }

    /// The replica for a prompt with these beginnings, and how many of its blocks that was sent before.
    pub(crate) fn route(&self, chain: &[BlockKey], eligible: &[ReplicaId]) -> Option<(ReplicaId, usize)> {
        for depth in (1..=chain.len()).rev() {
            if let Some((_, id)) = self.prefixes.latest(chain[depth - 1], |id| eligible.contains(&id)) {
                return Some((id, depth));
            }
        }
        eligible.first().map(|least| (*least, 0))
    }

    /// How a beginning is kept by a replica that was sent it at that number.
    pub(crate) fn kept(&self, group: BlockKey, (stamp, replica): (u64, ReplicaId)) -> Kept {
        match self.lanes.get(&replica).is_some_and(|lane| lane.running.contains_key(&group)) {
            true => Kept::InUse(Reverse(stamp)),
            false => Kept::Sent(stamp),
        }
    }

    /// A row is sent: its load, and the tokens of its prompt that are to be computed. Returns what it adds to the
    /// replica's memory, too.
    pub(crate) fn send(
        &mut self,
        (replica, relquery, view): (ReplicaId, RelQueryId, RunningView),
        (load, computed): (RowLoad, u64),
        chain: &[BlockKey],
        group: BlockKey,
    ) -> (SentAt, u64) {
        let Some(lane) = self.lanes.get_mut(&replica) else { return (SentAt::default(), 0) };
        let memory = lane.memory_of(computed, load.output);
        lane.rows += 1;
        lane.tokens += load.tokens;
        lane.memory += memory;
        self.prefixes.send(replica, chain);
        *lane.running.entry(group).or_default() += 1;
        let at = lane.clock.sent(self.now, computed);
        let index = self.in_flight.add(relquery, view);
        lane.at.entry(relquery).or_default().add(at, index);
        (at, memory)
    }

    /// RelQueries with rows in flight.
    pub(crate) fn relqueries_running(&self) -> usize {
        self.in_flight.relqueries()
    }

    /// Rows that a replica has answered so far.
    pub(crate) fn answered(&self, replica: ReplicaId) -> u64 {
        self.lanes.get(&replica).map_or(0, |lane| lane.answered)
    }

    /// Whether a replica in service could hold so many tokens, were it empty.
    pub(crate) fn serves(&self, tokens: u64) -> bool {
        self.lanes.values().any(|lane| lane.is_up() && lane.holds(tokens))
    }

    /// Whether another replica than this one is up that could hold so many tokens, were it empty.
    pub(crate) fn has_other_up(&self, replica: ReplicaId, tokens: u64) -> bool {
        self.lanes.iter().any(|(id, lane)| *id != replica && lane.is_up() && lane.holds(tokens))
    }

    /// A row has ended, or was taken back.
    pub(crate) fn end(&mut self, flying: &Flying) {
        let Flying { relquery, replica, tokens, memory, group, sent_at, .. } = *flying;
        let Some(lane) = self.lanes.get_mut(&replica) else { return };
        lane.rows -= 1;
        lane.tokens -= tokens;
        lane.memory -= memory;
        lane.clock.left(self.now);
        if let Some(rows) = lane.running.get_mut(&group) {
            *rows -= 1;
            if *rows == 0 {
                lane.running.remove(&group);
            }
        }
        if let Some(rows) = lane.at.get_mut(&relquery) {
            rows.remove(sent_at);
            if rows.rows == 0 {
                lane.at.remove(&relquery);
            }
        }
        self.in_flight.remove(relquery);
    }

    /// Rows in flight by group and by relQuery are as many as those by replica, and the relQueries are found by index.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (id, lane) in &self.lanes {
            let by_group: u32 = lane.running.values().sum();
            let by_relquery: u32 = lane.at.values().map(|at| at.rows).sum();
            if by_relquery != lane.rows || lane.at.values().any(|at| at.rows == 0) {
                return Err(format!("replica {id}: {by_relquery} rows by relQuery of {}", lane.rows));
            }
            if by_group != lane.rows || lane.running.values().any(|rows| *rows == 0) {
                return Err(format!("replica {id}: {by_group} rows by group of {}", lane.rows));
            }
            if lane.at().any(|(relquery, rows)| !self.in_flight.is_at(relquery, rows.index)) {
                return Err(format!("replica {id}: a relQuery is not where its index says"));
            }
        }
        self.in_flight.check(self.lanes.values().map(|lane| lane.rows).sum())?;
        self.prefixes.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(loads: &[u64]) -> Router {
        let mut router = Router::new(100, 50);
        for (id, load) in (0..).map(ReplicaId).zip(loads) {
            let config = ReplicaConfig { rows_max: 9, tokens_max: Some(TokenCount(1_000)) };
            router.lanes.insert(id, Lane { tokens: *load, ..Lane::new(config) });
        }
        router
    }

    fn load(tokens: u64) -> RowLoad {
        RowLoad { tokens, ..RowLoad::default() }
    }

    fn key(name: u128) -> BlockKey {
        BlockKey(name)
    }

    #[test]
    fn the_longest_match_wins_then_the_most_recent_then_the_least_load() {
        let mut router = router(&[0, 50, 90, 101]);
        let ids = [0, 1, 2, 3].map(ReplicaId);
        assert_eq!(router.eligible(load(10), None), ids[..3], "one is loaded beyond the slack");
        router.prefixes.send(ids[1], &[key(1), key(2)]);
        router.prefixes.send(ids[2], &[key(1)]);
        router.prefixes.send(ids[3], &[key(1), key(2), key(3)]);
        let all = router.eligible(load(10), None);
        assert_eq!(router.route(&[key(1), key(2), key(3)], &all), Some((ids[1], 2)));
        assert_eq!(router.route(&[key(1), key(9)], &all), Some((ids[2], 1)));
        assert_eq!(router.route(&[key(8)], &all), Some((ids[0], 0)), "never just the last");
    }

    #[test]
    fn limits_health_and_what_failed_before_exclude_a_replica() {
        let mut router = router(&[0, 50]);
        let ids = [0, 1].map(ReplicaId);
        assert_eq!(router.eligible(load(1_000), None), ids[..1], "the other has no room for it");
        assert_eq!(router.eligible(load(1_001), None), []);
        assert_eq!(router.eligible(load(1), Some(ids[0])), ids[1..]);
        router.lanes.get_mut(&ids[1]).expect("known").health = Health::Draining;
        assert_eq!(router.eligible(load(1), None), ids[..1]);
        assert_eq!(
            router.eligible(load(1), Some(ids[0])),
            ids[..1],
            "the only one that is up is tried again"
        );
        router.lanes.get_mut(&ids[0]).expect("known").rows = 9;
        assert_eq!(router.eligible(load(1), None), []);
    }
}
