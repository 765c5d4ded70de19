//! A server that others wrote, as a process of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The process, ended with its test.
pub struct Program {
    process: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Drop for Program {
    fn drop(&mut self) {
        // One with processes of its own ends them when it is asked to end.
        let asked = Command::new("kill").arg(self.process.id().to_string()).status();
        if !asked.is_ok_and(|status| status.success()) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

/// A program of a virtual environment, after what installs it there (`script` with `arguments`); why not,
/// where it is not there.
pub fn installed(script: &str, arguments: &[&str], program: &str) -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(root.join(script)).args(arguments).output().expect("bash is there");
    match output.status.code() {
        Some(0) => Ok(root.join(program)),
        _ => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// A port that is free, on the loopback interface.
pub fn free_port() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Starts a server that listens at `address`, and waits for the line that says it does.
pub fn start(command: &mut Command, address: SocketAddr, listens: &str) -> Program {
    let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let log = process.stderr.take().unwrap();
    let mut lines = BufReader::new(log).lines().map_while(Result::ok);
    let is_up = lines.by_ref().any(|line| {
        said += &line;
        said.push('\n');
        line.contains(listens)
    });
    let program = Program { process, address };
    assert!(is_up, "it did not start:\n{said}");
    // It writes on, and must not wait for a reader.
    std::thread::spawn(move || lines.count());
    program
}
