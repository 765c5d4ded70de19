//! Under `auto` the first rows of a relQuery that is alone end early whichever policy is in force, as long as the cost
//! model says that its last row bears it; under a policy that is named itself nothing of a published one changes.

mod common;

use base::{BatchKind, BatchPlan, Nanos, Time, TokenCount};
use common::{Memory, item, submission};
use scheduler::decision::HeadStartTrade;
use scheduler::{CostModel, Policy, Reason, Scheduler, SchedulerConfig};

/// A step as it was planned.
#[derive(Debug)]
struct Planned {
    reason: Reason,
    trade: Option<HeadStartTrade>,
    plan: BatchPlan,
}

impl Planned {
    fn is_first(&self) -> bool {
        self.reason == Reason::FirstRows
    }

    fn prompts(&self) -> u64 {
        self.plan.prefill_tokens().0
    }
}

/// A scheduler with a memory behind it. Nine decode steps of few rows take more than two hundredths of what
/// [`Desk::submit`] asks for.
struct Desk {
    scheduler: Scheduler,
    memory: Memory,
    now: u64,
}

/// What mixed steps hide.
#[derive(Clone, Copy)]
struct Hidden {
    beside_many: i64,
    beside_few: i64,
}

/// Beside many rows mixing costs; beside few most of a decode step's base hides prompts.
const FEW_ALONE: Hidden = Hidden { beside_many: -30_000_000, beside_few: 28_000_000 };
/// A step that mixes takes as long as two.
const NOTHING: Hidden = Hidden { beside_many: 0, beside_few: 0 };
/// It takes longer than two.
const COSTLY: Hidden = Hidden { beside_many: -30_000_000, beside_few: -30_000_000 };

impl Desk {
    fn new(policy: Policy, hidden: Hidden) -> Self {
        let cost = CostModel {
            prefill_per_token: Nanos(3_400_000),
            prefill_base: Nanos(10_000_000),
            decode_per_sequence: Nanos(2_900_000),
            decode_base: Nanos(52_000_000),
            mixed_hidden: hidden.beside_many,
            mixed_hidden_few: Some(hidden.beside_few),
        };
        let config = SchedulerConfig {
            policy,
            fairness: Some(true),
            step_tokens_max: TokenCount(512),
            kv_blocks: 4_000,
            block_tokens: 4,
            refit: false,
            ..SchedulerConfig::default()
        };
        let scheduler = Scheduler::new(config, cost).expect("a valid configuration");
        Self { scheduler, memory: Memory::new(4), now: 1 }
    }

    /// Under `auto`, which has come to name this policy.
    fn under_auto(named: Policy, hidden: Hidden) -> Self {
        let mut desk = Self::new(Policy::Auto, hidden);
        assert!(desk.scheduler.set_policy(named));
        assert_eq!(desk.scheduler.config().policy, named);
        desk
    }

    /// Fifty rows of 80 prompt tokens, of which so many are the same in all, and at most `output` output tokens.
    fn submit(&mut self, id: u64, shared: u32, output: u64) {
        let prompt = |row: u32| {
            let own = (id as u32 * 50 + row) * 100;
            (0..80).map(|place| if place < shared { place } else { own + place }).collect()
        };
        let items: Vec<_> =
            (0..50).map(|row| item(row, prompt(row), output, id * 100 + u64::from(row))).collect();
        self.memory.know(&items);
        self.scheduler.submit(submission(id, self.now, items)).expect("room");
    }

    fn step(&mut self) -> Option<Planned> {
        self.now += 1;
        let plan = self.scheduler.plan(Time(self.now))?;
        let decision = self.scheduler.last_decision();
        let (reason, trade) = (decision.reason, decision.head_start);
        assert_eq!(trade.is_some(), reason == Reason::FirstRows, "what was traded is said");
        self.scheduler.apply(&self.memory.step(&plan), Time(self.now));
        assert_eq!(self.scheduler.check_invariants(), Ok(()));
        Some(Planned { reason, trade, plan })
    }

    /// All steps until nothing is left.
    fn finish(&mut self) -> Vec<Planned> {
        let steps: Vec<Planned> = std::iter::from_fn(|| self.step()).take(2_000).collect();
        assert!(self.scheduler.is_idle());
        assert_eq!(self.scheduler.stats().preemptions, 0);
        steps
    }
}

#[test]
fn under_auto_prompts_ride_beside_first_rows_whichever_policy_it_names() {
    for named in Policy::CANDIDATES {
        let mut desk = Desk::under_auto(named, FEW_ALONE);
        desk.submit(1, 0, 10);
        let steps = desk.finish();
        let first = steps.iter().take_while(|step| step.is_first()).count();
        assert_eq!((steps[0].plan.kind(), steps[0].prompts()), (BatchKind::Prefill, 400), "{named}");
        assert!((2..=10).contains(&first), "{named}: ten tokens a row, {first} steps");
        for step in &steps[1..first] {
            assert_eq!(step.plan.kind(), BatchKind::Mixed, "{named}");
            assert!((4..100).contains(&step.prompts()), "{named}: {} tokens ride", step.prompts());
        }
        assert!(steps[first..].iter().all(|step| !step.is_first()), "{named}: once");
        // 52 tokens a step leave a prompt of 80 cut.
        let next = &steps[first];
        assert_eq!(next.plan.kind(), BatchKind::Prefill, "{named}");
        if !named.cuts_prompts() {
            assert!(
                (401..=512).contains(&next.prompts()),
                "{named}: {} tokens, no step of its own",
                next.prompts()
            );
        }
        let computed: u64 = steps.iter().map(Planned::prompts).sum();
        assert_eq!(computed, 50 * 80, "{named}: nothing is computed twice");
    }
}

