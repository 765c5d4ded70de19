//! When a fleet holds rows back although a replica has room: the transitional case, by the replica's fitted costs; and
//! what else these change.

mod common;

use base::{End, Nanos, RelQueryId, Time, TokenCount, WorkItem};
use common::{item, submission};
use scheduler::fleet::{Dispatch, Finish, Fleet, FleetConfig, ReplicaConfig, ReplicaId};
use scheduler::{CostModel, Policy, SchedulerConfig};

const REPLICA: ReplicaId = ReplicaId(0);
const OUTPUT: u64 = 8;

/// Its steps cost nearly nothing beside their rows: whoever joins others slows them down.
const BARE: CostModel = cost(1_000_000, 100_000, 4_000_000);
/// Its steps cost the same however many rows they have: whoever joins others rides free.
const HEAVY: CostModel = cost(10_000, 200_000_000, 10_000);

const fn cost(prefill_per_token: u64, decode_base: u64, decode_per_sequence: u64) -> CostModel {
    CostModel {
        prefill_per_token: Nanos(prefill_per_token),
        prefill_base: Nanos(0),
        decode_per_sequence: Nanos(decode_per_sequence),
        decode_base: Nanos(decode_base),
        mixed_hidden: 0,
        mixed_hidden_few: None,
    }
}

fn rows(kind: u32, count: u32) -> Vec<WorkItem> {
    let prompt = |row: u32| [vec![kind; 4], vec![1_000 + row; 16]].concat();
    (0..count).map(|row| item(row, prompt(row), OUTPUT, u64::from(row))).collect()
}

fn end(fleet: &mut Fleet, sent: &Dispatch, now: Time) {
    let finish = Finish {
        end: End::Stop,
        prompt: None,
        cached: TokenCount(0),
        output: TokenCount(OUTPUT),
        text: String::new(),
        tokens: Vec::new(),
    };
    fleet.finished(sent.request, finish, now);
}

/// One replica that has answered rows at the times that such costs give.
fn known(policy: Policy, cost: &CostModel) -> (Fleet, Time) {
    let replica = ReplicaConfig { rows_max: 16, tokens_max: None };
    let scheduler = SchedulerConfig { policy, refit: true, ..SchedulerConfig::default() };
    let mut fleet = Fleet::new(FleetConfig::default(), scheduler, [(REPLICA, replica)]).expect("valid");
    let mut now = Time(1_000);
    for round in 0..40_u32 {
        let count = 1 + round % 9;
        fleet.submit(submission(u64::from(round), now.0, rows(round, count))).expect("room");
        let sent = fleet.dispatch(now);
        assert_eq!(sent.len(), count as usize, "one relQuery alone is never held back");
        let prompts = sent.iter().map(|one| one.item.prompt.len() as u64).sum();
        let step = cost.decode_base.0 + cost.decode_per_sequence.0 * u64::from(count);
        now = now + Nanos(OUTPUT * step) + cost.prefill(TokenCount(prompts));
        sent.iter().for_each(|one| end(&mut fleet, one, now));
    }
    (fleet, now)
}

/// A relQuery of 4 rows runs, one of 9 rows has just come; what is sent of the latter.
fn joins(fleet: &mut Fleet, now: Time) -> (Vec<Dispatch>, Vec<Dispatch>) {
    fleet.submit(submission(100, now.0, rows(100, 4))).expect("room");
    let first = fleet.dispatch(now);
    assert_eq!(first.len(), 4);
    fleet.submit(submission(101, now.0, rows(101, 9))).expect("room");
    let second = fleet.dispatch(now + Nanos(1_000));
    fleet.check_invariants().expect("the books balance");
    (first, second)
}

#[test]
fn rows_wait_where_joining_costs_more_than_it_gains_and_go_when_those_before_them_end() {
    for policy in [Policy::MarginalWork, Policy::RelServe, Policy::RelServeDecode] {
        let (mut fleet, now) = known(policy, &BARE);
        let (first, second) = joins(&mut fleet, now);
        assert_eq!(second, [], "{policy}");
        assert_eq!(fleet.last_decision().held.map(|id| id.0), Some(101));
        let now = now + Nanos(1_000_000);
        first.iter().for_each(|one| end(&mut fleet, one, now));
        assert_eq!(fleet.dispatch(now).len(), 9, "{policy}");
        assert_eq!((fleet.last_decision().held, fleet.next_timer()), (None, None));
    }
}

#[test]
fn rows_join_where_they_ride_free_and_under_policies_that_send_what_there_is_room_for() {
    let joining = [(Policy::MarginalWork, HEAVY), (Policy::RelServe, HEAVY), (Policy::RelServePrefill, BARE)];
    let others = [Policy::Fcfs, Policy::Sarathi, Policy::StaticPriority].map(|policy| (policy, BARE));
    for (policy, cost) in joining.into_iter().chain(others) {
        let (mut fleet, now) = known(policy, &cost);
        assert_eq!(joins(&mut fleet, now).1.len(), 9, "{policy}");
    }
}

#[test]
fn a_relquery_with_less_left_goes_before_what_runs() {
    let (mut fleet, now) = known(Policy::MarginalWork, &BARE);
    joins(&mut fleet, now);
    fleet.submit(submission(102, now.0, rows(102, 1))).expect("room");
    assert_eq!(fleet.dispatch(now + Nanos(2_000)).len(), 1);
}

#[test]
fn rows_that_should_have_ended_hold_nobody_back() {
    let (mut fleet, now) = known(Policy::MarginalWork, &BARE);
    assert_eq!(joins(&mut fleet, now).1, []);
    let (mut timers, mut sent) = (0, 0);
    while sent < 9 {
        let at = fleet.next_timer().expect("rows that wait have their time");
        sent += fleet.dispatch(at).len();
        timers += 1;
        assert!(timers < 50, "time alone releases them");
    }
}

