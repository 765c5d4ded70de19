//! Work that overflows a stack of each server that takes it up: real processes abort, and the work fails in the end.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use loadgen::chaos::preload;
use serde_json::{Value, json};
use sqlx::AnyPool;

use crate::common::client::Client;
use crate::common::replica::FakeReplica;
use crate::common::seen_in_time;
use crate::program::{run, told};

/// What it is that overflows a stack, as soon as it is sent to a replica.
const WORD: &str = "Overflow";
/// How Rust ends a process whose stack has overflowed, and how the system does.
const SIGNALS: [i32; 2] = [6, 11];

/// One start of the program, killed at its end.
struct Life {
    process: Child,
    said: Vec<String>,
}

impl Drop for Life {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Life {
    fn begin(folder: &Path, library: Option<&Path>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder);
        command.arg("--config").arg(folder.join("relserve.toml"));
        if let Some(library) = library {
            command.env("LD_PRELOAD", library).env("OVERFLOW_AT", WORD);
        }
        let (process, said) = run(&mut command);
        Self { process, said }
    }

    fn client(&self, key: &str) -> Client {
        let address = told(&self.said, " on http://").expect("it says where it is").parse().unwrap();
        Client { address, key: Some(key.to_owned()) }
    }

    /// Waits until it has ended by itself, or no ticket runs any more.
    async fn ended(&mut self, database: &AnyPool) -> Option<ExitStatus> {
        let mut looks = tokio::time::interval(std::time::Duration::from_millis(5));
        loop {
            looks.tick().await;
            if let Some(status) = self.process.try_wait().unwrap() {
                return Some(status);
            }
            let running = sqlx::query_as("SELECT COUNT(*) FROM tickets WHERE state = 'running'");
            let (running,): (i64,) = running.fetch_one(database).await.unwrap();
            if running == 0 {
                return None;
            }
        }
    }
}

/// A ticket of one row. Where it is read.
async fn ticket(client: &Client, verb: &str) -> String {
    let body =
        json!({"template": format!("{verb} {{w}}"), "rows": [["x"]], "deadline_ms": 30, "cache": false});
    let reply = client.post("/v1/relqueries", &body).await.json();
    format!("/v1/relqueries/{}", reply["ticket"].as_str().unwrap_or_else(|| panic!("no ticket: {reply}")))
}

// Case 45.
#[actix_web::test]
async fn a_ticket_that_overflows_the_stack_of_every_server_fails_and_another_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let library = preload::library(folder.path(), "overflow", include_str!("overflow.c")).await.unwrap();
    let Some(library) = library else {
        eprintln!("skipped: no C compiler is installed");
        return;
    };
    let replica = FakeReplica::start().await;
    let config = format!(
        "[model]\nname = \"m\"\n[store]\nflush_ms = 20\n\
         [[replicas]]\nurl = \"http://{}\"\ndialect = \"vllm\"\nhealth_ms = 20\n",
        replica.address
    );
    std::fs::write(folder.path().join("relserve.toml"), config).unwrap();
    // The first server is killed before it has got anything done.
    let gate = replica.shut();
    let first = Life::begin(folder.path(), None);
    let key = told(&first.said, "API key: ").expect("a first start says it").to_owned();
    let client = first.client(&key);
    let (deadly, sound) = (ticket(&client, WORD).await, ticket(&client, "Say").await);
    drop(first);
    gate.add_permits(1_000);

    sqlx::any::install_default_drivers();
    let url = format!("sqlite://{}", folder.path().join("relserve.db").display());
    let database = AnyPool::connect(&url).await.unwrap();
    let mut overflows = 0;
    let last = loop {
        let mut life = Life::begin(folder.path(), Some(&library));
        let ended = seen_in_time("an end", life.ended(&database)).await;
        let Some(status) = ended else { break life };
        assert!(status.signal().is_some_and(|signal| SIGNALS.contains(&signal)), "{status}");
        overflows += 1;
        assert!(overflows < 9, "it ends servers for ever");
    };
    assert_eq!(overflows, 2, "beside the other, and alone");
    let client = last.client(&key);
    let ticket = async |path: &str| -> Value { client.get(path).await.json() };
    let failed = ticket(&deadly).await;
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("server_ended")));
    let completed = ticket(&sound).await;
    assert_eq!((&completed["status"], &completed["rows"][0]["text"]), (&json!("completed"), &json!("x")));
}
