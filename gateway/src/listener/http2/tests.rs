//! HTTP/2 frame by frame, over pipes in memory: the app is a small one, the client is h2's own or raw bytes.

use std::future::poll_fn;
use std::pin::Pin;

use actix_http::Request;
use actix_http::body::BoxBody;
use actix_server::Server;
use actix_service::{boxed, fn_service};
use actix_web::web::{self, Bytes};
use actix_web::{App, HttpRequest, HttpResponse};
use futures_util::{StreamExt as _, stream};
use h2::client::SendRequest;
use h2::{Ping, PingPong, RecvStream, SendStream};
use hyper::body::{Body as _, Buf as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::Notify;

use super::*;

const HOUR: Duration = Duration::from_secs(3_600);
/// Clients may stay for as long as a test takes.
const PATIENT: ClientLimits =
    ClientLimits { header_max: HOUR, idle_max: HOUR, write_max: HOUR, may_half_close: false };
/// What a pipe holds: all that a test writes before anybody reads.
const PIPE_BYTES: usize = 256 << 10;

/// Says what it sees of a request.
async fn echo(request: HttpRequest, body: Bytes) -> HttpResponse {
    let header = |name: &'static str| {
        request.headers().get_all(name).map(|value| value.to_str().unwrap()).collect::<Vec<_>>()
    };
    let (hosts, lengths) = (header("host").join("+"), header("content-length").join("+"));
    let peer = request.peer_addr().unwrap();
    let (method, uri, version) = (request.method(), request.uri(), request.version());
    let body = std::str::from_utf8(&body).unwrap();
    HttpResponse::Ok().body(format!("{method} {uri} {version:?} {hosts} {lengths} {peer} {body}"))
}

/// Counts the bytes of a body, which it begins to read once it is told to.
async fn late(told: web::Data<Notify>, mut body: web::Payload) -> String {
    told.notified().await;
    let mut count = 0;
    while let Some(bytes) = body.next().await {
        count += bytes.unwrap().len();
    }
    count.to_string()
}

/// Headers that HTTP/2 does not have, beside one that is nobody's business.
async fn of_http1() -> HttpResponse {
    let mut reply = HttpResponse::Ok();
    for header in [("connection", "x-hop"), ("x-hop", "1"), ("keep-alive", "5"), ("x-kept", "yes")] {
        reply.append_header(header);
    }
    reply.body("text")
}

async fn empty() -> HttpResponse {
    HttpResponse::NoContent().finish()
}

/// More than a client lets come that reads nothing.
async fn large() -> HttpResponse {
    HttpResponse::Ok().body(vec![b'x'; 1 << 20])
}

/// A body that breaks off.
async fn broken() -> HttpResponse {
    let parts = [Ok(Bytes::from("one")), Err(std::io::Error::other("no more"))];
    HttpResponse::Ok().streaming(stream::iter(parts))
}

/// An address of documentation (RFC 5737).
fn peer() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 7], 4_242))
}

/// Serves a connection that comes over a pipe, to its end.
async fn serve(
    pipe: DuplexStream,
    limits: ClientLimits,
    told: web::Data<Notify>,
) -> Result<(), hyper::Error> {
    let app = move || {
        App::new()
            .app_data(told.clone())
            .route("/echo", web::to(echo))
            .route("/late", web::to(late))
            .route("/of-http1", web::to(of_http1))
            .route("/broken", web::to(broken))
            .route("/empty", web::to(empty))
            .route("/large", web::to(large))
    };
    let listener = HttpListener::new(app, limits, None, Server::build().graceful_shutdown_signal());
    let app = (listener.make_app)().await.unwrap();
    Http2::new(app, &listener).serve(pipe, Some(peer())).await
}

/// A client of a connection that is served beside the test.
struct PipeClient {
    requests: SendRequest<Bytes>,
    pings: PingPong,
    told: web::Data<Notify>,
}

impl PipeClient {
    async fn connect() -> Self {
        let (own, theirs) = tokio::io::duplex(PIPE_BYTES);
        let told = web::Data::new(Notify::new());
        actix_web::rt::spawn(serve(theirs, PATIENT, told.clone()));
        let (requests, mut connection) = h2::client::handshake(own).await.unwrap();
        let pings = connection.ping_pong().unwrap();
        actix_web::rt::spawn(connection);
        Self { requests, pings, told }
    }

