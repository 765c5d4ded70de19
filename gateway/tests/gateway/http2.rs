//! HTTP/2 over TLS: all that holds on HTTP/1.1 holds there. The client is h2's own: it says what it sends, takes and
//! resets.

use std::net::SocketAddr;
use std::sync::Arc;

use actix_web::web::Bytes;
use base::Millis;
use gateway::config::{AuthMode, Config};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Request, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;

use crate::common::client::Reply;
use crate::common::double::Gate;
use crate::common::{Server, model, seen_in_time, serve_with};
use crate::tls::{encrypted, handshake, handshake_at, write_pair};

const RELQUERIES: &str = "/v1/relqueries";

/// Bytes of all replies of a connection that the client has not read.
const CLIENT_UNREAD_BYTES_MAX: u32 = 1 << 20;

/// A server that speaks TLS, and what its clients trust.
struct Encrypted {
    server: Server,
    certificate: rcgen::Certificate,
    _folder: tempfile::TempDir,
}

impl Encrypted {
    async fn serve() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificate = write_pair(folder.path());
        let mut config = encrypted(folder.path());
        change(&mut config);
        Self { server: serve_with(config, model()).await, certificate, _folder: folder }
    }

    /// A new connection.
    async fn connect(&self) -> Http2Client {
        self.connect_to(self.server.running.address).await
    }

    /// The same to one of its listeners.
    async fn connect_to(&self, address: SocketAddr) -> Http2Client {
        let stream = handshake_at(address, &self.certificate, &["h2", "http/1.1"]).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        // A test may read many replies in their order: none of them waits for what is read of those before it.
        let mut protocol = h2::client::Builder::new();
        protocol.initial_connection_window_size(CLIENT_UNREAD_BYTES_MAX);
        let (requests, connection) = protocol.handshake(stream).await.unwrap();
        let key = self.server.client.key.clone();
        let host = address.to_string();
        Http2Client { requests, connection: tokio::spawn(connection), key, host }
    }
}

/// A connection of HTTP/2.
struct Http2Client {
    requests: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
    key: Option<String>,
    host: String,
}

impl Http2Client {
    fn request(&self, method: &str, path: &str) -> Request<()> {
        let request = Request::builder().method(method).uri(format!("https://{}{path}", self.host));
        let request = request.header("content-type", "application/json");
        let key = self.key.iter().map(|key| format!("Bearer {key}"));
        key.fold(request, |request, key| request.header("authorization", key)).body(()).unwrap()
    }

    /// Opens a stream, whose body is still to come.
    async fn open(&mut self, request: Request<()>) -> (ResponseFuture, SendStream<Bytes>) {
        self.requests = self.requests.clone().ready().await.unwrap();
        self.requests.send_request(request, false).unwrap()
    }

    /// Posts JSON; the reply is still to come.
    async fn begin(&mut self, path: &str, body: &Value) -> ResponseFuture {
        let (reply, mut sent) = self.open(self.request("POST", path)).await;
        sent.send_data(body.to_string().into(), true).unwrap();
        reply
    }

    async fn post(&mut self, path: &str, body: &Value) -> Reply {
        finish(self.begin(path, body).await).await
    }

    async fn get(&mut self, path: &str) -> Reply {
        let request = self.request("GET", path);
        self.requests = self.requests.clone().ready().await.unwrap();
        finish(self.requests.send_request(request, true).unwrap().0).await
    }
}

/// The next bytes of a reply; nothing at its end.
async fn next(body: &mut RecvStream) -> Option<Bytes> {
    let bytes = body.data().await?.unwrap();
    body.flow_control().release_capacity(bytes.len()).unwrap();
    Some(bytes)
}

/// Reads a reply to its end.
async fn finish(reply: ResponseFuture) -> Reply {
    let (head, mut body) = reply.await.unwrap().into_parts();
    let mut bytes = Vec::new();
    while let Some(part) = next(&mut body).await {
        bytes.extend_from_slice(&part);
    }
    let line = |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {}\n", value.to_str().unwrap());
    let lines: String = head.headers.iter().map(line).collect();
    Reply {
        status: head.status.as_u16(),
        head: lines.to_lowercase(),
        body: String::from_utf8(bytes).unwrap(),
    }
}

/// A relQuery of one row.
fn row(word: &str) -> Value {
    json!({"template": "Say {w}", "rows": [[word]], "cache": false})
}

/// A request whose tokens come one after another for long.
fn endless(stream: bool) -> Value {
    json!({"prompt": "Say one", "max_tokens": 500, "ignore_eos": true, "temperature": 0, "stream": stream})
}

#[actix_web::test]
async fn health_and_metrics_are_answered_over_http_2_on_their_own_address() {
    let encrypted = Encrypted::serve().await;
    let address = encrypted.server.running.health_address.unwrap();
    let mut client = encrypted.connect_to(address).await;
    // Who asks for health has no key.
    client.key = None;
    for _ in 0..2 {
        assert_eq!(client.get("/healthz").await.status, 200);
    }
    let metrics = client.get("/metrics").await;
    assert!(
        metrics.status == 200 && metrics.body.contains("relserve_step_seconds_count"),
        "{}",
        metrics.body
    );
    assert_eq!(client.get("/v1/models").await.status, 404, "nothing else is there");
}

