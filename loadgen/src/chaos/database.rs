//! A Postgres of the run's own on a port of loopback, where it may on a small disk of its own in memory. Gone with its
//! value.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::process::{fill, signal};
use crate::Error;

/// How long one command of Postgres' may take.
const COMMAND_MAX: Duration = Duration::from_secs(60);
/// The small disk, as mount(8) has it: what an empty database and minutes of load take, and little more.
const DISK: &str = "size=256m,mode=755";
/// Mounts it, says so, and keeps it until its standard input ends.
const MOUNT: &str = "mount -t tmpfs -o \"$1\" none \"$0\" && echo mounted && exec cat";
/// The user that the small disk's owner is inside: Postgres refuses to run as root.
const INNER_USER: &str = "1000";

/// The server.
pub(super) struct DatabaseServer {
    programs: PathBuf,
    dir: PathBuf,
    pub(super) port: u16,
    home: Home,
    /// What its programs are told beside what all are.
    environment: Vec<(String, String)>,
}

/// Where its files are, and as whom its programs run.
enum Home {
    /// A folder; user and group to run as, where it is not this process's.
    Folder(Option<(u32, u32)>),
    /// A disk in a namespace that this process keeps.
    SmallDisk(Child),
}

impl DatabaseServer {
    /// Makes and starts it; `None` where Postgres is not installed.
    pub(super) async fn start(
        dir: &Path,
        port: u16,
        environment: Vec<(String, String)>,
    ) -> Result<Option<Self>, Error> {
        let Some(programs) = find_programs().await else { return Ok(None) };
        let dir = dir.join("postgres");
        std::fs::create_dir(&dir).map_err(|error| Error::file(&dir, error))?;
        let home = match small_disk(&dir).await {
            Some(keeper) => Home::SmallDisk(keeper),
            None => {
                let user = other_user();
                if let Some((uid, gid)) = user {
                    std::os::unix::fs::chown(&dir, Some(uid), Some(gid))
                        .map_err(|error| Error::file(&dir, error))?;
                }
                Home::Folder(user)
            }
        };
        let database = Self { programs, dir, port, home, environment };
        let own =
            ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N", "--wal-segsize=1", "-D"];
        let data = database.data();
        database.run("initdb", &[&own[..], &[data.as_str()]].concat()).await?;
        database.resume().await?;
        Ok(Some(database))
    }

    /// The address through a port.
    pub(super) fn url(port: u16) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=disable")
    }

    /// Whether its disk can be filled without filling anybody else's.
    pub(super) fn has_small_disk(&self) -> bool {
        matches!(self.home, Home::SmallDisk(_))
    }

    /// Starts it on what it had, unless it runs.
    pub(super) async fn resume(&self) -> Result<(), Error> {
        if self.run("pg_ctl", &["-D", &self.data(), "status"]).await.is_ok() {
            return Ok(());
        }
        // No fsync: a crash of the machine is not what is tried here.
        let options = format!(
            "-F -p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c max_wal_size=32MB \
             -c min_wal_size=8MB",
            self.port
        );
        let log = self.dir.join("log").display().to_string();
        self.run("pg_ctl", &["-D", &self.data(), "-o", &options, "-l", &log, "-w", "start"]).await
    }

    /// Ends it as a crash would: clients are cut off, nothing is tidied up.
    pub(super) async fn crash(&self) {
        // It may be down already.
        let _ = self.run("pg_ctl", &["-D", &self.data(), "-m", "immediate", "-w", "stop"]).await;
    }

    /// SIGSTOP of all its processes.
    pub(super) async fn stop(&self) {
        signal(&self.processes(), "STOP").await;
    }

    /// SIGCONT.
    pub(super) async fn go_on(&self) {
        signal(&self.processes(), "CONT").await;
    }

    /// Fills its disk.
    pub(super) async fn fill_disk(&self) {
        if let Some(filler) = self.filler() {
            let filled = tokio::task::spawn_blocking(move || fill(&filler)).await;
            debug_assert!(filled.is_ok(), "it does not panic");
        }
    }

    /// Gives the room back.
    pub(super) fn empty_disk(&self) {
        if let Some(filler) = self.filler() {
            // Not there: nothing to give back.
            let _ = std::fs::remove_file(filler);
        }
    }

    fn filler(&self) -> Option<PathBuf> {
        self.has_small_disk().then(|| self.seen(&self.dir.join("filler")))
    }

    /// A file of its own as this process sees it.
    fn seen(&self, file: &Path) -> PathBuf {
        match self.keeper() {
            Some(keeper) => PathBuf::from(format!("/proc/{keeper}/root{}", file.display())),
            None => file.to_owned(),
        }
    }

    fn keeper(&self) -> Option<u32> {
        match &self.home {
            Home::SmallDisk(keeper) => keeper.id(),
            Home::Folder(_) => None,
        }
    }

    fn data(&self) -> String {
        self.dir.join("data").display().to_string()
    }

    /// The postmaster and its children.
    fn processes(&self) -> Vec<u32> {
        let file = self.seen(&self.dir.join("data/postmaster.pid"));
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let Some(first) = text.lines().next().and_then(|line| line.parse().ok()) else { return Vec::new() };
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        std::iter::once(first).chain(all.filter(|id| parent(*id) == Some(first))).collect()
    }

    fn command(&self, program: &str, arguments: &[&str]) -> std::process::Command {
        let program = self.programs.join(program);
        let mut command = match (&self.home, self.keeper()) {
            (Home::SmallDisk(_), Some(keeper)) => {
                let mut command = std::process::Command::new("nsenter");
                command.args([
                    "--user",
                    "--mount",
                    "--preserve-credentials",
                    "--target",
                    &keeper.to_string(),
                ]);
                command.args(["unshare", "--user", "--map-user", INNER_USER, "--map-group", INNER_USER]);
                command.arg(program);
                command
            }
            _ => std::process::Command::new(program),
        };
        command.args(arguments).current_dir("/").env("LC_ALL", "C").stdin(Stdio::null());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Home::Folder(Some((uid, gid))) = self.home {
            command.uid(uid).gid(gid);
        }
        command
    }

    async fn run(&self, program: &str, arguments: &[&str]) -> Result<(), Error> {
        let fail = |reason: String| Error::Server { name: program.to_owned(), reason };
        let output = self.dir.with_extension("output");
        // To a file: a server that inherited a pipe would keep it open.
        let file = std::fs::File::create(&output).map_err(|error| Error::file(&output, error))?;
        let twin = file.try_clone().map_err(|error| Error::file(&output, error))?;
        let mut command = self.command(program, arguments);
        command.stdout(file).stderr(twin);
        let status = tokio::time::timeout(COMMAND_MAX, Command::from(command).status()).await;
        match status {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => {
                let printed = std::fs::read_to_string(&output).unwrap_or_default();
                Err(fail(format!("{arguments:?}: {status}\n{printed}")))
            }
            Ok(Err(error)) => Err(fail(error.to_string())),
            Err(_) => Err(fail(format!("{arguments:?}: no end within {} s", COMMAND_MAX.as_secs()))),
        }
    }
}

