//! What policy `marginal-work` promises beside a short mean: classes, deadlines, shares and an end to
//! waiting.

mod common;

use std::collections::BTreeMap;

use base::{
    BatchKind, Millis, Nanos, RelQueryId, ServiceClass, StepOutcome, Submission, TenantId, Time, TokenCount,
};
use common::{Memory, item, submission};
use scheduler::{CostModel, Event, MarginalWorkConfig, Policy, Reason, Scheduler, SchedulerConfig, Steps};

/// A scheduler with a memory behind it, in steps of one ms.
struct Desk {
    scheduler: Scheduler,
    memory: Memory,
    now: u64,
    done: BTreeMap<RelQueryId, u64>,
}

const STEP: u64 = 1_000_000;

impl Desk {
    fn new(marginal_work: MarginalWorkConfig, sequences_max: u32) -> Self {
        Self::under(Policy::MarginalWork, marginal_work, sequences_max)
    }

    fn under(policy: Policy, marginal_work: MarginalWorkConfig, sequences_max: u32) -> Self {
        let config = SchedulerConfig {
            policy,
            marginal_work,
            sequences_max,
            kv_blocks: 400,
            block_tokens: 4,
            refit: false,
            ..SchedulerConfig::default()
        };
        let scheduler = Scheduler::new(config, CostModel::default()).expect("a valid configuration");
        Self { scheduler, memory: Memory::new(4), now: 0, done: BTreeMap::new() }
    }

    /// Submits `rows` rows of ten tokens each; `change` sets what is special.
    fn submit(&mut self, id: u64, rows: u32, change: impl FnOnce(Submission) -> Submission) {
        let prompt = |row: u32| (0..10).map(|i| (id as u32 * 1_000 + row * 10 + i) % 9_973).collect();
        let items: Vec<_> =
            (0..rows).map(|row| item(row, prompt(row), 8, id * 1_000 + u64::from(row))).collect();
        self.memory.know(&items);
        self.scheduler.submit(change(submission(id, self.now, items))).expect("room");
    }

    fn step(&mut self) -> bool {
        let Some(plan) = self.scheduler.plan(Time(self.now)) else { return false };
        self.now += STEP;
        // Tenants are charged what a step took: it must be what the desk's time went on by.
        let outcome = StepOutcome { elapsed: Nanos(STEP), ..self.memory.step(&plan) };
        let events = self.scheduler.apply(&outcome, Time(self.now));
        for event in events {
            if let Event::RelQueryDone { relquery, .. } = event {
                self.done.insert(relquery, self.now);
            }
        }
        self.scheduler.check_invariants().expect("the books balance");
        true
    }

    fn finish(&mut self) {
        while self.step() {}
        assert!(self.scheduler.is_idle());
    }

    fn end(&self, id: u64) -> u64 {
        self.done[&RelQueryId(id)]
    }
}

/// Work alone decides: no share, no age.
fn bare() -> MarginalWorkConfig {
    MarginalWorkConfig {
        age_half_ms: None,
        tenant_lag_ms_max: Millis(u64::MAX / 1_000_000),
        ..MarginalWorkConfig::default()
    }
}

#[test]
fn a_step_decodes_what_runs_and_prefills_what_waits() {
    let mut desk = Desk::new(bare(), 16);
    desk.submit(1, 4, |one| one);
    desk.step();
    desk.submit(2, 4, |one| one);
    let plan = desk.scheduler.plan(Time(desk.now)).expect("work");
    assert_eq!(plan.decode_sequences() + plan.slots.iter().filter(|slot| slot.is_prefill).count() as u64, 8);
}

#[test]
fn an_engine_on_which_mixing_costs_gets_two_phases_and_cut_prompts_are_completed() {
    let cost = CostModel { mixed_hidden: -20_000_000, ..CostModel::default() };
    let config = SchedulerConfig { policy: Policy::MarginalWork, refit: false, ..SchedulerConfig::default() };
    for steps in [Steps::Adaptive, Steps::TwoPhase] {
        let marginal_work = MarginalWorkConfig { steps, ..MarginalWorkConfig::default() };
        let cost = if steps == Steps::Adaptive { cost } else { CostModel::default() };
        let mut scheduler = Scheduler::new(SchedulerConfig { marginal_work, ..config.clone() }, cost)
            .expect("a valid configuration");
        let mut memory = Memory::new(16);
        let items: Vec<_> = (0..90).map(|row| item(row, vec![row; 50], 6, u64::from(row))).collect();
        memory.know(&items);
        scheduler.submit(submission(1, 0, items)).expect("room");
        let mut now = 0;
        while let Some(plan) = scheduler.plan(Time(now)) {
            assert_ne!(plan.kind(), BatchKind::Mixed);
            now += STEP;
            scheduler.apply(&memory.step(&plan), Time(now));
        }
        assert!(scheduler.is_idle());
    }
}

