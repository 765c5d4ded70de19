//! What this gateway may use of servers that other gateways use too, on the loop's thread.
//!
//! [`crate::leases`] reports to the database and brings what it grants. A grant lasts until an instant of this
//! process's own clock; the database gives what was granted to others only well after it.

use std::collections::BTreeMap;

use base::{Nanos, RelQueryId, Time, TokenCount};
use scheduler::Policy;
use scheduler::fleet::{Load, QueueStretch, ReplicaConfig, ReplicaDemand, ReplicaId, ReplicaShare};
use tokio::sync::Notify;

/// What may be used of a server of which no lease is left, so that a gateway without its database does not stand
/// still: one row more than the server runs, where the others have all of it.
const WITHOUT_LEASE: ReplicaShare = ReplicaShare { rows: 1, tokens: None };
/// What may be used before the first lease is there.
const NOTHING: ReplicaShare = ReplicaShare { rows: 0, tokens: None };

/// How the loop has its leases renewed before their time.
#[derive(Debug)]
pub struct LeaseSignal {
    /// Rows wait while others hold room for them.
    pub wanted: Notify,
    /// How long a lease may be used.
    pub use_max: Nanos,
}

/// What a gateway holds of a server and has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseReport {
    /// The server, by a name that is the same on all gateways: its URL.
    pub server: String,
    /// What it runs.
    pub capacity: ReplicaConfig,
    /// What is in flight there, or may be until the next grant.
    pub held: Load,
    /// By which policy the queue is ordered.
    pub policy: Policy,
    /// What there is to do, by this process's clock.
    pub queue: Vec<QueueStretch>,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseGrant {
    /// The server, as reported.
    pub server: String,
    pub share: ReplicaShare,
    /// Gateways that use it, this one among them.
    pub gateways: u32,
}

/// A lease, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// Most rows in flight.
    pub rows: u32,
    /// Most of their tokens.
    pub tokens: Option<TokenCount>,
    /// Gateways that use the server, this one among them; 0 before the first lease.
    pub gateways: u32,
    /// False: it was not renewed in time.
    pub is_held: bool,
}

/// All leases; none where nobody else uses the servers.
pub(super) struct Leases {
    /// How long one may be used; `None`: servers are not shared.
    use_max: Option<Nanos>,
    /// Stands behind the servers' names, where a model beside the default one has them: the same server may
    /// run several.
    suffix: String,
    by_replica: BTreeMap<ReplicaId, HeldLease>,
    /// The relQuery for which more was asked last.
    asked_for: Option<RelQueryId>,
}

struct HeldLease {
    url: String,
    share: ReplicaShare,
    gateways: u32,
    until: Time,
}

impl Leases {
    pub(super) fn new(signal: Option<&LeaseSignal>, suffix: String) -> Self {
        let use_max = signal.map(|signal| signal.use_max);
        Self { use_max, suffix, by_replica: BTreeMap::new(), asked_for: None }
    }

    /// What may be used of a replica at `now`; `None`: all of it. A server that is new here has no lease yet.
    pub(super) fn share(&mut self, id: ReplicaId, url: Option<&str>, now: Time) -> Option<ReplicaShare> {
        let (use_max, url) = (self.use_max?, url?);
        if self.by_replica.get(&id).is_none_or(|lease| lease.url != url) {
            let lease = HeldLease { url: url.to_owned(), share: NOTHING, gateways: 0, until: now + use_max };
            self.by_replica.insert(id, lease);
        }
        self.by_replica.get(&id).map(|lease| lease.at(now))
    }

    /// What is to be told of each server; replicas that are gone are forgotten.
    pub(super) fn reports(
        &mut self,
        demand: Vec<ReplicaDemand>,
        policy: Policy,
        capacity: impl Fn(ReplicaId) -> Option<ReplicaConfig>,
    ) -> Vec<LeaseReport> {
        self.by_replica.retain(|id, _| demand.iter().any(|one| one.replica == *id));
        let mut servers = self.servers();
        let report = |one: ReplicaDemand| {
            let server = servers.remove(&one.replica)?;
            let (capacity, ReplicaDemand { held, queue, .. }) = (capacity(one.replica)?, one);
            Some(LeaseReport { server, capacity, held, policy, queue })
        };
        demand.into_iter().filter_map(report).collect()
    }

    /// Takes what was granted until then.
    pub(super) fn take(&mut self, grants: Vec<LeaseGrant>, until: Time) {
        let mut grants: BTreeMap<String, LeaseGrant> =
            grants.into_iter().map(|grant| (grant.server.clone(), grant)).collect();
        for (id, server) in self.servers() {
            if let (Some(lease), Some(grant)) = (self.by_replica.get_mut(&id), grants.remove(&server)) {
                (lease.share, lease.gateways, lease.until) = (grant.share, grant.gateways, until);
            }
        }
    }

