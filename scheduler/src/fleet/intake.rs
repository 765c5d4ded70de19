//! What comes in and what is called off: submit, extend, cancel; replicas come, change and go.

use std::collections::BTreeSet;

use base::{Nanos, RelQueryId, RequestId, RowError, ServiceClass, Submission, Time, TokenCount, WorkItem};

use super::Fleet;
use super::config::{Health, ReplicaConfig, ReplicaId};
use super::priority::Pricing;
use super::prompt_scale::PromptScale;
use super::query::Query;
use super::router::Lane;
use super::settle::Cause;
use crate::config::ConfigError;
use crate::event::{Event, Refused, Usage};
use crate::starvation::starves_at;
use crate::tail::{OpenWork, TailLimits};

impl Fleet {
    /// Takes a relQuery, or nothing of it. Rows that are too large for every replica, those that left lately among
    /// them, fail alone, unless all are.
    pub fn submit(&mut self, submission: Submission) -> Result<(), Refused> {
        let id = submission.id;
        if self.queries.contains_key(&id) {
            return Err(Refused::Duplicate(id));
        }
        let (relqueries, limit) = (self.queries.len() as u32, self.config.relqueries_max);
        if relqueries >= limit {
            return Err(Refused::TooManyRelQueries { relqueries, limit });
        }
        self.check(None, &submission.items)?;
        let query = Query::new(&submission);
        self.arrived = if self.queries.is_empty() { 1 } else { self.arrived + 1 };
        self.tenants.join(submission.tenant, submission.weight);
        self.queries.insert(id, Box::new(query));
        self.add(id, submission.items);
        Ok(())
    }

    /// Adds rows to a relQuery that has not ended.
    pub fn extend(&mut self, id: RelQueryId, items: Vec<WorkItem>) -> Result<(), Refused> {
        let Some(query) = self.query(id) else { return Err(Refused::Unknown(id)) };
        self.check(Some(query), &items)?;
        self.add(id, items);
        Ok(())
    }

    /// Calls a relQuery off: its rows end without further events. Returns the requests to abort and where
    /// they run.
    pub fn cancel(&mut self, id: RelQueryId) -> Vec<(ReplicaId, RequestId)> {
        let Some(query) = self.queries.get(&id) else { return Vec::new() };
        let numbers: Vec<u32> = query.rows().map(|row| row.item.row).collect();
        let aborts = numbers.into_iter().filter_map(|number| self.remove_row(id, number)).collect();
        self.remove_query(id);
        aborts
    }

    /// Calls one row off, without an event of its own. Returns its request where it runs. If it was the
    /// relQuery's last, the relQuery is done: [`Fleet::drain_events`] says so.
    pub fn cancel_row(&mut self, id: RelQueryId, row: u32) -> Option<(ReplicaId, RequestId)> {
        self.queries.get(&id)?.row(row)?;
        let abort = self.remove_row(id, row);
        self.place(id);
        if self.queries.get(&id).is_some_and(|query| query.open() == 0) {
            self.emptied.push(id);
        }
        abort
    }

    /// Everything that can be said against new rows.
    fn check(&self, open: Option<&Query>, items: &[WorkItem]) -> Result<(), Refused> {
        if items.is_empty() {
            return Err(Refused::Empty);
        }
        let (rows, limit) = (self.rows as u32, self.config.rows_max);
        if items.len() > limit.saturating_sub(rows) as usize {
            return Err(Refused::QueueFull { rows, limit });
        }
        let mut seen = BTreeSet::new();
        for item in items {
            let row = item.row;
            if !seen.insert(row) || open.is_some_and(|query| query.row(row).is_some()) {
                return Err(Refused::DuplicateRow { row });
            }
            if item.prompt.is_empty() {
                return Err(Refused::EmptyPrompt { row });
            }
            if item.generation.output_max.0 == 0 {
                return Err(Refused::NoOutput { row });
            }
        }
        match (self.largest(), items.first()) {
            (Some(limit), Some(first)) if items.iter().all(|item| tokens_max(item) > limit.0) => {
                Err(Refused::NeverFits { row: first.row, tokens: TokenCount(tokens_max(first)), limit })
            }
            _ => Ok(()),
        }
    }

    /// Takes out rows that are too large for every replica: each fails alone.
    fn without_oversized(&mut self, relquery: RelQueryId, items: Vec<WorkItem>) -> Vec<WorkItem> {
        let Some(limit) = self.largest() else { return items };
        let (fit, oversized): (Vec<WorkItem>, Vec<WorkItem>) =
            items.into_iter().partition(|item| tokens_max(item) <= limit.0);
        for item in oversized {
            let tokens = TokenCount(tokens_max(&item));
            let reason = format!(
                "it may take {tokens} with its longest output, and no replica has room for more than {limit}"
            );
            let (row, error) = (item.row, RowError::Refused(reason));
            self.pending.push(Event::RowFailed { relquery, row, error, usage: Usage::default() });
        }
        fit
    }

