//! Several gateways on one replica: whatever comes between a report and its answer, all together never have more
//! in flight than it runs; the division gives each row its turn in the order of all queues; and a fleet tells of
//! its own queue what the division needs.

mod common;

use base::{ServiceClass, Time, TokenCount, WorkItem};
use common::{item, submission};
use proptest::prelude::*;
use scheduler::SchedulerConfig;
use scheduler::fleet::division::{SettledShare, divide, settle};
use scheduler::fleet::{
    Fleet, FleetConfig, Health, Load, QueueStretch, ReplicaConfig, ReplicaDemand, ReplicaId, ReplicaShare,
};

fn stretch() -> impl Strategy<Value = QueueStretch> {
    let class = prop::sample::select(vec![ServiceClass::Interactive, ServiceClass::Bulk]);
    (class, 0..6_u64, 0..3_u64, 1..20_u32, 1..40_u64).prop_map(|(class, priority, arrival, rows, tokens)| {
        QueueStretch { class, priority, arrival: Time(arrival), rows, row_tokens: TokenCount(tokens) }
    })
}

/// A queue in order.
fn queue() -> impl Strategy<Value = Vec<QueueStretch>> {
    prop::collection::vec(stretch(), 0..6).prop_map(|mut queue| {
        queue.sort_by_key(key);
        queue
    })
}

fn key(stretch: &QueueStretch) -> (ServiceClass, u64, Time) {
    (stretch.class, stretch.priority, stretch.arrival)
}

fn capacity() -> impl Strategy<Value = ReplicaConfig> {
    (1..40_u32, prop::option::of(40..900_u64))
        .prop_map(|(rows_max, tokens)| ReplicaConfig { rows_max, tokens_max: tokens.map(TokenCount) })
}

/// How many rows of each stretch of a queue run in a share, in order, and whether it ends before the queue does.
fn run(queue: &[QueueStretch], share: ReplicaShare) -> Vec<u32> {
    let (mut rows, mut tokens) = (share.rows, share.tokens.map(|tokens| tokens.0));
    let mut counts = Vec::new();
    for stretch in queue {
        let fit = tokens.map_or(u64::MAX, |tokens| tokens / stretch.row_tokens.0);
        let count = stretch.rows.min(rows).min(u32::try_from(fit).unwrap_or(u32::MAX));
        rows -= count;
        tokens = tokens.map(|tokens| tokens - u64::from(count) * stretch.row_tokens.0);
        counts.push(count);
        if count < stretch.rows {
            break;
        }
    }
    counts.resize(queue.len(), 0);
    counts
}

proptest! {
    #[test]
    fn a_division_is_whole_keeps_the_order_and_leaves_nobody_out(
        capacity in capacity(), queues in prop::collection::vec(queue(), 1..5),
    ) {
        let slices: Vec<&[QueueStretch]> = queues.iter().map(Vec::as_slice).collect();
        let shares = divide(capacity, &slices);
        prop_assert_eq!(shares.iter().map(|share| share.rows).sum::<u32>(), capacity.rows_max);
        if let Some(most) = capacity.tokens_max {
            let tokens: u64 = shares.iter().filter_map(|share| share.tokens).map(|tokens| tokens.0).sum();
            prop_assert_eq!(tokens, most.0);
        }
        let gateways = shares.len() as u32;
        if capacity.rows_max / 4 >= gateways {
            prop_assert!(shares.iter().all(|share| share.rows > 0));
        }
        // Where a row waits for room, no row behind it has any beyond its gateway's floor.
        let counts: Vec<Vec<u32>> = queues.iter().zip(&shares).map(|(queue, share)| run(queue, *share)).collect();
        let waits = queues.iter().zip(&counts).flat_map(|(queue, counts)| queue.iter().zip(counts));
        let first = waits.filter(|(stretch, count)| **count < stretch.rows).map(|(stretch, _)| key(stretch)).min();
        let Some(first) = first else { return Ok(()) };
        let asked: u32 = queues.iter().flatten().map(|stretch| stretch.rows).sum();
        for (queue, counts) in queues.iter().zip(&counts) {
            let behind: u32 = queue.iter().zip(counts).filter(|(stretch, _)| key(stretch) > first).map(|(_, n)| n).sum();
            // What tokens keep from the first is divided evenly, and may let another's row through.
            if capacity.tokens_max.is_none() {
                prop_assert!(behind <= 1, "{behind} rows overtake one: {counts:?}");
                prop_assert!(asked + gateways > capacity.rows_max);
            }
        }
    }
}

