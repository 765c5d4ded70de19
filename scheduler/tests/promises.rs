//! One promise per test, on worlds small enough to follow by hand.

mod common;

use base::{BatchKind, BatchPlan, Millis, RelQueryId, RowError, ServiceClass, Time, TokenCount, WorkItem};
use common::{Memory, item, submission};
use scheduler::{CostModel, Event, Policy, Reason, Refused, Scheduler, SchedulerConfig, Usage};

fn config(policy: Policy) -> SchedulerConfig {
    SchedulerConfig {
        policy,
        kv_blocks: 64,
        block_tokens: 4,
        watermark_permille: 0,
        ..SchedulerConfig::default()
    }
}

fn scheduler(config: SchedulerConfig) -> Scheduler {
    Scheduler::new(config, CostModel::default()).expect("a valid configuration")
}

/// Rows with a common template of `template` tokens and `own` tokens each.
fn rows(count: u32, template: u32, own: u32, output_max: u64, first_seed: u64) -> Vec<WorkItem> {
    let prompt = |row: u32| (0..template).chain((0..own).map(|i| 1_000 * (row + 1) + i)).collect();
    (0..count).map(|row| item(row, prompt(row), output_max, first_seed + u64::from(row))).collect()
}

/// Runs to the end; what was said, and the kinds of the steps.
fn finish(scheduler: &mut Scheduler, memory: &mut Memory) -> (Vec<Event>, Vec<BatchKind>) {
    let (mut events, mut kinds, mut now) = (Vec::new(), Vec::new(), Time(1_000));
    while let Some(plan) = scheduler.plan(now) {
        kinds.push(plan.kind());
        now = now + base::Nanos(1_000);
        events.extend(scheduler.apply(&memory.step(&plan), now));
        scheduler.check_invariants().expect("the books balance");
        assert!(kinds.len() < 1_000, "no end in sight");
    }
    (events, kinds)
}

fn usage(events: &[Event]) -> Usage {
    let mut total = Usage::default();
    for event in events {
        if let Event::RowDone { usage, .. } = event {
            total += *usage;
        }
    }
    total
}

fn start(scheduler: &mut Scheduler, items: Vec<WorkItem>) -> (Memory, BatchPlan) {
    let mut memory = Memory::new(scheduler.config().block_tokens);
    memory.know(&items);
    scheduler.submit(submission(1, 0, items)).expect("room");
    let plan = scheduler.plan(Time(1)).expect("work");
    (memory, plan)
}

#[test]
fn rows_of_a_new_template_compute_it_once_in_one_step() {
    for policy in Policy::ALL {
        let mut scheduler = scheduler(SchedulerConfig { kv_blocks: 400, ..config(policy) });
        let (mut memory, plan) = start(&mut scheduler, rows(50, 40, 3, 5, 1));
        assert_eq!(plan.slots.len(), 50);
        assert_eq!(plan.prefill_tokens(), TokenCount(40 + 50 * 3), "{policy}");
        let shared = &plan.slots[1].context[0];
        assert!(
            plan.slots[2..]
                .iter()
                .all(|slot| std::sync::Arc::ptr_eq(&slot.context[0].blocks, &shared.blocks))
        );
        let mut events = scheduler.apply(&memory.step(&plan), Time(2));
        events.extend(finish(&mut scheduler, &mut memory).0);
        let usage = usage(&events);
        assert_eq!((usage.prompt, usage.cached), (TokenCount(50 * 43), TokenCount(49 * 40)));
        assert_eq!(usage.computed, TokenCount(40 + 150));
    }
}

#[test]
fn a_prompt_that_lies_in_the_cache_whole_still_computes_its_last_block() {
    let mut scheduler = scheduler(config(Policy::Fcfs));
    let (mut memory, plan) = start(&mut scheduler, rows(1, 8, 0, 1, 1));
    scheduler.apply(&memory.step(&plan), Time(2));
    let again = rows(1, 8, 0, 1, 2);
    memory.know(&again);
    scheduler.submit(submission(2, 3, again)).expect("room");
    let (events, _) = finish(&mut scheduler, &mut memory);
    assert_eq!((usage(&events).cached, usage(&events).computed), (TokenCount(4), TokenCount(4)));
}

