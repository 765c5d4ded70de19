//! Where work comes from: the id of its request, and its place in a trace. It goes with the future of a handler
//! (OpenTelemetry's context), so that what begins work need not be handed it by everyone between. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use opentelemetry::Context;
use opentelemetry::context::{FutureExt as _, WithContext};
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{SpanContext, TraceContextExt as _, TraceId};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use serde::{Deserialize, Serialize};

/// The header of a request's id.
pub const REQUEST_ID: &str = "x-request-id";

/// Where work comes from.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The id of its request.
    pub request_id: Arc<str>,
    /// The span that it belongs to: its request's, or the client's where that one is not recorded.
    pub span: Option<SpanContext>,
    /// Whether it runs after its request: its spans are no children of that one then, and only linked to it.
    pub is_later: bool,
    /// The gateways that it has come through ([`VIA`](crate::gateway_ids::VIA)), where it came through any. Not kept:
    /// rows of other gateways are no work that outlives its request.
    pub via: Option<Arc<str>>,
}

impl Origin {
    /// That of the future which is polled now.
    pub fn current() -> Option<Arc<Self>> {
        Context::map_current(|context| context.get::<Arc<Self>>().cloned())
    }

    /// A future of this origin.
    pub fn scope<F: Future>(self: Arc<Self>, work: F) -> WithContext<F> {
        work.with_context(Context::new().with_value(self))
    }

    /// A future that is spawned for the request at hand, and keeps its origin.
    pub fn carried<F: Future>(work: F) -> WithContext<F> {
        work.with_current_context()
    }

    /// What of it outlives the process.
    pub fn kept(&self) -> KeptOrigin {
        let headers = self.span.as_ref().map(headers_of).unwrap_or_default();
        KeptOrigin { request_id: self.request_id.to_string(), headers }
    }

    /// Its trace, where it is in one.
    pub fn trace(&self) -> Option<TraceId> {
        self.span.as_ref().map(SpanContext::trace_id)
    }
}

/// Where work comes from that goes on after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptOrigin {
    /// The id of its request.
    request_id: String,
    /// Those that name the span which it belongs to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
}

impl From<&KeptOrigin> for Origin {
    fn from(KeptOrigin { request_id, headers }: &KeptOrigin) -> Self {
        let header = |wanted: &str| {
            headers.iter().find_map(|(name, value)| (name == wanted).then_some(value.as_str()))
        };
        Self { request_id: request_id.as_str().into(), span: parent_of(&header), is_later: true, via: None }
    }
}

/// Headers as they are looked up.
struct Headers<'a>(&'a dyn Fn(&str) -> Option<&'a str>);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (self.0)(key)
    }

    fn keys(&self) -> Vec<&str> {
        Vec::new()
    }
}

/// The client's span that headers name (W3C Trace Context: `traceparent`, `tracestate`).
pub fn parent_of<'a>(header: &'a dyn Fn(&str) -> Option<&'a str>) -> Option<SpanContext> {
    header("traceparent")?;
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(header));
    let parent = context.span().span_context().clone();
    parent.is_valid().then_some(parent)
}

/// The headers that name a span.
pub(super) fn headers_of(span: &SpanContext) -> Vec<(String, String)> {
    let mut headers = HashMap::new();
    let context = Context::new().with_remote_span_context(span.clone());
    TraceContextPropagator::new().inject_context(&context, &mut headers);
    let mut headers: Vec<_> = headers.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    headers.sort();
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_span_goes_from_headers_to_headers_as_it_came() {
        let state = "vendor=a,other=b";
        let header = |name: &str| match name {
            "traceparent" => Some(PARENT),
            "tracestate" => Some(state),
            _ => None,
        };
        let span = parent_of(&header).expect("it is well formed");
        assert_eq!(span.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert!(span.is_sampled() && span.is_remote());
        let headers = headers_of(&span);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(headers, [pair("traceparent", PARENT), pair("tracestate", state)]);
    }

    #[test]
    fn an_origin_that_is_kept_is_the_same_again_and_later() {
        let span = parent_of(&|name| (name == "traceparent").then_some(PARENT));
        for span in [span, None] {
            let origin =
                Origin { via: None, request_id: "sheet-7".into(), span: span.clone(), is_later: false };
            let text = serde_json::to_string(&origin.kept()).expect("plain data");
            let again = Origin::from(&serde_json::from_str::<KeptOrigin>(&text).expect("as it was written"));
            assert_eq!((&*again.request_id, again.is_later), ("sheet-7", true));
            assert_eq!(again.span.as_ref().map(headers_of), span.as_ref().map(headers_of), "{text}");
        }
    }

    #[test]
    fn what_names_no_span_is_no_parent() {
        for bad in ["", "00-x", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", &PARENT[..40]] {
            assert!(parent_of(&|name| (name == "traceparent").then_some(bad)).is_none(), "{bad}");
        }
        assert!(parent_of(&|_| None).is_none());
    }

    #[tokio::test]
    async fn an_origin_goes_with_its_future_and_no_other() {
        let origin = Origin { request_id: "r".into(), span: None, is_later: false, via: None };
        let seen = || async {
            tokio::task::yield_now().await;
            Origin::current().map(|origin| (origin.request_id.to_string(), origin.is_later))
        };
        let within = async {
            let spawned = tokio::spawn(Origin::carried(seen()));
            (seen().await, spawned.await.expect("it ends"), tokio::spawn(seen()).await.expect("it ends"))
        };
        let (own, carried, foreign) = tokio::join!(Arc::new(origin).scope(within), seen()).0;
        assert_eq!(own, Some(("r".into(), false)));
        assert_eq!(carried, own);
        assert_eq!(foreign, None);
        assert!(Origin::current().is_none());
    }
}