/// A gateway between its reports.
#[derive(Clone, Copy, Debug)]
struct Gateway {
    share: u32,
    in_flight: u32,
    waiting: u32,
    priority: u64,
    /// What it said that it holds, on its way to the database.
    reported: Option<u32>,
    /// What the database answered, on its way back.
    answered: Option<u32>,
    /// What the database has it hold.
    held: u32,
}

#[derive(Clone, Debug)]
enum GatewayAct {
    Submit(usize, u32, u64),
    Send(usize),
    End(usize),
    Report(usize),
    Commit(usize),
    Apply(usize),
    /// The answer is lost.
    Lose(usize),
}

fn act() -> impl Strategy<Value = GatewayAct> {
    let which = 0..3_usize;
    prop_oneof![
        1 => (which.clone(), 0..30_u32, 0..9_u64).prop_map(|(which, rows, priority)| GatewayAct::Submit(which, rows, priority)),
        6 => which.clone().prop_map(GatewayAct::Send),
        5 => which.clone().prop_map(GatewayAct::End),
        3 => which.clone().prop_map(GatewayAct::Report),
        3 => which.clone().prop_map(GatewayAct::Commit),
        3 => which.clone().prop_map(GatewayAct::Apply),
        1 => which.prop_map(GatewayAct::Lose),
    ]
}

/// Gateways that share a replica of twelve rows.
struct SharedReplica([Gateway; 3]);

const ROWS_MAX: u32 = 12;
const ROWS: ReplicaConfig = ReplicaConfig { rows_max: ROWS_MAX, tokens_max: None };

impl SharedReplica {
    fn new() -> Self {
        let fresh = Gateway {
            share: 0,
            in_flight: 0,
            waiting: 0,
            priority: 0,
            reported: None,
            answered: None,
            held: 0,
        };
        Self([fresh; 3])
    }

    /// What the database does with a report, in a transaction.
    fn commit(&mut self, which: usize) {
        let Some(held) = self.0[which].reported.take() else { return };
        let queue = |one: &Gateway| {
            let rows = one.in_flight + one.waiting;
            let stretch = QueueStretch {
                class: ServiceClass::Interactive,
                priority: one.priority,
                arrival: Time(0),
                rows,
                row_tokens: TokenCount(1),
            };
            Vec::from_iter((rows > 0).then_some(stretch))
        };
        let queues = self.0.map(|one| queue(&one));
        let target = divide(ROWS, &[&queues[0], &queues[1], &queues[2]])[which];
        let others: u32 = (0..3).filter(|other| *other != which).map(|other| self.0[other].held).sum();
        let load = |rows| Load { rows, tokens: TokenCount(0) };
        let SettledShare { share, held, .. } = settle(ROWS, target, load(held), load(others));
        (self.0[which].held, self.0[which].answered) = (held.rows, Some(share.rows));
    }

    fn act(&mut self, act: &GatewayAct) {
        match *act {
            GatewayAct::Submit(which, rows, priority) => {
                self.0[which].waiting += rows;
                self.0[which].priority = priority;
            }
            GatewayAct::Send(which) => self.send(which),
            GatewayAct::End(which) => self.0[which].in_flight = self.0[which].in_flight.saturating_sub(1),
            // One report at a time.
            GatewayAct::Report(which) if self.0[which].answered.is_none() => {
                let one = &mut self.0[which];
                one.reported.get_or_insert(one.share.max(one.in_flight));
            }
            GatewayAct::Report(_) => {}
            GatewayAct::Commit(which) => self.commit(which),
            GatewayAct::Apply(which) => {
                let one = &mut self.0[which];
                one.share = one.answered.take().unwrap_or(one.share);
            }
            GatewayAct::Lose(which) => self.0[which].answered = None,
        }
    }

    fn send(&mut self, which: usize) {
        let one = &mut self.0[which];
        if one.waiting > 0 && one.in_flight < one.share {
            (one.waiting, one.in_flight) = (one.waiting - 1, one.in_flight + 1);
        }
    }
}

