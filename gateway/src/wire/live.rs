//! The events of the live view (`docs/LIVE.md` has every field). Times are microseconds since the server's
//! start, spans microseconds; ids are strings, for they exceed what a JavaScript number holds.
//!
//! A tenant sees its own relQueries in full and all others as one load; an operator sees all.

pub mod decision;
pub mod snapshot;
pub mod step;

use std::collections::HashMap;

use base::{Nanos, ServiceClass, TenantId, Time};
use serde::Serialize;
use serving::label::Label;
use serving::live::record::{Outcome, RelQueryRecord};
use serving::live::{Fresh, RelQueryName, Viewer, why};
use serving::replicas::ReplicaView;
use store::Tenant;
use utoipa::ToSchema;

use self::decision::DecisionEvent;
use self::snapshot::{LastSent, SnapshotEvent};
use self::step::StepEvent;
use crate::wire::public_ids;

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
    /// RelQueries that began, and which each left waiting.
    pub decisions: Vec<DecisionEvent>,
    /// RelQueries that ended.
    pub ended: Vec<EndedEvent>,
    /// Queue and memory, where somebody looked at them since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotEvent>,
}

impl Frame {
    /// Whether there is nothing in it for its reader.
    pub fn is_empty(&self) -> bool {
        let nothing_ran = self.steps.is_empty() && self.lost_steps == 0;
        nothing_ran && self.decisions.is_empty() && self.ended.is_empty() && self.snapshot.is_none()
    }
}

/// The last event of a stream.
#[derive(Debug, Serialize)]
pub struct Goodbye {
    /// `shutting_down`, or `again`: connect anew.
    pub reason: &'static str,
}

/// Who looks, and what tenants are called before them.
#[derive(Clone, Debug)]
pub struct Audience {
    /// Who.
    pub viewer: Viewer,
    /// The tenants' names, told to operators alone.
    names: HashMap<TenantId, String>,
    /// Whether replicas have their names; else numbers, for a name is often an address.
    names_replicas: bool,
}

impl Audience {
    /// Without anybody's name.
    pub fn new(viewer: Viewer) -> Self {
        Self { viewer, names: HashMap::new(), names_replicas: viewer == Viewer::Operator }
    }

    /// The same, told the names of replicas or not.
    pub fn with_replicas(self, names_replicas: bool) -> Self {
        Self { names_replicas, ..self }
    }

    /// Learns the tenants' names; of no use to tenants, whom they are not told.
    pub fn learn(&mut self, tenants: &[Tenant]) {
        if self.viewer == Viewer::Operator {
            self.names = tenants.iter().map(|tenant| (tenant.id, tenant.name.clone())).collect();
        }
    }

    /// Whether it may see what is this tenant's.
    pub fn sees(&self, tenant: TenantId) -> bool {
        self.viewer.sees(tenant)
    }

    /// What a tenant is called.
    fn label(&self, tenant: TenantId) -> String {
        match self.viewer {
            Viewer::Operator => {
                self.names.get(&tenant).cloned().unwrap_or_else(|| format!("tenant {}", tenant.0))
            }
            Viewer::Tenant(own) if own == tenant => "you".to_owned(),
            Viewer::Tenant(_) => "others".to_owned(),
        }
    }

    /// How a relQuery of a tenant is called, which may be seen.
    pub fn called(&self, name: &RelQueryName, tenant: TenantId, class: ServiceClass) -> Called {
        Called {
            tenant: self.label(tenant),
            route: name.route,
            request: name.request.map(|id| public_ids::shown(id).to_string()),
            class: why::class(class),
            label: name.label.as_deref().cloned(),
        }
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
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Called {
    tenant: String,
    route: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<String>,
    class: &'static str,
    #[schema(value_type = Option<Object>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<Label>,
}

impl EndedEvent {
    fn new(record: &RelQueryRecord, audience: &Audience) -> Self {
        let (outcome, periods) = match record.outcome {
            Outcome::Completed { periods } => ("completed", Some(periods)),
            Outcome::Cancelled => ("cancelled", None),
        };
        Self {
            id: public_ids::shown(record.id).to_string(),
            called: audience.called(&record.name, record.tenant, record.class),
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

impl LastSent {
    /// The next frame.
    pub fn frame(
        &mut self,
        fresh: &Fresh,
        audience: &Audience,
        now: Time,
        replicas: &[ReplicaView],
    ) -> Frame {
        let ended = fresh.ended.iter().filter(|record| audience.sees(record.tenant));
        let decisions = fresh.decisions.iter();
        Frame {
            at_us: at(now),
            lost_steps: fresh.lost_steps,
            steps: fresh.steps.iter().map(|step| StepEvent::new(step, audience)).collect(),
            decisions: decisions.filter_map(|one| DecisionEvent::new(one, audience)).collect(),
            ended: ended.map(|record| EndedEvent::new(record, audience)).collect(),
            snapshot: fresh.snapshot.as_ref().map(|snapshot| self.snapshot(snapshot, audience, replicas)),
        }
    }
}