#[test]
fn scopes_never_share_a_block() {
    let mut scheduler = scheduler(config(Policy::RelServe));
    let (mut memory, plan) = start(&mut scheduler, rows(1, 20, 1, 1, 1));
    scheduler.apply(&memory.step(&plan), Time(2));
    let other = rows(1, 20, 1, 1, 2);
    memory.know(&other);
    scheduler.submit(base::Submission { scope: 8, ..submission(2, 3, other) }).expect("room");
    let (events, _) = finish(&mut scheduler, &mut memory);
    assert_eq!(usage(&events).cached, TokenCount(0));
}

#[test]
fn a_failed_step_unpublishes_its_prefix_and_its_rows_start_again() {
    let mut scheduler = scheduler(config(Policy::RelServe));
    let (mut memory, plan) = start(&mut scheduler, rows(5, 20, 3, 5, 1));
    assert_eq!(scheduler.abort_step(plan.step, "broken", Time(2)), []);
    assert_eq!(scheduler.stats().kv_free_blocks, 64);
    scheduler.check_invariants().expect("the books balance");
    let again = scheduler.plan(Time(3)).expect("work");
    // Half of them are tried first.
    assert_eq!((again.slots.len(), again.prefill_tokens()), (3, TokenCount(20 + 3 * 3)));
    let late = memory.step(&plan);
    assert_eq!(scheduler.apply(&late, Time(4)), [], "the outcome of another step changes nothing");
    let mut memory = Memory::new(4);
    memory.know(&rows(5, 20, 3, 5, 1));
    let mut events = scheduler.apply(&memory.step(&again), Time(5));
    events.extend(finish(&mut scheduler, &mut memory).0);
    assert!(matches!(events.last(), Some(Event::RelQueryDone { .. })));
}

#[test]
fn after_a_lost_memory_nothing_is_hit_and_running_rows_keep_their_tokens() {
    for policy in Policy::ALL {
        let mut scheduler = scheduler(config(policy));
        let (mut memory, plan) = start(&mut scheduler, rows(3, 20, 3, 9, 1));
        let mut events = scheduler.apply(&memory.step(&plan), Time(2));
        let decode = scheduler.plan(Time(3)).expect("rows run");
        assert!(!scheduler.forget_memory(), "{policy}: a step is in flight");
        scheduler.abort_step(decode.step, "the replica is gone", Time(4));
        assert!(scheduler.forget_memory(), "{policy}");
        // The model of the executor fails the test if a slot reads what is not there.
        memory.cells.clear();
        scheduler.check_invariants().expect("the books balance");
        assert_eq!(scheduler.stats().kv_free_blocks, 64, "{policy}");
        let request = decode.slots[0].request;
        assert_eq!(scheduler.row_of(request), Some((RelQueryId(1), 0)), "{policy}");
        let (rest, _) = finish(&mut scheduler, &mut memory);
        events.extend(rest);
        let tokens = events.iter().filter(|event| matches!(event, Event::Token { .. })).count() as u64;
        assert_eq!(usage(&events).output.0, tokens, "{policy}: no token is told twice");
        assert_eq!(scheduler.row_of(request), None, "{policy}");
    }
}

#[test]
fn a_row_that_is_part_of_too_many_failed_steps_fails() {
    let mut scheduler = scheduler(config(Policy::Fcfs));
    scheduler.submit(submission(1, 0, rows(1, 4, 1, 5, 1))).expect("room");
    let mut events = Vec::new();
    for _ in 0..3 {
        let plan = scheduler.plan(Time(1)).expect("work");
        events = scheduler.abort_step(plan.step, "broken", Time(2));
    }
    let error = RowError::Failed("broken".to_owned());
    assert!(matches!(&events[0], Event::RowFailed { error: got, .. } if *got == error));
    assert!(matches!(events[1], Event::RelQueryDone { .. }));
    assert!(scheduler.is_idle());
}