proptest! {
    #[test]
    fn all_together_never_have_more_in_flight_than_the_replica_runs(acts in prop::collection::vec(act(), 0..300)) {
        let mut world = SharedReplica::new();
        for act in &acts {
            world.act(act);
            let in_flight: u32 = world.0.iter().map(|one| one.in_flight).sum();
            let held: u32 = world.0.iter().map(|one| one.held).sum();
            prop_assert!(in_flight <= ROWS_MAX && held <= ROWS_MAX, "{act:?}: {:?}", world.0);
        }
        // And everybody's rows end: what is given is taken.
        let rows: u32 = world.0.iter().map(|one| one.waiting + one.in_flight).sum();
        for _ in 0..4 * rows + 12 {
            for which in 0..3 {
                for act in [GatewayAct::Report(which), GatewayAct::Commit(which), GatewayAct::Apply(which)] {
                    world.act(&act);
                }
                (0..ROWS_MAX).for_each(|_| world.send(which));
                world.act(&GatewayAct::End(which));
            }
        }
        prop_assert_eq!(world.0.iter().map(|one| one.waiting).sum::<u32>(), 0);
    }
}

fn rows(prefix: u32, numbers: std::ops::Range<u32>) -> Vec<WorkItem> {
    let prompt = |row: u32| [vec![prefix; 12], vec![1_000 + row; 8]].concat();
    numbers.map(|row| item(row, prompt(row), 4, u64::from(row))).collect()
}

/// Two replicas that run six and two rows, of which the first is shared.
fn fleet() -> Fleet {
    let replica =
        |id, rows_max| (ReplicaId(id), ReplicaConfig { rows_max, tokens_max: Some(TokenCount(1_000)) });
    let replicas = [replica(0, 6), replica(1, 2)];
    let mut fleet = Fleet::new(FleetConfig::default(), SchedulerConfig::default(), replicas).expect("valid");
    fleet.set_share(ReplicaId(0), Some(ReplicaShare { rows: 0, tokens: Some(TokenCount(0)) }));
    fleet
}

#[test]
fn a_share_bounds_what_is_sent_and_neither_refuses_nor_prices_a_row() {
    let mut fleet = fleet();
    fleet.submit(submission(1, 0, rows(1, 0..8))).expect("it fits the replica, if not the share");
    let sent = |fleet: &mut Fleet, at: u64| {
        let sent = fleet.dispatch(Time(at));
        fleet.check_invariants().expect("the accounts balance");
        sent.iter().filter(|one| one.replica == ReplicaId(0)).count()
    };
    assert_eq!(sent(&mut fleet, 1), 0);
    assert_eq!(fleet.held_back().map(|id| id.0), Some(1));
    let share = |rows, tokens: Option<u64>| Some(ReplicaShare { rows, tokens: tokens.map(TokenCount) });
    fleet.set_share(ReplicaId(0), share(2, None));
    assert_eq!(sent(&mut fleet, 2), 2);
    fleet.set_share(ReplicaId(0), share(6, Some(24 * 3)));
    assert_eq!(sent(&mut fleet, 3), 1, "three rows of 24 tokens");
    fleet.set_share(ReplicaId(0), share(1, None));
    assert_eq!(fleet.demand()[0].held, Load { rows: 3, tokens: TokenCount(72) }, "they run on");
    fleet.set_share(ReplicaId(0), None);
    assert_eq!(sent(&mut fleet, 4), 3);
    assert_eq!((fleet.held_back(), fleet.demand()), (None, Vec::new()));
}

#[test]
fn a_fleet_tells_what_it_has_for_a_replica_in_the_order_of_its_queue() {
    let mut fleet = fleet();
    fleet.submit(submission(1, 0, rows(1, 0..8))).expect("room");
    fleet.submit(submission(2, 10, rows(2, 0..4))).expect("room");
    let told = |demand: &[ReplicaDemand]| {
        let [one] = demand else { panic!("{demand:?}") };
        one.queue.iter().map(|part| (part.arrival.0, part.rows, part.row_tokens.0)).collect::<Vec<_>>()
    };
    // Six of eight rows of what can run are there: three of the short one's four, and of the other up to six.
    assert_eq!(told(&fleet.demand()), [(10, 3, 24), (0, 6, 24)]);
    fleet.set_share(ReplicaId(0), Some(ReplicaShare { rows: 1, tokens: None }));
    assert_eq!(fleet.dispatch(Time(20)).len(), 3, "one here, two there");
    assert_eq!(told(&fleet.demand()), [(10, 2, 24), (0, 6, 24)], "one in flight and one that waits");
    fleet.set_health(ReplicaId(0), Health::Draining);
    assert_eq!(told(&fleet.demand()), [(10, 1, 24)], "nothing new goes there");
}
