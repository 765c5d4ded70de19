//! The span of a request: what came in at a door, as semantic conventions for servers have it.

use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry::trace::{SpanKind, Status};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::SpanData;

use super::open::OpenSpan;
use super::parent_id;

/// Who makes spans.
const SCOPE: &str = "relserve";

/// A request that has ended.
#[derive(Debug)]
pub struct EndedRequest {
    /// The span.
    pub span: OpenSpan,
    /// The method.
    pub method: String,
    /// The template of its path.
    pub route: String,
    /// The status of its reply.
    pub status: u16,
    /// Bytes of the reply's body that were taken.
    pub bytes: u64,
    /// The request's id.
    pub request_id: Arc<str>,
    /// The tenant, where its key named one.
    pub tenant: Option<u64>,
    /// When its head was read.
    pub begun: SystemTime,
    /// When the last of its reply was taken, or nobody wanted it any more.
    pub ended: SystemTime,
}

impl EndedRequest {
    pub(super) fn into_span(self) -> SpanData {
        let is_failure = self.status >= 500;
        let mut attributes = vec![
            KeyValue::new("http.request.method", self.method.clone()),
            KeyValue::new("http.route", self.route.clone()),
            KeyValue::new("http.response.status_code", i64::from(self.status)),
            KeyValue::new("http.response.body.size", count(self.bytes)),
            KeyValue::new("relserve.request_id", self.request_id.to_string()),
        ];
        attributes.extend(self.tenant.map(|tenant| KeyValue::new("relserve.tenant", count(tenant))));
        if is_failure {
            attributes.push(KeyValue::new("error.type", self.status.to_string()));
        }
        let name = format!("{} {}", self.method, self.route);
        let status = if is_failure { Status::error("") } else { Status::Unset };
        SpanData { attributes, status, ..span(&self.span, name, SpanKind::Server, (self.begun, self.ended)) }
    }
}

/// A span without attributes.
pub(super) fn span(
    open: &OpenSpan,
    name: String,
    span_kind: SpanKind,
    (start_time, end_time): (SystemTime, SystemTime),
) -> SpanData {
    SpanData {
        span_context: open.context.clone(),
        parent_span_id: parent_id(open),
        parent_span_is_remote: open.parent.as_ref().is_some_and(|parent| parent.is_remote()),
        span_kind,
        name: name.into(),
        start_time,
        end_time,
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: Default::default(),
        links: Default::default(),
        status: Status::Unset,
        instrumentation_scope: InstrumentationScope::builder(SCOPE)
            .with_version(env!("CARGO_PKG_VERSION"))
            .build(),
    }
}

/// A count as an attribute has it.
pub(super) fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