#[test]
fn a_broken_row_fails_alone_and_what_it_wrote_is_never_hit() {
    let mut scheduler = scheduler(config(Policy::Fcfs));
    let mut memory = Memory::new(4);
    let items = rows(2, 20, 3, 5, 1);
    memory.know(&items);
    memory.broken.push(1);
    scheduler.submit(submission(1, 0, items)).expect("room");
    let (events, _) = finish(&mut scheduler, &mut memory);
    let failed =
        |event: &&Event| matches!(event, Event::RowFailed { row: 0, error: RowError::NotANumber, .. });
    assert_eq!(events.iter().filter(failed).count(), 1);
    assert!(events.iter().any(|event| matches!(event, Event::RowDone { row: 1, .. })));
    let again = rows(1, 20, 3, 5, 9);
    memory.know(&again);
    scheduler.submit(submission(2, 0, again)).expect("room");
    assert_eq!(scheduler.plan(Time(9)).expect("work").prefill_tokens(), TokenCount(23));
}

/// Found by the seeded worlds, as more prompt tokens in a step than a step may have.
#[test]
fn what_was_built_on_a_broken_row_does_not_keep_a_content_from_being_shared_again() {
    let mut scheduler = scheduler(config(Policy::Fcfs));
    let mut memory = Memory::new(4);
    let items = rows(2, 20, 12, 5, 1);
    let prompt = items[1].prompt.clone();
    memory.know(&items);
    memory.broken.push(1);
    scheduler.submit(submission(1, 0, items)).expect("room");
    finish(&mut scheduler, &mut memory);
    let again: Vec<_> =
        (0..2).map(|row| WorkItem { prompt: prompt.clone(), ..item(row, vec![1], 5, 9) }).collect();
    memory.know(&again);
    scheduler.submit(submission(2, 0, again)).expect("room");
    // The second computes its last block only: the first supplies the rest in the same step.
    assert_eq!(scheduler.plan(Time(9)).expect("work").prefill_tokens(), TokenCount(32 + 4));
}

#[test]
fn what_a_broken_row_wrote_is_not_hit_even_if_it_was_cancelled_in_flight() {
    let mut scheduler = scheduler(config(Policy::Fcfs));
    let (mut memory, plan) = start(&mut scheduler, rows(1, 20, 3, 5, 1));
    memory.broken.push(1);
    assert!(scheduler.cancel(RelQueryId(1)));
    scheduler.apply(&memory.step(&plan), Time(2));
    assert_eq!(scheduler.stats().kv_cached_blocks, 0);
}

#[test]
fn a_cancel_frees_everything_once_whenever_it_comes() {
    let mut scheduler = scheduler(config(Policy::RelServe));
    assert!(!scheduler.cancel(RelQueryId(1)), "unknown");
    scheduler.submit(submission(1, 0, rows(3, 20, 3, 5, 1))).expect("room");
    assert!(scheduler.cancel(RelQueryId(1)), "queued");
    assert_eq!(scheduler.stats().kv_free_blocks, 64);
    let (mut memory, plan) = start(&mut scheduler, rows(3, 20, 3, 5, 1));
    assert_eq!(scheduler.row_usage(RelQueryId(1), 0), None, "its first step has not run");
    assert!(scheduler.cancel(RelQueryId(1)), "in flight");
    assert!(!scheduler.cancel(RelQueryId(1)), "twice");
    let events = scheduler.apply(&memory.step(&plan), Time(2));
    assert_eq!(events, []);
    assert!(scheduler.is_idle());
    assert_eq!(scheduler.stats().kv_used_blocks, 0);
    scheduler.check_invariants().expect("the books balance");
}

#[test]
fn what_a_row_has_used_is_known_until_it_ends() {
    let mut scheduler = scheduler(config(Policy::Fcfs));
    let (mut memory, plan) = start(&mut scheduler, rows(1, 20, 3, 5, 1));
    scheduler.apply(&memory.step(&plan), Time(2));
    let usage = scheduler.row_usage(RelQueryId(1), 0).expect("it has begun");
    let counts = [usage.prompt, usage.computed, usage.output];
    assert_eq!(counts, [TokenCount(23), TokenCount(23), TokenCount(1)]);
    assert_eq!(scheduler.row_usage(RelQueryId(1), 1), None, "there is no such row");
    assert!(scheduler.cancel_row(RelQueryId(1), 0));
    assert_eq!(scheduler.row_usage(RelQueryId(1), 0), None, "it has ended");
}

