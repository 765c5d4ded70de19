//! A disk that is full, or fails, for a while: online work goes on, what was acknowledged is finished and counted
//! once, and writes go on by themselves.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::common::batch::{line, make, read, until, until_over, upload};
use crate::common::client::Client;
use crate::common::seen_in_time;
use crate::program::{OPERATOR_KEY, Program};

/// Requests of the batch that the disk interrupts.
const REQUESTS: u64 = 4_000;
/// Rows of the relQuery that a ticket stands for.
const TICKET_ROWS: u64 = 300;
/// Failed writes that are waited for before there is room again.
const FAILURES: u64 = 4;

/// What is said of a disk that takes nothing.
struct Outage {
    /// By `/readyz`.
    status: &'static str,
    /// By the metrics' label.
    cause: &'static str,
    /// By an error's code.
    code: &'static str,
    /// In an error's message.
    words: &'static str,
}

/// Where the program keeps its files, and what can be done to it.
trait Disk {
    const OUTAGE: Outage;
    /// The command that runs `program` on it.
    fn command(&self, program: &Path) -> Command;
    /// Lets nothing be written from now on.
    fn break_for(&mut self, process: u32);
    /// Lets everything be written again.
    fn mend_for(&mut self, process: u32);
}

/// A file system of its own, in memory, that fills up.
struct SmallDisk<'a>(&'a Path);

impl SmallDisk<'_> {
    const MOUNT: &'static str = "mount -t tmpfs -o size=32m,mode=700 none \"$0\" && exec \"$@\"";

    /// Whether this user may have one: a kernel may forbid namespaces.
    fn is_allowed(&self) -> bool {
        let output = self.command(Path::new("true")).output();
        output.is_ok_and(|output| output.status.success())
    }

    fn filler(&self, process: u32) -> PathBuf {
        PathBuf::from(format!("/proc/{process}/root{}/filler", self.0.display()))
    }
}

