//! What a server that runs takes from its files when SIGHUP comes.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::program;

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
    let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&config);
    command.arg("--data-dir").arg(folder.path().join("data"));
    command.env("NO_COLOR", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut log = BufReader::new(server.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut said = Vec::new();
    for line in BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok) {
        let is_last = line.starts_with("Try: ");
        said.push(line);
        if is_last {
            break;
        }
    }
    assert!(program::told(&said, " on https://").is_some(), "{said:?}");
    let hang_up = || {
        let sent = Command::new("kill").args(["-HUP", &server.id().to_string()]).status().unwrap();
        assert!(sent.success());
    };
    let mut until = |part: &str| log.find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}"));

    write_pair(folder.path());
    hang_up();
    assert!(until("read the certificates again").contains("count=1"));
    std::fs::write(&config, text("workers = 3\n[scheduler]\npolicy = \"fcfs\"\n")).unwrap();
    hang_up();
    assert!(until("taken at the next start").contains("scheduler.policy, server.workers"));
    std::fs::write(&config, text("wrokers = 3\n")).unwrap();
    hang_up();
    until("would not start a server");
    until("wrokers");
    std::fs::write(&certificate, "none").unwrap();
    hang_up();
    assert!(until("a certificate stays as it was").contains("tls.crt"));

    let ended = Command::new("kill").args(["-TERM", &server.id().to_string()]).status().unwrap();
    assert!(ended.success() && server.wait().unwrap().success(), "it ran on all the while");
}
