//! Queue and memory in the live view, and what changed in the queue since a reader was told.

use std::collections::HashMap;

use base::RelQueryId;
use scheduler::snapshot::{Period, RelQueryStatus};
use scheduler::{SchedulerSnapshot, Stats};
use serde::Serialize;
use serving::live::{LiveSnapshot, why};
use serving::replicas::ReplicaView;

use super::{Audience, Called, at};
use crate::wire::public_ids;
use crate::wire::replica::{ReplicaCost, ReplicaKv};

/// Queue and memory.
#[derive(Debug, Serialize)]
pub struct SnapshotEvent {
    at_us: u64,
    /// The policy in force.
    policy: &'static str,
    /// Under `auto`, for operators: what the last choice was made by, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    choice: Option<String>,
    relqueries: Vec<RelQueryEvent>,
    /// Of others, or beyond those that were listed.
    others: Others,
    rows_waiting: u32,
    rows_running: u32,
    kv: Kv,
    prompt_tokens: u64,
    prefix_hit_tokens: u64,
    output_tokens: u64,
    steps: u64,
    preemptions: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    replicas: Vec<ReplicaSnapshot>,
}

#[derive(Debug, Serialize)]
struct Others {
    relqueries: u64,
    rows_waiting: u64,
    rows_running: u64,
}

/// Blocks by kind; they add up to `total`.
#[derive(Debug, Serialize)]
struct Kv {
    total: u32,
    private: u32,
    shared: u32,
    independent: u32,
    pinned: u32,
    cached: u32,
    free: u32,
    /// Blocks of the host tier that hold something; they are not of `total`.
    host: u32,
    /// Blocks of the host tier.
    host_total: u32,
    /// Blocks that rows hold, by tenant.
    held: Vec<Held>,
}

#[derive(Debug, Serialize)]
struct Held {
    tenant: String,
    blocks: u32,
}

/// A relQuery as it stands.
#[derive(Debug, Serialize)]
struct RelQueryEvent {
    id: String,
    #[serde(flatten)]
    called: Called,
    /// Its place: 1 is served first.
    place: usize,
    period: &'static str,
    arrival_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefilled_us: Option<u64>,
    rows: RowsEvent,
    /// Prio(R); the lower goes first.
    priority: u64,
    /// `ns`; `aged`: work made less by waiting; `tokens`: in a fleet, prompt tokens or their like.
    unit: &'static str,
    is_new: bool,
    breakdown: String,
    /// What changed since the last time this reader was told, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

#[derive(Debug, Serialize)]
struct RowsEvent {
    submitted: u64,
    waiting: u64,
    prefilling: u64,
    running: u64,
    ended: u64,
}

/// A server or the local engine, where rows go to several.
#[derive(Debug, Serialize)]
struct ReplicaSnapshot {
    name: String,
    state: &'static str,
    rows: u32,
    rows_max: u32,
    tokens: u64,
    /// What its memory holds, where that is known.
    kv: Option<ReplicaKv>,
    /// What its rows cost, once that is fitted.
    cost: Option<ReplicaCost>,
}

impl SnapshotEvent {
    /// Says what the last choice of policy was made by.
    pub fn explain_policy(&mut self, choice: Option<String>) {
        self.choice = choice;
    }
}

/// What was told before, so that changes can be.
#[derive(Debug, Default)]
pub struct LastSent(HashMap<RelQueryId, RelQueryStatus>);

impl LastSent {
    /// Queue and memory, for a viewer.
    pub(super) fn snapshot(
        &mut self,
        snapshot: &LiveSnapshot,
        audience: &Audience,
        replicas: &[ReplicaView],
    ) -> SnapshotEvent {
        let LiveSnapshot { at: time, policy, stats, scheduler, names } = snapshot;
        let listed = scheduler.relqueries.listed.iter().zip(names).zip(1..);
        let own: Vec<_> = listed.filter(|((status, _), _)| audience.sees(status.tenant)).collect();
        let relqueries = own.iter().map(|((status, name), place)| {
            self.status(status, audience.called(name, status.tenant, status.class), *place)
        });
        let relqueries = relqueries.collect();
        self.0 = own.iter().map(|((status, _), _)| (status.id, **status)).collect();
        SnapshotEvent {
            at_us: at(*time),
            policy: policy.name(),
            choice: None,
            relqueries,
            others: others(stats, own.iter().map(|((status, _), _)| *status)),
            rows_waiting: stats.rows_waiting,
            rows_running: stats.rows_running,
            kv: kv(stats, scheduler, audience),
            prompt_tokens: stats.prompt_tokens,
            prefix_hit_tokens: stats.prefix_hit_tokens,
            output_tokens: stats.output_tokens,
            steps: stats.steps,
            preemptions: stats.preemptions,
            replicas: replicas.iter().zip(1..).map(|(one, place)| replica(one, place, audience)).collect(),
        }
    }

