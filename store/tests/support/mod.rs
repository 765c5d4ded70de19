//! A Postgres server of the test's own: a unix socket in a temporary directory, no port, gone with its value.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set to any value to pass without a Postgres; without it, a missing Postgres fails the test.
const SKIP: &str = "STORE_TEST_WITHOUT_POSTGRES";

/// A running server. Stopped and removed when dropped, also by a panic.
pub(crate) struct Server {
    programs: PathBuf,
    /// User and group to run as; Postgres refuses to run as root.
    user: Option<(u32, u32)>,
    dir: tempfile::TempDir,
}

impl Server {
    /// Makes and starts a server; `None` where there is none and the environment says to go on without.
    pub(crate) fn start() -> Option<Self> {
        let Some(programs) = find_programs() else {
            assert!(
                std::env::var_os(SKIP).is_some(),
                "no Postgres found on PATH or in /usr/lib/postgresql: install the package `postgresql`, \
                 or set {SKIP}=1 to leave these tests out"
            );
            eprintln!("no Postgres: left out because {SKIP} is set");
            return None;
        };
        let dir = tempfile::tempdir().expect("a directory");
        let user = other_user();
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(dir.path(), Some(uid), Some(gid))
                .expect("root may give a directory away");
        }
        let server = Self { programs, user, dir };
        let data = server.data();
        // No fsync: a crash of the machine is not what is tested.
        server
            .run("initdb", &["-D", &data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]);
        server.resume();
        Some(server)
    }

    /// The address of a database of this server.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@localhost/{database}?host={}", self.dir.path().display())
    }

    /// A fresh database's address.
    pub(crate) async fn create_database(&self, name: &str) -> String {
        sqlx::any::install_default_drivers();
        let pool = sqlx::AnyPool::connect(&self.url("postgres")).await.expect("connects");
        let sql = format!("CREATE DATABASE {name}");
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&pool).await.expect("made");
        pool.close().await;
        self.url(name)
    }

    /// Starts the server on what it had, and waits until it answers.
    pub(crate) fn resume(&self) {
        let options = format!("-F -k {} -c listen_addresses=''", self.dir.path().display());
        let log = self.dir.path().join("log").display().to_string();
        self.run("pg_ctl", &["-D", &self.data(), "-o", &options, "-l", &log, "-w", "start"]);
    }

    /// Ends the server as a crash would: clients are cut off, nothing is tidied up.
    pub(crate) fn crash(&self) {
        self.run("pg_ctl", &["-D", &self.data(), "-m", "immediate", "-w", "stop"]);
    }

    fn data(&self) -> String {
        self.dir.path().join("data").display().to_string()
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command
            .args(arguments)
            .current_dir(self.dir.path())
            .env("LC_ALL", "C")
            .stdin(std::process::Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        // To a file: a server that inherited a pipe would keep it open.
        let output = self.dir.path().join("output");
        let file = std::fs::File::create(&output).expect("a file");
        let twin = file.try_clone().expect("a second handle");
        let status =
            self.command(program, arguments).stdout(file).stderr(twin).status().expect("the program starts");
        let said = std::fs::read_to_string(&output).unwrap_or_default();
        assert!(status.success(), "{program} {arguments:?}: {status}\n{said}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let stop = ["-D", &self.data(), "-m", "immediate", "-w", "stop"];
        // It may be stopped already; there is nobody to tell anyway.
        let _ = self.command("pg_ctl", &stop).stdout(std::process::Stdio::null()).status();
    }
}

/// The directory of the server's programs: PATH first, then Debian's places, the newest version first.
fn find_programs() -> Option<PathBuf> {
    let has_all =
        |dir: &PathBuf| ["initdb", "pg_ctl", "postgres"].iter().all(|name| dir.join(name).is_file());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut debian: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .collect();
    debian.sort_by_key(|dir| std::cmp::Reverse(version(dir)));
    std::env::split_paths(&path).chain(debian).find(has_all)
}

fn version(bin: &Path) -> u32 {
    bin.parent().and_then(Path::file_name).and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0)
}

/// Whom to run as where the test runs as root: `postgres` where the package made it, else `nobody`.
fn other_user() -> Option<(u32, u32)> {
    let probe = tempfile::tempfile().expect("a file");
    let own = std::os::unix::fs::MetadataExt::uid(&probe.metadata().expect("metadata"));
    if own != 0 {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").expect("the list of users");
    let find = |wanted: &str| {
        users.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let uid = fields.nth(1)?.parse().ok()?;
            let gid = fields.next()?.parse().ok()?;
            (name == wanted).then_some((uid, gid))
        })
    };
    Some(find("postgres").or_else(|| find("nobody")).expect("root needs another user to run Postgres as"))
}
