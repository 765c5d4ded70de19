//! What is held at this moment, for somebody who looks: the queue with its priorities, whose blocks are held,
//! whose the step in flight is. Nothing here decides anything, and nothing is kept for it.
//!
//! A snapshot walks what runs and lists a bounded part of what waits: it is made a few times a second, and
//! only while somebody looks.

use std::collections::BTreeMap;

use base::{Nanos, RelQueryId, Sees, ServiceClass, TenantId, Time};

use crate::Scheduler;
use crate::breakdown::PriorityBreakdown;
use crate::row::{Row, RowState};
use crate::truncated::Truncated;

/// A relQuery as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelQueryStatus {
    pub id: RelQueryId,
    pub tenant: TenantId,
    /// Its class as it counts now.
    pub class: ServiceClass,
    /// When it arrived.
    pub arrival: Time,
    /// Start of its first prefill.
    pub started: Option<Time>,
    /// End of the last step that completed a prompt of it.
    pub prefilled: Option<Time>,
    pub rows: RowCounts,
    /// Prio(R): time, or in a fleet prompt tokens or their like.
    pub priority: u64,
    /// What that is made of; a fleet keeps no parts.
    pub breakdown: Option<PriorityBreakdown>,
    /// Whether it was computed for the last step, and not reused (RelServe, Eq. 12).
    pub is_new: bool,
}

/// Where the rows of a relQuery are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// Ever submitted.
    pub submitted: u64,
    /// They hold nothing.
    pub waiting: u64,
    /// Their prompts are partly computed.
    pub prefilling: u64,
    /// They decode; in a fleet, they are with a replica.
    pub running: u64,
}

impl RowCounts {
    /// Rows that ended, failed or were called off.
    pub fn ended(&self) -> u64 {
        self.submitted.saturating_sub(self.waiting + self.prefilling + self.running)
    }
}

/// In which of the three periods of Eq. 2 a relQuery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// Before its first prefill.
    Waiting,
    /// Prompts of it are to be computed.
    Core,
    /// Only decodes are left.
    Tail,
}

impl RelQueryStatus {
    /// In which period it is. One that gets more rows in its tail is in its core again.
    pub fn period(&self) -> Period {
        match (self.started, self.rows.waiting + self.rows.prefilling) {
            (None, _) => Period::Waiting,
            (_, 0) => Period::Tail,
            _ => Period::Core,
        }
    }
}

/// Blocks of the pool by what they hold; they add up to the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Held by one row.
    pub private: u32,
    /// Held by several rows, as the ordinary beginning of their prompts.
    pub shared: u32,
    /// Held by rows, in sections that see nothing before them (modules and spans).
    pub independent: u32,
    /// Held by pins alone.
    pub pinned: u32,
    /// Held by nobody; their content can be hit.
    pub cached: u32,
    /// Empty.
    pub free: u32,
}

/// What is held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedulerSnapshot {
    /// Those that run in the order of their keys, then those that only wait in the order in which they are
    /// offered.
    pub relqueries: Truncated<RelQueryStatus>,
    /// The pool.
    pub blocks: BlockCounts,
    /// Blocks that rows of each tenant hold; tenants never share one.
    pub tenants: Vec<(TenantId, u32)>,
}

/// A relQuery that begins, and whom it leaves waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// As its first step was planned.
    pub first: RelQueryStatus,
    /// Of those with rows that wait, the one with the most, as far as was looked.
    pub rival: Option<RelQueryStatus>,
}

/// RelQueries that run, and of those that wait, among which a rival is looked for.
pub(crate) const RIVALS_MAX: usize = 64;

/// The relQuery with the most rows that wait, among those that `counts` accepts.
pub(crate) fn most_waiting(
    all: &[RelQueryStatus],
    counts: impl Fn(&RelQueryStatus) -> bool,
) -> Option<RelQueryStatus> {
    let open = all.iter().filter(|one| one.rows.waiting > 0 && counts(one));
    open.max_by_key(|one| (one.rows.waiting, std::cmp::Reverse(one.arrival))).copied()
}

