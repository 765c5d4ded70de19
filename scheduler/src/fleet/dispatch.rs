//! Which row goes to which replica next.
//!
//! The first waiting relQuery decides, by class, then its tenant's share, then what is left of it. Of its
//! rows a replica takes one whose beginning it was sent before; else one that no replica knows goes to the
//! least loaded; else the largest group is shared. Among bulk relQueries, where nobody waits for a single
//! one, the first few are looked at together, so that a prefix stays where it is across them. If the first
//! row finds no room, nothing overtakes it, unless no replica in service could ever hold it.

use base::{Nanos, RelQueryId, RequestId, ServiceClass, Submission, TenantId, Time, WorkItem};

use super::config::ReplicaId;
use super::query::{FleetRow, Query, RowLoad};
use super::router::Kept;
use super::{Fleet, Flying, intake};
use crate::kv::BlockKey;
use crate::priority::RelQueryKey;

/// Bits of a priority in a rank; 2^59 ns are 18 years.
const RANK_BITS: u32 = 59;
/// RelQueries that are looked at behind those whose rows wait for another replica than the one with room.
const PARKED_MAX: usize = 64;

/// A row for a replica.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispatch {
    /// Where it runs.
    pub replica: ReplicaId,
    /// What it is called from now on; a row that moves to another replica gets another.
    pub request: RequestId,
    /// Its relQuery; with the item's row number, where its results go.
    pub relquery: RelQueryId,
    /// The row.
    pub item: WorkItem,
    /// vLLM's `priority`, lower is earlier: service class, then remaining work.
    pub rank: i64,
    /// Whose it is.
    pub tenant: TenantId,
    /// The tenant's share.
    pub weight: u32,
    /// Prefix-cache namespace.
    pub scope: u128,
    /// Who waits, as submitted.
    pub class: ServiceClass,
    /// When its relQuery arrived.
    pub arrival: Time,
    /// When its answer is no longer waited for.
    pub deadline: Option<Time>,
    /// Leading prompt tokens that the replica was sent before, and may have in its cache.
    pub seen_tokens: u64,
}

impl Dispatch {
    /// The relQuery with this row, for a replica that is an engine behind its own [`crate::Scheduler`].
    pub fn into_submission(self) -> Submission {
        let Self { relquery: id, tenant, weight, scope, class, arrival, deadline, item, .. } = self;
        Submission { id, tenant, weight, scope, class, arrival, deadline, items: vec![item] }
    }
}

/// Why a row went where it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// A replica failed under it: it goes first, to another.
    Again,
    /// The replica was sent its beginning before.
    Seen,
    /// No replica was: it goes to the least loaded.
    Fresh,
    /// Those that were are loaded beyond the slack, or full.
    Shared,
}

/// A choice: whose row, which replica, why.
pub(super) type Pick = (RelQueryId, u32, ReplicaId, Why);

impl Fleet {
    /// Sends rows out for as long as a replica has room. Call it whenever something has changed.
    pub fn dispatch(&mut self, now: Time) -> Vec<Dispatch> {
        self.router.now = self.router.now.max(now);
        self.run_timers(now);
        self.readmit(now);
        self.end_aside(now);
        self.bound_tail(now);
        let mut sent = Vec::new();
        self.decision.begin(now);
        while let Some(pick) = self.pick(now) {
            sent.extend(self.launch(pick, now));
        }
        sent
    }

    /// The next row and its replica.
    fn pick(&mut self, now: Time) -> Option<Pick> {
        loop {
            self.release();
            if !self.router.has_room() {
                return None;
            }
            let keys = self.candidates(now);
            let first = *keys.first()?;
            let is_held = self.weigh(first, now);
            self.decision.held = is_held.then_some(first.id);
            let eligible = self.router.eligible(RowLoad::default(), None);
            if eligible.is_empty() {
                return None;
            }
            let again = keys.iter().find_map(|key| self.again(key.id, now));
            let picked = again.or_else(|| self.seen(&keys, &eligible));
            let picked = picked.or_else(|| keys.iter().find_map(|key| self.fresh(key.id, &eligible)));
            if picked.is_some() {
                return picked;
            }
            match self.shared(&keys, now) {
                Ok(picked) => return picked,
                Err((id, number)) => self.set_aside(id, number, now),
            }
        }
    }

