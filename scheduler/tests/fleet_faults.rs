//! What holds in a fleet whatever replicas die, come back, drain, and whatever is called off: every row ends
//! exactly once, no replica is above its limits, memory is bounded, loads return to nothing, the same calls
//! give the same answers.

mod common;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{
    End, Millis, RelQueryId, RequestId, RowError, ServiceClass, Submission, TenantId, Time, TokenCount,
};
use common::{item, submission};
use proptest::prelude::*;
use scheduler::fleet::{Dispatch, Failure, Finish, Fleet, FleetConfig, Health, ReplicaConfig, ReplicaId};
use scheduler::{Event, MarginalWorkConfig, Policy, SchedulerConfig};

/// Something that happens.
#[derive(Clone, Debug)]
enum Act {
    Submit { rows: u32, prefix: u32, class: ServiceClass, tenant: u64 },
    Extend { which: usize, rows: u32, prefix: u32 },
    Cancel { which: usize },
    CancelRow { which: usize, row: u32 },
    Finish { which: usize },
    Text { which: usize },
    FailRow { which: usize },
    FailReplica { which: usize },
    Health { replica: u32, health: Health },
    Resize { replica: u32, rows_max: u32 },
}

fn act() -> impl Strategy<Value = Act> {
    let class =
        prop::sample::select(vec![ServiceClass::Interactive, ServiceClass::Dashboard, ServiceClass::Bulk]);
    let health = prop::sample::select(vec![Health::Up, Health::Draining, Health::Down]);
    let which = 0..64_usize;
    prop_oneof![
        4 => (1..9_u32, 0..5_u32, class, 1..4_u64)
            .prop_map(|(rows, prefix, class, tenant)| Act::Submit { rows, prefix, class, tenant }),
        1 => (which.clone(), 1..5_u32, 0..5_u32)
            .prop_map(|(which, rows, prefix)| Act::Extend { which, rows, prefix }),
        1 => which.clone().prop_map(|which| Act::Cancel { which }),
        1 => (which.clone(), 0..9_u32).prop_map(|(which, row)| Act::CancelRow { which, row }),
        8 => which.clone().prop_map(|which| Act::Finish { which }),
        1 => which.clone().prop_map(|which| Act::Text { which }),
        1 => which.clone().prop_map(|which| Act::FailRow { which }),
        2 => which.prop_map(|which| Act::FailReplica { which }),
        2 => (0..4_u32, health).prop_map(|(replica, health)| Act::Health { replica, health }),
        1 => (0..4_u32, 1..6_u32).prop_map(|(replica, rows_max)| Act::Resize { replica, rows_max }),
    ]
}

fn replica(rows_max: u32) -> ReplicaConfig {
    ReplicaConfig { rows_max, tokens_max: Some(TokenCount(90)) }
}

/// The fleet, and what must be true of it.
struct World {
    fleet: Fleet,
    now: Time,
    limits: BTreeMap<ReplicaId, ReplicaConfig>,
    health: BTreeMap<ReplicaId, Health>,
    flying: BTreeMap<RequestId, Dispatch>,
    /// Rows that must still end, by relQuery.
    open: BTreeMap<RelQueryId, BTreeSet<u32>>,
    next_row: BTreeMap<RelQueryId, u32>,
    log: Vec<String>,
}