#[actix_web::test]
async fn both_versions_are_answered_on_one_port() {
    let encrypted = Encrypted::serve().await;
    let mut client = encrypted.connect().await;
    assert_eq!(client.post(RELQUERIES, &row("x")).await.json()["rows"][0]["text"], "x");
    for protocols in [&["http/1.1"][..], &[]] {
        let mut older = handshake(&encrypted.server, &encrypted.certificate, protocols).await.unwrap();
        older.write_all(b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n").await.unwrap();
        let mut head = [0; 15];
        older.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200 OK");
    }
    assert_eq!(client.get("/healthz").await.status, 200, "both at a time");
}

#[actix_web::test]
async fn many_requests_of_one_connection_run_at_a_time() {
    const REQUESTS: usize = 200;
    let encrypted = Encrypted::serve().await;
    let server = &encrypted.server;
    server.gate.shut();
    let mut client = encrypted.connect().await;
    let mut replies = Vec::new();
    for number in 0..REQUESTS {
        replies.push(client.begin(RELQUERIES, &row(&format!("w{number}"))).await);
    }
    let all_run = |server: &Server| server.running.app.runtime.registry.running().len() == REQUESTS;
    server.until("all are there", all_run).await;
    server.gate.release();
    for (number, reply) in replies.into_iter().enumerate() {
        assert_eq!(finish(reply).await.json()["rows"][0]["text"], format!("w{number}"));
    }
}

/// Lets the steps in flight pass; nothing may be held after them.
async fn is_called_off(server: &Server) {
    server.until("it is noticed", |server| server.metric("relserve_disconnects_total") == 1.0).await;
    server.gate.allow(2);
    server.until("rows and blocks are free", Server::is_free).await;
    server.gate.release();
}

/// A request that is being decoded, so many steps far.
async fn under_way(encrypted: &Encrypted, client: &mut Http2Client, stream: bool) -> ResponseFuture {
    let server = &encrypted.server;
    server.gate.shut();
    let reply = client.begin("/v1/completions", &endless(stream)).await;
    server.gate.allow(20);
    server.until("it decodes", |server| server.gate.passed() == 21).await;
    reply
}

#[actix_web::test]
async fn a_stream_arrives_as_it_comes_and_a_reset_calls_its_work_off() {
    let encrypted = Encrypted::serve().await;
    let mut client = encrypted.connect().await;
    let reply = under_way(&encrypted, &mut client, true).await;
    let reply: Response<RecvStream> = reply.await.unwrap();
    assert_eq!(reply.headers()["content-type"], "text/event-stream");
    let mut body = reply.into_body();
    let mut text = String::new();
    // No further step passes: what comes was not kept until the end.
    while !text.contains("data: {") {
        text += std::str::from_utf8(&next(&mut body).await.unwrap()).unwrap();
    }
    // The client resets what it drops.
    drop(body);
    is_called_off(&encrypted.server).await;
    assert_eq!(client.post(RELQUERIES, &row("x")).await.status, 200, "the connection goes on");
}

#[actix_web::test]
async fn a_reset_before_the_reply_calls_its_work_off() {
    let encrypted = Encrypted::serve().await;
    let mut client = encrypted.connect().await;
    drop(under_way(&encrypted, &mut client, false).await);
    is_called_off(&encrypted.server).await;
    assert_eq!(client.post(RELQUERIES, &row("x")).await.status, 200, "the connection goes on");
}

#[actix_web::test]
async fn a_connection_that_ends_calls_off_what_its_streams_wait_for() {
    for stream in [false, true] {
        let encrypted = Encrypted::serve().await;
        let mut client = encrypted.connect().await;
        let reply = under_way(&encrypted, &mut client, stream).await;
        client.connection.abort();
        is_called_off(&encrypted.server).await;
        drop(reply);
    }
}

#[actix_web::test]
async fn a_body_over_the_limit_is_refused_and_one_larger_than_any_window_is_read() {
    let encrypted = Encrypted::with(|config| config.limits.body_bytes_max = base::Bytes(4 << 20)).await;
    let mut client = encrypted.connect().await;
    let mut announced = client.request("POST", RELQUERIES);
    announced.headers_mut().insert("content-length", "104857600".parse().unwrap());
    let (reply, _unsent) = client.open(announced).await;
    let reply = finish(reply).await;
    assert_eq!(reply.status, 413, "{}", reply.body);

    let padded = |bytes: usize| format!("{}{}", row("x"), " ".repeat(bytes));
    for (bytes, status) in [(3 << 20, 200), (5 << 20, 413)] {
        let (reply, mut sent) = client.open(client.request("POST", RELQUERIES)).await;
        // It goes as the windows let it; what is left once the reply is there is dropped with the stream.
        sent.send_data(padded(bytes).into(), true).unwrap();
        let reply = finish(reply).await;
        assert_eq!(reply.status, status, "{bytes}: {}", reply.body);
    }
    assert_eq!(client.get("/healthz").await.status, 200, "the connection goes on");
    encrypted.server.until_free().await;
}

#[actix_web::test]
async fn at_the_end_streams_get_their_last_event_and_connections_are_told() {
    let encrypted = Encrypted::with(|config| config.server.drain_ms_max = Millis(0)).await;
    let mut client = encrypted.connect().await;
    encrypted.server.gate.shut();
    let body = json!({"template": "Say {w}", "rows": [["a"], ["b"]], "cache": false, "stream": true});
    let reply = client.begin(RELQUERIES, &body).await;
    let runs = |server: &Server| server.running.app.runtime.registry.running().len() == 1;
    encrypted.server.until("it is there", runs).await;
    // One that has asked for nothing.
    let mut silent = handshake(&encrypted.server, &encrypted.certificate, &["h2"]).await.unwrap();
    silent.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let gate: Arc<Gate> = Arc::clone(&encrypted.server.gate);
    let clients = async {
        let streamed = finish(reply).await;
        gate.release();
        let mut said = Vec::new();
        // Whether the end is a reset or not: what was said before it counts.
        let _ = silent.read_to_end(&mut said).await;
        (streamed, said)
    };
    let drained = encrypted.server.running.drain(std::future::pending());
    let ((streamed, said), ()) = tokio::join!(clients, drained);
    assert!(streamed.body.contains("shutting_down"), "{}", streamed.body);
    assert!(kinds(&said).contains(&GOAWAY), "{said:?}");
    // Well or not, as the system has it.
    let _ = seen_in_time("the other connection ends", client.connection).await;
}

const GOAWAY: u8 = 7;

/// The kinds of frames (RFC 9113, section 4.1).
fn kinds(mut bytes: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(9) {
        kinds.push(head[3]);
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        bytes = rest.get(length..).unwrap_or_default();
    }
    kinds
}

#[actix_web::test]
async fn each_request_has_its_line_in_the_access_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log = path.clone();
    let encrypted = Encrypted::with(|config| config.server.access_log = Some(log)).await;
    let mut client = encrypted.connect().await;
    let reply = client.post(RELQUERIES, &row("x")).await;
    client.get("/no/such/place").await;
    encrypted.server.running.drain(std::future::pending()).await;
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said = |line: &Value| (line["method"].clone(), line["path"].clone(), line["status"].clone());
    let expected = [(json!("POST"), json!(RELQUERIES), json!(200)), (json!("GET"), Value::Null, json!(404))];
    assert_eq!(lines.iter().map(said).collect::<Vec<_>>(), expected, "{text}");
    assert_eq!(lines[0]["bytes"], reply.body.len());
}

