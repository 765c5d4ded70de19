//! A tiny HTTP server: reads one request per connection, answers what a function says, closes.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A request as it came.
pub(crate) struct Request {
    pub(crate) path: String,
    /// Header lines, in lower case.
    pub(crate) head: String,
    pub(crate) body: serde_json::Value,
}

/// What to answer.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
    /// Close in the middle: promise more bytes than are sent.
    pub(crate) broken: bool,
}

impl Reply {
    pub(crate) fn json(status: u16, body: serde_json::Value) -> Self {
        Self { status, content_type: "application/json", body: body.to_string(), broken: false }
    }

    pub(crate) fn events(body: String) -> Self {
        Self { status: 200, content_type: "text/event-stream", body, broken: false }
    }
}

/// What the server does with a request.
pub(crate) type Responder = Arc<dyn Fn(&Request) -> Reply + Send + Sync>;

/// Serves on a listener until the task ends.
pub(crate) async fn serve(listener: TcpListener, answer: Responder) {
    while let Ok((stream, _)) = listener.accept().await {
        let answer = Arc::clone(&answer);
        // A client that breaks off is its own affair.
        tokio::spawn(async move { handle(stream, answer).await.ok() });
    }
}

async fn handle(mut stream: TcpStream, answer: Responder) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
    let head = text.to_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    while bytes.len() < head_end + 4 + length {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
    }
    let body = serde_json::from_slice(&bytes[head_end + 4..]).unwrap_or_default();
    let reply = answer(&Request { path, head, body });
    let promised = reply.body.len() + if reply.broken { 1_000 } else { 0 };
    let head = format!(
        "HTTP/1.1 {} X\r\ncontent-type: {}\r\ncontent-length: {promised}\r\nconnection: close\r\n\r\n",
        reply.status, reply.content_type
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(reply.body.as_bytes()).await?;
    stream.shutdown().await
}

/// A sound stream for a relQuery: its rows in reverse order, then the end with `waiting_ms` of waiting.
pub(crate) fn sound_stream(request: &Request, waiting_ms: f64) -> String {
    let rows = request.body["rows"].as_array().map_or(0, Vec::len);
    let mut stream = String::new();
    for index in (0..rows).rev() {
        let row = serde_json::json!({"index": index, "text": "x", "finish_reason": "length", "usage": {}});
        stream += &format!("event: row\ndata: {row}\n\n");
    }
    let done = serde_json::json!({
        "id": "rq-1", "object": "relquery", "status": "completed", "model": "m", "created": 1,
        "progress": {"total": rows, "done": rows, "failed": 0},
        "usage": {
            "prompt_tokens": rows * 10, "completion_tokens": rows * 2, "total_tokens": rows * 12,
            "computed_tokens": rows * 6, "prompt_tokens_details": {"cached_tokens": rows * 4},
        },
        "timing": {"waiting_ms": waiting_ms, "core_ms": 2.0, "tail_ms": 1.5, "total_ms": waiting_ms + 3.5},
    });
    stream + &format!("event: done\ndata: {done}\n\n")
}
