//! How gateways on one database divide the servers that all of them use.
//!
//! Every `fleet.leases.every_ms` a gateway tells the database what it holds of each server and which rows it has
//! for it, reads what the others told, and takes its share as [`scheduler::fleet::division`] has it: the servers
//! are divided as one queue in front of them would fill them. While it gives or takes it comes again sooner; where
//! rows wait for room that others hold, at once.

use std::sync::Arc;
use std::time::Duration;

use base::{Millis, Nanos, ServiceClass, Time, TokenCount};
use scheduler::fleet::division::{divide, settle};
use scheduler::fleet::{LeaseConfig, Load, QueueStretch, ReplicaConfig};
use serde::{Deserialize, Serialize};
use store::{OtherLease, ReplicaLease, UnixMillis};
use tokio::sync::{oneshot, watch};

use crate::replicas::{FleetMessage, LeaseGrant, LeaseReport, LeaseSignal};
use crate::runtime::Runtime;

/// Of the time between two rounds, the part that passes where something is to be given or taken.
const SOONER: u32 = 10;

/// A queue as gateways tell each other of it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PublishedQueue {
    /// The policy that orders it: numbers of two policies do not compare.
    policy: String,
    /// Class, priority (ns), age (ms), rows, tokens of the largest row.
    stretches: Vec<(ServiceClass, u64, u64, u32, u64)>,
}

/// Renews the leases of all servers, whichever model's, until told to stop, and ends them then.
pub async fn run(
    runtimes: Vec<Arc<Runtime>>,
    config: LeaseConfig,
    node: String,
    mut stop: watch::Receiver<bool>,
) {
    let fleets: Vec<&Runtime> =
        runtimes.iter().map(|runtime| &**runtime).filter(|runtime| runtime.members.is_some()).collect();
    let Some((runtime, signal)) =
        fleets.first().and_then(|first| Some((*first, first.shared.leases.as_deref()?)))
    else {
        return;
    };
    let every = Duration::from_millis(config.every_ms.0);
    let until = runtime.shared.clock.now() + signal.use_max;
    let (is_failing, is_over) = (false, false);
    let mut renewal =
        Renewal { runtime, fleets: &fleets, config, node: &node, signal, until, is_failing, is_over };
    let rounds = async {
        loop {
            let is_settled = renewal.round().await;
            tokio::time::sleep(every / SOONER).await;
            if is_settled {
                let rest = tokio::time::sleep(every - every / SOONER);
                tokio::select! { () = rest => {} () = signal.wanted.notified() => {} }
            }
        }
    };
    // Err: the sender is gone, which means stop too.
    tokio::select! { () = rounds => {} _ = stop.changed() => {} }
    if let Err(error) = runtime.store.end_replica_leases(&node).await {
        tracing::warn!(%error, "leases of servers were not ended: they expire");
    }
}

struct Renewal<'a> {
    /// The first of them.
    runtime: &'a Runtime,
    fleets: &'a [&'a Runtime],
    config: LeaseConfig,
    node: &'a str,
    signal: &'a LeaseSignal,
    /// When the leases may not be used any more.
    until: Time,
    /// The last round failed, and the leases are over: both are said once.
    is_failing: bool,
    is_over: bool,
}

impl Renewal<'_> {
    /// Reports and takes. False: to be repeated soon.
    async fn round(&mut self) -> bool {
        let shared = &self.runtime.shared;
        // A lease counts from before the database hears of it.
        let asked = shared.clock.now();
        let demands = self.fleets.iter().map(|fleet| {
            let (reply, reports) = oneshot::channel();
            fleet.shared.intake.tell_fleet(FleetMessage::LeaseDemand(reply));
            reports
        });
        // One whose loop is over has nothing to tell.
        let replies = futures_util::future::join_all(demands).await;
        let reports: Vec<LeaseReport> = replies.into_iter().flatten().flatten().collect();
        let until = asked + self.signal.use_max;
        let renewed =
            self.runtime.store.renew_replica_leases(self.node, self.config.expire_ms, |others, now| {
                decide(&reports, self.node, others, (now, asked))
            });
        let patience = Duration::from_millis(self.config.expire_ms.0 / 4);
        let renewed = tokio::time::timeout(patience, renewed).await;
        let renewed =
            renewed.unwrap_or_else(|_| Err(store::Error::Away(format!("no answer within {patience:?}"))));
        match renewed {
            Ok((grants, is_settled)) => {
                for fleet in self.fleets {
                    fleet.shared.intake.tell_fleet(FleetMessage::Leased { grants: grants.clone(), until });
                }
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("leases of servers are renewed again");
                }
                (self.until, self.is_over) = (until, false);
                is_settled
            }
            Err(error) => {
                self.failed(&error);
                true
            }
        }
    }

    fn failed(&mut self, error: &store::Error) {
        let shared = &self.runtime.shared;
        shared.metrics.lease_failures.inc();
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(%error, "leases of servers were not renewed; trying on");
        }
        if shared.clock.now() >= self.until && !std::mem::replace(&mut self.is_over, true) {
            tracing::warn!(%error, "leases of servers are over: each server gets one row at a time from here");
        }
    }
}

