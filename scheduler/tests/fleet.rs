//! Promises of a fleet, on worlds small enough to follow by hand; `fleet_faults.rs` has those that hold
//! whatever happens.

mod common;

use base::{End, Millis, Nanos, RowError, ServiceClass, Submission, TenantId, Time, TokenCount, WorkItem};
use common::{item, submission};
use scheduler::fleet::{Dispatch, Failure, Finish, Fleet, FleetConfig, Health, ReplicaConfig, ReplicaId};
use scheduler::{Event, MarginalWorkConfig, PaperVariant, Policy, PriorityReading, Refused, SchedulerConfig};

const MINUTE: Nanos = Nanos(60_000_000_000);

fn config() -> FleetConfig {
    FleetConfig { prefix_block: 4, load_slack_tokens: TokenCount(100), ..FleetConfig::default() }
}

fn fleet(config: FleetConfig, replicas: u32, rows_max: u32) -> Fleet {
    ordered(config, SchedulerConfig::default(), (replicas, rows_max))
}

fn ordered(config: FleetConfig, scheduler: SchedulerConfig, (replicas, rows_max): (u32, u32)) -> Fleet {
    let replica = ReplicaConfig { rows_max, tokens_max: None };
    let replicas = (0..replicas).map(|id| (ReplicaId(id), replica));
    Fleet::new(config, scheduler, replicas).expect("a valid configuration")
}

/// One replica that runs a row at a time, under settings of policy `marginal-work`.
fn one_row_at_a_time(marginal_work: MarginalWorkConfig) -> Fleet {
    ordered(config(), SchedulerConfig { marginal_work, ..SchedulerConfig::default() }, (1, 1))
}

/// The same under another policy.
fn one_row_at_a_time_under(policy: Policy) -> Fleet {
    ordered(config(), SchedulerConfig { policy, ..SchedulerConfig::default() }, (1, 1))
}

/// Rows that begin with `prefix` and end with tokens of their own; 24 tokens with their output.
fn rows(prefix: u32, numbers: std::ops::Range<u32>) -> Vec<WorkItem> {
    let prompt = |row: u32| [vec![prefix; 12], vec![1_000 + row; 8]].concat();
    numbers.map(|row| item(row, prompt(row), 4, u64::from(row))).collect()
}

fn of_class(id: u64, class: ServiceClass, arrival: u64, items: Vec<WorkItem>) -> Submission {
    Submission { class, ..submission(id, arrival, items) }
}

fn done(fleet: &mut Fleet, sent: &Dispatch, now: Time) -> Vec<Event> {
    let finish = Finish {
        end: End::Stop,
        prompt: None,
        cached: TokenCount(8),
        output: TokenCount(2),
        text: "yes".to_owned(),
        tokens: Vec::new(),
    };
    fleet.finished(sent.request, finish, now)
}

/// Ends one row after the other until nothing is left; in what order relQueries had their rows sent.
fn run(fleet: &mut Fleet) -> Vec<u64> {
    let (mut order, mut flying, mut now) = (Vec::new(), std::collections::VecDeque::new(), Time(1_000));
    loop {
        for sent in fleet.dispatch(now) {
            order.push(sent.relquery.0);
            flying.push_back(sent);
        }
        fleet.check_invariants().expect("the books balance");
        let Some(sent) = flying.pop_front() else { return order };
        now = now + Nanos(1_000);
        done(fleet, &sent, now);
    }
}

