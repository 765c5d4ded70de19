//! Replies of the app for HTTP/2. hyper leaves out what belongs to a connection of HTTP/1.1 (`Connection` and what it
//! names, `Transfer-Encoding`, `Upgrade`), and adds the date.

use std::error::Error;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use actix_http::Response;
use actix_http::body::{BodySize, BoxBody, MessageBody as _};
use actix_web::web::Bytes;
use hyper::StatusCode;
use hyper::body::{Body, Buf, Frame};
use hyper::header::{CONTENT_LENGTH, HeaderName, HeaderValue};

use super::OpenRequest;

/// Why a name, a value or a status of the app's types is one of hyper's: both are the crate `http`, of two ages.
const SAME_RULES: &str = "both ages of the crate have the same rules";

/// hyper's form of a reply. Its request ends once the body has ended and its last bytes are taken.
pub(super) fn of_app(
    response: Response<BoxBody>,
    is_head: bool,
    request: OpenRequest,
) -> hyper::Response<ReplyBody> {
    let (response, body) = response.into_parts();
    let status = StatusCode::from_u16(response.status().as_u16()).expect(SAME_RULES);
    let size = if has_body(status) { body.size() } else { BodySize::None };
    let body = (!is_head && !size.is_eof()).then_some(body);
    let mut reply = hyper::Response::new(ReplyBody { body, request: Rc::new(request) });
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    for (name, value) in response.headers().iter() {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).expect(SAME_RULES);
        // Only of a stream does nobody know its length better than who wrote the header.
        if name != CONTENT_LENGTH || matches!(size, BodySize::Stream) {
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).expect(SAME_RULES));
        }
    }
    if let BodySize::Sized(length) = size {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    reply
}

/// Whether replies of a status have a body, and a length of it (RFC 9110, section 6.4.1).
fn has_body(status: StatusCode) -> bool {
    !status.is_informational() && status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED
}

/// The body of a reply.
pub(super) struct ReplyBody {
    /// Nothing once it has ended.
    body: Option<BoxBody>,
    request: Rc<OpenRequest>,
}

/// Bytes of a reply, until they are on their way. h2 keeps them for as long as the client takes no more: a body may have
/// ended long before, and its request has not.
pub(super) struct ReplyBytes {
    bytes: Bytes,
    request: Rc<OpenRequest>,
}

impl ReplyBytes {
    fn new(bytes: Bytes, request: &Rc<OpenRequest>) -> Self {
        request.give(bytes.len());
        Self { bytes, request: Rc::clone(request) }
    }
}

impl Buf for ReplyBytes {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.request.taken(count);
    }
}

impl Drop for ReplyBytes {
    fn drop(&mut self) {
        self.request.taken(self.bytes.len());
    }
}

impl Body for ReplyBody {
    type Data = ReplyBytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<ReplyBytes>, Self::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        Poll::Ready(match ready!(Pin::new(body).poll_next(context)) {
            Some(Ok(bytes)) => Some(Ok(Frame::data(ReplyBytes::new(bytes, &self.request)))),
            Some(Err(error)) => {
                tracing::error!(%error, "the body of a reply broke off");
                // hyper resets the stream: the client knows that this is not all.
                Some(Err(error.to_string().into()))
            }
            None => {
                self.body = None;
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_none()
    }
}
