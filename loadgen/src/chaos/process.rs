//! A server that is started, killed, stopped and started again on the same port and folder. Killed when dropped.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};

use crate::Error;
use crate::client::ApiTarget;

/// How long one look at a server may take, and how long it may take to end.
const LOOK_MAX: Duration = Duration::from_secs(2);
const STOP_MAX: Duration = Duration::from_secs(60);
/// Ports below those that the system gives to outgoing connections: none of these takes one while its server is down.
const PORTS: std::ops::Range<u32> = 20_000..30_000;
/// Ports between those of processes that began one after the other.
const PORTS_APART: u32 = 64;
/// How much of a log an error repeats, in bytes from its end.
const LAST_WORDS: usize = 4_000;

/// How a server is started.
pub(super) struct Launch {
    pub(super) name: String,
    /// Program and arguments.
    pub(super) command: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
    /// Where its output goes.
    pub(super) log: PathBuf,
    pub(super) port: u16,
}

/// What an idle process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdleFootprint {
    pub(super) rss_bytes: u64,
    pub(super) files: u64,
}

/// A server.
pub(super) struct Server {
    launch: Launch,
    child: Option<Child>,
    target: ApiTarget,
    /// Whether this life of it has answered.
    was_up: bool,
    is_stopped: bool,
    /// How often it was started.
    pub(super) starts: u64,
}

impl Server {
    /// One that does not run yet.
    pub(super) fn new(launch: Launch) -> Result<Self, Error> {
        let target = ApiTarget::new(&format!("http://127.0.0.1:{}", launch.port), None, LOOK_MAX)?;
        Ok(Self { launch, child: None, target, was_up: false, is_stopped: false, starts: 0 })
    }

    /// `http://HOST:PORT`.
    pub(super) fn url(&self) -> &str {
        &self.target.url
    }

    pub(super) fn name(&self) -> &str {
        &self.launch.name
    }

