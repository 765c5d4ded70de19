//! What `/v1/scheduler/what-if` is asked and answers. Latencies are those of relQueries, in milliseconds,
//! with the three periods of RelServe's Eq. 2.

use base::{Nanos, Periods};
use scheduler::Policy;
use serde::Serialize;
use serving::error::RequestError;
use serving::live::Viewer;
use serving::live::record::RelQueryRecord;
use serving::live::trace::Recorded;
use serving::live::what_if::{IterationCounts, LatencySummary, PolicyReplay, policies};
use utoipa::ToSchema;

use crate::json::JsonFields;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhatIfRequest {
    /// The present policy first, then those that were asked for.
    pub policies: Vec<Policy>,
}

/// All orders that differ in front of replicas, whose steps are their own.
const FLEET_POLICIES: [Policy; 6] = [
    Policy::Fcfs,
    Policy::StaticPriority,
    Policy::RelServe,
    Policy::RelServePrefill,
    Policy::RelServeDecode,
    Policy::MarginalWork,
];

impl WhatIfRequest {
    /// Reads it; `has_fleet` where rows run on replicas.
    pub fn read(mut fields: JsonFields, present: Policy, has_fleet: bool) -> Result<Self, RequestError> {
        let names = fields.string("policy")?;
        let Some(names) = names else {
            return fields.bad("policy", "is required: a policy's name, or `all`");
        };
        fields.finish()?;
        let asked = match (names.as_str(), has_fleet) {
            ("all", true) => FLEET_POLICIES.to_vec(),
            _ => policies(&names).map_err(|error| RequestError::invalid("policy", error.to_string()))?,
        };
        let mut policies = vec![present];
        for policy in asked {
            if !policies.contains(&policy) {
                policies.push(policy);
            }
        }
        Ok(Self { policies })
    }
}

/// The answer: of all relQueries to an operator, of its own to a tenant, though what is replayed is always
/// the whole load.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct WhatIfReply {
    /// From the first arrival to the last end.
    pub span_ms: f64,
    /// RelQueries that were replayed.
    pub relqueries: u64,
    /// Their rows.
    pub rows: u64,
    /// RelQueries that ended but were too many to replay, or of which no row got a token.
    pub left_out: u64,
    /// RelQueries that have not ended, and are not in it.
    pub running: u64,
    /// How it really was: those that completed, as measured.
    pub measured: Option<Latency>,
    /// How it comes out in the simulator, the present policy first; nothing where there is nothing to tell
    /// of.
    pub replays: Vec<PolicyReply>,
    /// Time that the replay took.
    pub took_ms: f64,
}

/// One policy.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PolicyReply {
    /// Its name.
    pub policy: &'static str,
    /// Whether it is the one in force.
    pub is_present: bool,
    /// How long relQueries take under it.
    pub latency: Latency,
    /// Share of prompt tokens that the prefix cache supplied; told to operators.
    pub prefix_hits: Option<f64>,
    /// Steps, of all replicas together; told to operators.
    pub steps: Option<u64>,
}

/// Latencies, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct Latency {
    /// RelQueries.
    pub relqueries: u64,
    /// Their average: what RelServe minimises.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// Average time before the first prefill.
    pub waiting_ms: f64,
    /// Average time from the first prefill to the end of the last.
    pub core_ms: f64,
    /// Average time from there to the last token.
    pub tail_ms: f64,
}

impl From<&LatencySummary> for Latency {
    fn from(summary: &LatencySummary) -> Self {
        let ms = |seconds: f64| seconds * 1e3;
        Self {
            relqueries: summary.n as u64,
            mean_ms: ms(summary.mean),
            p50_ms: ms(summary.p50),
            p95_ms: ms(summary.p95),
            max_ms: ms(summary.max),
            waiting_ms: ms(summary.waiting),
            core_ms: ms(summary.core),
            tail_ms: ms(summary.tail),
        }
    }
}