    /// Sends the head of a request.
    fn begin(
        &mut self,
        request: hyper::Request<()>,
        is_whole: bool,
    ) -> (h2::client::ResponseFuture, SendStream<Bytes>) {
        self.requests.send_request(request, is_whole).unwrap()
    }

    /// Sends a request without a body, and reads its reply.
    async fn ask(&mut self, method: &str, path: &str) -> (hyper::Response<()>, Result<Vec<u8>, h2::Error>) {
        let (reply, _) = self.begin(request(method, path), true);
        read(reply.await.unwrap()).await
    }

    /// Waits until the server has read and said all that it can.
    async fn settle(&mut self) {
        for _ in 0..10 {
            self.pings.ping(Ping::opaque()).await.unwrap();
        }
    }
}

fn request(method: &str, path: &str) -> hyper::Request<()> {
    let uri = format!("https://relserve.test{path}");
    hyper::Request::builder().method(method).uri(uri).body(()).unwrap()
}

async fn read(reply: hyper::Response<RecvStream>) -> (hyper::Response<()>, Result<Vec<u8>, h2::Error>) {
    let (head, mut body) = reply.into_parts();
    let mut bytes = Vec::new();
    while let Some(part) = body.data().await {
        match part {
            Ok(part) => {
                body.flow_control().release_capacity(part.len()).unwrap();
                bytes.extend_from_slice(&part);
            }
            Err(error) => return (hyper::Response::from_parts(head, ()), Err(error)),
        }
    }
    (hyper::Response::from_parts(head, ()), Ok(bytes))
}

/// Sends so many bytes, as the server lets them come.
async fn feed(body: &mut SendStream<Bytes>, count: usize) {
    let mut left = count;
    while left > 0 {
        body.reserve_capacity(left.min(16 << 10));
        while body.capacity() == 0 {
            poll_fn(|context| body.poll_capacity(context)).await.unwrap().unwrap();
        }
        let bytes = body.capacity().min(left);
        body.send_data(vec![b'x'; bytes].into(), false).unwrap();
        left -= bytes;
    }
}

#[actix_web::test]
async fn a_request_of_http_2_looks_to_the_app_like_one_of_http_1() {
    let mut client = PipeClient::connect().await;
    let mut asked = request("POST", "/echo?x=1");
    // What the client adds does not go before what it asked for.
    asked.headers_mut().insert("host", "evil.example".parse().unwrap());
    asked.headers_mut().insert("content-length", "5".parse().unwrap());
    let (reply, mut body) = client.begin(asked, false);
    body.send_data("hello".into(), true).unwrap();
    let (reply, text) = read(reply.await.unwrap()).await;
    assert_eq!(reply.status(), 200);
    let seen = "POST /echo?x=1 HTTP/2.0 relserve.test 5 192.0.2.7:4242 hello";
    assert_eq!(String::from_utf8(text.unwrap()).unwrap(), seen);
    assert_eq!(reply.headers()["content-length"], seen.len().to_string());
    assert!(reply.headers().contains_key("date"));
}

#[actix_web::test]
async fn a_reply_has_the_headers_and_the_length_that_are_its_own() {
    let mut client = PipeClient::connect().await;
    let (head, body) = client.ask("HEAD", "/of-http1").await;
    assert_eq!((head.headers()["content-length"].as_bytes(), body.unwrap().len()), (&b"4"[..], 0));
    let (head, body) = client.ask("GET", "/of-http1").await;
    assert_eq!((head.headers()["x-kept"].as_bytes(), body.unwrap()), (&b"yes"[..], b"text".to_vec()));
    for hop in ["connection", "x-hop", "keep-alive"] {
        assert!(!head.headers().contains_key(hop), "{hop}");
    }
    let (head, body) = client.ask("GET", "/empty").await;
    assert_eq!((head.status(), body.unwrap().len()), (hyper::StatusCode::NO_CONTENT, 0));
    assert!(!head.headers().contains_key("content-length"));
}