#[test]
fn a_lower_class_fills_what_is_left() {
    let mut desk = Desk::new(bare(), 8);
    desk.submit(1, 40, |one| Submission { class: ServiceClass::Bulk, ..one });
    desk.submit(2, 60, |one| one);
    desk.submit(3, 8, |one| Submission { class: ServiceClass::Dashboard, ..one });
    desk.finish();
    assert!(desk.end(2) < desk.end(3) && desk.end(3) < desk.end(1));
}

#[test]
fn a_lower_class_rises_when_it_has_waited_long() {
    let wait = Millis(30);
    let mut desk = Desk::new(MarginalWorkConfig { bulk_wait_ms_max: wait, ..bare() }, 4);
    desk.submit(1, 2, |one| Submission { class: ServiceClass::Bulk, ..one });
    for id in 2..40 {
        desk.submit(id, 4, |one| one);
        desk.step();
        desk.step();
    }
    desk.finish();
    let after = (2..40).filter(|id| desk.end(*id) > desk.end(1)).count();
    assert!(desk.end(1) > 30 * STEP && after > 5, "done at {}, {after} after it", desk.end(1));
}

#[test]
fn rows_of_a_lower_class_give_their_memory_up_where_that_is_set() {
    for evicts in [false, true] {
        let mut desk = Desk::new(
            MarginalWorkConfig { evict_lower_class: evicts, bulk_share_permille: None, ..bare() },
            4,
        );
        desk.submit(1, 20, |one| Submission { class: ServiceClass::Bulk, ..one });
        desk.step();
        desk.submit(2, 4, |one| one);
        desk.step();
        assert_eq!(desk.scheduler.stats().preemptions > 0, evicts);
        desk.finish();
    }
}

#[test]
fn a_deadline_brings_a_large_relquery_forward() {
    let small = |desk: &mut Desk| {
        for id in 10..40 {
            desk.submit(id, 3, |one| one);
            desk.step();
        }
        desk.finish();
    };
    let mut desk = Desk::new(bare(), 4);
    desk.submit(1, 12, |one| one);
    small(&mut desk);
    let without = desk.end(1);
    let mut desk = Desk::new(bare(), 4);
    desk.submit(1, 12, |one| Submission { deadline: Some(Time(600 * STEP)), ..one });
    small(&mut desk);
    assert!(desk.end(1) < without, "{} with a deadline, {without} without", desk.end(1));
}

#[test]
fn a_large_relquery_is_overtaken_for_a_while_and_not_for_ever() {
    let flooded = |policy, age_half_ms| {
        let settings = MarginalWorkConfig { age_half_ms, age_half_works: 0, gain: None, ..bare() };
        let mut desk = Desk::under(policy, settings, 4);
        desk.submit(1, 30, |one| one);
        for id in 2..3_000 {
            desk.submit(id, 2, |one| one);
            desk.step();
            if let Some(end) = desk.done.get(&RelQueryId(1)) {
                return Some(*end);
            }
        }
        None
    };
    let usual = |half| flooded(Policy::MarginalWork, half);
    let (soon, late) = (usual(Some(Millis(50))), usual(Some(Millis(200))));
    assert!(soon.is_some() && soon < late && late.is_some(), "{soon:?}, {late:?}");
    assert_eq!(usual(None), None, "without age a flood of small relQueries starves it");
    let slow = flooded(Policy::MarginalWorkSlowAging, Some(Millis(50)));
    assert_eq!(slow, usual(Some(Millis(150))), "age that counts a third as soon");
}

/// Four steps. In the model's time a step of the desk is some 25 times as long; tenants are charged what it took.
const LAG: Millis = Millis(4);

/// Mean end of tenant 2's relQueries, one every 40 steps, while tenant 1 floods or does nothing.
fn others_latency(flood: bool, lag: Millis) -> u64 {
    let mut desk = Desk::new(MarginalWorkConfig { tenant_lag_ms_max: lag, gain: None, ..bare() }, 4);
    let mut arrivals = BTreeMap::new();
    for turn in 0..1_200_u64 {
        if flood {
            desk.submit(10_000 + turn, 2, |one| one);
        }
        if turn % 40 == 0 {
            desk.submit(turn + 1, 6, |one| Submission { tenant: TenantId(2), ..one });
            arrivals.insert(turn + 1, desk.now);
        }
        if !desk.step() {
            desk.now += STEP;
        }
    }
    desk.finish();
    let sum: u64 = arrivals.iter().map(|(id, arrival)| desk.end(*id) - arrival).sum();
    sum / arrivals.len() as u64
}