    /// The relQueries of which one is served next: the first, and if it is bulk and not overdue those behind
    /// it.
    fn candidates(&self, now: Time) -> Vec<RelQueryKey> {
        let window = self.config.bulk_window as usize;
        let overdue = Nanos::from(self.config.bulk_overtaken_ms_max);
        let is_loose =
            |key: &RelQueryKey| key.class == ServiceClass::Bulk && now.since(key.arrival) < overdue;
        let mut keys = self.first_keys(1);
        let is_parked = keys.first().is_some_and(|key| self.is_parked(key.id, now));
        if is_parked || keys.first().is_some_and(is_loose) {
            keys = self.first_keys(window.max(PARKED_MAX));
            keys.retain(|key| !is_parked || !self.is_parked(key.id, now));
        }
        let Some(first) = keys.first().copied() else { return keys };
        keys.retain(|key| key.class == first.class);
        keys.truncate(if is_loose(&first) { window } else { 1 });
        keys
    }

    /// Whether all that waits of a relQuery waits for its time, or for another replica than the one with
    /// room, which failed under it.
    fn is_parked(&self, id: RelQueryId, now: Time) -> bool {
        let Some(query) = self.queries.get(&id) else { return false };
        let waits = |row: &FleetRow| {
            let load = self.load_of(id, row);
            self.router.eligible(load, row.avoid).is_empty() && !self.router.eligible(load, None).is_empty()
        };
        query.groups().len() == 0 && query.requeued(now).all(waits)
    }

    /// The first waiting relQueries.
    pub(super) fn first_keys(&self, most: usize) -> Vec<RelQueryKey> {
        let lag = Nanos::from(self.scheduler.marginal_work.tenant_lag_ms_max);
        let shares = self.scheduler.is_fair();
        let by_share = shares.then(|| self.tenants.order(lag, most)).flatten();
        by_share.unwrap_or_else(|| self.waiting.iter().take(most).copied().collect())
    }

    /// A row that was taken back.
    fn again(&self, id: RelQueryId, now: Time) -> Option<Pick> {
        let query = self.queries.get(&id)?;
        query.requeued(now).find_map(|row| {
            let open = self.router.eligible(self.load_of(id, row), row.avoid);
            let (replica, _) = self.router.route(&row.chain, &open)?;
            Some((id, row.item.row, replica, Why::Again))
        })
    }

    /// A row for a replica that was sent its beginning. First a group of which rows run there, for nothing
    /// evicts what is in use, and of those the one that was sent longest ago: so all of them stay in use.
    /// Else the one that was sent last.
    fn seen(&self, keys: &[RelQueryKey], eligible: &[ReplicaId]) -> Option<Pick> {
        let mut best: Option<(Kept, Pick)> = None;
        for key in keys {
            let Some((kept, group)) = self.group_seen(key.id, eligible) else { continue };
            if best.as_ref().is_none_or(|(other, _)| kept > *other)
                && let Some(pick) = self.first_of(key.id, group)
            {
                best = Some((kept, pick));
            }
        }
        best.map(|(_, pick)| pick)
    }

    /// The first row of a group, and the replica with room that was sent most of it.
    fn first_of(&self, id: RelQueryId, group: BlockKey) -> Option<Pick> {
        let row = self.queries.get(&id)?.first_of(group)?;
        let open = self.router.eligible(self.load_of(id, row), row.avoid);
        // The group's replica may have room for a row and not for this one.
        let (replica, depth) = self.router.route(&row.chain, &open)?;
        (depth > 0).then_some((id, row.item.row, replica, Why::Seen))
    }

    /// Of the groups of a relQuery the one whose beginning is kept best by one of these replicas.
    fn group_seen(&self, id: RelQueryId, eligible: &[ReplicaId]) -> Option<(Kept, BlockKey)> {
        let (query, router) = (self.queries.get(&id)?, &self.router);
        let groups = query.groups();
        let remembered: usize = eligible.iter().map(|replica| router.prefixes.len(*replica)).sum();
        if groups.len() <= remembered {
            let may = |replica: ReplicaId| eligible.contains(&replica);
            let kept = |group| Some((router.kept(group, router.prefixes.latest(group, may)?), group));
            return groups.filter_map(kept).max();
        }
        let known =
            eligible.iter().flat_map(|id| router.prefixes.of(*id).map(|(stamp, key)| (stamp, *id, key)));
        let known = known.filter(|(_, _, group)| query.has(*group));
        known.map(|(stamp, id, group)| (router.kept(group, (stamp, id)), group)).max()
    }

    /// A row whose beginning no replica was sent.
    fn fresh(&self, id: RelQueryId, eligible: &[ReplicaId]) -> Option<Pick> {
        let query = self.queries.get(&id)?;
        let group = query.groups().find(|group| self.router.prefixes.latest(*group, |_| true).is_none())?;
        let row = query.first_of(group)?;
        let open = self.router.eligible(self.load_of(id, row), row.avoid);
        let least = open.first().filter(|least| eligible.contains(least))?;
        Some((id, row.item.row, *least, Why::Fresh))
    }