    fn status(&self, status: &RelQueryStatus, called: Called, place: usize) -> RelQueryEvent {
        let rows = status.rows;
        RelQueryEvent {
            id: public_ids::shown(status.id).to_string(),
            called,
            place,
            period: match status.period() {
                Period::Waiting => "waiting",
                Period::Core => "core",
                Period::Tail => "tail",
            },
            arrival_us: at(status.arrival),
            started_us: status.started.map(at),
            prefilled_us: status.prefilled.map(at),
            rows: RowsEvent {
                submitted: rows.submitted,
                waiting: rows.waiting,
                prefilling: rows.prefilling,
                running: rows.running,
                ended: rows.ended(),
            },
            priority: status.priority,
            unit: match status.breakdown {
                Some(breakdown) if breakdown.is_aged => "aged",
                Some(_) => "ns",
                None => "tokens",
            },
            is_new: status.is_new,
            breakdown: why::breakdown(status),
            why: why::changed(self.0.get(&status.id), status),
        }
    }
}

/// All that is held, but for what is listed.
fn others<'a>(stats: &Stats, listed: impl Iterator<Item = &'a RelQueryStatus>) -> Others {
    let all = Others {
        relqueries: stats.relqueries.into(),
        rows_waiting: stats.rows_waiting.into(),
        rows_running: stats.rows_running.into(),
    };
    listed.fold(all, |left, status| Others {
        relqueries: left.relqueries.saturating_sub(1),
        rows_waiting: left.rows_waiting.saturating_sub(status.rows.waiting),
        rows_running: left.rows_running.saturating_sub(status.rows.prefilling + status.rows.running),
    })
}

fn kv(stats: &Stats, scheduler: &SchedulerSnapshot, audience: &Audience) -> Kv {
    let blocks = scheduler.blocks;
    let mut held: Vec<Held> = Vec::new();
    for (tenant, count) in &scheduler.tenants {
        let label = audience.label(*tenant);
        match held.iter_mut().find(|held| held.tenant == label) {
            Some(held) => held.blocks += count,
            None => held.push(Held { tenant: label, blocks: *count }),
        }
    }
    Kv {
        total: stats.kv_total_blocks,
        private: blocks.private,
        shared: blocks.shared,
        independent: blocks.independent,
        pinned: blocks.pinned,
        cached: blocks.cached,
        free: blocks.free,
        host: stats.tier.used,
        host_total: stats.tier.total,
        held,
    }
}

fn replica(replica: &ReplicaView, place: usize, audience: &Audience) -> ReplicaSnapshot {
    ReplicaSnapshot {
        name: if audience.names_replicas { replica.name.clone() } else { place.to_string() },
        state: replica.state,
        rows: replica.rows,
        rows_max: replica.rows_max,
        tokens: replica.tokens.0,
        kv: ReplicaKv::of(replica),
        cost: ReplicaCost::of(replica),
    }
}
