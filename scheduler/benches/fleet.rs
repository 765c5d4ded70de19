//! Time in which a fleet takes one row's end, sends the row that goes in its place and counts what it has, as the loop
//! does each time, with 10,000 rows waiting behind 32 replicas of 64 rows each, in relQueries of 100 rows and of one:
//! `cargo bench -p scheduler --bench fleet`. The goal is 1 % of the machines' time: on replicas whose step of 64 rows
//! takes 54 ms (OPT-13B on an A100) and whose rows take 20 of them, a row ends every 527 us, so 5.3 us.

mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use base::{End, Nanos, Time, TokenCount};
use common::submission;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use scheduler::fleet::{Dispatch, Finish, Fleet, FleetConfig, ReplicaConfig, ReplicaId};
use scheduler::{Policy, SchedulerConfig};

const REPLICAS: u32 = 32;
const ROWS_MAX: u32 = 64;
const WAITING: u64 = 10_000;
/// Rows of a relQuery.
const ROWS: [u64; 2] = [100, 1];
/// Time between two ends.
const PACE: Nanos = Nanos(527_000);
/// Rows after which a run starts from the loaded state again.
const STRETCH: u64 = 1_000;

fn finish() -> Finish {
    Finish {
        end: End::Stop,
        prompt: None,
        cached: TokenCount(60),
        output: TokenCount(20),
        text: String::new(),
        tokens: Vec::new(),
    }
}

/// One row ends, another one goes, and the loop shows what there is: the time of these calls.
fn exchange(fleet: &mut Fleet, flying: &mut std::collections::VecDeque<Dispatch>, now: Time) -> Duration {
    let Some(oldest) = flying.pop_front() else { return Duration::ZERO };
    let finish = finish();
    let start = Instant::now();
    black_box(fleet.finished(oldest.request, finish, now));
    let sent = black_box(fleet.dispatch(now));
    black_box(fleet.stats());
    let took = start.elapsed();
    flying.extend(sent);
    took
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fleet");
    let policies = [Policy::Fcfs, Policy::RelServe, Policy::MarginalWork];
    for (policy, of) in policies.into_iter().flat_map(|policy| ROWS.map(|rows| (policy, rows))) {
        let replica = ReplicaConfig { rows_max: ROWS_MAX, tokens_max: None };
        let replicas = (0..REPLICAS).map(|id| (ReplicaId(id), replica));
        let scheduler = SchedulerConfig { policy, refit: true, ..SchedulerConfig::default() };
        let config = FleetConfig { relqueries_max: u32::MAX, ..FleetConfig::default() };
        let mut loaded = Fleet::new(config, scheduler, replicas).expect("valid");
        let rows = WAITING + u64::from(REPLICAS * ROWS_MAX);
        for id in 0..rows.div_ceil(of) {
            loaded.submit(submission(id + 1, of)).expect("the queue is large enough");
        }
        let mut flying: std::collections::VecDeque<Dispatch> = loaded.dispatch(Time(1_000_000)).into();
        let mut now = Time(1_000_000_000);
        // Until costs are fitted.
        for _ in 0..STRETCH {
            now = now + PACE;
            exchange(&mut loaded, &mut flying, now);
        }
        group.bench_function(BenchmarkId::new(policy.name(), of), |bencher| {
            bencher.iter_custom(|rows| {
                let mut total = Duration::ZERO;
                let mut left = rows;
                while left > 0 {
                    let (mut fleet, mut flying, mut now) = (loaded.clone(), flying.clone(), now);
                    for _ in 0..left.min(STRETCH) {
                        now = now + PACE;
                        total += exchange(&mut fleet, &mut flying, now);
                    }
                    left -= left.min(STRETCH);
                }
                total
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
