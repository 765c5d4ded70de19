//! Rows that no replica in service can hold: they wait aside for one that is down or has left, and others pass them.
//! And what a replica reports of its memory, where nothing is configured; and how what a replica can run at a time orders
//! relQueries.

mod common;

use std::collections::BTreeSet;

use base::{End, Millis, Nanos, RelQueryId, RowError, Time, TokenCount, WorkItem};
use common::{item, submission};
use scheduler::fleet::{
    Dispatch, Failure, Finish, Fleet, FleetConfig, Health, ReplicaConfig, ReplicaId, ReplicaShare, Why,
};
use scheduler::{Event, Policy, Refused, SchedulerConfig};

/// How long a row waits for a replica that could hold it.
const WAIT: Millis = Millis(1_000);
const LARGE: ReplicaId = ReplicaId(1);
const SMALL: ReplicaId = ReplicaId(2);

fn holds(tokens: u64) -> ReplicaConfig {
    ReplicaConfig { rows_max: 4, tokens_max: Some(TokenCount(tokens)) }
}

/// A large replica and a small one.
fn fleet() -> Fleet {
    let config = FleetConfig { prefix_block: 4, trouble_ms_max: WAIT, ..FleetConfig::default() };
    let replicas = [(LARGE, holds(100)), (SMALL, holds(30))];
    Fleet::new(config, SchedulerConfig::default(), replicas).expect("a valid configuration")
}

/// A row of so many prompt tokens, and four more of output: with 40 only the large replica holds it, with 10 both do.
fn row(number: u32, tokens: usize) -> WorkItem {
    item(number, vec![number + 1; tokens], 4, u64::from(number))
}

/// Where rows went, by relQuery and number.
fn sent(dispatched: &[Dispatch]) -> Vec<(u64, u32, ReplicaId)> {
    let mut sent: Vec<_> = dispatched.iter().map(|one| (one.relquery.0, one.item.row, one.replica)).collect();
    sent.sort_unstable();
    sent
}

fn check(fleet: &Fleet) {
    fleet.check_invariants().expect("the books balance");
}

#[test]
fn a_row_that_only_a_replica_that_has_left_could_hold_waits_for_one_like_it_and_others_pass() {
    let mut fleet = fleet();
    assert_eq!(fleet.remove_replica(LARGE), []);
    fleet.submit(submission(1, 0, vec![row(0, 40), row(1, 10)])).expect("one like it may come");
    fleet.submit(submission(2, 1, vec![row(0, 10)])).expect("room");
    assert_eq!(sent(&fleet.dispatch(Time(10))), [(1, 1, SMALL), (2, 0, SMALL)]);
    assert_eq!(fleet.drain_events(Time(10)), []);
    check(&fleet);
    let totals = fleet.stats().totals;
    assert_eq!((totals.rows_waiting, totals.relqueries_waiting), (1, 1));
    let other = ReplicaId(3);
    fleet.add_replica(other, holds(100)).expect("a new one");
    assert_eq!(sent(&fleet.dispatch(Time(20))), [(1, 0, other)]);
    let decision = fleet.last_decision();
    assert!(matches!(decision.last, Some((.., Why::Shared, _))), "it stood in its group again: {decision:?}");
    check(&fleet);
}

#[test]
fn a_row_waits_no_longer_in_all_than_it_may_for_a_replica_that_comes_and_goes_until_it_is_sent() {
    let mut fleet = fleet();
    let at = |ms: u64| Time(ms * 1_000_000);
    let none = Some(ReplicaShare { rows: 0, tokens: None });
    fleet.set_health(LARGE, Health::Down);
    fleet.submit(submission(1, 0, vec![row(0, 40)])).expect("room");
    assert_eq!((fleet.dispatch(at(0)), fleet.next_timer()), (vec![], Some(at(1_000))));
    fleet.set_share(LARGE, none);
    fleet.set_health(LARGE, Health::Up);
    assert_eq!(
        (fleet.dispatch(at(400)), fleet.next_timer()),
        (vec![], None),
        "it waits for room as others do"
    );
    check(&fleet);
    fleet.set_health(LARGE, Health::Down);
    assert_eq!((fleet.dispatch(at(5_000)), fleet.next_timer()), (vec![], Some(at(5_600))));
    fleet.set_share(LARGE, None);
    fleet.set_health(LARGE, Health::Up);
    assert_eq!(sent(&fleet.dispatch(at(5_500))), [(1, 0, LARGE)]);
    assert_eq!(fleet.set_health(LARGE, Health::Down).len(), 1);
    assert_eq!((fleet.dispatch(at(6_000)), fleet.next_timer()), (vec![], Some(at(7_000))), "anew");
    check(&fleet);
}

