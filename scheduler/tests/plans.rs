//! Whole sequences of plans, per policy, as they were recorded: nothing that only moves code changes a
//! decision.
//!
//! Seeded worlds with everything in them: ties, classes, deadlines, tenants, too little memory, a host tier,
//! rows added and called off, steps that fail and executors that are lost. A hash differs as soon as one
//! block of one plan does; who means to change a decision records it anew.

mod common;

use std::hash::Hasher;

use base::{BatchPlan, Millis, RelQueryId, ServiceClass, StepOutcome, TenantId, Time, TokenCount, WorkItem};
use common::{Memory, item, submission};
use scheduler::{
    CostModel, DeltaReading, Gain, MarginalWorkConfig, PaperVariant, Policy, PriorityReading, Scheduler,
    SchedulerConfig, Speculation, Steps,
};
use siphasher::sip::SipHasher13;

const SEEDS: u64 = 24;
const TURNS: u64 = 120;

const RECORDED: [(Policy, u64); 8] = [
    (Policy::Fcfs, 0x28ab_a31d_3501_94a4),
    (Policy::Sarathi, 0x4769_64ba_4883_5f82),
    (Policy::StaticPriority, 0xf687_7cd8_55c8_9b45),
    (Policy::StaticPriorityWeak, 0xcfcd_f70a_94a6_6124),
    (Policy::RelServe, 0xa2b8_5ea7_5933_4165),
    (Policy::RelServePrefill, 0x3155_a112_2683_1050),
    (Policy::RelServeDecode, 0x4fbb_7ac5_8691_0aed),
    (Policy::MarginalWork, 0xb10e_7bc6_1591_fadf),
];

/// SplitMix64.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least + 1)
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.next().is_multiple_of(chances)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.between(0, of.len() as u64 - 1) as usize]
    }
}

fn config(policy: Policy, draws: &mut Draws) -> SchedulerConfig {
    let sequences_max = draws.between(1, 10) as u32;
    let limits = [0, 1, 50, 1_000_000];
    SchedulerConfig {
        policy,
        sequences_max,
        block_tokens: draws.between(2, 4) as u32,
        step_tokens_max: TokenCount(draws.between(6, 70)),
        chunk_tokens: TokenCount(u64::from(sequences_max) + draws.between(1, 20)),
        kv_blocks: draws.between(14, 40) as u32,
        host_kv_blocks: draws.pick(&[0, 0, 6, 30]),
        rows_max: 60,
        attempts_max: draws.between(1, 3) as u32,
        sample_rows: draws.between(1, 4) as u32,
        unit_waiting_ms_max: draws.one_in(2).then(|| Millis(draws.between(0, 3))),
        publish_generated: draws.one_in(2),
        paper_variant: PaperVariant {
            delta: draws.pick(&[DeltaReading::Figure8, DeltaReading::AsPrinted]),
            priorities: draws.pick(&[
                PriorityReading::Updated,
                PriorityReading::Updated,
                PriorityReading::Frozen,
            ]),
            ..PaperVariant::default()
        },
        speculation: draws.pick(&[Speculation::Off, Speculation::Auto]),
        marginal_work: MarginalWorkConfig {
            steps: draws.pick(&[Steps::Adaptive, Steps::Mixed, Steps::TwoPhase]),
            marginal_key: !draws.one_in(4),
            learned_lengths: !draws.one_in(4),
            exact_sharing: !draws.one_in(4),
            grouped_rows: draws.one_in(2),
            gain: draws.one_in(2).then(Gain::default),
            age_half_ms: draws.pick(&[None, Some(Millis(1)), Some(Millis(100))]),
            age_half_works: 100,
            tail_permille_max: 0,
            late_permille_max: 0,
            first_rows_permille: 20,
            prefill_tokens_min: TokenCount(draws.between(0, 40)),
            tenant_lag_ms_max: Millis(draws.pick(&limits)),
            dashboard_wait_ms_max: Millis(draws.pick(&limits)),
            bulk_wait_ms_max: Millis(draws.pick(&limits)),
            evict_lower_class: draws.one_in(2),
            bulk_share_permille: draws.pick(&[None, Some(0), Some(50), Some(1_000)]),
        },
        ..SchedulerConfig::default()
    }
}

