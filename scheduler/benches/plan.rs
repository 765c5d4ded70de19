//! Time of one step's `plan` and `apply` with many rows waiting:
//! `cargo bench -p scheduler --bench plan`; a policy's name behind `--` picks its cases. The goal is under
//! 50 us at 10,000 waiting rows and near the same at 100,000. RelQueries are of 100 rows, one of all rows,
//! or of one row each; `guessing`: with guesses, all of which are right.

mod common;

use std::cell::OnceCell;
use std::hint::black_box;
use std::time::{Duration, Instant};

use base::{BatchPlan, End, Nanos, RowOutcome, Sampled, StepOutcome, Time, TokenId};
use common::submission;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use scheduler::{CostModel, Policy, Scheduler, SchedulerConfig, Speculation};

/// Rows of a relQuery; the paper's largest.
const ROWS: u64 = 100;
/// Output tokens of a row.
const OUTPUT: u32 = 20;
/// Rows that run at a time.
const RUNNING: u64 = 64;

fn outcome(plan: &BatchPlan) -> StepOutcome {
    let rows = plan
        .slots
        .iter()
        .filter(|slot| slot.sample.is_some())
        .map(|slot| {
            let index = slot.sample.as_ref().map_or(0, |sample| sample.output_index);
            // All rows say the same, so all guesses are right.
            let tokens: Vec<TokenId> = (index..OUTPUT).take(1 + slot.guesses as usize).map(TokenId).collect();
            let end = (index + tokens.len() as u32 >= OUTPUT).then_some(End::Stop);
            let sampled = Sampled { tokens, end, ..Sampled::default() };
            RowOutcome { request: slot.request, result: Ok(sampled) }
        })
        .collect();
    StepOutcome { step: plan.step, elapsed: Nanos(25_000_000), rows, prompts: Vec::new() }
}

/// A scheduler in its stride: no sequence free, `waiting` rows behind. Rows end and new ones are
/// admitted as it goes on, so that a step is a prefill or a decode as the policy has it.
fn loaded(
    policy: Policy,
    speculation: Speculation,
    waiting: u64,
    relquery_rows: u64,
    running: u64,
) -> Scheduler {
    let config = SchedulerConfig {
        policy,
        speculation,
        sequences_max: running as u32,
        kv_blocks: 32 * running as u32,
        rows_max: 1_000_000,
        relqueries_max: 1_000_000,
        ..SchedulerConfig::default()
    };
    let mut scheduler = Scheduler::new(config, CostModel::default()).expect("a valid configuration");
    let rows = waiting + running;
    for id in 0..rows.div_ceil(relquery_rows) {
        let rows = relquery_rows.min(rows - id * relquery_rows);
        scheduler.submit(submission(id + 1, rows)).expect("the queue is large enough");
    }
    let mut now = Time(1_000_000);
    for _ in 0..running / 8 {
        step(&mut scheduler, &mut now);
    }
    scheduler
}

/// One step.
fn step(scheduler: &mut Scheduler, now: &mut Time) {
    if let Some(plan) = scheduler.plan(*now) {
        let outcome = outcome(&plan);
        *now = *now + outcome.elapsed;
        scheduler.apply(&outcome, *now);
    }
}

/// Steps after which a run starts from the loaded state again.
const STRETCH: u64 = 12;

/// Time of `steps` steps, loading not counted.
fn time(loaded: &Scheduler, steps: u64) -> Duration {
    let mut total = Duration::ZERO;
    let mut left = steps;
    while left > 0 {
        let (mut scheduler, mut now) = (loaded.clone(), Time(2_000_000_000));
        let stretch = left.min(STRETCH);
        for _ in 0..stretch {
            let start = Instant::now();
            let plan = black_box(scheduler.plan(now));
            total += start.elapsed();
            let Some(plan) = plan else { break };
            let outcome = outcome(&plan);
            now = now + outcome.elapsed;
            let start = Instant::now();
            black_box(scheduler.apply(&outcome, now));
            total += start.elapsed();
        }
        left -= stretch;
    }
    total
}

/// Resident memory of this process, where the system tells (Linux).
fn resident_bytes() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(pages.split(' ').nth(1)?.parse::<u64>().ok()? * 4_096)
}

/// Bytes that each of 100,000 waiting rows keeps, its 200 prompt tokens (800 bytes) among them. Must come
/// first: memory that was given back and is used again does not show.
fn memory(policy: Policy, relquery_rows: u64) -> Option<u64> {
    let rows = 100_000;
    let before = resident_bytes()?;
    let scheduler = loaded(policy, Speculation::Off, rows, relquery_rows, RUNNING);
    let bytes = resident_bytes()?.saturating_sub(before);
    drop(scheduler);
    Some(bytes / rows)
}

fn plan_and_apply(criterion: &mut Criterion) {
    if let Some(bytes) = memory(Policy::default(), ROWS) {
        eprintln!("{}, relQueries of {ROWS}: {bytes} bytes per waiting row", Policy::default());
    }
    let mut group = criterion.benchmark_group("step");
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500));
    let off = Speculation::Off;
    for policy in Policy::ALL {
        let mut case = |name: String, speculation: Speculation, waiting: u64, rows: u64, running: u64| {
            // Loaded only if the case is run at all.
            let state = OnceCell::new();
            group.bench_function(BenchmarkId::new(name, waiting), |bencher| {
                let state = state.get_or_init(|| loaded(policy, speculation, waiting, rows, running));
                bencher.iter_custom(|steps| time(state, steps));
            });
        };
        for waiting in [10, 100, 1_000, 10_000, 100_000] {
            case(format!("{policy}, of 100"), off, waiting, ROWS, RUNNING);
            case(format!("{policy}, one"), off, waiting, waiting + RUNNING, RUNNING);
            case(format!("{policy}, of 1"), off, waiting, 1, RUNNING);
        }
        case(format!("{policy}, of 100, 256 running"), off, 10_000, ROWS, 256);
        case(format!("{policy}, of 100, guessing"), Speculation::Auto, 10_000, ROWS, RUNNING);
        case(format!("{policy}, of 100, 256 running, guessing"), Speculation::Auto, 10_000, ROWS, 256);
    }
    group.finish();
}

criterion_group!(benches, plan_and_apply);
criterion_main!(benches);