#[test]
fn a_row_that_is_thought_to_be_shorter_by_now_goes_to_a_replica_in_service_and_does_not_fail() {
    let mut fleet = fleet();
    let like = |number: u32| item(number, vec![number + 1; 10], 40, u64::from(number));
    fleet.submit(submission(1, 0, vec![like(0), like(1)])).expect("room");
    let flying = fleet.dispatch(Time(1));
    assert_eq!(sent(&flying), [(1, 0, LARGE), (1, 1, LARGE)]);
    fleet.set_health(LARGE, Health::Draining);
    fleet.submit(submission(2, 0, vec![like(0)])).expect("room");
    assert_eq!(fleet.dispatch(Time(2)), []);
    flying.iter().for_each(|one| finish(&mut fleet, one, None));
    let until = Time(2) + Nanos::from(WAIT);
    assert_eq!(sent(&fleet.dispatch(until)), [(2, 0, SMALL)]);
    assert_eq!(fleet.drain_events(until), []);
    check(&fleet);
}

#[test]
fn a_row_that_waits_for_a_replica_that_does_not_come_back_fails_in_the_end_and_later_ones_at_once() {
    let mut fleet = fleet();
    fleet.remove_replica(LARGE);
    fleet.submit(submission(1, 0, vec![row(0, 40)])).expect("one like it may come");
    assert_eq!(fleet.dispatch(Time(7)), []);
    assert_eq!(fleet.snapshot(9).relqueries.listed.len(), 1, "it is shown");
    let until = Time(7) + Nanos::from(WAIT);
    assert_eq!(fleet.next_timer(), Some(until));
    assert_eq!((fleet.dispatch(Time(until.0 - 1)), fleet.drain_events(Time(until.0 - 1))), (vec![], vec![]));
    assert_eq!(fleet.dispatch(until), []);
    let events = fleet.drain_events(until);
    let [Event::RowFailed { error: RowError::Failed(reason), .. }, Event::RelQueryDone { .. }] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert!(reason.contains("44 tokens") && reason.contains("within 1 s"), "{reason}");
    assert!(fleet.is_idle());
    check(&fleet);
    let refused = fleet.submit(submission(2, 0, vec![row(0, 40)]));
    assert_eq!(refused, Err(Refused::NeverFits { row: 0, tokens: TokenCount(44), limit: TokenCount(30) }));
}

#[test]
fn a_row_that_only_a_replica_out_of_service_could_hold_goes_once_it_is_up_and_others_before() {
    for health in [Health::Down, Health::Draining] {
        let mut fleet = fleet();
        fleet.set_health(LARGE, health);
        fleet.submit(submission(1, 0, vec![row(0, 40)])).expect("room");
        fleet.submit(submission(2, 1, (0..3).map(|number| row(number, 10)).collect())).expect("room");
        let first = fleet.dispatch(Time(10));
        assert!(first.iter().all(|one| (one.relquery.0, one.replica) == (2, SMALL)), "{health:?}: {first:?}");
        assert_eq!(first.len(), 2);
        check(&fleet);
        fleet.set_health(LARGE, Health::Up);
        let next = sent(&fleet.dispatch(Time(20)));
        assert!(matches!(next[..], [(1, 0, LARGE), (2, _, LARGE)]), "{health:?}: {next:?}");
        check(&fleet);
    }
}

#[test]
fn a_row_that_a_replica_had_when_it_left_waits_and_can_be_called_off() {
    let mut fleet = fleet();
    fleet.submit(submission(1, 0, vec![row(0, 40), row(1, 41)])).expect("room");
    let flying = fleet.dispatch(Time(1));
    assert_eq!(sent(&flying), [(1, 0, LARGE), (1, 1, LARGE)]);
    assert_eq!(fleet.remove_replica(LARGE).len(), 2);
    assert_eq!((fleet.dispatch(Time(2)), fleet.drain_events(Time(2))), (vec![], vec![]));
    check(&fleet);
    assert_eq!(fleet.cancel_row(RelQueryId(1), 1), None, "it runs nowhere");
    check(&fleet);
    fleet.add_replica(LARGE, holds(60)).expect("it is back");
    assert_eq!(sent(&fleet.dispatch(Time(3))), [(1, 0, LARGE)]);
    fleet.remove_replica(LARGE);
    assert_eq!(fleet.dispatch(Time(4)), []);
    assert_eq!(fleet.cancel(RelQueryId(1)), []);
    assert!(fleet.is_idle() && fleet.next_timer().is_none());
    check(&fleet);
}

