//! One who follows `/v1/scheduler/events`.

use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::client::{Client, Reply};

/// An open stream, and all that came over it.
pub struct Watcher {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Watcher {
    /// Opens a stream and waits for its greeting.
    pub async fn open(client: &Client) -> Self {
        let request = client.request("GET", "/v1/scheduler/events", "application/json", b"");
        let mut watcher = Self { stream: client.send(&request).await, bytes: Vec::new() };
        watcher.until("a greeting", |watcher| watcher.all("hello").len() == 1).await;
        watcher
    }

    /// All that came, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// The events of this name.
    pub fn all(&self, name: &str) -> Vec<Value> {
        if !self.text().contains("\r\n\r\n") {
            return Vec::new();
        }
        let events = Reply::parse(&self.bytes).events().into_iter();
        events.filter(|(event, data)| event == name && data.is_object()).map(|(_, data)| data).collect()
    }

    /// What all frames have under this name, one after the other.
    pub fn each(&self, list: &str) -> Vec<Value> {
        let of = |frame: &Value| frame[list].as_array().cloned().unwrap_or_default();
        self.all("frame").iter().flat_map(of).collect()
    }

    /// The looks at queue and memory.
    pub fn scenes(&self) -> Vec<Value> {
        self.all("frame")
            .iter()
            .filter(|frame| frame["snapshot"].is_object())
            .map(|frame| frame["snapshot"].clone())
            .collect()
    }

    /// Steps that were lost.
    pub fn lost(&self) -> u64 {
        self.all("frame").iter().filter_map(|frame| frame["lost_steps"].as_u64()).sum()
    }

    /// Reads until this is seen; gives up only where it never would be.
    pub async fn until(&mut self, what: &str, seen: impl Fn(&Self) -> bool) {
        // Of all reads together: a stream that goes on says nothing of what is awaited.
        let hang = tokio::time::Instant::now() + Duration::from_secs(60);
        while !seen(self) {
            let mut buffer = [0; 16_384];
            let read = tokio::time::timeout_at(hang, self.stream.read(&mut buffer));
            let count = read.await.unwrap_or_else(|_| panic!("never: {what}: {}", self.text())).unwrap();
            assert!(count > 0, "closed before {what}: {}", self.text());
            self.bytes.extend_from_slice(&buffer[..count]);
        }
    }

    /// Reads to the end of the stream.
    pub async fn finish(&mut self) {
        let read = tokio::time::timeout(Duration::from_secs(60), self.stream.read_to_end(&mut self.bytes));
        read.await.expect("the server ends the stream").unwrap();
    }
}