impl Disk for SmallDisk<'_> {
    const OUTAGE: Outage = Outage {
        status: "the disk of the store is full",
        cause: "disk_full",
        code: "disk_full",
        words: "the disk of the server's database is full",
    };

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", Self::MOUNT]);
        command.arg(self.0).arg(program);
        command
    }

    fn break_for(&mut self, process: u32) {
        let mut filler = std::fs::File::create(self.filler(process)).unwrap();
        let full = loop {
            if let Err(error) = filler.write_all(&[1; 4_096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    }

    fn mend_for(&mut self, process: u32) {
        std::fs::remove_file(self.filler(process)).unwrap();
    }
}

/// A disk that refuses every write with an error.
struct FailingDisk;

impl FailingDisk {
    fn limit(process: u32, bytes: &str) {
        let mut command = Command::new("prlimit");
        command.arg(format!("--pid={process}")).arg(format!("--fsize={bytes}:"));
        assert!(command.status().unwrap().success());
    }
}

impl Disk for FailingDisk {
    const OUTAGE: Outage = Outage {
        status: "the store cannot be written",
        cause: "unwritable",
        code: "database_unavailable",
        words: "the server's database takes no writes for now",
    };

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        // The signal would end the process instead.
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(program);
        command
    }

    fn break_for(&mut self, process: u32) {
        Self::limit(process, "0");
    }

    fn mend_for(&mut self, process: u32) {
        Self::limit(process, "unlimited");
    }
}

async fn metric(client: &Client, name: &str, cause: &str) -> u64 {
    let metrics = client.get("/metrics").await.body;
    let name = format!("{name}{{cause=\"{cause}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).expect("the metric")
}

async fn until_ready(client: &Client, status: u16) -> Value {
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(5));
    let wait = async {
        loop {
            looks.tick().await;
            let reply = client.get("/readyz").await;
            if reply.status == status {
                return reply.json();
            }
        }
    };
    seen_in_time("readiness", wait).await
}

/// Rows that a tenant's usage has, by route.
async fn counted(client: &Client, route: &str) -> u64 {
    let usage = client.get("/v1/usage?days=2").await.json();
    let rows = usage["data"].as_array().unwrap().iter().filter(|row| row["route"] == route);
    rows.map(|row| row["rows"].as_u64().unwrap()).sum()
}

async fn goes_on_after<D: Disk>(mut disk: D, folder: &Path) {
    let operators = folder.with_extension("toml");
    std::fs::write(&operators, format!("[auth]\nadmin_key = \"{OPERATOR_KEY}\"\n[store]\nflush_ms = 20\n"))
        .unwrap();
    let mut command = disk.command(Path::new(env!("CARGO_BIN_EXE_relserve")));
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder);
    command.arg("--config").arg(&operators);
    let program = Program::of(&mut command);
    let address = program.address.strip_prefix("http://").unwrap().parse().unwrap();
    let client = Client { address, key: Some(program.key.clone()) };

    let request = |row: u64| {
        let body = json!({"prompt": [row % 150 + 1, row / 150 + 1], "max_tokens": 1, "temperature": 0});
        line(&format!("row {row}"), body) + "\n"
    };
    let file = upload(&client, &(0..REQUESTS).map(request).collect::<String>()).await;
    let batch = make(&client, &file).await["id"].as_str().unwrap().to_owned();
    until(&client, &batch, |batch| batch["request_counts"]["completed"].as_u64().unwrap() > 0).await;
    let rows: Vec<[String; 1]> = (0..TICKET_ROWS).map(|row| [format!("word{row}")]).collect();
    let many = json!({"template": "Say {w}", "rows": rows, "max_tokens": 8, "deadline_ms": 1});
    let reply = client.post("/v1/relqueries", &many).await.json();
    assert_eq!(reply["status"], "partial", "{reply}");
    let ticket = format!("/v1/relqueries/{}", reply["ticket"].as_str().unwrap());

    disk.break_for(program.id());
    assert_eq!(until_ready(&client, 503).await["status"], D::OUTAGE.status);
    assert_eq!(metric(&client, "relserve_store_outage", D::OUTAGE.cause).await, 1);
    let wait = async {
        while metric(&client, "relserve_store_errors_total", D::OUTAGE.cause).await < FAILURES {
            let one = json!({"template": "Say {w}", "rows": [["on"]], "max_tokens": 2});
            let reply = client.post("/v1/relqueries", &one).await;
            assert_eq!(reply.status, 200, "online work goes on: {}", reply.body);
        }
    };
    seen_in_time("writes fail", wait).await;
    // Some writes fit into room that the database already has: that is no end of it.
    let shown = client.get("/readyz").await;
    assert_eq!((shown.status, &shown.json()["status"]), (503, &json!(D::OUTAGE.status)));
    assert_eq!(metric(&client, "relserve_store_outage", D::OUTAGE.cause).await, 1);
    // A ticket that cannot be written is not promised.
    let again = json!({"template": "Tell {w}", "rows": rows, "max_tokens": 8, "deadline_ms": 1});
    let refused = client.post("/v1/relqueries", &again).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    let body = refused.json();
    assert_eq!(body["error"]["code"], D::OUTAGE.code);
    assert!(body["error"]["message"].as_str().unwrap().contains(D::OUTAGE.words), "{body}");

    disk.mend_for(program.id());
    let over = until_over(&client, &batch).await;
    assert_eq!(over["request_counts"], json!({"total": REQUESTS, "completed": REQUESTS, "failed": 0}));
    assert_eq!(read(&client, &over["output_file_id"]).await.len() as u64, REQUESTS);
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(5));
    let ended = async {
        loop {
            looks.tick().await;
            let reply = client.get(&ticket).await.json();
            if reply["status"] == "completed" {
                return reply;
            }
        }
    };
    let reply = seen_in_time("the ticket ends", ended).await;
    assert_eq!(reply["rows"].as_array().unwrap().len() as u64, TICKET_ROWS);
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(5));
    let is_counted = async {
        while counted(&client, "batches").await < REQUESTS {
            looks.tick().await;
        }
    };
    seen_in_time("every row is counted", is_counted).await;
    assert_eq!(counted(&client, "batches").await, REQUESTS, "and once");
    assert_eq!(until_ready(&client, 200).await["status"], "ready");
}

#[actix_web::test]
async fn a_full_disk_loses_nothing_and_needs_no_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let disk = SmallDisk(&data);
    if !disk.is_allowed() {
        eprintln!("skipped: this user may not mount a file system of its own");
        return;
    }
    goes_on_after(disk, &data).await;
}

#[actix_web::test]
async fn a_disk_that_fails_loses_nothing_and_needs_no_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    goes_on_after(FailingDisk, &data).await;
}
