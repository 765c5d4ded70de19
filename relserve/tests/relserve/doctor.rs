//! `relserve doctor`, the real program: what it finds of a machine that is well, and of each thing that is
//! not.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use engine::checkpoint::Synthetic;
use engine::checkpoint::config::Family;

use crate::program::{start, terminate, told};

/// What was found, line by line, and how it ended.
struct DoctorReport {
    lines: Vec<String>,
    code: Option<i32>,
}

impl DoctorReport {
    /// The lines that begin like this.
    fn of(&self, start: &str) -> Vec<&str> {
        self.lines.iter().map(String::as_str).filter(|line| line.starts_with(start)).collect()
    }

    /// The one line that begins like this has these parts.
    fn one(&self, start: &str, parts: &[&str]) {
        let found = self.of(start);
        assert!(found.len() == 1, "{start}: {:#?}", self.lines);
        for part in parts {
            assert!(found[0].contains(part), "{} lacks {part}", found[0]);
        }
    }
}

/// Examines a folder's server, on free ports unless the flags say others.
fn doctor(folder: &Path, flags: &[&str]) -> DoctorReport {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
    command.arg("doctor").args(flags).current_dir(folder).stdin(Stdio::null()).stderr(Stdio::null());
    if !flags.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    let output = command.output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    DoctorReport { lines, code: output.status.code() }
}

#[test]
fn a_new_folder_is_well_and_nothing_is_made_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let report = doctor(folder.path(), &["--device", "cpu"]);
    assert_eq!(report.code, Some(0), "{:#?}", report.lines);
    let here = folder.path().canonicalize().unwrap().display().to_string();
    report.one("ok      configuration: ", &[]);
    report.one("warning model: ", &["built-in demo model", "to do: ", "relserve pull", "--model DIR"]);
    report.one("ok      GPU libraries: ", &["engine.device is cpu"]);
    report.one("ok      port: HTTP", &["127.0.0.1"]);
    report.one("ok      port: SQL is not served", &["--sql"]);
    report.one(
        "ok      database: ",
        &[&format!("{here}/relserve-data/relserve.db"), "the first start makes it"],
    );
    let disk = report.lines.iter().find(|line| line.contains(" disk: ")).expect("the disk is looked at");
    assert!(disk.contains("iB are free for ") && disk.contains(&here), "{disk}");
    assert!(report.lines.last().unwrap().ends_with(" failures: 0"), "{:#?}", report.lines);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made");
}

#[test]
fn each_thing_that_keeps_a_server_from_starting_is_a_failure_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let address = address.as_str();
    std::fs::create_dir(folder.path().join("bad-data")).unwrap();
    std::fs::write(folder.path().join("bad-data/relserve.db"), "no database ".repeat(20)).unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    std::fs::create_dir(folder.path().join("empty-model")).unwrap();
    std::fs::write(folder.path().join("bad.toml"), "[server]\nworkers = 0\n").unwrap();
    let cases: [(&[&str], &str, &[&str]); 7] = [
        (&["--listen", address], "port: ", &[address, "for HTTP: the port is in use", "--listen"]),
        (&["--sql", address], "port: ", &[address, "for SQL: the port is in use", "--sql"]),
        (&["--model", "empty-model"], "model: ", &["empty-model", "config.json", "relserve pull"]),
        // More GPUs than any machine has.
        (&["--device", "cuda:999"], "GPU libraries: ", &["cuda:999", "--device cpu"]),
        (&["--data-dir", "bad-data"], "database: ", &["bad-data/relserve.db", "--data-dir"]),
        (
            &["--database", "postgres://me:secret@127.0.0.1:1/x"],
            "database: ",
            &["postgres://127.0.0.1:1/x", "--database"],
        ),
        (&["--config", "bad.toml"], "configuration: ", &["server.workers", "must be positive"]),
    ];
    for (flags, subject, parts) in cases {
        let report = doctor(folder.path(), flags);
        assert_eq!(report.code, Some(1), "{flags:?}: {:#?}", report.lines);
        report.one("failure ", parts);
        report.one(&format!("failure {subject}"), &["; to do: "]);
        assert!(report.lines.last().unwrap().ends_with(" failures: 1"), "{:#?}", report.lines);
        assert!(report.lines.iter().all(|line| !line.contains("secret")), "{:#?}", report.lines);
    }
}

