//! A relQuery's place in a trace, from its beginning on. Pure; must not know how spans are sent.

use std::sync::{Arc, OnceLock};

use opentelemetry::trace::{SpanContext, TraceId};
use scheduler::breakdown::PriorityParts;

use super::origin::{Origin, REQUEST_ID, headers_of};
use crate::gateway_ids::{GatewayIds, VIA};

/// A span that has begun.
#[derive(Clone, Debug)]
pub struct OpenSpan {
    /// Itself.
    pub context: SpanContext,
    /// What it is part of.
    pub(super) parent: Option<SpanContext>,
    /// What it is no part of and came from.
    pub(super) links: Vec<SpanContext>,
}

/// Where a relQuery comes from, and its span.
#[derive(Debug, Default)]
pub struct RelQueryOrigin {
    /// Its request; none of rows that no HTTP request brought.
    pub origin: Option<Arc<Origin>>,
    /// Its span, where it is recorded.
    pub span: Option<OpenSpan>,
}

/// What is noted of a relQuery for its trace; each once.
#[derive(Debug, Default)]
pub struct RelQueryTrace {
    origin: OnceLock<RelQueryOrigin>,
    route: OnceLock<&'static str>,
    estimate: OnceLock<PriorityParts>,
}

/// What replicas are told of a relQuery whose rows they run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOn {
    request_id: Option<Arc<str>>,
    /// `traceparent`, and `tracestate` where there is one.
    trace: Vec<(String, String)>,
    /// The gateways that its request has come through.
    via: Option<Arc<str>>,
}

impl PassedOn {
    /// The headers of one try of a row of which this is known, if anything is: always what the gateway is called that
    /// sends it.
    pub fn told(known: Option<&Self>, number: Option<u64>, gateway: &GatewayIds) -> Vec<(String, String)> {
        let via = gateway.via(known.and_then(|known| known.via.as_deref()));
        let mut headers = known.map(|known| known.headers(number)).unwrap_or_default();
        headers.push((VIA.to_owned(), via));
        headers
    }

    /// The headers of one try of a row; with its number where the server is told an id, for servers take those for
    /// unique.
    pub fn headers(&self, number: Option<u64>) -> Vec<(String, String)> {
        let numbered = self.request_id.as_deref().zip(number);
        let id = numbered.map(|(id, number)| (REQUEST_ID.to_owned(), format!("{id}-{number}")));
        id.into_iter().chain(self.trace.iter().cloned()).collect()
    }
}

impl RelQueryTrace {
    /// Notes where it comes from.
    pub fn comes_from(&self, origin: RelQueryOrigin) {
        self.origin.get_or_init(|| origin);
    }

    /// Notes by which route it came.
    pub fn came_by(&self, route: &'static str) {
        self.route.get_or_init(|| route);
    }

    /// Notes what its priority was made of when its first row began.
    pub fn began(&self, parts: PriorityParts) {
        self.estimate.get_or_init(|| parts);
    }

    /// By which route it came.
    pub fn route(&self) -> &'static str {
        self.route.get().copied().unwrap_or_default()
    }

    /// What its priority was made of when its first row began.
    pub fn estimate(&self) -> Option<PriorityParts> {
        self.estimate.get().copied()
    }

    /// Its span, where it is recorded.
    pub fn span(&self) -> Option<&OpenSpan> {
        self.origin.get()?.span.as_ref()
    }

    /// The trace that it is recorded in.
    pub fn trace(&self) -> Option<TraceId> {
        self.span().map(|span| span.context.trace_id())
    }

    /// The id of its request.
    pub fn request_id(&self) -> Option<Arc<str>> {
        self.origin.get()?.origin.as_ref().map(|origin| Arc::clone(&origin.request_id))
    }

    /// What replicas are told: its own span, or its caller's where it has none; nothing where nothing is known.
    pub fn passed_on(&self) -> Option<PassedOn> {
        let own = self.span().map(|span| &span.context);
        let span = own.or_else(|| self.origin.get()?.origin.as_ref()?.span.as_ref());
        let trace = span.map(headers_of).unwrap_or_default();
        let via = self.origin.get().and_then(|from| from.origin.as_ref()?.via.clone());
        let passed = PassedOn { request_id: self.request_id(), trace, via };
        (passed.request_id.is_some() || !passed.trace.is_empty()).then_some(passed)
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanId, TraceFlags, TraceState};

    use super::*;

    fn context(span: u64) -> SpanContext {
        SpanContext::new(TraceId::from(7), SpanId::from(span), TraceFlags::SAMPLED, false, TraceState::NONE)
    }

    fn passed_on(origin: RelQueryOrigin) -> Option<Vec<(String, String)>> {
        let trace = RelQueryTrace::default();
        trace.comes_from(origin);
        trace.passed_on().map(|passed| passed.headers(Some(4)))
    }

    #[test]
    fn replicas_are_told_the_nearest_span_and_an_id_for_each_try() {
        let origin =
            |span| Some(Arc::new(Origin { request_id: "r".into(), span, is_later: false, via: None }));
        let span = Some(OpenSpan { context: context(2), parent: Some(context(1)), links: Vec::new() });
        let parent = |span: &str| ("traceparent".to_owned(), format!("00-{:032x}-{span}-01", 7));
        let id = (REQUEST_ID.to_owned(), "r-4".to_owned());
        let own = passed_on(RelQueryOrigin { origin: origin(Some(context(1))), span });
        assert_eq!(own, Some(vec![id.clone(), parent("0000000000000002")]));
        let callers = passed_on(RelQueryOrigin { origin: origin(Some(context(1))), span: None });
        assert_eq!(callers, Some(vec![id.clone(), parent("0000000000000001")]));
        assert_eq!(passed_on(RelQueryOrigin { origin: origin(None), span: None }), Some(vec![id]));
        assert_eq!(passed_on(RelQueryOrigin::default()), None);
    }

    #[test]
    fn replicas_are_told_which_gateways_a_row_has_come_through_and_that_this_one_sent_it() {
        let (first, own) = (GatewayIds::of(1, 2), GatewayIds::of(3, 4));
        let told = |via: Option<String>| {
            let origin =
                Origin { request_id: "r".into(), span: None, is_later: false, via: via.map(Into::into) };
            let trace = RelQueryTrace::default();
            trace.comes_from(RelQueryOrigin { origin: Some(Arc::new(origin)), span: None });
            PassedOn::told(trace.passed_on().as_ref(), None, &own)
        };
        let header = |value: String| vec![(VIA.to_owned(), value)];
        assert_eq!(told(Some(first.via(None))), header(own.via(Some(&first.via(None)))));
        assert_eq!(told(None), header(own.via(None)));
        assert_eq!(PassedOn::told(None, None, &own), header(own.via(None)), "nothing is known of it");
        assert_ne!(own.via(Some(&first.via(None))), own.via(None));
    }
}
