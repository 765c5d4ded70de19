//! A step in the live view: what it computed, why, and whose its time was.

use serde::Serialize;

use serving::live::describe::{BatchSize, Seen, Step};

use super::{Audience, at, micros};
use crate::wire::public_ids;

/// Signed microseconds of a difference in nanoseconds.
fn signed(nanos: i128) -> i64 {
    i64::try_from(nanos / 1_000).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
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
    #[serde(skip_serializing_if = "crate::wire::is_zero")]
    draft_tokens: u64,
    #[serde(skip_serializing_if = "crate::wire::is_zero")]
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

impl StepEvent {
    pub(super) fn new(step: &Step, audience: &Audience) -> Self {
        let shares = shares(step, audience);
        let sum = |part: fn(&Share) -> u64| shares.iter().map(part).sum();
        let size = |size: BatchSize| CandidateEvent {
            relqueries: size.relqueries,
            rows: size.rows,
            tokens: size.tokens,
        };
        let seen = |seen: Seen| TouchedEvent {
            id: audience.sees(seen.tenant).then(|| public_ids::shown(seen.id).to_string()),
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
fn shares(step: &Step, audience: &Audience) -> Vec<Share> {
    let work: u128 = step.parts.iter().map(|part| u128::from(part.work.0)).sum();
    let took = u128::from(micros(step.timing.took));
    let mut shares: Vec<Share> = Vec::new();
    for part in &step.parts {
        let label = audience.label(part.tenant);
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

#[cfg(test)]
mod tests {
    use base::{BatchKind, Nanos, RelQueryId, StepId, TenantId};
    use scheduler::Reason;
    use scheduler::snapshot::TenantPart;
    use serving::live::Viewer;
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
        let event = StepEvent::new(&step(), &Audience::new(Viewer::Tenant(TenantId(1))));
        let shares: Vec<_> = event
            .shares
            .iter()
            .map(|share| (share.tenant.as_str(), share.took_us, share.decode_rows))
            .collect();
        assert_eq!(shares, [("you", 1_000, 2), ("others", 3_000, 4)]);
        assert_eq!((event.prefill.rows, event.prefill.tokens, event.decode_rows), (3, 30, 6));
        assert_eq!(event.front.map(|front| front.id), Some(None), "another's id is not told");
        let json =
            serde_json::to_string(&StepEvent::new(&step(), &Audience::new(Viewer::Tenant(TenantId(1)))));
        let number = public_ids::shown(RelQueryId(21)).to_string();
        assert!(json.is_ok_and(|json| !json.contains(&number) && !json.contains("tenant ")));
    }

    #[test]
    fn an_operator_sees_whose_everything_is() {
        let event = StepEvent::new(&step(), &Audience::new(Viewer::Operator));
        let shares: Vec<_> = event.shares.iter().map(|share| share.tenant.as_str()).collect();
        assert_eq!(shares, ["tenant 1", "tenant 2", "tenant 3"]);
        assert_eq!(
            event.front.and_then(|front| front.id).as_deref(),
            Some(&*public_ids::shown(RelQueryId(21)).to_string())
        );
    }
}