struct World {
    draws: Draws,
    scheduler: Scheduler,
    memory: Memory,
    now: Time,
    next_id: u64,
    next_seed: u64,
    hash: SipHasher13,
    steps: u64,
    /// Whether the policy changes under way, and how often it did.
    switches: bool,
    switched: u64,
}

impl World {
    fn new(policy: Policy, seed: u64) -> Self {
        let mut draws = Draws(seed);
        let config = config(policy, &mut draws);
        let memory = Memory::new(config.block_tokens);
        let cost = CostModel::default().hiding(draws.pick(&[0, 300, 1_000]));
        let scheduler = Scheduler::new(config, cost).expect("a valid configuration");
        let hash = SipHasher13::new();
        Self {
            draws,
            scheduler,
            memory,
            now: Time(1),
            next_id: 1,
            next_seed: 1,
            hash,
            steps: 0,
            switches: false,
            switched: 0,
        }
    }

    /// Rows with one of three templates and a text of their own, now and then the same one.
    fn rows(&mut self, first: u32) -> Vec<WorkItem> {
        let template = self.draws.between(0, 2) as u32;
        let (shared, own) = (self.draws.between(0, 9) as u32, self.draws.between(1, 9) as u32);
        let output_max = self.draws.between(1, 9);
        let count = self.draws.between(1, 6) as u32;
        let mut items = Vec::new();
        for row in first..first + count {
            let text = self.draws.between(0, 5) as u32;
            let prompt =
                (0..shared).map(|i| 100 * template + i).chain((0..own).map(|i| 1_000 + 50 * text + i));
            items.push(item(row, prompt.collect(), output_max, self.next_seed));
            self.next_seed += 1;
        }
        self.memory.know(&items);
        items
    }

    fn arrive(&mut self) {
        let items = self.rows(0);
        let id = self.next_id;
        self.next_id += 1;
        let classes = [ServiceClass::Interactive, ServiceClass::Dashboard, ServiceClass::Bulk];
        let _refused_or_taken = self.scheduler.submit(base::Submission {
            tenant: TenantId(self.draws.between(1, 3)),
            weight: self.draws.pick(&[1_000, 3_000]),
            scope: u128::from(self.draws.between(1, 2)),
            class: self.draws.pick(&classes),
            deadline: self.draws.one_in(3).then(|| Time(self.now.0 + self.draws.between(0, 900_000_000))),
            ..submission(id, self.now.0, items)
        });
    }

    fn turn(&mut self) {
        if self.draws.one_in(2) {
            self.arrive();
        }
        let some = RelQueryId(self.draws.between(1, self.next_id));
        if self.draws.one_in(6) {
            let first = 10 * self.next_seed as u32;
            let items = self.rows(first);
            let _refused_or_taken = self.scheduler.extend(some, items);
        }
        if self.draws.one_in(12) {
            self.scheduler.cancel_row(some, 0);
        }
        if self.draws.one_in(20) {
            self.scheduler.cancel(some);
        }
        if !self.draws.one_in(4) {
            self.now = Time(self.now.0 + self.draws.between(1, 30_000_000));
        }
        if self.switches && self.draws.one_in(5) {
            let policy = self.draws.pick(&Policy::WITH_VARIANTS);
            self.switched += u64::from(self.scheduler.set_policy(policy));
            assert_eq!(self.scheduler.check_invariants(), Ok(()), "{policy}");
        }
        self.step(true);
    }

    /// Plans and ends one step; says whether there was one.
    fn step(&mut self, may_fail: bool) -> bool {
        let Some(plan) = self.scheduler.plan(self.now) else {
            self.scheduler.drain_events(self.now);
            return false;
        };
        self.steps += 1;
        self.write(&plan);
        if may_fail && self.draws.one_in(16) {
            self.memory.fail(&plan);
            self.scheduler.abort_step(plan.step, "failed", self.now);
        } else if may_fail && self.draws.one_in(40) {
            self.memory.lose();
            self.scheduler.lose_step(plan.step, "lost", self.now);
        } else {
            let outcome = self.memory.step(&plan);
            let elapsed = base::Nanos(outcome.elapsed.0 * 10_000);
            self.now = self.now + elapsed;
            self.scheduler.apply(&StepOutcome { elapsed, ..outcome }, self.now);
        }
        assert_eq!(self.scheduler.check_invariants(), Ok(()));
        true
    }

