//! One replica of a fleet: what is known of it, and whether it gets rows.

use base::{Millis, Nanos, RequestId, Time, TokenCount};
use scheduler::fleet::{Health, ReplicaConfig};

use super::breaker::{Breaker, BreakerSettings, Passage};
use super::local::Local;
use super::members::ReplicaMember;
use super::reply::{Loss, LossKind};
use super::unhealthy::{FoundHealth, Unhealthy};
use super::{client::Client, request::RequestStyle};
use crate::gateway_ids::{GatewayIds, GatewayPaths};
use crate::metrics::ReplicaMetrics;
use crate::price::TokenPrices;

/// Time for which a server is left alone that asks for it and does not say for how long.
const PAUSE: Nanos = Nanos(1_000_000_000);
/// Least such time: a server that says 0 would be asked, and would refuse, as fast as the network goes.
const PAUSE_MIN: Nanos = Nanos(100_000_000);

/// How a replica is reached.
pub(super) enum Transport {
    /// Over HTTP.
    Server {
        client: Client,
        /// How it is asked.
        style: RequestStyle,
    },
    /// The engine of this process, on a thread of its own.
    Local(Local),
}

/// Looks at a server's health; ends with this.
pub(super) struct HealthWatch(pub(super) tokio::task::AbortHandle);

impl Drop for HealthWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A replica.
pub(super) struct Replica {
    /// What it is called, who named it, and its settings.
    pub(super) member: ReplicaMember,
    pub(super) transport: Transport,
    /// What it may be given when nothing is wrong.
    pub(super) size: ReplicaConfig,
    /// Tokens that its KV memory holds, as it said when it was last asked.
    pub(super) kv_reported: Option<TokenCount>,
    /// The gateways that it leads to, as it said when it was last found.
    pub(super) gateways: GatewayPaths,
    /// What tokens cost there.
    pub(super) prices: TokenPrices,
    /// None of the local engine.
    watch: Option<HealthWatch>,
    health: ReplicaHealth,
    /// Whether nobody names it any more: it ends with its last row.
    is_leaving: bool,
    breaker: Breaker,
    rows: u32,
    /// The row that an open breaker let through, to see.
    probe: Option<RequestId>,
    pub(super) last_error: Option<(String, u64)>,
    pub(super) metrics: ReplicaMetrics,
}

/// Looks one after another that may fail before a server that does not answer them counts as gone: a busy one
/// is slow.
const LOOKS_MAX: u32 = 3;

/// What looks at a server's health found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplicaHealth {
    Well,
    /// So many looks failed: it gets nothing new.
    Doubtful(u32),
    /// It is not there, or nobody has looked yet: what it had went elsewhere.
    Gone,
}

/// Whether a replica gets rows, and how many at a time.
pub(super) type Availability = (Health, ReplicaConfig);

impl Replica {
    pub(super) fn new(
        (member, prices): (ReplicaMember, TokenPrices),
        transport: Transport,
        watch: Option<HealthWatch>,
        metrics: ReplicaMetrics,
    ) -> Self {
        let settings = &member.settings;
        Self {
            health: if matches!(transport, Transport::Local(_)) {
                ReplicaHealth::Well
            } else {
                ReplicaHealth::Gone
            },
            transport,
            prices,
            size: ReplicaConfig { rows_max: settings.rows_max, tokens_max: settings.tokens_max },
            kv_reported: None,
            gateways: GatewayPaths::default(),
            watch,
            is_leaving: false,
            breaker: Breaker::new(BreakerSettings {
                failures_max: settings.failures_max,
                open: span(settings.open_ms),
            }),
            rows: 0,
            probe: None,
            last_error: None,
            metrics,
            member,
        }
    }

    /// Its address, where it is a server.
    pub(super) fn url(&self) -> Option<&str> {
        match &self.transport {
            Transport::Server { client, .. } => Some(client.base()),
            Transport::Local(_) => None,
        }
    }

    /// What it is called.
    pub(super) fn name(&self) -> &str {
        &self.member.name
    }

    /// It is called this from now on. Returns what it was called.
    pub(super) fn rename(&mut self, name: String, metrics: ReplicaMetrics) -> String {
        self.metrics = metrics;
        std::mem::replace(&mut self.member.name, name)
    }