#[test]
fn a_row_midway_through_its_prompt_has_used_no_more_of_it_than_it_has_got() {
    let limits =
        SchedulerConfig { chunk_tokens: TokenCount(16), sequences_max: 8, ..config(Policy::Sarathi) };
    let mut scheduler = scheduler(limits);
    let (mut memory, plan) = start(&mut scheduler, rows(1, 36, 4, 5, 1));
    let used = |scheduler: &Scheduler| {
        let usage = scheduler.row_usage(RelQueryId(1), 0).expect("it has begun");
        [usage.prompt.0, usage.cached.0 + usage.computed.0]
    };
    scheduler.apply(&memory.step(&plan), Time(2));
    assert_eq!(used(&scheduler), [16, 16]);
    for (now, expected) in [(3, 32), (5, 40), (7, 40)] {
        let plan = scheduler.plan(Time(now)).expect("work");
        scheduler.apply(&memory.step(&plan), Time(now + 1));
        assert_eq!(used(&scheduler), [expected, expected]);
    }
}

#[test]
fn a_row_called_off_as_it_computes_what_all_share_leaves_that_to_the_others() {
    for (policy, fails) in Policy::ALL.into_iter().flat_map(|policy| [(policy, false), (policy, true)]) {
        let mut scheduler = scheduler(config(policy));
        let (mut memory, plan) = start(&mut scheduler, rows(5, 20, 3, 5, 1));
        let first = plan.slots.iter().find(|slot| slot.input.len() == 23).expect("one computes the template");
        let (id, row) = scheduler.row_of(first.request).expect("its row is open");
        assert!(scheduler.cancel_row(id, row), "{policy}");
        let mut events = if fails {
            memory.fail(&plan);
            scheduler.abort_step(plan.step, "broken", Time(2))
        } else {
            scheduler.apply(&memory.step(&plan), Time(2))
        };
        scheduler.check_invariants().expect("the books balance");
        if fails {
            let again = scheduler.plan(Time(3)).expect("the others go on");
            let expected = TokenCount(20 + 3 * again.slots.len() as u64);
            assert_eq!(again.prefill_tokens(), expected, "{policy}: another one takes it over");
            events.extend(scheduler.apply(&memory.step(&again), Time(4)));
        }
        events.extend(finish(&mut scheduler, &mut memory).0);
        let done = events.iter().filter(|event| matches!(event, Event::RowDone { .. })).count();
        assert_eq!(done, 4, "{policy}");
        if !fails {
            let usage = usage(&events);
            let found = (usage.cached, usage.computed);
            assert_eq!(found, (TokenCount(4 * 20), TokenCount(4 * 3)), "{policy}: it was computed once");
        }
        assert!(scheduler.is_idle(), "{policy}");
        assert_eq!(scheduler.stats().kv_used_blocks, 0, "{policy}");
    }
}

#[test]
fn the_last_row_that_is_cancelled_ends_its_relquery() {
    let mut scheduler = scheduler(config(Policy::RelServe));
    scheduler.submit(submission(1, 0, rows(2, 4, 3, 5, 1))).expect("room");
    assert!(scheduler.cancel_row(RelQueryId(1), 0));
    assert_eq!(scheduler.drain_events(Time(5)), []);
    assert!(scheduler.cancel_row(RelQueryId(1), 1));
    assert!(scheduler.plan(Time(5)).is_none());
    let events = scheduler.drain_events(Time(5));
    assert!(matches!(events[..], [Event::RelQueryDone { relquery: RelQueryId(1), .. }]));
    assert_eq!(scheduler.drain_events(Time(5)), []);
}

