//! A server's addresses, as its operator meets them: a port in use, and the command that a start prints.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::program::{run, start, terminate, told};

#[test]
fn a_port_in_use_is_said_before_a_model_is_read_or_a_database_made() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let address = address.as_str();
    let cases = [
        (["--listen", address, "--sql", "127.0.0.1:0"], "HTTP", "`--listen ADDRESS` or server.listen"),
        (["--listen", "127.0.0.1:0", "--sql", address], "SQL", "`--sql ADDRESS` or sql.listen"),
    ];
    for (flags, what, setting) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
        command.args(["serve", "--model", "no/such/model"]).args(flags).current_dir(folder.path());
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        let expected = format!(
            "error: cannot listen on {address} for {what}: the port is in use; {setting} names another"
        );
        assert!(said.contains(&expected), "{said}");
        // It is this test that has it.
        let holder = format!("process {}, ", std::process::id());
        assert!(!cfg!(target_os = "linux") || said.contains(&holder), "{said}");
        assert!(!said.contains("no/such/model"), "{said}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made");
    }
}

/// What a shell answers to the command that the program printed.
fn tried(said: &[String], key: Option<&str>) -> String {
    let command = told(said, "Try: ").expect("a start prints a command");
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env_remove("RELSERVE_KEY").envs(key.map(|key| ("RELSERVE_KEY", key)));
    let output = shell.stdin(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn is_answered(answer: &str) {
    let has = |part: &str| answer.contains(part);
    assert!(
        has("\"status\":\"completed\"") && has("{\"value\":\"positive\"},{\"value\":\"negative\"}"),
        "{answer}"
    );
}

/// Makes a key by the command that the program printed, in another folder.
fn made_key(said: &[String], elsewhere: &Path) -> String {
    let line = said.iter().find(|line| line.contains("key create NAME`")).expect("it says how keys are made");
    let command = line.split('`').nth(1).unwrap();
    let output =
        Command::new("sh").args(["-c", command]).current_dir(elsewhere).stdin(Stdio::null()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    let said: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    told(&said, "API key: ").unwrap().to_owned()
}

#[test]
fn the_command_that_a_start_prints_works_at_the_first_start_and_at_later_ones() {
    if Command::new("curl").arg("--version").output().is_err() {
        eprintln!("skipped: there is no curl");
        return;
    }
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (server, said) = start(folder.path());
    let key = told(&said, "API key: ").unwrap().to_owned();
    is_answered(&tried(&said, None));
    terminate(server);

    let (server, said) = start(folder.path());
    assert!(said.iter().any(|line| line.contains("RELSERVE_KEY")), "{said:?}");
    is_answered(&tried(&said, Some(&key)));
    is_answered(&tried(&said, Some(&made_key(&said, elsewhere.path()))));
    assert!(!tried(&said, Some("rs-nobody")).contains("completed"), "the key counts");
    terminate(server);

    let open = folder.path().join("open.toml");
    std::fs::write(&open, "[auth]\nmode = \"none\"\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder.path());
    let (server, said) = run(command.arg("--config").arg(&open));
    is_answered(&tried(&said, None));
    terminate(server);
}