#[test]
fn a_real_model_and_a_server_that_runs_are_told_from_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("tiny");
    std::fs::create_dir(&model).unwrap();
    Synthetic::tiny(Family::Qwen2, 1).write(&model).unwrap();
    let data = folder.path().join("data");
    let (server, said) = start(&data);
    let address = told(&said, " on http://").unwrap();
    let flags =
        ["--listen", address, "--data-dir", data.to_str().unwrap(), "--model", "tiny", "--device", "cpu"];
    let report = doctor(folder.path(), &flags);
    assert_eq!(report.code, Some(0), "{:#?}", report.lines);
    report.one("ok      model: tiny in tiny: Qwen2, ", &["parameters, weights of "]);
    report.one("ok      database: ", &["data/relserve.db is there"]);
    if cfg!(target_os = "linux") {
        let holder = format!("process {}, relserve", server.id());
        report.one("warning port: ", &[address, &holder, "if that is the server that is meant"]);
    }
    terminate(server);
}

#[test]
fn servers_that_run_the_rows_are_asked() {
    let folder = tempfile::tempdir().unwrap();
    let (server, said) = start(&folder.path().join("replica"));
    let (url, key) = (told(&said, " on ").unwrap(), told(&said, "API key: ").unwrap());
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let model = "[model]\nname = \"relserve-demo\"\n";
    let replicas = format!(
        "{model}[[replicas]]\nurl = \"{url}\"\napi_key = \"{key}\"\n[[replicas]]\nurl = \"http://{gone}\"\n\
         [[replicas]]\nurl = \"{url}\"\napi_key = \"rs-nobody\"\n"
    );
    std::fs::write(folder.path().join("front.toml"), replicas).unwrap();
    let report = doctor(folder.path(), &["--config", "front.toml"]);
    assert_eq!(report.code, Some(0), "{:#?}", report.lines);
    report.one("ok      replica: ", &[url, "answers"]);
    let missing = report.of("warning replica: ");
    assert_eq!(missing.len(), 2, "{:#?}", report.lines);
    assert!(missing[0].contains(&gone.to_string()) && missing[1].contains("401"), "{missing:#?}");
    report.one("ok      GPU libraries: none are needed", &[]);
    terminate(server);
}

#[test]
fn a_model_is_told_to_fit_gpus_that_are_asked_about_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("tiny");
    std::fs::create_dir(&model).unwrap();
    Synthetic::tiny(Family::Qwen2, 1).write(&model).unwrap();
    let ask = |gib: &str, more: &[&str]| {
        let flags = [&["--model", "tiny", "--device", "cpu", "--gpu-memory", gib][..], more].concat();
        let report = doctor(folder.path(), &flags);
        assert_eq!(report.code, Some(0), "{:#?}", report.lines);
        report
    };
    let fits = ["a step up to ", "; a GPU has 80.00 GiB free, which is room for "];
    ask("80", &[]).one("ok      GPU memory: weights take ", &fits);
    ask("80", &["--tp", "2"]).one("ok      GPU memory: weights take ", &["on each of 2 GPUs"]);
    let parts = ["are needed, and a GPU has ", "; to do: "];
    ask("0.00001", &[]).one("warning GPU memory: weights take ", &parts);
    let report = doctor(folder.path(), &["--model", "tiny", "--device", "cpu"]);
    assert!(report.lines.iter().all(|line| !line.contains("GPU memory")), "{:#?}", report.lines);
    assert_eq!(doctor(folder.path(), &["--gpu-memory", "none"]).code, Some(2));
}
