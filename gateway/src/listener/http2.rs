//! HTTP/2, spoken by hyper. Each request becomes one of the app, which need not know by which version it was asked.
//!
//! A stream is a task on its connection's worker. Bytes of a body are taken from the client as the app reads them, and
//! those of a reply are made as the client takes them. A stream that the client resets, or whose connection ends, drops
//! what the app is doing for it, as the end of a connection of HTTP/1.1 does.

mod reply;
mod request;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_http::{HttpMessage as _, Response};
use actix_server::GracefulShutdownSignal;
use actix_service::Service as _;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::{CLOSE_MAX, ClientLimits, HttpApp, HttpListener};
use crate::connections::{Connections, HttpConnection};
use reply::ReplyBody;

/// Streams of a connection at a time: as many as Go's server allows. A client sends no more until some have ended.
const STREAMS_MAX: u32 = 250;
/// Streams that were reset before the app was asked: one more ends the connection. What resets as fast as it asks
/// (CVE-2023-44487) gets no further than this; a client that changes its mind has one or two. h2's own bound.
const RESETS_UNASKED_MAX: usize = 20;
/// Streams of a connection that were reset for what the client did wrong, those beyond [`STREAMS_MAX`] among them: one
/// more ends it. A client may send a burst before it knows the bound. hyper's own bound.
const RESETS_OF_ERRORS_MAX: usize = 1_024;
/// Bytes of a request's head, each header with 32 more (RFC 9113, section 6.5.2); beyond them it gets a 431. All streams
/// of a connection together may have 8 MB of heads.
const HEADER_BYTES_MAX: u32 = 32 << 10;
/// Bytes of one request's body that nobody has read yet, and of all bodies of a connection. A client sends no more
/// before: one upload is no slower than this in a round trip, and one that nobody reads leaves room for others.
const UNREAD_STREAM_BYTES_MAX: u32 = 1 << 20;
const UNREAD_BYTES_MAX: u32 = 2 << 20;
/// Bytes of a reply that its client does not take yet: no more of it is made meanwhile.
const UNSENT_BYTES_MAX: usize = 64 << 10;
/// Least time for the answer to a PING, which may stand behind bytes of a slow line: hyper's own. Where connections may
/// be idle for less, those with a request still have it.
const PONG_MIN: Duration = Duration::from_secs(20);

/// What speaks HTTP/2 on one worker.
#[derive(Clone)]
pub(super) struct Http2 {
    app: HttpApp,
    limits: ClientLimits,
    connections: Option<Arc<Connections>>,
    shutdown: GracefulShutdownSignal,
}

impl Http2 {
    /// With this app behind it, and the limits of a listener.
    pub(super) fn new(app: HttpApp, listener: &HttpListener) -> Self {
        let HttpListener { limits, connections, shutdown, .. } = listener.clone();
        Self { app, limits, connections, shutdown }
    }

    /// Serves a connection to its end: the client's, or that of its time. At its last, and where the server ends,
    /// requests under way are answered, and the client is told that no other will be (GOAWAY). A client that takes
    /// nothing of its replies is given up without a word.
    ///
    /// # Errors
    /// Where the client broke off, or the protocol's rules.
    pub(super) async fn serve<T>(self, stream: T, peer: Option<SocketAddr>) -> Result<(), hyper::Error>
    where
        T: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let place = self.connections.as_ref().map(|connections| Rc::new(connections.take(&stream)));
        let (requests, mut open) = watch::channel(0);
        let (unsent, mut waiting) = watch::channel(0);
        let shared = Rc::new(ServedConnection { app: self.app, peer, place, requests, unsent });
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            // Counted from here on, and not from when its task first runs.
            let open = OpenRequest::new(&shared);
            async move { Ok::<_, Infallible>(open.answer(request).await) }
        });
        let ClientLimits { header_max, idle_max, write_max, .. } = self.limits;
        let mut connection = pin!(protocol(idle_max).serve_connection(TokioIo::new(stream), service));
        let mut stalled = pin!(stall(&mut waiting, write_max));
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = stalled.as_mut() => return Ok(()),
            () = self.shutdown.notified() => {}
            () = silence(&mut open, header_max, idle_max) => {}
        }
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            ended = connection => ended,
            () = stalled => Ok(()),
            () = silence(&mut open, CLOSE_MAX, CLOSE_MAX) => Ok(()),
        }
    }
}

