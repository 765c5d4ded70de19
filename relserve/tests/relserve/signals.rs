//! Signals to the real program while streams are open.

use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::common::client::{Client, finish, read_until};
use crate::program::Program;

/// The program with a drain of so many milliseconds at most.
fn start(folder: &std::path::Path, drain_ms_max: u64) -> (Program, Client) {
    let program = Program::start(folder, &format!("[server]\ndrain_ms_max = {drain_ms_max}\n"));
    let address = program.address.strip_prefix("http://").unwrap().parse().unwrap();
    let client = Client { address, key: Some(program.key.clone()) };
    (program, client)
}

/// Opens streams of more work than anybody could wait for; each has begun to be answered.
async fn streams(client: &Client, count: usize) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for number in 0..count {
        let rows: Vec<Value> = (0..15).map(|row| json!([format!("{number} and {row}")])).collect();
        let body = json!({"template": "Tell me of {w}", "rows": rows, "max_tokens": 400, "ignore_eos": true,
            "cache": false, "stream": true});
        streams.push(client.begin("/v1/relqueries", &body).await);
    }
    for stream in &mut streams {
        let said = read_until(stream, "\r\n\r\n").await;
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    }
    streams
}

/// Each ends with the error that says why, and none as if it were whole.
async fn end_with_an_error(streams: Vec<TcpStream>) {
    for stream in streams {
        // Its head was read before; what follows is as much of a reply as is needed here.
        let body = rest(stream).await;
        assert!(body.contains("event: error") && body.contains("shutting_down"), "{body}");
        assert!(!body.contains("event: done"), "{body}");
    }
}

/// All that comes over a connection until it ends.
async fn rest(mut stream: TcpStream) -> String {
    use tokio::io::AsyncReadExt as _;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits until it says that it takes no more work.
async fn is_draining(client: &Client) {
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(5));
    while client.get("/readyz").await.status != 503 {
        looks.tick().await;
    }
}

#[actix_web::test]
async fn a_second_sigterm_ends_a_thousand_streams_at_once_each_with_an_error() {
    const STREAMS: usize = 1_000;
    if rlimit::increase_nofile_limit(2 * STREAMS as u64).is_ok_and(|most| most < 2 * STREAMS as u64) {
        eprintln!("skipped: this system allows too few open files");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Nobody could wait for that.
    let (mut program, client) = start(folder.path(), 24 * 3_600_000);
    let open = streams(&client, STREAMS).await;
    program.terminate();
    is_draining(&client).await;
    let late = client.post("/v1/relqueries", &json!({"template": "Tell me of {w}", "rows": [["x"]]})).await;
    assert_eq!((late.status, late.json()["error"]["code"].as_str()), (503, Some("shutting_down")));
    program.terminate();
    end_with_an_error(open).await;
    assert_eq!(program.ended().code(), Some(0));
}

#[actix_web::test]
async fn a_drain_that_runs_out_of_time_ends_with_success_and_each_stream_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (mut program, client) = start(folder.path(), 200);
    let open = streams(&client, 20).await;
    let plain = json!({"prompt": "Tell me of it", "max_tokens": 400, "ignore_eos": true, "n": 1});
    let plain = client.begin("/v1/completions", &plain).await;
    program.terminate();
    end_with_an_error(open).await;
    // What was no stream has an answer or an error too, by then.
    let reply = finish(plain).await;
    assert!([200, 503].contains(&reply.status), "{}", reply.body);
    assert_eq!(program.ended().code(), Some(0));
}
