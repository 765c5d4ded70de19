//! The spans of a relQuery: itself, and below it its waiting, core and tail (RelServe, Eq. 2), with the attributes of
//! the `gen_ai` semantic conventions. Pure: a record in, spans out.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base::{Nanos, Periods, TenantId};
use opentelemetry::KeyValue;
use opentelemetry::trace::{Link, SpanContext, SpanKind, Status as SpanStatus};
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator, SpanData, SpanLinks};
use scheduler::breakdown::PriorityParts;

use super::open::OpenSpan;
use super::request::{count, span};
use crate::relquery_state::{QueueDepth, Status, Usage};

/// Spans of one relQuery.
pub(super) const SPANS: u64 = 4;

/// A relQuery that has ended.
#[derive(Debug)]
pub(crate) struct EndedRelQuery {
    pub(crate) span: OpenSpan,
    pub(crate) request_id: Option<Arc<str>>,
    pub(crate) model: String,
    pub(crate) route: &'static str,
    pub(crate) policy: &'static str,
    pub(crate) tenant: TenantId,
    pub(crate) status: Status,
    pub(crate) rows: usize,
    pub(crate) failed: usize,
    /// Rows that the result cache answered.
    pub(crate) from_cache: usize,
    /// Rows that ran once for several.
    pub(crate) deduplicated: usize,
    pub(crate) usage: Usage,
    /// What the server held when it came.
    pub(crate) queue: Option<QueueDepth>,
    /// What its priority was made of when its first row began.
    pub(crate) estimate: Option<PriorityParts>,
    /// From its arrival to the first token of any row.
    pub(crate) first_token: Option<Nanos>,
    pub(crate) periods: Periods,
    /// When it ended.
    pub(crate) ended: SystemTime,
}

impl EndedRelQuery {
    pub(super) fn into_spans(self) -> Vec<SpanData> {
        let Periods { waiting, core, tail } = self.periods;
        let begun = self.ended.checked_sub(span_of(self.periods.total())).unwrap_or(self.ended);
        let started = begun + span_of(waiting);
        let prefilled = started + span_of(core);
        let periods = [
            ("waiting", (begun, started), waiting),
            ("core", (started, prefilled), core),
            ("tail", (prefilled, self.ended), tail),
        ];
        let ids = RandomIdGenerator::default();
        let (trace, flags) = (self.span.context.trace_id(), self.span.context.trace_flags());
        let state = self.span.context.trace_state();
        let child = |(name, times, _): (&str, _, Nanos)| {
            let context = SpanContext::new(trace, ids.new_span_id(), flags, false, state.clone());
            let open = OpenSpan { context, parent: Some(self.span.context.clone()), links: Vec::new() };
            span(&open, name.to_owned(), SpanKind::Internal, times)
        };
        let mut spans: Vec<SpanData> = periods.into_iter().map(child).collect();
        let mut own = span(&self.span, self.name(), SpanKind::Internal, (begun, self.ended));
        own.attributes = self.attributes();
        own.status = match &self.status {
            Status::Failed(error) => SpanStatus::error(error.kind()),
            Status::Running | Status::Completed | Status::Cancelled => SpanStatus::Unset,
        };
        own.links = links(&self.span);
        spans.insert(0, own);
        spans
    }

    fn name(&self) -> String {
        format!("{} {}", operation(self.route), self.model)
    }

    fn attributes(&self) -> Vec<KeyValue> {
        let size = |size: usize| count(size as u64);
        let Usage { prompt, cached, output, computed, .. } = self.usage;
        let mut attributes = vec![
            KeyValue::new("gen_ai.operation.name", operation(self.route)),
            KeyValue::new("gen_ai.provider.name", "relserve"),
            KeyValue::new("gen_ai.request.model", self.model.clone()),
            KeyValue::new("gen_ai.usage.input_tokens", count(prompt.0)),
            KeyValue::new("gen_ai.usage.cache_read.input_tokens", count(cached.0)),
            KeyValue::new("gen_ai.usage.output_tokens", count(output.0)),
            KeyValue::new("relserve.computed_tokens", count(computed.0)),
            KeyValue::new("relserve.route", self.route),
            KeyValue::new("relserve.policy", self.policy),
            KeyValue::new("relserve.tenant", count(self.tenant.0)),
            KeyValue::new("relserve.status", status(&self.status)),
            KeyValue::new("relserve.rows", size(self.rows)),
            KeyValue::new("relserve.rows.failed", size(self.failed)),
            KeyValue::new("relserve.rows.from_cache", size(self.from_cache)),
            KeyValue::new("relserve.rows.deduplicated", size(self.deduplicated)),
        ];
        if let Some(id) = &self.request_id {
            attributes.push(KeyValue::new("relserve.request_id", id.to_string()));
        }
        if let Some(first) = self.first_token {
            attributes.push(KeyValue::new("relserve.first_token_ms", milliseconds(first)));
        }
        if let Some(QueueDepth { waiting, running }) = self.queue {
            attributes.push(KeyValue::new("relserve.queue.waiting_rows", i64::from(waiting)));
            attributes.push(KeyValue::new("relserve.queue.running_rows", i64::from(running)));
        }
        if let Status::Failed(error) = &self.status {
            attributes.push(KeyValue::new("error.type", error.code().unwrap_or(error.kind())));
        }
        attributes.extend(self.estimate.iter().flat_map(estimated));
        attributes
    }
}

/// The operation as the conventions name it, where they do.
fn operation(route: &'static str) -> &'static str {
    match route {
        "chat" => "chat",
        "completions" => "text_completion",
        _ => "relquery",
    }
}

fn status(status: &Status) -> &'static str {
    match status {
        Status::Running => "running",
        Status::Completed => "completed",
        Status::Cancelled => "cancelled",
        Status::Failed(_) => "failed",
    }
}