impl Drop for DatabaseServer {
    fn drop(&mut self) {
        let processes: Vec<String> = self.processes().iter().map(u32::to_string).collect();
        let quiet = |command: &mut std::process::Command| {
            // It may be down already; there is nobody to tell anyway.
            let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        };
        if !processes.is_empty() {
            let mut go_on = std::process::Command::new("/bin/sh");
            quiet(go_on.args(["-c", "kill -CONT \"$@\"", "sh"]).args(processes));
        }
        quiet(&mut self.command("pg_ctl", &["-D", &self.data(), "-m", "immediate", "-w", "stop"]));
    }
}

/// A disk of its own on a folder, with the process that keeps it; `None` where this user may not have one.
async fn small_disk(dir: &Path) -> Option<Child> {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", MOUNT]).arg(dir).arg(DISK);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut keeper = command.spawn().ok()?;
    let mut lines = BufReader::new(keeper.stdout.take()?).lines();
    match tokio::time::timeout(COMMAND_MAX, lines.next_line()).await {
        Ok(Ok(Some(_))) => Some(keeper),
        _ => None,
    }
}

/// Whose child a process is.
fn parent(id: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // Behind the name, which may hold anything, in brackets: state, parent.
    text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The folder of the server's programs: the path's first, then Debian's places, the newest version first.
async fn find_programs() -> Option<PathBuf> {
    let has_all =
        |dir: &PathBuf| ["initdb", "pg_ctl", "postgres"].iter().all(|name| dir.join(name).is_file());
    let found = Command::new("/bin/sh").args(["-c", "command -v initdb"]).output().await;
    let found = found.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).ok();
    let on_path = found.and_then(|program| Some(Path::new(&program).parent()?.to_owned()));
    let mut debian: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .collect();
    debian.sort_by_key(|dir| std::cmp::Reverse(version(dir)));
    on_path.into_iter().chain(debian).find(has_all)
}

fn version(bin: &Path) -> u32 {
    bin.parent().and_then(Path::file_name).and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0)
}

/// Whom to run as where this runs as root: `postgres` where the package made it, else `nobody`.
fn other_user() -> Option<(u32, u32)> {
    let own = std::fs::metadata("/proc/self").ok()?;
    if std::os::unix::fs::MetadataExt::uid(&own) != 0 {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let find = |wanted: &str| {
        users.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let uid = fields.nth(1)?.parse().ok()?;
            let gid = fields.next()?.parse().ok()?;
            (name == wanted).then_some((uid, gid))
        })
    };
    find("postgres").or_else(|| find("nobody"))
}
