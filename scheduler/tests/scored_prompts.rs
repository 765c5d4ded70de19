//! Rows that ask how likely the tokens of their prompts are: these are computed, whatever the prefix cache has, and each
//! is told once.

mod common;

use std::sync::Arc;

use base::{Generation, Nanos, RelQueryId, RowError, Time, TokenCount, TokenId, WorkItem};
use common::{Memory, item, submission};
use scheduler::{CostModel, Event, Policy, Scheduler, SchedulerConfig, Usage};

const PROMPT: u32 = 33;

struct ScoringRun {
    scheduler: Scheduler,
    memory: Memory,
    submitted: u64,
    now: Time,
}

impl ScoringRun {
    fn new(policy: Policy) -> Self {
        Self::with_blocks(policy, 64)
    }

    fn with_blocks(policy: Policy, kv_blocks: u32) -> Self {
        let config = SchedulerConfig {
            policy,
            sequences_max: 4,
            chunk_tokens: TokenCount(9),
            kv_blocks,
            block_tokens: 4,
            watermark_permille: 0,
            ..SchedulerConfig::default()
        };
        let memory = Memory::new(config.block_tokens);
        let scheduler = Scheduler::new(config, CostModel::default()).expect("a valid configuration");
        Self { scheduler, memory, submitted: 0, now: Time(1) }
    }

    /// Submits a row of the one prompt.
    fn submit(&mut self, prompt_logprobs: Option<u32>) -> WorkItem {
        self.submitted += 1;
        let row = item(0, (0..PROMPT).collect(), 6, self.submitted);
        let generation = Generation { prompt_logprobs, ..(*row.generation).clone() };
        let row = WorkItem { generation: Arc::new(generation), ..row };
        self.memory.know(std::slice::from_ref(&row));
        self.scheduler.submit(submission(self.submitted, self.now.0, vec![row.clone()])).expect("it fits");
        row
    }

    /// Runs to the end; the executor is lost in the step of number `lost`.
    fn run(&mut self, lost: Option<u32>) -> Vec<Event> {
        let mut events = Vec::new();
        for number in 0.. {
            self.now = self.now + Nanos(1_000);
            let Some(plan) = self.scheduler.plan(self.now) else { break };
            if lost == Some(number) {
                self.memory.lose();
                events.extend(self.scheduler.lose_step(plan.step, "lost", self.now));
            } else {
                events.extend(self.scheduler.apply(&self.memory.step(&plan), self.now));
            }
            self.scheduler.check_invariants().expect("the books balance");
            assert!(number < 1_000, "no end in sight");
        }
        events
    }
}

fn told(events: &[Event]) -> Vec<TokenId> {
    let tokens = events.iter().filter_map(|event| match event {
        Event::Prompt { tokens, .. } => Some(&tokens[..]),
        _ => None,
    });
    tokens.flatten().map(|token| token.id).collect()
}

fn usage(events: &[Event]) -> Usage {
    let usage = events.iter().find_map(|event| match event {
        Event::RowDone { usage, .. } => Some(*usage),
        _ => None,
    });
    usage.unwrap_or_else(|| panic!("the row ends: {events:?}"))
}

#[test]
fn a_prompt_that_is_scored_is_computed_whole_and_each_of_its_tokens_is_told_once() {
    for policy in Policy::ALL {
        let mut world = ScoringRun::new(policy);
        world.submit(None);
        let events = world.run(None);
        assert_eq!(told(&events), [], "{policy}: nobody asked");
        let row = world.submit(Some(2));
        let events = world.run(None);
        assert_eq!(told(&events), row.prompt[..], "{policy}");
        let found = usage(&events);
        assert_eq!((found.cached.0, found.computed.0), (0, u64::from(PROMPT)), "{policy}");
        let first = events.iter().position(|event| matches!(event, Event::Token { .. }));
        let last = events.iter().rposition(|event| matches!(event, Event::Prompt { .. }));
        assert!(last < first, "{policy}: the prompt comes before the output");
        // What others share they hit as before.
        world.submit(None);
        assert_eq!(usage(&world.run(None)).cached.0, 32, "{policy}");
    }
}

