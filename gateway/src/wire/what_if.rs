//! What `/v1/scheduler/what-if` is asked and answers. Latencies are those of relQueries, in milliseconds,
//! with the three periods of RelServe's Eq. 2.

use base::{Nanos, Periods, Time};
use scheduler::Policy;
use serde::Serialize;
use serving::error::RequestError;
use serving::live::Viewer;
use serving::live::pace::Pace;
use serving::live::record::RelQueryRecord;
use serving::live::trace::Recorded;
use serving::live::what_if::{IterationCounts, LatencySummary, PolicyReplay, TraceRelQuery, policies};
use utoipa::ToSchema;

use crate::json::JsonFields;
use crate::wire::live::{Audience, Called};
use crate::wire::public_ids;

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

/// RelQueries whose times are told one by one.
const TIMELINES_MAX: usize = 200;

/// The answer: of all relQueries to an operator, of its own to a tenant, though what is replayed is always
/// the whole load. All latencies in it are of the same relQueries: of those that completed, or where none did, of
/// all that were replayed.
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
    /// The average latency of the replay under the present policy over the measured one, less 1: how far the
    /// simulator is off. 0.1: it says 10 % too much.
    pub error: Option<f64>,
    /// What steps of these minutes took over what the cost model says of them: the replays go at their pace.
    /// Nothing where the steps are not known, as in front of replicas.
    pub pace: Option<f64>,
    /// RelQueries one by one, in the order of their arrival, the newest where they are too many.
    pub timelines: Vec<Timeline>,
    /// Time that the replay took.
    pub took_ms: f64,
}

/// A relQuery as it was and as it would have been.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Timeline {
    /// Its id.
    pub id: String,
    /// How it is called.
    #[serde(flatten)]
    pub called: Called,
    /// Its rows that were replayed.
    pub rows: u64,
    /// When it arrived, from the first arrival on.
    pub arrival_ms: f64,
    /// As it was; nothing of one that was called off.
    pub measured: Option<PeriodsReply>,
    /// Under each policy of `replays`, in their order.
    pub replays: Vec<PeriodsReply>,
}

/// The three periods of RelServe's Eq. 2, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct PeriodsReply {
    /// Before the first prefill.
    pub waiting_ms: f64,
    /// From there to the end of the last prefill.
    pub core_ms: f64,
    /// From there to the end.
    pub tail_ms: f64,
}

impl From<&Periods> for PeriodsReply {
    fn from(Periods { waiting, core, tail }: &Periods) -> Self {
        Self { waiting_ms: millis(*waiting), core_ms: millis(*core), tail_ms: millis(*tail) }
    }
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
    pub audience: &'a Audience,
    /// RelQueries that they may see that ended in the time that was looked at.
    pub ended: u64,
    /// RelQueries that they may see that have not ended.
    pub running: u64,
    /// How quick the steps were.
    pub pace: Pace,
    /// Time that the replay took.
    pub took: Nanos,
}

/// A relQuery of the trace that may be seen, with its place in it.
type Seen<'a> = (usize, &'a RelQueryRecord, &'a TraceRelQuery);

impl WhatIfReply {
    /// The answer for those who asked.
    pub fn new(replays: &[PolicyReplay], around: Around<'_>) -> Self {
        let Around { recorded, audience, ended, running, pace, took } = around;
        let places = recorded.of_trace().enumerate().map(|(place, (record, traced))| (place, record, traced));
        let seen: Vec<Seen<'_>> = places.filter(|(_, record, _)| audience.sees(record.tenant)).collect();
        let relqueries = seen.len() as u64;
        let from = seen.iter().map(|(_, record, _)| record.arrival).min().unwrap_or_default();
        let until = seen.iter().map(|(_, record, _)| record.end).max().unwrap_or_default();
        let measured: Vec<Periods> = seen.iter().filter_map(|(_, record, _)| record.periods()).collect();
        let is_counted = |record: &RelQueryRecord| measured.is_empty() || record.periods().is_some();
        let counted: Vec<usize> =
            seen.iter().filter(|(_, record, _)| is_counted(record)).map(|(place, ..)| *place).collect();
        let has_counts = !counted.is_empty();
        let replies: Vec<PolicyReply> = (0..)
            .zip(replays.iter().filter(|_| has_counts))
            .map(|at| policy(at, &counted, audience.viewer))
            .collect();
        let measured = (!measured.is_empty()).then(|| latency(&measured));
        let error = match (replies.first(), &measured) {
            (Some(present), Some(was)) if was.mean_ms > 0.0 => {
                Some(present.latency.mean_ms / was.mean_ms - 1.0)
            }
            _ => None,
        };
        let newest = seen.len().saturating_sub(TIMELINES_MAX);
        Self {
            span_ms: millis(until.since(from)),
            relqueries,
            rows: seen.iter().map(|(.., traced)| traced.rows.len() as u64).sum(),
            left_out: ended.saturating_sub(relqueries),
            running,
            measured,
            replays: replies,
            error,
            pace: pace.ratio(),
            timelines: seen[newest..].iter().map(|one| timeline(one, from, replays, audience)).collect(),
            took_ms: millis(took),
        }
    }
}

fn latency(periods: &[Periods]) -> Latency {
    Latency::from(&LatencySummary::of(periods, Time(0), &IterationCounts::default()))
}

/// A policy, by the relQueries at these places of the trace.
fn policy((number, replay): (usize, &PolicyReplay), places: &[usize], viewer: Viewer) -> PolicyReply {
    let periods: Vec<Periods> =
        places.iter().filter_map(|place| replay.periods.get(*place)).copied().collect();
    let is_operator = viewer == Viewer::Operator;
    PolicyReply {
        policy: replay.policy.name(),
        is_present: number == 0,
        latency: latency(&periods),
        prefix_hits: is_operator.then_some(replay.hit),
        steps: is_operator.then_some(replay.steps),
    }
}

fn timeline(
    (place, record, traced): &Seen<'_>,
    from: Time,
    replays: &[PolicyReplay],
    audience: &Audience,
) -> Timeline {
    let replayed = replays.iter().filter_map(|replay| replay.periods.get(*place));
    Timeline {
        id: public_ids::shown(record.id).to_string(),
        called: audience.called(&record.name, record.tenant, record.class),
        rows: traced.rows.len() as u64,
        arrival_ms: millis(record.arrival.since(from)),
        measured: record.periods().as_ref().map(PeriodsReply::from),
        replays: replayed.map(PeriodsReply::from).collect(),
    }
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
