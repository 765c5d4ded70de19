//! What runs: two gateways on one database, two replicas, and a proxy between each two that talk. Faults happen to it
//! and end; what ends by itself is started again, as a supervisor does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::database::DatabaseServer;
use super::plan::{Fault, FaultKind, GATEWAYS, REPLICAS, Subject};
use super::process::{IdleFootprint, Launch, Server, fill, free_ports, is_installed};
use super::proxy::{Link, LinkState};
use super::shifted_clock::ShiftedClocks;
use super::slow_disk::SlowDisks;
use crate::Error;
use crate::client::{ApiTarget, chain};

/// The operators' key of the gateways.
const OPERATORS_KEY: &str = "operators";
/// How long all may take to be ready, and the pause between two looks.
const READY_MAX: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(100);
/// The longest delay of each piece that a slow connection moves, in ms, and the least.
const DELAY_MS: (u64, u64) = (20, 1_000);
/// The longest wait of each write to a slow disk, in ms, and the least.
const WRITE_MS: (u64, u64) = (5, 100);
/// How far a clock jumps at most, in s. Half of all jumps are shorter than an eighth of it, which is many times a lease.
const JUMP_S_MAX: i64 = 3 * 3_600;
/// The size of a fault without a jump, in permille, and the largest distance from it.
const JUMP_NONE: i64 = 500;
/// Files that a limited gateway may open beyond those that it has.
const FILES_MORE: u64 = 2;
/// A replica's own small disk.
const MOUNT: &str = "mount -t tmpfs -o size=32m,mode=700 none \"$0\" && exec \"$@\"";

/// All that runs. Gone with its value.
pub(super) struct World {
    pub(super) gateways: Vec<Server>,
    pub(super) replicas: Vec<Server>,
    pub(super) database: DatabaseServer,
    /// By gateway and replica.
    replica_links: Vec<Vec<Link>>,
    database_links: Vec<Link>,
    dir: PathBuf,
    has_replica_disks: bool,
    slow_disks: Option<SlowDisks>,
    shifted_clocks: Option<ShiftedClocks>,
    /// Those that a fault holds down.
    down: Vec<Subject>,
}

impl World {
    /// Starts all and waits until it is ready; `None` where Postgres is not installed.
    pub(super) async fn start(program: &Path, dir: &Path) -> Result<Option<Self>, Error> {
        let ports = free_ports(GATEWAYS + REPLICAS + 1).map_err(|error| Error::Client(error.to_string()))?;
        let (own, [database_port, ..]) = ports.split_at(GATEWAYS + REPLICAS) else { return Ok(None) };
        let (gateway_ports, replica_ports) = own.split_at(GATEWAYS);
        let (slow_disks, shifted_clocks) = (SlowDisks::make(dir).await?, ShiftedClocks::make(dir).await?);
        let slow =
            |process: &str| slow_disks.as_ref().map_or(Ok(Vec::new()), |disks| disks.environment(process));
        let database = DatabaseServer::start(dir, *database_port, slow(DATABASE)?).await?;
        let Some(database) = database else { return Ok(None) };
        let has_replica_disks = may_mount(dir).await;
        let replicas = replica_ports.iter().zip(0..).map(|(port, number)| {
            let environment = slow(&process_of("replica", number))?;
            replica((program, dir), (*port, number), has_replica_disks, environment)
        });
        let replicas = replicas.collect::<Result<Vec<_>, _>>()?;
        let (mut gateways, mut replica_links, mut database_links) = (Vec::new(), Vec::new(), Vec::new());
        for (number, port) in gateway_ports.iter().enumerate() {
            let to_database = link(*database_port).await?;
            let mut links = Vec::new();
            for port in replica_ports {
                links.push(link(*port).await?);
            }
            let own = process_of("gateway", number);
            let environment = shifted_clocks.as_ref().map(|clocks| clocks.environment(&own)).transpose()?;
            let at = (*port, number, environment.unwrap_or_default());
            gateways.push(gateway(program, dir, at, (&to_database, &links))?);
            replica_links.push(links);
            database_links.push(to_database);
        }
        let (dir, down) = (dir.to_owned(), Vec::new());
        let mut world = Self {
            gateways,
            replicas,
            database,
            replica_links,
            database_links,
            dir,
            has_replica_disks,
            slow_disks,
            shifted_clocks,
            down,
        };
        for replica in &mut world.replicas {
            replica.start()?;
        }
        for gateway in &mut world.gateways {
            gateway.start()?;
        }
        world.until_ready().await?;
        Ok(Some(world))
    }