#[test]
fn what_can_never_run_is_refused_at_submission() {
    let mut scheduler = scheduler(SchedulerConfig { rows_max: 4, ..config(Policy::Fcfs) });
    let refused = |items| scheduler.clone().submit(submission(1, 0, items)).err();
    assert_eq!(refused(vec![]), Some(Refused::Empty));
    assert_eq!(refused(vec![item(3, vec![], 1, 1)]), Some(Refused::EmptyPrompt { row: 3 }));
    assert_eq!(refused(vec![item(3, vec![1], 0, 1)]), Some(Refused::NoOutput { row: 3 }));
    assert_eq!(refused(rows(5, 1, 1, 1, 1)), Some(Refused::QueueFull { rows: 0, limit: 4 }));
    let never = |tokens| Refused::NeverFits { row: 0, tokens: TokenCount(tokens), limit: TokenCount(256) };
    assert_eq!(refused(rows(1, 0, 250, 7, 1)), Some(never(257)));
    assert_eq!(refused(rows(1, 0, 1, u64::MAX, 1)), Some(never(u64::MAX)));
    assert_eq!(refused(vec![item(3, vec![1], 1, 1); 2]), Some(Refused::DuplicateRow { row: 3 }));
    assert_eq!(refused(rows(1, 0, 250, 6, 1)), None);
    scheduler.submit(submission(1, 0, rows(2, 1, 1, 1, 1))).expect("room");
    let again = scheduler.submit(submission(1, 0, rows(2, 1, 1, 1, 1)));
    assert_eq!(again, Err(Refused::Duplicate(RelQueryId(1))));
    assert_eq!(scheduler.extend(RelQueryId(2), rows(1, 1, 1, 1, 1)), Err(Refused::Unknown(RelQueryId(2))));
}

#[test]
fn a_row_larger_than_a_step_or_than_the_watermark_leaves_runs_alone() {
    for policy in Policy::ALL {
        let limits =
            SchedulerConfig { step_tokens_max: TokenCount(16), watermark_permille: 900, ..config(policy) };
        let mut scheduler = scheduler(limits);
        let (mut memory, plan) = start(&mut scheduler, rows(2, 0, 200, 3, 1));
        assert_eq!(plan.slots.len(), 1, "{policy}");
        scheduler.apply(&memory.step(&plan), Time(2));
        let (events, _) = finish(&mut scheduler, &mut memory);
        assert!(matches!(events.last(), Some(Event::RelQueryDone { .. })), "{policy}");
    }
}

#[test]
fn equal_rows_under_memory_pressure_do_not_take_turns_in_preempting_each_other() {
    for policy in Policy::ALL.into_iter().chain([Policy::StaticPriorityWeak]) {
        // Two rows of 24 + 40 tokens in a pool of 96: both start, one has to give way once.
        let mut scheduler = scheduler(SchedulerConfig { kv_blocks: 24, ..config(policy) });
        let mut memory = Memory::new(4);
        for id in 1..=2 {
            let prompt = (0..24).map(|i| 100 * id + i).collect();
            let mut row = item(0, prompt, 40, u64::from(id));
            row.generation = std::sync::Arc::new(base::Generation {
                output_max: TokenCount(40),
                ..base::Generation::default()
            });
            memory.know(std::slice::from_ref(&row));
            scheduler.submit(submission(u64::from(id), 0, vec![row])).expect("room");
        }
        let (events, kinds) = finish(&mut scheduler, &mut memory);
        let done = events.iter().filter(|event| matches!(event, Event::RelQueryDone { .. })).count();
        assert_eq!(done, 2, "{policy}");
        assert!(scheduler.stats().preemptions <= 1, "{policy}: {:?}", scheduler.stats());
        assert!(kinds.len() <= 90, "{policy}: {} steps", kinds.len());
    }
}

#[test]
fn a_lower_class_waits_for_a_higher_one_however_short_it_is() {
    let mut scheduler = scheduler(config(Policy::MarginalWork));
    let bulk = submission(1, 0, rows(1, 0, 4, 1, 1));
    scheduler.submit(base::Submission { class: ServiceClass::Bulk, ..bulk }).expect("room");
    scheduler.submit(submission(2, 5, rows(3, 0, 40, 9, 5))).expect("room");
    let plan = scheduler.plan(Time(6)).expect("work");
    assert_eq!(plan.slots[0].input.len(), 40, "the higher class comes first");
    assert_eq!(scheduler.last_decision().front.map(|key| key.id), Some(RelQueryId(2)));
}