    /// The most tokens that some replica holds, or one held that left lately; none: there is no limit, or no replica.
    fn largest(&self) -> Option<TokenCount> {
        if self.router.lanes.is_empty() {
            return None;
        }
        let rooms = self.router.lanes.values().map(|lane| lane.config.tokens_max);
        let mut largest = None;
        for room in rooms.chain(self.departed.rooms(self.router.now)) {
            largest = largest.max(Some(room?));
        }
        largest
    }

    fn add(&mut self, id: RelQueryId, items: Vec<WorkItem>) {
        let items = self.without_oversized(id, items);
        self.rows += items.len();
        if let Some(query) = self.queries.get_mut(&id) {
            query.add(items, &self.hasher, &self.config, &self.router.prefixes);
        }
        self.set_timer(id);
        self.place(id);
        if let Some(query) = self.queries.get(&id) {
            self.tail.arrived(query.class, query.breakdown.work(), &self.cost);
        }
    }

    /// Adds a replica, empty and up.
    pub fn add_replica(&mut self, id: ReplicaId, config: ReplicaConfig) -> Result<(), ConfigError> {
        config.validate()?;
        if self.router.lanes.contains_key(&id) {
            return Err(ConfigError { field: "fleet.replica.id", reason: "is in use" });
        }
        self.router.lanes.insert(id, Lane::new(config));
        self.may_readmit = true;
        Ok(())
    }

    /// Says of a replica that it weighs itself what runs beside what, as an engine of ours does: nothing is held
    /// back from it while it has room.
    pub fn set_plans_itself(&mut self, id: ReplicaId) {
        if let Some(lane) = self.router.lanes.get_mut(&id) {
            lane.plans_itself = true;
        }
    }

    /// What a replica runs at a time has changed. If it has more in flight, it gets nothing until it has not.
    pub fn resize(&mut self, id: ReplicaId, config: ReplicaConfig) -> Result<(), ConfigError> {
        config.validate()?;
        if let Some(lane) = self.router.lanes.get_mut(&id) {
            self.may_readmit |= lane.config.tokens_max != config.tokens_max;
            lane.config = config;
        }
        Ok(())
    }

    /// Tokens that a replica's KV memory holds, as it says itself: what bounds its rows together where nothing is
    /// configured. It refuses no row.
    pub fn set_reported(&mut self, id: ReplicaId, tokens: Option<TokenCount>) {
        if let Some(lane) = self.router.lanes.get_mut(&id) {
            lane.reported = tokens;
        }
    }

    /// How a replica's prompts are counted here and there, as its replies have told.
    pub fn prompt_scale(&self, id: ReplicaId) -> PromptScale {
        self.router.lanes.get(&id).map(|lane| lane.scale).unwrap_or_default()
    }

    /// Begins with what is known of how a replica counts prompts.
    pub fn set_prompt_scale(&mut self, id: ReplicaId, scale: PromptScale) {
        if let Some(lane) = self.router.lanes.get_mut(&id) {
            lane.scale = scale;
        }
    }

    /// Takes a replica out for good. Its unfinished rows move back; their requests are returned. Rows that it alone
    /// could hold wait for one like it for a while.
    pub fn remove_replica(&mut self, id: ReplicaId) -> Vec<RequestId> {
        let moved = self.set_health(id, Health::Down);
        let span = self.aside_span();
        if let Some(lane) = self.router.lanes.remove(&id) {
            self.departed.leave(lane.config.tokens_max, self.router.now, span);
        }
        moved
    }

    /// Says how a replica is. Down: its unfinished rows move back, and their requests are returned to be
    /// aborted; its cache counts as lost. Events of rows that may not be tried again come with
    /// [`Fleet::drain_events`].
    pub fn set_health(&mut self, id: ReplicaId, health: Health) -> Vec<RequestId> {
        let Some(lane) = self.router.lanes.get_mut(&id) else { return Vec::new() };
        let was = std::mem::replace(&mut lane.health, health);
        self.may_readmit |= health == Health::Up && was != Health::Up;
        if health != Health::Down || was == Health::Down {
            return Vec::new();
        }
        self.router.prefixes.forget(id);
        let lost = self.requests.iter().filter(|(_, flying)| flying.replica == id);
        let lost: Vec<RequestId> = lost.map(|(request, _)| *request).collect();
        for request in &lost {
            self.take_back(*request, "it went down", Cause::Down);
        }
        lost
    }