    /// Every number of a plan, and what it was decided by.
    fn write(&mut self, plan: &BatchPlan) {
        let decision = self.scheduler.last_decision();
        let mut numbers = vec![plan.step.0, decision.reason as u64, decision.running_rows.into()];
        numbers.extend(decision.front.map(|key| key.priority));
        for moved in &plan.moves.out {
            numbers.extend([1, moved.from.0.into(), moved.to.0.into()]);
        }
        for moved in &plan.moves.back {
            numbers.extend([2, moved.from.0.into(), moved.to.0.into()]);
        }
        for slot in &plan.slots {
            numbers.extend([3, slot.request.0, slot.start.into(), slot.guesses.into()]);
            numbers.extend([slot.is_prefill.into(), slot.write_offset.into(), slot.input.len() as u64]);
            numbers.extend(slot.input.iter().map(|token| u64::from(token.0)));
            numbers.extend(slot.write_blocks.iter().map(|block| u64::from(block.0)));
            for run in &slot.context {
                numbers.extend([4, run.tokens.0, run.shift.into()]);
                numbers.extend(run.blocks.iter().map(|block| u64::from(block.0)));
            }
            numbers
                .extend(slot.sample.iter().flat_map(|sample| [5, sample.seed, sample.output_index.into()]));
        }
        numbers.extend(plan.retired.iter().map(|request| request.0));
        numbers.into_iter().for_each(|number| self.hash.write_u64(number));
    }
}

/// The hash of all plans of the seeds together, and how many they are.
fn plans(policy: Policy) -> (u64, u64) {
    let mut all = SipHasher13::new();
    let mut steps = 0;
    for seed in 0..SEEDS {
        let mut world = World::new(policy, seed);
        (0..TURNS).for_each(|_| world.turn());
        let mut left = 5_000;
        while world.step(false) {
            left -= 1;
            assert!(left > 0, "{policy}, seed {seed}: no end in sight");
        }
        assert!(world.scheduler.is_idle(), "{policy}, seed {seed}: rows wait and nothing is planned");
        all.write_u64(world.hash.finish());
        steps += world.steps;
    }
    (all.finish(), steps)
}

#[test]
fn a_policy_that_changes_under_way_loses_nothing_and_breaks_no_promise() {
    let mut switched = 0;
    for seed in 0..SEEDS {
        let mut world = World::new(Policy::Auto, seed);
        world.switches = true;
        (0..TURNS).for_each(|_| world.turn());
        let mut left = 5_000;
        while world.step(false) {
            left -= 1;
            assert!(left > 0, "seed {seed}: no end in sight");
        }
        assert!(world.scheduler.is_idle(), "seed {seed}: rows wait and nothing is planned");
        switched += world.switched;
    }
    assert!(switched > 10 * SEEDS, "only {switched} changes");
}

#[test]
fn a_policy_does_not_change_while_a_step_is_in_flight() {
    let mut world = World::new(Policy::Fcfs, 1);
    world.arrive();
    assert!(world.scheduler.plan(world.now).is_some());
    assert!(!world.scheduler.set_policy(Policy::RelServe));
    assert_eq!(world.scheduler.config().policy, Policy::Fcfs);
}

#[test]
fn every_policy_plans_what_it_planned_when_it_was_recorded() {
    let mut differ = Vec::new();
    for (policy, recorded) in RECORDED {
        let (hash, steps) = plans(policy);
        assert!(steps > 2_000, "{policy}: only {steps} steps");
        if hash != recorded {
            differ.push(format!("{policy}: {hash:#x}"));
        }
    }
    assert!(differ.is_empty(), "plans differ from those recorded:\n{}", differ.join("\n"));
}