    /// Whether it is the engine of this process.
    pub(super) fn is_local(&self) -> bool {
        matches!(self.transport, Transport::Local(_))
    }

    /// Goes on with the settings of a fresh one of the same server; what is in flight stays.
    pub(super) fn take_settings_of(&mut self, fresh: Self) {
        let Self { member, transport, size, prices, watch, breaker, metrics, .. } = fresh;
        (self.member, self.transport, self.size, self.prices) = (member, transport, size, prices);
        (self.watch, self.breaker, self.metrics) = (watch, breaker, metrics);
    }

    /// Nobody names it any more, or somebody does again.
    pub(super) fn set_leaving(&mut self, is_leaving: bool) {
        self.is_leaving = is_leaving;
    }

    /// Whether it ends with its last row.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Whether it leaves and has no row any more.
    pub(super) fn has_left(&self) -> bool {
        self.is_leaving && self.rows == 0
    }

    /// A row goes there.
    pub(super) fn sent(&mut self, request: RequestId, now: Time) {
        self.metrics.sent.inc();
        self.rows += 1;
        if self.breaker.passage(now) == Passage::HalfOpen {
            self.probe = Some(request);
        }
    }

    /// A row is there no more, whatever became of it.
    pub(super) fn left(&mut self, request: RequestId) {
        self.rows = self.rows.saturating_sub(1);
        self.probe = self.probe.filter(|probe| *probe != request);
    }

    /// Whether it gets rows at `now`.
    pub(super) fn availability(&self, now: Time) -> Availability {
        // One more than those that have hung since before it opened.
        let probed = self.rows + u32::from(self.probe.is_none());
        let one = ReplicaConfig { rows_max: probed.max(1), ..self.size };
        match (self.health, self.member.is_drained || self.is_leaving, self.breaker.passage(now)) {
            (ReplicaHealth::Gone, ..) => (Health::Down, self.size),
            (ReplicaHealth::Doubtful(_), ..) | (_, true, _) => (Health::Draining, self.size),
            (_, _, Passage::Open(_)) => (Health::Draining, self.size),
            (_, _, Passage::HalfOpen) => (Health::Up, one),
            (_, _, Passage::Closed) => (Health::Up, self.size),
        }
    }

    /// In a word.
    pub(super) fn state(&self, now: Time) -> &'static str {
        match (self.health, self.member.is_drained, self.breaker.passage(now)) {
            _ if self.is_leaving => "leaving",
            (ReplicaHealth::Gone, ..) => "down",
            (_, true, _) => "draining",
            (ReplicaHealth::Doubtful(_), ..) | (_, _, Passage::Open(_)) => "paused",
            (_, _, Passage::HalfOpen) => "trying",
            (_, _, Passage::Closed) => "up",
        }
    }

    /// Its breaker, in a word.
    pub(super) fn passage(&self, now: Time) -> Passage {
        self.breaker.passage(now)
    }

    /// When its availability changes by itself.
    pub(super) fn changes_at(&self, now: Time) -> Option<Time> {
        match self.breaker.passage(now) {
            Passage::Open(until) if self.health == ReplicaHealth::Well => Some(until),
            _ => None,
        }
    }

    /// Notes the gateways that a look found it to lead to. A replica that leads back to `own` is not well: rows would
    /// come back. Who looks at this gateway is told of it all the same, so that each gateway of a loop finds it.
    pub(super) fn leads_to(&mut self, found: FoundHealth, own: &GatewayIds) -> Result<(), Unhealthy> {
        match found {
            Ok(gateways) => {
                self.gateways = gateways;
                let reason = own.found_on(&self.gateways);
                reason.map_or(Ok(()), |reason| Err(Unhealthy { reason, is_gone: true }))
            }
            Err(unhealthy) => {
                if unhealthy.is_gone {
                    self.gateways = GatewayPaths::default();
                }
                Err(unhealthy)
            }
        }
    }

    /// What a look at it found. True: whether it gets rows has changed with it.
    pub(super) fn looked(&mut self, result: Result<(), Unhealthy>, unix_ms: u64) -> bool {
        let was = self.health;
        self.health = match (&result, was) {
            (Ok(()), _) => ReplicaHealth::Well,
            (Err(Unhealthy { is_gone: true, .. }), _) | (_, ReplicaHealth::Gone) => ReplicaHealth::Gone,
            (Err(_), ReplicaHealth::Doubtful(looks)) if looks + 1 >= LOOKS_MAX => ReplicaHealth::Gone,
            (Err(_), ReplicaHealth::Doubtful(looks)) => ReplicaHealth::Doubtful(looks + 1),
            (Err(_), ReplicaHealth::Well) => ReplicaHealth::Doubtful(1),
        };
        let is_new = was != self.health;
        if is_new && was == ReplicaHealth::Gone {
            // Whoever is there now has not failed yet.
            self.breaker.succeeded();
        }
        match result {
            Ok(()) => is_new,
            Err(Unhealthy { reason, .. }) => {
                let says_more = self.last_error.as_ref().is_none_or(|(last, _)| *last != reason);
                self.last_error = Some((reason, unix_ms));
                is_new || says_more
            }
        }
    }

    /// A row of it was answered, well or not.
    pub(super) fn answered(&mut self) {
        self.breaker.succeeded();
    }

    /// A row of it was lost.
    pub(super) fn lost(&mut self, loss: &Loss, now: Time, unix_ms: u64) {
        self.last_error = Some((loss.reason.clone(), unix_ms));
        match loss.kind {
            LossKind::Gone | LossKind::Loop => self.health = ReplicaHealth::Gone,
            LossKind::Misconfigured if self.health == ReplicaHealth::Well => {
                self.health = ReplicaHealth::Doubtful(0)
            }
            LossKind::Misconfigured => {}
            LossKind::Failed => self.breaker.failed(now),
            LossKind::Busy(span) => self.breaker.pause(now, span.unwrap_or(PAUSE).max(PAUSE_MIN)),
        }
    }
}

