//! What a fleet tells of itself: counts, and why the last rows went where they went.

use std::collections::BTreeSet;

use base::{RelQueryId, Time, TokenCount};
use serde::Serialize;

use super::config::{Health, ReplicaId};
use super::dispatch::{Dispatch, Why};
use super::query::Query;
use super::{Counters, Fleet, Flying};
use crate::cost::CostModel;
use crate::event::{Stats, Usage};
use crate::snapshot::{RIVALS_MAX, RelQueryStatus, RowCounts, SchedulerSnapshot, Start, most_waiting};
use crate::truncated::Truncated;

/// A replica's part of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReplicaStats {
    pub id: ReplicaId,
    /// How it is.
    pub health: Health,
    /// Rows in flight.
    pub rows: u32,
    /// Their unfinished tokens.
    pub tokens: TokenCount,
    /// Prefix blocks that it is remembered to have been sent.
    pub prefixes: u32,
    /// What its rows cost, fitted to their times; none before it has answered enough of them.
    pub cost: Option<CostModel>,
}

/// Counts of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetStats {
    /// As a scheduler counts; what a gateway cannot know of its replicas (blocks, steps, guesses) is 0.
    pub totals: Stats,
    /// Rows sent to a replica that was sent their beginning before.
    pub rows_seen: u64,
    /// Rows whose beginning no replica had been sent.
    pub rows_fresh: u64,
    /// Rows whose beginning others had been sent, which had no room.
    pub rows_shared: u64,
    /// Rows taken back from a replica that failed.
    pub retries: u64,
    /// Prompt tokens that were sent where they were remembered: what the router expected of the caches.
    pub seen_tokens: u64,
    pub replicas: Vec<ReplicaStats>,
}

/// The last calls of [`Fleet::dispatch`] in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetDecision {
    pub now: Time,
    /// Rows sent.
    pub rows: u32,
    /// The last of them: its relQuery, its row, where it went, why, and how much of it was seen there.
    pub last: Option<(RelQueryId, u32, ReplicaId, Why, u64)>,
    /// The relQuery whose rows wait for those that run, although there is room.
    pub held: Option<RelQueryId>,
}

impl FleetDecision {
    pub(super) fn begin(&mut self, now: Time) {
        (self.now, self.rows, self.held) = (now, 0, None);
    }

    pub(super) fn sent(&mut self, sent: &Dispatch, why: Why) {
        self.rows += 1;
        self.last = Some((sent.relquery, sent.item.row, sent.replica, why, sent.seen_tokens));
    }
}

impl std::fmt::Display for FleetDecision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some((relquery, row, replica, why, seen)) = self.last else {
            return f.write_str("no row was sent yet");
        };
        let why = match why {
            Why::Again => "another failed under it".to_owned(),
            Why::Seen => format!("it was sent the first {seen} tokens before"),
            Why::Fresh => "no replica was sent its beginning, and this one is loaded least".to_owned(),
            Why::Shared => "those that were sent its beginning are full".to_owned(),
        };
        write!(
            f,
            "{} rows sent; the last, row {row} of relQuery {relquery}, to replica {replica}: {why}",
            self.rows
        )?;
        match self.held {
            Some(held) => {
                write!(f, ". Rows of relQuery {held} wait: beside what runs they cost more than they gain")
            }
            None => Ok(()),
        }
    }
}

impl Counters {
    pub(super) fn sent(&mut self, why: Why, seen: u64) {
        self.seen_tokens += seen;
        match why {
            Why::Seen => self.rows_seen += 1,
            Why::Fresh => self.rows_fresh += 1,
            Why::Shared => self.rows_shared += 1,
            Why::Again => (),
        }
    }

    pub(super) fn ended(&mut self, usage: Usage) {
        self.answered += 1;
        self.prompt_tokens += usage.prompt.0;
        self.cached_tokens += usage.cached.0;
        self.output_tokens += usage.output.0;
    }
}

impl Fleet {
    /// How full the fleet is, and what it has done since it was made.
    pub fn stats(&self) -> FleetStats {
        let counters = self.counters;
        let totals = Stats {
            relqueries: self.queries.len() as u32,
            relqueries_waiting: (self.waiting.len() + self.only_aside.len()) as u32,
            relqueries_running: self.router.relqueries_running() as u32,
            rows_waiting: (self.rows - self.requests.len()) as u32,
            rows_running: self.requests.len() as u32,
            prompt_tokens: counters.prompt_tokens,
            prefix_hit_tokens: counters.cached_tokens,
            output_tokens: counters.output_tokens,
            ..Stats::default()
        };
        // Both are in the order of replicas: one walk finds all.
        let mut remembered = self.router.prefixes.len_by_replica().peekable();
        let replicas = self.router.lanes.iter().map(|(id, lane)| {
            while remembered.next_if(|(other, _)| other < id).is_some() {}
            let prefixes = remembered.next_if(|(other, _)| other == id).map_or(0, |(_, len)| len);
            ReplicaStats {
                id: *id,
                health: lane.health,
                rows: lane.rows,
                tokens: TokenCount(lane.tokens),
                prefixes: prefixes as u32,
                cost: lane.cost,
            }
        });
        FleetStats {
            totals,
            rows_seen: counters.rows_seen,
            rows_fresh: counters.rows_fresh,
            rows_shared: counters.rows_shared,
            retries: counters.retries,
            seen_tokens: counters.seen_tokens,
            replicas: replicas.collect(),
        }
    }

