//! Encrypted connections: the TLS handshake, in which a client chooses the version of HTTP (ALPN).

use std::error::Error;
use std::future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use actix_http::body::BoxBody;
use actix_http::error::DispatchError;
use actix_http::header::{HeaderValue, X_FORWARDED_PROTO};
use actix_http::{Protocol, Request, Response};
use actix_service::boxed::{self, BoxFuture, RcService};
use actix_service::{Service, ServiceFactory, fn_factory, forward_ready};
use actix_tls::accept::rustls_0_23::{Acceptor, AcceptorService, TlsStream};
use futures_util::future::LocalBoxFuture;
use rustls::ServerConfig;
use tokio::net::TcpStream;

use super::http2::Http2;
use super::{HttpApp, HttpListener};

/// What HTTP/2 is called in the handshake (RFC 9113, section 3.1).
const HTTP2: &[u8] = b"h2";
/// The versions, the preferred one first.
const VERSIONS: [&[u8]; 2] = [HTTP2, b"http/1.1"];

/// HTTP/1.1 on connections of which the handshake is over.
type Http1 = RcService<(TlsStream<TcpStream>, Protocol, Option<SocketAddr>), (), DispatchError>;

/// A listener for TLS alone.
#[derive(Clone)]
pub(crate) struct TlsListener {
    listener: HttpListener,
    acceptor: Acceptor,
}

impl TlsListener {
    /// A listener that shows the certificate of this configuration.
    pub(crate) fn new(listener: HttpListener, mut tls: ServerConfig) -> Self {
        tls.alpn_protocols = Vec::from(VERSIONS.map(<[u8]>::to_vec));
        Self { listener, acceptor: Acceptor::new(tls) }
    }
}

impl ServiceFactory<TcpStream> for TlsListener {
    type Response = ();
    type Error = Box<dyn Error>;
    type Config = ();
    type Service = TlsService;
    type InitError = ();
    type Future = LocalBoxFuture<'static, Result<TlsService, ()>>;

    fn new_service(&self, (): ()) -> Self::Future {
        let Self { listener, acceptor } = self.clone();
        Box::pin(async move {
            let app: HttpApp = Rc::new(Encrypted { app: (listener.make_app)().await? });
            let shared = Rc::clone(&app);
            let made = fn_factory(move || future::ready(Ok(Rc::clone(&shared))));
            let http1 = listener.http1::<TlsStream<TcpStream>, _>(made);
            Ok(TlsService {
                acceptor: ServiceFactory::<TcpStream>::new_service(&acceptor, ()).await?,
                http1: boxed::rc_service(http1.new_service(()).await?),
                http2: Http2::new(app, &listener),
            })
        })
    }
}

/// A worker's part of an encrypted listener.
pub(crate) struct TlsService {
    acceptor: AcceptorService,
    http1: Http1,
    http2: Http2,
}

impl Service<TcpStream> for TlsService {
    type Response = ();
    type Error = Box<dyn Error>;
    type Future = LocalBoxFuture<'static, Result<(), Self::Error>>;

    /// The acceptor bounds how many handshakes a worker has at a time.
    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        ready!(Service::<TcpStream>::poll_ready(&self.acceptor, context))?;
        self.http1.poll_ready(context).map_err(Into::into)
    }

    fn call(&self, socket: TcpStream) -> Self::Future {
        let accepted = self.acceptor.call(socket);
        let (http1, http2) = (Rc::clone(&self.http1), self.http2.clone());
        Box::pin(async move {
            let stream = accepted.await?;
            let (socket, tls) = stream.get_ref();
            let (peer, is_http2) = (socket.peer_addr().ok(), tls.alpn_protocol() == Some(HTTP2));
            if is_http2 {
                http2.serve(stream, peer).await?;
            } else {
                http1.call((stream, Protocol::Http1, peer)).await?;
            }
            Ok(())
        })
    }
}

/// Tells the app that clients see `https`, as a proxy in front that ends TLS does.
struct Encrypted {
    app: HttpApp,
}

impl Service<Request> for Encrypted {
    type Response = Response<BoxBody>;
    type Error = Response<BoxBody>;
    type Future = BoxFuture<Result<Response<BoxBody>, Response<BoxBody>>>;

    forward_ready!(app);

    fn call(&self, mut request: Request) -> Self::Future {
        let headers = request.headers_mut();
        if !headers.contains_key(X_FORWARDED_PROTO) {
            headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static("https"));
        }
        self.app.call(request)
    }
}

#[cfg(test)]
mod tests {
    use actix_http::HttpMessage as _;
    use actix_service::fn_service;

    use super::*;

    #[actix_web::test]
    async fn the_app_is_told_that_clients_see_https_unless_a_proxy_knows_better() {
        let seen = |request: Request| async move {
            let told = request.headers().get(X_FORWARDED_PROTO).unwrap().clone();
            let mut response = Response::ok();
            response.headers_mut().insert(X_FORWARDED_PROTO, told);
            Ok::<_, Response<BoxBody>>(response)
        };
        let encrypted = Encrypted { app: boxed::rc_service(fn_service(seen)) };
        for (given, expected) in [(None, "https"), (Some("http"), "http")] {
            let mut request = Request::new();
            if let Some(given) = given {
                request.headers_mut().insert(X_FORWARDED_PROTO, HeaderValue::from_static(given));
            }
            let response = encrypted.call(request).await.unwrap();
            assert_eq!(response.headers().get(X_FORWARDED_PROTO).unwrap(), expected);
        }
    }
}