    /// Whether a kind can come here; else why not.
    pub(super) async fn allows(&self, kind: FaultKind) -> Result<(), &'static str> {
        match kind {
            FaultKind::LimitFiles if !is_installed("prlimit").await => Err("prlimit is not installed"),
            FaultKind::JumpClock if self.shifted_clocks.is_none() => Err("no C compiler is installed"),
            FaultKind::SlowReplicaDisk | FaultKind::SlowDatabaseDisk if self.slow_disks.is_none() => {
                Err("no C compiler is installed")
            }
            FaultKind::FillReplicaDisk if !self.has_replica_disks => Err("this user may mount no disk"),
            FaultKind::FillDatabaseDisk if !self.database.has_small_disk() => {
                Err("this user may mount no disk")
            }
            _ => Ok(()),
        }
    }

    /// Begins a fault.
    pub(super) async fn begin(&mut self, fault: Fault) -> Result<(), Error> {
        let of = |(least, most): (u64, u64)| least + (most - least) * u64::from(fault.permille) / 1_000;
        let delayed = LinkState::Delayed(Duration::from_millis(of(DELAY_MS)));
        match fault.kind {
            FaultKind::KillGateway | FaultKind::KillReplica => {
                self.down.push(fault.subject);
                if let Some(server) = self.server(fault.subject) {
                    server.kill().await?;
                }
            }
            FaultKind::StopGateway | FaultKind::StopReplica => {
                if let Some(server) = self.server(fault.subject) {
                    server.stop().await;
                }
            }
            FaultKind::LimitFiles => {
                if let Some(server) = self.server(fault.subject) {
                    server.limit_files(Some(FILES_MORE)).await;
                }
            }
            FaultKind::JumpClock => self.shift_clock(fault.subject, jump_s(fault.permille))?,
            FaultKind::FillReplicaDisk => {
                if let Some(filler) = self.filler(fault.subject) {
                    // A replica that is gone has no disk to fill.
                    let _ = tokio::task::spawn_blocking(move || fill(&filler)).await;
                }
            }
            FaultKind::DelayReplica | FaultKind::DelayDatabase => self.set(fault.subject, delayed),
            FaultKind::ResetReplica | FaultKind::ResetDatabase => self.set(fault.subject, LinkState::Reset),
            FaultKind::CutReplica | FaultKind::CutDatabase => self.set(fault.subject, LinkState::Cut),
            FaultKind::LoseDatabaseReplies => self.set(fault.subject, LinkState::RepliesLost),
            FaultKind::RestartDatabase => self.database.crash().await,
            FaultKind::StopDatabase => self.database.stop().await,
            FaultKind::FillDatabaseDisk => self.database.fill_disk().await,
            FaultKind::SlowReplicaDisk | FaultKind::SlowDatabaseDisk => {
                self.slow_down(fault.subject, of(WRITE_MS))?;
            }
        }
        Ok(())
    }

    /// Ends a fault.
    pub(super) async fn end(&mut self, fault: Fault) -> Result<(), Error> {
        match fault.kind {
            FaultKind::KillGateway | FaultKind::KillReplica => {
                self.down.retain(|subject| *subject != fault.subject);
                if let Some(server) = self.server(fault.subject) {
                    server.start()?;
                }
            }
            FaultKind::StopGateway | FaultKind::StopReplica => {
                if let Some(server) = self.server(fault.subject) {
                    server.go_on().await;
                }
            }
            FaultKind::LimitFiles => {
                if let Some(server) = self.server(fault.subject) {
                    server.limit_files(None).await;
                }
            }
            FaultKind::JumpClock => self.shift_clock(fault.subject, 0)?,
            FaultKind::FillReplicaDisk => {
                if let Some(filler) = self.filler(fault.subject) {
                    // Not there where the replica was started anew.
                    let _ = std::fs::remove_file(filler);
                }
            }
            FaultKind::SlowReplicaDisk | FaultKind::SlowDatabaseDisk => self.slow_down(fault.subject, 0)?,
            FaultKind::RestartDatabase => self.database.resume().await?,
            FaultKind::StopDatabase => self.database.go_on().await,
            FaultKind::FillDatabaseDisk => {
                self.database.empty_disk();
                // It ends by itself where it could not even say what it had lost.
                self.database.resume().await?;
            }
            FaultKind::DelayReplica
            | FaultKind::ResetReplica
            | FaultKind::CutReplica
            | FaultKind::DelayDatabase
            | FaultKind::ResetDatabase
            | FaultKind::CutDatabase
            | FaultKind::LoseDatabaseReplies => self.set(fault.subject, LinkState::Open),
        }
        Ok(())
    }

    /// Starts again what ended by itself. What had answered before it did is told.
    pub(super) async fn supervise(&mut self) -> Result<Vec<String>, Error> {
        let mut findings = Vec::new();
        let gateways =
            self.gateways.iter_mut().enumerate().map(|(number, one)| (Subject::Gateway(number), one));
        let replicas =
            self.replicas.iter_mut().enumerate().map(|(number, one)| (Subject::Replica(number), one));
        for (subject, server) in gateways.chain(replicas) {
            if self.down.contains(&subject) {
                continue;
            }
            if let Some((status, was_up)) = server.ended() {
                if was_up {
                    findings.push(format!("{} ended by itself: {status}", server.name()));
                }
                server.start()?;
            }
            server.is_up().await;
        }
        Ok(findings)
    }

    /// Waits until every server is ready, starting again what ends.
    pub(super) async fn until_ready(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + READY_MAX;
        loop {
            self.supervise().await?;
            let mut waiting = None;
            for server in self.replicas.iter().chain(&self.gateways) {
                if !server.is_ready().await {
                    waiting = Some(server);
                }
            }
            match waiting {
                None => return Ok(()),
                Some(server) if Instant::now() > deadline => {
                    return Err(server.error(format!("not ready within {} s", READY_MAX.as_secs())));
                }
                Some(_) => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// Waits until no gateway has a row that waits or runs; what it has where it takes too long.
    pub(super) async fn until_at_rest(&self, span: Duration) -> Result<(), String> {
        let deadline = Instant::now() + span;
        loop {
            let mut busy = None;
            for server in self.gateways.iter().chain(&self.replicas) {
                let metrics = server.metrics().await.unwrap_or_default();
                let rows = ["relserve_queue_rows ", "relserve_running_rows "].map(|name| {
                    metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok())
                });
                if rows != [Some(0.0); 2] {
                    busy = Some(format!("{} has {rows:?} rows that wait and run", server.name()));
                }
            }
            match busy {
                None => return Ok(()),
                Some(busy) if Instant::now() > deadline => return Err(busy),
                Some(_) => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// What each server holds.
    pub(super) fn held(&self) -> Vec<(String, IdleFootprint)> {
        let servers = self.gateways.iter().chain(&self.replicas);
        servers.filter_map(|server| Some((server.name().to_owned(), server.held()?))).collect()
    }

    /// Makes a tenant and a key of its own.
    pub(super) async fn make_tenant(&self, name: &str, timeout: Duration) -> Result<String, Error> {
        let Some(first) = self.gateways.first() else { return Err(Error::Client("no gateway".into())) };
        let target = ApiTarget::new(first.url(), Some(OPERATORS_KEY.into()), timeout)?;
        let post = async |path: &str, body: Value| {
            let reply = target.post(path, &body).send().await.map_err(|error| chain(&error))?;
            let text = reply.text().await.map_err(|error| chain(&error))?;
            serde_json::from_str::<Value>(&text).map_err(|error| format!("{error}: {text}"))
        };
        let made = async {
            post("/v1/tenants", json!({"name": name})).await?;
            let key = post("/v1/keys", json!({"name": name, "tenant": name})).await?;
            key["key"].as_str().map(str::to_owned).ok_or_else(|| format!("no key: {key}"))
        };
        made.await.map_err(|reason| first.error(reason))
    }

    fn server(&mut self, subject: Subject) -> Option<&mut Server> {
        match subject {
            Subject::Gateway(number) => self.gateways.get_mut(number),
            Subject::Replica(number) => self.replicas.get_mut(number),
            Subject::ReplicaLink(..) | Subject::DatabaseLink(_) | Subject::Database => None,
        }
    }

    fn set(&self, subject: Subject, state: LinkState) {
        let link = match subject {
            Subject::ReplicaLink(gateway, replica) => {
                self.replica_links.get(gateway).and_then(|links| links.get(replica))
            }
            Subject::DatabaseLink(gateway) => self.database_links.get(gateway),
            Subject::Gateway(_) | Subject::Replica(_) | Subject::Database => None,
        };
        if let Some(link) = link {
            link.set(state);
        }
    }

    fn shift_clock(&self, subject: Subject, seconds: i64) -> Result<(), Error> {
        let (Subject::Gateway(number), Some(clocks)) = (subject, &self.shifted_clocks) else { return Ok(()) };
        clocks.set(&process_of("gateway", number), seconds)
    }

    /// Has each write to a disk wait so long.
    fn slow_down(&self, subject: Subject, ms: u64) -> Result<(), Error> {
        let process = match subject {
            Subject::Replica(number) => process_of("replica", number),
            _ => DATABASE.to_owned(),
        };
        self.slow_disks.as_ref().map_or(Ok(()), |disks| disks.set(&process, ms))
    }

    /// What fills a replica's disk.
    fn filler(&mut self, subject: Subject) -> Option<PathBuf> {
        let Subject::Replica(number) = subject else { return None };
        let folder = data_of(&self.dir, "replica", number);
        let id = self.server(subject)?.id()?;
        Some(PathBuf::from(format!("/proc/{id}/root{}/filler", folder.display())))
    }
}

async fn link(port: u16) -> Result<Link, Error> {
    Link::to(port).await.map_err(|error| Error::Client(error.to_string()))
}

/// What files of the database are called after.
const DATABASE: &str = "database";

/// What files of a server are called after.
fn process_of(role: &str, number: usize) -> String {
    format!("{role}-{number}")
}

fn data_of(dir: &Path, role: &str, number: usize) -> PathBuf {
    dir.join(process_of(role, number))
}

/// How far ahead a clock jumps, in s, or back: minutes as well as hours.
fn jump_s(permille: u16) -> i64 {
    (i64::from(permille) - JUMP_NONE).pow(3) * JUMP_S_MAX / JUMP_NONE.pow(3)
}

/// Whether this user may mount a file system of its own.
async fn may_mount(dir: &Path) -> bool {
    let folder = dir.join("disk");
    if std::fs::create_dir(&folder).is_err() {
        return false;
    }
    let mut command = tokio::process::Command::new("sh");
    command.args(["-c", "exec \"$@\" true", "sh"]).args(small_disk_of(&folder));
    command.stderr(std::process::Stdio::null()).status().await.is_ok_and(|status| status.success())
}

/// What runs a command on a disk of its own over a folder.
fn small_disk_of(folder: &Path) -> Vec<String> {
    let words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT];
    words.into_iter().map(str::to_owned).chain([folder.display().to_string()]).collect()
}

fn replica(
    (program, dir): (&Path, &Path),
    (port, number): (u16, usize),
    has_disk: bool,
    environment: Vec<(String, String)>,
) -> Result<Server, Error> {
    let config = "[auth]\nmode = \"none\"\n[limits]\ntenant_constraints_max = 4096\ntenant_compile_ms_max = 60000\n\
        [engine]\nthreads = 1\nkv_bytes = 67108864\n[store]\nflush_ms = 100\n";
    let folder = data_of(dir, "replica", number);
    let disk = if has_disk { small_disk_of(&folder) } else { Vec::new() };
    launch((program, dir), ("replica", number), (port, config), (disk, environment))
}

fn gateway(
    program: &Path,
    dir: &Path,
    (port, number, environment): (u16, usize, Vec<(String, String)>),
    (database, replicas): (&Link, &[Link]),
) -> Result<Server, Error> {
    // No work is to blame for what kills a gateway here, however often it happens.
    let mut config = format!(
        "[auth]\nadmin_key = \"{OPERATORS_KEY}\"\n[model]\nname = \"relserve-demo\"\n\
         [store]\nnode = \"gateway-{number}\"\nflush_ms = 100\ntakes_max = 1000\ndatabase = \"{}\"\n\
         [limits]\ntenant_constraints_max = 4096\ntenant_compile_ms_max = 60000\n",
        DatabaseServer::url(database.port)
    );
    for (replica, link) in replicas.iter().enumerate() {
        config += &format!(
            "[[replicas]]\nname = \"replica-{replica}\"\nurl = \"http://127.0.0.1:{}\"\ndialect = \"vllm\"\n\
             try_ms_max = 10000\nhealth_ms = 500\n",
            link.port
        );
    }
    launch((program, dir), ("gateway", number), (port, &config), (Vec::new(), environment))
}

/// A server of ours: what it runs on (`before` its own command), its settings and its folder.
fn launch(
    (program, dir): (&Path, &Path),
    (role, number): (&str, usize),
    (port, config): (u16, &str),
    (before, environment): (Vec<String>, Vec<(String, String)>),
) -> Result<Server, Error> {
    let data = data_of(dir, role, number);
    std::fs::create_dir(&data).map_err(|error| Error::file(&data, error))?;
    let file = data.with_extension("toml");
    std::fs::write(&file, config).map_err(|error| Error::file(&file, error))?;
    let own = [
        program.display().to_string(),
        "serve".into(),
        "--config".into(),
        file.display().to_string(),
        "--listen".into(),
        format!("127.0.0.1:{port}"),
        "--data-dir".into(),
        data.display().to_string(),
    ];
    let command = before.into_iter().chain(own).collect();
    let log = data.with_extension("log");
    Server::new(Launch { name: format!("{role} {number}"), command, environment, log, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_jump_both_ways_by_seconds_minutes_and_hours() {
        let jumps = [0, 250, 400, 500, 600, 750, 999].map(jump_s);
        assert_eq!(jumps, [-10_800, -1_350, -86, 0, 86, 1_350, 10_735]);
    }
}