    /// Ends a row wherever it stands; its request where it runs.
    pub(crate) fn remove_row(&mut self, id: RelQueryId, number: u32) -> Option<(ReplicaId, RequestId)> {
        let row = self.queries.get_mut(&id)?.remove(number)?;
        self.rows -= 1;
        if let Some(until) = row.aside_until {
            self.aside.remove(&(until, id, number));
        }
        let request = row.request?;
        let flying = self.requests.remove(&request)?;
        self.router.end(&flying);
        Some((flying.replica, request))
    }

    /// Forgets a relQuery without rows.
    pub(crate) fn remove_query(&mut self, id: RelQueryId) -> Option<Box<Query>> {
        let query = self.queries.remove(&id)?;
        self.only_aside.remove(&id);
        if let Some(key) = query.key {
            self.waiting.remove(&key);
            self.tenants.place(query.tenant, Some(key), None);
        }
        self.tenants.leave(query.tenant);
        self.timers.set(id, None);
        Some(query)
    }

    /// Sets the time at which a relQuery to which rows were added has waited too long: it rises to the first
    /// class, or starves (Eq. 13), as the policy has it.
    pub(crate) fn set_timer(&mut self, id: RelQueryId) {
        let Some(query) = self.queries.get(&id) else { return };
        let is_fair = self.scheduler.is_fair();
        let settings = &self.scheduler.marginal_work;
        let starves = self.scheduler.unit_waiting_ms_max.filter(|_| self.scheduler.starves());
        let at = match (starves, query.class) {
            (Some(unit), _) => Some(starves_at(query.arrival, unit, query.submitted)),
            _ if !is_fair => None,
            (_, ServiceClass::Interactive) => None,
            (_, ServiceClass::Dashboard) => Some(query.arrival + Nanos::from(settings.dashboard_wait_ms_max)),
            (_, ServiceClass::Bulk) => Some(query.arrival + Nanos::from(settings.bulk_wait_ms_max)),
        };
        self.timers.set(id, at);
    }

    /// Gives a relQuery the priority that it has now, and puts it among the waiting ones or takes it out.
    pub(crate) fn place(&mut self, id: RelQueryId) {
        let scheduler = &self.scheduler;
        let pricing = Pricing::new(scheduler, &self.cost, &self.lengths, self.kept_permille, &self.router);
        let Some(query) = self.queries.get_mut(&id) else { return };
        let old = query.key;
        // What only runs keeps its place, by which others wait for it or not.
        pricing.update(query);
        query.breakdown.is_late = self.tail.is_late(query.class, id);
        query.key = (query.in_line() > 0).then(|| query.key_under(scheduler));
        self.router.in_flight.set(id, || query.running_view(scheduler));
        if query.key.is_none() && query.waiting() > 0 {
            self.only_aside.insert(id);
        } else {
            self.only_aside.remove(&id);
        }
        if old == query.key {
            return;
        }
        if let Some(old) = old {
            self.waiting.remove(&old);
        }
        self.waiting.extend(query.key);
        self.tenants.place(query.tenant, old, query.key);
    }

    /// Lets everything whose time has come take effect: what waited too long goes first.
    pub(crate) fn run_timers(&mut self, now: Time) {
        self.retries = self.retries.split_off(&(now + Nanos(1)));
        let starves = self.scheduler.starves();
        while let Some((at, id)) = self.timers.take_if(|at| at <= now) {
            match self.queries.get_mut(&id) {
                // One that started in time has stopped waiting, as Eq. 13 counts it.
                Some(query) if starves => query.is_promoted |= query.started.is_none_or(|began| began > at),
                Some(query) => query.class = ServiceClass::Interactive,
                None => {}
            }
            self.place(id);
        }
    }

    /// Lets what is late go first, under a policy that bounds latencies.
    pub(crate) fn bound_tail(&mut self, now: Time) {
        let limits = TailLimits {
            permille: self.config.tail_permille_max,
            late_permille: self.config.late_permille_max,
        };
        if limits.permille == 0 || !self.scheduler.policy.bounds_tail() || !self.tail.is_due(now) {
            return;
        }
        let open = self.queries.iter().map(|(id, query)| OpenWork {
            id: *id,
            class: query.class,
            arrival: query.arrival,
            work: query.breakdown.work(),
            has_waiting: query.in_line() > 0,
        });
        let open: Vec<OpenWork> = open.collect();
        if self.tail.look(now, limits, &open, &self.cost) {
            for one in open {
                self.place(one.id);
            }
        }
    }

    /// Ends relQueries whose last row was cancelled, and tells of rows that failed with their replica.
    pub fn drain_events(&mut self, now: Time) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.pending);
        for id in std::mem::take(&mut self.emptied) {
            events.extend(self.close_if_done(id, now));
        }
        events
    }
}

/// Tokens of a row that becomes as long as it may.
pub(crate) fn tokens_max(item: &WorkItem) -> u64 {
    (item.prompt.len() as u64).saturating_add(item.generation.output_max.0)
}