fn span(span: Millis) -> Nanos {
    span.into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::ReplicaSettings;
    use crate::metrics::tests::fresh;
    use crate::replicas::members::tests::member;

    fn replica() -> Replica {
        let config = ReplicaSettings {
            url: Some("http://127.0.0.1:1".into()),
            failures_max: 1,
            open_ms: Millis(10),
            ..ReplicaSettings::default()
        };
        let style = RequestStyle {
            model: "m".into(),
            dialect: config.dialect,
            form: crate::config::PromptForm::Messages,
            priority: false,
            salt: false,
            open_end: 1,
        };
        let transport = Transport::Server {
            client: Client::new(&config, &GatewayIds::of(1, 2)).expect("a client"),
            style,
        };
        Replica::new((member(&config), TokenPrices::default()), transport, None, fresh().replica("a"))
    }

    fn unhealthy(is_gone: bool) -> Result<(), Unhealthy> {
        Err(Unhealthy { reason: "no".into(), is_gone })
    }

    #[test]
    fn a_slow_look_pauses_a_server_and_only_several_take_its_rows_away() {
        let mut replica = replica();
        let health = |replica: &Replica| replica.availability(Time(0)).0;
        assert_eq!(health(&replica), Health::Down, "nobody has looked yet");
        assert!(replica.looked(Ok(()), 0));
        assert_eq!(health(&replica), Health::Up);
        for _ in 1..LOOKS_MAX {
            replica.looked(unhealthy(false), 0);
            assert_eq!(health(&replica), Health::Draining);
        }
        replica.looked(unhealthy(false), 0);
        assert_eq!(health(&replica), Health::Down);
        replica.looked(Ok(()), 0);
        replica.looked(unhealthy(true), 0);
        assert_eq!(health(&replica), Health::Down, "nobody is there");
        replica.looked(unhealthy(false), 0);
        assert_eq!(health(&replica), Health::Down, "a doubt is no reason to give it rows again");
    }

    #[test]
    fn a_replica_that_leads_back_to_this_gateway_is_down_until_it_does_not() {
        let (own, other) = (GatewayIds::of(1, 2), GatewayIds::of(3, 4));
        let mut replica = replica();
        let found = |replica: &mut Replica, paths: Vec<Vec<String>>| {
            let result = replica.leads_to(Ok(paths.into()), &own);
            replica.looked(result, 7);
            replica.state(Time(0))
        };
        assert_eq!(found(&mut replica, other.paths(&[])), "up", "another gateway is a replica as others are");
        assert_eq!(found(&mut replica, other.paths(&own.paths(&[]))), "down");
        let reason = replica.last_error.as_ref().map(|(reason, _)| reason.clone()).unwrap_or_default();
        assert!(reason.contains("leads back to this gateway"), "{reason}");
        assert!(!replica.gateways.is_empty(), "those in front of this gateway are told of it");
        assert_eq!(found(&mut replica, other.paths(&[])), "up");
        assert!(replica.leads_to(unhealthy(false).map(|()| Arc::default()), &own).is_err());
        assert!(!replica.gateways.is_empty(), "it was slow once");
        assert!(replica.leads_to(unhealthy(true).map(|()| Arc::default()), &own).is_err());
        assert!(replica.gateways.is_empty(), "nobody is there");
        assert_eq!(found(&mut replica, Vec::new()), "up");
        let loss = Loss { reason: "in a loop".into(), kind: LossKind::Loop };
        replica.lost(&loss, Time(0), 8);
        assert_eq!((replica.state(Time(0)), replica.last_error), ("down", Some(("in a loop".into(), 8))));
    }

    #[test]
    fn rows_that_hang_since_before_a_breaker_opened_do_not_keep_it_from_trying() {
        let mut replica = replica();
        replica.looked(Ok(()), 0);
        for hung in [7, 8] {
            replica.sent(RequestId(hung), Time(0));
        }
        replica.lost(&Loss { reason: "x".into(), kind: LossKind::Failed }, Time(0), 7);
        let half_open = Time(10_000_000);
        let rows_max = |replica: &Replica| replica.availability(half_open).1.rows_max;
        assert_eq!(rows_max(&replica), 3);
        replica.sent(RequestId(9), half_open);
        assert_eq!(rows_max(&replica), 3, "one at a time");
        replica.left(RequestId(7));
        assert_eq!(rows_max(&replica), 2);
        replica.left(RequestId(9));
        assert_eq!(rows_max(&replica), 2, "the next may be tried");
    }

    #[test]
    fn the_breaker_an_operator_and_a_look_each_have_their_say() {
        let mut replica = replica();
        replica.looked(Ok(()), 0);
        let ms = 1_000_000;
        replica.lost(&Loss { reason: "x".into(), kind: LossKind::Failed }, Time(0), 7);
        assert_eq!(replica.availability(Time(0)).0, Health::Draining);
        assert_eq!(replica.changes_at(Time(0)), Some(Time(10 * ms)));
        let (health, size) = replica.availability(Time(10 * ms));
        assert_eq!((health, size.rows_max), (Health::Up, 1), "one row, to see");
        replica.sent(RequestId(2), Time(10 * ms));
        assert_eq!(replica.availability(Time(10 * ms)).1.rows_max, 1, "and no second one");
        replica.left(RequestId(2));
        replica.answered();
        assert_eq!(replica.availability(Time(10 * ms)), (Health::Up, replica.size));
        replica.member.is_drained = true;
        assert_eq!((replica.availability(Time(0)).0, replica.state(Time(0))), (Health::Draining, "draining"));
        replica.member.is_drained = false;
        replica.lost(&Loss { reason: "y".into(), kind: LossKind::Busy(None) }, Time(0), 8);
        assert_eq!((replica.availability(Time(0)).0, replica.state(Time(0))), (Health::Draining, "paused"));
        assert_eq!(replica.availability(Time(PAUSE.0)).0, Health::Up);
        let none = Loss { reason: "y".into(), kind: LossKind::Busy(Some(Nanos(0))) };
        replica.lost(&none, Time(PAUSE.0), 8);
        assert_eq!(replica.changes_at(Time(PAUSE.0)), Some(Time(PAUSE.0 + PAUSE_MIN.0)), "not at once");
        let later = PAUSE.0 + PAUSE_MIN.0;
        replica.lost(&Loss { reason: "x".into(), kind: LossKind::Failed }, Time(later), 9);
        replica.lost(&Loss { reason: "z".into(), kind: LossKind::Gone }, Time(later), 9);
        assert_eq!(replica.availability(Time(later)).0, Health::Down);
        assert_eq!(replica.last_error, Some(("z".into(), 9)));
        replica.looked(Ok(()), 10);
        assert_eq!(replica.state(Time(later)), "up", "whoever is there now has not failed yet");
    }
}
