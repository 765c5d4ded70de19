//! What a server that runs takes from its files when SIGHUP comes.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::common::client::Client;
use crate::common::seen_in_time;
use crate::program;

/// The program with its log.
struct Logged {
    process: Child,
    log: Box<dyn Iterator<Item = String>>,
    /// What it said at its start.
    said: Vec<String>,
}

impl Logged {
    /// It serves with this configuration, its files beside that.
    fn start(config: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(config);
        command.arg("--data-dir").arg(config.with_file_name("data"));
        command.env("NO_COLOR", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let log = Box::new(BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok));
        let mut said = Vec::new();
        for line in BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok) {
            let is_last = line.starts_with("Try: ");
            said.push(line);
            if is_last {
                break;
            }
        }
        Self { process, log, said }
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// The next line of the log with this part.
    fn until(&mut self, part: &str) -> String {
        self.log.find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}"))
    }

    /// Asks it to stop, as a supervisor does; it ran until now.
    fn stop(mut self) {
        self.signal("-TERM");
        assert!(self.process.wait().unwrap().success(), "it ran on all the while");
    }
}

/// Writes a certificate and its key.
fn write_pair(folder: &Path) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("tls.crt"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
}

#[test]
fn sighup_has_certificates_read_again_and_names_what_waits_for_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("relserve.toml");
    let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let text =
        |more: &str| format!("[server]\ncertificate = {certificate:?}\ncertificate_key = {key:?}\n{more}");
    write_pair(folder.path());
    std::fs::write(&config, text("")).unwrap();
    let mut server = Logged::start(&config);
    assert!(program::told(&server.said, " on https://").is_some(), "{:?}", server.said);

    write_pair(folder.path());
    server.signal("-HUP");
    assert!(server.until("read the certificates again").contains("count=1"));
    std::fs::write(&config, text("workers = 3\n[scheduler]\npolicy = \"fcfs\"\n")).unwrap();
    server.signal("-HUP");
    assert!(server.until("taken at the next start").contains("scheduler.policy, server.workers"));
    std::fs::write(&config, text("wrokers = 3\n")).unwrap();
    server.signal("-HUP");
    assert!(server.until("the configuration stays as it was").contains("wrokers"));
    std::fs::write(&certificate, "none").unwrap();
    server.signal("-HUP");
    assert!(server.until("a certificate stays as it was").contains("tls.crt"));
    server.stop();
}

/// A configuration of these values, and one more replica under this name beside the engine.
fn written(rows_max: usize, unknown_fields: &str, admin_key: &str, replica: &str) -> String {
    // Nobody listens there: whether it is well does not matter.
    format!(
        "[model]\nname = \"m\"\n[limits]\nrows_max = {rows_max}\n[openai]\nunknown_fields = \"{unknown_fields}\"\n\
         [auth]\nadmin_key = \"{admin_key}\"\n[[replicas]]\nname = \"engine\"\nkind = \"local\"\n\
         [[replicas]]\nname = \"{replica}\"\nurl = \"http://127.0.0.1:1/{replica}\"\n"
    )
}

/// The names of what runs rows, as an operator sees them.
async fn replicas(operator: &Client) -> Vec<String> {
    let shown = operator.get("/v1/replicas").await.json();
    let names = shown["data"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned());
    names.collect()
}

#[actix_web::test]
async fn sighup_has_a_server_that_runs_take_limits_keys_of_operators_and_replicas() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("relserve.toml");
    std::fs::write(&config, written(2, "warn", "first", "old")).unwrap();
    let mut server = Logged::start(&config);
    let address = program::told(&server.said, " on http://").unwrap().parse().unwrap();
    let key = program::told(&server.said, "API key: ").unwrap().to_owned();
    let client = Client { address, key: Some(key) };
    let rows = |count: usize| json!({"template": "Say {w}", "rows": vec![["w"]; count], "max_tokens": 1});
    let strange = json!({"prompt": "a", "max_tokens": 1, "strange": 1});
    let seen = async |rows: &Value| {
        let rows = client.post("/v1/relqueries", rows).await.status;
        [rows, client.post("/v1/completions", &strange).await.status]
    };
    let [first, second] = ["first", "second"].map(|key| client.with_key(key));
    assert_eq!(seen(&rows(3)).await, [413, 200]);
    assert_eq!(replicas(&first).await, ["engine", "old"]);

    std::fs::write(&config, written(3, "refuse", "second", "new") + "[server]\nworkers = 3\n").unwrap();
    server.signal("-HUP");
    let taken = server.until("the configuration has other values");
    let keys = "auth.admin_key, limits.rows_max, openai.unknown_fields, replicas";
    assert!(taken.contains(keys), "{taken}");
    let waits = server.until("taken at the next start");
    assert!(waits.contains("keys=\"server.workers\""), "{waits}");
    assert_eq!(seen(&rows(3)).await, [200, 400]);
    assert_eq!(first.get("/v1/audit").await.status, 401);
    let there = async { while replicas(&second).await != ["engine", "new"] {} };
    seen_in_time("the replica has come, and the old one gone", there).await;
    assert_eq!(second.get("/v1/audit").await.json()["data"][0]["action"], "config.reload");

    std::fs::write(&config, written(0, "warn", "third", "old")).unwrap();
    server.signal("-HUP");
    assert!(server.until("the configuration stays as it was").contains("limits.rows_max"));
    assert_eq!(seen(&rows(3)).await, [200, 400]);
    assert_eq!(replicas(&second).await, ["engine", "new"]);
    let metrics = second.get("/metrics").await.body;
    for counted in ["{outcome=\"taken\"} 1", "{outcome=\"refused\"} 1"] {
        let line = format!("relserve_config_reloads_total{counted}");
        assert!(metrics.contains(&line), "{line}");
    }
    server.stop();
}