/// What this gateway takes of each server and may use of it, and whether that is what it should have. `asked`: the
/// time of the reports.
fn decide(
    reports: &[LeaseReport],
    node: &str,
    others: &[OtherLease],
    (now, asked): (UnixMillis, Time),
) -> (Vec<ReplicaLease>, (Vec<LeaseGrant>, bool)) {
    let mut is_settled = true;
    let decided = reports.iter().map(|report| {
        let others: Vec<&OtherLease> =
            others.iter().filter(|other| other.lease.replica == report.server).collect();
        let published = published(report, asked);
        let others_held = others.iter().fold(Load::default(), |sum, other| Load {
            rows: sum.rows.saturating_add(other.lease.held_rows),
            tokens: TokenCount(sum.tokens.0.saturating_add(other.lease.held_tokens)),
        });
        let capacity = others.iter().fold(report.capacity, |least, other| ReplicaConfig {
            rows_max: least.rows_max.min(other.lease.rows_max),
            tokens_max: least_of(least.tokens_max, other.lease.tokens_max.map(TokenCount)),
        });
        // The same order on every gateway, so that all divide alike.
        let place = others.partition_point(|other| other.node.as_str() < node);
        let mut queues: Vec<(PublishedQueue, UnixMillis)> =
            others.iter().map(|other| (read(&other.lease.queue), other.renewed)).collect();
        queues.insert(place, (read(&published), now));
        let queues = comparable(&queues);
        let slices: Vec<&[QueueStretch]> = queues.iter().map(Vec::as_slice).collect();
        let target = divide(capacity, &slices)[place];
        let settled = settle(capacity, target, report.held, others_held);
        is_settled &= settled.is_settled;
        let lease = ReplicaLease {
            replica: report.server.clone(),
            rows_max: report.capacity.rows_max,
            tokens_max: report.capacity.tokens_max.map(|tokens| tokens.0),
            held_rows: settled.held.rows,
            held_tokens: settled.held.tokens.0,
            queue: published,
        };
        let gateways = u32::try_from(queues.len()).unwrap_or(u32::MAX);
        let grant = LeaseGrant { server: report.server.clone(), share: settled.share, gateways };
        (lease, grant)
    });
    let (leases, grants) = decided.unzip();
    (leases, (grants, is_settled))
}

fn least_of(one: Option<TokenCount>, other: Option<TokenCount>) -> Option<TokenCount> {
    one.into_iter().chain(other).min()
}

/// A queue as it is told.
fn published(report: &LeaseReport, asked: Time) -> String {
    let stretch = |one: &QueueStretch| {
        (one.class, one.priority, asked.since(one.arrival).0 / 1_000_000, one.rows, one.row_tokens.0)
    };
    let queue = PublishedQueue {
        policy: report.policy.name().to_owned(),
        stretches: report.queue.iter().map(stretch).collect(),
    };
    serde_json::to_string(&queue).unwrap_or_default()
}

/// A queue that was told; what a gateway of another version tells counts as no queue.
fn read(text: &str) -> PublishedQueue {
    serde_json::from_str(text).unwrap_or(PublishedQueue { policy: String::new(), stretches: Vec::new() })
}

/// Queues told at different times, on the database's clock. Where they are not ordered by one policy, what came
/// first goes first.
fn comparable(queues: &[(PublishedQueue, UnixMillis)]) -> Vec<Vec<QueueStretch>> {
    let mut policies = queues.iter().filter(|(queue, _)| !queue.stretches.is_empty());
    let first = policies.next().map(|(queue, _)| queue.policy.as_str());
    let is_one_order = policies.all(|(queue, _)| Some(queue.policy.as_str()) == first);
    let stretch =
        |at: UnixMillis, &(class, priority, age, rows, tokens): &(ServiceClass, u64, u64, u32, u64)| {
            let (class, priority) =
                if is_one_order { (class, priority) } else { (ServiceClass::Interactive, 0) };
            let arrival = Time(0) + Nanos::from(Millis(at.before(Millis(age)).0));
            QueueStretch { class, priority, arrival, rows, row_tokens: TokenCount(tokens) }
        };
    let queue = |(queue, at): &(PublishedQueue, UnixMillis)| {
        let mut stretches: Vec<QueueStretch> = queue.stretches.iter().map(|one| stretch(*at, one)).collect();
        if !is_one_order {
            stretches.sort_by_key(|one| one.arrival);
        }
        stretches
    };
    queues.iter().map(queue).collect()
}