#[actix_web::test]
async fn a_reply_that_breaks_off_is_reset_and_never_ends_well() {
    let mut client = PipeClient::connect().await;
    let (reply, _) = client.begin(request("GET", "/broken"), true);
    // The reset may be faster than the head.
    let error = match reply.await {
        Ok(reply) => read(reply).await.1.expect_err("it broke off"),
        Err(error) => error,
    };
    assert!(error.is_reset() && error.is_remote(), "{error}");
    assert_eq!(client.ask("GET", "/empty").await.0.status(), 204, "the connection goes on");
}

#[actix_web::test]
async fn a_body_that_nobody_reads_stops_at_its_window_and_goes_on_once_it_is_read() {
    const BYTES: usize = 8 << 20;
    let mut client = PipeClient::connect().await;
    let (reply, mut body) = client.begin(request("POST", "/late"), false);
    let window = UNREAD_STREAM_BYTES_MAX as usize;
    feed(&mut body, window).await;
    body.reserve_capacity(1);
    client.settle().await;
    assert_eq!(body.capacity(), 0, "no more comes than is read");
    assert_eq!(client.ask("GET", "/empty").await.0.status(), 204, "other streams go on");
    client.told.notify_one();
    feed(&mut body, BYTES - window).await;
    body.send_data(Bytes::new(), true).unwrap();
    assert_eq!(read(reply.await.unwrap()).await.1.unwrap(), BYTES.to_string().into_bytes());
}

#[actix_web::test]
async fn a_request_is_open_until_its_client_has_taken_the_reply() {
    let app = |_: Request| async { Ok::<_, Response<BoxBody>>(Response::ok()) };
    let app: HttpApp = boxed::rc_service(fn_service(app));
    let (requests, unsent) = (watch::Sender::new(0), watch::Sender::new(0));
    let connection = Rc::new(ServedConnection { app, peer: None, place: None, requests, unsent });
    let seen = || (*connection.requests.borrow(), *connection.unsent.borrow());
    let response = Response::ok().set_body(BoxBody::new("text"));
    let mut body = reply::of_app(response, false, OpenRequest::new(&connection)).into_body();
    let part = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await.unwrap().unwrap();
    // As hyper does at the end of a body, however little of it is sent.
    drop(body);
    let mut bytes = part.into_data().ok().unwrap();
    assert_eq!(seen(), (1, 4));
    bytes.advance(3);
    assert_eq!(seen(), (1, 1));
    drop(bytes);
    assert_eq!(seen(), (0, 0));
}

#[actix_web::test]
async fn a_client_that_takes_nothing_of_its_reply_is_given_up() {
    let limits = ClientLimits { write_max: Duration::from_millis(1), ..PATIENT };
    let (own, theirs) = tokio::io::duplex(PIPE_BYTES);
    let (mut requests, connection) = h2::client::handshake(own).await.unwrap();
    // It goes on to answer, and widens no window.
    actix_web::rt::spawn(connection);
    let (reply, _) = requests.send_request(request("GET", "/large"), true).unwrap();
    serve(theirs, limits, web::Data::new(Notify::new())).await.unwrap();
    let is_whole = match reply.await {
        Ok(reply) => read(reply).await.1.is_ok(),
        Err(_) => false,
    };
    assert!(!is_whole);
}

#[actix_web::test]
async fn clients_are_told_how_many_streams_and_refused_too_long_heads() {
    let mut client = PipeClient::connect().await;
    assert_eq!(client.ask("GET", "/empty").await.0.status(), 204);
    assert_eq!(client.requests.current_max_send_streams(), STREAMS_MAX as usize);
    let mut long = request("GET", "/empty");
    let value = "x".repeat(HEADER_BYTES_MAX as usize);
    long.headers_mut().insert("x-long", value.parse().unwrap());
    let (reply, _) = client.begin(long, true);
    assert_eq!(reply.await.unwrap().status(), 431);
    assert_eq!(client.ask("GET", "/empty").await.0.status(), 204, "the connection goes on");
}

/// Bytes of a frame (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const END_HEADERS: u8 = 0x04;
const WHOLE: u8 = 0x05;
const ENHANCE_YOUR_CALM: u32 = 11;

/// What a client says first.
fn preface() -> Vec<u8> {
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, b"")].concat()
}

/// The head of a request for `/empty`.
fn get(stream: u32, flags: u8) -> Vec<u8> {
    // By the static table of HPACK: GET, https, and a path and an authority that are not put into the other one.
    let head = [&b"\x82\x87\x04\x06/empty"[..], b"\x01\x0drelserve.test"].concat();
    frame(HEADERS, flags, stream, &head)
}

