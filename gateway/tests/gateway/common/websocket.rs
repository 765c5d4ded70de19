//! A plain WebSocket client: a message a frame, every byte in the test's hands.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::client::Client;

// Kinds of frames.
/// More of a message, which began with a frame of another kind.
pub const MORE: u8 = 0;
pub const TEXT: u8 = 1;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;
/// Of the last frame of a message.
pub const FINAL: u8 = 0x80;

/// An open connection.
pub struct Socket {
    stream: TcpStream,
    /// What came and is not read.
    bytes: Vec<u8>,
}

impl Socket {
    /// The request that asks for a connection.
    pub fn request(client: &Client, path: &str) -> Vec<u8> {
        let key = client.key.as_ref().map_or(String::new(), |key| format!("Authorization: Bearer {key}\r\n"));
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{key}\r\n"
        );
        head.into_bytes()
    }

    /// Opens one.
    pub async fn open(client: &Client, path: &str) -> Self {
        let mut stream = client.send(&Self::request(client, path)).await;
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
            fill(&mut stream, &mut bytes).await;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        // What RFC 6455 has for this key.
        let is_open = head.starts_with("http/1.1 101") && head.contains("s3pplmbitxaq9kygzzhzrbk+xoo=");
        assert!(is_open, "{}", String::from_utf8_lossy(&bytes));
        bytes.drain(..end + 4);
        Self { stream, bytes }
    }

    /// Sends a frame that is a whole message.
    pub async fn send(&mut self, kind: u8, payload: &[u8]) {
        self.send_part(FINAL | kind, payload).await;
    }

    /// Sends a frame; `first`: its first byte.
    pub async fn send_part(&mut self, first: u8, payload: &[u8]) {
        // At once: who is refused by the head is not read further.
        let frame = [head(first, payload.len() as u64), payload.to_vec()].concat();
        self.send_bytes(&frame).await;
    }

    /// Sends the head of a frame that is to have so many bytes.
    pub async fn send_head(&mut self, first: u8, length: u64) {
        self.send_bytes(&head(first, length)).await;
    }

    /// Sends bytes of a frame whose head was sent.
    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the server reads");
    }

    /// Sends a message.
    pub async fn ask(&mut self, message: &Value) {
        self.send(TEXT, message.to_string().as_bytes()).await;
    }

    /// The next frame: its kind and what it says.
    pub async fn frame(&mut self) -> (u8, Vec<u8>) {
        loop {
            let is_there = |(head, length): &(usize, usize)| self.bytes.len() >= head + length;
            if let Some((head, length)) = measured(&self.bytes).filter(is_there) {
                let kind = self.bytes[0] & 0x0f;
                let payload = self.bytes[head..head + length].to_vec();
                self.bytes.drain(..head + length);
                return (kind, payload);
            }
            fill(&mut self.stream, &mut self.bytes).await;
        }
    }

    /// The next message.
    pub async fn message(&mut self) -> Value {
        loop {
            match self.frame().await {
                (TEXT, payload) => return serde_json::from_slice(&payload).expect("JSON"),
                (PING, _) => {}
                (kind, payload) => panic!("a frame of kind {kind}: {}", String::from_utf8_lossy(&payload)),
            }
        }
    }

    /// The code of the frame that closes it, which comes next.
    pub async fn closed(&mut self) -> u16 {
        match self.frame().await {
            (CLOSE, payload) => u16::from_be_bytes([payload[0], payload[1]]),
            (kind, payload) => panic!("a frame of kind {kind}: {}", String::from_utf8_lossy(&payload)),
        }
    }
}

/// The head of a frame of this length.
fn head(first: u8, length: u64) -> Vec<u8> {
    let mut head = vec![first];
    match length {
        ..126 => head.push(0x80 | length as u8),
        126..65_536 => {
            head.push(0x80 | 126);
            head.extend((length as u16).to_be_bytes());
        }
        _ => {
            head.push(0x80 | 127);
            head.extend(length.to_be_bytes());
        }
    }
    // A mask that changes nothing.
    head.extend([0; 4]);
    head
}

/// Bytes of a frame's head and of what it says, once they are known.
fn measured(bytes: &[u8]) -> Option<(usize, usize)> {
    match bytes.get(1)? {
        126 => Some((4, usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?)))),
        127 => Some((10, u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?) as usize)),
        length => Some((2, usize::from(*length))),
    }
}

async fn fill(stream: &mut TcpStream, bytes: &mut Vec<u8>) {
    let mut buffer = [0; 16_384];
    let count = stream.read(&mut buffer).await.expect("the server writes");
    assert!(count > 0, "closed behind {:?}", String::from_utf8_lossy(bytes));
    bytes.extend_from_slice(&buffer[..count]);
}