#[test]
fn a_row_that_ends_tells_its_text_its_usage_and_its_relquery() {
    let mut fleet = fleet(config(), 1, 4);
    fleet.submit(submission(7, 100, rows(1, 0..1))).expect("room");
    let sent = fleet.dispatch(Time(300)).remove(0);
    assert_eq!((sent.replica, sent.relquery.0, sent.seen_tokens), (ReplicaId(0), 7, 0));
    assert_eq!(fleet.sent(sent.relquery), [0]);
    let events = done(&mut fleet, &sent, Time(1_000));
    assert!(fleet.sent(sent.relquery).is_empty());
    let [
        Event::Started { .. },
        Event::Text { text, .. },
        Event::RowDone { usage, .. },
        Event::RelQueryDone { periods, .. },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((text.as_str(), usage.prompt, usage.cached), ("yes", TokenCount(20), TokenCount(8)));
    assert_eq!((periods.waiting, periods.total()), (Nanos(200), Nanos(900)));
    assert!(fleet.is_idle());
    assert_eq!(done(&mut fleet, &sent, Time(1_001)), [], "it ends once");
}

#[test]
fn classes_come_before_work_and_work_before_arrival() {
    let mut fleet = fleet(config(), 1, 1);
    fleet.submit(of_class(1, ServiceClass::Bulk, 0, rows(1, 0..1))).expect("room");
    fleet.submit(of_class(2, ServiceClass::Dashboard, 0, rows(2, 0..1))).expect("room");
    fleet.submit(of_class(3, ServiceClass::Interactive, 0, rows(3, 0..3))).expect("room");
    fleet.submit(of_class(4, ServiceClass::Interactive, 5, rows(4, 0..1))).expect("room");
    assert_eq!(run(&mut fleet), [4, 3, 3, 3, 2, 1]);
}

#[test]
fn a_relquery_that_begins_is_told_with_the_one_that_it_leaves_waiting_however_many_run() {
    let mut fleet = fleet(config(), 1, 200);
    for id in 1..=150 {
        fleet.submit(submission(id, id, rows(id as u32, 0..1))).expect("room");
    }
    let sent = fleet.dispatch(Time(200));
    let starts = fleet.starts(&sent, Time(200));
    assert_eq!((starts.len(), starts.iter().filter(|one| one.rival.is_some()).count()), (150, 0));
    fleet.submit(submission(151, 201, rows(151, 0..60))).expect("room");
    fleet.submit(submission(152, 202, rows(152, 0..1))).expect("room");
    let sent = fleet.dispatch(Time(300));
    assert_eq!(sent.len(), 50);
    let starts = fleet.starts(&sent, Time(300));
    let told: Vec<_> = starts
        .iter()
        .map(|one| (one.first.id.0, one.rival.map(|rival| (rival.id.0, rival.rows.waiting))))
        .collect();
    assert_eq!(told, [(152, Some((151, 11))), (151, None)]);
    done(&mut fleet, &sent[0], Time(400));
    let sent = fleet.dispatch(Time(400));
    assert_eq!((sent.len(), fleet.starts(&sent, Time(400)).len()), (1, 0), "it had begun before");
}

/// The order in which a replica of one row serves relQueries of 3, 1 and 2 rows that came in this order.
fn order_under(policy: Policy) -> Vec<u64> {
    let mut fleet = one_row_at_a_time_under(policy);
    for (id, rows_of) in [(1, 0..3), (2, 0..1), (3, 0..2)] {
        fleet.submit(submission(id, id, rows(id as u32, rows_of))).expect("room");
    }
    run(&mut fleet)
}

#[test]
fn the_policy_orders_relqueries() {
    for policy in [Policy::Fcfs, Policy::Sarathi] {
        assert_eq!(order_under(policy), [1, 1, 1, 2, 3, 3], "{policy}");
    }
    for policy in Policy::WITH_VARIANTS.into_iter().filter(|policy| policy.is_prioritised()) {
        assert_eq!(order_under(policy), [2, 3, 3, 1, 1, 1], "{policy}");
    }
}

/// A relQuery of four rows of which three are done, and a fresh one of two rows: which is served.
fn first_after_three(fleet: &mut Fleet) -> u64 {
    fleet.submit(submission(1, 0, rows(1, 0..4))).expect("room");
    for at in 1..4 {
        let sent = fleet.dispatch(Time(at)).remove(0);
        done(fleet, &sent, Time(at));
    }
    fleet.submit(submission(9, 10, rows(2, 0..2))).expect("room");
    fleet.dispatch(Time(11)).remove(0).relquery.0
}

#[test]
fn what_is_left_counts_under_a_dynamic_priority_and_what_was_submitted_under_a_static_one() {
    for policy in [Policy::RelServe, Policy::RelServePrefill, Policy::RelServeDecode, Policy::MarginalWork] {
        assert_eq!(first_after_three(&mut one_row_at_a_time_under(policy)), 1, "{policy}");
    }
    for policy in [Policy::StaticPriority, Policy::StaticPriorityWeak] {
        assert_eq!(first_after_three(&mut one_row_at_a_time_under(policy)), 9, "{policy}");
    }
    let paper_variant = PaperVariant { priorities: PriorityReading::Frozen, ..PaperVariant::default() };
    let frozen = SchedulerConfig { policy: Policy::RelServe, paper_variant, ..SchedulerConfig::default() };
    assert_eq!(first_after_three(&mut ordered(config(), frozen, (1, 1))), 9, "computed on arrival alone");
}

#[test]
fn a_published_policy_knows_no_class_and_lets_what_starves_go_first() {
    let scheduler = SchedulerConfig {
        policy: Policy::RelServe,
        unit_waiting_ms_max: Some(Millis(1_000)),
        ..SchedulerConfig::default()
    };
    let mut fleet = ordered(config(), scheduler, (1, 1));
    fleet.submit(of_class(1, ServiceClass::Interactive, 0, rows(1, 0..3))).expect("room");
    fleet.submit(of_class(2, ServiceClass::Bulk, 0, rows(2, 0..1))).expect("room");
    let second = fleet.dispatch(Time(1)).remove(0);
    assert_eq!(second.relquery.0, 2, "one row is less than three, whatever their class");
    // A second for each of its three rows: from then on it goes first.
    assert_eq!(fleet.next_timer(), Some(Time(0) + Nanos(1_000_000_000)));
    let late = Time(0) + Nanos(3_000_000_001);
    fleet.submit(of_class(3, ServiceClass::Interactive, late.0, rows(3, 0..1))).expect("room");
    done(&mut fleet, &second, late);
    assert_eq!(fleet.dispatch(late).remove(0).relquery.0, 1);
}

#[test]
fn prompts_that_a_replica_was_sent_before_count_as_computed() {
    // Both have two rows; the second's beginning was sent before, and it is shorter by that much (Eq. 11).
    let mut fleet = one_row_at_a_time_under(Policy::RelServe);
    fleet.submit(submission(1, 0, rows(7, 0..1))).expect("room");
    let sent = fleet.dispatch(Time(1)).remove(0);
    fleet.submit(submission(2, 2, rows(5, 0..2))).expect("room");
    fleet.submit(submission(3, 3, rows(7, 5..7))).expect("room");
    done(&mut fleet, &sent, Time(4));
    assert_eq!(fleet.dispatch(Time(5)).remove(0).relquery.0, 3);
}

#[test]
fn what_replies_say_that_caches_have_not_is_to_be_computed() {
    // Rows of 20 tokens, 12 of them sent before, beside two of 16 that share 12 and were not.
    let first_of = |cached: u64| {
        let mut fleet = one_row_at_a_time_under(Policy::RelServe);
        fleet.submit(submission(1, 0, rows(7, 0..40))).expect("room");
        let mut now = Time(1);
        for row in 0..40 {
            let sent = fleet.dispatch(now).remove(0);
            if row == 39 {
                let short = |row: u32| item(row, [vec![5; 12], vec![2_000 + row; 4]].concat(), 4, 0);
                fleet.submit(submission(2, 2, vec![short(0), short(1)])).expect("room");
                fleet.submit(submission(3, 3, rows(7, 50..52))).expect("room");
            }
            now = now + Nanos(1_000_000);
            let (cached, output) = (TokenCount(cached), TokenCount(2));
            let (end, text, tokens) = (End::Stop, String::new(), Vec::new());
            fleet.finished(sent.request, Finish { end, prompt: None, cached, output, text, tokens }, now);
        }
        fleet.dispatch(now).remove(0).relquery.0
    };
    assert_eq!(first_of(12), 3, "as it was sent");
    assert_eq!(first_of(1), 2, "caches are small");
    assert_eq!(first_of(0), 3, "nothing is told of caches");
}

#[test]
fn a_rank_says_the_same_order_to_the_replica() {
    let mut fleet = fleet(config(), 1, 9);
    fleet.submit(of_class(1, ServiceClass::Bulk, 0, rows(1, 0..1))).expect("room");
    fleet.submit(of_class(2, ServiceClass::Interactive, 0, rows(2, 0..2))).expect("room");
    let sent = fleet.dispatch(Time(1));
    assert_eq!(sent.len(), 3);
    assert!(sent[0].rank < sent[2].rank && sent[1].rank < sent[2].rank);
    assert_eq!(sent[2].clone().into_submission().class, ServiceClass::Bulk);
}

#[test]
fn what_waits_too_long_counts_as_interactive() {
    let long = MarginalWorkConfig { bulk_wait_ms_max: Millis(60_000), ..MarginalWorkConfig::default() };
    let mut fleet = one_row_at_a_time(long);
    fleet.submit(of_class(1, ServiceClass::Bulk, 0, rows(1, 0..1))).expect("room");
    fleet.submit(of_class(2, ServiceClass::Interactive, 1, rows(2, 0..40))).expect("room");
    let first = fleet.dispatch(Time(10)).remove(0);
    assert_eq!(first.relquery.0, 2);
    done(&mut fleet, &first, Time(20));
    assert_eq!(fleet.next_timer(), Some(Time(0) + MINUTE));
    let second = fleet.dispatch(Time(0) + MINUTE).remove(0);
    assert_eq!((second.relquery.0, second.class), (1, ServiceClass::Bulk), "one row is less than forty");
}

#[test]
fn a_stream_of_small_relqueries_does_not_starve_a_large_one() {
    let started = |policy| {
        let fast = MarginalWorkConfig { age_half_ms: Some(Millis(1_000)), ..MarginalWorkConfig::default() };
        let scheduler = SchedulerConfig { policy, marginal_work: fast, ..SchedulerConfig::default() };
        // Without the bound on the longest latency, which would bring it forward sooner.
        let mut fleet = ordered(FleetConfig { tail_permille_max: 0, ..config() }, scheduler, (1, 1));
        fleet.submit(submission(1, 0, rows(1, 0..50))).expect("room");
        let second = 1_000_000_000;
        let mut started = None;
        for id in 2..60 {
            let now = Time(id * second);
            fleet.submit(submission(id, now.0, rows(2, 0..1))).expect("room");
            let sent = fleet.dispatch(now).remove(0);
            if sent.relquery.0 == 1 {
                started.get_or_insert(id);
            }
            done(&mut fleet, &sent, now);
        }
        started
    };
    // It is fifty times the work: overtaken for log2(50) half-lives, some six seconds, or three times as long.
    let usual = started(Policy::MarginalWork);
    assert!(usual.is_some_and(|at| at < 10), "{usual:?}");
    let slow = started(Policy::MarginalWorkSlowAging);
    assert!(slow > usual && slow.is_some_and(|at| at < 30), "{slow:?}, {usual:?}");
}

#[test]
fn a_tenant_that_floods_goes_last_beyond_its_lag() {
    // A row alone takes about 100 ms.
    let lag = MarginalWorkConfig { tenant_lag_ms_max: Millis(500), ..MarginalWorkConfig::default() };
    let mut fleet = one_row_at_a_time(lag);
    for id in 0..40 {
        fleet.submit(submission(id, 0, rows(1, 0..1))).expect("room");
    }
    fleet.submit(Submission { tenant: TenantId(2), ..submission(99, 1, rows(2, 0..3)) }).expect("room");
    let order = run(&mut fleet);
    let last = order.iter().rposition(|id| *id == 99).expect("it ran");
    assert!(last < 30, "three rows of the other tenant wait behind {last} of the flood");
}

#[test]
fn rows_of_one_prefix_stay_together_and_prefixes_apart() {
    let mut fleet = fleet(config(), 4, 8);
    let mut all = Vec::new();
    for prefix in 0..4 {
        all.extend(rows(prefix, prefix * 100..prefix * 100 + 4));
    }
    fleet.submit(submission(1, 0, all)).expect("room");
    let mut homes = std::collections::BTreeMap::<u32, Vec<u32>>::new();
    for sent in fleet.dispatch(Time(1)) {
        homes.entry(sent.item.row / 100).or_default().push(sent.replica.0);
    }
    assert!(
        homes.values().all(|home| home.len() == 4 && home.iter().all(|one| one == &home[0])),
        "{homes:?}"
    );
    assert_eq!(homes.values().map(|home| home[0]).collect::<std::collections::BTreeSet<_>>().len(), 4);
}

#[test]
fn a_lone_prefix_does_not_pile_on_one_replica() {
    let mut fleet = fleet(config(), 4, 50);
    fleet.submit(submission(1, 0, rows(1, 0..100))).expect("room");
    assert_eq!(fleet.dispatch(Time(1)).len(), 100);
    let loads: Vec<u64> = fleet.stats().replicas.iter().map(|replica| replica.tokens.0).collect();
    let (least, most) = (loads.iter().min().expect("four"), loads.iter().max().expect("four"));
    assert!(most - least <= 100 + 24, "slack and a row: {loads:?}");
}

#[test]
fn a_bulk_replica_takes_what_it_has_seen_until_the_first_is_overdue() {
    let config =
        FleetConfig { bulk_overtaken_ms_max: Millis(60_000), load_slack_tokens: TokenCount(0), ..config() };
    let mut fleet = fleet(config, 2, 1);
    let bulk = |id, prefix| of_class(id, ServiceClass::Bulk, id, rows(prefix, 0..1));
    for (id, prefix) in [(1, 10), (2, 20)] {
        fleet.submit(bulk(id, prefix)).expect("room");
    }
    let sent = fleet.dispatch(Time(5));
    for (id, prefix) in [(3, 10), (4, 20), (5, 10), (6, 20)] {
        fleet.submit(bulk(id, prefix)).expect("room");
    }
    done(&mut fleet, &sent[1], Time(10));
    let next = fleet.dispatch(Time(10)).remove(0);
    assert_eq!(
        (next.relquery.0, next.seen_tokens),
        (4, 20),
        "the replica of prefix 20 passes relQuery 3 over"
    );
    let late = Time(0) + MINUTE + MINUTE;
    done(&mut fleet, &next, late);
    assert_eq!(fleet.dispatch(late).remove(0).relquery.0, 3, "now it is overdue");
}

#[test]
fn a_replica_keeps_all_its_prefixes_in_use() {
    let mut fleet = fleet(config(), 1, 4);
    let bulk = |id, prefix, count| of_class(id, ServiceClass::Bulk, 0, rows(prefix, 0..count));
    for (id, prefix) in [(1, 10), (2, 20)] {
        fleet.submit(bulk(id, prefix, 2)).expect("room");
    }
    let mut flying: std::collections::VecDeque<Dispatch> = fleet.dispatch(Time(1)).into();
    for (id, prefix) in [(3, 10), (4, 20)] {
        fleet.submit(bulk(id, prefix, 20)).expect("room");
    }
    for now in 2..30 {
        let oldest = flying.pop_front().expect("four run");
        done(&mut fleet, &oldest, Time(now));
        flying.extend(fleet.dispatch(Time(now)));
        for prefix in [10, 20] {
            let in_use = flying.iter().any(|sent| sent.item.prompt[0].0 == prefix);
            assert!(in_use, "at {now} prefix {prefix} may be evicted");
        }
    }
}

/// Lets a relQuery's only row fail on each replica that it is sent to, until it fails itself: where and when
/// it was sent, and what was said in the end. `beside`: each replica answers another row meanwhile.
fn fail_everywhere(fleet: &mut Fleet, beside: bool) -> (Vec<(u32, u64)>, String) {
    let (mut sent_at, mut now, mut others) = (Vec::new(), Time(1), 100);
    loop {
        let sent = fleet.dispatch(now).remove(0);
        sent_at.push((sent.replica.0, now.0 / 1_000_000));
        if beside {
            others += 1;
            fleet.submit(submission(others, now.0, rows(1, 0..1))).expect("room");
            let other = fleet.dispatch(now).remove(0);
            assert_eq!(other.replica, sent.replica, "it has seen the prefix");
            done(fleet, &other, now);
        }
        let events = fleet.failed(sent.request, Failure::Replica("no answer".into()), now);
        if let [Event::RowFailed { error, .. }, Event::RelQueryDone { .. }] = &events[..] {
            return (sent_at, error.to_string());
        }
        assert_eq!(events, [], "it waits");
        now = fleet.next_timer().filter(|at| *at > now).unwrap_or(now);
    }
}

#[test]
fn a_row_fails_after_tries_under_which_its_replicas_answered_others() {
    let config = FleetConfig { tries_max: 4, retry_ms: Millis(10), retry_ms_max: Millis(25), ..config() };
    let mut fleet = fleet(config, 2, 4);
    fleet.submit(submission(1, 0, rows(1, 0..1))).expect("room");
    let (sent, problem) = fail_everywhere(&mut fleet, true);
    assert_eq!(sent, [(0, 0), (1, 0), (0, 20), (1, 45)], "at once to the other, then after longer waits");
    assert_eq!(problem, "4 tries failed, the last on replica 1: no answer");
    assert!(fleet.is_idle());
    assert!(fleet.stats().replicas.iter().all(|replica| replica.rows == 0 && replica.tokens.0 == 0));
}

#[test]
fn a_replica_that_answers_nobody_speaks_against_no_row_for_minutes() {
    let config = FleetConfig { tries_max: 4, trouble_ms_max: Millis(30_000), ..config() };
    let mut fleet = fleet(config, 1, 4);
    fleet.submit(submission(1, 0, rows(1, 0..1))).expect("room");
    let (sent, problem) = fail_everywhere(&mut fleet, false);
    let times: Vec<u64> = sent.into_iter().map(|(_, at)| at).collect();
    assert_eq!(times, [0, 250, 750, 1_750, 3_750, 7_750, 15_750, 25_750, 35_750]);
    assert_eq!(problem, "9 tries failed in 36 s, the last on replica 0: no answer");
    assert!(fleet.is_idle());
}

#[test]
fn others_go_on_while_a_row_waits_for_its_time() {
    let mut fleet = fleet(config(), 1, 1);
    fleet.submit(submission(1, 0, rows(1, 0..1))).expect("room");
    fleet.submit(submission(2, 0, rows(2, 0..9))).expect("room");
    let sent = fleet.dispatch(Time(1)).remove(0);
    assert_eq!(sent.relquery.0, 1);
    assert_eq!(fleet.failed(sent.request, Failure::Replica("no answer".into()), Time(1)), []);
    let sent = fleet.dispatch(Time(2)).remove(0);
    assert_eq!(sent.relquery.0, 2, "the first row waits, and the replica does not");
    done(&mut fleet, &sent, Time(3));
    let again = fleet.next_timer().expect("the first row waits");
    assert_eq!(fleet.dispatch(again).remove(0).relquery.0, 1);
    fleet.check_invariants().expect("the books balance");
}

#[test]
fn a_replica_that_did_not_begin_costs_a_row_no_try_and_is_avoided_all_the_same() {
    let mut fleet = fleet(FleetConfig { tries_max: 2, ..config() }, 2, 4);
    fleet.submit(submission(1, 0, rows(1, 0..1))).expect("room");
    for round in 0..6 {
        let sent = fleet.dispatch(Time(1)).remove(0);
        assert_eq!(sent.replica.0, round % 2);
        let events = fleet.failed(sent.request, Failure::Untried("busy".into()), Time(2));
        assert_eq!(events, [], "it waits");
    }
    let sent = fleet.dispatch(Time(1)).remove(0);
    let unfit = || Failure::Unfit("not a number".into());
    assert_eq!(fleet.failed(sent.request, unfit(), Time(2)), [], "the first try");
    let sent = fleet.dispatch(Time(1)).remove(0);
    let events = fleet.failed(sent.request, unfit(), Time(2));
    assert!(matches!(events[0], Event::RowFailed { .. }), "{events:?}");
    assert!(fleet.is_idle());
}

#[test]
fn a_row_that_fails_by_itself_leaves_its_neighbours_alone() {
    let mut fleet = fleet(config(), 1, 4);
    fleet.submit(submission(1, 0, rows(1, 0..2))).expect("room");
    let sent = fleet.dispatch(Time(1));
    let events = fleet.failed(sent[0].request, Failure::Row(RowError::NotANumber), Time(2));
    assert!(matches!(&events[..], [Event::RowFailed { error: RowError::NotANumber, .. }]));
    assert!(matches!(done(&mut fleet, &sent[1], Time(3))[..], [.., Event::RelQueryDone { .. }]));
}

#[test]
fn an_answer_that_has_begun_is_not_begun_again() {
    let mut fleet = fleet(config(), 2, 4);
    fleet.submit(submission(1, 0, rows(1, 0..2))).expect("room");
    let sent = fleet.dispatch(Time(1));
    let begun = fleet.text(sent[0].request, "ye".into(), Time(2));
    assert!(matches!(begun[..], [Event::Started { .. }, Event::Text { .. }]));
    assert!(matches!(fleet.text(sent[0].request, "s".into(), Time(2))[..], [Event::Text { .. }]));
    let lost = fleet.set_health(sent[0].replica, Health::Down);
    assert_eq!(lost, [sent[0].request, sent[1].request]);
    assert!(matches!(fleet.drain_events(Time(3))[..], [Event::RowFailed { row: 0, .. }]));
    let moved = fleet.dispatch(Time(3));
    assert_eq!(moved.len(), 1);
    assert_ne!((moved[0].replica, moved[0].request), (sent[1].replica, sent[1].request));
}

#[test]
fn a_draining_replica_finishes_and_takes_nothing_new() {
    let mut fleet = fleet(config(), 2, 1);
    fleet.submit(submission(1, 0, rows(1, 0..4))).expect("room");
    let sent = fleet.dispatch(Time(1));
    assert_eq!(fleet.set_health(ReplicaId(0), Health::Draining), []);
    for one in &sent {
        done(&mut fleet, one, Time(2));
    }
    let next: Vec<u32> = fleet.dispatch(Time(3)).iter().map(|sent| sent.replica.0).collect();
    assert_eq!(next, [1]);
    assert_eq!(fleet.set_health(ReplicaId(0), Health::Up), []);
    assert_eq!(fleet.dispatch(Time(4)).len(), 1);
}

#[test]
fn a_cancelled_relquery_frees_its_place_and_names_what_to_abort() {
    let mut fleet = fleet(config(), 1, 2);
    fleet.submit(submission(1, 0, rows(1, 0..4))).expect("room");
    let sent = fleet.dispatch(Time(1));
    let used = |row, output| {
        let (replica, usage) = fleet.row_usage(1.into_id(), row, TokenCount(output))?;
        assert_eq!((replica, usage.prompt), (ReplicaId(0), usage.computed));
        Some((usage.prompt.0, usage.output.0))
    };
    assert_eq!(used(3, 2), None, "it runs nowhere");
    assert_eq!(
        (used(0, 2), used(0, 9)),
        (Some((20, 2)), Some((20, 4))),
        "its output is no longer than it may be"
    );
    assert_eq!(fleet.cancel_row(1.into_id(), 3), None, "it waited");
    assert_eq!(fleet.cancel_row(1.into_id(), 0), Some((ReplicaId(0), sent[0].request)));
    assert_eq!(fleet.cancel(1.into_id()), [(ReplicaId(0), sent[1].request)]);
    assert_eq!((fleet.drain_events(Time(2)), fleet.is_idle()), (Vec::new(), true));
    fleet.submit(submission(2, 0, rows(1, 0..1))).expect("room");
    fleet.cancel_row(2.into_id(), 0);
    assert!(matches!(fleet.drain_events(Time(3))[..], [Event::RelQueryDone { .. }]));
    assert_eq!(done(&mut fleet, &sent[1], Time(4)), []);
    fleet.check_invariants().expect("the books balance");
}

#[test]
fn rows_join_an_open_relquery_and_bad_ones_are_refused() {
    let limited = FleetConfig { rows_max: 5, relqueries_max: 1, ..config() };
    let mut fleet = fleet(limited, 1, 1);
    assert_eq!(fleet.extend(1.into_id(), rows(1, 0..1)), Err(Refused::Unknown(1.into_id())));
    fleet.submit(submission(1, 0, rows(1, 0..2))).expect("room");
    assert_eq!(fleet.submit(submission(1, 0, rows(1, 0..2))), Err(Refused::Duplicate(1.into_id())));
    assert!(matches!(fleet.submit(submission(2, 0, rows(1, 0..1))), Err(Refused::TooManyRelQueries { .. })));
    assert_eq!(fleet.extend(1.into_id(), rows(1, 1..2)), Err(Refused::DuplicateRow { row: 1 }));
    assert_eq!(fleet.extend(1.into_id(), Vec::new()), Err(Refused::Empty));
    assert_eq!(fleet.extend(1.into_id(), rows(1, 2..9)), Err(Refused::QueueFull { rows: 2, limit: 5 }));
    assert_eq!(fleet.extend(1.into_id(), rows(1, 2..5)), Ok(()));
    assert_eq!(run(&mut fleet), [1; 5]);
}

#[test]
fn a_row_too_large_for_every_replica_is_refused_or_fails_when_the_last_large_one_stays_away() {
    let mut fleet = fleet(config(), 0, 1);
    let replica = |tokens| ReplicaConfig { rows_max: 4, tokens_max: Some(TokenCount(tokens)) };
    for (id, tokens) in [(1, 30), (2, 20)] {
        fleet.add_replica(ReplicaId(id), replica(tokens)).expect("a new one");
    }
    let large = item(0, vec![1; 40], 4, 1);
    let refused = fleet.submit(submission(1, 0, vec![large]));
    assert_eq!(refused, Err(Refused::NeverFits { row: 0, tokens: TokenCount(44), limit: TokenCount(30) }));
    fleet.submit(submission(2, 0, rows(1, 0..2))).expect("room");
    let sent = fleet.dispatch(Time(1));
    assert_eq!(sent.iter().map(|sent| sent.replica.0).collect::<Vec<_>>(), [1], "one fits, and only there");
    assert_eq!(fleet.remove_replica(ReplicaId(1)), [sent[0].request]);
    assert!(fleet.dispatch(Time(2)).is_empty());
    assert_eq!(fleet.drain_events(Time(2)), [], "one like it may come");
    let later = Time(2) + Nanos::from(config().trouble_ms_max);
    assert!(fleet.dispatch(later).is_empty());
    let events = fleet.drain_events(later);
    assert_eq!(events.iter().filter(|event| matches!(event, Event::RowFailed { .. })).count(), 2);
    assert!(fleet.is_idle());
}

#[test]
fn a_row_too_large_for_every_replica_fails_alone() {
    let mut fleet = fleet(config(), 0, 1);
    let replica = ReplicaConfig { rows_max: 4, tokens_max: Some(TokenCount(30)) };
    fleet.add_replica(ReplicaId(1), replica).expect("a new one");
    let of = |row: u32, tokens: usize| item(row, vec![1; tokens], 4, u64::from(row));
    fleet.submit(submission(1, 0, vec![of(0, 20), of(1, 40), of(2, 10)])).expect("two of three fit");
    fleet.extend(1.into_id(), vec![of(3, 27), of(4, 26)]).expect("one of two does");
    let events = fleet.drain_events(Time(1));
    let failed = events.iter().map(|event| match event {
        Event::RowFailed { row, error: RowError::Refused(reason), .. } if reason.contains("30") => *row,
        other => panic!("{other:?}"),
    });
    assert_eq!(failed.collect::<Vec<_>>(), [1, 3]);
    assert_eq!(run(&mut fleet), [1; 3], "the others run");
    assert!(fleet.is_idle());
}

/// A relQuery's id from a number, as the tests write it.
trait IntoId {
    fn into_id(self) -> base::RelQueryId;
}

impl IntoId for u64 {
    fn into_id(self) -> base::RelQueryId {
        base::RelQueryId(self)
    }
}
