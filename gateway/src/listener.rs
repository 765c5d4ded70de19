//! Listeners of HTTP: clear text, TLS and a Unix socket. The same app is behind all of them, and clients of all of them
//! have the same time.
//!
//! The app is made once for each worker of a listener. actix-http speaks HTTP/1.1. [`http2`] speaks HTTP/2, on encrypted
//! connections whose clients choose it ([`tls`]). Must not know routes.

mod http2;
mod tls;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_http::body::{BoxBody, MessageBody};
use actix_http::{Extensions, HttpService, HttpServiceBuilder, Protocol, Request, Response};
use actix_server::GracefulShutdownSignal;
use actix_service::boxed::{self, RcService};
use actix_service::{IntoServiceFactory, ServiceExt as _, ServiceFactory, fn_factory, fn_service};
use actix_web::dev::AppConfig;
use actix_web::{HttpMessage as _, HttpRequest};
use futures_util::future::LocalBoxFuture;
use tokio::net::{TcpStream, UnixStream};

use crate::connections::{Connections, HttpConnection};

pub(crate) use tls::TlsListener;

/// What answers requests on one worker, whatever version of HTTP they came by.
type HttpApp = RcService<Request, Response<BoxBody>, Response<BoxBody>>;

/// Makes the app of a worker.
type MakeApp = Arc<dyn Fn() -> LocalBoxFuture<'static, Result<HttpApp, ()>> + Send + Sync>;

/// Time that a client has to close a connection that the server has closed.
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// What clients of a listener may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientLimits {
    /// Time from the beginning of a connection to the head of its first request.
    pub(crate) header_max: Duration,
    /// Time for which a connection stays open without a request.
    pub(crate) idle_max: Duration,
    /// Time for which bytes of replies wait for a client of HTTP/2 that takes none. For those of HTTP/1.1 the kernel has
    /// it, with the socket.
    pub(crate) write_max: Duration,
    /// Whether a client of HTTP/1.1 that closes its writing half gets its reply still; otherwise it is taken for gone.
    pub(crate) may_half_close: bool,
}

/// What the listeners of a server have in common.
#[derive(Clone)]
pub(crate) struct HttpListener {
    make_app: MakeApp,
    limits: ClientLimits,
    /// Where open connections are known; none are where nothing bounds them.
    connections: Option<Arc<Connections>>,
    shutdown: GracefulShutdownSignal,
}

impl HttpListener {
    /// Listeners with this app behind them, of the server that gives the signal.
    pub(crate) fn new<F, I, S, B>(
        app: F,
        limits: ClientLimits,
        connections: Option<Arc<Connections>>,
        shutdown: GracefulShutdownSignal,
    ) -> Self
    where
        F: Fn() -> I + Send + Sync + 'static,
        I: IntoServiceFactory<S, Request>,
        S: ServiceFactory<Request, Config = AppConfig> + 'static,
        S::InitError: fmt::Debug,
        S::Response: Into<Response<B>>,
        S::Error: Into<Response<BoxBody>>,
        B: MessageBody + 'static,
    {
        let make_app = move || -> LocalBoxFuture<'static, Result<HttpApp, ()>> {
            let made = app().into_factory().new_service(AppConfig::default());
            Box::pin(async move {
                let app = made.await.map_err(|error| tracing::error!(?error, "the app cannot be made"))?;
                let boxed_body = |response: S::Response| {
                    let response: Response<B> = response.into();
                    response.map_into_boxed_body()
                };
                let refused = |error: S::Error| -> Response<BoxBody> { error.into() };
                Ok(boxed::rc_service(app.map(boxed_body).map_err(refused)))
            })
        };
        Self { make_app: Arc::new(make_app), limits, connections, shutdown }
    }

    /// HTTP/1.1 in clear text over TCP.
    pub(crate) fn clear_text(&self) -> impl ServiceFactory<TcpStream, Config = ()> + use<> {
        let make_app = Arc::clone(&self.make_app);
        self.http1::<TcpStream, _>(fn_factory(move || make_app())).tcp()
    }

    /// HTTP/1.1 in clear text over a Unix socket.
    pub(crate) fn unix(&self) -> impl ServiceFactory<UnixStream, Config = ()> + use<> {
        let make_app = Arc::clone(&self.make_app);
        let http1 = self.http1::<UnixStream, _>(fn_factory(move || make_app()));
        // A client on this machine has no address.
        let taken = fn_service(|stream: UnixStream| async move { Ok((stream, Protocol::Http1, None)) });
        actix_service::ServiceFactoryExt::and_then(taken, http1)
    }

    /// HTTP/1.1 over streams of any kind.
    fn http1<T, F>(&self, app: F) -> HttpService<T, F, BoxBody>
    where
        T: 'static,
        F: ServiceFactory<
                Request,
                Config = (),
                Response = Response<BoxBody>,
                Error = Response<BoxBody>,
                Service = HttpApp,
                InitError = (),
            >,
    {
        let (connections, shutdown) = (self.connections.clone(), self.shutdown.clone());
        HttpServiceBuilder::<T, F>::default()
            .client_request_timeout(self.limits.header_max)
            .keep_alive(self.limits.idle_max)
            .client_disconnect_timeout(CLOSE_MAX)
            .h1_allow_half_closed(self.limits.may_half_close)
            .graceful_shutdown_signal(move || {
                let shutdown = shutdown.clone();
                async move { shutdown.notified().await }
            })
            .on_connect_ext(move |stream: &T, data: &mut Extensions| {
                if let Some(connections) = &connections {
                    data.insert(Rc::new(connections.take(stream)));
                }
            })
            .finish::<_, BoxBody>(app)
    }
}

/// The connection that a request came by. actix-http keeps it with a connection of HTTP/1.1; a request of HTTP/2 has it
/// itself, for actix-http lets nobody else keep things with a connection.
pub(crate) fn connection_of(request: &HttpRequest) -> Option<Rc<HttpConnection>> {
    let of_http1 = request.conn_data::<Rc<HttpConnection>>().cloned();
    of_http1.or_else(|| request.extensions().get::<Rc<HttpConnection>>().cloned())
}