#[actix_web::test]
async fn without_keys_the_authority_is_the_host_that_is_looked_at() {
    let encrypted = Encrypted::with(|config| config.auth.mode = AuthMode::None).await;
    let mut client = encrypted.connect().await;
    client.key = None;
    let own = format!("https://{}", client.host);
    let cases = [
        (client.host.clone(), own.as_str(), 200, ""),
        // A page whose name was made to point here.
        ("evil.example".to_owned(), "https://evil.example", 403, "unknown_host"),
        (client.host.clone(), "https://evil.example", 403, "foreign_origin"),
    ];
    for (host, origin, status, code) in cases {
        client.host = host;
        let mut request = client.request("POST", RELQUERIES);
        // What a page adds does not go before the authority.
        request.headers_mut().insert("host", "127.0.0.1".parse().unwrap());
        request.headers_mut().insert("origin", origin.parse().unwrap());
        let (reply, mut sent) = client.open(request).await;
        sent.send_data(row("x").to_string().into(), true).unwrap();
        let reply = finish(reply).await;
        assert_eq!(reply.status, status, "{origin}: {}", reply.body);
        let told = reply.json()["error"]["code"].as_str().unwrap_or_default().to_owned();
        assert_eq!(told, code, "{origin}");
    }
}

#[actix_web::test]
async fn whoever_has_a_key_keeps_a_place_and_who_has_none_makes_room() {
    const PLACES: usize = 8;
    const HOUR: Millis = Millis(3_600_000);
    let encrypted = Encrypted::with(|config| {
        config.server.connections_max = PLACES;
        (config.server.header_ms_max, config.server.idle_ms_max) = (HOUR, HOUR);
    });
    let encrypted = encrypted.await;
    let mut known = encrypted.connect().await;
    assert_eq!(known.get("/v1/models").await.status, 200);
    let mut unknown = encrypted.connect().await;
    unknown.key = Some("rs-wrong".to_owned());
    assert_eq!(unknown.get("/v1/models").await.status, 401);
    let mut others = Vec::new();
    for _ in 2..PLACES {
        others.push(encrypted.connect().await);
    }
    // It ends well or not, as the system has it.
    let _ = seen_in_time("the oldest without a key ends", unknown.connection).await;
    assert_eq!(known.get("/v1/models").await.status, 200, "it came with a key");
}