#[test]
fn a_row_that_failed_on_the_only_replica_that_holds_it_is_sent_there_again_after_a_while() {
    let mut fleet = fleet();
    fleet.submit(submission(1, 0, vec![row(0, 40)])).expect("room");
    let flying = fleet.dispatch(Time(1)).remove(0);
    assert_eq!(fleet.failed(flying.request, Failure::Replica("no".into()), Time(2)), []);
    let again = fleet.next_timer().expect("it waits first, for no other replica holds it");
    assert_eq!(fleet.dispatch(Time(3)), []);
    assert_eq!(sent(&fleet.dispatch(again)), [(1, 0, LARGE)]);
}

#[test]
fn a_row_fails_at_once_where_the_replica_that_held_it_is_given_less_room() {
    let mut fleet = fleet();
    fleet.submit(submission(1, 0, vec![row(0, 40)])).expect("room");
    fleet.resize(LARGE, holds(30)).expect("valid");
    assert_eq!(fleet.dispatch(Time(1)), []);
    let events = fleet.drain_events(Time(1));
    assert!(matches!(&events[..], [Event::RowFailed { .. }, Event::RelQueryDone { .. }]), "{events:?}");
    check(&fleet);
}

/// A replica of which nothing is configured but its rows, with four rows of 10 tokens and 4 of output waiting.
fn unlimited(tokens_max: Option<u64>) -> Fleet {
    let replica = ReplicaConfig { rows_max: 4, tokens_max: tokens_max.map(TokenCount) };
    let config = FleetConfig { prefix_block: 4, ..FleetConfig::default() };
    let mut fleet =
        Fleet::new(config, SchedulerConfig::default(), [(LARGE, replica)]).expect("a valid configuration");
    fleet.submit(submission(1, 0, (0..4).map(|number| row(number, 10)).collect())).expect("room");
    fleet
}

#[test]
fn what_a_replica_reports_of_its_memory_bounds_its_rows_together_where_nothing_is_configured() {
    for (configured, reported, rows) in
        [(None, None, 4), (None, Some(29), 2), (None, Some(3), 1), (Some(100), Some(29), 4)]
    {
        let mut fleet = unlimited(configured);
        fleet.set_reported(LARGE, reported.map(TokenCount));
        assert_eq!(fleet.dispatch(Time(1)).len(), rows, "{configured:?} {reported:?}");
    }
    // Half of its rows may be used, and so half of its memory.
    for (reported, rows) in [(40, 2), (38, 1)] {
        let mut shared = unlimited(None);
        shared.set_reported(LARGE, Some(TokenCount(reported)));
        shared.set_share(LARGE, Some(ReplicaShare { rows: 2, tokens: None }));
        assert_eq!(shared.dispatch(Time(1)).len(), rows, "{reported}");
    }
}

#[test]
fn a_row_beyond_what_a_replica_reports_goes_alone() {
    let mut fleet = unlimited(None);
    fleet.set_reported(LARGE, Some(TokenCount(5)));
    let first = fleet.dispatch(Time(1)).remove(0);
    assert_eq!(fleet.dispatch(Time(2)), [], "beside it there is no room");
    assert_eq!(fleet.drain_events(Time(2)), []);
    finish(&mut fleet, &first, None);
    assert_eq!(fleet.dispatch(Time(4)).len(), 1);
}

#[test]
fn what_is_reported_counts_in_the_replicas_own_tokens_once_replies_have_told_them() {
    let mut fleet = unlimited(None);
    fleet.set_reported(LARGE, Some(TokenCount(19)));
    let first = fleet.dispatch(Time(1));
    assert_eq!(first.len(), 1, "a token there is one here at first");
    finish(&mut fleet, &first[0], Some(5));
    assert_eq!(fleet.dispatch(Time(4)).len(), 2, "ten here were five there, and four of output come to them");
    check(&fleet);
}