    /// The names of the servers: a URL that several replicas have is numbered, as on any gateway that has them
    /// in this order.
    fn servers(&self) -> BTreeMap<ReplicaId, String> {
        let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
        let name = |(id, lease): (&ReplicaId, &'_ HeldLease)| (*id, format!("{}{}", lease.url, self.suffix));
        let mut servers: BTreeMap<ReplicaId, String> = self.by_replica.iter().map(name).collect();
        for (id, lease) in &self.by_replica {
            let count = seen.entry(&lease.url).or_default();
            *count += 1;
            if *count > 1
                && let Some(server) = servers.get_mut(id)
            {
                *server = format!("{server} {count}");
            }
        }
        servers
    }

    /// Whether to ask for more now, where `held_back` waits first for room that others hold.
    pub(super) fn asks_for(&mut self, held_back: Option<RelQueryId>) -> bool {
        let before = std::mem::replace(&mut self.asked_for, held_back);
        held_back.is_some() && held_back != before
    }

    /// When one runs out.
    pub(super) fn changes_at(&self, now: Time) -> Option<Time> {
        self.by_replica.values().map(|lease| lease.until).filter(|until| *until > now).min()
    }

    /// As it is shown.
    pub(super) fn view(&self, id: ReplicaId, now: Time) -> Option<LeaseView> {
        let lease = self.by_replica.get(&id)?;
        let ReplicaShare { rows, tokens } = lease.at(now);
        Some(LeaseView { rows, tokens, gateways: lease.gateways, is_held: now < lease.until })
    }
}

impl HeldLease {
    fn at(&self, now: Time) -> ReplicaShare {
        if now < self.until { self.share } else { WITHOUT_LEASE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USE_MAX: Nanos = Nanos(100);

    fn leases() -> Leases {
        Leases::new(Some(&LeaseSignal { wanted: Notify::new(), use_max: USE_MAX }), String::new())
    }

    fn share(rows: u32) -> ReplicaShare {
        ReplicaShare { rows, tokens: None }
    }

    fn grant(server: &str, rows: u32) -> LeaseGrant {
        LeaseGrant { server: server.to_owned(), share: share(rows), gateways: 2 }
    }

    #[test]
    fn nothing_goes_out_before_the_first_lease_and_a_row_at_a_time_after_the_last() {
        let mut leases = leases();
        let id = ReplicaId(3);
        assert_eq!(leases.share(id, None, Time(0)), None, "the local engine is nobody else's");
        assert_eq!(leases.share(id, Some("http://x"), Time(10)), Some(NOTHING));
        assert_eq!(leases.changes_at(Time(10)), Some(Time(110)));
        assert_eq!(leases.share(id, Some("http://x"), Time(110)), Some(WITHOUT_LEASE), "no database answers");
        leases.take(vec![grant("http://x", 7), grant("http://gone", 9)], Time(300));
        assert_eq!(leases.share(id, Some("http://x"), Time(299)), Some(share(7)));
        let shown = LeaseView { rows: 1, tokens: None, gateways: 2, is_held: false };
        assert_eq!(leases.view(id, Time(300)), Some(shown));
        assert_eq!(
            leases.share(id, Some("http://y"), Time(200)),
            Some(NOTHING),
            "another server has its number"
        );
        assert_eq!(Leases::new(None, String::new()).share(id, Some("http://x"), Time(0)), None);
    }

    #[test]
    fn replicas_of_one_url_are_told_apart_and_those_that_are_gone_are_not_told() {
        let mut leases = leases();
        for (id, url) in [(0, "http://x"), (1, "http://y"), (2, "http://x")] {
            leases.share(ReplicaId(id), Some(url), Time(0));
        }
        let demand = |id| ReplicaDemand { replica: ReplicaId(id), held: Load::default(), queue: Vec::new() };
        let reports = leases.reports(vec![demand(0), demand(2)], Policy::Fcfs, |id| {
            Some(ReplicaConfig { rows_max: id.0 + 1, tokens_max: None })
        });
        let listed: Vec<_> = reports.iter().map(|one| (one.server.as_str(), one.capacity.rows_max)).collect();
        assert_eq!(listed, [("http://x", 1), ("http://x 2", 3)]);
        leases.take(vec![grant("http://x 2", 5)], Time(50));
        assert_eq!(leases.share(ReplicaId(2), Some("http://x"), Time(1)), Some(share(5)));
    }

    #[test]
    fn a_server_of_two_models_has_a_lease_for_each() {
        let mut leases = Leases { suffix: " n".into(), ..leases() };
        leases.share(ReplicaId(0), Some("http://x"), Time(0));
        leases.take(vec![grant("http://x", 5)], Time(50));
        assert_eq!(leases.share(ReplicaId(0), Some("http://x"), Time(1)), Some(NOTHING), "another model's");
        leases.take(vec![grant("http://x n", 5)], Time(50));
        assert_eq!(leases.share(ReplicaId(0), Some("http://x"), Time(1)), Some(share(5)));
    }

    #[test]
    fn more_is_asked_for_once_for_each_relquery_that_waits_first() {
        let mut leases = leases();
        let asks = [None, Some(4), Some(4), Some(9), None, Some(9)];
        let asked = asks.map(|id| leases.asks_for(id.map(RelQueryId)));
        assert_eq!(asked, [false, true, false, true, false, true]);
    }
}