/// A tenant's part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantPart {
    pub tenant: TenantId,
    /// Rows whose prompts are computed, wholly or in part.
    pub prefill_rows: u32,
    /// Prompt tokens computed.
    pub prefill_tokens: u64,
    pub decode_rows: u32,
    /// What its rows take of the machine, by the cost model; only the ratio to the others' says something.
    pub work: Nanos,
}

impl Scheduler {
    /// Whose a relQuery is.
    pub fn tenant_of(&self, id: RelQueryId) -> Option<TenantId> {
        self.relqueries.get(&id).map(|relquery| relquery.tenant)
    }

    /// Whose the step in flight is; nothing where none is.
    pub fn parts(&self) -> Vec<TenantPart> {
        let mut parts: Vec<TenantPart> = Vec::new();
        let Some(flight) = &self.steps.flight else { return parts };
        let slots = flight.slots.len() as u64;
        let mut owner = None;
        for slot in &flight.slots {
            if owner.is_none_or(|(id, _)| id != slot.relquery) {
                owner = self.tenant_of(slot.relquery).map(|tenant| (slot.relquery, tenant));
            }
            let Some((_, tenant)) = owner else { continue };
            // Slots come by relQuery, so the last part is mostly the right one.
            let known = parts.iter().rposition(|part| part.tenant == tenant);
            let place = known.unwrap_or_else(|| {
                let (prefill_rows, prefill_tokens, decode_rows, work) = (0, 0, 0, Nanos(0));
                parts.push(TenantPart { tenant, prefill_rows, prefill_tokens, decode_rows, work });
                parts.len() - 1
            });
            let part = &mut parts[place];
            if slot.is_prefill {
                part.prefill_rows += u32::from(slot.leads);
                part.prefill_tokens += u64::from(slot.end - slot.start);
            } else {
                part.decode_rows += 1;
            }
            part.work = Nanos(part.work.0.saturating_add(self.time_of(slot, slots).0));
        }
        parts
    }

    /// What is held, with the first `most` relQueries.
    pub fn snapshot(&self, most: usize) -> SchedulerSnapshot {
        let running = self.queues.running.iter().map(|key| key.id);
        let lag = Nanos::from(self.config.marginal_work.tenant_lag_ms_max);
        let by_share = self.queues.tenants.order(lag, most);
        let waiting = by_share.unwrap_or_else(|| self.queues.waiting.iter().take(most).copied().collect());
        let only_waits = |id: &RelQueryId| self.relqueries.get(id).is_some_and(|one| one.running.is_empty());
        let waiting = waiting.into_iter().map(|key| key.id).filter(only_waits);
        let listed: Vec<RelQueryStatus> =
            running.chain(waiting).filter_map(|id| self.status(id)).take(most).collect();
        let left_out = u32::try_from(self.relqueries.len() - listed.len()).unwrap_or(u32::MAX);
        let (blocks, tenants) = self.held_blocks();
        SchedulerSnapshot { relqueries: Truncated { listed, left_out }, blocks, tenants }
    }

    /// The relQueries whose first rows are in the step in flight, each with the one that it left waiting.
    pub fn starts(&self) -> Vec<Start> {
        let Some(flight) = &self.steps.flight else { return Vec::new() };
        let planned = Some(self.telemetry.decision.now);
        let mut ids: Vec<RelQueryId> = Vec::new();
        for slot in flight.slots.iter().filter(|slot| slot.is_new) {
            let is_first = self.relqueries.get(&slot.relquery).is_some_and(|one| one.started == planned);
            if is_first && !ids.contains(&slot.relquery) {
                ids.push(slot.relquery);
            }
        }
        if ids.is_empty() {
            return Vec::new();
        }
        let running = self.queues.running.iter().map(|key| key.id).take(RIVALS_MAX);
        let waiting = self.queues.waiting.iter().map(|key| key.id).take(RIVALS_MAX);
        let looked: Vec<RelQueryStatus> = running.chain(waiting).filter_map(|id| self.status(id)).collect();
        let start = |id| {
            let rival = most_waiting(&looked, |one| one.id != id);
            Some(Start { first: self.status(id)?, rival })
        };
        ids.into_iter().filter_map(start).collect()
    }

