//! What is kept of every request, around all other middleware but what gives it its state: its id, its place in a
//! trace, its line in the access log. It ends with the last byte of its reply, or when nobody wants the rest.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_web::HttpMessage as _;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::error::InternalError;
use actix_web::http::header::HeaderMap;
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::Next;
use actix_web::web::{Bytes, Data};
use base::{TenantId, Time};
use serving::gateway_ids::{self, VIA};
use serving::traces::open::OpenSpan;
use serving::traces::{EndedRequest, Origin, parent_of};
use store::UnixMillis;
use tracing::Instrument as _;

use crate::access_log::AccessLine;
use crate::arrival;
use crate::auth::KeyHolderTenant;
use crate::connections::ActiveRequest;
use crate::error::ApiError;
use crate::listener::connection_of;
use crate::request_id;
use crate::routes::ops::HEALTH_PATHS;
use crate::state::App;

/// What a path is called in traces that no route has.
const UNKNOWN: &str = "unknown";

/// A request under way.
struct Observed {
    app: Data<App>,
    method: Method,
    origin: Arc<Origin>,
    span: Option<OpenSpan>,
    arrival: Time,
    unix_ms: u64,
    _active: Option<ActiveRequest>,
}

/// How it was replied to.
struct Replied {
    route: Option<String>,
    status: StatusCode,
    tenant: Option<TenantId>,
}

/// Observes a request from its head to the end of its reply.
pub(crate) async fn observe(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    arrival::note(&request);
    let Some(app) = request.app_data::<Data<App>>().cloned() else {
        return next.call(request).await.map(ServiceResponse::map_into_boxed_body);
    };
    let via = via_of(request.headers());
    let is_back = via.as_deref().and_then(|via| app.runtime.shared.gateway.refuses(via));
    let observed = Observed::new(app, &request, via.as_deref());
    if let Some(reason) = is_back {
        return Err(observed.refused(&ApiError::LoopDetected(reason).into()));
    }
    let origin = Arc::clone(&observed.origin);
    // The lines that are logged meanwhile carry its id, whatever level is asked for.
    let span = tracing::error_span!("request", id = %origin.request_id);
    match origin.scope(next.call(request).instrument(span)).await {
        Ok(response) => Ok(observed.replied(response)),
        Err(error) => Err(observed.refused(&error)),
    }
}

impl Observed {
    fn new(app: Data<App>, request: &ServiceRequest, via: Option<&str>) -> Self {
        let headers = request.headers();
        let parent = parent_of(&|name| headers.get(name)?.to_str().ok());
        let shared = &app.runtime.shared;
        // Who looks whether it is well asks too often.
        let is_traced = !HEALTH_PATHS.contains(&request.path());
        let span = is_traced.then(|| shared.traces.open(parent.as_ref(), Vec::new())).flatten();
        let own = span.as_ref().map(|span| span.context.clone());
        let request_id = request_id::of(headers);
        let via = via.and_then(gateway_ids::named).map(Into::into);
        let origin = Arc::new(Origin { request_id, span: own.or(parent), is_later: false, via });
        let (arrival, unix_ms) = (shared.clock.now(), shared.clock.unix_ms());
        let _active = connection_of(request.request()).and_then(|connection| connection.begin());
        Self { method: request.method().clone(), origin, span, arrival, unix_ms, app, _active }
    }

    /// A reply that goes out: it carries the id, and its end is noted.
    fn replied<B: MessageBody + 'static>(self, mut response: ServiceResponse<B>) -> ServiceResponse<BoxBody> {
        let id = request_id::header(&self.origin.request_id);
        if response.request().path().starts_with(request_id::ANTHROPIC_PATHS) {
            response.headers_mut().insert(request_id::ANTHROPIC_HEADER, id.clone());
        }
        response.headers_mut().insert(request_id::HEADER, id);
        let request = response.request();
        let tenant = request.extensions().get::<KeyHolderTenant>().map(|KeyHolderTenant(tenant)| *tenant);
        let replied = Replied { route: request.match_pattern(), status: response.status(), tenant };
        response.map_body(|_, body| {
            BoxBody::new(ObservedBody { body: body.boxed(), bytes: 0, end: Some((self, replied)) })
        })
    }

    /// A refusal by what stands before the routes.
    fn refused(self, error: &actix_web::Error) -> actix_web::Error {
        let mut response = error.error_response();
        response.headers_mut().insert(request_id::HEADER, request_id::header(&self.origin.request_id));
        let bytes = match response.body().size() {
            BodySize::Sized(bytes) => bytes,
            BodySize::None | BodySize::Stream => 0,
        };
        self.end(Replied { route: None, status: response.status(), tenant: None }, bytes);
        InternalError::from_response(error.to_string(), response).into()
    }

    fn end(self, replied: Replied, bytes: u64) {
        let shared = &self.app.runtime.shared;
        let now = shared.clock.now();
        let tenant = replied.tenant.map(|tenant| tenant.0);
        if let Some(log) = &self.app.access_log {
            let line = AccessLine {
                time: UnixMillis(self.unix_ms).rfc3339(),
                method: self.method.as_str(),
                path: replied.route.as_deref(),
                status: replied.status.as_u16(),
                duration_ms: now.since(self.arrival).as_seconds() * 1_000.0,
                bytes,
                tenant,
                request_id: &self.origin.request_id,
                trace_id: self.origin.trace().map(|trace| trace.to_string()),
            };
            if !log.write(&line) {
                shared.metrics.requests.access_lines_lost.inc();
            }
        }
        let Some(span) = self.span else { return };
        let wall = shared.clock.wall();
        shared.traces.request_ended(EndedRequest {
            span,
            method: self.method.to_string(),
            route: replied.route.unwrap_or_else(|| UNKNOWN.to_owned()),
            status: replied.status.as_u16(),
            bytes,
            request_id: Arc::clone(&self.origin.request_id),
            tenant,
            begun: wall.at(self.arrival),
            ended: wall.at(now),
        });
    }
}

/// The gateways that a request says it has come through.
fn via_of(headers: &HeaderMap) -> Option<String> {
    let lines: Vec<&str> = headers.get_all(VIA).filter_map(|line| line.to_str().ok()).collect();
    (!lines.is_empty()).then(|| lines.join(","))
}

/// A reply's body, whose end is that of the request.
struct ObservedBody {
    body: BoxBody,
    /// Bytes that were taken.
    bytes: u64,
    end: Option<(Observed, Replied)>,
}

impl MessageBody for ObservedBody {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_next(context);
        if let Poll::Ready(Some(Ok(bytes))) = &polled {
            self.bytes += bytes.len() as u64;
        }
        polled
    }
}

impl Drop for ObservedBody {
    fn drop(&mut self) {
        if let Some((observed, replied)) = self.end.take() {
            observed.end(replied, self.bytes);
        }
    }
}