#[test]
fn a_flood_raises_anothers_latency_by_no_more_than_its_share_explains() {
    let alone = others_latency(false, LAG);
    let shared = others_latency(true, LAG);
    let unfair = others_latency(true, Millis(1_000_000_000));
    // With half the machine, twice the time; rows of the flood that hold seats end first.
    assert!(shared < 3 * alone, "{shared} ns beside a flood, {alone} ns alone");
    assert!(unfair > 4 * shared, "{unfair} ns without shares: the flood is none");
}

#[test]
fn every_part_can_be_switched_off() {
    let on = MarginalWorkConfig::default();
    let variants = [
        MarginalWorkConfig { marginal_key: false, ..on.clone() },
        MarginalWorkConfig { learned_lengths: false, ..on.clone() },
        MarginalWorkConfig { exact_sharing: false, ..on.clone() },
        MarginalWorkConfig { grouped_rows: false, ..on.clone() },
        MarginalWorkConfig { gain: None, ..on.clone() },
        MarginalWorkConfig { age_half_ms: None, ..on.clone() },
        MarginalWorkConfig { steps: Steps::TwoPhase, ..on },
    ];
    for settings in variants {
        let mut desk = Desk::new(settings, 6);
        for id in 1..12 {
            desk.submit(id, 1 + id as u32 % 7, |one| one);
            desk.step();
        }
        desk.finish();
        assert_eq!(desk.done.len(), 11);
    }
}

#[test]
fn a_change_of_policy_does_not_count_work_in_the_half_life_twice() {
    // Eight small relQueries that end and one large one that stays: its work is a ninth of those that came.
    let settings = MarginalWorkConfig { age_half_ms: Some(Millis(1)), age_half_works: 100, ..bare() };
    let priority_after = |changes: usize| {
        let mut desk = Desk::new(settings.clone(), 4);
        for id in 2..10 {
            desk.submit(id, 1, |one| one);
            desk.finish();
        }
        desk.submit(1, 40, |one| one);
        for policy in [Policy::Fcfs, Policy::MarginalWork].into_iter().cycle().take(changes) {
            assert!(desk.scheduler.set_policy(policy));
        }
        desk.submit(11, 1, |one| one);
        desk.scheduler.plan(Time(desk.now)).expect("work");
        desk.scheduler.last_decision().front.expect("one waits").priority
    };
    assert_eq!(priority_after(20), priority_after(0));
}

/// A relQuery of 50 rows of 80 tokens; nobody else's are like them.
fn fifty_rows(memory: &mut Memory, id: u64) -> Submission {
    let prompt = |row: u32| (0..80).map(|i| (id as u32 * 50 + row) * 100 + i).collect();
    let items: Vec<_> = (0..50).map(|row| item(row, prompt(row), 10, id * 100 + u64::from(row))).collect();
    memory.know(&items);
    submission(id, id, items)
}

/// An engine on which nine decode steps take more than two hundredths of what those rows do, and most of a decode
/// step's base hides prompts.
fn engine_that_hides() -> (Scheduler, Memory) {
    engine_hiding(28_000_000, None)
}

/// The same, of which so much hides beside any rows, or beside few.
fn engine_hiding(mixed_hidden: i64, mixed_hidden_few: Option<i64>) -> (Scheduler, Memory) {
    let cost = CostModel {
        prefill_per_token: Nanos(3_400_000),
        prefill_base: Nanos(10_000_000),
        decode_per_sequence: Nanos(2_900_000),
        decode_base: Nanos(52_000_000),
        mixed_hidden,
        mixed_hidden_few,
    };
    let config = SchedulerConfig {
        policy: Policy::MarginalWork,
        step_tokens_max: TokenCount(512),
        kv_blocks: 4_000,
        block_tokens: 4,
        refit: false,
        ..SchedulerConfig::default()
    };
    (Scheduler::new(config, cost).expect("a valid configuration"), Memory::new(4))
}

