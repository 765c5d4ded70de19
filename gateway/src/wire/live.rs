//! The events of the live view (`docs/LIVE.md` has every field). Times are microseconds since the server's
//! start, spans microseconds; ids are strings, for they exceed what a JavaScript number holds.
//!
//! A tenant sees its own relQueries in full and all others as one load; an operator sees all.

pub mod snapshot;
pub mod step;

use base::{Nanos, TenantId, Time};
use serde::Serialize;
use serving::live::record::{Outcome, RelQueryRecord};
use serving::live::{Fresh, RelQueryName, Viewer, why};
use serving::replicas::ReplicaView;

use self::snapshot::{LastSent, SnapshotEvent};
use self::step::StepEvent;

fn micros(span: Nanos) -> u64 {
    span.0 / 1_000
}

fn at(time: Time) -> u64 {
    time.0 / 1_000
}

/// The first event of a stream.
#[derive(Debug, Serialize)]
pub struct Hello {
    /// The policy in force.
    pub policy: &'static str,
    /// The one that is configured.
    pub configured_policy: &'static str,
    /// What the configured policy cannot do where rows run, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits_of_policy: Vec<String>,
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

/// What a tenant is called before a viewer.
fn tenant_label(viewer: Viewer, tenant: TenantId) -> String {
    match viewer {
        Viewer::Operator => format!("tenant {}", tenant.0),
        Viewer::Tenant(own) if own == tenant => "you".to_owned(),
        Viewer::Tenant(_) => "others".to_owned(),
    }
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
}
