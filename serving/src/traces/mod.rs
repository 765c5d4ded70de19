//! Traces: requests and relQueries as spans, made when they end and sent over OTLP.
//!
//! A relQuery's waiting, core and tail (RelServe, Eq. 2) are measured whether anybody traces or not; its spans are
//! made of them afterwards, on the thread that sends them, so the loop pays one message for a relQuery and nothing
//! for a step. Where no collector is named nothing is made: what a request brings is only passed on to replicas.
//! Spans hold counts, names of routes and times, never a cell, a prompt or an answer.

mod exporter;
pub mod open;
mod origin;
mod relquery;
mod request;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, TraceFlags, TraceState};
use opentelemetry_sdk::trace::{
    IdGenerator as _, RandomIdGenerator, Sampler, SamplingDecision, ShouldSample as _, SpanData,
};

pub use exporter::TracesError;
use exporter::{ExporterMessage, Queue};
use open::{OpenSpan, RelQueryOrigin};
pub use origin::{KeptOrigin, Origin, REQUEST_ID, parent_of};
pub(crate) use relquery::EndedRelQuery;
pub use request::EndedRequest;

use crate::config::TracesConfig;

/// Spans that were sent, and those that were not.
#[derive(Debug, Default)]
pub struct TraceCounts {
    exported: AtomicU64,
    /// For want of room in the queue.
    dropped: AtomicU64,
    /// The collector did not take them.
    failed: AtomicU64,
}

impl TraceCounts {
    /// Spans that the collector has taken.
    pub fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// Spans that were dropped because too many waited.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Spans that the collector did not take.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

/// What has ended and is to be sent.
#[expect(clippy::large_enum_variant, reason = "one a request, on its way through a channel")]
enum EndedWork {
    Request(EndedRequest),
    RelQuery(EndedRelQuery),
}

impl EndedWork {
    /// How many spans it becomes.
    fn spans(&self) -> u64 {
        match self {
            Self::Request(_) => 1,
            Self::RelQuery(_) => relquery::SPANS,
        }
    }

    fn into_spans(self, to: &mut Vec<SpanData>) {
        match self {
            Self::Request(request) => to.push(request.into_span()),
            Self::RelQuery(relquery) => to.extend(relquery.into_spans()),
        }
    }
}

/// Makes spans and sends them. Of a process one.
#[derive(Debug)]
pub struct Traces {
    recorder: Option<Recorder>,
    counts: Arc<TraceCounts>,
}

#[derive(Debug)]
struct Recorder {
    queue: Queue,
    ids: RandomIdGenerator,
    sampler: Sampler,
}

impl Traces {
    /// Traces as they are configured; without a collector nothing is recorded.
    pub fn start(config: &TracesConfig) -> Result<Self, TracesError> {
        let counts = Arc::<TraceCounts>::default();
        let queue = config.is_on().then(|| exporter::start(config, &counts)).transpose()?;
        let sampler = Sampler::TraceIdRatioBased(config.sample_ratio);
        let recorder = queue.map(|queue| Recorder { queue, ids: RandomIdGenerator::default(), sampler });
        Ok(Self { recorder, counts })
    }

    /// None.
    pub fn off() -> Self {
        Self { recorder: None, counts: Arc::default() }
    }

    /// What has become of spans.
    pub fn counts(&self) -> &Arc<TraceCounts> {
        &self.counts
    }

    /// Begins a span below another, or at the root of a trace. `None`: it is not recorded.
    pub fn open(&self, parent: Option<&SpanContext>, links: Vec<SpanContext>) -> Option<OpenSpan> {
        let Recorder { ids, sampler, .. } = self.recorder.as_ref()?;
        let trace = parent.map_or_else(|| ids.new_trace_id(), SpanContext::trace_id);
        let is_sampled = match parent {
            Some(parent) => parent.is_sampled(),
            None => {
                let result = sampler.should_sample(None, trace, "", &SpanKind::Server, &[], &[]);
                result.decision == SamplingDecision::RecordAndSample
            }
        };
        let state = parent.map_or(TraceState::NONE, |parent| parent.trace_state().clone());
        let context = || SpanContext::new(trace, ids.new_span_id(), TraceFlags::SAMPLED, false, state);
        is_sampled.then(|| OpenSpan { context: context(), parent: parent.cloned(), links })
    }

