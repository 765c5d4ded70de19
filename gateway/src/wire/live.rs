//! The events of the live view (`docs/LIVE.md` has every field). Times are microseconds since the server's
//! start, spans microseconds; ids are strings, for they exceed what a JavaScript number holds.
//!
//! A tenant sees its own relQueries in full and all others as one load; an operator sees all.

use std::collections::HashMap;

use base::{Nanos, RelQueryId, TenantId, Time};
use scheduler::snapshot::{Period, RelQueryStatus};
use scheduler::{SchedulerSnapshot, Stats};
use serde::Serialize;
use serving::live::describe::{BatchSize, Seen, Step};
use serving::live::record::{Outcome, RelQueryRecord};
use serving::live::{Fresh, LiveSnapshot, RelQueryName, Viewer, why};
use serving::replicas::ReplicaView;

fn micros(span: Nanos) -> u64 {
    span.0 / 1_000
}

fn at(time: Time) -> u64 {
    time.0 / 1_000
}

/// Signed microseconds of a difference in nanoseconds.
fn signed(nanos: i128) -> i64 {
    i64::try_from(nanos / 1_000).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
}

/// The first event of a stream.
#[derive(Debug, Serialize)]
pub struct Hello {
    /// The policy in force.
    pub policy: &'static str,
    /// `engine`, or `fleet`: then there are no steps and no blocks to see.
    pub backend: &'static str,
    /// `own`: others are one load; `all`: for operators.
    pub visible_to: &'static str,
    /// Time between two frames, in milliseconds.
    pub frame_ms: u64,
    /// Time between two looks at queue and memory, in milliseconds.
    pub snapshot_ms: u64,
    /// The server's time.
    pub at_us: u64,
}

/// What happened since the frame before.
#[derive(Debug, Serialize)]
pub struct Frame {
    /// The server's time.
    pub at_us: u64,
    /// Steps that this reader was too slow to see.
    pub lost_steps: u64,
    /// Steps, the oldest first.
    pub steps: Vec<StepEvent>,
    /// RelQueries that ended.
    pub ended: Vec<EndedEvent>,
    /// Queue and memory, where somebody looked at them since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotEvent>,
}

impl Frame {
    /// Whether there is nothing in it for its reader.
    pub fn is_empty(&self) -> bool {
        self.snapshot.is_none() && self.steps.is_empty() && self.lost_steps == 0 && self.ended.is_empty()
    }
}

/// The last event of a stream.
#[derive(Debug, Serialize)]
pub struct Goodbye {
    /// `shutting_down`, or `again`: connect anew.
    pub reason: &'static str,
}

/// A step.
#[derive(Debug, Serialize)]
pub struct StepEvent {
    step: u64,
    kind: &'static str,
    start_us: u64,
    took_us: u64,
    scheduling_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    gap_us: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    failed: bool,
    prefill: Batch,
    decode_rows: u64,
    #[serde(skip_serializing_if = "is_zero")]
    draft_tokens: u64,
    #[serde(skip_serializing_if = "is_zero")]
    preempted: u64,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<DeltaEvent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    candidate: Option<CandidateEvent>,
    running: CandidateEvent,
    #[serde(skip_serializing_if = "Option::is_none")]
    front: Option<TouchedEvent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_running: Option<TouchedEvent>,
    shares: Vec<Share>,
}

#[derive(Debug, Serialize)]
struct Batch {
    rows: u64,
    tokens: u64,
}

#[derive(Debug, Serialize)]
struct CandidateEvent {
    relqueries: u32,
    rows: u32,
    tokens: u64,
}

/// Eq. 17 and its two sums.
#[derive(Debug, Serialize)]
struct DeltaEvent {
    total_us: i64,
    lost_us: u64,
    gained_us: u64,
}

#[derive(Debug, Serialize)]
struct TouchedEvent {
    /// Absent where it is another tenant's.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    priority: u64,
}