fn finish(fleet: &mut Fleet, sent: &Dispatch, prompt: Option<u64>) {
    finish_at(fleet, sent, prompt, Time(3));
}

fn finish_at(fleet: &mut Fleet, sent: &Dispatch, prompt: Option<u64>, now: Time) -> Vec<Event> {
    let finish = Finish {
        end: End::Stop,
        prompt: prompt.map(TokenCount),
        cached: TokenCount(0),
        output: TokenCount(4),
        text: String::new(),
        tokens: Vec::new(),
    };
    fleet.finished(sent.request, finish, now)
}

#[test]
fn what_rows_share_takes_of_a_replicas_memory_once_and_what_they_may_say_nothing_before_any_has_ended() {
    let replica = ReplicaConfig { rows_max: 9, tokens_max: None };
    let config = FleetConfig { prefix_block: 4, ..FleetConfig::default() };
    let mut fleet =
        Fleet::new(config, SchedulerConfig::default(), [(LARGE, replica)]).expect("a valid configuration");
    fleet.set_reported(LARGE, Some(TokenCount(60)));
    let alike = |number: u32| item(number, [vec![7; 40], vec![number; 2]].concat(), 1_000, u64::from(number));
    fleet.submit(submission(1, 0, (0..9).map(alike).collect())).expect("room");
    // The first takes 42, each other 2 more; one is let in while the whole of its prompt would fit, if it were new.
    assert_eq!(fleet.dispatch(Time(1)).len(), 1);
    fleet.set_reported(LARGE, Some(TokenCount(90)));
    assert_eq!(fleet.dispatch(Time(2)).len(), 4);
    check(&fleet);
}

/// Numbers below what is asked for, the same ones each time.
fn draws(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    }
}

/// Rows that end are open no more.
fn tell(open: &mut BTreeSet<(u64, u32)>, events: Vec<Event>) {
    for event in events {
        if let Event::RowDone { relquery, row, .. } | Event::RowFailed { relquery, row, .. } = event {
            assert!(open.remove(&(relquery.0, row)), "row {row} of {relquery} ends once");
        }
    }
}

#[test]
fn whatever_replicas_come_and_go_each_row_ends_once() {
    let (mut fleet, mut draw, mut now, mut is_there) = (fleet(), draws(7), Time(0), true);
    let (mut open, mut flying) = (BTreeSet::new(), Vec::<Dispatch>::new());
    for turn in 0..1_000 {
        now = now + Nanos(draw(400) * 1_000_000);
        match draw(6) {
            0 => {
                let health = [Health::Up, Health::Draining, Health::Down][draw(3) as usize];
                let lost = fleet.set_health(if draw(2) == 0 { LARGE } else { SMALL }, health);
                flying.retain(|one| !lost.contains(&one.request));
            }
            1 => {
                if is_there {
                    let lost = fleet.remove_replica(LARGE);
                    flying.retain(|one| !lost.contains(&one.request));
                } else {
                    fleet.add_replica(LARGE, holds(100)).expect("it has left");
                }
                is_there = !is_there;
            }
            2 => {
                let rows: Vec<WorkItem> =
                    (0..3).map(|number| row(number, 10 + 15 * draw(3) as usize)).collect();
                if fleet.submit(submission(turn, now.0, rows)).is_ok() {
                    open.extend((0..3).map(|number| (turn, number)));
                }
            }
            3 => {
                if let Some((relquery, number)) = open.pop_first()
                    && let Some((_, request)) = fleet.cancel_row(RelQueryId(relquery), number)
                {
                    flying.retain(|one| one.request != request);
                }
            }
            _ => {
                for one in flying.drain(..flying.len().min(3)) {
                    tell(&mut open, finish_at(&mut fleet, &one, None, now));
                }
            }
        }
        flying.extend(fleet.dispatch(now));
        tell(&mut open, fleet.drain_events(now));
        check(&fleet);
    }
    if !is_there {
        fleet.add_replica(LARGE, holds(100)).expect("it has left");
    }
    for id in [LARGE, SMALL] {
        assert_eq!(fleet.set_health(id, Health::Up), []);
    }
    for _ in 0..5_000 {
        now = now + Nanos(1_000_000);
        flying.extend(fleet.dispatch(now));
        tell(&mut open, fleet.drain_events(now));
        for one in std::mem::take(&mut flying) {
            tell(&mut open, finish_at(&mut fleet, &one, None, now));
        }
    }
    assert!(open.is_empty() && fleet.is_idle(), "{open:?}");
    check(&fleet);
}