    fn status(&self, id: RelQueryId) -> Option<RelQueryStatus> {
        let relquery = self.relqueries.get(&id)?;
        let partials = relquery.running.iter().filter(|index| !relquery.row(**index).is_running()).count();
        Some(RelQueryStatus {
            id,
            tenant: relquery.tenant,
            class: relquery.class,
            arrival: relquery.arrival,
            started: relquery.started,
            prefilled: relquery.prefilled,
            rows: RowCounts {
                submitted: relquery.rows_submitted,
                waiting: relquery.waiting_len() as u64,
                prefilling: partials as u64,
                running: (relquery.running.len() - partials) as u64,
            },
            priority: relquery.priority.unwrap_or(0),
            breakdown: Some(relquery.breakdown),
            is_new: relquery.priced_for == base::StepId(self.steps.next_step - 1),
        })
    }

    /// Blocks by what they hold and by whose rows hold them, each counted once.
    fn held_blocks(&self) -> (BlockCounts, Vec<(TenantId, u32)>) {
        let mut seen = vec![false; self.kv.ledger.total() as usize];
        let mut blocks = BlockCounts {
            cached: self.kv.ledger.cached(),
            free: self.kv.ledger.free(),
            ..BlockCounts::default()
        };
        let mut tenants: BTreeMap<TenantId, u32> = BTreeMap::new();
        for (id, index) in self.running_rows() {
            let relquery = &self.relqueries[&id];
            let row = relquery.row(index);
            debug_assert!(row.state != RowState::Waiting, "waiting rows hold nothing");
            let mut held = 0;
            for (block, is_independent) in chains(row) {
                if std::mem::replace(&mut seen[block as usize], true) {
                    continue;
                }
                held += 1;
                let kind = match (is_independent, self.kv.ledger.holders(base::BlockId(block))) {
                    (true, _) => &mut blocks.independent,
                    (false, 1) => &mut blocks.private,
                    (false, _) => &mut blocks.shared,
                };
                *kind += 1;
            }
            *tenants.entry(relquery.tenant).or_default() += held;
        }
        let used = self.kv.ledger.total() - self.kv.ledger.available();
        blocks.pinned = used - (blocks.private + blocks.shared + blocks.independent);
        (blocks, tenants.into_iter().collect())
    }
}

/// The blocks of a row, and whether each belongs to an independent section.
fn chains(row: &Row) -> impl Iterator<Item = (u32, bool)> + '_ {
    let parts = row.parts.iter().flat_map(|part| {
        let is_independent = part.section.sees != Sees::Before;
        part.chain.blocks.iter().map(move |block| (block.0, is_independent))
    });
    parts.chain(row.own.blocks.iter().map(|block| (block.0, false)))
}

#[cfg(test)]
mod tests {
    use base::Submission;

    use super::*;
    use crate::common::{Memory, item, submission};
    use crate::{CostModel, Policy, SchedulerConfig};

    fn scheduler(policy: Policy) -> Scheduler {
        let config = SchedulerConfig { policy, kv_blocks: 60, block_tokens: 2, ..SchedulerConfig::default() };
        Scheduler::new(config, CostModel::default()).expect("a valid configuration")
    }

    /// Rows that share six tokens.
    fn rows(count: u32, seed: u64) -> Vec<base::WorkItem> {
        let prompt = |row: u32| (0..6).chain([100 + row, 200 + row, 300 + row]).collect();
        (0..count).map(|row| item(row, prompt(row), 6, seed + u64::from(row))).collect()
    }