/// Whose a step was.
#[derive(Debug, Serialize)]
struct Share {
    tenant: String,
    prefill_rows: u64,
    prefill_tokens: u64,
    decode_rows: u64,
    took_us: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What a tenant is called before a viewer.
fn tenant_label(viewer: Viewer, tenant: TenantId) -> String {
    match viewer {
        Viewer::Operator => format!("tenant {}", tenant.0),
        Viewer::Tenant(own) if own == tenant => "you".to_owned(),
        Viewer::Tenant(_) => "others".to_owned(),
    }
}

impl StepEvent {
    fn new(step: &Step, viewer: Viewer) -> Self {
        let shares = shares(step, viewer);
        let sum = |part: fn(&Share) -> u64| shares.iter().map(part).sum();
        let size = |size: BatchSize| CandidateEvent {
            relqueries: size.relqueries,
            rows: size.rows,
            tokens: size.tokens,
        };
        let seen = |seen: Seen| TouchedEvent {
            id: viewer.sees(seen.tenant).then(|| seen.id.0.to_string()),
            priority: seen.priority,
        };
        Self {
            step: step.step.0,
            kind: step.kind.name(),
            start_us: at(step.timing.start),
            took_us: micros(step.timing.took),
            scheduling_us: micros(step.timing.scheduling),
            gap_us: step.timing.gap.map(micros),
            failed: step.timing.is_failed,
            prefill: Batch {
                rows: sum(|share| share.prefill_rows),
                tokens: sum(|share| share.prefill_tokens),
            },
            decode_rows: sum(|share| share.decode_rows),
            draft_tokens: step.guesses,
            preempted: step.preempted.into(),
            reason: step.reason.to_string(),
            delta: step.delta.map(|delta| DeltaEvent {
                total_us: signed(delta.total()),
                lost_us: delta.running / 1_000,
                gained_us: delta.waiting / 1_000,
            }),
            candidate: step.candidate.map(size),
            running: CandidateEvent {
                relqueries: step.running_relqueries,
                rows: step.running_rows,
                tokens: 0,
            },
            front: step.front.map(seen),
            first_running: step.first_running.map(seen),
            shares,
        }
    }
}

/// The step's time, shared out as the cost model weighs its rows.
fn shares(step: &Step, viewer: Viewer) -> Vec<Share> {
    let work: u128 = step.parts.iter().map(|part| u128::from(part.work.0)).sum();
    let took = u128::from(micros(step.timing.took));
    let mut shares: Vec<Share> = Vec::new();
    for part in &step.parts {
        let label = tenant_label(viewer, part.tenant);
        let place = shares.iter().position(|share| share.tenant == label).unwrap_or_else(|| {
            shares.push(Share {
                tenant: label,
                prefill_rows: 0,
                prefill_tokens: 0,
                decode_rows: 0,
                took_us: 0,
            });
            shares.len() - 1
        });
        let share = &mut shares[place];
        share.prefill_rows += u64::from(part.prefill_rows);
        share.prefill_tokens += part.prefill_tokens;
        share.decode_rows += u64::from(part.decode_rows);
        let of = took * u128::from(part.work.0) / work.max(1);
        share.took_us += u64::try_from(of).unwrap_or(u64::MAX);
    }
    shares
}

/// A relQuery that ended.
#[derive(Debug, Serialize)]
pub struct EndedEvent {
    id: String,
    #[serde(flatten)]
    called: Called,
    arrival_us: u64,
    end_us: u64,
    outcome: &'static str,
    rows: u64,
    failed_rows: u64,
    cancelled_rows: u64,
    prompt_tokens: u64,
    output_tokens: u64,
    /// The three periods of Eq. 2, where it completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    periods: Option<PeriodsEvent>,
}

#[derive(Debug, Serialize)]
struct PeriodsEvent {
    waiting_us: u64,
    core_us: u64,
    tail_us: u64,
}

/// How a relQuery is called.
#[derive(Debug, Serialize)]
struct Called {
    tenant: String,
    route: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<String>,
    class: &'static str,
}

impl EndedEvent {
    fn new(record: &RelQueryRecord, viewer: Viewer) -> Self {
        let (outcome, periods) = match record.outcome {
            Outcome::Completed { periods } => ("completed", Some(periods)),
            Outcome::Cancelled => ("cancelled", None),
        };
        Self {
            id: record.id.0.to_string(),
            called: called(record.name, tenant_label(viewer, record.tenant), why::class(record.class)),
            arrival_us: at(record.arrival),
            end_us: at(record.end),
            outcome,
            rows: record.rows.len() as u64,
            failed_rows: record.failed.into(),
            cancelled_rows: record.cancelled.into(),
            prompt_tokens: record.prompt_tokens(),
            output_tokens: record.output_tokens(),
            periods: periods.map(|periods| PeriodsEvent {
                waiting_us: micros(periods.waiting),
                core_us: micros(periods.core),
                tail_us: micros(periods.tail),
            }),
        }
    }
}

fn called(name: RelQueryName, label: String, class: &'static str) -> Called {
    let request = name.request.map(|id| id.0.to_string());
    Called { tenant: label, route: name.route, request, class }
}

/// Queue and memory.
#[derive(Debug, Serialize)]
pub struct SnapshotEvent {
    at_us: u64,
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
    replicas: Vec<ReplicaEvent>,
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
struct ReplicaEvent {
    name: String,
    state: &'static str,
    rows: u32,
    rows_max: u32,
    tokens: u64,
}

/// What was told before, so that changes can be.
#[derive(Debug, Default)]
pub struct LastSent(HashMap<RelQueryId, RelQueryStatus>);

impl LastSent {
    /// The next frame.
    pub fn frame(&mut self, fresh: &Fresh, viewer: Viewer, now: Time, replicas: &[ReplicaView]) -> Frame {
        let ended = fresh.ended.iter().filter(|record| viewer.sees(record.tenant));
        Frame {
            at_us: at(now),
            lost_steps: fresh.lost_steps,
            steps: fresh.steps.iter().map(|step| StepEvent::new(step, viewer)).collect(),
            ended: ended.map(|record| EndedEvent::new(record, viewer)).collect(),
            snapshot: fresh.snapshot.as_ref().map(|snapshot| self.snapshot(snapshot, viewer, replicas)),
        }
    }

