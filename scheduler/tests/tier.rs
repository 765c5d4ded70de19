//! The host tier: what is evicted moves there and comes back before it is read, bounded, and nothing is lost
//! to a step that fails.

mod common;

use base::{BatchPlan, Moves, Nanos, Time, TokenCount, WorkItem};
use common::{Memory, item, submission};
use proptest::prelude::*;
use scheduler::{CostModel, Event, Policy, Scheduler, SchedulerConfig, Speculation};

/// A pool of eight blocks of four tokens.
fn config(policy: Policy, host_kv_blocks: u32) -> SchedulerConfig {
    SchedulerConfig {
        policy,
        kv_blocks: 8,
        host_kv_blocks,
        block_tokens: 4,
        watermark_permille: 0,
        publish_generated: false,
        speculation: Speculation::Off,
        refit: false,
        ..SchedulerConfig::default()
    }
}

/// A scheduler over a memory, and whose turn it is.
struct World {
    scheduler: Scheduler,
    memory: Memory,
    submitted: u64,
    now: Time,
}

impl World {
    fn new(config: SchedulerConfig) -> Self {
        let memory = Memory::new(config.block_tokens);
        let scheduler = Scheduler::new(config, CostModel::default()).expect("a valid configuration");
        Self { scheduler, memory, submitted: 0, now: Time(1) }
    }

    fn submit(&mut self, items: Vec<WorkItem>) {
        self.submitted += 1;
        self.memory.know(&items);
        self.scheduler.submit(submission(self.submitted, self.now.0, items)).expect("it fits");
    }

    fn plan(&mut self) -> Option<BatchPlan> {
        self.now = self.now + Nanos(1_000);
        let plan = self.scheduler.plan(self.now);
        self.scheduler.check_invariants().expect("the books balance");
        plan
    }

    fn apply(&mut self, plan: &BatchPlan) -> Vec<Event> {
        let events = self.scheduler.apply(&self.memory.step(plan), self.now);
        self.scheduler.check_invariants().expect("the books balance");
        events
    }

    fn fail(&mut self, plan: &BatchPlan) -> Vec<Event> {
        self.memory.fail(plan);
        let events = self.scheduler.abort_step(plan.step, "broken", self.now);
        self.scheduler.check_invariants().expect("the books balance");
        events
    }

    /// Runs a prompt of so many tokens, unlike those of other numbers, to its end: what it computed, and all
    /// moves.
    fn ask(&mut self, number: u32, tokens: u32) -> (u64, Moves) {
        self.submit(vec![prompt(number, tokens, u64::from(number) + 100 * self.submitted)]);
        let (mut computed, mut moves) = (0, Moves::default());
        while let Some(plan) = self.plan() {
            moves.out.extend(&plan.moves.out);
            moves.back.extend(&plan.moves.back);
            for event in self.apply(&plan) {
                match event {
                    Event::RowDone { usage, .. } => computed = usage.computed.0,
                    Event::RowFailed { error, .. } => panic!("{error}"),
                    _ => {}
                }
            }
        }
        assert!(self.scheduler.is_idle());
        (computed, moves)
    }
}

fn prompt(number: u32, tokens: u32, seed: u64) -> WorkItem {
    item(0, (0..tokens).map(|at| 1_000 * number + at).collect(), 1, seed)
}

#[test]
fn what_is_evicted_comes_back_and_is_not_computed_again() {
    for policy in Policy::ALL {
        let mut world = World::new(config(policy, 8));
        assert_eq!(world.ask(1, 21), (21, Moves::default()), "{policy}");
        // Six blocks more, and three are free: three of the five that lie there have to go, the last ones
        // first.
        let (computed, moves) = world.ask(2, 21);
        assert_eq!((computed, moves.out.len(), moves.back.len()), (21, 3, 0), "{policy}");
        let stats = world.scheduler.stats();
        assert_eq!((stats.tier.used, stats.kv_cached_blocks, stats.kv_free_blocks), (3, 7, 1), "{policy}");
        let (computed, moves) = world.ask(1, 21);
        assert_eq!((computed, moves.back.len()), (1, 3), "{policy}: all but its last token");
        let stats = world.scheduler.stats();
        assert_eq!((stats.tier.moved_back, stats.tier.restored_tokens), (3, 12), "{policy}");
        assert_eq!(stats.prefix_hit_tokens, 20, "{policy}: eight of them lay in the pool");
    }
}