#[test]
fn where_riding_would_cost_the_last_row_more_auto_plans_as_the_policy_that_it_names() {
    for named in Policy::CANDIDATES {
        let [mut own, mut chosen] = [Desk::new(named, NOTHING), Desk::under_auto(named, NOTHING)];
        own.submit(1, 0, 10);
        chosen.submit(1, 0, 10);
        let (own, chosen) = (own.finish(), chosen.finish());
        assert!(own.iter().all(|step| !step.is_first()), "{named}");
        assert_eq!(format!("{own:?}"), format!("{chosen:?}"), "{named}");
    }
}

#[test]
fn a_published_policy_that_is_named_itself_has_no_first_rows() {
    for policy in [Policy::RelServe, Policy::RelServeDecode, Policy::RelServePrefill, Policy::StaticPriority]
    {
        let mut desk = Desk::new(policy, FEW_ALONE);
        desk.submit(1, 0, 10);
        let steps = desk.finish();
        assert!(
            steps.iter().all(|step| !step.is_first() && step.plan.kind() != BatchKind::Mixed),
            "{policy}"
        );
    }
}

#[test]
fn where_mixing_costs_beside_any_rows_first_rows_decode_alone_under_what_auto_begins_with() {
    let mut desk = Desk::new(Policy::Auto, COSTLY);
    assert_eq!(desk.scheduler.config().policy, Policy::RelServe);
    desk.submit(1, 0, 4);
    let steps = desk.finish();
    assert_eq!((steps[0].is_first(), steps[0].prompts()), (true, 400));
    assert_eq!((steps[1].is_first(), steps[1].plan.kind()), (true, BatchKind::Decode));
    let spent = steps.iter().filter(|step| step.is_first()).map(|step| match step.plan.kind() {
        BatchKind::Prefill => 10_000_000,
        _ => 52_000_000,
    });
    // Prompts 13.6 s, outputs 0.58 s, bases of four steps 0.208 s.
    let allowed = Nanos(14_388_000_000 / 50);
    let trade = HeadStartTrade { allowed, spent: Nanos(spent.sum()) };
    assert!(trade.spent <= allowed, "two hundredths of its time: {trade}");
    let last = steps.iter().rfind(|step| step.is_first()).and_then(|step| step.trade);
    assert_eq!(last, Some(trade));
    let after = steps.iter().position(|step| !step.is_first()).expect("most rows are no first ones");
    assert!(steps[after].prompts() > 400, "then steps are full");
    assert!(steps.iter().all(|step| step.plan.kind() != BatchKind::Mixed));
}

#[test]
fn what_rows_share_gives_no_time_for_first_rows_twice() {
    // The first row computes 80 tokens and the others 8 each: two hundredths of 2.4 s are less than three steps.
    let mut desk = Desk::new(Policy::Auto, COSTLY);
    desk.submit(1, 72, 4);
    assert!(
        desk.finish().iter().all(|step| !step.is_first()),
        "Eq. 10 takes each row for a whole one at first"
    );
}

#[test]
fn a_prompt_that_first_rows_had_cut_is_completed_when_somebody_else_has_come() {
    let mut desk = Desk::under_auto(Policy::RelServe, FEW_ALONE);
    desk.submit(1, 0, 10);
    let before: Vec<Planned> = (0..3).filter_map(|_| desk.step()).collect();
    assert!(before.len() == 3 && before.iter().all(Planned::is_first));
    let ridden: u64 = before[1..].iter().map(Planned::prompts).sum();
    assert_ne!(ridden % 80, 0, "one is cut");
    desk.submit(2, 0, 10);
    let steps = desk.finish();
    let cut = before[2].plan.slots.last().map(|slot| slot.request);
    let rest: Vec<usize> = steps[0]
        .plan
        .slots
        .iter()
        .filter(|slot| Some(slot.request) == cut)
        .map(|slot| slot.input.len())
        .collect();
    assert_eq!(rest, [80 - ridden as usize % 80]);
    // The second has first rows of its own once the first has ended, which has a prompt of 80 for each of 43 rows left.
    let alone = steps.iter().position(Planned::is_first).unwrap_or(steps.len());
    assert!(alone > 10, "step {alone}: first rows are over while two are here");
    assert!(steps[..alone].iter().all(|step| step.plan.kind() != BatchKind::Mixed));
    let computed: u64 = before.iter().chain(&steps).map(Planned::prompts).sum();
    assert_eq!(computed, 2 * 50 * 80, "nothing is computed twice");
}