/// The protocol with its bounds. A client that holds a request open is asked whether it is there yet (PING).
fn protocol(idle_max: Duration) -> Builder<LocalExecutor> {
    let mut builder = Builder::new(LocalExecutor);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESETS_UNASKED_MAX)
        .max_local_error_reset_streams(RESETS_OF_ERRORS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .initial_stream_window_size(UNREAD_STREAM_BYTES_MAX)
        .initial_connection_window_size(UNREAD_BYTES_MAX)
        .max_send_buf_size(UNSENT_BYTES_MAX)
        .keep_alive_interval((!idle_max.is_zero()).then_some(idle_max))
        .keep_alive_timeout(idle_max.max(PONG_MIN));
    builder
}

/// Resolves once no request has been open for `first`, or, after there was one, for `next`.
async fn silence(open: &mut watch::Receiver<usize>, first: Duration, next: Duration) {
    let mut patience = first;
    loop {
        let is_idle = *open.borrow_and_update() == 0;
        let wait = if is_idle { patience } else { Duration::MAX };
        let Ok(Ok(())) = tokio::time::timeout(wait, open.changed()).await else { return };
        patience = next;
    }
}

/// Resolves once bytes of replies have waited for so long, and the client took none meanwhile. The kernel sees no such
/// client: it reads, and does not widen its windows. Without a time it may wait for ever, as on the kernel's part.
async fn stall(unsent: &mut watch::Receiver<usize>, patience: Duration) {
    loop {
        let has_an_end = *unsent.borrow_and_update() > 0 && !patience.is_zero();
        let wait = if has_an_end { patience } else { Duration::MAX };
        let Ok(Ok(())) = tokio::time::timeout(wait, unsent.changed()).await else { return };
    }
}

/// A connection, as its requests see it.
struct ServedConnection {
    app: HttpApp,
    peer: Option<SocketAddr>,
    place: Option<Rc<HttpConnection>>,
    /// How many are open.
    requests: watch::Sender<usize>,
    /// Bytes of replies that wait for the client. Who looks is told when some begin to wait, and when some are taken.
    unsent: watch::Sender<usize>,
}

/// A request whose reply the client has not taken to its end.
struct OpenRequest(Rc<ServedConnection>);

impl OpenRequest {
    fn new(connection: &Rc<ServedConnection>) -> Self {
        connection.requests.send_modify(|open| *open += 1);
        Self(Rc::clone(connection))
    }

    async fn answer(self, request: hyper::Request<Incoming>) -> hyper::Response<ReplyBody> {
        let is_head = request.method() == hyper::Method::HEAD;
        let response = match request::to_app(request, self.0.peer) {
            Ok(request) => {
                if let Some(place) = &self.0.place {
                    request.extensions_mut().insert(Rc::clone(place));
                }
                self.0.app.call(request).await.unwrap_or_else(|refusal| refusal)
            }
            Err(error) => {
                tracing::debug!(%error, "a request of HTTP/2 that HTTP/1.1 could not say");
                Response::bad_request()
            }
        };
        reply::of_app(response, is_head, self)
    }

    /// Bytes of the reply begin to wait.
    fn give(&self, bytes: usize) {
        self.0.unsent.send_if_modified(|unsent| {
            *unsent += bytes;
            *unsent == bytes
        });
    }

    /// Bytes of the reply wait no more.
    fn taken(&self, bytes: usize) {
        self.0.unsent.send_if_modified(|unsent| {
            *unsent -= bytes;
            bytes > 0
        });
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.requests.send_modify(|open| *open -= 1);
    }
}

/// Runs streams on the thread of their connection: the app's futures stay on theirs.
#[derive(Clone, Copy, Debug)]
struct LocalExecutor;

impl<F> Executor<F> for LocalExecutor
where
    F: Future<Output = ()> + 'static,
{
    fn execute(&self, stream: F) {
        actix_web::rt::spawn(stream);
    }
}