#[test]
fn few_prompts_ride_beside_first_rows_until_these_have_ended() {
    let (mut scheduler, mut memory) = engine_that_hides();
    scheduler.submit(fifty_rows(&mut memory, 1)).expect("room");
    let mut steps = Vec::new();
    for now in 1..1_000 {
        let Some(plan) = scheduler.plan(Time(now)) else { break };
        let is_first = scheduler.last_decision().reason == Reason::FirstRows;
        steps.push((is_first, plan.kind(), plan.prefill_tokens().0));
        scheduler.apply(&memory.step(&plan), Time(now));
        assert_eq!(scheduler.check_invariants(), Ok(()));
    }
    assert!(scheduler.is_idle());
    assert_eq!(steps[0], (true, BatchKind::Prefill, 400), "a tenth of the rows");
    let riding = steps[1..].iter().take_while(|(is_first, ..)| *is_first).count();
    assert!((1..=9).contains(&riding), "ten tokens a row: {steps:?}");
    for (_, kind, tokens) in &steps[1..=riding] {
        assert!(*kind == BatchKind::Mixed && (4..100).contains(tokens), "{steps:?}");
    }
    let (_, _, next) = steps[riding + 1];
    assert!(next > 400, "then steps are full: {steps:?}");
    assert!(steps[riding + 1..].iter().all(|(is_first, ..)| !is_first), "{steps:?}");
}

#[test]
fn prompts_ride_beside_first_rows_by_what_few_rows_hide_whatever_many_do() {
    // Each step that begins with all fifty rows waiting or a few of them running: its reason and its kind.
    let steps = |(mut scheduler, mut memory): (Scheduler, Memory)| {
        scheduler.submit(fifty_rows(&mut memory, 1)).expect("room");
        let mut steps = Vec::new();
        for now in 1..1_000 {
            let Some(plan) = scheduler.plan(Time(now)) else { break };
            steps.push((scheduler.last_decision().reason == Reason::FirstRows, plan.kind()));
            scheduler.apply(&memory.step(&plan), Time(now));
            assert_eq!(scheduler.check_invariants(), Ok(()));
        }
        assert!(scheduler.is_idle());
        steps
    };
    for many in [-9_600_000, -30_000_000] {
        let ridden = steps(engine_hiding(many, Some(28_000_000)));
        let first = ridden.iter().take_while(|(is_first, _)| *is_first).count();
        assert!(first > 1, "{many}: {ridden:?}");
        assert!(ridden[1..first].iter().all(|(_, kind)| *kind == BatchKind::Mixed), "{many}: {ridden:?}");
        // Where mixing beside many rows costs, the others' steps are of one kind as they were.
        let mixes = ridden[first..].iter().any(|(_, kind)| *kind == BatchKind::Mixed);
        assert_eq!(mixes, many + 10_000_000 >= 0, "{many}: {ridden:?}");
        for few in [None, Some(many)] {
            let alike = steps(engine_hiding(many, few));
            assert!(alike.iter().all(|(is_first, _)| !is_first), "{many}: {alike:?}");
        }
    }
}

#[test]
fn more_rows_than_few_ride_with_nobody() {
    // A hundred rows: a tenth of them would be more than it is known of what hides beside them.
    let (mut scheduler, mut memory) = engine_hiding(-9_600_000, Some(28_000_000));
    let prompt = |row: u32| (0..40).map(|i| row * 100 + i).collect();
    let items: Vec<_> = (0..100).map(|row| item(row, prompt(row), 10, u64::from(row))).collect();
    memory.know(&items);
    scheduler.submit(submission(1, 0, items)).expect("room");
    let plan = scheduler.plan(Time(1)).expect("a step");
    assert_eq!(scheduler.last_decision().reason, Reason::FirstRows);
    assert_eq!(plan.slots.len(), 8, "and no tenth");
}

#[test]
fn nothing_rides_slowly_for_bulk_nor_once_somebody_else_has_come() {
    let (mut scheduler, mut memory) = engine_that_hides();
    let bulk = Submission { class: ServiceClass::Bulk, ..fifty_rows(&mut memory, 1) };
    scheduler.submit(bulk).expect("room");
    scheduler.plan(Time(1)).expect("a step");
    assert_ne!(scheduler.last_decision().reason, Reason::FirstRows);
    let (mut scheduler, mut memory) = engine_that_hides();
    scheduler.submit(fifty_rows(&mut memory, 1)).expect("room");
    let mut reasons = Vec::new();
    for now in 2..6 {
        if now == 4 {
            scheduler.submit(fifty_rows(&mut memory, 2)).expect("room");
        }
        let plan = scheduler.plan(Time(now)).expect("a step");
        reasons.push(scheduler.last_decision().reason);
        scheduler.apply(&memory.step(&plan), Time(now));
    }
    assert_eq!(reasons, [Reason::FirstRows, Reason::FirstRows, Reason::Mixed, Reason::Mixed]);
}
