//! A plain HTTP/1.1 client: one request a connection, every byte in the test's hands.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends requests with a key.
#[derive(Clone, Debug)]
pub struct Client {
    /// Where to.
    pub address: SocketAddr,
    /// The key, if any.
    pub key: Option<String>,
}

/// A whole reply.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The head, in lower case.
    pub head: String,
    /// The body.
    pub body: String,
}

impl Reply {
    /// Parses what came over a connection until it closed.
    pub fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        let head = head.to_lowercase();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status code");
        let body = if head.contains("transfer-encoding: chunked") { unchunk(body) } else { body.to_owned() };
        Self { status, head, body }
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.body))
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The events of a stream: name and data.
    pub fn events(&self) -> Vec<(String, Value)> {
        let parse = |block: &str| {
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
            let data = field("data: ")?;
            let value = serde_json::from_str(data).unwrap_or_else(|_| Value::String(data.to_owned()));
            Some((field("event: ").unwrap_or_default().to_owned(), value))
        };
        self.body.split("\n\n").filter_map(parse).collect()
    }

    /// `error.message` of an error reply, which must have all four keys.
    pub fn error(&self) -> String {
        let json = self.json();
        let error = json["error"].as_object().unwrap_or_else(|| panic!("no error object: {}", self.body));
        for key in ["message", "type", "param", "code"] {
            assert!(error.contains_key(key), "the error lacks {key}: {}", self.body);
        }
        json["error"]["message"].as_str().expect("a message").to_owned()
    }
}

/// Joins the chunks of a chunked body.
fn unchunk(body: &str) -> String {
    let (mut out, mut rest) = (Vec::new(), body.as_bytes());
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).ok().and_then(|hex| usize::from_str_radix(hex, 16).ok());
        let Some(size) = size.filter(|size| *size > 0) else { break };
        let from = end + 2;
        out.extend_from_slice(&rest[from..(from + size).min(rest.len())]);
        rest = rest.get(from + size + 2..).unwrap_or_default();
    }
    String::from_utf8_lossy(&out).into_owned()
}

impl Client {
    /// The same client with another key.
    pub fn with_key(&self, key: &str) -> Self {
        Self { address: self.address, key: Some(key.to_owned()) }
    }

    /// The bytes of a request with a body.
    pub fn request(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> Vec<u8> {
        let key = self.key.as_ref().map_or(String::new(), |key| format!("Authorization: Bearer {key}\r\n"));
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{key}\
             Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body].concat()
    }

    /// Sends bytes and gives the open connection.
    pub async fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("the server listens");
        stream.write_all(bytes).await.expect("the server reads");
        stream
    }

    /// Sends bytes and reads to the end.
    pub async fn raw(&self, bytes: &[u8]) -> Reply {
        finish(self.send(bytes).await).await
    }

    /// Posts JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        self.raw(&self.request("POST", path, "application/json", body.to_string().as_bytes())).await
    }

    /// Posts bytes that may be anything.
    pub async fn post_bytes(&self, path: &str, kind: &str, body: &[u8]) -> Reply {
        self.raw(&self.request("POST", path, kind, body)).await
    }

    /// Gets.
    pub async fn get(&self, path: &str) -> Reply {
        self.raw(&self.request("GET", path, "application/json", b"")).await
    }

    /// What is at a path once it is over: what has run is shown when it is stored.
    pub async fn until_over(&self, path: &str) -> Value {
        let over = async {
            loop {
                let ticket = self.get(path).await.json();
                if ticket["status"] != "running" {
                    return ticket;
                }
            }
        };
        super::seen_in_time("the ticket is over", over).await
    }

    /// Deletes.
    pub async fn delete(&self, path: &str) -> Reply {
        self.raw(&self.request("DELETE", path, "application/json", b"")).await
    }

    /// Posts JSON and gives the open connection.
    pub async fn begin(&self, path: &str, body: &Value) -> TcpStream {
        self.send(&self.request("POST", path, "application/json", body.to_string().as_bytes())).await
    }
}

/// Reads a reply: to the end of the body it declares, or of the connection.
pub async fn finish(mut stream: TcpStream) -> Reply {
    read_reply(&mut stream).await
}

/// The same on a connection that stays open.
pub async fn read_reply(stream: &mut TcpStream) -> Reply {
    let mut bytes = Vec::new();
    while !is_whole(&bytes) {
        let mut buffer = [0; 16_384];
        match stream.read(&mut buffer).await.expect("the server ends the reply") {
            0 => break,
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
    Reply::parse(&bytes)
}

/// Whether a reply's declared body has arrived.
fn is_whole(bytes: &[u8]) -> bool {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let declared = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    declared.is_some_and(|length| bytes.len() >= end + 4 + length)
}

/// Reads a stream until `part` has arrived.
pub async fn read_until(stream: &mut TcpStream, part: &str) -> String {
    let mut bytes = Vec::new();
    while !String::from_utf8_lossy(&bytes).contains(part) {
        let mut buffer = [0; 4_096];
        let count = stream.read(&mut buffer).await.expect("the server writes");
        assert!(count > 0, "closed before {part:?}: {}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