    #[test]
    fn blocks_by_kind_add_up_to_the_pool_and_those_of_tenants_to_what_rows_hold() {
        for policy in Policy::ALL {
            let mut scheduler = scheduler(policy);
            let mut memory = Memory::new(2);
            for id in 1..=4 {
                let items = rows(3, id * 10);
                memory.know(&items);
                let tenant = TenantId(id % 2);
                let taken = scheduler.submit(Submission {
                    tenant,
                    scope: u128::from(id % 2),
                    ..submission(id, id, items)
                });
                assert_eq!(taken, Ok(()));
            }
            let mut shared = 0;
            for now in 10..1_000 {
                let Some(plan) = scheduler.plan(Time(now)) else { break };
                let snapshot = scheduler.snapshot(100);
                let BlockCounts { private, shared: some, independent, pinned, cached, free } =
                    snapshot.blocks;
                shared = shared.max(some);
                assert_eq!(private + some + independent + pinned + cached + free, 60, "{policy}");
                let held: u32 = snapshot.tenants.iter().map(|(_, blocks)| blocks).sum();
                assert_eq!(held, private + some + independent, "{policy}");
                assert_eq!(snapshot.relqueries.listed.len(), scheduler.stats().relqueries as usize);
                let parts = scheduler.parts();
                let (tokens, decodes) = parts.iter().fold((0, 0), |(tokens, decodes), part| {
                    (tokens + part.prefill_tokens, decodes + u64::from(part.decode_rows))
                });
                assert_eq!((tokens, decodes), (plan.prefill_tokens().0, plan.decode_sequences()), "{policy}");
                scheduler.apply(&memory.step(&plan), Time(now));
            }
            assert!(shared > 0, "{policy}: rows with one beginning share it");
            assert!(scheduler.is_idle() && scheduler.parts().is_empty());
        }
    }

    #[test]
    fn a_relquery_passes_through_the_three_periods_and_the_list_is_bounded() {
        let mut scheduler = scheduler(Policy::RelServe);
        let mut memory = Memory::new(2);
        for id in 1..=5 {
            let items = rows(1, id * 10);
            memory.know(&items);
            assert_eq!(scheduler.submit(submission(id, id, items)), Ok(()));
        }
        let snapshot = scheduler.snapshot(2);
        assert_eq!((snapshot.relqueries.listed.len(), snapshot.relqueries.left_out), (2, 3));
        assert!(snapshot.relqueries.listed.iter().all(|one| one.period() == Period::Waiting));
        let plan = scheduler.plan(Time(7)).expect("rows wait");
        let first = scheduler.snapshot(9).relqueries.listed[0];
        assert_eq!((first.period(), first.started), (Period::Core, Some(Time(7))));
        scheduler.apply(&memory.step(&plan), Time(9));
        let first = scheduler.snapshot(9).relqueries.listed[0];
        assert_eq!((first.period(), first.prefilled), (Period::Tail, Some(Time(9))));
        assert_eq!(scheduler.tenant_of(first.id), Some(first.tenant));
    }

    #[test]
    fn a_relquery_that_begins_is_told_with_the_one_that_it_leaves_waiting() {
        let config = SchedulerConfig {
            policy: Policy::RelServe,
            kv_blocks: 400,
            block_tokens: 2,
            sequences_max: 2,
            ..SchedulerConfig::default()
        };
        let mut scheduler = Scheduler::new(config, CostModel::default()).expect("a valid configuration");
        let mut memory = Memory::new(2);
        for (id, count) in [(1, 30), (2, 2)] {
            let items = rows(count, id * 100);
            memory.know(&items);
            assert_eq!(scheduler.submit(submission(id, id, items)), Ok(()));
        }
        assert!(scheduler.starts().is_empty(), "nothing is planned");
        let plan = scheduler.plan(Time(7)).expect("rows wait");
        let starts = scheduler.starts();
        assert_eq!(starts.len(), 1, "there is room for two rows alone");
        let (first, rival) = (starts[0].first, starts[0].rival.expect("the other waits"));
        assert_eq!((first.id, rival.id), (RelQueryId(2), RelQueryId(1)), "the short one goes first");
        assert_eq!((rival.rows.waiting, rival.arrival < first.arrival), (30, true));
        let work = |one: &RelQueryStatus| one.breakdown.map(|breakdown| breakdown.work());
        assert!(work(&first) < work(&rival), "less work is left of it");
        scheduler.apply(&memory.step(&plan), Time(9));
        assert!(scheduler.starts().is_empty(), "the step is over");
    }
}