    /// What is held, with the first `most` relQueries: those with rows at replicas, then those that only
    /// wait, in order, and at last those that wait for a replica that could hold them. Of replicas' memory nothing is
    /// known.
    pub fn snapshot(&self, most: usize) -> SchedulerSnapshot {
        let runs = |query: &&Query| query.open() > query.waiting();
        let running = self.queries.values().map(|query| &**query).filter(runs);
        let waiting = self.waiting.iter().filter_map(|key| self.query(key.id));
        let aside = self.only_aside.iter().filter_map(|id| self.query(*id));
        let listed = running.chain(waiting.chain(aside).filter(|query| !runs(query)));
        let listed: Vec<RelQueryStatus> = listed.take(most).map(|query| self.status(query)).collect();
        let left_out = u32::try_from(self.queries.len() - listed.len()).unwrap_or(u32::MAX);
        SchedulerSnapshot { relqueries: Truncated { listed, left_out }, ..SchedulerSnapshot::default() }
    }

    /// The relQueries whose first rows are among these, which were sent just now, each with the one that it left
    /// waiting: looked for at the head of the queue, so that a long queue costs no more than a short one.
    pub fn starts(&self, sent: &[Dispatch], now: Time) -> Vec<Start> {
        let mut ids: Vec<RelQueryId> = Vec::new();
        for id in sent.iter().map(|dispatch| dispatch.relquery) {
            let is_first = self.queries.get(&id).is_some_and(|query| query.started == Some(now));
            if is_first && !ids.contains(&id) {
                ids.push(id);
            }
        }
        if ids.is_empty() {
            return Vec::new();
        }
        let queued = self.waiting.iter().take(RIVALS_MAX).filter_map(|key| self.queries.get(&key.id));
        let looked: Vec<RelQueryStatus> = queued.map(|query| self.status(query)).collect();
        let start = |id: RelQueryId| {
            let first = self.status(self.queries.get(&id)?);
            Some(Start { first, rival: most_waiting(&looked, |one| one.id != id) })
        };
        ids.into_iter().filter_map(start).collect()
    }

    fn status(&self, query: &Query) -> RelQueryStatus {
        RelQueryStatus {
            id: query.id,
            tenant: query.tenant,
            class: query.class,
            arrival: query.arrival,
            started: query.started,
            prefilled: query.prefilled,
            rows: RowCounts {
                submitted: query.submitted,
                waiting: query.waiting() as u64,
                prefilling: 0,
                running: (query.open() - query.waiting()) as u64,
            },
            priority: query.priority.0,
            breakdown: Some(query.breakdown),
            is_new: false,
        }
    }

    /// Why the last rows went where they went.
    pub fn last_decision(&self) -> &FleetDecision {
        &self.decision
    }

    /// The books balance.
    pub fn check_invariants(&self) -> Result<(), String> {
        for query in self.queries.values() {
            query.check()?;
            let is_aside = query.in_line() == 0 && query.waiting() > 0;
            if query.key.is_some() != (query.in_line() > 0) || self.only_aside.contains(&query.id) != is_aside
            {
                return Err(format!("relQuery {} stands in the wrong place", query.id));
            }
            let runs = query.open() > query.waiting();
            let view = runs.then(|| query.running_view(&self.scheduler));
            if self.router.in_flight.view_of(query.id) != view.as_ref() {
                return Err(format!("relQuery {} is not seen as it runs", query.id));
            }
        }
        let open: usize = self.queries.values().map(|query| query.open()).sum();
        let flying: usize = self.queries.values().map(|query| query.open() - query.waiting()).sum();
        if (open, flying) != (self.rows, self.requests.len()) {
            return Err(format!("{open} rows are held for {}, {flying} in flight", self.rows));
        }
        let running = self.queries.values().filter(|query| query.open() > query.waiting()).count();
        if running != self.router.relqueries_running() {
            return Err(format!("{running} relQueries run, {} count", self.router.relqueries_running()));
        }
        for (id, lane) in &self.router.lanes {
            let mine = self.requests.values().filter(|flying| flying.replica == *id);
            let count = |(rows, tokens, memory): (u32, u64, u64), one: &Flying| {
                (rows + 1, tokens + one.tokens, memory + one.memory)
            };
            if mine.fold((0, 0, 0), count) != (lane.rows, lane.tokens, lane.memory) {
                return Err(format!("replica {id} counts {} rows, {} tokens", lane.rows, lane.tokens));
            }
        }
        let aside = self.queries.values().flat_map(|query| {
            query.rows().filter_map(move |row| Some((row.aside_until?, query.id, row.item.row)))
        });
        if self.aside != aside.collect::<BTreeSet<_>>() {
            return Err("the rows that no replica can hold are not those that wait aside".into());
        }
        let keys = self.queries.values().filter_map(|query| query.key).collect();
        if self.waiting != keys {
            return Err("the waiting relQueries are not those in order".into());
        }
        self.timers.check(|id| self.queries.contains_key(&id))?;
        self.tenants.check(self.waiting.len())?;
        self.router.check()
    }
}
