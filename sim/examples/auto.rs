//! `auto` beside every fixed policy: mean latency of the relQueries that arrive after the first minute.
//!
//! ```text
//! cargo run --release -p sim --example auto [SEED]
//! ```

#![expect(clippy::print_stdout, reason = "a report is its purpose")]

use base::{Nanos, TokenCount};
use scheduler::{CostModel, Policy};
use sim::{Dataset, Offline, ReplayConfig, Trace, Workload, generate, replay};

/// A machine and what arrives there.
struct LoadedMachine {
    name: &'static str,
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

/// A machine with steps as a CPU has them: ns per prompt token, of a prefill, per sequence, of a decode.
fn cpu([a_p, b_p, a_d, b_d]: [u64; 4], hidden: i64) -> ReplayConfig {
    let mut config = opt13b(0, 65_536);
    config.cost = CostModel {
        prefill_per_token: Nanos(a_p),
        prefill_base: Nanos(b_p),
        decode_per_sequence: Nanos(a_d),
        decode_base: Nanos(b_d),
        mixed_hidden: hidden,
    };
    config.scheduler.step_tokens_max = TokenCount(2_048);
    config
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

fn cases(seed: u64) -> Vec<LoadedMachine> {
    let demo = cpu([6_000, 400_000, 60_000, 500_000], 0);
    let small = cpu([250_000, 5_000_000, 800_000, 12_000_000], 2_000_000);
    let two = |rate| Workload { offline: Some(Offline::default()), ..paper(rate, 120, (1, 100), seed) };
    let case = |name, config: &ReplayConfig, trace| LoadedMachine { name, config: config.clone(), trace };
    vec![
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
        case("demo CPU, 12/s", &demo, generate(&paper(12.0, 2_000, (1, 100), seed))),
        case("125M CPU, 3/s", &small, generate(&paper(2.0, 400, (1, 16), seed))),
    ]
}

/// Mean latency, in seconds, of what arrives after the first minute.
fn late_mean(trace: &Trace, t_done: &[f64]) -> f64 {
    let late = trace.relqueries.iter().zip(t_done).filter(|(relquery, _)| relquery.arrival >= 60.0);
    let latencies: Vec<f64> = late.map(|(relquery, done)| done - relquery.arrival).collect();
    latencies.iter().sum::<f64>() / latencies.len().max(1) as f64
}

fn main() -> Result<(), sim::SimError> {
    let seed = std::env::args().nth(1).and_then(|seed| seed.parse().ok()).unwrap_or(0);
    for LoadedMachine { name, config, trace } in cases(seed) {
        let mut line = format!("{name:26}");
        let mut best = f64::INFINITY;
        for policy in Policy::ALL {
            let mean = late_mean(&trace, &replay(&trace, policy, &config)?.t_done);
            best = best.min(mean);
            line += &format!(" {:>8.3}", mean);
        }
        let auto = replay(&trace, Policy::Auto, &config)?;
        let mean = late_mean(&trace, &auto.t_done);
        println!("{line} | auto {mean:>8.3} {:.3}", mean / best);
        for switch in &auto.switches {
            println!("    {:>6.1} s: {}", switch.at.as_seconds(), switch.verdict);
        }
    }
    Ok(())
}
