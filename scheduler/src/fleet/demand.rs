//! What a gateway tells others that share its replicas: what it holds of each, and which rows it has for it.

use std::collections::BTreeMap;

use base::{RelQueryId, ServiceClass, Time, TokenCount};

use super::Fleet;
use super::config::{Health, ReplicaId};
use super::division::{Load, QueueStretch, ReplicaShare};
use super::query::{FleetRow, Query, load};
use super::router::Lane;
use crate::priority::RelQueryKey;

/// Waiting relQueries that are told one by one; what is behind them counts as one more.
const RELQUERIES_MAX: usize = 48;
/// Stretches of the queue for one replica.
const STRETCHES_MAX: usize = 16;

/// What a gateway holds of a replica and has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaDemand {
    pub replica: ReplicaId,
    /// What it has in flight, or may have until its share changes: the greater.
    pub held: Load,
    /// What it has for the replica, first things first, as far as the replica could run it all at once.
    pub queue: Vec<QueueStretch>,
}

/// RelQueries of the queue.
struct QueuedRelQuery {
    /// As urgent as whatever it goes before.
    key: RelQueryKey,
    /// Rows that wait, of this relQuery and for all replicas.
    waiting: u64,
    /// Tokens of the largest of them, about.
    row_tokens: u64,
}

/// Rows in flight of one relQuery on one replica, and the tokens of the largest.
type InFlight = BTreeMap<(RelQueryId, ReplicaId), (u32, u64)>;

impl Fleet {
    /// What this gateway may use of a replica that others use too; `None`: all of it. If it has more in flight,
    /// it gets nothing until it has not. What the replica *is* stays as configured: by that rows are priced and
    /// refused, on every gateway alike.
    pub fn set_share(&mut self, id: ReplicaId, share: Option<ReplicaShare>) {
        if let Some(lane) = self.router.lanes.get_mut(&id) {
            lane.share = share;
        }
    }

    /// The relQuery that waits first while a replica has room that this gateway may not use.
    pub fn held_back(&self) -> Option<RelQueryId> {
        let first = self.waiting.first()?;
        self.router.lanes.values().any(Lane::is_held_back).then_some(first.id)
    }

    /// What it holds of each replica that it shares, and what it has for it. The waiting rows count for each
    /// replica by its part of what can run.
    pub fn demand(&self) -> Vec<ReplicaDemand> {
        let lanes = &self.router.lanes;
        let mut shared = lanes.iter().filter_map(|(id, lane)| Some((*id, lane, lane.share?))).peekable();
        if shared.peek().is_none() {
            return Vec::new();
        }
        let flying = self.in_flight();
        let queued = self.queued(&flying);
        let up = lanes.values().filter(|lane| lane.health == Health::Up);
        let rows_all: u64 = up.map(|lane| u64::from(lane.config.rows_max)).sum();
        let demand = |(replica, lane, share): (ReplicaId, &Lane, ReplicaShare)| {
            let part = if lane.health == Health::Up { u64::from(lane.config.rows_max) } else { 0 };
            let flying = |id| flying.get(&(id, replica)).copied().unwrap_or_default();
            let tokens = share.tokens.map_or(lane.tokens, |tokens| tokens.0.max(lane.tokens));
            ReplicaDemand {
                replica,
                held: Load { rows: share.rows.max(lane.rows), tokens: TokenCount(tokens) },
                queue: stretches(&queued, flying, (part, rows_all.max(1)), lane.config.rows_max),
            }
        };
        shared.map(demand).collect()
    }

    fn in_flight(&self) -> InFlight {
        let mut flying = InFlight::new();
        for row in self.requests.values() {
            let (rows, largest) = flying.entry((row.relquery, row.replica)).or_default();
            *rows += 1;
            *largest = row.tokens.max(*largest);
        }
        flying
    }

