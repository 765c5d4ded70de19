//! When rows wait although a replica has room: the transitional case of RelServe's batch arranger (section 4.3)
//! for a queue that decides when to send.
//!
//! A row that joins rows of other relQueries at a replica slows them down, and saves steps of its own. The policy
//! weighs the two ([`Rules::sends`](crate::policy::rules::Rules)), by the replica's fitted cost; until that is known
//! nothing is held back. What of a row is done by now is told by time, for replies come whole; a row that should
//! have ended holds nobody back.

use base::{Nanos, RelQueryId, ServiceClass, Time, TokenCount};

use super::Fleet;
use super::cache_reports::uncached;
use super::config::ReplicaId;
use super::query::{Query, RowLoad};
use super::router::Lane;
use super::rows_at::RowsAtReplica;
use crate::arrange::Candidate;
use crate::cost::CostModel;
use crate::policy::marginal_work::joins::{Joining, Left};
use crate::policy::transition::Transition;
use crate::priority::RelQueryKey;

impl Fleet {
    /// Output tokens that a row has by now that a replica runs, as the replica's fitted costs tell; at most as many as it may,
    /// and all of these until the costs are known. `None`: it runs nowhere.
    pub fn estimated_output(&self, id: RelQueryId, row: u32, now: Time) -> Option<TokenCount> {
        let row = self.queries.get(&id)?.row(row)?;
        let flying = self.requests.get(&row.request?)?;
        let lane = self.router.lanes.get(&flying.replica)?;
        let most = row.item.generation.output_max;
        let Some(cost) = lane.cost else { return Some(most) };
        let sent = (u128::from(flying.sent_at.time.0), u128::from(flying.sent_at.prompts));
        Some(TokenCount(generated_since(sent, lane, (&cost, now))).min(most))
    }

    /// Lets rows go to every replica with room.
    pub(super) fn release(&mut self) {
        // None is held without an instant at which it no longer is.
        if self.held_until.take().is_some() {
            self.router.lanes.values_mut().for_each(|lane| lane.is_held = false);
        }
        self.decision.held = None;
    }

    /// Says of each replica whether rows of the first waiting relQuery wait for those that run there; whether of any.
    pub(super) fn weigh(&mut self, first: RelQueryKey, now: Time) -> bool {
        let Some(sends) = self.scheduler.policy.rules().sends else { return false };
        let has_room = |lane: &Lane| lane.rows > 0 && !lane.plans_itself && lane.takes(RowLoad::default());
        let lanes = self.router.lanes.iter().filter(|(_, lane)| has_room(lane));
        let held = lanes.filter_map(|(id, lane)| Some((*id, self.held_until(sends, first, lane, now)?)));
        let held: Vec<(ReplicaId, Time)> = held.collect();
        self.held_until = held.iter().map(|(_, until)| *until).min();
        for (id, _) in held {
            if let Some(lane) = self.router.lanes.get_mut(&id) {
                lane.is_held = true;
            }
        }
        self.held_until.is_some()
    }