    /// Its log so far, of all its lives.
    pub(super) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.launch.log).unwrap_or_default()).into_owned()
    }

    /// Starts it; it may take a while until it answers.
    pub(super) fn start(&mut self) -> Result<(), Error> {
        let log = std::fs::File::options().create(true).append(true).open(&self.launch.log);
        let log = log.map_err(|error| Error::file(&self.launch.log, error))?;
        let (program, arguments) =
            self.launch.command.split_first().ok_or_else(|| self.error("no command".into()))?;
        let output = log.try_clone().map_err(|error| Error::file(&self.launch.log, error))?;
        let child = Command::new(program)
            .args(arguments)
            .envs(self.launch.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| self.error(format!("{program}: {error}")))?;
        self.child = Some(child);
        (self.was_up, self.is_stopped) = (false, false);
        self.starts += 1;
        Ok(())
    }

    /// Whether it answers at all, whatever it says of itself.
    pub(super) async fn is_up(&mut self) -> bool {
        if self.is_stopped || self.id().is_none() {
            return false;
        }
        let is_up = self.target.get("/healthz").send().await.is_ok();
        self.was_up |= is_up;
        is_up
    }

    /// Whether it says that it is ready.
    pub(super) async fn is_ready(&self) -> bool {
        self.target.get("/readyz").send().await.is_ok_and(|reply| reply.status().is_success())
    }

    /// Its metrics; none where it does not answer.
    pub(super) async fn metrics(&self) -> Option<String> {
        self.target.get("/metrics").send().await.ok()?.text().await.ok()
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.child.as_ref()?.id()
    }

    /// How it ended where nobody asked it to, and whether it had answered before.
    pub(super) fn ended(&mut self) -> Option<(ExitStatus, bool)> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        Some((status, self.was_up))
    }

    /// SIGKILL.
    pub(super) async fn kill(&mut self) -> Result<(), Error> {
        match self.child.take() {
            Some(mut child) => child.kill().await.map_err(|error| self.error(error.to_string())),
            None => Ok(()),
        }
    }

    /// SIGSTOP.
    pub(super) async fn stop(&mut self) {
        self.is_stopped = self.signal("STOP").await;
    }

    /// SIGCONT.
    pub(super) async fn go_on(&mut self) {
        self.signal("CONT").await;
        self.is_stopped = false;
    }

    async fn signal(&self, name: &str) -> bool {
        match self.id() {
            Some(id) => signal(&[id], name).await,
            None => false,
        }
    }

    /// Asks it to end (SIGTERM), and says how it did.
    pub(super) async fn end(&mut self) -> Result<ExitStatus, Error> {
        self.signal("TERM").await;
        let Some(mut child) = self.child.take() else { return Err(self.error("it does not run".into())) };
        match tokio::time::timeout(STOP_MAX, child.wait()).await {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(error)) => Err(self.error(error.to_string())),
            Err(_) => Err(self.error(format!("it did not end within {} s of SIGTERM", STOP_MAX.as_secs()))),
        }
    }

    /// Memory and open files, from /proc; none elsewhere.
    pub(super) fn held(&self) -> Option<IdleFootprint> {
        let place = PathBuf::from(format!("/proc/{}", self.id()?));
        let status = std::fs::read_to_string(place.join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
        let files = std::fs::read_dir(place.join("fd")).ok()?.count() as u64;
        Some(IdleFootprint { rss_bytes: kib * 1_024, files })
    }

    /// Lets it open so many more files than it has open; none: as many as it may. Whether that could be done. One that has
    /// not answered yet is let alone: a start that may open nothing rightly ends.
    pub(super) async fn limit_files(&self, more: Option<u64>) -> bool {
        if more.is_some() && !self.was_up {
            return false;
        }
        let (Some(id), Some(held)) = (self.id(), self.held()) else { return false };
        let limits = std::fs::read_to_string(format!("/proc/{id}/limits")).unwrap_or_default();
        let hard =
            limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().nth(1));
        let soft = more.map(|more| (held.files + more).to_string()).or(hard.map(str::to_owned));
        let limit = format!("--nofile={}:", soft.unwrap_or_default());
        let limited = Command::new("prlimit").args(["--pid", &id.to_string(), &limit]).status().await;
        limited.is_ok_and(|status| status.success())
    }

    /// An error with the end of the log.
    pub(super) fn error(&self, reason: String) -> Error {
        let log = self.log();
        let from = (log.len().saturating_sub(LAST_WORDS)..=log.len()).find(|at| log.is_char_boundary(*at));
        let end = &log[from.unwrap_or(log.len())..];
        Error::Server { name: self.launch.name.clone(), reason: format!("{reason}\n{end}") }
    }
}

/// Sends a signal to processes; whether all of them were there.
pub(super) async fn signal(processes: &[u32], name: &str) -> bool {
    // The shell's own `kill`: a signal without unsafe code.
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "kill -\"$0\" \"$@\"", name]).args(processes.iter().map(u32::to_string));
    command.stderr(Stdio::null()).status().await.is_ok_and(|status| status.success())
}

/// Ports that nobody listens on now.
pub(super) fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    // Another run beside this one begins elsewhere, one that began with it too: its number is the next.
    let first = std::process::id().wrapping_mul(PORTS_APART) % (PORTS.end - PORTS.start);
    let ports = PORTS.map(|port| PORTS.start + (port + first) % (PORTS.end - PORTS.start));
    let ports = ports.filter_map(|port| u16::try_from(port).ok());
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let ports: Vec<u16> = ports.filter(is_free).take(count).collect();
    if ports.len() == count { Ok(ports) } else { Err(io::ErrorKind::AddrInUse.into()) }
}

/// Whether a program of this name is on the path.
pub(super) async fn is_installed(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().await.is_ok_and(|status| status.success())
}

/// Fills a file system by a file until nothing more can be written. Blocks.
pub(super) fn fill(filler: &Path) -> io::Result<()> {
    use std::io::Write as _;
    let mut file = std::fs::File::create(filler)?;
    for size in [64 * 1_024, 512] {
        loop {
            match file.write_all(&vec![1; size]) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