#[test]
fn without_a_tier_what_is_evicted_is_gone() {
    let mut world = World::new(config(Policy::MarginalWork, 0));
    world.ask(1, 21);
    world.ask(2, 21);
    assert_eq!(world.ask(1, 21), (13, Moves::default()));
    assert_eq!(world.scheduler.stats().tier, Default::default());
}

#[test]
fn where_only_what_was_hit_is_kept_the_rest_dies() {
    let mut world =
        World::new(SchedulerConfig { host_kv_reused_only: true, ..config(Policy::MarginalWork, 8) });
    // Of the first, two blocks are the beginning of another prompt too.
    world.ask(1, 21);
    world.ask(1, 9);
    let (_, moves) = world.ask(2, 29);
    assert_eq!((moves.out.len(), world.scheduler.stats().tier.moved_out), (2, 2));
    let (computed, moves) = world.ask(1, 21);
    assert_eq!((computed, moves.back.len()), (13, 2));
    // What came back was hit, and is kept again.
    assert_eq!(world.ask(2, 29).1.out.len(), 2);
}

#[test]
fn a_full_tier_gives_up_what_was_used_least_recently() {
    let mut world = World::new(config(Policy::MarginalWork, 2));
    world.ask(1, 21);
    let (_, moves) = world.ask(2, 21);
    // Of three that leave, the deepest is given up within the step.
    assert_eq!(moves.out.len(), 2);
    assert_eq!((world.scheduler.stats().tier.used, world.scheduler.stats().tier.moved_out), (2, 2));
    // Two of its blocks are in the pool still and two come back.
    let (computed, moves) = world.ask(1, 21);
    assert_eq!((computed, moves.back.len()), (5, 2));
}

#[test]
fn a_step_that_fails_leaves_what_was_to_come_back_and_forgets_what_was_to_go() {
    for policy in Policy::ALL {
        let mut world = World::new(config(policy, 8));
        world.ask(1, 21);
        world.ask(2, 21);
        world.submit(vec![prompt(1, 21, 7)]);
        let plan = world.plan().expect("work");
        assert_eq!((plan.moves.out.len(), plan.moves.back.len()), (3, 3), "{policy}");
        world.fail(&plan);
        let stats = world.scheduler.stats();
        assert_eq!((stats.tier.used, stats.tier.moved_out, stats.tier.moved_back), (3, 3, 0), "{policy}");
        let again = world.plan().expect("work");
        assert_eq!((again.moves.back.len(), again.prefill_tokens()), (3, TokenCount(1)), "{policy}");
        world.apply(&again);
        assert_eq!(world.scheduler.stats().tier.restored_tokens, 12, "{policy}");
    }
}

#[test]
fn a_row_called_off_in_flight_leaves_what_came_back_where_it_is() {
    for fails in [false, true] {
        let mut world = World::new(config(Policy::MarginalWork, 8));
        world.ask(1, 21);
        world.ask(2, 21);
        world.submit(vec![prompt(1, 21, 7)]);
        let plan = world.plan().expect("work");
        assert!(world.scheduler.cancel(base::RelQueryId(3)));
        world.scheduler.check_invariants().expect("the books balance");
        if fails {
            world.fail(&plan)
        } else {
            world.apply(&plan)
        };
        let (computed, moves) = world.ask(1, 21);
        assert_eq!((computed, moves.back.len()), if fails { (1, 3) } else { (1, 0) });
    }
}

#[test]
fn a_lost_memory_takes_the_tier_along() {
    let mut world = World::new(config(Policy::MarginalWork, 8));
    world.ask(1, 21);
    world.ask(2, 21);
    assert!(world.scheduler.forget_memory());
    world.scheduler.check_invariants().expect("the books balance");
    assert_eq!((world.scheduler.stats().tier.used, world.scheduler.stats().kv_free_blocks), (0, 8));
    assert_eq!(world.ask(1, 21).0, 21);
}