impl World {
    fn new(policy: Policy) -> Self {
        let lag = Millis(50);
        let scheduler = SchedulerConfig {
            policy,
            unit_waiting_ms_max: Some(Millis(1)),
            marginal_work: MarginalWorkConfig { tenant_lag_ms_max: lag, ..MarginalWorkConfig::default() },
            ..SchedulerConfig::default()
        };
        let config = FleetConfig {
            prefix_block: 4,
            prefixes_max: 6,
            load_slack_tokens: TokenCount(30),
            bulk_window: 3,
            ..FleetConfig::default()
        };
        let limits: BTreeMap<_, _> = (0..3).map(|id| (ReplicaId(id), replica(3))).collect();
        let fleet = Fleet::new(config, scheduler, limits.clone()).expect("a valid configuration");
        let health = limits.keys().map(|id| (*id, Health::Up)).collect();
        Self {
            fleet,
            now: Time(0),
            limits,
            health,
            flying: BTreeMap::new(),
            open: BTreeMap::new(),
            next_row: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    fn items(&mut self, id: RelQueryId, rows: u32, prefix: u32) -> Vec<base::WorkItem> {
        let first = *self.next_row.entry(id).or_insert(0);
        self.next_row.insert(id, first + rows);
        let prompt = |row: u32| [vec![prefix; 9], vec![100 + row % 7; 3]].concat();
        let numbers = first..first + rows;
        self.open.entry(id).or_default().extend(numbers.clone());
        numbers.map(|row| item(row, prompt(row), 6, u64::from(row))).collect()
    }

    fn tell(&mut self, events: Vec<Event>) {
        for event in events {
            self.log.push(format!("{event:?}"));
            match event {
                Event::RowDone { relquery, row, .. } | Event::RowFailed { relquery, row, .. } => {
                    assert!(self.open.get_mut(&relquery).expect("open").remove(&row), "a row ends once");
                }
                Event::RelQueryDone { relquery, .. } => {
                    assert_eq!(self.open.remove(&relquery), Some(BTreeSet::new()), "all its rows have ended");
                }
                Event::Started { .. } | Event::Prompt { .. } | Event::Token { .. } | Event::Text { .. } => (),
            }
        }
    }

    fn abort(&mut self, requests: impl IntoIterator<Item = RequestId>) {
        for request in requests {
            assert!(self.flying.remove(&request).is_some(), "only what runs is aborted");
        }
    }

    fn chosen<T>(mut all: impl ExactSizeIterator<Item = T>, which: usize) -> Option<T> {
        let count = all.len();
        (count > 0).then(|| all.nth(which % count).expect("below the count"))
    }

    fn act(&mut self, act: Act) {
        self.now = self.now + base::Nanos(1_000);
        let now = self.now;
        match act {
            Act::Submit { rows, prefix, class, tenant } => {
                let id = RelQueryId(self.next_row.len() as u64 + 1);
                let items = self.items(id, rows, prefix);
                let tenant = TenantId(tenant);
                let taken = self.fleet.submit(Submission { class, tenant, ..submission(id.0, now.0, items) });
                assert_eq!(taken, Ok(()));
            }
            Act::Extend { which, rows, prefix } => {
                let Some(id) = Self::chosen(self.open.keys().copied().collect::<Vec<_>>().into_iter(), which)
                else {
                    return;
                };
                let items = self.items(id, rows, prefix);
                assert_eq!(self.fleet.extend(id, items), Ok(()));
            }
            Act::Cancel { which } => {
                let Some(id) = Self::chosen(self.open.keys().copied(), which) else { return };
                let aborts = self.fleet.cancel(id);
                self.abort(aborts.into_iter().map(|(_, request)| request));
                self.open.remove(&id);
            }
            Act::CancelRow { which, row } => {
                let Some(id) = Self::chosen(self.open.keys().copied(), which) else { return };
                let aborted = self.fleet.cancel_row(id, row);
                self.abort(aborted.map(|(_, request)| request));
                self.open.get_mut(&id).expect("open").remove(&row);
            }
            Act::Health { replica, health } => {
                let replica = ReplicaId(replica);
                let lost = self.fleet.set_health(replica, health);
                assert!(lost.iter().all(|request| self.flying[request].replica == replica));
                self.abort(lost);
                self.health.entry(replica).and_modify(|old| *old = health);
            }
            Act::Resize { replica: id, rows_max } => {
                assert_eq!(self.fleet.resize(ReplicaId(id), replica(rows_max)), Ok(()));
                self.limits.entry(ReplicaId(id)).and_modify(|old| *old = replica(rows_max));
            }
            Act::Finish { which }
            | Act::Text { which }
            | Act::FailRow { which }
            | Act::FailReplica { which } => {
                let Some(request) = Self::chosen(self.flying.keys().copied(), which) else { return };
                self.report(&act, request);
            }
        }
    }

    fn report(&mut self, act: &Act, request: RequestId) {
        let now = self.now;
        let finish = Finish {
            end: End::Stop,
            prompt: None,
            cached: TokenCount(4),
            output: TokenCount(2),
            text: String::new(),
            tokens: Vec::new(),
        };
        let events = match act {
            Act::Text { .. } => self.fleet.text(request, "a".into(), now),
            Act::Finish { .. } => self.fleet.finished(request, finish.clone(), now),
            Act::FailRow { .. } => self.fleet.failed(request, Failure::Row(RowError::NotANumber), now),
            _ => self.fleet.failed(request, Failure::Replica("gone".into()), now),
        };
        self.tell(events);
        if !matches!(act, Act::Text { .. }) {
            self.flying.remove(&request);
            assert_eq!(self.fleet.finished(request, finish, now), [], "nothing is heard of it any more");
        }
    }

    fn settle(&mut self) {
        let before: BTreeMap<ReplicaId, u32> =
            self.fleet.stats().replicas.iter().map(|replica| (replica.id, replica.rows)).collect();
        for sent in self.fleet.dispatch(self.now) {
            assert_eq!(self.health[&sent.replica], Health::Up);
            assert!(self.open[&sent.relquery].contains(&sent.item.row), "only open rows are sent");
            let twice = self
                .flying
                .values()
                .any(|one| (one.relquery, one.item.row) == (sent.relquery, sent.item.row));
            assert!(!twice, "a row runs in one place");
            self.log.push(format!("{:?} {:?} {}", sent.request, sent.replica, sent.rank));
            self.flying.insert(sent.request, sent);
        }
        let events = self.fleet.drain_events(self.now);
        self.tell(events);
        self.fleet.check_invariants().expect("the books balance");
        let stats = self.fleet.stats();
        let mut has_room = false;
        for replica in &stats.replicas {
            let limit = self.limits[&replica.id];
            let grew = replica.rows > before[&replica.id];
            assert!(!grew || replica.rows <= limit.rows_max, "{} rows", replica.rows);
            assert!(replica.tokens <= limit.tokens_max.expect("it has one"), "{} tokens", replica.tokens);
            assert!(replica.prefixes <= 6);
            let is_free = replica.rows < limit.rows_max && replica.tokens.0 + 18 <= 90;
            has_room |= is_free && self.health[&replica.id] == Health::Up;
        }
        // A row that failed on the one replica with room may wait for the others.
        let waits = stats.totals.rows_waiting > stats.retries as u32;
        // One that would slow those before it down waits for them, but not for good.
        let is_held = self.fleet.last_decision().held.is_some();
        assert!(!is_held || self.fleet.next_timer().is_some(), "rows are held back for good");
        assert!(is_held || !(has_room && waits), "a replica idles while rows wait");
    }
}

fn run(policy: Policy, acts: &[Act]) -> Vec<String> {
    let mut world = World::new(policy);
    for act in acts {
        world.act(act.clone());
        world.settle();
    }
    for id in 0..3 {
        world.act(Act::Health { replica: id, health: Health::Up });
    }
    world.settle();
    let mut rounds = 0;
    while !world.fleet.is_idle() {
        // Rows whose replica failed wait for their time.
        if world.flying.is_empty() {
            world.now = world.fleet.next_timer().expect("else rows wait and nothing is sent");
        }
        world.act(Act::Finish { which: rounds });
        world.settle();
        rounds += 1;
        assert!(rounds < 10_000, "no end in sight");
    }
    assert!(world.fleet.is_idle(), "rows wait and nothing is sent");
    assert_eq!(world.open, BTreeMap::new(), "every row has ended");
    let stats = world.fleet.stats();
    assert!(stats.replicas.iter().all(|replica| (replica.rows, replica.tokens.0) == (0, 0)), "{stats:?}");
    world.log
}

#[test]
fn hundreds_of_rows_outlive_seconds_in_which_their_only_replica_refuses_and_then_resets() {
    let second = |number: u64| Time(number * 1_000_000_000);
    let (resets_from, well_from) = (second(4), second(7));
    // A try takes so long where it is not refused.
    let span = base::Nanos(50_000_000);
    let replicas = [(ReplicaId(0), ReplicaConfig::default())];
    let mut fleet = Fleet::new(FleetConfig::default(), SchedulerConfig::default(), replicas).expect("valid");
    // A hundred rows each second: those of the first wait longer than it takes until the replica is well.
    let mut coming = (0..4_u64).map(|id| (id, second(id))).peekable();
    let mut flying: VecDeque<(Time, RequestId)> = VecDeque::new();
    let (mut ended, mut relqueries) = (BTreeSet::new(), BTreeSet::new());
    let (mut refused, mut reset) = (0_u64, 0_u64);
    let (mut now, mut rounds) = (Time(0), 0);
    loop {
        while let Some((id, _)) = coming.next_if(|(_, at)| *at <= now) {
            let rows = (0..100).map(|row| item(row, vec![row; 20], 6, u64::from(row))).collect();
            fleet.submit(submission(id, now.0, rows)).expect("room");
        }
        for sent in fleet.dispatch(now) {
            flying.push_back((if now < resets_from { now } else { now + span }, sent.request));
        }
        fleet.check_invariants().expect("the books balance");
        let end = flying.front().map(|(end, _)| *end);
        let timer = fleet.next_timer().filter(|at| *at > now);
        let next = coming.peek().map(|(_, at)| *at);
        let Some(at) = end.into_iter().chain(timer).chain(next).min() else { break };
        now = at;
        let due = flying.iter().take_while(|(end, _)| *end <= now).count();
        for (_, request) in flying.drain(..due) {
            if now < well_from {
                refused += u64::from(now < resets_from);
                reset += u64::from(now >= resets_from);
                let failure = Failure::Replica("no answer".into());
                assert_eq!(fleet.failed(request, failure, now), [], "it waits");
                continue;
            }
            let (end, text, tokens) = (End::Stop, "yes".to_owned(), Vec::new());
            let (cached, output) = (TokenCount(0), TokenCount(2));
            let finish = Finish { end, prompt: None, cached, output, text, tokens };
            for event in fleet.finished(request, finish, now) {
                match event {
                    Event::RowDone { relquery, row, .. } => {
                        assert!(ended.insert((relquery, row)), "a row ends once");
                    }
                    Event::RelQueryDone { relquery, .. } => assert!(relqueries.insert(relquery)),
                    Event::RowFailed { .. } => panic!("{event:?}"),
                    _ => (),
                }
            }
        }
        rounds += 1;
        assert!(rounds < 10_000, "no end in sight");
    }
    assert!(fleet.is_idle(), "{:?}", fleet.stats());
    assert_eq!((ended.len(), relqueries.len()), (400, 4));
    assert!(refused >= 400, "every row was refused: {refused}");
    assert!(reset >= 300, "and all but those of the first second were reset, too: {reset}");
    assert_eq!(fleet.stats().retries, refused + reset);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_row_ends_once_whatever_happens_to_its_replicas(
        policy in prop::sample::select(Policy::WITH_VARIANTS.to_vec()),
        acts in prop::collection::vec(act(), 1..120),
    ) {
        let log = run(policy, &acts);
        prop_assert_eq!(log, run(policy, &acts), "the same calls give the same answers");
    }
}
