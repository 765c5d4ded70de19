//! Chaos: two gateways on one Postgres and two replicas, all real processes on loopback, under mixed load of several
//! tenants, while faults of a seeded plan come and go. Afterwards everything that was promised must be there.
//!
//! The plan depends on the seed and the number of steps alone; a step is a stretch of time, or of finished requests.
//! When a request meets a fault depends on neither. `sim`'s chaos has the same faults in virtual time, for the
//! scheduler alone; this is for what only processes show.

mod checks;
mod database;
mod growth;
mod judge;
mod ledger;
mod load;
mod plan;
pub mod preload;
mod process;
mod proxy;
mod report;
mod request;
mod shifted_clock;
mod slow_disk;
mod world;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum as _;
use tokio::task::JoinSet;

use crate::Error;
use crate::client::ApiTarget;
use crate::random::SplitMix64;
use checks::{COMPLETE, FLAT, LIVES, USAGE};
use growth::RssPeaks;
use ledger::Incident;
use load::{FOREIGN, ONCE, REFUSED, ROWS, SharedLoad, Tenant, client};
pub use plan::FaultKind;
use plan::{Fault, FaultSchedule};
pub use report::ChaosReport;
use report::{FaultLine, PromiseLine};
use request::{ChaosRequest, RequestKind, Sender};
use world::World;

/// Tenants; each has as many clients as the others, or one more.
const TENANTS: [&str; 3] = ["acme", "zeta", "umbra"];
/// How long one request is waited for.
const REQUEST_MAX: Duration = Duration::from_secs(30);
/// How long what was promised, rest and usage may take once all faults are over: a ticket's lease and much to spare.
const KEPT_MAX: Duration = Duration::from_secs(300);

/// How much of it.
#[derive(Clone, Debug)]
pub struct Chaos {
    /// Our server's program.
    pub program: PathBuf,
    pub seed: u64,
    /// Steps of the plan.
    pub steps: u32,
    pub step: Step,
    /// Clients at once.
    pub clients: u32,
    /// Kinds of faults; empty: all.
    pub kinds: Vec<FaultKind>,
    /// Where logs and data go, to be looked at afterwards; a folder that is removed where it is not given.
    pub dir: Option<PathBuf>,
}

/// How long a step of the plan is.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Span(Duration),
    /// So many finished requests.
    Requests(u64),
}

/// Runs it; `None` where Postgres is not installed.
pub async fn chaos(chaos: &Chaos) -> Result<Option<ChaosReport>, Error> {
    let own;
    let dir: &Path = match &chaos.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir).map_err(|error| Error::file(dir, error))?;
            dir
        }
        None => {
            own = tempfile::tempdir().map_err(|error| Error::file(Path::new("a temporary folder"), error))?;
            // Postgres may run as another user.
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(own.path(), mode).map_err(|error| Error::file(own.path(), error))?;
            own.path()
        }
    };
    let Some(mut world) = World::start(&chaos.program, dir).await? else { return Ok(None) };
    let load = SharedLoad::new(tenants(&world, chaos.seed).await?);
    warm_up(&load, chaos.seed).await;
    world.until_at_rest(KEPT_MAX).await.map_err(Error::Client)?;
    let before = world.held();

    let wanted = if chaos.kinds.is_empty() { FaultKind::value_variants() } else { &chaos.kinds };
    let (mut kinds, mut left_out) = (Vec::new(), Vec::new());
    for kind in wanted {
        match world.allows(*kind).await {
            Ok(()) => kinds.push(*kind),
            Err(why) => left_out.push((kind.name(), why)),
        }
    }
    let plan = FaultSchedule::draw(chaos.seed, chaos.steps, &kinds);
    let mut clients = JoinSet::new();
    for number in 1..=u64::from(chaos.clients) {
        clients.spawn(client(Arc::clone(&load), number, chaos.seed));
    }
    let peaks = run(&mut world, &load, &plan, chaos.step).await?;
    load.end();
    while let Some(ended) = clients.join_next().await {
        if let Err(error) = ended {
            load.ledger().broke(LIVES, format!("a client of this program failed: {error}"));
        }
    }
    let (checked, measured) = check(&mut world, &load, (&before, &peaks)).await?;
    Ok(Some(report(chaos, &load, (checked, measured), left_out)))
}

/// Lets the faults of a plan come and go; what processes held meanwhile.
async fn run(
    world: &mut World,
    load: &SharedLoad,
    plan: &FaultSchedule,
    step: Step,
) -> Result<RssPeaks, Error> {
    let mut peaks = RssPeaks::new(plan.steps, step);
    let mut open: Vec<(Fault, Duration)> = Vec::new();
    let mut finished = load.finished();
    for number in 0..plan.steps {
        let (ending, beginning) = plan.at(number);
        for fault in ending {
            world.end(fault).await?;
            if let Some(place) = open.iter().position(|(other, _)| *other == fault) {
                let (fault, began) = open.swap_remove(place);
                load.ledger().incidents.push(Incident { fault, began, ended: load.now() });
            }
        }
        for fault in beginning {
            open.push((fault, load.now()));
            world.begin(fault).await?;
        }
        for finding in world.supervise().await? {
            load.ledger().broke(LIVES, finding);
        }
        match step {
            Step::Span(span) => tokio::time::sleep(span).await,
            Step::Requests(count) => {
                let until = *finished.borrow() + count;
                // The sender lives as long as the load.
                let _ = finished.wait_for(|finished| *finished >= until).await;
            }
        }
        peaks.note(number, world.held());
    }
    Ok(peaks)
}