/// A relQuery of 40 rows with 5 tokens of output, and one of 2 rows with 26; prompts of 50 tokens that share nothing.
const MANY: u64 = 1;
const FEW: u64 = 2;

/// Both in the order in which they go to this replica under policy `relserve`, with their priorities in ns.
fn order_of_both(replica: ReplicaConfig, step_tokens_max: u64) -> Vec<(u64, u64)> {
    let scheduler = SchedulerConfig {
        policy: Policy::RelServe,
        step_tokens_max: TokenCount(step_tokens_max),
        ..SchedulerConfig::default()
    };
    let mut fleet = Fleet::new(FleetConfig::default(), scheduler, [(LARGE, replica)]).expect("valid");
    for (id, rows, output_max) in [(MANY, 40, 5), (FEW, 2, 26)] {
        let rows = (0..rows).map(|row| item(row, vec![row; 50], output_max, u64::from(row))).collect();
        fleet.submit(submission(id, id, rows)).expect("room");
    }
    let waiting = fleet.snapshot(2).relqueries.listed;
    let order: Vec<(u64, u64)> = waiting.iter().map(|one| (one.id.0, one.priority)).collect();
    assert_eq!(fleet.dispatch(Time(10))[0].relquery.0, order[0].0, "the first that waits is sent first");
    check(&fleet);
    order
}

/// Eq. 10 with a_p = 0.1 ms, b_p = 10 ms, a_d = 0.45 ms, b_d = 25 ms; a row decodes one step less than it has tokens.
/// MANY decodes 40 * 4 = 160 sequences, FEW 2 * 25 = 50, whatever runs beside what.
///
/// | | prompts | prefills | steps | sequences | ms |
/// | --- | --- | --- | --- | --- | --- |
/// | MANY, all at once | 2000 a_p | 1 b_p | 4 b_d | 160 a_d | 200 + 10 + 100 + 72 = 382 |
/// | MANY, in ten groups of four | 2000 a_p | 10 b_p | 40 b_d | 160 a_d | 200 + 100 + 1000 + 72 = 1372 |
/// | MANY, at once, a row a prefill | 2000 a_p | 40 b_p | 4 b_d | 160 a_d | 200 + 400 + 100 + 72 = 772 |
/// | FEW, at once | 100 a_p | 1 b_p | 25 b_d | 50 a_d | 10 + 10 + 625 + 22.5 = 667.5 |
/// | FEW, at once, a row a prefill | 100 a_p | 2 b_p | 25 b_d | 50 a_d | 10 + 20 + 625 + 22.5 = 677.5 |
const ALL_AT_ONCE: [(u64, u64); 2] = [(MANY, 382_000_000), (FEW, 667_500_000)];
const FOUR_AT_ONCE: [(u64, u64); 2] = [(FEW, 667_500_000), (MANY, 1_372_000_000)];

#[test]
fn relqueries_change_places_with_the_rows_that_a_replica_runs_at_a_time() {
    let order = |rows_max| order_of_both(ReplicaConfig { rows_max, tokens_max: None }, 2_048);
    assert_eq!(order(64), ALL_AT_ONCE);
    assert_eq!(order(4), FOUR_AT_ONCE);
}

#[test]
fn relqueries_change_places_with_the_tokens_that_a_replica_holds() {
    let order = |tokens| {
        let replica = ReplicaConfig { rows_max: 64, tokens_max: Some(TokenCount(tokens)) };
        order_of_both(replica, 2_048)
    };
    assert_eq!(order(2_000), ALL_AT_ONCE);
    // Prompts of four rows.
    assert_eq!(order(200), FOUR_AT_ONCE);
}

#[test]
fn relqueries_change_places_with_the_prompt_tokens_of_a_step() {
    let replica = ReplicaConfig { rows_max: 64, tokens_max: None };
    assert_eq!(order_of_both(replica, 2_048), ALL_AT_ONCE);
    assert_eq!(order_of_both(replica, 50), [(FEW, 677_500_000), (MANY, 772_000_000)]);
}