#[test]
fn a_prompt_that_is_scored_leaves_nothing_in_the_prefix_cache() {
    for policy in Policy::ALL {
        let mut world = ScoringRun::new(policy);
        world.submit(Some(0));
        world.run(None);
        world.submit(None);
        assert_eq!(usage(&world.run(None)).cached.0, 0, "{policy}");
        world.submit(None);
        assert_eq!(usage(&world.run(None)).cached.0, 32, "{policy}: one that is not scored does");
    }
}

#[test]
fn beside_rows_of_the_same_prompt_in_a_small_pool_all_end_right_and_each_token_is_told_once() {
    for (policy, blocks) in
        Policy::ALL.into_iter().flat_map(|policy| [12, 16, 24].map(|blocks| (policy, blocks)))
    {
        let mut world = ScoringRun::with_blocks(policy, blocks);
        world.submit(None);
        world.run(None);
        let rows = [None, Some(1), None].map(|asked| world.submit(asked));
        let events = world.run(None);
        assert_eq!(told(&events), rows[1].prompt[..], "{policy}, {blocks} blocks");
        for row in rows {
            let said = events.iter().filter_map(|event| match event {
                Event::Token { relquery, token, .. } if *relquery == RelQueryId(row.seed) => Some(*token),
                _ => None,
            });
            let truth = world.memory.truth(row.seed, 6);
            assert_eq!(said.collect::<Vec<_>>(), truth, "{policy}, {blocks} blocks, relQuery {}", row.seed);
        }
        assert!(world.scheduler.is_idle(), "{policy}, {blocks} blocks");
    }
}

#[test]
fn a_tenant_pays_for_the_tokens_that_are_scored() {
    for policy in Policy::ALL {
        let work = |prompt_logprobs| {
            let mut world = ScoringRun::new(policy);
            world.submit(prompt_logprobs);
            let plan = world.scheduler.plan(world.now).expect("work");
            let targets = plan.slots.iter().filter_map(|slot| slot.prompt_targets.as_ref());
            let targets: u64 = targets.map(|targets| targets.tokens.len() as u64).sum();
            (world.scheduler.parts()[0].work.0, targets)
        };
        let ((plain, none), (scored, targets)) = (work(None), work(Some(0)));
        assert!(none == 0 && targets > 0, "{policy}: {targets} tokens");
        assert_eq!(scored - plain, targets * CostModel::default().decode_per_sequence.0, "{policy}");
    }
}

#[test]
fn what_was_told_before_the_memory_was_lost_is_not_told_again() {
    for (policy, lost) in Policy::ALL.into_iter().flat_map(|policy| [0, 1, 2, 4].map(|lost| (policy, lost))) {
        let mut world = ScoringRun::new(policy);
        let row = world.submit(Some(0));
        let events = world.run(Some(lost));
        assert_eq!(told(&events), row.prompt[..], "{policy}, step {lost}");
        usage(&events);
    }
}

#[test]
fn a_row_whose_prompt_cannot_be_scored_fails() {
    for policy in Policy::ALL {
        let mut world = ScoringRun::new(policy);
        world.submit(Some(0));
        let plan = world.scheduler.plan(world.now).expect("work");
        let mut outcome = world.memory.step(&plan);
        outcome.prompts[0].result = Err(RowError::NotANumber);
        let events = world.scheduler.apply(&outcome, world.now);
        let is_failed = |event: &Event| matches!(event, Event::RowFailed { error: RowError::NotANumber, .. });
        assert!(events.iter().any(is_failed), "{policy}: {events:?}");
        assert!(!events.iter().any(|event| matches!(event, Event::Token { .. })), "{policy}: {events:?}");
        assert!(world.scheduler.is_idle(), "{policy}");
        world.scheduler.check_invariants().expect("the books balance");
        // Nobody hits what it wrote.
        world.submit(None);
        assert_eq!(usage(&world.run(None)).cached.0, 0, "{policy}");
    }
}
