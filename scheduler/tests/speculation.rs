//! Guessed tokens change when a token comes, and nothing else.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{BatchPlan, Compiled, Constraint, Generation, Nanos, Slot, Time, TokenId, WorkItem};
use common::{Memory, item, submission};
use scheduler::{CostModel, Event, Policy, Scheduler, SchedulerConfig, Speculation, Stats};

fn config(policy: Policy, speculation: Speculation) -> SchedulerConfig {
    SchedulerConfig {
        policy,
        speculation,
        kv_blocks: 64,
        block_tokens: 4,
        sequences_max: 6,
        watermark_permille: 0,
        refit: false,
        ..SchedulerConfig::default()
    }
}

/// Rows with a common template and own tokens.
fn rows(count: u32, output_max: u64) -> Vec<WorkItem> {
    let prompt = |row: u32| (0..8).chain((0..3).map(|i| 1_000 * (row + 1) + i)).collect();
    (0..count).map(|row| item(row, prompt(row), output_max, 100 + u64::from(row))).collect()
}

/// What came of a relQuery: outputs by row, steps, and counts.
#[derive(Debug)]
struct Run {
    outputs: BTreeMap<u32, Vec<TokenId>>,
    steps: u32,
    stats: Stats,
}

/// Runs one relQuery to its end; `on_plan` sees each plan and may fail the step.
fn run(
    config: SchedulerConfig,
    cost: CostModel,
    memory: &mut Memory,
    on_plan: &mut dyn FnMut(&BatchPlan) -> bool,
) -> Run {
    run_rows(rows(24, 30), (config, cost), memory, on_plan)
}

/// The same with rows of one's own.
fn run_rows(
    items: Vec<WorkItem>,
    (config, cost): (SchedulerConfig, CostModel),
    memory: &mut Memory,
    on_plan: &mut dyn FnMut(&BatchPlan) -> bool,
) -> Run {
    let mut scheduler = Scheduler::new(config, cost).expect("a valid configuration");
    memory.know(&items);
    scheduler.submit(submission(1, 0, items)).expect("room");
    let (mut outputs, mut steps, mut now) = (BTreeMap::<u32, Vec<TokenId>>::new(), 0, Time(1));
    while let Some(plan) = scheduler.plan(now) {
        now = now + Nanos(1_000);
        steps += 1;
        assert!(steps < 2_000, "no end in sight");
        let events = match on_plan(&plan) {
            true => scheduler.apply(&memory.step(&plan), now),
            false => scheduler.abort_step(plan.step, "broken", now),
        };
        scheduler.check_invariants().expect("the books balance");
        for event in events {
            if let Event::Token { row, token, .. } = event {
                outputs.entry(row).or_default().push(token);
            }
        }
    }
    assert!(scheduler.is_idle());
    Run { outputs, steps, stats: scheduler.stats() }
}

/// An engine whose rows say one of so many things, of 25 to 30 tokens; with 0 each its own.
fn memory(voices: usize, forced: usize) -> Memory {
    let mut memory = Memory::new(4);
    (memory.voices, memory.forced) = ([14, 12, 36][..voices].to_vec(), forced);
    memory
}

#[test]
fn rows_that_say_what_others_said_take_fewer_steps_and_say_the_same() {
    for policy in Policy::ALL {
        // With little memory rows are preempted in the middle of their outputs.
        for (kv_blocks, forced) in [(64, 0), (16, 0), (16, 2)] {
            let of = |speculation| {
                let config = SchedulerConfig { kv_blocks, ..config(policy, speculation) };
                run(config, CostModel::default(), &mut memory(3, forced), &mut |_| true)
            };
            let (off, auto) = (of(Speculation::Off), of(Speculation::Auto));
            let case = format!("{policy}, {kv_blocks} blocks, {forced} forced");
            assert_eq!(auto.outputs, off.outputs, "{case}");
            assert_eq!((off.stats.guessed_tokens, off.stats.accepted_tokens), (0, 0));
            let (auto, stats) = (auto.steps, auto.stats);
            assert!(stats.accepted_tokens * 2 > stats.guessed_tokens, "{case}: {stats:?}");
            assert!(auto * 5 < off.steps * 4, "{case}: {auto} steps of {}", off.steps);
            let rest = stats.output_tokens - stats.accepted_tokens - stats.forced_tokens;
            assert!(rest > 0 && rest < off.stats.output_tokens, "{case}: {stats:?}");
        }
    }
}

