//! A decision in the live view: which relQuery began, and which it left waiting. A tenant is told of those that
//! are its own on either side; of the other side, where that is another's, how much it was.

use scheduler::snapshot::RelQueryStatus;
use serde::Serialize;
use serving::live::decision::{Contender, DecisionRecord};

use super::{Audience, Called, at};
use crate::wire::public_ids;

/// A relQuery began.
#[derive(Debug, Serialize)]
pub struct DecisionEvent {
    at_us: u64,
    policy: &'static str,
    /// It.
    first: ContenderEvent,
    /// Of those with rows that waited, the one with the most.
    #[serde(skip_serializing_if = "Option::is_none")]
    rival: Option<ContenderEvent>,
}

/// A relQuery as a decision found it.
#[derive(Debug, Serialize)]
struct ContenderEvent {
    /// Absent where it is another tenant's.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// Absent where it is another tenant's.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    called: Option<Called>,
    arrival_us: u64,
    /// Rows that had not ended.
    rows: u64,
    /// Rows of which nothing had been computed.
    waiting_rows: u64,
    /// Machine time that its priority says was left; absent where priorities are not times.
    #[serde(skip_serializing_if = "Option::is_none")]
    work_us: Option<u64>,
    /// Whether it went first because it had waited too long, or was urgent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_urgent: bool,
}

impl DecisionEvent {
    /// The decision, where a side of it may be seen.
    pub(super) fn new(decision: &DecisionRecord, audience: &Audience) -> Option<Self> {
        let sides = [Some(&decision.first), decision.rival.as_ref()];
        let is_visible = sides.into_iter().flatten().any(|side| audience.sees(side.status.tenant));
        is_visible.then(|| Self {
            at_us: at(decision.at),
            policy: decision.policy.name(),
            first: contender(&decision.first, audience),
            rival: decision.rival.as_ref().map(|rival| contender(rival, audience)),
        })
    }
}

fn contender(Contender { status, name }: &Contender, audience: &Audience) -> ContenderEvent {
    let is_seen = audience.sees(status.tenant);
    ContenderEvent {
        id: is_seen.then(|| public_ids::shown(status.id).to_string()),
        called: is_seen.then(|| audience.called(name, status.tenant, status.class)),
        arrival_us: at(status.arrival),
        rows: status.rows.submitted.saturating_sub(status.rows.ended()),
        waiting_rows: status.rows.waiting,
        work_us: work(status),
        is_urgent: status.breakdown.is_some_and(|breakdown| breakdown.is_first()),
    }
}

fn work(status: &RelQueryStatus) -> Option<u64> {
    let work = status.breakdown?.work();
    (work.0 > 0).then_some(work.0 / 1_000)
}

#[cfg(test)]
mod tests {
    use base::{Nanos, RelQueryId, ServiceClass, TenantId, Time};
    use scheduler::Policy;
    use scheduler::breakdown::{PriorityBreakdown, PriorityParts, WorkTime};
    use scheduler::snapshot::RowCounts;
    use serde_json::json;
    use serving::label::Label;
    use serving::live::{RelQueryName, Viewer};

    use super::*;

    fn side(id: u64, tenant: u64, rows: u64, work: u64) -> Contender {
        let parts = PriorityParts::Work(WorkTime { prompt: Nanos(work), ..WorkTime::default() });
        let label = Label { column: Some(format!("column {id}")), ..Label::default() };
        let status = RelQueryStatus {
            id: RelQueryId(id),
            tenant: TenantId(tenant),
            class: ServiceClass::Interactive,
            arrival: Time(5_000 * id),
            started: None,
            prefilled: None,
            rows: RowCounts { submitted: rows, waiting: rows, prefilling: 0, running: 0 },
            priority: work,
            breakdown: Some(PriorityBreakdown { is_aged: true, ..PriorityBreakdown::of(parts) }),
            is_new: true,
        };
        Contender { status, name: RelQueryName { route: "cells", request: None, label: label.bounded() } }
    }

    fn shown_to(audience: &Audience) -> serde_json::Value {
        let (first, rival) = (side(41, 1, 5, 200_000_000), Some(side(42, 2, 5_000, 41_000_000_000)));
        let decision = DecisionRecord { at: Time(9_000), policy: Policy::MarginalWork, first, rival };
        json!(DecisionEvent::new(&decision, audience))
    }

    #[test]
    fn a_tenant_is_told_how_much_went_before_it_and_not_what() {
        let mine = shown_to(&Audience::new(Viewer::Tenant(TenantId(1))));
        assert_eq!(
            (&mine["first"]["tenant"], &mine["first"]["label"]["column"]),
            (&json!("you"), &json!("column 41"))
        );
        assert_eq!((&mine["rival"]["rows"], &mine["rival"]["work_us"]), (&json!(5_000), &json!(41_000_000)));
        assert!(
            ["id", "tenant", "route", "label"].iter().all(|field| mine["rival"].get(field).is_none()),
            "{mine}"
        );
        let theirs = shown_to(&Audience::new(Viewer::Tenant(TenantId(2))));
        let number = json!(public_ids::shown(RelQueryId(42)).to_string());
        assert_eq!((&theirs["rival"]["id"], theirs["first"].get("id")), (&number, None));
        assert!(shown_to(&Audience::new(Viewer::Tenant(TenantId(3)))).is_null(), "it is nobody's business");
    }

    #[test]
    fn an_operator_is_told_whose_both_are() {
        let mut audience = Audience::new(Viewer::Operator);
        let bob = store::Tenant { id: TenantId(2), name: "Bob".into(), weight: 1.0, created: None };
        audience.learn(std::slice::from_ref(&bob));
        let all = shown_to(&audience);
        assert_eq!((&all["first"]["tenant"], &all["rival"]["tenant"]), (&json!("tenant 1"), &json!("Bob")));
        let mut tenant = Audience::new(Viewer::Tenant(TenantId(1)));
        tenant.learn(&[bob]);
        assert!(!shown_to(&tenant).to_string().contains("Bob"), "a tenant learns nobody's name");
    }
}
