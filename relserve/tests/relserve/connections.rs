//! Very many connections to the real program.

use std::net::{SocketAddr, TcpStream};

use serde_json::json;

use crate::common::client::Client;
use crate::program::Program;

/// Connections that say nothing.
const IDLE: usize = 10_000;
/// Files of this test beside them, and of the program.
const OTHERS: u64 = 1_000;

#[actix_web::test]
async fn beside_ten_thousand_connections_that_say_nothing_work_and_operators_are_answered() {
    let files = IDLE as u64 + OTHERS;
    if rlimit::increase_nofile_limit(files).map_or(true, |most| most < files) {
        eprintln!("skipped: this system does not allow {files} open files");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // They stay for as long as this takes.
    let sections = "[server]\nheader_ms_max = 3600000\nworkers = 2\nconnections_max = 9000\n";
    let program = Program::start(folder.path(), sections);
    let address: SocketAddr = program.address.strip_prefix("http://").unwrap().parse().unwrap();
    let idle: Vec<TcpStream> = (0..IDLE).map(|_| TcpStream::connect(address).unwrap()).collect();
    let client = Client { address, key: Some(program.key.clone()) };
    let work = json!({"template": "Classify the text. Answer with one of these labels: positive, negative.\n\n{t}",
        "rows": [["A wonderful film."]]});
    let reply = client.post("/v1/relqueries", &work).await;
    assert_eq!((reply.status, reply.json()["status"].as_str()), (200, Some("completed")), "{}", reply.body);
    assert_eq!(client.get("/healthz").await.status, 200);
    let operators = client.with_key(crate::program::OPERATOR_KEY);
    for path in ["/v1/keys", "/v1/tenants", "/metrics"] {
        assert_eq!(operators.get(path).await.status, 200, "{path}");
    }
    // All of them are open on both sides.
    #[cfg(target_os = "linux")]
    {
        let open = std::fs::read_dir(format!("/proc/{}/fd", program.id())).unwrap().count();
        assert!(open >= IDLE, "{open} files are open");
    }
    for connection in &idle {
        connection.set_nonblocking(true).unwrap();
        let silent = connection.peek(&mut [0]).unwrap_err();
        assert_eq!(silent.kind(), std::io::ErrorKind::WouldBlock, "it was closed");
    }
}