#[test]
fn rows_that_have_nothing_in_common_hardly_guess() {
    let of = |speculation| {
        run(config(Policy::MarginalWork, speculation), CostModel::default(), &mut memory(0, 0), &mut |_| true)
    };
    let (off, auto) = (of(Speculation::Off), of(Speculation::Auto));
    assert_eq!(auto.outputs, off.outputs);
    let Stats { guessed_tokens, output_tokens, .. } = auto.stats;
    assert!(guessed_tokens * 5 < output_tokens, "{guessed_tokens} guesses for {output_tokens} tokens");
}

#[test]
fn where_a_row_more_costs_what_a_step_costs_only_probes_are_made() {
    let cost = CostModel { decode_base: Nanos(0), ..CostModel::default() };
    let run = run(config(Policy::MarginalWork, Speculation::Auto), cost, &mut memory(1, 0), &mut |_| true);
    let Stats { guessed_tokens, output_tokens, .. } = run.stats;
    assert!(guessed_tokens * 20 < output_tokens, "{guessed_tokens} guesses for {output_tokens} tokens");
}

#[test]
fn guesses_stand_only_behind_decodes_of_steps_without_prompts_and_are_bounded() {
    let mut widest = 0;
    run(
        config(Policy::MarginalWork, Speculation::Auto),
        CostModel::default(),
        &mut memory(1, 0),
        &mut |plan| {
            assert!(plan.guesses() == 0 || plan.prefill_tokens().0 == 0);
            assert!(plan.guesses() <= 6);
            widest = widest.max(plan.guesses());
            true
        },
    );
    assert_eq!(widest, 6);
}

#[test]
fn a_failed_step_takes_its_guesses_back_and_no_token_is_told_twice() {
    let (mut guessing, mut failed) = (0, 0);
    let mut fails_some = |plan: &BatchPlan| {
        guessing += u32::from(plan.guesses() > 0);
        let fails = plan.guesses() > 0 && guessing % 5 == 0;
        failed += u32::from(fails);
        !fails
    };
    // The invariants hold after each step: a row holds no block for guesses then.
    let auto = run(
        config(Policy::MarginalWork, Speculation::Auto),
        CostModel::default(),
        &mut memory(2, 0),
        &mut fails_some,
    );
    let off = run(
        config(Policy::MarginalWork, Speculation::Off),
        CostModel::default(),
        &mut memory(2, 0),
        &mut |_| true,
    );
    assert_eq!(auto.outputs, off.outputs);
    assert!(failed > 2 && auto.stats.accepted_tokens > 0, "{failed} failed");
}

#[test]
fn outputs_that_came_by_guesses_are_hit_like_others() {
    let hits = |speculation| {
        let mut scheduler =
            Scheduler::new(config(Policy::Fcfs, speculation), CostModel::default()).expect("valid");
        let mut memory = memory(1, 0);
        let mut outputs: BTreeMap<u32, Vec<TokenId>> = BTreeMap::new();
        let mut finish = |scheduler: &mut Scheduler, memory: &mut Memory| {
            while let Some(plan) = scheduler.plan(Time(1)) {
                for event in scheduler.apply(&memory.step(&plan), Time(2)) {
                    if let Event::Token { row, token, .. } = event {
                        outputs.entry(row).or_default().push(token);
                    }
                }
            }
            outputs.clone()
        };
        let first = rows(8, 30);
        memory.know(&first);
        scheduler.submit(submission(1, 0, first.clone())).expect("room");
        let outputs = finish(&mut scheduler, &mut memory);
        let before = scheduler.stats().prefix_hit_tokens;
        // A second turn that goes on where the last row ended.
        let said = [&first[7].prompt[..], &outputs[&7]].concat();
        let next = item(0, said.iter().map(|token| token.0).collect(), 1, 900);
        memory.know(std::slice::from_ref(&next));
        scheduler.submit(submission(2, 3, vec![next])).expect("room");
        finish(&mut scheduler, &mut memory);
        (scheduler.stats().prefix_hit_tokens - before, scheduler.stats().accepted_tokens)
    };
    let (off, auto) = (hits(Speculation::Off), hits(Speculation::Auto));
    assert!(off.0 > 11 && auto.1 > 0, "the output is hit, {off:?}, and was guessed, {auto:?}");
    assert_eq!(off.0, auto.0);
}