    /// The queue in order: the first that wait, what is only in flight, and all the rest as one.
    fn queued(&self, flying: &InFlight) -> Vec<QueuedRelQuery> {
        let keys = self.first_keys(RELQUERIES_MAX);
        let waits = |(place, key): (usize, &RelQueryKey)| {
            let query = self.queries.get(&key.id)?;
            let row_tokens = self.row_tokens(query, place == 0);
            Some(QueuedRelQuery { key: *key, waiting: query.in_line() as u64, row_tokens })
        };
        let mut queued: Vec<QueuedRelQuery> = keys.iter().enumerate().filter_map(waits).collect();
        // A tenant that lags goes before its key: it is as urgent as those that wait for it.
        for place in (1..queued.len()).rev() {
            let (class, priority, arrival) = order(&queued[place].key);
            let before = &mut queued[place - 1].key;
            if (class, priority, arrival) < order(before) {
                (before.class, before.priority, before.arrival) = (class, priority, arrival);
            }
        }
        let listed: u64 = queued.iter().map(|one| one.waiting).sum();
        let rest =
            (self.rows as u64).saturating_sub((self.requests.len() + self.aside.len()) as u64 + listed);
        if let Some((key, row_tokens)) = queued.last().map(|last| (last.key, last.row_tokens))
            && rest > 0
        {
            queued.push(QueuedRelQuery {
                key: RelQueryKey { id: RelQueryId(u64::MAX), ..key },
                waiting: rest,
                row_tokens,
            });
        }
        let mut last = None;
        for (id, _) in flying.keys().filter(|(id, _)| last.replace(*id) != Some(*id)) {
            if !keys.iter().any(|key| key.id == *id)
                && let Some(query) = self.queries.get(id)
            {
                let key = query.key_under(&self.scheduler);
                queued.push(QueuedRelQuery { key, waiting: 0, row_tokens: 0 });
            }
        }
        queued.sort_by_key(|one| one.key);
        queued
    }

    /// Tokens of a relQuery's largest waiting row, or of a usual one. The first relQuery's must be enough for
    /// any of its rows, or that would wait for ever.
    fn row_tokens(&self, query: &Query, is_exact: bool) -> u64 {
        let output = query.expected(&self.lengths);
        let in_line = |row: &&FleetRow| row.request.is_none() && row.aside_until.is_none();
        let waiting = query.rows().filter(in_line);
        match is_exact {
            true => waiting.map(|row| load(&row.item, output)).max().unwrap_or(0),
            false => {
                let prompt = query.waiting_prompts().div_ceil(query.waiting().max(1) as u64);
                prompt.saturating_add(output.remaining(0, query.output_max()))
            }
        }
    }
}

/// What two keys are compared by, across gateways.
fn order(key: &RelQueryKey) -> (ServiceClass, u64, Time) {
    (key.class, key.priority, key.arrival)
}

/// The queue for a replica that runs `part` of `all` rows, up to `rows_max`.
fn stretches(
    queued: &[QueuedRelQuery],
    flying: impl Fn(RelQueryId) -> (u32, u64),
    (part, all): (u64, u64),
    rows_max: u32,
) -> Vec<QueueStretch> {
    let mut stretches: Vec<QueueStretch> = Vec::new();
    let (mut waiting, mut taken, mut rows_all) = (0, 0, 0_u32);
    for one in queued {
        waiting += one.waiting;
        let upto = (waiting * part).div_ceil(all);
        let (in_flight, largest) = flying(one.key.id);
        let rows = u32::try_from(upto - taken).unwrap_or(u32::MAX).saturating_add(in_flight);
        taken = upto;
        if rows == 0 {
            continue;
        }
        let row_tokens = TokenCount(largest.max(one.row_tokens));
        rows_all = rows.saturating_add(rows_all);
        let is_full = stretches.len() == STRETCHES_MAX;
        match stretches.last_mut().filter(|_| is_full) {
            Some(last) => {
                last.rows = last.rows.saturating_add(rows);
                last.row_tokens = last.row_tokens.max(row_tokens);
            }
            None => {
                let (class, priority, arrival) = order(&one.key);
                stretches.push(QueueStretch { class, priority, arrival, rows, row_tokens });
            }
        }
        if rows_all >= rows_max {
            break;
        }
    }
    stretches
}
