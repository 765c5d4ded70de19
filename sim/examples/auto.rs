//! `auto` beside every fixed policy: mean latency of the relQueries that arrive after the first minute, and the 99th
//! percentile of all; then how many times the best fixed policy's it is, and the same of the means of all.
//!
//! ```text
//! cargo run --release -p sim --example auto [SEED] [CASE] [KEY=VALUE]..
//! ```

#![expect(clippy::print_stdout, reason = "a report is its purpose")]

use std::time::Instant;

use scheduler::Policy;
use sim::regret::{Shape, machines, service_seconds, trace};
use sim::{Dataset, Offline, ReplayConfig, Trace, Workload, generate, replay};

/// A machine and what arrives there.
struct LoadedMachine {
    name: String,
    config: ReplayConfig,
    trace: Trace,
}

/// The reference machine with so much memory, of whose difference of bases a mixed step hides so much.
fn opt13b(hide: u64, kv_tokens: u32) -> ReplayConfig {
    let mut config = ReplayConfig::default();
    config.cost = config.cost.hiding(hide);
    config.scheduler.kv_blocks = kv_tokens;
    config
}

/// A machine that was fitted to two CPU cores, so busy for `load` hundredths of the time.
fn fitted(machine: &str, load: u32, relqueries: usize, seed: u64) -> Result<LoadedMachine, sim::SimError> {
    let config = machines().into_iter().find(|case| case.name == machine).map(|case| case.config);
    let config = config.unwrap_or_default();
    let trace = trace(Shape::One, load, service_seconds(&config)?, relqueries, seed);
    Ok(LoadedMachine { name: format!("{machine}, {load} %"), config, trace })
}

fn paper(rate: f64, relqueries: usize, rows: (u64, u64), seed: u64) -> Workload {
    Workload { relqueries, rows, ..Workload::new(Dataset::Rotten, rate, seed) }
}

/// All that arrives within 20 s comes in the first two of them.
fn bursts(mut trace: Trace) -> Trace {
    for relquery in &mut trace.relqueries {
        let begin = (relquery.arrival / 20.0).floor() * 20.0;
        relquery.arrival = begin + (relquery.arrival - begin) / 10.0;
    }
    trace
}

fn cases(seed: u64) -> Result<Vec<LoadedMachine>, sim::SimError> {
    let two = |rate| Workload { offline: Some(Offline::default()), ..paper(rate, 120, (1, 100), seed) };
    let case = |name: &str, config: &ReplayConfig, trace| LoadedMachine {
        name: name.into(),
        config: config.clone(),
        trace,
    };
    Ok(vec![
        case("opt-13b hide 0, 0.6/s", &opt13b(0, 10_000), generate(&paper(0.6, 150, (1, 100), seed))),
        case("opt-13b hide 0, 1.0/s", &opt13b(0, 10_000), generate(&paper(1.0, 200, (1, 100), seed))),
        case("opt-13b hide 0.75, 0.8/s", &opt13b(750, 10_000), generate(&paper(0.8, 200, (1, 100), seed))),
        case("opt-13b hide 1, 1.0/s", &opt13b(1_000, 10_000), generate(&paper(1.0, 200, (1, 100), seed))),
        case("hide 0, ample KV, 0.5/s", &opt13b(0, 200_000), generate(&paper(0.5, 150, (1, 100), seed))),
        case("hide 0, ample KV, 1.0/s", &opt13b(0, 200_000), generate(&paper(1.0, 200, (1, 100), seed))),
        case("hide 0, tight KV, 0.7/s", &opt13b(0, 6_000), generate(&paper(0.7, 150, (1, 100), seed))),
        case("hide 0, two tenants", &opt13b(0, 10_000), generate(&two(0.4))),
        case("hide 1, two tenants", &opt13b(1_000, 10_000), generate(&two(0.4))),
        case("hide 0, bursts, 0.7/s", &opt13b(0, 10_000), bursts(generate(&paper(0.7, 150, (1, 100), seed)))),
        fitted("demo, 2 cores", 90, 800, seed)?,
        fitted("llama-125m f32, 2 cores", 90, 100, seed)?,
    ])
}

/// Those of the comparison: every policy, and the variant that `auto` may choose.
fn fixed() -> impl Iterator<Item = Policy> {
    Policy::ALL.into_iter().chain([Policy::MarginalWorkSlowAging])
}

/// Mean latency, in seconds, of what arrives after the first minute.
fn late_mean(trace: &Trace, t_done: &[f64]) -> f64 {
    let late = trace.relqueries.iter().zip(t_done).filter(|(relquery, _)| relquery.arrival >= 60.0);
    let latencies: Vec<f64> = late.map(|(relquery, done)| done - relquery.arrival).collect();
    latencies.iter().sum::<f64>() / latencies.len().max(1) as f64
}

/// Runs a case under every policy; the line of the table, and the changes of `auto`.
fn report(LoadedMachine { name, config, trace }: &LoadedMachine) -> Result<String, sim::SimError> {
    let begun = Instant::now();
    let mut line = format!("{name:26}");
    let (mut best, mut best_of_all) = (f64::INFINITY, f64::INFINITY);
    for policy in fixed() {
        let replay = replay(trace, policy, config)?;
        let mean = late_mean(trace, &replay.t_done);
        best = best.min(mean);
        best_of_all = best_of_all.min(replay.summary.mean);
        line += &format!(" {mean:>8.3} ({:.1})", replay.summary.p99);
    }
    let fixed = begun.elapsed().as_secs_f64();
    let auto = replay(trace, Policy::Auto, config)?;
    let mean = late_mean(trace, &auto.t_done);
    let took = begun.elapsed().as_secs_f64() - fixed;
    line += &format!(" | auto {mean:>8.3} ({:.1})", auto.summary.p99);
    line += &format!(" {:.3}, of all {:.3}", mean / best, auto.summary.mean / best_of_all);
    line += &format!(" | {fixed:.1} s, auto {took:.1} s");
    for switch in &auto.switches {
        line += &format!("\n    {:>6.1} s: {}", switch.at.as_seconds(), switch.verdict);
    }
    Ok(line)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let settings: Vec<String> = args.extract_if(.., |arg| arg.contains('=')).collect();
    let seed = args.first().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let wanted = args.get(1).cloned().unwrap_or_default();
    print!("{:26}", "case");
    fixed().for_each(|policy| print!(" {policy}"));
    println!(" | auto, x best, x best mean of all | the time that this took");
    for mut case in cases(seed)?.into_iter().filter(|case| case.name.contains(&wanted)) {
        for setting in &settings {
            sim::set(&mut case.config.scheduler, setting)?;
        }
        println!("{}", report(&case)?);
    }
    Ok(())
}