#[test]
fn nothing_is_held_back_from_an_engine_of_ours_or_a_replica_of_unknown_costs() {
    let (mut fleet, now) = known(Policy::MarginalWork, &BARE);
    assert!(fleet.knows_costs());
    fleet.set_plans_itself(REPLICA);
    assert_eq!(joins(&mut fleet, now).1.len(), 9);
    let replica = ReplicaConfig { rows_max: 16, tokens_max: None };
    let mut fresh =
        Fleet::new(FleetConfig::default(), SchedulerConfig::default(), [(REPLICA, replica)]).expect("valid");
    assert!(!fresh.knows_costs());
    assert_eq!(joins(&mut fresh, Time(1_000)).1.len(), 9);
}

#[test]
fn what_a_replica_costs_is_told_once_enough_of_its_rows_were_answered() {
    let replica = ReplicaConfig { rows_max: 16, tokens_max: None };
    let mut fleet =
        Fleet::new(FleetConfig::default(), SchedulerConfig::default(), [(REPLICA, replica)]).expect("valid");
    // 20 tokens of a prompt and 8 of output, alone.
    let time = |cost: &CostModel| {
        OUTPUT * (cost.decode_base.0 + cost.decode_per_sequence.0) + 20 * cost.prefill_per_token.0
    };
    let mut now = Time(1_000);
    for round in 0..16 {
        assert_eq!(fleet.stats().replicas[0].cost, None, "{round} rows say nothing");
        fleet.submit(submission(u64::from(round), now.0, rows(round, 1))).expect("room");
        let sent = fleet.dispatch(now).remove(0);
        now = now + Nanos(time(&BARE));
        end(&mut fleet, &sent, now);
    }
    let cost = fleet.stats().replicas[0].cost.expect("it is fitted");
    assert!(time(&cost).abs_diff(time(&BARE)) * 100 <= time(&BARE), "{cost:?}");
}

#[test]
fn what_waits_has_its_priority_anew_once_costs_have_changed() {
    let replica = ReplicaConfig { rows_max: 3, tokens_max: None };
    let scheduler = SchedulerConfig { policy: Policy::RelServe, refit: true, ..SchedulerConfig::default() };
    let mut fleet = Fleet::new(FleetConfig::default(), scheduler, [(REPLICA, replica)]).expect("valid");
    // A row of the large one runs all the time, and its others wait behind those of the small one.
    let (large, small) = (RelQueryId(1), RelQueryId(2));
    let mut rest = rows(1, 71);
    fleet.submit(submission(large.0, 0, vec![rest.remove(0)])).expect("room");
    let mut now = Time(1_000);
    assert_eq!(fleet.dispatch(now).len(), 1);
    assert_eq!(fleet.extend(large, rest), Ok(()));
    fleet.submit(submission(small.0, 0, rows(2, 60))).expect("room");
    let mut flying = std::collections::VecDeque::from(fleet.dispatch(now));
    let priority = |fleet: &Fleet| {
        let listed = fleet.snapshot(9).relqueries.listed;
        listed.iter().find(|one| one.id == large).map(|one| one.priority)
    };
    let (cost, before) = (fleet.cost(), priority(&fleet));
    for _ in 0..16 {
        assert_eq!((fleet.cost(), priority(&fleet)), (cost, before));
        now = now + Nanos(5_000_000);
        let sent = flying.pop_front().expect("one runs");
        assert_eq!(sent.relquery, small);
        end(&mut fleet, &sent, now);
        fleet.check_invariants().expect("the books balance");
        flying.extend(fleet.dispatch(now));
    }
    assert_ne!(fleet.cost(), cost);
    assert_ne!(priority(&fleet), before);
}

#[test]
fn what_a_row_has_put_out_unheard_is_all_it_may_until_costs_are_known_and_then_what_they_give() {
    let replica = ReplicaConfig { rows_max: 16, tokens_max: None };
    let mut fleet =
        Fleet::new(FleetConfig::default(), SchedulerConfig::default(), [(REPLICA, replica)]).expect("valid");
    let mut now = Time(1_000);
    for round in 0..16 {
        fleet.submit(submission(u64::from(round), now.0, rows(round, 1))).expect("room");
        let id = RelQueryId(u64::from(round));
        assert_eq!(fleet.estimated_output(id, 0, now), None, "it waits");
        let sent = fleet.dispatch(now).remove(0);
        assert_eq!(fleet.estimated_output(id, 0, now), Some(TokenCount(OUTPUT)));
        now = now + Nanos(100_000_000);
        end(&mut fleet, &sent, now);
    }
    let cost = fleet.stats().replicas[0].cost.expect("it is fitted");
    let (id, prompt) = (RelQueryId(100), 20 * cost.prefill_per_token.0);
    let step = cost.decode_base.0 + cost.decode_per_sequence.0;
    fleet.submit(submission(id.0, now.0, rows(100, 1))).expect("room");
    assert_eq!(fleet.dispatch(now).len(), 1);
    let estimated = |after: u64| fleet.estimated_output(id, 0, now + Nanos(after)).map(|output| output.0);
    assert_eq!((estimated(0), estimated(prompt + step / 2)), (Some(0), Some(0)), "its prompt comes first");
    assert_eq!(estimated(prompt + 3 * step + step / 2), Some(3));
    assert_eq!(estimated(prompt + 100 * step), Some(OUTPUT), "it may not have more");
    fleet.cancel(id);
    assert_eq!(fleet.estimated_output(id, 0, now), None);
}