    /// A row of the largest group, wherever there is room; `Ok(None)` where there is none now, the row where no
    /// replica in service will ever have it.
    fn shared(&self, keys: &[RelQueryKey], now: Time) -> Result<Option<Pick>, (RelQueryId, u32)> {
        let size = |key: &&RelQueryKey| self.query(key.id).map_or(0, Query::largest_len);
        // The first of the largest: `max_by_key` takes the last.
        let Some(id) = keys.iter().rev().max_by_key(size).map(|key| key.id) else { return Ok(None) };
        let Some(query) = self.queries.get(&id) else { return Ok(None) };
        let row = query.largest().and_then(|group| query.first_of(group));
        let Some(row) = row.or_else(|| query.requeued(now).next()) else { return Ok(None) };
        let load = self.load_of(id, row);
        if !self.router.serves(load.tokens) || !self.fits_known(intake::tokens_max(&row.item)) {
            return Err((id, row.item.row));
        }
        let open = self.router.eligible(load, row.avoid);
        let routed = self.router.route(&row.chain, &open);
        Ok(routed.map(|(replica, _)| (id, row.item.row, replica, Why::Shared)))
    }

    /// What a row takes up on a replica.
    pub(super) fn load_of(&self, id: RelQueryId, row: &FleetRow) -> RowLoad {
        self.queries.get(&id).map_or_else(RowLoad::default, |query| query.load_of(row, &self.lengths))
    }

    /// Sends a row.
    fn launch(&mut self, (id, number, replica, why): Pick, now: Time) -> Option<Dispatch> {
        let request = RequestId(self.next_request);
        let query = self.queries.get_mut(&id)?;
        let output = query.expected(&self.lengths);
        let row = query.row(number)?;
        let (item, load, group) = (row.item.clone(), query.load_of(row, &self.lengths), row.group);
        let known = |key: &&BlockKey| self.router.prefixes.latest(**key, |other| other == replica).is_some();
        let seen = row.chain.iter().take_while(known).count() as u64 * u64::from(self.config.prefix_block);
        let computed = (item.prompt.len() as u64).saturating_sub(seen).max(1);
        let view = query.running_view(&self.scheduler);
        let (sent_at, memory) =
            self.router.send((replica, id, view), (load, computed), &row.chain, row.group);
        let answered_before = self.router.answered(replica);
        let key = query.key;
        query.launch(number, request, now);
        let rank = rank(key.unwrap_or_else(|| query.key_under(&self.scheduler)));
        let dispatch = Dispatch {
            replica,
            request,
            relquery: id,
            item,
            rank,
            tenant: query.tenant,
            weight: query.weight,
            scope: query.scope,
            class: query.submitted_class,
            arrival: query.arrival,
            deadline: query.deadline,
            seen_tokens: seen,
        };
        self.next_request += 1;
        let output = output.remaining(0, dispatch.item.generation.output_max.0);
        let time = self.pricing().time_of(computed, output);
        self.tenants.charge(dispatch.tenant, time);
        self.requests.insert(
            request,
            Flying {
                relquery: id,
                row: number,
                replica,
                tokens: load.tokens,
                memory,
                seen,
                group,
                answered_before,
                sent_at,
                has_begun: false,
            },
        );
        self.decision.sent(&dispatch, why);
        self.counters.sent(why, seen);
        self.place(id);
        Some(dispatch)
    }
}

/// The rank of a key: its class, whether it is on time, its priority.
fn rank(key: RelQueryKey) -> i64 {
    let most = (1_u64 << RANK_BITS) - 1;
    let above = 2 * i64::from(key.class as u8) + i64::from(key.is_on_time);
    (above << RANK_BITS) + i64::try_from(key.priority.min(most)).unwrap_or(i64::MAX >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_orders_by_class_and_then_by_priority() {
        let key = |class, priority| RelQueryKey {
            class,
            is_on_time: true,
            priority,
            arrival: Time(0),
            id: RelQueryId(1),
        };
        let ranks = [
            rank(key(ServiceClass::Interactive, 5)),
            rank(key(ServiceClass::Interactive, u64::MAX)),
            rank(key(ServiceClass::Dashboard, 0)),
            rank(key(ServiceClass::Bulk, u64::MAX)),
        ];
        assert!(ranks.is_sorted_by(|a, b| a < b), "{ranks:?}");
    }
}
