//! Known cells at a rate, against a server that is a few lines long.

use std::time::Duration;

use loadgen::Error;
use loadgen::edge::{EdgeLoad, EdgeReport, measure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Answers every request of a connection, with this cell.
async fn answer(mut client: TcpStream, cell: &str) {
    let body = format!("{{\"cells\":[{cell}],\"status\":\"completed\"}}");
    let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let mut read = Vec::new();
    while client.read_buf(&mut read).await.is_ok_and(|count| count > 0) {
        // Nothing but the end of a body reads like this.
        while let Some(end) = read.windows(3).position(|three| three == b"}]}") {
            read.drain(..end + 3);
            if client.write_all(reply.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

async fn measured(cell: &'static str) -> Result<EdgeReport, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let server = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(answer(client, cell));
        }
    });
    let span = Duration::from_millis(50);
    let load = EdgeLoad { rate: 1_000.0, span, connections: 4, cells: 3, idle: 5, slow: 2, pieces: 300 };
    measure(server, Some("k"), load).await
}

#[tokio::test]
async fn every_request_that_is_due_is_sent_and_measured() {
    let report = measured(r#"{"value":"positive"}"#).await.expect("it answers");
    assert_eq!((report.sent, report.loaded.len(), report.failed), (50, 50, 0));
    assert_eq!((report.alone.len(), report.idle_open), (2_000, 5));
    assert!(report.is_sound(), "{}", report.text());
    assert!(report.slow_answered > 0, "the first slow request is waited for");
    let text = report.text();
    assert!(text.contains("50 requests, 0 failed; 5 idle connections open"), "{text}");
}

#[tokio::test]
async fn a_cell_without_a_value_is_a_failure() {
    let error = measured(r#"{"error":{"code":"x"}}"#).await.expect_err("no value");
    assert!(error.to_string().contains("no answer"), "{error}");
}