#[cfg(test)]
mod tests {
    use scheduler::Policy;
    use scheduler::fleet::ReplicaShare;

    use super::*;

    const REPORTED: Time = Time(50_000_000_000);
    const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

    /// Rows of one relQuery that arrived some seconds before the report.
    fn report(policy: Policy, (priority, age, rows): (u64, u64, u32), held: u32) -> LeaseReport {
        let arrival = Time(REPORTED.0 - age * 1_000_000_000);
        let class = ServiceClass::Interactive;
        LeaseReport {
            server: "http://x".into(),
            capacity: ReplicaConfig { rows_max: 10, tokens_max: None },
            held: Load { rows: held, tokens: TokenCount(0) },
            policy,
            queue: vec![QueueStretch { class, priority, arrival, rows, row_tokens: TokenCount(9) }],
        }
    }

    /// What another gateway wrote down `before` milliseconds ago.
    fn other(node: &str, report: &LeaseReport, before: u64) -> OtherLease {
        let (mut leases, _) = decide(std::slice::from_ref(report), node, &[], (NOW, REPORTED));
        let lease = ReplicaLease { held_rows: report.held.rows, ..leases.remove(0) };
        OtherLease { node: node.into(), lease, renewed: NOW.before(Millis(before)) }
    }

    /// What the gateway `b` may use, and holds.
    fn decided(report: &LeaseReport, others: &[OtherLease]) -> (u32, u32, bool) {
        let (leases, (grants, is_settled)) =
            decide(std::slice::from_ref(report), "b", others, (NOW, REPORTED));
        assert_eq!((leases.len(), grants.len()), (1, 1));
        (grants[0].share.rows, leases[0].held_rows, is_settled)
    }

    #[test]
    fn one_alone_has_everything_and_what_others_hold_is_not_there_to_take() {
        let mine = report(Policy::MarginalWork, (5, 1, 40), 0);
        assert_eq!(decided(&mine, &[]), (10, 10, true));
        let theirs = other("a", &report(Policy::MarginalWork, (9, 1, 40), 8), 0);
        assert_eq!(decided(&mine, std::slice::from_ref(&theirs)), (2, 2, false), "nine once the other gives");
        let elsewhere = ReplicaLease { replica: "http://y".into(), ..theirs.lease.clone() };
        assert_eq!(decided(&mine, &[OtherLease { lease: elsewhere, ..theirs.clone() }]), (10, 10, true));
        let smaller = ReplicaLease { rows_max: 4, held_rows: 1, ..theirs.lease.clone() };
        assert_eq!(
            decided(&mine, &[OtherLease { lease: smaller, ..theirs }]),
            (3, 3, false),
            "the least of both"
        );
    }

    #[test]
    fn who_has_less_to_do_goes_first_and_under_two_policies_who_came_first() {
        let long = report(Policy::MarginalWork, (900, 2, 40), 9);
        let short = other("a", &report(Policy::MarginalWork, (5, 1, 4), 1), 0);
        assert_eq!(decided(&long, &[short]), (6, 9, false), "it gives as its rows end");
        let first_come = other("a", &report(Policy::Fcfs, (0, 1, 4), 1), 0);
        assert_eq!(decided(&long, &[first_come]), (9, 9, true), "it came a second before");
        let earlier = other("a", &report(Policy::Fcfs, (0, 1, 4), 1), 3_000);
        assert_eq!(decided(&long, &[earlier]), (6, 9, false), "told three seconds ago: it is four old");
    }

    #[test]
    fn what_another_version_tells_counts_as_no_queue() {
        let theirs = other("a", &report(Policy::MarginalWork, (1, 1, 40), 1), 0);
        let lease = ReplicaLease { queue: "{\"rows\": 3}".into(), ..theirs.lease.clone() };
        let mine = report(Policy::MarginalWork, (5, 1, 40), 0);
        assert_eq!(decided(&mine, &[OtherLease { lease, ..theirs }]), (9, 9, true));
    }

    #[test]
    fn all_gateways_divide_alike() {
        let idle = |held| LeaseReport { queue: Vec::new(), ..report(Policy::MarginalWork, (0, 0, 0), held) };
        let shares = ["a", "c"].map(|node| decided(&idle(0), &[other(node, &idle(1), 0)]).0);
        assert_eq!(shares, [5, 5]);
        let odd = |node, held| {
            let report =
                LeaseReport { capacity: ReplicaConfig { rows_max: 9, tokens_max: None }, ..idle(held) };
            decided(&report, &[other(node, &report, 0)]).0
        };
        assert_eq!([odd("a", 0), odd("c", 0)], [4, 5], "the first by name has the odd one");
        let none = ReplicaShare { rows: 0, tokens: None };
        assert_eq!(divide(ReplicaConfig { rows_max: 1, tokens_max: None }, &[&[], &[]])[1], none);
    }
}