/// A connection on which all of this is there before the server looks.
async fn said(bytes: &[u8]) -> DuplexStream {
    let (mut own, theirs) = tokio::io::duplex(PIPE_BYTES);
    own.write_all(bytes).await.unwrap();
    actix_web::rt::spawn(serve(theirs, PATIENT, web::Data::new(Notify::new())));
    own
}

/// The next frame: its kind, its stream and its payload; nothing at the end.
async fn next_frame(pipe: &mut DuplexStream) -> Option<(u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    pipe.read_exact(&mut head).await.ok()?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    pipe.read_exact(&mut payload).await.unwrap();
    Some((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
}

/// The first frame of a kind.
async fn first(kind: u8, pipe: &mut DuplexStream) -> Option<(u32, Vec<u8>)> {
    loop {
        let (found, stream, payload) = next_frame(pipe).await?;
        if found == kind {
            return Some((stream, payload));
        }
    }
}

/// Why a GOAWAY says that the connection ends.
fn error_code(payload: &[u8]) -> u32 {
    u32::from_be_bytes(payload[4..8].try_into().unwrap())
}

/// The server says that it is too much, and nothing more.
async fn is_given_up(mut connection: DuplexStream) {
    let (_, payload) = first(GOAWAY, &mut connection).await.unwrap();
    assert_eq!(error_code(&payload), ENHANCE_YOUR_CALM);
    assert!(next_frame(&mut connection).await.is_none(), "it is over");
}

#[actix_web::test]
async fn resets_as_fast_as_requests_end_the_connection() {
    for resets in [RESETS_UNASKED_MAX, RESETS_UNASKED_MAX + 1] {
        let mut bytes = preface();
        let mut stream = 1;
        for _ in 0..resets {
            bytes.extend(get(stream, WHOLE));
            bytes.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
            stream += 2;
        }
        bytes.extend(get(stream, WHOLE));
        let mut connection = said(&bytes).await;
        if resets <= RESETS_UNASKED_MAX {
            assert_eq!(first(HEADERS, &mut connection).await.unwrap().0, stream);
        } else {
            is_given_up(connection).await;
        }
    }
}

// RUSTSEC-2026-0258.
#[actix_web::test]
async fn empty_frames_of_a_body_end_the_connection_and_do_not_queue() {
    let frames = frame(DATA, 0, 1, b"").repeat(1_000);
    is_given_up(said(&[preface(), get(1, END_HEADERS), frames].concat()).await).await;
}

#[actix_web::test]
async fn a_connection_without_a_request_is_closed_and_says_so() {
    let limits = ClientLimits { header_max: Duration::from_millis(1), ..PATIENT };
    let told = web::Data::new(Notify::new());
    let (mut own, theirs) = tokio::io::duplex(PIPE_BYTES);
    own.write_all(&preface()).await.unwrap();
    // The client does not answer: the server waits no longer than it must.
    let (served, (_, payload)) = tokio::join!(serve(theirs, limits, told.clone()), async {
        let said = first(GOAWAY, &mut own).await.unwrap();
        assert!(first(HEADERS, &mut own).await.is_none());
        said
    });
    served.unwrap();
    assert_eq!(error_code(&payload), 0, "nothing is wrong");

    // Who does not even begin.
    let (_own, theirs) = tokio::io::duplex(PIPE_BYTES);
    serve(theirs, limits, told).await.unwrap();
}

#[actix_web::test]
async fn a_connection_is_silent_where_no_request_is_open_for_so_long() {
    let (requests, mut open) = watch::channel(1);
    let mut over = pin!(silence(&mut open, Duration::ZERO, Duration::ZERO));
    assert!(futures_util::poll!(over.as_mut()).is_pending(), "a request is open");
    requests.send_replace(0);
    over.await;

    let (requests, mut open) = watch::channel(0);
    let mut over = pin!(silence(&mut open, HOUR, Duration::ZERO));
    assert!(futures_util::poll!(over.as_mut()).is_pending(), "there is time for the first");
    // It comes and ends between two looks.
    requests.send_replace(1);
    requests.send_replace(0);
    over.await;
}