/// Holds everything against what was promised.
async fn check(
    world: &mut World,
    load: &SharedLoad,
    (before, peaks): (&[(String, process::IdleFootprint)], &RssPeaks),
) -> Result<(checks::Checked, Vec<String>), Error> {
    world.until_ready().await?;
    let mut batches = checks::Batches::new();
    checks::until_kept(load, &mut batches, KEPT_MAX).await;
    if let Err(busy) = world.until_at_rest(KEPT_MAX).await {
        load.ledger().broke(LIVES, busy);
    }
    let looked = checks::batches_once(load).await;
    let mut measured = checks::usage(load, &batches, KEPT_MAX).await;
    measured.extend(checks::flat(load, before, || world.held(), KEPT_MAX).await);
    measured.extend(peaks.lines());
    for grown in peaks.grown() {
        load.ledger().broke(FLAT, grown);
    }
    let mut lives = 0;
    for server in world.gateways.iter_mut().chain(&mut world.replicas) {
        lives += server.starts;
        let ended = server.end().await;
        let mut ledger = load.ledger();
        match ended {
            Ok(status) if status.success() => {}
            Ok(status) => ledger.broke(LIVES, format!("{} ended with {status}", server.name())),
            Err(error) => ledger.broke(LIVES, error.to_string()),
        }
        for line in checks::panics(&server.log()) {
            ledger.broke(LIVES, format!("{}: {line}", server.name()));
        }
    }
    let ledger = load.ledger();
    let rows: u64 = ledger.sent.iter().map(|sent| sent.rows).sum::<u64>()
        + ledger.promises.iter().map(|promise| promise.request.rows).sum::<u64>();
    let checked = BTreeMap::from([
        (ROWS, rows),
        (COMPLETE, ledger.promises.len() as u64),
        (ONCE, looked),
        (USAGE, load.tenants.len() as u64),
        (FOREIGN, ledger.bytes_scanned),
        (REFUSED, ledger.counts.values().sum()),
        (FLAT, before.len() as u64),
        (LIVES, lives),
    ]);
    Ok((checked, measured))
}

fn report(
    chaos: &Chaos,
    load: &SharedLoad,
    (checked, measured): (checks::Checked, Vec<String>),
    left_out: Vec<(String, &'static str)>,
) -> ChaosReport {
    let ledger = load.ledger();
    let mut sent: BTreeMap<_, BTreeMap<_, u64>> = BTreeMap::new();
    for ((kind, how), count) in &ledger.counts {
        *sent.entry(*kind).or_default().entry(*how).or_default() += count;
    }
    let mut faults: Vec<FaultLine> = ledger.incidents.iter().map(fault_line).collect();
    faults.sort_by_key(|line| line.step);
    let line = |(promise, checked): (&'static str, u64)| {
        let broken = ledger.broken.iter().filter(|broken| broken.promise == promise);
        PromiseLine { promise, checked, broken: broken.map(|broken| broken.what.clone()).collect() }
    };
    let promises = checked.into_iter().map(line).collect();
    let seconds = load.now().as_secs_f64();
    ChaosReport { seed: chaos.seed, steps: chaos.steps, seconds, sent, faults, left_out, promises, measured }
}

fn fault_line(incident: &Incident) -> FaultLine {
    let Incident { fault, began, ended } = incident;
    FaultLine {
        step: fault.from,
        kind: fault.kind.name(),
        subject: fault.subject.to_string(),
        began_s: began.as_secs_f64(),
        ended_s: ended.as_secs_f64(),
    }
}

/// Makes the tenants, each with a marker of its own.
async fn tenants(world: &World, seed: u64) -> Result<Vec<Tenant>, Error> {
    let mut random = SplitMix64::new(seed, "markers");
    let mut tenants = Vec::new();
    for (number, name) in TENANTS.iter().enumerate() {
        let key = world.make_tenant(name, REQUEST_MAX).await?;
        // No hexadecimal number has these letters; tens tell tenants apart.
        let marker = format!("mk{}", 10 * (number as u64 + 1) + random.between(0, 9));
        let target = |server: &process::Server| ApiTarget::new(server.url(), Some(key.clone()), REQUEST_MAX);
        let targets = world.gateways.iter().map(target).collect::<Result<_, _>>()?;
        tenants.push(Tenant { name: (*name).to_owned(), marker, targets });
    }
    Ok(tenants)
}

/// One request of each kind at each gateway, so that what is held at rest afterwards is what a server in use holds.
async fn warm_up(load: &SharedLoad, seed: u64) {
    let mut random = SplitMix64::new(seed, "warm-up");
    let kinds = [
        RequestKind::RelQuery { stream: true },
        RequestKind::Cells { stream: false },
        RequestKind::Chat { stream: false },
        RequestKind::Sql,
        RequestKind::Ticket { cancel: false },
        RequestKind::Lists,
    ];
    for (tenant, named) in load.tenants.iter().enumerate() {
        for (turn, kind) in kinds.into_iter().enumerate() {
            for gateway in 0..plan::GATEWAYS {
                let number = (tenant * 100 + turn * 10 + gateway) as u64;
                let sender = Sender { tenant, marker: &named.marker, number };
                load.perform(&ChaosRequest { gateway, ..ChaosRequest::of(kind, sender, &mut random) }).await;
            }
        }
    }
}
