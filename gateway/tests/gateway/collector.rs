//! A collector of traces that takes OTLP over HTTP, as far as exporters use it, and keeps what it is sent.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A running one.
pub struct Collector {
    /// Where.
    pub address: SocketAddr,
    spans: Arc<Mutex<Vec<Span>>>,
    /// Attributes of the resource that sent last.
    resource: Arc<Mutex<BTreeMap<String, String>>>,
    tasks: tokio::task::JoinHandle<()>,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.tasks.abort();
    }
}

impl Collector {
    /// Starts one.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (spans, resource) = (Arc::<Mutex<Vec<Span>>>::default(), Arc::<Mutex<_>>::default());
        let kept = (Arc::clone(&spans), Arc::clone(&resource));
        let tasks = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (spans, resource) = kept.clone();
                tokio::spawn(async move {
                    let mut stream = stream;
                    while let Some((head, body)) = read(&mut stream).await {
                        assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
                        assert!(head.contains("content-type: application/x-protobuf"), "{head}");
                        let sent = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
                        for sent in sent.resource_spans {
                            let of = sent.resource.map(|resource| resource.attributes).unwrap_or_default();
                            *resource.lock().unwrap() = texts(&of);
                            let all = sent.scope_spans.into_iter().flat_map(|scope| scope.spans);
                            spans.lock().unwrap().extend(all);
                        }
                        let reply = "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
                        stream.write_all(reply.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        Self { address, spans, resource, tasks }
    }

    /// Its address, as it is configured.
    pub fn url(&self) -> Option<String> {
        Some(format!("http://{}", self.address))
    }

    /// The spans that it was sent.
    pub fn spans(&self) -> Vec<Span> {
        self.spans.lock().unwrap().clone()
    }

    /// Attributes of what sent them.
    pub fn resource(&self) -> BTreeMap<String, String> {
        self.resource.lock().unwrap().clone()
    }
}

/// Attributes as texts.
pub fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| {
        let value = attribute.value.as_ref().and_then(|value| value.value.as_ref());
        let text = match value {
            Some(Value::StringValue(text)) => text.clone(),
            Some(Value::IntValue(number)) => number.to_string(),
            Some(Value::DoubleValue(number)) => number.to_string(),
            other => format!("{other:?}"),
        };
        (attribute.key.clone(), text)
    };
    attributes.iter().map(text).collect()
}

/// An id as headers have it.
pub fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The next request of a connection.
async fn read(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            let whole = end + 4 + length.unwrap_or(0_usize);
            if bytes.len() >= whole {
                return Some((head, bytes[end + 4..whole].to_vec()));
            }
        }
        let mut buffer = [0; 16_384];
        let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
    }
}