#[test]
fn rows_of_one_batch_bring_a_block_back_once_and_evict_nothing_of_one_another() {
    for policy in Policy::ALL {
        let mut world = World::new(SchedulerConfig { kv_blocks: 13, ..config(policy, 13) });
        world.ask(1, 21);
        world.ask(2, 17);
        world.ask(3, 25);
        assert_eq!(world.scheduler.stats().tier.used, 3, "{policy}");
        // Three rows of the first prompt, and one of the second, whose blocks are the oldest in the pool
        // then.
        let first = |row: u32| WorkItem { row, ..prompt(1, 21, 70 + u64::from(row)) };
        let second = WorkItem { row: 3, ..prompt(2, 17, 80) };
        world.submit((0..3).map(first).chain([second]).collect());
        let plan = world.plan().expect("work");
        assert_eq!((plan.slots.len(), plan.prefill_tokens()), (4, TokenCount(4)), "{policy}");
        assert_eq!(plan.moves.back.len(), 3, "{policy}");
        world.apply(&plan);
    }
}

/// What a random world does.
#[derive(Clone, Debug)]
enum Deed {
    /// Rows of one of a few prompts, each with some tokens of its own and so many of output.
    Submit { prompt: u32, tokens: u32, rows: u32, own: u32, output: u64 },
    /// So many steps run.
    Run(u8),
    /// The next step fails.
    Fail,
    /// A relQuery is called off, while a step is in flight or not.
    Cancel { id: u64, in_flight: bool },
    /// The executor comes back with nothing in its memory.
    Lose,
}

fn deed() -> impl Strategy<Value = Deed> {
    let submit = (0..5_u32, 1..26_u32, 1..4_u32, 0..6_u32, 1..8_u64)
        .prop_map(|(prompt, tokens, rows, own, output)| Deed::Submit { prompt, tokens, rows, own, output });
    let cancel = (1..12_u64, any::<bool>()).prop_map(|(id, in_flight)| Deed::Cancel { id, in_flight });
    prop_oneof![8 => submit, 6 => (1..20_u8).prop_map(Deed::Run), 2 => Just(Deed::Fail), 2 => cancel, 1 => Just(Deed::Lose)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    /// The memory compares what each slot reads with what its row computed, and the books are checked after
    /// each call: no block is lost, held twice or read before it is back.
    #[test]
    fn no_block_is_lost_owned_twice_or_read_before_it_is_back(
        deeds in prop::collection::vec(deed(), 1..24),
        policy in prop::sample::select(Policy::ALL.to_vec()),
        kv_blocks in 10..16_u32,
        host in prop::sample::select(vec![1_u32, 2, 5, 30]),
        (publish_generated, host_kv_reused_only) in any::<(bool, bool)>(),
    ) {
        let base = SchedulerConfig { kv_blocks, publish_generated, host_kv_reused_only, ..config(policy, host) };
        let mut world = World::new(SchedulerConfig { attempts_max: 1_000, ..base });
        let mut seed = 0;
        for deed in deeds {
            match deed {
                Deed::Submit { prompt, tokens, rows, own, output } => {
                    let item = |row: u32| {
                        let shared = (0..tokens).map(|at| 1_000 * prompt + at);
                        let own = (0..own).map(|at| 50_000 + 100 * (seed as u32 + row) + at);
                        item(row, shared.chain(own).collect(), output, seed + u64::from(row))
                    };
                    let items = (0..rows).map(item).collect();
                    seed += u64::from(rows);
                    world.submit(items);
                }
                Deed::Run(steps) => {
                    for _ in 0..steps {
                        let Some(plan) = world.plan() else { break };
                        world.apply(&plan);
                    }
                }
                Deed::Fail => {
                    if let Some(plan) = world.plan() {
                        world.fail(&plan);
                    }
                }
                Deed::Cancel { id, in_flight } => {
                    let plan = if in_flight { world.plan() } else { None };
                    world.scheduler.cancel(base::RelQueryId(id));
                    world.scheduler.check_invariants().expect("the books balance");
                    if let Some(plan) = plan {
                        world.apply(&plan);
                    }
                }
                Deed::Lose => {
                    world.memory.cells.clear();
                    prop_assert!(world.scheduler.forget_memory());
                }
            }
            let tier = world.scheduler.stats().tier;
            prop_assert!(tier.used <= host);
        }
        let mut steps = 0;
        while let Some(plan) = world.plan() {
            world.apply(&plan);
            steps += 1;
            prop_assert!(steps < 4_000, "no end in sight");
        }
        prop_assert!(world.scheduler.is_idle(), "rows wait and nothing is planned");
        prop_assert_eq!(world.scheduler.stats().kv_used_blocks, 0);
    }
}