/// The time that the scheduler thought it would take, by what that is made of (Eq. 10, or marginal work).
fn estimated(parts: &PriorityParts) -> Vec<KeyValue> {
    let named = |parts: &[(&'static str, Nanos)]| {
        let part = |(name, time): &(&'static str, Nanos)| KeyValue::new(*name, milliseconds(*time));
        parts.iter().map(part).collect()
    };
    match parts {
        PriorityParts::Estimate(estimate) => named(&[
            ("relserve.estimate.total_ms", estimate.total()),
            ("relserve.estimate.prefill_tokens_ms", estimate.prefill_tokens),
            ("relserve.estimate.prefill_batches_ms", estimate.prefill_bases),
            ("relserve.estimate.decode_steps_ms", estimate.decode_bases),
            ("relserve.estimate.decode_sequences_ms", estimate.decode_sequences),
        ]),
        PriorityParts::Work(work) => named(&[
            ("relserve.estimate.total_ms", work.total()),
            ("relserve.estimate.prompt_ms", work.prompt),
            ("relserve.estimate.output_ms", work.output),
            ("relserve.estimate.share_ms", work.share),
        ]),
        PriorityParts::Static { prompt, output } => vec![
            KeyValue::new("relserve.estimate.prompt_tokens", count(*prompt)),
            KeyValue::new("relserve.estimate.output_tokens", count(*output)),
        ],
        PriorityParts::Arrival | PriorityParts::First => Vec::new(),
    }
}

fn links(open: &OpenSpan) -> SpanLinks {
    let mut links = SpanLinks::default();
    links.links = open.links.iter().map(|span| Link::with_context(span.clone())).collect();
    links
}

fn span_of(time: Nanos) -> Duration {
    Duration::from_nanos(time.0)
}

fn milliseconds(time: Nanos) -> f64 {
    time.as_seconds() * 1_000.0
}

#[cfg(test)]
mod tests {
    use base::TokenCount;
    use opentelemetry::Value;
    use opentelemetry::trace::{SpanId, TraceFlags, TraceId, TraceState};
    use scheduler::breakdown::WorkTime;

    use super::*;
    use crate::error::RequestError;

    fn ended(status: Status) -> EndedRelQuery {
        let context = |span| {
            let (trace, span) = (TraceId::from(7), SpanId::from(span));
            SpanContext::new(trace, span, TraceFlags::SAMPLED, false, TraceState::NONE)
        };
        EndedRelQuery {
            span: OpenSpan { context: context(2), parent: Some(context(1)), links: vec![context(9)] },
            request_id: Some("r".into()),
            model: "m".into(),
            route: "relqueries",
            policy: "marginal-work",
            tenant: TenantId(3),
            status,
            rows: 5,
            failed: 1,
            from_cache: 2,
            deduplicated: 1,
            usage: Usage { prompt: TokenCount(50), cached: TokenCount(30), ..Usage::default() },
            queue: None,
            estimate: Some(PriorityParts::Work(WorkTime { prompt: Nanos(2_000_000), ..WorkTime::default() })),
            first_token: Some(Nanos(7)),
            periods: Periods { waiting: Nanos(10), core: Nanos(20), tail: Nanos(30) },
            ended: SystemTime::UNIX_EPOCH + Duration::from_nanos(1_000),
        }
    }

    fn attribute(span: &SpanData, name: &str) -> Option<Value> {
        let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == name);
        found.map(|attribute| attribute.value.clone())
    }

    #[test]
    fn the_periods_are_children_that_follow_one_another_from_end_to_end() {
        let spans = ended(Status::Completed).into_spans();
        assert_eq!(spans.len() as u64, SPANS);
        let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
        assert_eq!(names, ["relquery m", "waiting", "core", "tail"]);
        let nanos = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).expect("later").as_nanos();
        let times: Vec<_> = spans.iter().map(|span| (nanos(span.start_time), nanos(span.end_time))).collect();
        assert_eq!(times, [(940, 1_000), (940, 950), (950, 970), (970, 1_000)]);
        assert_eq!(spans[0].parent_span_id, SpanId::from(1));
        for child in &spans[1..] {
            assert_eq!(child.parent_span_id, SpanId::from(2));
            assert_eq!(child.span_context.trace_id(), TraceId::from(7));
        }
    }

    #[test]
    fn a_relquery_says_what_it_cost_and_what_was_thought_that_it_would() {
        let own = &ended(Status::Completed).into_spans()[0];
        let is = |name: &str, value: Value| assert_eq!(attribute(own, name), Some(value), "{name}");
        is("gen_ai.usage.input_tokens", 50.into());
        is("gen_ai.usage.cache_read.input_tokens", 30.into());
        is("gen_ai.operation.name", "relquery".into());
        is("relserve.policy", "marginal-work".into());
        is("relserve.rows", 5.into());
        is("relserve.estimate.prompt_ms", 2.0.into());
        is("relserve.estimate.total_ms", 2.0.into());
        assert_eq!(own.links.links[0].span_context.span_id(), SpanId::from(9));
        assert_eq!((own.status.clone(), attribute(own, "error.type")), (SpanStatus::Unset, None));
    }

    #[test]
    fn one_that_failed_says_so() {
        let own = &ended(Status::Failed(RequestError::ShuttingDown)).into_spans()[0];
        assert!(matches!(own.status, SpanStatus::Error { .. }));
        assert!(attribute(own, "error.type").is_some());
    }
}
