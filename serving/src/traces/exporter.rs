//! Sends spans to a collector, from a thread of its own behind a bounded queue: whoever ends something never waits,
//! and what does not fit is dropped and counted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::Millis;
use opentelemetry::KeyValue;
use opentelemetry_otlp::{WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::EnvResourceDetector;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tokio::sync::mpsc::{Receiver, Sender as QueueSender, channel};
use tokio::sync::oneshot;

use super::{EndedWork, TraceCounts};
use crate::clock::until;
use crate::config::TracesConfig;

/// Where the collector takes traces, below its address.
const PATH: &str = "/v1/traces";
/// What the server is called where nobody says.
const SERVICE: &str = "relserve";

/// Time of one message to the collector, as OTLP has it.
const SEND_MAX: Duration = Duration::from_secs(10);

/// Why traces cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The collector's address, or what the environment says of it.
    #[error("traces: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
    /// The HTTP client.
    #[error("traces: no HTTP client: {0}")]
    Client(#[from] reqwest::Error),
    /// The thread that sends.
    #[error("traces: no thread to send them: {0}")]
    Thread(#[from] std::io::Error),
}

/// What the thread is told.
pub(super) enum ExporterMessage {
    Ended(Box<EndedWork>),
    /// Send what there is, then say so.
    Flush(oneshot::Sender<()>),
}

/// The way to the thread; it ends when nobody has one any more.
pub(super) type Queue = QueueSender<ExporterMessage>;

/// Starts the thread.
pub(super) fn start(config: &TracesConfig, counts: &Arc<TraceCounts>) -> Result<Queue, TracesError> {
    let exporter = exporter(config)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (queue, messages) = channel(config.queue_max);
    let (spans_max, delay) = (config.batch_spans_max, config.batch_ms);
    let sender = Sender { exporter, counts: Arc::clone(counts), is_away: false };
    let thread = std::thread::Builder::new().name("relserve-traces".into());
    thread.spawn(move || runtime.block_on(run(messages, sender, spans_max, delay)))?;
    Ok(queue)
}

fn exporter(config: &TracesConfig) -> Result<opentelemetry_otlp::SpanExporter, TracesError> {
    // The second call of a process finds it installed, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    let client = client.timeout(SEND_MAX).build()?;
    let base = config.endpoint.as_deref().unwrap_or_default().trim_end_matches('/');
    let endpoint = format!("{}{PATH}", base.strip_suffix(PATH).unwrap_or(base));
    let builder = opentelemetry_otlp::SpanExporter::builder().with_http().with_http_client(client);
    let builder = builder.with_endpoint(endpoint);
    let mut exporter = builder.build()?;
    let service = config.service_name.clone().unwrap_or_else(|| SERVICE.into());
    let resource = Resource::builder_empty()
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_detector(Box::new(EnvResourceDetector::new()))
        .with_service_name(service)
        .build();
    exporter.set_resource(&resource);
    Ok(exporter)
}

/// Sends until nobody has anything to send any more: once there are so many spans, or so long after the first.
async fn run(
    mut messages: Receiver<ExporterMessage>,
    mut sender: Sender<impl SpanExporter>,
    spans_max: usize,
    delay: Millis,
) {
    let (mut waiting, mut due) = (Vec::new(), None);
    loop {
        // `None`: it is due.
        let message = match due {
            Some(due) => tokio::time::timeout_at(due, messages.recv()).await.ok(),
            None => Some(messages.recv().await),
        };
        let (is_due, is_over, flushed) = match message {
            Some(Some(ExporterMessage::Ended(ended))) => {
                ended.into_spans(&mut waiting);
                due.get_or_insert_with(|| until(delay));
                (waiting.len() >= spans_max, false, None)
            }
            Some(Some(ExporterMessage::Flush(flushed))) => (true, false, Some(flushed)),
            Some(None) => (true, true, None),
            None => (true, false, None),
        };
        if is_due {
            sender.send(std::mem::take(&mut waiting)).await;
            due = None;
        }
        if let Some(flushed) = flushed {
            // Whoever asked may have gone.
            let _ = flushed.send(());
        }
        if is_over {
            return;
        }
    }
}

/// The collector, and how it takes what it is sent.
struct Sender<E> {
    exporter: E,
    counts: Arc<TraceCounts>,
    /// Whether it did not take the last.
    is_away: bool,
}

impl<E: SpanExporter> Sender<E> {
    async fn send(&mut self, spans: Vec<SpanData>) {
        let count = spans.len() as u64;
        if count == 0 {
            return;
        }
        let result = self.exporter.export(spans).await;
        let counter = if result.is_ok() { &self.counts.exported } else { &self.counts.failed };
        counter.fetch_add(count, Ordering::Relaxed);
        let was_away = std::mem::replace(&mut self.is_away, result.is_err());
        // Once, and not for each batch.
        match result {
            Err(error) if !was_away => tracing::warn!(%error, "the collector of traces takes none"),
            Ok(()) if was_away => tracing::info!("the collector of traces takes them again"),
            Ok(()) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::SystemTime;

    use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};

    use super::*;
    use crate::traces::{EndedRequest, Traces};

    /// Takes batches, or nothing.
    #[derive(Clone, Debug, Default)]
    struct Collector {
        batches: Arc<Mutex<Vec<usize>>>,
        is_away: bool,
    }

    impl SpanExporter for Collector {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            if self.is_away {
                return Err(OTelSdkError::InternalFailure("away".into()));
            }
            self.batches.lock().unwrap().push(batch.len());
            Ok(())
        }
    }

    fn ended() -> ExporterMessage {
        let config = TracesConfig { endpoint: Some("http://127.0.0.1:9".into()), ..TracesConfig::default() };
        let span = Traces::start(&config).expect("it starts").open(None, Vec::new()).expect("it is recorded");
        let now = SystemTime::UNIX_EPOCH;
        ExporterMessage::Ended(Box::new(EndedWork::Request(EndedRequest {
            span,
            method: "GET".into(),
            route: "/".into(),
            status: 200,
            bytes: 0,
            request_id: "r".into(),
            tenant: None,
            begun: now,
            ended: now,
        })))
    }

    /// What a collector got of these messages, and the counts.
    async fn sent(messages: Vec<ExporterMessage>, collector: Collector) -> (Vec<usize>, Arc<TraceCounts>) {
        let counts = Arc::<TraceCounts>::default();
        let (queue, received) = channel(messages.len());
        for message in messages {
            assert!(queue.try_send(message).is_ok());
        }
        drop(queue);
        let batches = Arc::clone(&collector.batches);
        let sender = Sender { exporter: collector, counts: Arc::clone(&counts), is_away: false };
        run(received, sender, 2, Millis(60_000)).await;
        (batches.lock().unwrap().clone(), counts)
    }

    #[tokio::test]
    async fn spans_are_sent_once_there_are_enough_and_the_rest_at_the_end() {
        let (batches, counts) = sent((0..5).map(|_| ended()).collect(), Collector::default()).await;
        assert_eq!((batches, counts.exported(), counts.failed()), (vec![2, 2, 1], 5, 0));
    }

    #[tokio::test]
    async fn a_flush_sends_what_there_is_and_says_so() {
        let (flushed, is_flushed) = oneshot::channel();
        let (batches, _) =
            sent(vec![ended(), ExporterMessage::Flush(flushed), ended()], Collector::default()).await;
        assert_eq!((batches, is_flushed.await), (vec![1, 1], Ok(())));
    }

    #[tokio::test]
    async fn what_a_collector_does_not_take_is_counted() {
        let collector = Collector { is_away: true, ..Collector::default() };
        let (batches, counts) = sent((0..3).map(|_| ended()).collect(), collector).await;
        assert_eq!((batches.len(), counts.exported(), counts.failed()), (0, 0, 3));
    }
}