#[test]
fn a_short_relquery_overtakes_a_long_one_that_runs() {
    let mut scheduler = scheduler(config(Policy::RelServe));
    let (mut memory, plan) = start(&mut scheduler, rows(4, 0, 20, 30, 1));
    scheduler.apply(&memory.step(&plan), Time(2));
    let short = rows(1, 0, 3, 1, 50);
    memory.know(&short);
    scheduler.submit(submission(2, 3, short)).expect("room");
    let plan = scheduler.plan(Time(4)).expect("work");
    assert_eq!(scheduler.last_decision().reason, Reason::Overtakes);
    assert_eq!((plan.kind(), plan.slots.len()), (BatchKind::Prefill, 1));
}

#[test]
fn a_relquery_that_has_waited_too_long_goes_first() {
    let limits = SchedulerConfig { unit_waiting_ms_max: Some(Millis(1)), ..config(Policy::RelServe) };
    let mut scheduler = scheduler(limits);
    scheduler.submit(submission(1, 0, rows(4, 0, 40, 30, 1))).expect("room");
    let late = Time(5_000_000);
    scheduler.submit(submission(2, late.0, rows(1, 0, 3, 1, 50))).expect("room");
    scheduler.plan(late).expect("work");
    let front = scheduler.last_decision().front.expect("both wait");
    assert_eq!((front.id, front.priority), (RelQueryId(1), 0));
}

#[test]
fn forced_tokens_are_computed_with_the_next_sample_counted_and_save_steps() {
    for policy in Policy::ALL {
        let run = |forced: usize| {
            // Room for little more than one row: others are preempted in the middle of their stretches.
            let mut scheduler = scheduler(SchedulerConfig { kv_blocks: 12, ..config(policy) });
            let items = rows(3, 8, 3, 20, 1);
            let mut memory = Memory::new(4);
            memory.forced = forced;
            memory.know(&items);
            scheduler.submit(submission(1, 0, items)).expect("room");
            let (events, kinds) = finish(&mut scheduler, &mut memory);
            let events: Vec<Event> =
                events.into_iter().filter(|event| matches!(event, Event::RowDone { .. })).collect();
            assert!(scheduler.is_idle(), "{policy}");
            let tokens = usage(&events).output.0;
            assert_eq!(scheduler.stats().output_tokens, tokens, "{policy}");
            (tokens, kinds.len(), scheduler.stats().forced_tokens)
        };
        let (plain, forced) = (run(0), run(4));
        assert_eq!((plain.0, plain.2), (forced.0, 0), "{policy}: the same outputs");
        assert!(forced.2 * 2 > forced.0 && forced.1 * 2 < plain.1, "{policy}: {plain:?} {forced:?}");
    }
}

#[test]
fn forced_stretches_are_computed_beside_the_next_prompts() {
    let limits =
        SchedulerConfig { chunk_tokens: TokenCount(16), sequences_max: 8, ..config(Policy::Sarathi) };
    let mut scheduler = scheduler(limits);
    // Two rows that end late, and four that have no block in common with them.
    let (first, second) = (rows(2, 0, 6, 20, 8), rows(4, 4, 8, 20, 50));
    let mut memory = Memory::new(4);
    memory.forced = 3;
    memory.know(&first);
    memory.know(&second);
    scheduler.submit(submission(1, 0, first)).expect("room");
    let prompts = scheduler.plan(Time(1)).expect("work");
    scheduler.apply(&memory.step(&prompts), Time(2));
    scheduler.submit(submission(2, 2, second)).expect("room");
    let plan = scheduler.plan(Time(3)).expect("work");
    let tokens = |is_prefill: bool| -> Vec<usize> {
        let slots = plan.slots.iter().filter(|slot| slot.is_prefill == is_prefill);
        slots.map(|slot| slot.input.len()).collect()
    };
    // What was sampled and what was forced behind it, of both rows; the rest of the step is prompts.
    assert_eq!((tokens(false), tokens(true)), (vec![4, 4], vec![8]));
    scheduler.apply(&memory.step(&plan), Time(4));
    assert_eq!(scheduler.stats().forced_tokens, 4 * 3);
}