/// Tokens of the opening.
const OPENING: usize = 5;

/// Rows that all say the same, in a form that has them begin with the first tokens of it.
fn rows_with_opening(memory: &Memory, output_max: u64) -> Vec<WorkItem> {
    let opening = &memory.truth(100, 30)[..OPENING];
    let with_opening = |item: WorkItem| {
        let generation = Generation {
            constraint: Some(Constraint::Regex(".*".into())),
            compiled: Compiled::new(()).with_opening(opening),
            ..(*item.generation).clone()
        };
        WorkItem { generation: Arc::new(generation), ..item }
    };
    rows(24, output_max).into_iter().map(with_opening).collect()
}

#[test]
fn what_every_output_begins_with_is_computed_with_its_prompt() {
    // Guesses do not pay, so that what is saved is the openings'.
    let cost = CostModel { decode_base: Nanos(0), ..CostModel::default() };
    for policy in Policy::ALL {
        let of = |speculation, kv_blocks| {
            let config = SchedulerConfig { kv_blocks, ..config(policy, speculation) };
            let mut behind_prompts = Vec::new();
            let mut memory = memory(1, 0);
            let items = rows_with_opening(&memory, 30);
            let run = run_rows(items, (config, cost), &mut memory, &mut |plan| {
                let first = |slot: &&Slot| slot.sample.as_ref().is_some_and(|spec| spec.output_index == 0);
                behind_prompts.extend(plan.slots.iter().filter(first).map(|slot| slot.guesses as usize));
                true
            });
            (run, behind_prompts)
        };
        let ((off, none), (auto, all)) = (of(Speculation::Off, 512), of(Speculation::Auto, 512));
        assert_eq!(auto.outputs, off.outputs, "{policy}");
        assert_eq!((none, all), (vec![0; 24], vec![OPENING; 24]), "{policy}");
        assert_eq!((off.stats.forced_tokens, auto.stats.forced_tokens), (0, 24 * OPENING as u64), "{policy}");
        // Six rows at a time, each of which takes five steps less.
        assert!(auto.steps + 2 * OPENING as u32 <= off.steps, "{policy}: {} of {}", auto.steps, off.steps);
        // With little memory openings wait for the next step, as rows do.
        assert_eq!(of(Speculation::Auto, 16).0.outputs, off.outputs, "{policy}");
    }
}

#[test]
fn an_opening_leaves_the_last_token_that_an_output_may_have_to_be_drawn() {
    for (output_max, guesses) in [(1, 0), (2, 1), (4, 3), (9, 5)] {
        let mut memory = memory(1, 0);
        let items = rows_with_opening(&memory, output_max);
        let config = config(Policy::Fcfs, Speculation::Auto);
        let run = run_rows(items, (config, CostModel::default()), &mut memory, &mut |plan| {
            let prefills = plan.slots.iter().filter(|slot| slot.is_prefill);
            assert!(prefills.map(|slot| slot.guesses).all(|found| found == guesses), "of {output_max}");
            true
        });
        let truth = memory.truth(100, output_max);
        assert!(run.outputs.len() == 24 && run.outputs.values().all(|output| *output == truth));
    }
}

#[test]
fn a_failed_step_takes_its_openings_back() {
    let of = |fails: bool| {
        let mut memory = memory(1, 0);
        let items = rows_with_opening(&memory, 30);
        let (mut opening, mut failed) = (0, 0);
        let config = (config(Policy::MarginalWork, Speculation::Auto), CostModel::default());
        let run = run_rows(items, config, &mut memory, &mut |plan| {
            let opens = plan.slots.iter().any(|slot| slot.is_prefill && slot.guesses > 0);
            opening += u32::from(opens);
            let is_failed = fails && opens && opening % 2 == 1;
            failed += u32::from(is_failed);
            !is_failed
        });
        (run.outputs, failed)
    };
    let ((outputs, failed), (plain, _)) = (of(true), of(false));
    assert_eq!(outputs, plain);
    assert!(failed > 0, "{failed} failed");
}
