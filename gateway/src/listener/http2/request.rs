//! Requests of HTTP/2 as HTTP/1.1 would have brought them: the target is a path, `Host` names the authority.
//!
//! What checks a request reads `Host` whatever the version is; in HTTP/2 clients send `:authority` in its place (RFC
//! 9113, section 8.3.1), and what it says goes before a `Host` that a client adds.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use actix_http::error::{HttpError, PayloadError};
use actix_http::header::{HOST, HeaderName, HeaderValue};
use actix_http::uri::PathAndQuery;
use actix_http::{Message, Method, Payload, Request, RequestHead, Uri, Version};
use actix_web::web::Bytes;
use futures_util::Stream;
use hyper::body::{Body as _, Incoming};

/// The app's form of a request.
///
/// # Errors
/// Where the older types, which are the app's, refuse a part of it.
pub(super) fn to_app(
    request: hyper::Request<Incoming>,
    peer: Option<SocketAddr>,
) -> Result<Request, HttpError> {
    let (parts, body) = request.into_parts();
    let mut head = Message::<RequestHead>::new();
    head.method = Method::from_bytes(parts.method.as_str().as_bytes())?;
    head.uri = path_of(&parts.uri)?;
    head.version = Version::HTTP_2;
    head.peer_addr = peer;
    for (name, value) in &parts.headers {
        let name = HeaderName::from_bytes(name.as_str().as_bytes())?;
        head.headers.append(name, HeaderValue::from_bytes(value.as_bytes())?);
    }
    if let Some(authority) = parts.uri.authority() {
        head.headers.insert(HOST, HeaderValue::from_str(authority.as_str())?);
    }
    let (request, _) = Request::from(head).replace_payload(payload_of(body));
    Ok(request)
}

/// The path with its query. CONNECT has none, and finds no route.
fn path_of(uri: &hyper::Uri) -> Result<Uri, HttpError> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Ok(PathAndQuery::try_from(path)?.into())
}

fn payload_of(body: Incoming) -> Payload {
    if body.is_end_stream() {
        Payload::None
    } else {
        Payload::Stream { payload: Box::pin(RequestBody(body)) }
    }
}

/// The bytes of a body. The client may send as many more as were taken.
struct RequestBody(Incoming);

impl Stream for RequestBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Some(frame) = ready!(Pin::new(&mut self.0).poll_frame(context)) else {
                return Poll::Ready(None);
            };
            let broken = |error: hyper::Error| PayloadError::Incomplete(Some(io::Error::other(error)));
            // Trailers say nothing that a route asks for.
            if let Some(data) = frame.map(|frame| frame.into_data().ok()).map_err(broken).transpose() {
                return Poll::Ready(Some(data));
            }
        }
    }
}