    /// Begins what a relQuery of the request at hand is traced by.
    pub(crate) fn relquery(&self) -> RelQueryOrigin {
        let origin = Origin::current();
        let span = origin.as_ref().and_then(|origin| origin.span.clone());
        let span = match (&origin, span) {
            (Some(origin), Some(span)) if origin.is_later => self.open(None, vec![span]),
            (_, span) => self.open(span.as_ref(), Vec::new()),
        };
        RelQueryOrigin { origin, span }
    }

    /// A request has ended.
    pub fn request_ended(&self, request: EndedRequest) {
        self.send(EndedWork::Request(request));
    }

    /// A relQuery has ended.
    pub(crate) fn relquery_ended(&self, relquery: EndedRelQuery) {
        self.send(EndedWork::RelQuery(relquery));
    }

    fn send(&self, ended: EndedWork) {
        let Some(recorder) = &self.recorder else { return };
        let spans = ended.spans();
        if recorder.queue.try_send(ExporterMessage::Ended(Box::new(ended))).is_err() {
            self.counts.dropped.fetch_add(spans, Ordering::Relaxed);
        }
    }

    /// Waits until all that has ended before is sent, or is given up.
    pub async fn flush(&self) {
        let Some(recorder) = &self.recorder else { return };
        let (done, is_done) = tokio::sync::oneshot::channel();
        if recorder.queue.send(ExporterMessage::Flush(done)).await.is_ok() {
            // Err: the thread has ended, with all that it had.
            let _ = is_done.await;
        }
    }
}

/// A span's parent, as the collector is told it.
fn parent_id(span: &OpenSpan) -> SpanId {
    span.parent.as_ref().map_or(SpanId::INVALID, SpanContext::span_id)
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TraceId;

    use super::*;

    fn recording(sample_ratio: f64) -> Traces {
        // Nobody listens there, and nothing is sent: spans are only opened.
        let endpoint = Some("http://127.0.0.1:9".into());
        Traces::start(&TracesConfig { endpoint, sample_ratio, ..TracesConfig::default() }).expect("it starts")
    }

    fn parent(flags: TraceFlags) -> SpanContext {
        let state = TraceState::from_key_value([("vendor", "a")]).expect("it is well formed");
        SpanContext::new(TraceId::from(7), SpanId::from(8), flags, true, state)
    }

    #[test]
    fn without_a_collector_nothing_is_recorded() {
        assert!(Traces::off().open(None, Vec::new()).is_none());
        let traces = Traces::start(&TracesConfig::default()).expect("nothing can fail");
        assert!(traces.open(Some(&parent(TraceFlags::SAMPLED)), Vec::new()).is_none());
        assert!(traces.relquery().span.is_none());
    }

    #[test]
    fn a_caller_decides_for_its_trace_and_the_ratio_for_those_that_begin_here() {
        let (all, none) = (recording(1.0), recording(0.0));
        let span = none.open(Some(&parent(TraceFlags::SAMPLED)), Vec::new()).expect("the caller records");
        assert_eq!((span.context.trace_id(), parent_id(&span)), (TraceId::from(7), SpanId::from(8)));
        assert_eq!(span.context.trace_state().get("vendor"), Some("a"));
        assert!(all.open(Some(&parent(TraceFlags::default())), Vec::new()).is_none());
        assert!(none.open(None, Vec::new()).is_none());
        let (one, other) = (all.open(None, Vec::new()), all.open(None, Vec::new()));
        let trace = |span: Option<OpenSpan>| span.expect("it is recorded").context.trace_id();
        assert_ne!(trace(one), trace(other));
    }
}