    fn snapshot(
        &mut self,
        snapshot: &LiveSnapshot,
        viewer: Viewer,
        replicas: &[ReplicaView],
    ) -> SnapshotEvent {
        let LiveSnapshot { at: time, stats, scheduler, names } = snapshot;
        let listed = scheduler.relqueries.listed.iter().zip(names).zip(1..);
        let own: Vec<_> = listed.filter(|((status, _), _)| viewer.sees(status.tenant)).collect();
        let relqueries = own.iter().map(|((status, name), place)| {
            self.status(status, **name, *place, tenant_label(viewer, status.tenant))
        });
        let relqueries = relqueries.collect();
        self.0 = own.iter().map(|((status, _), _)| (status.id, **status)).collect();
        SnapshotEvent {
            at_us: at(*time),
            relqueries,
            others: others(stats, own.iter().map(|((status, _), _)| *status)),
            rows_waiting: stats.rows_waiting,
            rows_running: stats.rows_running,
            kv: kv(stats, scheduler, viewer),
            prompt_tokens: stats.prompt_tokens,
            prefix_hit_tokens: stats.prefix_hit_tokens,
            output_tokens: stats.output_tokens,
            steps: stats.steps,
            preemptions: stats.preemptions,
            replicas: replicas.iter().map(replica).collect(),
        }
    }

    fn status(
        &self,
        status: &RelQueryStatus,
        name: RelQueryName,
        place: usize,
        label: String,
    ) -> RelQueryEvent {
        let rows = status.rows;
        RelQueryEvent {
            id: status.id.0.to_string(),
            called: called(name, label, why::class(status.class)),
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

fn kv(stats: &Stats, scheduler: &SchedulerSnapshot, viewer: Viewer) -> Kv {
    let blocks = scheduler.blocks;
    let mut held: Vec<Held> = Vec::new();
    for (tenant, count) in &scheduler.tenants {
        let label = tenant_label(viewer, *tenant);
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

fn replica(replica: &ReplicaView) -> ReplicaEvent {
    ReplicaEvent {
        name: replica.name.clone(),
        state: replica.state,
        rows: replica.rows,
        rows_max: replica.rows_max,
        tokens: replica.tokens.0,
    }
}

#[cfg(test)]
mod tests {
    use base::{BatchKind, StepId};
    use scheduler::Reason;
    use scheduler::snapshot::TenantPart;
    use serving::live::describe::StepTiming;

    use super::*;

    fn step() -> Step {
        let part = |tenant, work| TenantPart {
            tenant: TenantId(tenant),
            prefill_rows: 1,
            prefill_tokens: 10,
            decode_rows: 2,
            work: Nanos(work),
        };
        Step {
            step: StepId(7),
            kind: BatchKind::Mixed,
            reason: Reason::Mixed,
            candidate: None,
            running_relqueries: 3,
            running_rows: 6,
            delta: None,
            front: Some(Seen { id: RelQueryId(21), tenant: TenantId(2), priority: 5 }),
            first_running: None,
            preempted: 0,
            guesses: 0,
            parts: vec![part(1, 100), part(2, 200), part(3, 100)],
            timing: StepTiming { took: Nanos(4_000_000), ..StepTiming::default() },
        }
    }

    #[test]
    fn a_tenant_sees_its_part_of_a_step_and_all_others_as_one() {
        let event = StepEvent::new(&step(), Viewer::Tenant(TenantId(1)));
        let shares: Vec<_> = event
            .shares
            .iter()
            .map(|share| (share.tenant.as_str(), share.took_us, share.decode_rows))
            .collect();
        assert_eq!(shares, [("you", 1_000, 2), ("others", 3_000, 4)]);
        assert_eq!((event.prefill.rows, event.prefill.tokens, event.decode_rows), (3, 30, 6));
        assert_eq!(event.front.map(|front| front.id), Some(None), "another's id is not told");
        let json = serde_json::to_string(&StepEvent::new(&step(), Viewer::Tenant(TenantId(1))));
        assert!(json.is_ok_and(|json| !json.contains("21") && !json.contains("tenant ")));
    }

    #[test]
    fn an_operator_sees_whose_everything_is() {
        let event = StepEvent::new(&step(), Viewer::Operator);
        let shares: Vec<_> = event.shares.iter().map(|share| share.tenant.as_str()).collect();
        assert_eq!(shares, ["tenant 1", "tenant 2", "tenant 3"]);
        assert_eq!(event.front.and_then(|front| front.id).as_deref(), Some("21"));
    }
}