    /// Until when rows of a relQuery wait for what runs at a replica, if nothing happens before; none: they go.
    fn held_until(
        &self,
        sends: fn(&Transition<'_>) -> bool,
        key: RelQueryKey,
        lane: &Lane,
        now: Time,
    ) -> Option<Time> {
        let query = self.queries.get(&key.id)?;
        let cost = lane.cost?;
        let (mut ahead, mut is_lower) = (Left::default(), false);
        let mut running = Vec::with_capacity(lane.rows as usize);
        for (_, rows) in lane.at().filter(|(other, _)| *other != key.id) {
            let other = self.router.in_flight.view(rows.index);
            let (mean, last) = generated(rows, lane, (&cost, now));
            let most = other.output_max;
            // All of its rows should have ended.
            if last >= most {
                continue;
            }
            running.push(most);
            let is_higher = other.class < key.class;
            is_lower |= is_higher;
            // Nobody waits for one of several bulk relQueries: they run together.
            let counts = key.class != ServiceClass::Bulk || is_higher;
            if counts && other.key < key {
                let expected = other.expected(&self.lengths);
                ahead = ahead.and(Left {
                    relqueries: 1,
                    rows: rows.rows.into(),
                    output: u64::from(rows.rows) * expected.remaining(mean.min(most), most),
                    steps: most - last,
                });
            }
        }
        if ahead.relqueries == 0 {
            return None;
        }
        let transition = Transition {
            cost: &cost,
            settings: &self.scheduler.marginal_work,
            reading: self.scheduler.paper_variant.delta,
            ahead,
            running: &running,
            is_lower,
            candidate: candidate(query, lane, self.kept_permille),
            joining: self.joining(query, lane),
            waiting: self.waiting.len() as u64,
        };
        let left = ahead.steps.max(1).saturating_mul(step(&cost, lane));
        (!sends(&transition)).then(|| now + Nanos(left.max(1)))
    }

    /// The first waiting relQuery, as policy `marginal-work` sees it.
    fn joining(&self, query: &Query, lane: &Lane) -> Joining {
        let output = query.expected(&self.lengths).remaining(0, query.output_max());
        let behind = (self.waiting.len() as u64).saturating_sub(1);
        // While the replicas are busy as many will still come as have come since they were.
        let later = self.arrived * (behind + 1) / (self.queries.len() as u64).max(1);
        Joining {
            rows: fitting(query, lane, u64::from(lane.config.rows_max)),
            beside: lane.rows.into(),
            output,
            steps: query.output_max(),
            behind: behind + later,
            hidden_permille: 0,
        }
    }
}

/// Output tokens that a row has by now, in the mean and of the last.
fn generated(rows: &RowsAtReplica, lane: &Lane, at: (&CostModel, Time)) -> (u64, u64) {
    let (sent, last_sent) = (rows.mean(), rows.last());
    let last = generated_since(last_sent, lane, at);
    // The only row was the last that was sent, unless that has ended.
    let mean = if sent == last_sent { last } else { generated_since(sent, lane, at) };
    (mean, last)
}

/// Output tokens that a row has by now that was sent then, ns, when its replica had been sent so many prompt tokens: the
/// steps since, less the time of the prompts that came since.
fn generated_since((sent, prompts): (u128, u128), lane: &Lane, (cost, now): (&CostModel, Time)) -> u64 {
    let elapsed = u128::from(now.0).saturating_sub(sent);
    let computed = u128::from(lane.clock.prompts()).saturating_sub(prompts);
    let decoding = elapsed.saturating_sub(computed * u128::from(cost.prefill_per_token.0));
    let step = step(cost, lane).max(1);
    // Nearly always; a division of 128 bits takes several times as long.
    match u64::try_from(decoding) {
        Ok(decoding) => decoding / step,
        Err(_) => u64::try_from(decoding / u128::from(step)).unwrap_or(u64::MAX),
    }
}

/// Time of a decode step with the rows that a replica has, in ns.
fn step(cost: &CostModel, lane: &Lane) -> u64 {
    cost.decode_base.0 + cost.decode_per_sequence.0 * u64::from(lane.rows)
}

/// Waiting rows of a relQuery that may be sent, as many as `room` has places.
fn fitting(query: &Query, lane: &Lane, room: u64) -> u64 {
    let waiting = query.waiting() as u64;
    let mean = (query.waiting_prompts() / waiting.max(1) + query.output_max()).max(1);
    let tokens = lane.kv_tokens().map_or(u64::MAX, |tokens| tokens / mean);
    (query.in_line() as u64).min(room).min(tokens).max(1)
}

/// What would be sent now, where caches have so much of what is remembered.
fn candidate(query: &Query, lane: &Lane, kept_permille: u64) -> Candidate {
    let room = u64::from(lane.config.rows_max.saturating_sub(lane.rows));
    let rows = fitting(query, lane, room);
    let uncached = uncached(query.novel(), query.waiting_prompts(), kept_permille);
    let uncached = uncached * rows / (query.waiting() as u64).max(1);
    Candidate { uncached: TokenCount(uncached), rows, output_max: query.output_max() }
}