/// What a reply is made of beside the replays.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// What was replayed.
    pub recorded: &'a Recorded,
    /// For whom the reply is.
    pub viewer: Viewer,
    /// The viewer's relQueries that ended in the time that was looked at.
    pub ended: u64,
    /// The viewer's relQueries that have not ended.
    pub running: u64,
    /// Time that the replay took.
    pub took: Nanos,
}

impl WhatIfReply {
    /// The answer for a viewer.
    pub fn new(replays: &[PolicyReplay], around: Around<'_>) -> Self {
        let Around { recorded, viewer, ended, running, took } = around;
        let own = |(record, _): &(&RelQueryRecord, _)| viewer.sees(record.tenant);
        let seen: Vec<_> = recorded.of_trace().filter(own).collect();
        let relqueries = seen.len() as u64;
        let from = seen.iter().map(|(record, _)| record.arrival).min().unwrap_or_default();
        let until = seen.iter().map(|(record, _)| record.end).max().unwrap_or_default();
        let measured: Vec<Periods> = seen.iter().filter_map(|(record, _)| record.periods()).collect();
        let summary = LatencySummary::of(&measured, until, &IterationCounts::default());
        Self {
            span_ms: millis(until.since(from)),
            relqueries,
            rows: seen.iter().map(|(_, traced)| traced.rows.len() as u64).sum(),
            left_out: ended.saturating_sub(relqueries),
            running,
            measured: (!measured.is_empty()).then(|| Latency::from(&summary)),
            replays: (0..).zip(replays).filter_map(|at| policy(at, recorded, viewer)).collect(),
            took_ms: millis(took),
        }
    }
}

/// A policy as a viewer sees it.
fn policy(
    (place, replay): (usize, &PolicyReplay),
    recorded: &Recorded,
    viewer: Viewer,
) -> Option<PolicyReply> {
    let summary = match viewer {
        Viewer::Operator => &replay.summary,
        Viewer::Tenant(tenant) => replay.tenants.get(recorded.name_of(tenant)?)?,
    };
    let is_operator = viewer == Viewer::Operator;
    Some(PolicyReply {
        policy: replay.policy.name(),
        is_present: place == 0,
        latency: Latency::from(summary),
        prefix_hits: is_operator.then_some(replay.summary.hit),
        steps: is_operator.then_some(replay.steps),
    })
}

fn millis(span: Nanos) -> f64 {
    span.as_seconds() * 1e3
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: serde_json::Value) -> Result<WhatIfRequest, String> {
        let fields = crate::json::object(body.to_string().as_bytes()).expect("an object");
        WhatIfRequest::read(fields, Policy::MarginalWork, false).map_err(|error| error.to_string())
    }

    #[test]
    fn the_present_policy_comes_first_and_no_policy_twice() {
        let policies = |names: &str| read(json!({"policy": names})).map(|asked| asked.policies);
        assert_eq!(policies("fcfs"), Ok(vec![Policy::MarginalWork, Policy::Fcfs]));
        assert_eq!(policies("marginal-work,relserve"), Ok(vec![Policy::MarginalWork, Policy::RelServe]));
        assert_eq!(policies("all").map(|all| all.len()), Ok(7));
        let fields = crate::json::object(br#"{"policy": "all"}"#).expect("an object");
        let asked = WhatIfRequest::read(fields, Policy::RelServe, true).expect("it is right");
        assert_eq!(asked.policies.len(), 6, "all but sarathi, which is fcfs there");
        assert_eq!(asked.policies[..2], [Policy::RelServe, Policy::Fcfs]);
        assert!(!asked.policies.contains(&Policy::Sarathi));
        assert!(policies("best").is_err_and(|error| error.contains("`policy`") && error.contains("sarathi")));
        assert!(read(json!({})).is_err_and(|error| error.contains("is required")));
        assert!(read(json!({"policy": "fcfs", "x": 1})).is_err_and(|error| error.contains("`x`")));
    }
}
